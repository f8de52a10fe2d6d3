/* answer.c - reads the hidden number of a prompt and the model's answer (answer.h). */
#include "analyzers/answer.h"

#include <string.h>

#include "analyzers/common.h"
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

/* Marks the tokens of the prompt that overlap with a phrase, at each place where it occurs. */
static int mark_phrase(struct kvf_trace *t, const char *phrase, int64_t T, unsigned char *mark,
                       bool *ret_found, struct kvf_diag *d)
{
    struct buf text = {0};
    int64_t prompt = 0, *end = MEM_NEW(int64_t, (size_t)T + 1);
    size_t n = strlen(phrase);
    int err = end ? kvf_texts(t) : KVF_E_NOMEM;
    *ret_found = false;
    if (!err)
        err = prompt_tokens(t, &prompt, d);
    for (int64_t i = 0; !err && i < T && i < prompt; i++) {
        size_t bytes = 0;
        const char *token = kvf_token(t, (uint32_t)i, &bytes);
        buf_add(&text, token ? token : "", token ? bytes : 0);
        end[i] = (int64_t)text.len;
    }
    err = err ? err : text.err;
    for (size_t at = 0, i = 0; !err && n && at + n <= text.len; at++) {
        if (memcmp(text.data + at, phrase, n) != 0)
            continue;
        while (end[i] <= (int64_t)at)
            i++;
        for (size_t k = i; k == i || end[k - 1] < (int64_t)(at + n); k++)
            mark[k] = 1;
        *ret_found = true;
    }
    mem_free(end);
    buf_finish(&text);
    return err;
}

/* Marks the tokens of the needle and, if the answer is judged, reads the expected text: of the
 * spans "value", or the phrase itself if the needle is no span. */
static int read_needle(struct kvf_trace *t, const char *needle, int64_t T, struct answer *x,
                       struct kvf_diag *d)
{
    unsigned char *value = MEM_NEW(unsigned char, (size_t)T + 1);
    bool span = false, found = false;
    int err = value ? span_mark(t, needle, T, x->needle, &span, d) : KVF_E_NOMEM;
    if (!err && span)
        err = span_mark(t, "value", T, value, &found, d);
    else if (!err)
        err = mark_phrase(t, needle, T, x->needle, &found, d);
    if (!err && !found && span)
        err = kvf_fail(d, KVF_E_ARG,
                       "--needle: the run has no span 'value' with the right answer; record it "
                       "with kvfate run --spans NAME.json");
    else if (!err && !found)
        err = kvf_fail(d, KVF_E_ARG,
                       "--needle: '%s' is neither a span of the run (kvfate run --spans) nor a "
                       "phrase of its prompt; write the phrase as it stands there",
                       needle);
    if (!err && span)
        err = judge_all(t, x, value, T, d);
    if (!err && !span) {
        struct buf phrase = {0};
        buf_str(&phrase, needle);
        x->right = true;
        if (!phrase.err)
            judge(x, &phrase);
        err = phrase.err ? phrase.err : x->expected.err;
        buf_finish(&phrase);
    }
    mem_free(value);
    return err;
}

int answer_read(struct kvf_trace *t, const char *needle, int64_t T, struct answer *ret,
                struct kvf_diag *d)
{
    ret->needle = MEM_NEW(unsigned char, (size_t)T + 1);
    ret->judged = strcmp(needle, "none") != 0;
    int err = ret->needle ? read_text(t, ret, d) : KVF_E_NOMEM;
    if (!err && ret->judged)
        err = read_needle(t, needle, T, ret, d);
    return err;
}

void answer_finish(struct answer *x)
{
    mem_free(x->needle);
    buf_finish(&x->text);
    buf_finish(&x->expected);
}
