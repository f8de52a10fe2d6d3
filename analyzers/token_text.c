/* token_text.c - the printable text of tokens (token_text.h). */
#include <stdbool.h>

#include "analyzers/token_text.h"
#include "base/mem.h"
#include "base/utf8.h"

static const char none[] = ""; /* of all tokens without a text: they take no memory of their own */

static int show(const char *s, size_t n, const char **ret)
{
    struct buf b = {0};
    if (n == 0) {
        *ret = none;
        return KVF_OK;
    }
    utf8_show(&b, s, n);
    *ret = mem_strdup(b.data ? b.data : "");
    int err = *ret ? b.err : KVF_E_NOMEM;
    buf_finish(&b);
    return err;
}

static int join(struct kvf_trace *t, int64_t a, struct token_text *x)
{
    enum { MOST = 8 }; /* tokens of a character and the tokens joined with them */
    int err = KVF_OK;
    for (int64_t i = 0, next; !err && i < x->n; i = next) {
        struct buf b = {0};
        size_t len = 0, first = 0;
        bool whole = false;
        for (next = i; !whole && next < x->n && next < i + MOST; next++) {
            const char *s = kvf_token(t, (uint32_t)(a + next), &len);
            buf_add(&b, s ? s : "", s ? len : 0);
            first = next == i ? b.len : first;
            whole = b.len == 0 || utf8_valid(b.data, b.len);
        }
        if (!whole)
            next = i + 1;
        const char *text = b.data ? b.data : "";
        err = b.err;
        if (!err)
            err = show(text, whole ? b.len : first, &x->joined[i]);
        for (int64_t k = i + 1; !err && k < next; k++)
            x->joined[k] = none;
        buf_finish(&b);
    }
    return err;
}

int token_text_read(struct kvf_trace *t, int64_t a, int64_t n, struct token_text *ret)
{
    ret->n = n;
    ret->text = MEM_NEW(const char *, (size_t)n);
    ret->joined = MEM_NEW(const char *, (size_t)n);
    int err = ret->text && ret->joined ? kvf_texts(t) : KVF_E_NOMEM;
    for (int64_t i = 0; !err && i < n; i++) {
        size_t len = 0;
        const char *s = kvf_token(t, (uint32_t)(a + i), &len);
        err = show(s ? s : "", s ? len : 0, &ret->text[i]);
    }
    return err ? err : join(t, a, ret);
}

void token_text_finish(struct token_text *x)
{
    for (int64_t i = 0; i < x->n; i++) {
        if (x->text && x->text[i] != none)
            mem_free((char *)(uintptr_t)x->text[i]);
        if (x->joined && x->joined[i] != none)
            mem_free((char *)(uintptr_t)x->joined[i]);
    }
    mem_free_all((void *)x->text, (void *)x->joined);
}
