/* task.c - reads prompts with known answers. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/table_seal.h"
#include "base/files.h"
#include "engine/experiment/question.h"
#include "engine/experiment/spans.h"
#include "engine/experiment/task.h"

enum { MOST_VALUES = 512 };

/* The content of the file except its spans. */
struct reply {
    struct json *root;
    const char *text;
    const struct json *values;
    double chance;
    bool unknown;
};

/* Sets t->name to NAME and *ret_text to NAME.txt, given NAME.json. */
static int names_of(struct task *t, const char *path, char **ret_text, struct kvf_diag *d)
{
    static const char json[] = ".json";
    size_t n = strlen(path), k = sizeof json - 1;
    if (n <= k || strcmp(path + n - k, json) != 0)
        return kvf_fail(d, KVF_E_ARG,
                        "%s: a task is NAME.json with NAME.txt in the same folder, as `kvfate "
                        "tasks needle` writes them",
                        path);
    t->name = MEM_NEW(char, n - k + 1);
    *ret_text = MEM_NEW(char, n);
    if (!t->name || !*ret_text)
        return KVF_E_NOMEM;
    memcpy(t->name, path, n - k);
    memcpy(*ret_text, path, n - k);
    memcpy(*ret_text + n - k, ".txt", sizeof ".txt");
    return KVF_OK;
}

/* Checks the checksum of both files that `kvfate tasks needle` writes. */
static int check_files(const char *path, const char *text_path, struct kvf_diag *d)
{
    struct buf json = {0}, text = {0};
    int err = file_read(path, &json, d);
    if (!err)
        err = file_read(text_path, &text, d);
    if (!err && json.len) {
        err = seal_check_json(json.data, json.len, &text, d);
        if (err)
            kvf_diag_prefix(d, "%s or %s", path, text_path);
    }
    buf_finish(&json);
    buf_finish(&text);
    return err;
}

static int read_reply(const char *path, struct reply *r, struct kvf_diag *d)
{
    struct buf text = {0};
    int err = file_read(path, &text, d);
    if (!err) {
        err = json_parse(text.data ? text.data : "", text.len, &r->root, d);
        if (err)
            kvf_diag_prefix(d, "%s", path);
    }
    buf_finish(&text);
    if (err)
        return err;
    const struct json *reply = json_get(r->root, "reply");
    r->text = json_str(json_get(reply, "text"), NULL);
    r->values = json_get(reply, "values");
    int n = json_is_array(r->values) ? json_len(r->values) : 0;
    if (!r->text || !*r->text || n < 1 || n > MOST_VALUES)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: expected \"reply\": {\"text\": \"...\", \"values\": [[start, end], "
                        "...]} with 1 to %d values, bytes of its text",
                        path, MOST_VALUES);
    r->chance = json_num(json_get(r->root, "chance"), 0);
    if (!(r->chance >= 0 && r->chance < 1))
        return kvf_fail(d, KVF_E_FORMAT, "%s: \"chance\" must be a number from 0 to below 1", path);
    const struct json *question = json_get(r->root, "question");
    const char *word = json_str(question, "");
    r->unknown = strcmp(word, "unknown") == 0;
    if (question && !r->unknown && strcmp(word, "known") != 0)
        return kvf_fail(d, KVF_E_FORMAT, "%s: \"question\" must be \"known\" or \"unknown\"", path);
    return KVF_OK;
}

/* Marks the tokens of the reply that contain bytes of values: mark [n_ids]. */
static int mark_values(const struct reply *r, const struct prompt *p, const int64_t *end,
                       const char *path, unsigned char *mark, struct kvf_diag *d)
{
    int64_t bytes = (int64_t)strlen(r->text), from = (int64_t)p->reply_at;
    int i = 0;
    for (const struct json *x = json_first(r->values); x; x = json_next(x), i++) {
        int64_t a = json_int(json_at(x, 0), -1), b = json_int(json_at(x, 1), -1);
        if (json_len(x) != 2 || a < 0 || b <= a || b > bytes)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: value %d of \"reply\" needs whole numbers [start, end], bytes of "
                            "its text, which has %lld",
                            path, i + 1, (long long)bytes);
        int32_t first = prompt_token_at(end, p->n_ids, from + a);
        int32_t last = prompt_token_at(end, p->n_ids, from + b - 1);
        for (int32_t k = first; k <= last && k < p->n_ids; k++)
            mark[k] = 1;
    }
    return KVF_OK;
}

/* Finds the range from the query that predicts the first token of the answer to the query that
 * predicts its last token, and the tokens of the answer. */
static int find_answer(struct task *t, const struct reply *r, const int64_t *end, const char *path,
                       struct kvf_diag *d)
{
    int n = t->prompt.n_ids, first = 0, last = n - 1;
    unsigned char *mark = MEM_NEW(unsigned char, (size_t)n);
    int err = mark ? mark_values(r, &t->prompt, end, path, mark, d) : KVF_E_NOMEM;
    while (!err && first < n && !mark[first])
        first++;
    while (!err && last > first && !mark[last])
        last--;
    if (!err && (first < 2 || first == n))
        err = kvf_fail(d, KVF_E_FORMAT, "%s: there is no prompt before the answer", path);
    if (!err) {
        t->causal.ids = t->prompt.ids;
        t->causal.query = t->causal.cut = first - 1;
        t->causal.steps = last - first + 1;
        t->scored = MEM_NEW(unsigned char, (size_t)t->causal.steps);
        t->causal.scored = t->scored;
        err = t->scored ? KVF_OK : KVF_E_NOMEM;
    }
    t->reply = prompt_token_at(end, n, (int64_t)t->prompt.reply_at);
    t->counts = err ? NULL : MEM_NEW(unsigned char, (size_t)(last + 1 - t->reply));
    if (!err && !t->counts)
        err = KVF_E_NOMEM;
    if (!err) {
        memcpy(t->scored, mark + first, (size_t)t->causal.steps);
        memcpy(t->counts, mark + t->reply, (size_t)(last + 1 - t->reply));
    }
    mem_free(mark);
    return err;
}

int task_question(const struct task *t, const struct engine *e, int *ret_token, struct kvf_diag *d)
{
    int err = question_token(&t->prompt, e, t->question_from, t->question_to, ret_token, d);
    if (err)
        kvf_diag_prefix(d, "%s.json", t->name);
    return err;
}

static const struct span_name *span_of(const struct spans *s, const char *name)
{
    for (int k = 0; k < s->n; k++)
        if (strcmp(s->name[k].name, name) == 0)
            return &s->name[k];
    return NULL;
}

/* Assigns a kind to each entry before the answer's query. */
static int find_kinds(struct task *t, const struct spans *s, const int64_t *end, int sinks,
                      const char *path, struct kvf_diag *d)
{
    const struct prompt *p = &t->prompt;
    const struct span_name *question = span_of(s, "question");
    if (!question || question->useful || s->all.n == 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: a task needs a span that is useful, the evidence, and a span "
                        "\"question\" that is not",
                        path);
    int32_t from = p->bytes ? prompt_token_at(end, p->n_ids, (int64_t)p->at) : 0;
    int32_t to = question->range[0][0];
    t->kind = MEM_NEW(unsigned char, (size_t)t->causal.query);
    if (!t->kind)
        return KVF_E_NOMEM;
    for (int32_t i = from > sinks ? from : sinks; i < to && i < t->causal.query; i++)
        t->kind[i] = CAUSAL_DISTRACTOR;
    for (int k = 0; k < s->all.n; k++)
        for (int32_t i = s->all.range[k][0]; i < s->all.range[k][1]; i++)
            if (i < t->causal.query && t->kind[i] == CAUSAL_DISTRACTOR)
                t->kind[i] = CAUSAL_EVIDENCE;
    t->causal.kind = t->kind;
    if (!memchr(t->kind, CAUSAL_EVIDENCE, (size_t)t->causal.query)
        || !memchr(t->kind, CAUSAL_DISTRACTOR, (size_t)t->causal.query))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: before the question there must be evidence and something else", path);
    return KVF_OK;
}

int task_open(struct task *t, const char *path, const struct engine *e, bool raw, int sinks,
              struct kvf_diag *d)
{
    char *text = NULL;
    struct reply reply = {0};
    struct spans spans = {.file = path};
    int64_t *end = NULL;
    int err = names_of(t, path, &text, d);
    if (!err)
        err = check_files(path, text, d);
    if (!err)
        err = read_reply(path, &reply, d);
    if (err)
        goto done;
    t->prompt.file = text;
    t->prompt.raw = raw;
    t->prompt.reply = reply.text;
    t->chance = reply.chance;
    t->unknown = reply.unknown;
    err = prompt_open(&t->prompt, e, d);
    if (!err)
        err = spans_open(&spans, &t->prompt, e->tokenizer, d);
    if (!err)
        err = prompt_ends(&t->prompt, e->tokenizer, &end, d);
    if (!err)
        err = find_answer(t, &reply, end, path, d);
    if (!err)
        err = find_kinds(t, &spans, end, sinks, path, d);
    if (!err) /* find_kinds() has checked that there is one */
        question_span(&t->prompt, reply.root, &t->question_from, &t->question_to);

done:
    t->prompt.file = t->prompt.reply = NULL;
    mem_free(text);
    mem_free(end);
    spans_close(&spans);
    json_free(reply.root);
    return err;
}

/* Returns KVF_E_ARG with a sentence if an earlier task has the same tokens, because it would count
 * twice. Otherwise returns KVF_OK. */
static int check_new(const struct tasks *t, const char *path)
{
    const struct task *x = &t->task[t->n - 1];
    for (int i = 0; i < t->n - 1; i++) {
        const struct task *y = &t->task[i];
        if (x->prompt.n_ids == y->prompt.n_ids && x->reply == y->reply
            && memcmp(x->prompt.ids, y->prompt.ids, (size_t)x->prompt.n_ids * sizeof *x->prompt.ids)
                   == 0)
            return kvf_fail(t->d, KVF_E_ARG,
                            "%s is the same task as %s.json, and would count twice: leave one out",
                            path, y->name);
    }
    return KVF_OK;
}

static int add(void *ctx, const char *path)
{
    struct tasks *t = ctx;
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 64;
        struct task *list = mem_grow(t->task, (size_t)t->n, (size_t)cap, sizeof *list);
        if (!list)
            return KVF_E_NOMEM;
        t->task = list;
        t->cap = cap;
    }
    struct task *x = &t->task[t->n++];
    int err = task_open(x, path, t->e, t->raw, t->sinks, t->d);
    int need = x->causal.query + x->causal.steps + 1, limit = t->e->config.n_ctx_max;
    if (!err && need > limit)
        err = kvf_fail(t->d, KVF_E_LIMIT,
                       "%s: the prompt and its answer have %d tokens, and the model's context is "
                       "%d",
                       path, need, limit);
    t->note = t->note ? t->note : x->prompt.note;
    return err ? err : check_new(t, path);
}

int tasks_open(struct tasks *t, const char *const *operand, int n, struct kvf_diag *d)
{
    int err = KVF_OK;
    t->d = d;
    for (int i = 0; !err && i < n; i++)
        err = files_each(operand[i], ".json", add, t, d);
    if (!err && t->n == 0)
        err = kvf_fail(d, KVF_E_ARG,
                       "%s: there is no task, NAME.json with NAME.txt in the same folder",
                       operand[0]);
    return err;
}

const char *const task_question_words[] = {"known", "unknown", "file", NULL};

int tasks_question(const struct tasks *t, enum task_question how, bool *ret_unknown,
                   struct kvf_diag *d)
{
    bool unknown = how == TASK_FILE ? t->task[0].unknown : how == TASK_UNKNOWN;
    for (int i = 1; how == TASK_FILE && i < t->n; i++)
        if (t->task[i].unknown != unknown)
            return kvf_fail(d, KVF_E_ARG,
                            "the question of %s.json is %s and that of %s.json is %s: give "
                            "--question known or unknown",
                            t->task[0].name, task_question_words[unknown], t->task[i].name,
                            task_question_words[!unknown]);
    *ret_unknown = unknown;
    return KVF_OK;
}

int tasks_keep(const struct tasks *t, const char *out, struct kvf_diag *d)
{
    int err = KVF_OK;
    struct buf path = {0};
    for (int i = 0; !err && i < 2 * t->n; i++) {
        buf_clear(&path);
        buf_printf(&path, "%s.%s", t->task[i / 2].name, i % 2 ? "txt" : "json");
        err = path.err ? path.err : file_keep(out, path.data, d);
    }
    buf_finish(&path);
    return err;
}

void tasks_close(struct tasks *t)
{
    for (int i = 0; i < t->n; i++)
        task_close(&t->task[i]);
    mem_free(t->task);
    *t = (struct tasks){0};
}

void task_close(struct task *t)
{
    mem_free(t->name);
    mem_free(t->kind);
    mem_free(t->scored);
    mem_free(t->counts);
    prompt_close(&t->prompt);
    *t = (struct task){0};
}
