#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "analyzers/fold.h"
#include "base/mem.h"

struct fold {
    pcre2_code *code;
    pcre2_match_data *match;
    PCRE2_UCHAR *out; /* [room] */
    PCRE2_SIZE room;
};

struct fold *fold_create(void)
{
    /* The first part gives back only the punctuation at the end: time is linear. */
    static const char regex[] = "(?s)\\A\\p{P}*+(.*\\P{P})\\p{P}*\\z|\\A(.+)\\z";
    struct fold *f = MEM_NEW(struct fold, 1);
    int code;
    PCRE2_SIZE at;
    if (!f)
        return NULL;
    f->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                            &at, NULL);
    f->match = pcre2_match_data_create(3, NULL);
    if (f->code && f->match)
        return f;
    fold_destroy(f);
    return NULL;
}

void fold_destroy(struct fold *f)
{
    if (!f)
        return;
    pcre2_code_free(f->code);
    pcre2_match_data_free(f->match);
    mem_free(f->out);
    mem_free(f);
}

int fold_word(struct fold *f, const char *s, size_t n, struct buf *out)
{
    static const char by[] = "\\L$1$2";
    const uint32_t flags = PCRE2_SUBSTITUTE_EXTENDED | PCRE2_SUBSTITUTE_UNSET_EMPTY
                           | PCRE2_NO_UTF_CHECK;
    /* A letter of two bytes may become one of three. */
    PCRE2_SIZE room = 2 * n + 16, len = room;
    if (room > f->room) {
        PCRE2_UCHAR *p = mem_grow(f->out, f->room, room, 1);
        if (!p)
            return KVF_E_NOMEM;
        f->out = p;
        f->room = room;
    }
    int rc = pcre2_substitute(f->code, (PCRE2_SPTR)s, n, 0, flags, f->match, NULL, (PCRE2_SPTR)by,
                              PCRE2_ZERO_TERMINATED, f->out, &len);
    if (rc < 0)
        return KVF_E_NOMEM;
    buf_add(out, f->out, len);
    return out->err;
}
