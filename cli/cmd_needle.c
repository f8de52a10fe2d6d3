/* cmd_needle.c - `kvfate tasks needle` writes prompts with needles in a haystack, and the positions
 * of the needles. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/table_seal.h"
#include "cli/commands.h"
#include "cli/models.h"
#include "cli/runner.h"
#include "engine/experiment/needle.h"
#include "cli/watcher.h"
#include "engine/model/tokenizer.h"

enum { MOST_LENGTH = 1 << 20 };

/* Values of --haystack in the order of enum haystack. */
static const char *const haystack_words[] = {"prose", "noise", "needles", NULL};

struct request {
    struct needle_task task;
    const char *model, *pre, *out;
    int haystack; /* index into haystack_words */
    int question; /* enum question_time */
    int64_t tokens, words, count, seed;
    struct watcher watcher; /* counts prompts */
    struct gguf *gguf;
    struct tokenizer *tokenizer; /* NULL if lengths are in words */
};

static int open_tokenizer(struct request *q, struct kvf_diag *d)
{
    if (!q->tokens)
        return KVF_OK;
    int err = model_tokenizer(q->model, q->pre, &q->gguf, &q->tokenizer, d);
    if (err && err != KVF_E_ARG && !q->model)
        kvf_diag_prefix(d, "--tokens");
    return err;
}

/* Returns the length of a text in tokens, or in words without a tokenizer. A negative value is an
 * error. */
static int64_t length_of(const struct request *q, const struct buf *text)
{
    int32_t *ids;
    int n = 0;
    if (text->err)
        return text->err;
    if (q->tokenizer) {
        int err = tokenizer_encode(q->tokenizer, text->data, text->len,
                                   TOKENIZER_MARKS | TOKENIZER_BOS, &ids, &n, NULL);
        if (err)
            return err;
        mem_free(ids);
        return n;
    }
    for (size_t i = 0; i < text->len; i++)
        n += text->data[i] > ' ' && (i == 0 || text->data[i - 1] <= ' ');
    return n;
}

static void write_text(const struct needle_task *t, int n_sentences, struct buf *text,
                       struct buf *spans)
{
    if (t->hops)
        needle_write_chains(t, n_sentences, text, spans);
    else
        needle_write(t, n_sentences, text, spans);
}

static int64_t length_with(const struct request *q, int n_sentences)
{
    struct buf text = {0};
    write_text(&q->task, n_sentences, &text, NULL);
    int64_t n = length_of(q, &text);
    buf_finish(&text);
    return n;
}

/* Finds the maximum number of sentences that fit into the requested length. */
static int fit(struct request *q, int *ret_sentences, struct kvf_diag *d)
{
    int64_t most = q->tokens ? q->tokens : q->words, n = length_with(q, 0);
    int lo = 0, hi = 1;
    /* A bisection halves the range as often as it was doubled, so this estimates its progress. */
    uint64_t doubled = 0, halved = 0;
    if (n > most)
        return kvf_fail(d, KVF_E_ARG, "the needles and the question have %lld %s, over %lld",
                        (long long)n, q->tokens ? "tokens" : "words", (long long)most);
    for (n = length_with(q, hi); n >= 0 && n <= most; n = length_with(q, hi)) {
        lo = hi;
        hi *= 2;
        doubled++;
        watcher_part(&q->watcher, 0, 1);
    }
    while (n >= 0 && hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        n = length_with(q, mid);
        if (n <= most)
            lo = mid;
        else
            hi = mid;
        watcher_part(&q->watcher, ++halved, doubled + 1);
    }
    *ret_sentences = lo;
    return n < 0 ? (int)n : KVF_OK;
}

static int write_file(const struct request *q, int64_t i, const char *ext, const struct buf *what,
                      struct kvf_diag *d)
{
    struct buf path = {0};
    struct replace r;
    buf_str(&path, q->out);
    if (q->count > 1)
        buf_printf(&path, "-%lld", (long long)i);
    buf_str(&path, ext);
    int err = path.err ? path.err : replace_open(&r, path.data, d);
    if (!err) {
        replace_write(&r, what->data, what->len);
        err = replace_finish(&r, d);
    }
    buf_finish(&path);
    return err;
}

static int write_prompt(struct request *q, int64_t i, struct kvf_diag *d)
{
    struct buf text = {0}, json = {0};
    const struct needle_task *t = &q->task;
    int sentences = 0;
    q->task.seed = (uint64_t)(q->seed + i);
    int err = fit(q, &sentences, d);
    if (err)
        return err;
    buf_char(&json, '{');
    json_put_member_num(&json, "seed", (double)t->seed);
    json_put_member_num(&json, "keys", (double)t->keys);
    json_put_member_num(&json, "values", (double)t->values);
    json_put_member_num(&json, "queries", (double)t->queries);
    if (t->hops)
        json_put_member_num(&json, "hops", (double)t->hops);
    json_put_member_num(&json, "depth", t->depth);
    json_put_member_num(&json, "chance", needle_chance(t));
    if (q->question == QUESTION_UNKNOWN)
        json_put_member_str(&json, "question", "unknown");
    json_put_member_num(&json, q->tokens ? "tokens" : "words", (double)length_with(q, sentences));
    buf_char(&json, ',');
    write_text(t, sentences, &text, &json);
    err = text.err ? text.err : json.err;
    if (!err) {
        struct seal seal = {.n = 0};
        seal_add(&seal, json.data, json.len);
        seal_add(&seal, text.data, text.len);
        err = seal_end_json(&seal, &json);
    }
    if (!err)
        err = write_file(q, i, ".txt", &text, d);
    if (!err)
        err = write_file(q, i, ".json", &json, d);
    buf_finish(&text);
    buf_finish(&json);
    return err;
}

static int check(struct request *q, struct kvf_diag *d)
{
    q->task.haystack = (enum haystack)q->haystack;
    if (!q->out)
        return kvf_fail(d, KVF_E_ARG, "no -o NAME: NAME.txt and NAME.json are written");
    if (!!q->tokens + !!q->words != 1)
        return kvf_fail(d, KVF_E_ARG, "give a length, --tokens N or --words N");
    if (q->model && q->words)
        return kvf_fail(d, KVF_E_ARG, "--words needs no model");
    return needle_check(&q->task, d);
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, out), "NAME",
     "NAME.txt and NAME.json are written"},
    {OPT_INT, 0, "tokens", offsetof(struct request, tokens), "N", "most tokens of the text",
     .min = 1, .max = MOST_LENGTH},
    {OPT_INT, 0, "words", offsetof(struct request, words), "N", "most words of the text", .min = 1,
     .max = MOST_LENGTH},
    {OPT_STR, 'm', "model", offsetof(struct request, model), "FILE", "model that counts the tokens",
     .absent = "SmolLM2 in the cache folder"},
    {OPT_STR, 0, "pre", offsetof(struct request, pre), "NAME",
     "pre-tokenizer of a byte-level vocabulary, as 'kvfate models' lists them",
     .absent = "as in the file"},
    {OPT_INT, 0, "keys", offsetof(struct request, task.keys), "K", "keys that are hidden", "1",
     .min = 1, .max = NEEDLE_MOST},
    {OPT_INT, 0, "values", offsetof(struct request, task.values), "V", "values of each key", "1",
     .min = 1, .max = 16},
    {OPT_INT, 0, "queries", offsetof(struct request, task.queries), "Q", "keys that are asked for",
     "1", .min = 1, .max = 16},
    {OPT_INT, 0, "digits", offsetof(struct request, task.digits), "N", "digits of a value", "5",
     .min = 1, .max = 12},
    {OPT_INT, 0, "hops", offsetof(struct request, task.hops), "H",
     "keys are chains of H + 1 variables, which pass a number on", "0", .max = 63},
    {OPT_REAL, 0, "depth", offsetof(struct request, task.depth), "X",
     "depth of the needle, 0 = start, 1 = end", "nan", .absent = "anywhere", .max = 1},
    {OPT_WORD, 0, "haystack", offsetof(struct request, haystack), "KIND", "text around the needles",
     "prose", .words = haystack_words},
    {OPT_WORD, 0, "question", offsetof(struct request, question), "WHEN",
     "protocol of the task for eval and causal. unknown: they cut the cache before the question",
     "known", .words = question_words, .min = QUESTION_KNOWN},
    {OPT_INT, 'n', "count", offsetof(struct request, count), "N",
     "number of prompts, from NAME-0 on, each with its own seed", "1", .min = 1, .max = 1 << 20},
    {OPT_INT, 's', "seed", offsetof(struct request, seed), "S", "seed of the first", "0",
     .max = 9e15},
    {.type = OPT_END},
};

static int cmd_needle(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    (void)operand;
    struct request *q = request;
    struct kvf_diag d = {""};
    int err = check(q, &d);
    if (!err)
        err = open_tokenizer(q, &d);
    q->watcher = watcher_count(self->name, "prompts");
    q->watcher.of = (uint64_t)q->count;
    for (int64_t i = 0; !err && i < q->count; i++) {
        err = write_prompt(q, i, &d);
        watcher_update(&q->watcher, (uint64_t)i + 1, (uint64_t)q->count);
    }
    watcher_end(&q->watcher);
    tokenizer_destroy(q->tokenizer);
    gguf_close(q->gguf);
    return command_end(self, err, &d);
}

const struct command command_needle = {
    .name = "needle",
    .group = "quality",
    .summary = "generate prompts with hidden numbers, and their positions",
    .example = "kvfate tasks needle --tokens 512 --keys 4 --depth 0.5 -o hay",
    .needs = "(--tokens N | --words N) -o NAME",
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_needle,
};
