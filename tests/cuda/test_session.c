/* Whole runs on the device and on the processor, in f32: the same decisions, the same columns of
 * every probe, that is the same bytes of a trace, and the same logits. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/decode/session.h"
#include "engine/model/out_gram.h"
#include "tests/cuda/device.h"
#include "tests/engine/golden.h"

enum { PROMPT = 70, LONG = 150, STEPS = 5, CAP = LONG + STEPS, BUDGET = 24 };

struct run {
    const char *path, *method, *probes; /* probes NULL: nothing is recorded */
    const char *shadows;
    int budget;
    bool exact;
    const char *gates; /* of tiny0, or NULL */
    int prompt;        /* tokens; 0: PROMPT */
};

struct outcome {
    float *logits; /* [1 + STEPS][vocab] */
    size_t n_logits;
    char *trace;
    size_t n_trace;
};

static int prompt_of(const struct run *run)
{
    return run->prompt ? run->prompt : PROMPT;
}

static struct engine *open_on(const struct run *run, const struct backend *backend)
{
    struct kvf_diag d = {""};
    struct engine *e = NULL;
    struct engine_options opt = {.exact = run->exact, .n_threads = 2, .backend = backend};
    cr_assert(eq(int, engine_open(run->path, &opt, &e, &d), KVF_OK), "%s", d.text);
    return e;
}

static struct recorder *record(struct engine *e, const struct run *run, const char *path,
                               const int32_t *ids, double **gram)
{
    const struct model_config *m = &e->config;
    struct probe_config cfg = {.shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim},
                               .cap = CAP,
                               .kernels = &e->kernels};
    struct kvf_diag d = {""};
    struct recorder *rec = NULL;
    unsigned set, shadows = 0;
    cr_assert(eq(int, probes_parse(run->probes, &set, &d), KVF_OK), "%s", d.text);
    if (run->shadows)
        cr_assert(eq(int, shadows_parse(run->shadows, &shadows, &d), KVF_OK), "%s", d.text);
    cr_assert(eq(int, out_gram(e->gguf, m, e->pool, gram, &d), KVF_OK), "%s", d.text);
    cfg.out_gram = *gram;
    struct recorder_run header = {.header = "{}", .existing = KVF_OVERWRITE};
    int err = recorder_create(path, &header, set | shadows, &cfg, par_threads(e->pool), &rec, &d);
    cr_assert(eq(int, err, KVF_OK), "%s", d.text);
    for (int i = 0; i < prompt_of(run); i++)
        recorder_token(rec, ids[i], KVF_ROLE_PROMPT, "ab", 2);
    return rec;
}

static struct gates *open_gates(struct engine *e, const char *name)
{
    const struct model_config *m = &e->config;
    const struct gates_model model = {m->n_layers,          m->d_model,  m->n_heads,
                                      m->n_kv_heads,        m->head_dim, m->norm_eps,
                                      (double)m->rope_base, NULL,        &e->kernels};
    char path[4096];
    struct kvf_diag d = {""};
    struct gates *g = NULL;
    const char *folder = getenv("KVF_TINY_GATES");
    if (!name)
        return NULL;
    snprintf(path, sizeof path, "%s/tiny_%s.safetensors", folder ? folder : ".", name);
    cr_assert(zero(int, gates_open(path, &model, &g, &d)), "%s", d.text);
    return g;
}

static struct session *open_gated(struct engine *e, const struct choice *c, const struct gates *g,
                                  struct recorder *rec)
{
    struct kvf_diag d = {""};
    struct session *s = NULL;
    struct session_options opt = {.method = &c->row,
                                  .params = &c->params,
                                  .gates = g,
                                  .kv_type = e->exact ? KV_F32 : KV_F16,
                                  .cap = CAP,
                                  .recorder = rec};
    cr_assert(zero(int, session_create(e, &opt, &s, &d)), "%s", d.text);
    return s;
}

static struct outcome play(const struct run *run, const struct backend *backend)
{
    char path[] = "/tmp/kvf-device-XXXXXX";
    struct engine *e = open_on(run, backend);
    struct choice c = choose(run->method, run->budget);
    struct kvf_diag d = {""};
    struct rng r;
    size_t V = (size_t)e->config.vocab;
    int prompt = prompt_of(run);
    struct outcome o = {MEM_NEW(float, (1 + STEPS) * V), (1 + STEPS) * V, NULL, 0};
    int32_t ids[CAP];
    double *gram = NULL;
    rng_init(&r, 11);
    for (int i = 0; i < CAP; i++)
        ids[i] = (int32_t)rng_below(&r, V);
    close(mkstemp(path));
    struct recorder *rec = run->probes ? record(e, run, path, ids, &gram) : NULL;
    struct gates *gates = open_gates(e, run->gates);
    struct session *s = open_gated(e, &c, gates, rec);
    cr_assert(eq(int, session_prompt(s, ids, prompt, NULL, NULL), KVF_OK));
    memcpy(o.logits, session_logits(s), V * sizeof(float));
    for (int i = 0; i < STEPS; i++) {
        if (rec)
            recorder_token(rec, ids[prompt + i], KVF_ROLE_ANSWER, "c", 1);
        cr_assert(eq(int, session_step(s, ids[prompt + i]), KVF_OK));
        memcpy(o.logits + (size_t)(i + 1) * V, session_logits(s), V * sizeof(float));
    }
    if (rec) {
        cr_assert(eq(int, recorder_finish(rec, "{}", &d), KVF_OK), "%s", d.text);
        o.trace = read_whole(path, &o.n_trace);
    }
    session_destroy(s);
    gates_close(gates);
    mem_free(gram);
    engine_close(e);
    unlink(path);
    return o;
}

static void drop(struct outcome *o)
{
    mem_free(o->logits);
    mem_free(o->trace);
}

static void same_on_both(const struct run *run)
{
    struct outcome cpu = play(run, &backend_cpu), cuda = play(run, &backend_cuda);
    bool same = cpu.n_trace == cuda.n_trace
                && (!cpu.trace || memcmp(cpu.trace, cuda.trace, cpu.n_trace) == 0);
    cr_expect(same, "%s, %s: the trace differs", run->path, run->method);
    cr_expect(le(dbl, distance(cuda.logits, cpu.logits, cpu.n_logits), run->exact ? 1e-5 : 2e-2),
              "%s, %s: logits", run->path, run->method);
    cr_assert(eq(int, emulation_faults(), 0), "%s: %s", run->method, emulation_first_fault());
    drop(&cpu);
    drop(&cuda);
}

/* Whether a row needs neither gates nor a plan, nor keys that are turned anew. */
static bool runs_here(const struct method *m)
{
    struct method_inputs none = {0};
    struct kvf_diag d;
    return method_check_inputs(m, &none, &d) == KVF_OK && m->params.positions == POSITIONS_ORIGINAL;
}

Test(session, every_method_decides_alike, .timeout = 300)
{
    int n = 0;
    for (const struct method *m = method_presets; m->name; m++) {
        struct run run = {tiny_path(4 + n % 2), m->name, "full", NULL, BUDGET, true};
        if (!runs_here(m))
            continue;
        same_on_both(&run);
        n++;
    }
    cr_expect(gt(int, n, 15));
}

Test(session, gates_decide_alike, .timeout = 120)
{
    static const char *const rows[][2] = {{"trimkv", "rg"},
                                          {"dbtrimkv", "rg"},
                                          {"wgkv-quest:page=4", "wgkv"},
                                          {"duo", "duo"},
                                          {"seer:page=4", "seer"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run run = {tiny_path(0), rows[i][0], "full", NULL, 0, true, rows[i][1]};
        run.budget = method_unbudgeted(rows[i][0]) ? 0 : BUDGET;
        same_on_both(&run);
    }
}

Test(session, every_family_computes_alike, .timeout = 300)
{
    for (int i = 0; i < 10; i++) {
        struct run run = {family_path(i), "snapkv", "lean", NULL, BUDGET, true};
        same_on_both(&run);
    }
}

Test(session, shadows_see_the_same, .timeout = 120)
{
    static const char *const what[] = {"entries", "model"};
    for (int i = 0; i < 2; i++) {
        struct run run = {tiny_path(4), "h2o", "full", what[i], BUDGET, true};
        same_on_both(&run);
    }
}

/* What moves up when ranks close lands in pages that nothing else is written to: the sinks stay in
 * the first, all behind them comes from later pages, and with slack the steps only append. */
Test(session, pages_that_entries_moved_into_are_sent, .timeout = 60)
{
    struct run run = {tiny_path(4), "window:slack=9", "lean", NULL, PAGE_SLOTS + 6,
                      true,         .prompt = LONG};
    same_on_both(&run);
}

/* Two futures of one past, each with pages of its own from then on; of the pages of a head a step
 * writes one. */
static float *forked(const struct backend *backend, size_t *ret_n)
{
    const struct run run = {tiny_path(4), "h2o", NULL, NULL, 2 * PAGE_SLOTS + 2, true};
    struct engine *e = open_on(&run, backend);
    struct choice c = choose(run.method, run.budget);
    struct kvf_diag d = {""};
    size_t V = (size_t)e->config.vocab;
    int32_t ids[LONG];
    float *logits = MEM_NEW(float, 2 * STEPS * V);
    for (int i = 0; i < LONG; i++)
        ids[i] = (int32_t)((size_t)(i * i + 3) % V);
    struct session *s[2] = {open_session(e, &c, CAP, 0, NULL), NULL};
    cr_assert(eq(int, session_prompt(s[0], ids, LONG, NULL, NULL), KVF_OK));
    cr_assert(eq(int, session_step(s[0], 5), KVF_OK));
    cr_assert(eq(int, session_fork(s[0], NULL, &s[1], &d), KVF_OK), "%s", d.text);
    for (int i = 0; i < 2 * (STEPS - 1); i++) {
        cr_assert(eq(int, session_step(s[i % 2], ids[i]), KVF_OK));
        memcpy(logits + (size_t)i * V, session_logits(s[i % 2]), V * sizeof *logits);
    }
    session_destroy(s[0]);
    session_destroy(s[1]);
    engine_close(e);
    *ret_n = 2 * STEPS * V;
    return logits;
}

Test(session, forks_go_their_ways, .timeout = 60)
{
    size_t n;
    float *cpu = forked(&backend_cpu, &n), *cuda = forked(&backend_cuda, &n);
    cr_expect(le(dbl, distance(cuda, cpu, n), 1e-5));
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
    mem_free(cpu);
    mem_free(cuda);
}

/* What cannot run there says so. */
static void expect_refused(const char *method, enum kv_type type, const char *word)
{
    const struct run run = {tiny_path(4), method, NULL, NULL, BUDGET, true};
    struct engine *e = open_on(&run, &backend_cuda);
    struct choice c = choose(run.method, run.budget);
    struct session_options opt = {
        .method = &c.row, .params = &c.params, .kv_type = type, .cap = CAP};
    struct session *s = NULL;
    struct kvf_diag d = {""};
    cr_expect(eq(int, session_create(e, &opt, &s, &d), KVF_E_ARG));
    cr_expect(ne(ptr, strstr(d.text, word), NULL), "%s", d.text);
    engine_close(e);
}

Test(session, refuses_keys_that_are_turned_anew_and_a_cache_of_8_bits, .timeout = 60)
{
    expect_refused("window:positions=cache", KV_F32, "positions=cache");
    expect_refused("window", KV_Q8_0, "q8_0");
}

/* Weights in the types of their files and sums in any order: near, and with nothing recorded the
 * attention that keeps no rows. */
Test(session, fast_sums_are_near, .timeout = 120)
{
    for (int i = 0; i < 8; i++) {
        struct run run = {tiny_path(i), i % 2 ? "full" : "window", NULL,
                          NULL,         i % 2 ? 0 : BUDGET,        false};
        same_on_both(&run);
    }
}
