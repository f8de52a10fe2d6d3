/* test_same.c - probes, thread counts, chunk sizes and a second run must not change results. */
#include "engine/model/out_gram.h"
#include "golden.h"
#include "tests/suite.h"

enum { PROMPT = 110, STEPS = 40, CAP = PROMPT + STEPS }; /* 2 pages and a fraction */

static void random_ids(int32_t *ids, int vocab)
{
    struct rng r = rng_seeded(11);
    for (int i = 0; i < CAP; i++)
        ids[i] = (int32_t)rng_below(&r, (uint64_t)vocab);
}

struct setting {
    const char *probes; /* NULL: no trace is recorded */
    int threads, chunk;
};

struct outcome {
    float *logits; /* [1 + STEPS][vocab] after the prompt and each step */
    char *trace;   /* bytes of the trace, or NULL */
    size_t n_logits, n_trace;
};

static void outcome_free(struct outcome *o)
{
    mem_free(o->logits);
    mem_free(o->trace);
}

/* *gram: memory that the contribution probe reads until the recorder is destroyed; free with
 * mem_free(). */
static struct recorder *record(struct engine *e, const char *probes, const char *path,
                               const int32_t *ids, double **gram)
{
    const struct model_config *m = &e->config;
    struct probe_config cfg = {.shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim},
                               .cap = CAP,
                               .kernels = &e->kernels};
    struct kvf_diag d = {""};
    struct recorder *rec = NULL;
    unsigned set;
    cr_assert(probes_parse(probes, &set, &d) == KVF_OK);
    cr_assert(out_gram(e->gguf, m, e->pool, gram, &d) == KVF_OK, "%s", d.text);
    cfg.out_gram = *gram;
    cr_assert(recorder_create(path,
                              &(struct recorder_run){.header = "{}", .existing = KVF_OVERWRITE},
                              set, &cfg, par_threads(e->pool), &rec, &d)
                  == KVF_OK,
              "%s", d.text);
    for (int i = 0; i < PROMPT; i++)
        cr_assert(recorder_token(rec, ids[i], KVF_ROLE_PROMPT, "ab", 2) == KVF_OK);
    return rec;
}

/* A model number i is tiny_path(i), 8 + i is qwen_path(i), and FAMILY + i is family_path(i). Adding
 * BITS8 selects 8-bit activations; adding WORDS selects float weights converted to integers. */
enum { FAMILY = 12, MISTRAL = FAMILY + 1, GEMMA2 = FAMILY + 5, GEMMA3 = FAMILY + 6 };
enum { BITS8 = 100, WORDS = 200 };

static const char *path_of(int model)
{
    if (model >= FAMILY)
        return family_path(model - FAMILY);
    return model < 8 ? tiny_path(model) : qwen_path(model - 8);
}

static struct outcome play(int model, bool exact, const char *method, int budget,
                           const struct setting *set)
{
    char path[] = "/tmp/kvf-same-XXXXXX";
    const char *file = path_of(model % BITS8);
    struct engine *e = model < WORDS ? open_model(file, exact, set->threads)
                                     : open_words(file, set->threads);
    e->i8_activations = model / BITS8 == 1;
    struct choice c = choose(method, budget);
    struct kvf_diag d = {""};
    size_t V = (size_t)e->config.vocab;
    int32_t ids[CAP];
    struct outcome o = {MEM_NEW(float, (1 + STEPS) * V), NULL, (1 + STEPS) * V, 0};
    random_ids(ids, e->config.vocab);
    close(mkstemp(path));
    OWNED(mem_free) double *gram = NULL;
    struct recorder *rec = set->probes ? record(e, set->probes, path, ids, &gram) : NULL;
    struct session *s = open_session(e, &c, CAP, set->chunk, rec);
    cr_assert(session_prompt(s, ids, PROMPT, NULL, NULL) == KVF_OK);
    memcpy(o.logits, session_logits(s), V * sizeof(float));
    for (int i = 0; i < STEPS; i++) {
        if (rec)
            recorder_token(rec, ids[PROMPT + i], KVF_ROLE_ANSWER, "c", 1);
        cr_assert(session_step(s, ids[PROMPT + i]) == KVF_OK);
        memcpy(o.logits + (size_t)(i + 1) * V, session_logits(s), V * sizeof(float));
    }
    if (rec) {
        cr_assert(recorder_finish(rec, "{}", &d) == KVF_OK);
        o.trace = read_whole(path, &o.n_trace);
    }
    session_destroy(s);
    engine_close(e);
    unlink(path);
    return o;
}

/* Checks that every setting gives the same logits bit for bit, and that recordings with the same
 * probes have the same bytes. */
static void compare_settings(int model, bool exact, const char *method, int budget)
{
    static const struct setting set[] = {
        {NULL, 1, 0},   {"full", 1, 0},  {"full", 1, 0}, {"full", 2, 0}, {"full", 2, 1},
        {"full", 2, 7}, {"full", 1, 64}, {"lean", 1, 0}, {NULL, 2, 17},
    };
    struct outcome first = play(model, exact, method, budget, &set[0]);
    SCOPED(outcome_free) struct outcome traced = play(model, exact, method, budget, &set[1]);
    cr_expect(memcmp(first.logits, traced.logits, first.n_logits * sizeof(float)) == 0,
              "%s: probes change the logits", method);
    for (size_t i = 2; i < sizeof set / sizeof *set; i++) {
        SCOPED(outcome_free) struct outcome o = play(model, exact, method, budget, &set[i]);
        cr_expect(memcmp(first.logits, o.logits, o.n_logits * sizeof(float)) == 0,
                  "%s, model %d: %d threads and chunks of %d change the logits", method, model,
                  set[i].threads, set[i].chunk);
        if (set[i].probes && strcmp(set[i].probes, "full") == 0)
            cr_expect(o.n_trace == traced.n_trace && memcmp(o.trace, traced.trace, o.n_trace) == 0,
                      "%s, model %d: %d threads and chunks of %d change the trace", method, model,
                      set[i].threads, set[i].chunk);
    }
    outcome_free(&first);
}

Test(same, full_cache_in_every_weight_type, .timeout = 120)
{
    for (int model = 0; model < 12; model++)
        compare_settings(model, false, "full", 0);
    compare_settings(6, true, "full", 0);
    for (int model = 0; model < 12; model++)
        compare_settings(BITS8 + model, false, "full", 0);
    for (int model = 0; model < 12; model++)
        compare_settings(WORDS + model, false, "full", 0);
}

/* Returns true if a preset needs no gates and plans. tests/oracle compares the other presets. */
static bool runs_alone(const struct method *m)
{
    struct method_inputs none = {0};
    struct kvf_diag d;
    return method_check_inputs(m, &m->params, &none, &d) == KVF_OK;
}

Test(same, every_method, .timeout = 300)
{
    /* The first model runs exactly; the long tests run all. The last three have sliding-window
     * layers. */
    static const int model[] = {0, 5, 8, MISTRAL, GEMMA2, GEMMA3};
    const char *size = getenv("KVFATE_TESTS");
    bool all = size && strcmp(size, "long") == 0;
    int n = 0;
    for (const struct method *m = method_presets; m->name; m++) {
        if (!runs_alone(m))
            continue;
        for (int i = 0; i < 6; i++)
            if (all || i == n % 6 || i == n % 6 + 3)
                compare_settings(model[i], i == 0, m->name, 40);
        compare_settings(BITS8 + model[n % 6], false, m->name, 40);
        n++;
    }
}

/* Checks that a budget above the length gives the results of method full. */
static void expect_as_full(int model)
{
    static const struct setting plain = {NULL, 1, 0};
    SCOPED(outcome_free) struct outcome full = play(model, false, "full", 0, &plain);
    for (const struct method *m = method_presets; m->name; m++) {
        if (!runs_alone(m))
            continue;
        char name[64]; /* a preset that evicts and reads pages reads all with this option */
        snprintf(name, sizeof name, m->score && !m->read->all ? "%s:reads=%d" : "%s", m->name, CAP);
        SCOPED(outcome_free) struct outcome o = play(model, false, name, CAP, &plain);
        /* Presets that choose pages close ranks after a window, so sums have another order. */
        bool other_order = model >= FAMILY && !m->read->all;
        float off = 0;
        for (size_t i = 0; i < o.n_logits; i++)
            off = fmaxf(off, fabsf(o.logits[i] - full.logits[i]));
        cr_expect(off <= (other_order ? 1e-2f : 0), "%s: logits differ by %g", m->name,
                  (double)off);
    }
}

Test(same, budget_over_the_length_equals_full, .timeout = 120)
{
    expect_as_full(4);
}

Test(same, budget_over_the_length_equals_full_behind_windows, .timeout = 120)
{
    expect_as_full(GEMMA2);
}
