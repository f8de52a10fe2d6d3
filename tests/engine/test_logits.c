/* test_logits.c - logits compared with dumps of PyTorch (tests/data/golden/README.md), and the
 * quantised path compared with the exact path. */
#include <kvf/trace.h>

#include "golden.h"
#include "tests/suite.h"

/* Returns the maximum absolute difference from the stored logits of the listed ids and from the
 * log-sum-exp. */
static double worst_logit(const struct json *p, const float *row, int vocab)
{
    const struct json *id = json_first(json_get(p, "vocab_ids")),
                      *v = json_first(json_get(p, "logits"));
    double worst = fabs(log_sum_exp(row, vocab) - json_num(json_get(p, "lse"), NAN));
    for (; id && v; id = json_next(id), v = json_next(v))
        worst = fmax(worst, fabs((double)row[json_int(id, 0)] - json_num(v, NAN)));
    return worst;
}

static double worst_nll(const struct json *nll, const float *all, const int32_t *ids, int vocab)
{
    double worst = 0;
    int i = 0;
    for (const struct json *x = json_first(nll); x; x = json_next(x), i++) {
        const float *row = all + (size_t)i * (size_t)vocab;
        double mine = log_sum_exp(row, vocab) - (double)row[ids[i + 1]];
        worst = fmax(worst, fabs(mine - json_num(x, NAN)));
    }
    return worst;
}

/* Checks every golden prompt with the exact path (all in f32) or the default path (16-bit
 * activations, f16 cache). */
static void check_golden(bool exact, double limit)
{
    if (!default_model())
        cr_skip_test("the default model is absent");
    enum kv_type kv = exact ? KV_F32 : KV_F16;
    OWNED(engine_close) struct engine *e = open_model(default_model(), exact, 0);
    OWNED(json_free) struct json *root = golden_json("logits_golden.json");
    const struct json *list = json_get(root, "prompts");
    int V = e->config.vocab, seen = 0;
    for (const struct json *p = json_first(list); p; p = json_next(p), seen++) {
        const char *name = json_str(json_get(p, "name"), "?");
        int n;
        int32_t *ids = golden_ids(json_get(p, "ids"), &n);
        bool whole = json_get(p, "nll") != NULL;
        OWNED(session_destroy) struct session *s = whole ? NULL : open_session(e, NULL, n, 0, NULL);
        float *all = whole ? all_logits(e, kv, ids, n) : NULL;
        if (!whole)
            cr_assert(session_prompt(s, ids, n, NULL, NULL) == KVF_OK);
        const float *last = whole ? all + (size_t)(n - 1) * (size_t)V : session_logits(s);
        double worst = worst_logit(p, last, V);
        double nll = whole ? worst_nll(json_get(p, "nll"), all, ids, V) : 0;
        fprintf(stderr, "%-15s %4d ids: largest difference of logits %.2e, of nll %.2e\n", name, n,
                worst, nll);
        cr_expect(worst <= limit, "%s: logits differ by %g", name, worst);
        cr_expect(nll <= limit, "%s: nll differs by %g", name, nll);
        cr_expect(argmax(last, V) == (int)json_int(json_at(json_get(p, "top"), 0), -1), "%s", name);
        mem_free(all);
        mem_free(ids);
    }
    cr_expect(seen == 6);
}

Test(logits, exact_path_agrees_with_torch, .timeout = 300)
{
    check_golden(true, 1e-3);
}

Test(logits, default_path_agrees_with_torch, .timeout = 300)
{
    check_golden(false, 2e-2);
}

Test(logits, nll_column_agrees_with_torch, .timeout = 120)
{
    if (!default_model())
        cr_skip_test("the default model is absent");
    char path[] = "/tmp/kvf-nll-XXXXXX";
    struct kvf_diag d = {""};
    OWNED(engine_close) struct engine *e = open_model(default_model(), true, 0);
    OWNED(json_free) struct json *root = golden_json("logits_golden.json");
    const struct json *p = json_at(json_get(root, "prompts"), 2), *nll = json_get(p, "nll");
    const struct model_config *m = &e->config;
    struct recorder *rec = NULL;
    struct kvf_trace *t = NULL;
    unsigned set;
    int n, i = 1;
    OWNED(mem_free) int32_t *ids = golden_ids(json_get(p, "ids"), &n);
    struct probe_config cfg = {.shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim},
                               .cap = n,
                               .kernels = &e->kernels};
    close(mkstemp(path));
    cr_assert(probes_parse("nll", &set, &d) == KVF_OK);
    cr_assert(recorder_create(path,
                              &(struct recorder_run){.header = "{}", .existing = KVF_OVERWRITE},
                              set, &cfg, par_threads(e->pool), &rec, &d)
              == KVF_OK);
    for (int k = 0; k < n; k++)
        recorder_token(rec, ids[k], KVF_ROLE_PROMPT, "x", 1);
    OWNED(session_destroy)
    struct session *s = open_session(e, NULL, n, 40, rec); /* chunk boundaries inside the text */
    cr_assert(session_prompt(s, ids, n, NULL, NULL) == KVF_OK);
    cr_assert(recorder_finish(rec, NULL, &d) == KVF_OK);
    cr_assert(kvf_open(path, KVF_OPEN_STRICT, &t, &d) == KVF_OK, "%s", d.text);
    OWNED(mem_free) double *got = MEM_NEW(double, (size_t)n);
    cr_assert(kvf_read_f64(t, kvf_find(t, "nll"), 0, 0, 0, (uint32_t)n, got, &d) == KVF_OK);
    cr_expect(isnan(got[0]), "nothing predicts the first token");
    for (const struct json *x = json_first(nll); x; x = json_next(x), i++)
        cr_expect(fabs(got[i] - json_num(x, NAN)) <= 1e-3, "token %d", i);
    cr_expect(i == n);
    kvf_close(t);
    unlink(path);
}

struct gap { /* of a path compared with the exact path */
    double kl, kl_max, worst, square;
    int same_top, n;
};

static void add_gap(struct gap *g, const float *ref, const float *row, int V)
{
    double a = log_sum_exp(ref, V), b = log_sum_exp(row, V), kl = 0;
    for (int v = 0; v < V; v++) {
        double d = (double)row[v] - (double)ref[v], lp = (double)ref[v] - a;
        kl += exp(lp) * (lp - ((double)row[v] - b));
        g->worst = fmax(g->worst, fabs(d));
        g->square += d * d / V;
    }
    g->kl += kl;
    g->kl_max = fmax(g->kl_max, kl);
    g->same_top += argmax(ref, V) == argmax(row, V);
    g->n++;
}

/* Concatenates the tokens of the golden prompts. */
static int join_prompts(const struct json *root, int32_t *ids, int max)
{
    static const int order[] = {2, 0, 3, 5}; /* code, english, chinese_german, long */
    int n = 0;
    for (int k = 0; k < 4; k++) {
        const struct json *p = json_at(json_get(root, "prompts"), order[k]);
        for (const struct json *x = json_first(json_get(p, "ids")); x && n < max; x = json_next(x))
            ids[n++] = (int32_t)json_int(x, 0);
    }
    return n;
}

/* Compares the logits of e over the ids with a cache type. `what` is the label of the message. */
static struct gap gap_of(struct engine *e, const char *what, enum kv_type type, const float *ref,
                         const int32_t *ids, int n)
{
    size_t V = (size_t)e->config.vocab;
    OWNED(mem_free) float *row = all_logits(e, type, ids, n);
    struct gap g = {0};
    for (size_t t = 0; t < (size_t)n; t++)
        add_gap(&g, ref + t * V, row + t * V, (int)V);
    fprintf(stderr,
            "%s, cache in %s, against f32 over %d tokens: KL %.2e per token (largest %.2e), same "
            "top token %.1f %%, logits rms %.2e, largest %.2e\n",
            what, kv_type_name(type), n, g.kl / n, g.kl_max, 100.0 * g.same_top / n,
            sqrt(g.square / n), g.worst);
    return g;
}

/* Compares the default path with activations of 16 or 8 bits. */
static struct gap gap_of_path(bool bits8, const float *ref, const int32_t *ids, int n)
{
    OWNED(engine_close) struct engine *e = open_model(default_model(), false, 0);
    e->i8_activations = bits8;
    struct gap g = gap_of(e, bits8 ? "8-bit activations" : "16-bit activations", KV_F16, ref, ids,
                          n);
    return g;
}

/* Tests the paths that round, and the effect of the cache type with weights and activations in f32.
 * The bounds are those of docs/reference/parity.md. */
Test(logits, rounded_paths_and_caches_stay_close, .timeout = 300)
{
    enum { N = 256 };
    if (!default_model())
        cr_skip_test("the default model is absent");
    OWNED(json_free) struct json *root = golden_json("logits_golden.json");
    int32_t ids[N];
    int n = join_prompts(root, ids, N);
    struct engine *e = open_model(default_model(), true, 0);
    float *ref = all_logits(e, KV_F32, ids, n);
    struct gap half = gap_of(e, "f32", KV_F16, ref, ids, n);
    struct gap ints = gap_of(e, "f32", KV_I16, ref, ids, n);
    struct gap bytes = gap_of(e, "f32", KV_Q8_0, ref, ids, n);
    engine_close(e);
    cr_expect(half.kl / n <= 1e-6);
    cr_expect(ints.kl / n <= 5e-6);
    cr_expect(ints.kl != half.kl, "as f16: was the type taken at all?");
    cr_expect(bytes.kl / n <= 2e-3);
    cr_expect(bytes.same_top >= 0.98 * n);
    cr_expect(bytes.kl > 2 * half.kl, "as close as f16: was the type taken at all?");
    struct gap g = gap_of_path(false, ref, ids, n);
    cr_expect(g.kl / n <= 1e-3); /* docs/reference/design.md, section 8 */
    cr_expect(g.same_top >= 0.98 * n);
    cr_expect(g.kl / n >= 1e-9, "equal: was the quantised path taken at all?");
    struct gap eight = gap_of_path(true, ref, ids, n);
    cr_expect(eight.kl / n <= 1e-2);
    cr_expect(eight.same_top >= 0.94 * n);
    cr_expect(eight.kl > 100 * g.kl, "as close as 16 bits: was the option taken at all?");
    mem_free(ref);
}

/* Checks a case: all logits of the last id, and argmax and NLL of every position. */
static void check_tiny(const struct json *c, const char *path)
{
    const char *args = json_str(json_get(c, "args"), "?");
    OWNED(engine_close) struct engine *e = open_model(path, true, 1);
    int n, V = e->config.vocab, i = 0, t = 0;
    int32_t *ids = golden_ids(json_get(c, "ids"), &n);
    float *all = all_logits(e, KV_F32, ids, n), *last = all + (size_t)(n - 1) * (size_t)V;
    double worst = fabs(log_sum_exp(last, V) - json_num(json_get(c, "lse"), NAN));
    for (const struct json *x = json_first(json_get(c, "logits")); x; x = json_next(x))
        worst = fmax(worst, fabs((double)last[i++] - json_num(x, NAN)));
    double nll = worst_nll(json_get(c, "nll"), all, ids, V);
    for (const struct json *x = json_first(json_get(c, "argmax")); x; x = json_next(x), t++)
        cr_expect(argmax(all + (size_t)t * (size_t)V, V) == (int)json_int(x, -1), "%s, %d", args,
                  t);
    fprintf(stderr, "%-20.60s %d ids: logits %.1e, nll %.1e\n", args, n, worst, nll);
    cr_expect(i == V && t == n);
    cr_expect(worst <= 1e-4, "%s: logits differ by %g", args, worst);
    cr_expect(nll <= 1e-4, "%s: nll differs by %g", args, nll);
    mem_free(all);
    mem_free(ids);
}

Test(logits, tiny_models_agree_with_torch, .timeout = 120)
{
    OWNED(json_free) struct json *root = golden_json("tiny_golden.json");
    int i = 0;
    for (const struct json *c = json_first(json_get(root, "cases")); c; c = json_next(c))
        check_tiny(c, tiny_path(i++ / 2)); /* two lengths per model */
    cr_expect(i == 16);
}

Test(logits, qwen_models_agree_with_torch, .timeout = 120)
{
    OWNED(json_free) struct json *root = golden_json("qwen_golden.json");
    int i = 0;
    for (const struct json *c = json_first(json_get(root, "cases")); c; c = json_next(c))
        check_tiny(c, qwen_path(i++ / 2));
    cr_expect(i == 8);
}

/* Checks the tokens of the text and the greedy answer. */
static void check_greedy(const struct json *c, const char *path)
{
    OWNED(engine_close) struct engine *e = open_model(path, true, 1);
    int n, n_answer, n_text = 0, V = e->config.vocab;
    OWNED(mem_free) int32_t *ids = golden_ids(json_get(c, "ids"), &n), *from_text = NULL;
    OWNED(mem_free) int32_t *answer = golden_ids(json_get(c, "greedy"), &n_answer);
    const char *text = json_str(json_get(c, "text"), "");
    cr_assert(
        tokenizer_encode(e->tokenizer, text, strlen(text), TOKENIZER_BOS, &from_text, &n_text, NULL)
        == KVF_OK);
    cr_expect(n_text == n && memcmp(from_text, ids, (size_t)n * sizeof *ids) == 0, "%s", text);
    OWNED(session_destroy) struct session *s = open_session(e, NULL, n + n_answer, 0, NULL);
    cr_assert(session_prompt(s, ids, n, NULL, NULL) == KVF_OK);
    for (int i = 0; i < n_answer; i++) {
        int id = argmax(session_logits(s), V);
        cr_assert(id == answer[i], "%s: token %d of the answer is %d, expected %d", text, i, id,
                  answer[i]);
        cr_assert(session_step(s, id) == KVF_OK);
    }
    cr_expect(n_answer == 200);
}

/* A trained model of another family with a SentencePiece vocabulary. */
Test(logits, stories_agree_with_torch, .timeout = 120)
{
    const char *path = cached_model("stories260K.gguf");
    if (!path)
        cr_skip_test("stories260K is absent");
    OWNED(json_free) struct json *root = golden_json("stories_golden.json");
    int i = 0;
    for (const struct json *c = json_first(json_get(root, "cases")); c; c = json_next(c), i++) {
        check_tiny(c, path);
        check_greedy(c, path);
    }
    cr_expect(i == 3);
}

/* Quantised query and key rows are reordered like float rows. With quantised rows, the default path
 * must stay as close to the exact path as rounding allows. */
Test(logits, quantised_qwen_stays_close, .timeout = 60)
{
    enum { N = 40 };
    int32_t ids[N];
    struct gap g = {0};
    for (int i = 0; i < N; i++)
        ids[i] = 3 + i * 37 % 290;
    struct engine *e = open_model(qwen_path(2), true, 1);
    size_t V = (size_t)e->config.vocab;
    OWNED(mem_free) float *ref = all_logits(e, KV_F32, ids, N);
    engine_close(e);
    e = open_model(qwen_path(2), false, 1);
    cr_expect(e->weights->layer[0].matrix[T_QKV].kind == PACK_Q8);
    OWNED(mem_free) float *row = all_logits(e, KV_F16, ids, N);
    engine_close(e);
    for (size_t t = 0; t < N; t++)
        add_gap(&g, ref + t * V, row + t * V, (int)V);
    cr_expect(g.kl / N <= 1e-3, "KL %g", g.kl / N);
}
