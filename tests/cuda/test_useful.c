/* test_useful.c - the attention to useful entries that the device computes equals the result of the
 * CPU's dilution probe on the same rows, bit for bit. Covers all kinds of sets, any order of slots,
 * and queries that see all entries or some. */
#include "engine/cuda/watch.h"
#include "engine/probe/arrays.h"
#include "engine/probe/dilution.h"
#include "engine/probe/probes.h"
#include "tests/cuda/device.h"

enum { LAYERS = 2, HEADS = 2, PER = 3, G = HEADS * PER, MOST_HEADS = LAYERS * HEADS };
enum { PAGE = 4, PLAN_HEADS = HEADS };

struct useful_case {
    const char *what;
    int kind;      /* kind of weights, see weight() */
    int entries;   /* entries of a head without evictions, including those of the queries */
    int T, layers; /* queries; layers in one launch */
    int gone;      /* entries evicted from each even head */
    int spans;     /* sets */
    bool leave, pages, plan, gates, evicts;
    int cap; /* 0: equal to entries */
};

/* Host arrays of a case, [heads][ld] and [query heads][T][ld]. */
struct useful_scene {
    const struct useful_case *c;
    int heads, n_q, ld, layer, pos0, cap;
    int32_t n[MOST_HEADS], page[MOST_HEADS];
    float *p;
    int32_t *pos, *until, *seen;
    unsigned char *chosen;
    uint32_t *plan;  /* [LAYERS][PLAN_HEADS][plan_tokens] */
    float *log_beta; /* [cap][LAYERS * HEADS] */
    int plan_tokens;
};

/* Returns a random weight. Kind 0 has many magnitudes, 1 few values, 2 mostly 0, 3 equal values, 4
 * one large and many small values. Kind 5 is set by order_matters(). */
static float weight(struct rng *r, int kind, int i, int n)
{
    float x = (float)(exp(-14 * rng_uniform(r)) / 4);
    if (kind == 1)
        x = (float)(1 + rng_below(r, 3)) / (float)(2 * n);
    if (kind == 2)
        x = rng_below(r, 10) == 0 ? x : 0;
    if (kind == 4)
        x = i == 5 ? .75f : x / 4096;
    return kind == 3 ? 1 / (float)n : x;
}

static bool sees(const struct useful_scene *s, int g, int r, int slot)
{
    int h = g / PER, n = s->n[h] - (s->c->T - 1 - r);
    bool read = s->page[h] == 0 || s->chosen[g * s->ld + slot / PAGE];
    return slot < n && s->until[h * s->ld + slot] > s->pos0 + r && read;
}

/* Sets the positions of a head. The newest entries belong to the queries, in order. In a decode
 * step the new entry can be in any slot. */
static void place(struct useful_scene *s, struct rng *r, int h)
{
    int32_t *pos = s->pos + h * s->ld, *until = s->until + h * s->ld;
    int gone = h % 2 ? 0 : s->c->gone, n = s->c->entries - gone, old = n - s->c->T, left = old;
    s->n[h] = n;
    for (int t = 0, at = 0; t < s->pos0; t++) /* a random subset of the earlier positions */
        if (rng_below(r, (uint64_t)(s->pos0 - t)) < (uint64_t)left) {
            pos[at++] = t;
            left--;
        }
    for (int i = old; i < n; i++)
        pos[i] = s->pos0 + i - old;
    int any = s->c->T == 1 ? n : old;
    for (int i = any - 1; gone && i > 0; i--) {
        int j = (int)rng_below(r, (uint64_t)i + 1), x = pos[i];
        pos[i] = pos[j];
        pos[j] = x;
    }
    for (int i = 0; i < n; i++) {
        bool leaves = s->c->leave && pos[i] < s->pos0 && rng_below(r, 40) == 0;
        until[i] = leaves ? s->pos0 + 2 + (int)rng_below(r, (uint64_t)s->c->T) : INT32_MAX;
    }
}

/* Makes sums that depend on the order of addition. In set 0, tokens 0 and 1 sum to 1/2 + 2^-25,
 * which is between two floats. Each of 31 other tokens adds 2^-54, which is lost after them but not
 * before them. In heads with evictions, positions decrease with slots. */
static void order_matters(struct useful_scene *s)
{
    static const float first[] = {.5f, 0x1p-25f, 0, .5f - 0x1p-25f};
    for (int h = 0; h < s->heads; h += 2)
        for (int i = 0; i < s->n[h]; i++)
            s->pos[h * s->ld + i] = i < 32 ? 71 - i : 35 - i;
    for (int h = 0; h < s->heads; h += 2)
        s->pos[h * s->ld] = s->pos0;
    for (int g = 0; g < s->n_q; g++)
        for (int i = 0; i < s->n[g / PER]; i++) {
            int pos = s->pos[g / PER * s->ld + i];
            float later = pos >= 40 && pos < 71 ? 0x1p-54f : 0;
            s->p[g * s->ld + i] = pos < 4 ? first[pos] : later;
        }
}

static struct useful_scene *make_scene(struct rng *r, const struct useful_case *c)
{
    struct useful_scene *s = NEW(struct useful_scene, 1);
    *s = (struct useful_scene){.c = c, .heads = c->layers * HEADS, .n_q = c->layers * G};
    s->ld = (c->entries + PAGE_SLOTS - 1) / PAGE_SLOTS * PAGE_SLOTS;
    s->layer = LAYERS - c->layers;
    s->pos0 = c->entries - c->T;
    s->cap = c->cap ? c->cap : c->entries;
    s->plan_tokens = c->entries - c->T / 2 - 1; /* the last ones stay */
    size_t slots = (size_t)(s->heads * s->ld), rows = (size_t)(s->n_q * c->T);
    size_t plan = (size_t)(LAYERS * PLAN_HEADS * s->plan_tokens);
    s->p = NEW(float, (rows * (size_t)s->ld));
    s->pos = NEW(int32_t, slots);
    s->until = NEW(int32_t, slots);
    s->seen = NEW(int32_t, rows);
    s->chosen = NEW(unsigned char, (size_t)(s->n_q * s->ld));
    s->plan = NEW(uint32_t, plan);
    s->log_beta = NEW(float, (size_t)(s->cap * LAYERS * HEADS));
    for (int h = 0; h < s->heads; h++) {
        place(s, r, h);
        s->page[h] = c->pages && h % 2 ? PAGE : 0;
    }
    for (int i = 0; i < s->n_q * s->ld; i++)
        s->chosen[i] = i % s->ld * PAGE > s->pos0 - PAGE || rng_below(r, 3) > 0;
    for (size_t i = 0; i < rows * (size_t)s->ld; i++)
        s->p[i] = weight(r, c->kind, (int)(i % (size_t)s->ld), c->entries);
    if (c->kind == 5)
        order_matters(s);
    for (int i = 0; i < (int)rows; i++)
        for (int slot = 0; slot < s->ld; slot++)
            s->seen[i] += slot < s->n[i / c->T / PER] && sees(s, i / c->T, i % c->T, slot);
    for (size_t i = 0; i < plan; i++) { /* the token's own query sees it */
        uint32_t own = (uint32_t)(i % (size_t)s->plan_tokens);
        uint32_t until = (uint32_t)(s->pos0 + 11) - (uint32_t)rng_below(r, 20);
        s->plan[i] = until <= own || rng_below(r, 2) ? UINT32_MAX : until;
    }
    for (int i = 0; i < s->cap * LAYERS * HEADS; i++)
        s->log_beta[i] = rng_below(r, 50) ? -(float)rng_uniform(r) / 8 : -INFINITY;
    return s;
}

/* ---- on the CPU */

static int by_position(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* Passes query r of query head g to the probe, as the recorder does. g counts from the first layer
 * of the rows. */
static void tell(const struct useful_scene *s, struct probe_state *probe, int g, int r,
                 void *scratch)
{
    const int32_t *pos = s->pos + g / PER * s->ld;
    int n_slots = s->n[g / PER] - (s->c->T - 1 - r), n = 0;
    int32_t(*entry)[2] = host_alloc((size_t)n_slots, sizeof *entry);
    float *p = NEW(float, (size_t)n_slots);
    int32_t *at = NEW(int32_t, (size_t)n_slots);
    struct probe_cuts cuts = {.known = false};
    for (int i = 0; i < n_slots; i++)
        if (sees(s, g, r, i)) {
            entry[n][0] = pos[i];
            entry[n++][1] = i;
        }
    qsort(entry, (size_t)n, sizeof *entry, by_position);
    for (int i = 0; i < n; i++) {
        at[i] = entry[i][0];
        p[i] = s->p[((size_t)(g * s->c->T + r)) * (size_t)s->ld + (size_t)entry[i][1]];
    }
    const struct probe_row row = {.layer = s->layer + g / G,
                                  .head = g % G,
                                  .t = s->pos0 + r,
                                  .n = n,
                                  .p = p,
                                  .pos = at,
                                  .scratch = scratch,
                                  .cuts = &cuts};
    probe_dilution.row(probe, &row);
}

static void take_here(const struct useful_scene *s, struct probe_state *probe)
{
    void *scratch = host_alloc(row_cuts_scratch(s->ld), 1);
    for (int i = 0; s->c->gates && i < s->cap * LAYERS * HEADS; i++) {
        int h = i % (LAYERS * HEADS);
        probe_dilution.gate(probe, h / HEADS, h % HEADS, i / (LAYERS * HEADS), s->log_beta[i]);
    }
    for (int g = 0; g < s->n_q; g++)
        for (int r = 0; r < s->c->T; r++)
            tell(s, probe, g, r, scratch);
}

/* ---- on the device */

static struct gpu_seen_rows rows_there(struct gpu *gpu, const struct useful_scene *s)
{
    size_t slots = (size_t)(s->heads * s->ld), rows = (size_t)(s->n_q * s->c->T);
    struct gpu_seen_rows in = {.ld = (size_t)s->ld};
    in.p = device_copy(gpu, s->p, rows * in.ld * sizeof *s->p);
    in.seen = device_copy(gpu, s->seen, rows * sizeof *s->seen);
    in.a = (struct gpu_attention){.n_heads = s->n_q, .T = s->c->T, .pos0 = s->pos0};
    in.a.cache = (struct gpu_cache){.heads = s->heads, .most = s->c->entries, .ld_slot = s->ld};
    in.a.cache.n = device_copy(gpu, s->n, sizeof s->n);
    if (s->c->gone)
        in.a.cache.pos = device_copy(gpu, s->pos, slots * sizeof *s->pos);
    if (s->c->leave)
        in.a.cache.until = device_copy(gpu, s->until, slots * sizeof *s->until);
    if (s->c->pages)
        in.a.page = device_copy(gpu, s->page, sizeof s->page);
    in.a.chosen = device_copy(gpu, s->chosen, (size_t)(s->n_q * s->ld));
    in.a.ld_chosen = s->ld;
    return in;
}

static void *cell(void *const *copy, int array)
{
    return array < 0 ? NULL : copy[array];
}

static struct gpu_useful_columns columns_of(const struct dilution_layout *at, void *const *copy)
{
    struct gpu_useful_columns to = {.useful = {NULL}};
    for (int u = 0; u < DILUTION_SETS; u++) {
        to.useful[u] = cell(copy, at->real[DILUTION_USEFUL][u]);
        to.dilution[u] = cell(copy, at->real[DILUTION_DILUTION][u]);
        to.kept[u] = cell(copy, at->real[DILUTION_KEPT][u]);
        to.aged_kept[u] = cell(copy, at->real[DILUTION_BETA_KEPT][u]);
        to.aged_in[u] = cell(copy, at->real[DILUTION_BETA_RHO_U][u]);
        to.aged_out[u] = cell(copy, at->real[DILUTION_BETA_RHO_D][u]);
        to.size[u] = cell(copy, at->size[u]);
    }
    for (int i = 0; i < (2 + PROBE_SPAN_SETS) * DILUTION_NEAR; i++)
        to.near[i / DILUTION_NEAR][i % DILUTION_NEAR] =
            at->near[i / DILUTION_NEAR] < 0 ? NULL
                                            : copy[at->near[i / DILUTION_NEAR] + i % DILUTION_NEAR];
    return to;
}

static struct gpu_useful useful_there(struct gpu *gpu, const struct useful_scene *s,
                                      const struct probe_state *probe, void *const *copy)
{
    const struct probe_config *cfg = probe->cfg;
    struct dilution_view v = probe_dilution_view(probe);
    struct gpu_useful_columns columns = columns_of(v.at, copy);
    size_t plan = (size_t)(LAYERS * PLAN_HEADS * s->plan_tokens) * sizeof *s->plan;
    struct gpu_useful how = {.cap = s->cap, .wide = !probe->narrow, .head = s->layer * G};
    how.columns = device_copy(gpu, &columns, sizeof columns);
    memcpy(how.slack, v.slack, sizeof how.slack);
    memcpy(how.near, v.near, sizeof how.near);
    how.n_spans = cfg->n_span_sets;
    how.spans = device_copy(gpu, v.spans, (size_t)s->cap);
    for (int k = 0; k < how.n_spans; k++)
        how.first[k] = cfg->span_set[k].n > 0 ? cfg->span_set[k].range[0][0] : INT32_MAX;
    how.plan = s->c->plan ? device_copy(gpu, s->plan, plan) : NULL;
    how.plan_tokens = s->plan_tokens;
    how.plan_per = G / PLAN_HEADS;
    if (s->c->evicts) {
        how.ld_order = s->ld;
        how.ld_bits = s->cap / 32 + 1;
        how.order = device_alloc(gpu, (size_t)(s->heads * how.ld_order) * sizeof *how.order, 1);
        how.bits = device_alloc(gpu, (size_t)(s->heads * 2 * how.ld_bits) * sizeof *how.bits, 1);
    }
    return how;
}

static void take_there(struct gpu *gpu, const struct useful_scene *s, struct probe_state *probe,
                       void *const *copy)
{
    struct gpu_seen_rows in = rows_there(gpu, s);
    struct gpu_useful how = useful_there(gpu, s, probe, copy);
    const struct gpu_criteria criteria = {PROBE_N_TOP, PROBE_N_TAU, probe_top_k, probe_tau};
    int heads = LAYERS * HEADS, half = s->cap / 2;
    struct row_cut *cuts = device_alloc(
        gpu, (size_t)(s->n_q * s->c->T * KVF_N_CRITERIA) * sizeof *cuts, 1);
    if (s->c->gates) { /* in two parts */
        size_t bytes = (size_t)(s->cap * heads) * sizeof *s->log_beta;
        const float *numbers = device_copy(gpu, s->log_beta, bytes);
        float *to = device_alloc(gpu, bytes, 1);
        gpu_watch_numbers(gpu, numbers, heads, half, 0, to, s->cap);
        gpu_watch_numbers(gpu, numbers + half * heads, heads, s->cap - half, half, to, s->cap);
        how.log_beta = to;
    }
    gpu_row_cuts(gpu, &in, &criteria, cuts);
    gpu_watch_useful(gpu, &in, cuts, &how);
    device_check(gpu, s->c->what);
}

/* ---- both */

/* Compares a cell of a column. The exp of a real device may differ in the last digit. */
static bool same_cell(const char *a, const char *b, size_t size, const struct probe_array *of)
{
    float x = 0, y = 0;
    bool real = of->start == PROBE_NAN;
    bool near = !EMULATED && strncmp(of->column.name, "beta.", 5) == 0;
    memcpy(&x, a, real ? sizeof x : 0);
    memcpy(&y, b, real ? sizeof y : 0);
    near = near && fabsf(x - y) <= 1e-5f * fabsf(y);
    return memcmp(a, b, size) == 0 || near || (isnan(x) && isnan(y));
}

static void expect_same(struct gpu *gpu, const struct useful_scene *s, struct probe_state *probe)
{
    int n = probe->n_arrays;
    void **copy = NEW(void *, (size_t)n);
    size_t cells = (size_t)(LAYERS * G) * (size_t)s->cap;
    for (int i = 0; i < n; i++)
        copy[i] = device_copy(gpu, probe->data[i], cells * probe_cell_size(probe, i));
    take_there(gpu, s, probe, copy);
    take_here(s, probe);
    for (int i = 0; i < n; i++) {
        size_t size = probe_cell_size(probe, i), wrong = 0, at = 0;
        char *got = host_copy(gpu, copy[i], cells * size), *want = probe->data[i];
        for (size_t k = 0; k < cells; k++)
            if (!same_cell(got + k * size, want + k * size, size, &probe->array[i])) {
                wrong++;
                at = k;
            }
        cr_expect(zero(sz, wrong), "%s: %s of row %zu, query %zu", s->c->what,
                  probe->array[i].column.name, at / (size_t)s->cap, at % (size_t)s->cap);
    }
}

static void expect_case(struct gpu *gpu, struct rng *r, const struct useful_case *c)
{
    static const int32_t useful[][2] = {{0, 3}, {40, 71}, {150, 220}}, one[][2] = {{64, 65}},
                         late[][2] = {{205, 290}}, end[][2] = {{0, 1000}};
    static const struct probe_span_set sets[PROBE_SPAN_SETS] = {
        {"", 3, useful}, {"one", 1, one}, {"late", 1, late}, {"none", 0, NULL}, {"end", 1, end}};
    struct useful_scene *s = make_scene(r, c);
    struct kernels k;
    struct probe_state probe;
    kernels_init(&k, 0);
    const struct probe_config cfg = {.shape = {LAYERS, G, HEADS, 4},
                                     .cap = s->cap,
                                     .kernels = &k,
                                     .gate_column = c->gates ? "log_beta" : NULL,
                                     .evicts = c->evicts,
                                     .span_set = sets,
                                     .n_span_sets = c->spans,
                                     .plan_until = c->plan ? s->plan : NULL,
                                     .plan_heads = PLAN_HEADS,
                                     .plan_tokens = s->plan_tokens};
    cr_assert(zero(int, probe_state_open(&probe, &probe_dilution, &cfg)));
    expect_same(gpu, s, &probe);
    probe_state_close(&probe);
}

Test(useful, is_what_the_probe_makes, .timeout = 120)
{
    static const struct useful_case all[] = {
        {"a prompt", 0, 230, 9, 1, .spans = 2},
        {"a step", 0, 333, 1, 2, .spans = 5, .plan = true, .evicts = true},
        {"one entry", 3, 1, 1, 1, .spans = 1},
        {"few values, a plan", 1, 216, 11, 1, .plan = true, .evicts = true},
        {"mostly 0", 2, 211, 3, 1, .spans = 3, .evicts = true},
        {"equal, with gates", 3, 210, 5, 1, .spans = 1, .gates = true},
        {"far below the largest, with gates", 4, 300, 1, 2, .gates = true, .evicts = true},
        {"some have left", 0, 331, 7, 1, 43, 3, .plan = true, .evicts = true},
        {"some have left, a step", 1, 290, 1, 2, 99, 5, .plan = true, .evicts = true},
        {"some are evicted", 0, 229, 12, 1, .spans = 4, .leave = true, .plan = true,
         .evicts = true},
        {"some leave, with gates", 0, 207, 8, 1, 20, 2, .leave = true, .gates = true,
         .evicts = true},
        {"some are not read", 2, 250, 1, 2, 30, 3, .pages = true, .evicts = true},
        {"sums show their order", 5, 80, 1, 1, 44, 1, .evicts = true},
        {"nobody asks what was kept", 0, 250, 1, 1, 30, 1},
        {"cells of 32 bits", 0, 90, 2, 1, .evicts = true, .cap = 65535},
        {"a head of many words", 0, 8800, 1, 1, 500, 1, .evicts = true},
    };
    OWNED(device_close) struct gpu *gpu = device_open();
    struct rng r = rng_seeded(25);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        emulation_seed((unsigned long long)i);
        expect_case(gpu, &r, &all[i]);
    }
}
