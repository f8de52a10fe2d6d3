/* question.c - splits a prompt into a context and a question (question.h). */
#include "engine/experiment/question.h"

#include <string.h>

#include "base/files.h"
#include "base/json.h"
#include "base/mem.h"

/* Appends another question: `lead` bytes of white space of the question, then words that begin with
 * a letter if it does, or else with its first character.  Tokenizers split digits, letters and
 * other characters in different ways, so the tokens before them may differ. */
static void put_other(struct buf *text, const char *question, size_t lead, size_t len, int which)
{
    static const char *const letters[] = {"A", "zebra", "In 7"}, *const rests[] = {"", "A", " 7"};
    const char *first = question + lead;
    size_t n = lead < len;
    bool letter = n && ((*first | 32) >= 'a' && (*first | 32) <= 'z');
    while (n && lead + n < len && ((unsigned char)first[n] & 0xc0) == 0x80) /* UTF-8 */
        n++;
    buf_add(text, question, lead);
    if (letter)
        buf_str(text, letters[which]);
    else
        buf_add(text, first, n);
    buf_str(text, letter ? "" : rests[which]);
}
enum { OTHERS = 3 };

/* Tokenizes the text with another question, and compares the first n tokens. */
static int compare_prefix(const struct prompt *p, const struct engine *e, size_t from, size_t to,
                          int other, int n, struct kvf_diag *d)
{
    struct buf text = {0};
    int32_t *ids = NULL;
    int n_ids = 0, at = 0;
    size_t lead = strspn(p->text.data + from, " \t\r\n");
    lead = lead < to - from ? lead : to - from;
    buf_add(&text, p->text.data, from);
    put_other(&text, p->text.data + from, lead, to - from, other);
    buf_add(&text, p->text.data + to, p->text.len - to);
    int err = text.err;
    if (!err)
        err = tokenizer_encode(e->tokenizer, text.data, text.len,
                               TOKENIZER_MARKS | (p->chat_text.span ? 0 : TOKENIZER_BOS), &ids,
                               &n_ids, d);
    while (!err && at < n && at < n_ids && ids[at] == p->ids[at])
        at++;
    if (!err && at < n)
        err = kvf_fail(d, KVF_E_FORMAT,
                       "the tokens of the context depend on the question, from token %d of %d on: "
                       "end the context with a new line, or give --question-at",
                       at, n);
    mem_free(ids);
    buf_finish(&text);
    return err;
}

int question_token(const struct prompt *p, const struct engine *e, size_t from, size_t to,
                   int *ret_token, struct kvf_diag *d)
{
    int64_t *end = NULL;
    int err = prompt_ends(p, e->tokenizer, &end, d);
    if (err)
        return err;
    int n = prompt_all(p), token = prompt_token_at(end, n, (int64_t)from);
    int64_t start = token > 0 ? end[token - 1] : 0;
    if (token == 0 || token == n)
        err = kvf_fail(d, KVF_E_FORMAT, "there is no %s to cut the cache for",
                       token ? "question" : "context before the question");
    else if (start < (int64_t)from)
        err = kvf_fail(
            d, KVF_E_FORMAT,
            "token %d contains the end of the context and the beginning of the question (bytes "
            "%lld to %lld of the prompt): separate them with a new line, or give --question-at",
            token, (long long)start, (long long)end[token]);
    for (int i = 0; !err && i < OTHERS; i++)
        err = compare_prefix(p, e, from, to, i, token, d);
    mem_free(end);
    if (!err)
        *ret_token = token;
    return err;
}

/* Sets *from and *to to the bytes of the last message of a user. */
static bool last_message(const struct prompt *p, size_t *from, size_t *to)
{
    const struct chat_text *t = &p->chat_text;
    int message = -1;
    for (int i = 0; i < t->n_spans; i++)
        if (t->span[i].role == CHAT_USER && t->span[i].message > message) {
            message = t->span[i].message;
            *from = t->span[i].from;
        }
    for (int i = 0; i < t->n_spans; i++)
        if (t->span[i].message == message)
            *to = t->span[i].to;
    return message >= 0;
}

bool question_span(const struct prompt *p, const struct json *root, size_t *from, size_t *to)
{
    const struct json *list = json_is_array(root) ? root : json_get(root, "spans");
    for (const struct json *x = json_first(list); x; x = json_next(x)) {
        int64_t start = json_int(json_get(x, "start"), -1), end = json_int(json_get(x, "end"), -1);
        if (strcmp(json_str(json_get(x, "name"), ""), "question") != 0)
            continue;
        if (start < 0 || end <= start || (uint64_t)end > p->text.len - p->at)
            return false;
        *from = p->at + (size_t)start;
        *to = p->at + (size_t)end;
        return true;
    }
    return false;
}

/* Finds the question in the file of spans. */
static int read_span(const struct prompt *p, size_t *from, size_t *to, bool *ret_given,
                     struct kvf_diag *d)
{
    struct buf text = {0};
    struct json *root = NULL;
    int err = file_read(p->spans_file, &text, d);
    if (!err) {
        err = json_parse(text.data ? text.data : "", text.len, &root, d);
        if (err)
            kvf_diag_prefix(d, "%s", p->spans_file);
    }
    if (!err)
        *ret_given = question_span(p, root, from, to);
    json_free(root);
    buf_finish(&text);
    return err;
}

int question_split(struct prompt *p, const struct engine *e, struct kvf_diag *d)
{
    size_t from = p->question_from, to = p->question_to;
    int token = (int)p->question_at, err = KVF_OK;
    bool given = p->question_to > p->question_from;
    if (!token && !given && p->spans_file)
        err = read_span(p, &from, &to, &given, d);
    if (err)
        return err;
    if (p->changed && given)
        return kvf_fail(d, KVF_E_FORMAT,
                        "the chat template changes the message, so that the place of the question "
                        "in it is not known; give context and question without blanks at their "
                        "ends, or --raw");
    if (!token && !given && (p->chat || p->messages))
        given = last_message(p, &from, &to);
    if (!token && !given && p->line)
        return kvf_fail(
            d, KVF_E_ARG,
            "--question unknown: the beginning of the question is not marked in this line; give "
            "\"context\" and \"question\", \"text\" and \"question\", or \"messages\"");
    if (!token && !given)
        return kvf_fail(d, KVF_E_ARG,
                        "--question unknown: the beginning of the question is not marked in this "
                        "prompt; give the question with --ask TEXT, as the last message of --chat, "
                        "as the span \"question\" of --spans, or --question-at N");
    if (token >= p->n_ids)
        return kvf_fail(d, KVF_E_ARG, "--question-at %d: the prompt has %d tokens", token,
                        p->n_ids);
    if (!token)
        err = question_token(p, e, from, to, &token, d);
    if (err)
        return err;
    p->n_question = p->n_ids - token;
    p->n_ids = token;
    return KVF_OK;
}

int question_turn_ends(const struct prompt *p, const struct tokenizer *t, int **ret_end, int *ret_n,
                       struct kvf_diag *d)
{
    const struct chat_text *c = &p->chat_text;
    int64_t *end = NULL;
    int n = 0, message = -1;
    if (!p->chat && !p->messages)
        return kvf_fail(d, KVF_E_ARG,
                        "cut=turn needs the turns of a chat: --chat, or \"messages\" of --jsonl; a "
                        "single prompt is cut by cut=prompt");
    int err = prompt_ends(p, t, &end, d);
    int *turn = err ? NULL : MEM_NEW(int, (size_t)c->n_spans + 1);
    if (!err && !turn)
        err = KVF_E_NOMEM;
    for (int i = 0; !err && i < c->n_spans; i++) {
        const struct chat_span *s = &c->span[i];
        if ((s->role != CHAT_ANSWER && s->role != CHAT_THOUGHT) || s->message == message)
            continue;
        message = s->message;
        turn[n++] = prompt_token_at(end, prompt_all(p), (int64_t)s->from);
    }
    mem_free(end);
    if (err)
        return err;
    *ret_end = turn;
    *ret_n = n;
    return KVF_OK;
}
