/* answer.c - reads the hidden number of a prompt and the model's answer (answer.h). */
#include "analyzers/answer.h"

#include <string.h>

#include "base/mem.h"
#include "libtrace/run_header.h"

int span_mark(const struct kvf_trace *t, const char *name, int64_t T, unsigned char *mark,
              bool *ret_found, struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = run_header(t, &root, d);
    if (err)
        return err;
    *ret_found = false;
    for (const struct json *x = json_first(json_get(root, "spans")); x; x = json_next(x)) {
        if (strcmp(json_str(json_get(x, "name"), ""), name) != 0)
            continue;
        *ret_found = true;
        for (const struct json *r = json_first(json_get(x, "tokens")); r; r = json_next(r)) {
            const struct json *from = json_first(r);
            int64_t i = json_int(from, 0), to = json_int(from ? json_next(from) : NULL, 0);
            for (i = i < 0 ? 0 : i; i < to && i < T; i++)
                mark[i] = 1;
        }
    }
    json_free(root);
    return KVF_OK;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Returns true if `text` contains the n bytes at `part`, in upper or lower case. */
static bool contains(const struct buf *text, const char *part, size_t n)
{
    for (size_t i = 0; i + n <= text->len; i++) {
        size_t k = 0;
        while (k < n && lower(text->data[i + k]) == lower(part[k]))
            k++;
        if (k == n)
            return true;
    }
    return false;
}

/* Returns true for letters, digits and bytes beyond ASCII. */
static bool is_word(char c)
{
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || (unsigned char)c > 127;
}

/* Judges one value, and appends it to `expected`. Blanks and punctuation at its ends belong to its
 * tokens, not to the value. */
static void judge(struct answer *x, const struct buf *value)
{
    size_t from = 0, to = value->len;
    while (from < to && !is_word(value->data[from]))
        from++;
    while (to > from && !is_word(value->data[to - 1]))
        to--;
    if (from == to)
        return;
    if (x->expected.len)
        buf_str(&x->expected, ", ");
    buf_add(&x->expected, value->data + from, to - from);
    x->right &= contains(&x->text, value->data + from, to - from);
}

/* Judges the answer by each maximal range of tokens that `mark` selects. */
static int judge_all(struct kvf_trace *t, struct answer *x, const unsigned char *mark, int64_t T,
                     struct kvf_diag *d)
{
    struct buf value = {0};
    int err = kvf_texts(t);
    x->right = true;
    for (int64_t i = 0; !err && i < T; i++) {
        size_t n = 0;
        const char *text = mark[i] ? kvf_token(t, (uint32_t)i, &n) : NULL;
        if (mark[i] && !text)
            err = kvf_fail(d, KVF_E_NOTFOUND, "the trace lacks the text of token %lld",
                           (long long)i);
        else if (mark[i])
            buf_add(&value, text, n);
        if (mark[i] && (i + 1 == T || !mark[i + 1])) {
            judge(x, &value);
            value.len = 0;
        }
    }
    if (!err)
        err = value.err ? value.err : x->expected.err;
    if (!err && !x->expected.len)
        err = kvf_fail(d, KVF_E_ARG, "--needle: the spans 'value' of the run have no text");
    buf_finish(&value);
    return err;
}

/* Copies a note in JSON and replaces NUL characters in its texts by blanks, because texts of struct
 * json end at NUL. */
static void copy_note(struct buf *b, const char *note)
{
    for (const char *s = note; *s; s++) {
        if (strncmp(s, "\\u0000", 6) == 0) {
            buf_str(b, " ");
            s += 5;
            continue;
        }
        buf_char(b, *s);
        if (*s == '\\' && s[1])
            buf_char(b, *++s);
    }
}

/* Reads the text that the run generated. It is empty if the model ended its answer at once. */
static int read_text(const struct kvf_trace *t, struct answer *x, struct kvf_diag *d)
{
    const char *note = kvf_note(t, "result");
    struct json *result = NULL;
    struct buf copy = {0};
    copy_note(&copy, note ? note : "");
    if (note && !copy.err && json_parse(copy.data, copy.len, &result, NULL) == KVF_OK)
        for (const char *s = json_str(json_get(result, "text"), ""); *s; s++)
            buf_char(&x->text, (unsigned char)*s < ' ' || *s == 127 ? ' ' : *s);
    bool ended = strcmp(json_str(json_get(result, "stop"), ""), "eos") == 0;
    json_free(result);
    buf_finish(&copy);
    if (!x->text.err && !x->text.len && !ended)
        return kvf_fail(d, KVF_E_NOTFOUND,
                        "--needle: the trace has no answer; record the run to its end, with -n 2 "
                        "or more and without --force");
    return x->text.err;
}

/* Marks the tokens of a span that the run must have. */
static int need_span(const struct kvf_trace *t, const char *name, int64_t T, unsigned char *mark,
                     struct kvf_diag *d)
{
    bool found;
    int err = span_mark(t, name, T, mark, &found, d);
    if (err || found)
        return err;
    return kvf_fail(d, KVF_E_ARG,
                    "--needle: the run has no span '%s'; record it with kvfate run --spans "
                    "NAME.json, which kvfate tasks needle writes",
                    name);
}

int answer_read(struct kvf_trace *t, const char *needle, int64_t T, struct answer *ret,
                struct kvf_diag *d)
{
    unsigned char *value = MEM_NEW(unsigned char, (size_t)T + 1);
    ret->needle = MEM_NEW(unsigned char, (size_t)T + 1);
    int err = value && ret->needle ? KVF_OK : KVF_E_NOMEM;
    bool judged = strcmp(needle, "none") != 0;
    if (!err && judged)
        err = need_span(t, needle, T, ret->needle, d);
    if (!err && judged)
        err = need_span(t, "value", T, value, d);
    if (!err)
        err = read_text(t, ret, d);
    if (!err && judged)
        err = judge_all(t, ret, value, T, d);
    ret->judged = judged;
    mem_free(value);
    return err;
}

void answer_finish(struct answer *x)
{
    mem_free(x->needle);
    buf_finish(&x->text);
    buf_finish(&x->expected);
}
