/* test_corners.c - special cases of sessions on a device compared with the CPU: a change of the
 * method, gates of all layouts that have kernels, and a vocabulary of several tiles. */
#include "engine/device/device.h"
#include "engine/decode/session.h"
#include "engine/kernels/kernels_ref.h"
#include "engine/method/device_eviction.h"
#include "tests/cuda/outcome.h"
#include "tests/engine/golden.h"

enum { CAP = 160 };

static struct engine *open_on(const char *model, const struct backend *backend, bool exact)
{
    struct engine_options opt = {.exact = exact, .n_threads = 1, .backend = backend};
    struct kvf_diag d = {""};
    struct engine *e = NULL;
    device_needed();
    cr_assert(zero(int, engine_open(model, &opt, &e, &d)), "%s", d.text);
    return e;
}

static void fill_ids(int32_t *ids)
{
    for (int i = 0; i < CAP; i++)
        ids[i] = (i * i + 3) % 61;
}

/* ---- change of the method */

static void adopt(struct session *s, const struct engine *e, const char *method)
{
    const struct model_config *m = &e->config;
    const struct method_shape shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim};
    struct choice c = choose(method, method_unbudgeted(method) ? 0 : 30);
    struct method_state *state = NULL;
    const struct method_inputs in = {.model = m, .length = CAP, .kernels = &e->kernels};
    cr_assert(zero(int, method_state_create(&c.row, &c.params, &shape, &in, &state)));
    cr_assert(zero(int, session_adopt(s, state)), "%s", method);
    method_state_destroy(state);
}

/* Runs a prompt and a step with method full, then with `method`. Returns the last logits,
 * [*ret_n]. */
static float *under(const struct backend *backend, const char *method, size_t *ret_n)
{
    struct engine *e = open_on(tiny_path(0), backend, true);
    size_t V = *ret_n = (size_t)e->config.vocab;
    struct choice full = choose("full", 0);
    struct session *s = open_session(e, &full, CAP, 32, NULL);
    float *logits = MEM_NEW(float, V);
    int32_t ids[CAP];
    fill_ids(ids);
    cr_assert(zero(int, session_prompt(s, ids, PAGE_SLOTS, NULL, NULL)));
    cr_assert(zero(int, session_step(s, ids[PAGE_SLOTS]))); /* the first slot of a page */
    adopt(s, e, method);
    cr_assert(zero(int, session_prompt(s, ids + PAGE_SLOTS + 1, 35, NULL, NULL)));
    cr_assert(zero(int, session_step(s, ids[PAGE_SLOTS + 36])));
    memcpy(logits, session_logits(s), V * sizeof *logits);
    session_destroy(s);
    engine_close(e);
    return logits;
}

/* A new method must not reuse buffers of the old one. "local" needs prefill buffers for entries
 * that expire, and "h2o" needs decode buffers for its evidence. */
Test(corners, another_method_has_rooms_of_its_own, .timeout = 60)
{
    static const char *const then[] = {"local:sinks=2", "h2o"};
    for (int i = 0; i < 2; i++) {
        size_t n;
        float *cpu = under(&backend_cpu, then[i], &n), *cuda = under(&backend_cuda, then[i], &n);
        cr_expect(le(dbl, distance(cuda, cpu, n), 1e-5), "%s", then[i]);
        cr_assert(zero(int, emulation_faults()), "%s", emulation_first_fault());
        mem_free(cpu);
        mem_free(cuda);
    }
}

/* ---- evidence moves between the host and the device */

static void on_row(void *ctx, const struct attn_row *row)
{
    double *sum = ctx;
    *sum += (double)row->lse + row->seen;
}

/* Runs a prompt shorter than the sinks and the window, then steps, of which some are observed, then
 * another prompt and more steps. Returns the decisions and the last logits. */
static struct outcome live(const struct backend *backend, const char *method, double *rows)
{
    struct engine *e = open_on(tiny_path(0), backend, true);
    struct choice c = choose(method, 9);
    size_t V = (size_t)e->config.vocab;
    struct outcome o = {.logits = MEM_NEW(float, V), .n_logits = V};
    struct session *s = open_session(e, &c, CAP, 0, NULL);
    int32_t ids[CAP];
    fill_ids(ids);
    session_on_evict(s, on_evict, &o);
    cr_assert(zero(int, session_prompt(s, ids, 3, NULL, NULL)));
    for (int t = 3; t < 21; t++) {
        if (t == 14) {
            cr_assert(zero(int, session_prompt(s, ids + t, 2, NULL, NULL)));
            t += 2;
        }
        if (t == 9 || t == 12)
            session_on_row(s, t == 9 ? on_row : NULL, rows);
        cr_assert(zero(int, session_step(s, ids[t])));
    }
    memcpy(o.logits, session_logits(s), V * sizeof *o.logits);
    o.cuts = session_cuts(s);
    session_destroy(s);
    engine_close(e);
    return o;
}

/* Evidence stays on the device during consecutive steps. It moves to the host for another prompt
 * and when an observer reads the rows of weights. */
Test(corners, evidence_goes_there_and_back, .timeout = 60)
{
    static const char *const methods[] = {"h2o:order=after", "expected-attention:sinks=5,horizon=9",
                                          "rkv:window=4"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        double here = 0, there = 0;
        struct outcome cpu = live(&backend_cpu, methods[i], &here);
        struct outcome cuda = live(&backend_cuda, methods[i], &there);
        cr_expect(same_evictions(&cpu, &cuda) && cpu.cuts == cuda.cuts, "%s decides", methods[i]);
        cr_expect(le(dbl, distance(cuda.logits, cpu.logits, cpu.n_logits), 1e-5), "%s", methods[i]);
        cr_expect(epsilon_eq(dbl, here, there, EMULATED ? 0 : 1e-4), "%s: rows", methods[i]);
        cr_assert(zero(int, emulation_faults()), "%s", emulation_first_fault());
        mem_free(cpu.logits);
        mem_free(cpu.evictions);
        mem_free(cuda.logits);
        mem_free(cuda.evictions);
    }
}

/* ---- logits */

/* Returns the logits after a prompt and a step of a model with capped logits, [*ret_n]. */
static float *capped(const struct backend *backend, size_t *ret_n)
{
    struct engine *e = open_on(family_path(5), backend, true);
    struct choice full = choose("full", 0);
    struct session *s = open_session(e, &full, CAP, 0, NULL);
    size_t V = *ret_n = (size_t)e->config.vocab;
    float *logits = MEM_NEW(float, V);
    static const int32_t ids[] = {3, 5, 7};
    cr_assert(gt(flt, e->config.logit_cap, 0));
    cr_assert(zero(int, session_prompt(s, ids, 2, NULL, NULL)));
    cr_assert(zero(int, session_step(s, ids[2])));
    memcpy(logits, session_logits(s), V * sizeof *logits);
    session_destroy(s);
    engine_close(e);
    return logits;
}

Test(corners, logits_of_steps_are_capped, .timeout = 60)
{
    size_t n;
    float *cpu = capped(&backend_cpu, &n), *cuda = capped(&backend_cuda, &n);
    cr_expect(le(dbl, distance(cuda, cpu, n), 1e-5));
    mem_free(cpu);
    mem_free(cuda);
}

/* ---- gates */

/* Returns the gate values of a prompt and two steps without evictions, [heads][n]. */
static float *numbers_of(const struct backend *backend, const char *method, const char *file,
                         bool exact, int n)
{
    struct engine *e = open_on(tiny_path(0), backend, exact);
    struct gates *gates = open_gates(e, file);
    struct choice c = choose(method, CAP);
    struct session_options opt = {.method = &c.row,
                                  .params = &c.params,
                                  .gates = gates,
                                  .kv_type = exact ? KV_F32 : KV_F16,
                                  .cap = CAP,
                                  .chunk = 8};
    struct kvf_diag d = {""};
    struct session *s = NULL;
    int32_t ids[CAP];
    int heads = e->config.n_layers * e->config.n_kv_heads;
    float *numbers = MEM_NEW(float, (size_t)(heads * n));
    fill_ids(ids);
    cr_assert(zero(int, session_create(e, &opt, &s, &d)), "%s, %s: %s", method, file, d.text);
    cr_assert(zero(int, session_prompt(s, ids, n - 2, NULL, NULL)));
    for (int i = n - 2; i < n; i++)
        cr_assert(zero(int, session_step(s, ids[i])));
    const struct device_evidence all = device_evidence(session_method(s), session_cache(s));
    cr_assert(ne(ptr, all.gate, NULL));
    for (int i = 0; i < heads * n; i++)
        numbers[i] = all.gate[i / n * all.cap + i % n];
    session_destroy(s);
    gates_close(gates);
    engine_close(e);
    return numbers;
}

/* For all layouts, the device computes the gate values of the CPU in prefill and in decode steps.
 * Without exact sums, other kernels compute units that are as wide as the model. */
Test(corners, gates_of_all_layouts, .timeout = 60)
{
    static const struct {
        const char *method, *file;
        bool exact;
    } all[] = {{"trimkv", "rgkv", true},
               {"trimkv", "rg2", true},
               {"trimkv", "rg", false},
               {"trimkv", "rgkv", false},
               {"trimkv", "values", true},
               {"locret:positions=original", "locret", false},
               {"locret:positions=original", "locret", true},
               {"wgkv-snapkv:local=40,window=4", "wgkv", false}};
    enum { N = 18, HEADS = 4 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *method = all[i].method, *file = all[i].file;
        float *cpu = numbers_of(&backend_cpu, method, file, all[i].exact, N);
        float *cuda = numbers_of(&backend_cuda, method, file, all[i].exact, N);
        double off = distance(cuda, cpu, (size_t)N * HEADS);
        cr_expect(le(dbl, off, all[i].exact ? 1e-5 : 2e-2), "%s, exact %d: %g", file, all[i].exact,
                  off);
        cr_assert(zero(int, emulation_faults()), "%s", emulation_first_fault());
        mem_free(cpu);
        mem_free(cuda);
    }
}

/* ---- likelihoods */

enum { VOCAB = 16 * GPU_SEGMENT + 300, ROWS = 3 };

/* Checks the log-likelihoods of rows over a vocabulary of two tiles with an incomplete last
 * segment. */
static void expect_likelihoods(struct session *s, const float *w, const float *x, float cap)
{
    static const int32_t ids[ROWS] = {1, VOCAB - 1, 16 * GPU_SEGMENT};
    size_t d = (size_t)s->e->config.d_model;
    float *row = MEM_NEW(float, VOCAB);
    cr_assert(zero(int, nll_alloc(s)));
    cr_assert(device_likelihood(s, x, ids, ROWS));
    for (int t = 0; t < ROWS; t++) {
        for (size_t i = 0; i < VOCAB; i++) {
            float sum = 0;
            for (size_t k = 0; k < d; k++)
                sum = fmaf(x[(size_t)t * d + k], w[i * d + k], sum);
            row[i] = cap > 0 ? cap * tanhf(sum / cap) : sum;
        }
        for (int i = 0; i < VOCAB; i += GPU_SEGMENT) {
            double want = log_sum_exp_ref(row + i,
                                          VOCAB - i < GPU_SEGMENT ? VOCAB - i : GPU_SEGMENT);
            float got = s->nll.lse[i / GPU_SEGMENT * s->chunk + t];
            cr_expect(epsilon_eq(dbl, (double)got, want, 1e-4), "row %d, word %d", t, i);
        }
        cr_expect(epsilon_eq(dbl, (double)s->nll.target_logit[t], (double)row[ids[t]], 1e-4), "%d",
                  t);
    }
    mem_free(row);
}

Test(corners, a_vocabulary_of_several_tiles, .timeout = 60)
{
    struct engine *e = open_on(tiny_path(0), &backend_cuda, true);
    struct device_weights *there = e->device;
    size_t d = (size_t)e->config.d_model, n = VOCAB * d;
    const struct gpu_matrix own = there->head.part[0];
    int panels = e->weights->head.n_panels;
    float *w = MEM_NEW(float, n), *x = MEM_NEW(float, ROWS *d);
    struct choice full = choose("full", 0);
    struct rng r;
    rng_init(&r, 12);
    fill(&r, w, n, 0.2);
    fill(&r, x, ROWS * d, 1);
    float *matrix = device_copy(there->gpu, w, n * sizeof *w);
    there->head.part[0] = (struct gpu_matrix){matrix, WEIGHT_F32, VOCAB, (int)d, d * sizeof *w};
    e->weights->head.n_panels = (VOCAB + PANEL - 1) / PANEL;
    for (int i = 0; i < 2; i++) {
        struct session *s = open_session(e, &full, CAP, 5, NULL);
        e->config.logit_cap = 2 * (float)i;
        expect_likelihoods(s, w, x, e->config.logit_cap);
        e->config.logit_cap = 0;
        session_destroy(s);
    }
    there->head.part[0] = own;
    e->weights->head.n_panels = panels;
    device_check(there->gpu, "likelihoods");
    gpu_free(there->gpu, matrix);
    mem_free(w);
    mem_free(x);
    engine_close(e);
}
