/* tune_reward.c - steps of `kvfate tune --reward` on questions with a known answer, and checks on
 * validation questions. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/files.h"
#include "engine/experiment/prompt.h"
#include "engine/experiment/quiz.h"
#include "cli/tune_job.h"
#include "engine/model/chat.h"

enum {
    CHECK_SAMPLES = 4,
    CHECK_QUESTIONS = 16
}; /* answers per question; questions decoded together */

struct asked {
    struct prompt prompt;
    char *value; /* the end of a right answer */
};

struct asked_list {
    struct asked *item; /* [n] */
    int n, cap;
    uint64_t hash;
};

struct tune_reward {
    struct asked_list train, held;
    int32_t *order;            /* [train.n] of the epoch */
    int64_t epoch;             /* -1: no order yet */
    struct answer *answer;     /* [accumulate * samples] of a step */
    struct question *question; /* [accumulate] */
};

/* ---- questions ---- */

static char *copy_text(const char *a, const char *b)
{
    size_t n = strlen(a), k = strlen(b);
    char *s = MEM_NEW(char, n + k + 1);
    if (s) {
        memcpy(s, a, n);
        memcpy(s + n, b, k);
    }
    return s;
}

static int grow(struct asked_list *l)
{
    if (l->n < l->cap)
        return KVF_OK;
    int cap = l->cap ? 2 * l->cap : 256;
    struct asked *item = mem_grow(l->item, (size_t)l->n, (size_t)cap, sizeof *item);
    if (!item)
        return KVF_E_NOMEM;
    l->item = item;
    l->cap = cap;
    return KVF_OK;
}

/* Adds a question to the list, in the chat template or, with --raw, as a line. */
static int add_question(const struct tune_job *j, struct asked_list *l, const char *question,
                        const char *value, struct kvf_diag *d)
{
    struct engine *e = j->t.engine;
    bool raw = j->raw || !chat_has_template(e->gguf);
    char *text = copy_text(question, raw ? "\n" : "");
    int err = text ? grow(l) : KVF_E_NOMEM;
    if (!err) {
        struct asked *a = &l->item[l->n++];
        *a = (struct asked){.prompt = {.given = text, .raw = raw}, .value = copy_text(value, "")};
        err = a->value ? prompt_open(&a->prompt, e, d) : KVF_E_NOMEM;
        a->prompt.given = NULL;
        if (!err && (a->prompt.n_ids < 2 || a->prompt.n_ids + j->most > j->t.length))
            err = kvf_fail(d, KVF_E_ARG,
                           "it has %d tokens, and with an answer of %" PRId64
                           " there may be 3 to %" PRId64 " (--length)",
                           a->prompt.n_ids, j->most, j->t.length);
        l->hash = rng_hash(l->hash, rng_hash_bytes(0, text, strlen(text)),
                           rng_hash_bytes(0, value, strlen(value)), 0);
    }
    mem_free(text);
    return err;
}

static int add_line(const struct tune_job *j, struct asked_list *l, const char *line, size_t n,
                    struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = json_parse(line, n, &root, d);
    if (!err) {
        const char *question = json_str(json_get(root, "question"), NULL);
        const char *answer = json_str(json_get(root, "answer"), NULL);
        const char *value = json_str(json_get(root, "value"), answer);
        if (!question || !*question || !value || !*value)
            err = kvf_fail(
                d, KVF_E_FORMAT,
                "expected {\"question\": \"...\", \"answer\": \"...\"}, as `kvfate tasks quiz` "
                "writes them");
        else
            err = add_question(j, l, question, value, d);
    }
    json_free(root);
    return err;
}

static int read_file(const struct tune_job *j, const char *path, struct asked_list *l,
                     struct kvf_diag *d)
{
    struct buf b = {0};
    int err = file_read(path, &b, d), line = 0;
    const char *at = b.data ? b.data : "", *end = at + b.len;
    while (!err && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        line++;
        if (stop > at)
            err = add_line(j, l, at, (size_t)(stop - at), d);
        if (err && err != KVF_E_NOMEM)
            kvf_diag_prefix(d, "%s, line %d", path, line);
        at = stop + 1;
    }
    buf_finish(&b);
    return err;
}

static int read_all(const struct tune_job *j, const struct opt_list *files, struct asked_list *l,
                    struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < files->n; i++) {
        err = train_files_keep(&j->t.files, files->item[i], d);
        if (!err)
            err = read_file(j, files->item[i], l, d);
    }
    if (!err && files->n && l->n == 0)
        err = kvf_fail(d, KVF_E_LIMIT, "%s: there is no question in it", files->item[0]);
    return err;
}

int tune_reward_open(struct tune_job *j, struct kvf_diag *d)
{
    struct tune_reward *r = j->reward = MEM_NEW(struct tune_reward, 1);
    if (!r)
        return KVF_E_NOMEM;
    r->epoch = -1;
    int err = read_all(j, &j->rewards, &r->train, d);
    if (!err && j->t.check_every > 0)
        err = read_all(j, &j->t.data, &r->held, d);
    if (err)
        return err;
    j->t.checks = r->held.n > 0;
    if (r->held.n < j->t.check_docs)
        j->t.check_docs = r->held.n;
    r->order = MEM_NEW(int32_t, (size_t)r->train.n);
    r->question = MEM_NEW(struct question, (size_t)j->accumulate);
    r->answer = MEM_NEW(struct answer, (size_t)(j->accumulate * j->samples));
    return r->order && r->question && r->answer ? KVF_OK : KVF_E_NOMEM;
}

static void close_list(struct asked_list *l)
{
    for (int i = 0; i < l->n; i++) {
        prompt_close(&l->item[i].prompt);
        mem_free(l->item[i].value);
    }
    mem_free(l->item);
}

void tune_reward_close(struct tune_reward *r)
{
    if (!r)
        return;
    close_list(&r->train);
    close_list(&r->held);
    mem_free(r->order);
    mem_free(r->question);
    mem_free(r->answer);
    mem_free(r);
}

void tune_reward_put(const struct tune_job *j, struct buf *b)
{
    const struct tune_reward *r = j->reward;
    buf_printf(b,
               ", \"samples\": %" PRId64 ", \"most\": %" PRId64 ", \"updates\": %" PRId64
               ", \"range\": %.17g, \"check_docs\": %" PRId64 ", \"questions\": %d"
               ", \"questions_hash\": \"%016" PRIx64 "\"",
               j->samples, j->most, j->updates, j->range, j->t.check_docs, r->train.n,
               rng_hash(r->train.hash, r->held.hash, 0, 0));
}

/* ---- rewards ---- */

static int judge(const struct tune_job *j, const struct asked *a, struct answer *x)
{
    struct buf text = {0};
    answer_text(x, j->t.engine->tokenizer, &text);
    int err = text.err;
    x->reward = x->ended && quiz_right(text.data ? text.data : "", text.len, a->value);
    buf_finish(&text);
    return err;
}

/* Returns the i-th question of the training. Each epoch shuffles the questions with its own
 * seed. */
static int nth_question(struct tune_job *j, int64_t i)
{
    struct tune_reward *r = j->reward;
    int64_t n = r->train.n, epoch = i / n;
    if (epoch != r->epoch) {
        struct rng g;
        rng_init(&g, rng_hash(j->opt.seed, 1, (uint64_t)epoch, 0));
        for (int32_t k = 0; k < n; k++)
            r->order[k] = k;
        for (int32_t k = 0; k < n - 1; k++) {
            int32_t to = k + (int32_t)rng_below(&g, (uint64_t)(n - k)), kept = r->order[k];
            r->order[k] = r->order[to];
            r->order[to] = kept;
        }
        r->epoch = epoch;
    }
    return r->order[i % n];
}

static struct question question_of(const struct asked *a, int64_t number)
{
    return (struct question){a->prompt.ids, a->prompt.n_ids, (uint64_t)number};
}

/* Summarises the answers of a step by means. */
struct answer_means {
    double reward, entropy, length, cut;
};

static struct answer_means summarise(const struct answer *a, int n)
{
    struct answer_means s = {0};
    double tokens = 0;
    for (int i = 0; i < n; i++) {
        s.reward += a[i].reward / n;
        s.length += (double)a[i].n / n;
        s.cut += a[i].ended ? 0 : 1.0 / n;
        s.entropy += a[i].entropy;
        tokens += a[i].n;
    }
    s.entropy /= tokens;
    return s;
}

static void put_step(struct tune_job *j, const struct tuner_step *s, double rate, int64_t step)
{
    int n = (int)(j->accumulate * j->samples);
    struct answer_means said = summarise(j->reward->answer, n);
    const struct {
        const char *name;
        double value;
    } number[] = {{"loss", s->loss.total}, {"reward", said.reward}, {"entropy", said.entropy},
                  {"answer", said.length}, {"cut", said.cut},       {"lr", rate},
                  {"norm", s->norm}};
    buf_printf(&j->t.log, "{\"step\": %" PRId64 ", \"tokens\": %" PRId64 ", \"evicted\": %" PRId64,
               step, s->tokens, s->n_evicted);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        buf_printf(&j->t.log, ", \"%s\": ", number[i].name);
        json_put_num(&j->t.log, number[i].value);
    }
    buf_str(&j->t.log, "}\n");
}

int tune_reward_step(struct tune_job *j, const struct session_options *method, struct kvf_diag *d)
{
    struct tune_reward *r = j->reward;
    int Q = (int)j->accumulate, G = (int)j->samples;
    int64_t step = tuner_steps(j->tuner) / j->updates;
    struct rollout_options o = {
        method,     G, (int)j->most, j->temperature, rng_hash(j->opt.seed, 2, (uint64_t)step, 0),
        &j->t.stage};
    stage_set(&j->t.stage, 0, 1, 0, 1 + j->updates);
    for (int i = 0; i < Q; i++)
        r->question[i] = question_of(&r->train.item[nth_question(j, step * Q + i)], step * Q + i);
    int err = rollout_run(tuner_student(j->tuner), &o, r->question, Q, r->answer, d);
    for (int i = 0; !err && i < Q * G; i++)
        err = judge(j, &r->train.item[nth_question(j, step * Q + i / G)], &r->answer[i]);
    struct tuner_step s = {0}, first = {0};
    if (!err)
        answers_weigh(r->answer, Q, G);
    for (int u = 0; !err && u < j->updates; u++) {
        stage_set(&j->t.stage, 0, 1, 1 + u, 1 + j->updates);
        err = tuner_reinforce(j->tuner, r->answer, Q, G, j->range, &s, d);
        first = u ? first : s;
    }
    j->t.tokens += first.tokens;
    if (!err)
        put_step(j, &first, s.rate, step + 1);
    answers_finish(r->answer, Q * G);
    return err;
}

/* ---- checks ---- */

/* Results per validation question: fraction of right answers, KL at their tokens in nats, entropy.
 */
struct held_values {
    double *pass, *kl, *entropy; /* [check_docs] */
};

/* Checks questions [from, from + n) at one budget. */
static int check_some(struct tune_job *j, const struct session_options *s, int from, int n,
                      const struct held_values *v, struct kvf_diag *d)
{
    struct question q[CHECK_QUESTIONS];
    struct answer a[CHECK_QUESTIONS * CHECK_SAMPLES];
    double kl[CHECK_QUESTIONS * CHECK_SAMPLES];
    struct rollout_options o = {
        s,          CHECK_SAMPLES, (int)j->most, j->temperature, rng_hash(j->opt.seed, 3, 0, 0),
        &j->t.stage};
    double at = (double)from / (double)j->t.check_docs,
           to = at + (double)n / (double)j->t.check_docs;
    stage_set(&j->t.stage, at, to, 0, 2);
    for (int i = 0; i < n; i++)
        q[i] = question_of(&j->reward->held.item[from + i], from + i);
    int err = rollout_run(tuner_student(j->tuner), &o, q, n, a, d);
    if (err)
        return err;
    stage_set(&j->t.stage, at, to, 1, 2);
    err = tuner_answers_kl(j->tuner, a, n * CHECK_SAMPLES, kl, d);
    for (int i = 0; !err && i < n * CHECK_SAMPLES; i++) {
        int k = from + i / CHECK_SAMPLES;
        err = judge(j, &j->reward->held.item[k], &a[i]);
        v->pass[k] += a[i].reward / CHECK_SAMPLES;
        v->kl[k] += kl[i] / CHECK_SAMPLES;
        v->entropy[k] += a[i].entropy / (a[i].n * CHECK_SAMPLES);
    }
    answers_finish(a, n * CHECK_SAMPLES);
    return err;
}

static void put_mean(struct tune_job *j, const char *name, int budget, double mean)
{
    char key[TUNE_KEY];
    tune_key(key, name, budget);
    buf_printf(&j->t.log, ", \"%s\": ", key);
    json_put_num(&j->t.log, mean);
}

static int check_budget(struct tune_job *j, int i, struct kvf_diag *d)
{
    struct method row;
    struct method_params params;
    struct session_options s = {.kv_type = KV_F32};
    size_t n = (size_t)j->t.check_docs;
    struct held_values v = {MEM_NEW(double, n), MEM_NEW(double, n), MEM_NEW(double, n)};
    int err = v.pass && v.kl && v.entropy ? KVF_OK : KVF_E_NOMEM;
    if (!err && j->budget[i]) {
        err = method_parse(j->methods.method, j->budget[i], &row, &params, d);
        s = tune_session(j, &row, &params);
    }
    for (int from = 0; !err && from < (int)n; from += CHECK_QUESTIONS)
        err = check_some(j, &s, from,
                         (int)n - from < CHECK_QUESTIONS ? (int)n - from : CHECK_QUESTIONS, &v, d);
    if (!err) {
        j->last[i] = tune_put_values(j, "pass", j->budget[i], v.pass, (int)n);
        put_mean(j, "kl", j->budget[i], stats_mean(v.kl, n));
        put_mean(j, "entropy", j->budget[i], stats_mean(v.entropy, n));
    }
    mem_free(v.pass);
    mem_free(v.kl);
    mem_free(v.entropy);
    return err;
}

int tune_reward_check(struct tune_job *j, struct kvf_diag *d)
{
    int err = KVF_OK;
    buf_printf(&j->t.log, "{\"check\": %" PRId64, tuner_steps(j->tuner) / j->updates);
    for (int i = 0; !err && i < j->n_budgets; i++) {
        err = check_budget(j, i, d);
        watcher_update(&j->checking, (uint64_t)i + 1, (uint64_t)j->n_budgets);
    }
    buf_str(&j->t.log, "}\n");
    return err;
}
