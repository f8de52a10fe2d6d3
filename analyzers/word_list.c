/* word_list.c - counts the words of a text (word_list.h). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/common.h"
#include "analyzers/word_list.h"
#include "base/mem.h"
#include "base/utf8.h"

/* ---- words that differ in case, or in punctuation around them, made one */

struct fold {
    pcre2_code *code;
    pcre2_match_data *match;
    PCRE2_UCHAR *out; /* [room] */
    PCRE2_SIZE room;
};

static void fold_destroy(struct fold *f)
{
    if (!f)
        return;
    pcre2_code_free(f->code);
    pcre2_match_data_free(f->match);
    mem_free_all(f->out, f);
}

static struct fold *fold_create(void)
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

/* Appends s, which is well-formed UTF-8, folded: each letter becomes its simple lower case of
 * Unicode, and \p{P} at both ends is left out unless the rest is empty.  KVF_OK or KVF_E_NOMEM. */
static int fold_word(struct fold *f, const char *s, size_t n, struct buf *out)
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

struct maker {
    const struct word_source *s;
    struct word_list *l;
    struct fold *fold;
    size_t *at;  /* [room] where the string of a place begins */
    size_t room; /* places */
};

/* White_Space of Unicode. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680
           || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f
           || c == 0x205f || c == 0x3000;
}

static int grow(struct maker *m)
{
    size_t room = m->room ? 2 * m->room : 1024;
    struct place *p = mem_grow(m->l->place, m->room, room, sizeof *p);
    if (p)
        m->l->place = p;
    size_t *at = mem_grow(m->at, m->room, room, sizeof *at);
    if (at)
        m->at = at;
    if (!p || !at)
        return KVF_E_NOMEM;
    m->room = room;
    return KVF_OK;
}

/* Adds the bytes of a string that has the tokens [first, end). */
static int add_place(struct maker *m, const char *bytes, size_t n, int64_t first, int64_t end)
{
    const struct word_source *s = m->s;
    struct word_list *l = m->l;
    struct buf shown = {0};
    int err = KVF_OK;
    first = first < s->a ? s->a : first;
    end = end > s->b ? s->b : end;
    if (first >= end)
        return KVF_OK;
    if ((size_t)l->n_places == m->room)
        err = grow(m);
    if (err)
        return err;
    l->place[l->n_places] = (struct place){0, first, end};
    m->at[l->n_places++] = l->strings.len;
    utf8_show(&shown, bytes, n);
    if (m->fold)
        err = fold_word(m->fold, shown.data ? shown.data : "", shown.len, &l->strings);
    else
        buf_add(&l->strings, shown.data ? shown.data : "", shown.len);
    buf_char(&l->strings, 0);
    if (!err)
        err = shown.err ? shown.err : l->strings.err;
    buf_finish(&shown);
    return err;
}

/* ---- words */

static int read_text(const struct word_source *s, struct buf *text, size_t *end)
{
    int err = kvf_texts(s->t);
    for (int64_t i = 0; !err && i < kvf_n_steps(s->t); i++) {
        size_t n = 0;
        const char *bytes = kvf_token(s->t, (uint32_t)i, &n);
        buf_add(text, bytes ? bytes : "", bytes ? n : 0);
        end[i] = text->len;
    }
    return err ? err : text->err;
}

static bool alone(const struct word_source *s, int64_t i)
{
    int c = i < 0 ? CLASS_WORD : s->class[i];
    return c == CLASS_SPECIAL || c == CLASS_VISION || c == CLASS_THINK;
}

/* Cuts the text into words; i is the token of the byte k, last that of the byte before. */
static int cut_words(struct maker *m, const char *text, const size_t *end, size_t n)
{
    int64_t i = 0, first = -1, last = -1;
    size_t start = 0;
    int err = KVF_OK;
    for (size_t k = 0, len; !err && k < n; k += len) {
        uint32_t c;
        while (end[i] <= k)
            i++;
        len = utf8_decode(text + k, n - k, &c);
        bool space = len && is_space(c);
        if (first >= 0 && (space || (i != last && (alone(m->s, i) || alone(m->s, last))))) {
            err = add_place(m, text + start, k - start, first, last + 1);
            first = -1;
        }
        len = len ? len : 1;
        if (first < 0 && !space) {
            first = i;
            start = k;
        }
        for (last = i; end[last] < k + len;)
            last++;
    }
    return !err && first >= 0 ? add_place(m, text + start, n - start, first, last + 1) : err;
}

static int read_words(struct maker *m)
{
    struct buf text = {0};
    size_t *end = MEM_NEW(size_t, kvf_n_steps(m->s->t));
    int err = end ? read_text(m->s, &text, end) : KVF_E_NOMEM;
    if (!err)
        err = cut_words(m, text.data, end, text.len);
    buf_finish(&text);
    mem_free(end);
    return err;
}

static const char *label(const struct word_source *s, int64_t i)
{
    return s->by == BY_CLASS ? classes_name(s->c, s->class[i]) : role_name(s->role[i]);
}

static int read_tokens(struct maker *m)
{
    const struct word_source *s = m->s;
    int err = kvf_texts(s->t);
    for (int64_t i = s->a; !err && i < s->b; i++) {
        size_t n = 0;
        const char *bytes = s->by == BY_TOKEN ? kvf_token(s->t, (uint32_t)i, &n) : label(s, i);
        n = s->by == BY_TOKEN || !bytes ? n : strlen(bytes);
        if (bytes)
            err = add_place(m, bytes, n, i, i + 1);
    }
    return err;
}

/* ---- the distinct ones */

struct entry {
    const char *text;
    int64_t place;
};

static int by_text(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Numbers the strings of the places as they are first met. */
static int number_words(struct maker *m)
{
    struct word_list *l = m->l;
    size_t n = (size_t)l->n_places;
    struct entry *e = MEM_NEW(struct entry, n);
    int64_t leader = 0;
    l->word = MEM_NEW(const char *, n);
    if (!e || !l->word) {
        mem_free(e);
        return KVF_E_NOMEM;
    }
    for (size_t k = 0; k < n; k++)
        e[k] = (struct entry){l->strings.data + m->at[k], (int64_t)k};
    qsort(e, n, sizeof *e, by_text);
    for (size_t k = 0; k < n; k++) { /* word: for now the first place of the same string */
        leader = k && strcmp(e[k].text, e[k - 1].text) == 0 ? leader : e[k].place;
        l->place[e[k].place].word = leader;
    }
    for (int64_t p = 0; p < l->n_places; p++) {
        struct place *first = &l->place[l->place[p].word];
        if (first == &l->place[p]) {
            l->word[l->n_words] = l->strings.data + m->at[p];
            first->word = l->n_words++;
        } else {
            l->place[p].word = first->word;
        }
    }
    mem_free(e);
    return KVF_OK;
}

static int64_t count_left_out(const struct word_list *l, int64_t a, int64_t b)
{
    int64_t covered = 0, end = a;
    for (int64_t p = 0; p < l->n_places; p++) {
        int64_t first = l->place[p].first > end ? l->place[p].first : end;
        covered += l->place[p].end > first ? l->place[p].end - first : 0;
        end = l->place[p].end > end ? l->place[p].end : end;
    }
    return b - a - covered;
}

int word_list_make(const struct word_source *s, struct word_list *ret)
{
    struct maker m = {.s = s, .l = ret};
    *ret = (struct word_list){0};
    int err = s->fold && !(m.fold = fold_create()) ? KVF_E_NOMEM : KVF_OK;
    if (!err)
        err = s->by == BY_WORD ? read_words(&m) : read_tokens(&m);
    if (!err && ret->n_places)
        err = number_words(&m);
    if (!err)
        ret->left_out = count_left_out(ret, s->a, s->b);
    fold_destroy(m.fold);
    mem_free(m.at);
    return err;
}

void word_list_free(struct word_list *l)
{
    mem_free_all((void *)l->word, l->place);
    buf_finish(&l->strings);
    *l = (struct word_list){0};
}
