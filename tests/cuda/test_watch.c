/* test_watch.c - device probe results equal their definitions bit for bit. The definitions are
 * applied to the list of entries that a query sees, in order of position. */
#include "engine/cuda/watch.h"
#include "engine/kernels/kernels_ref.h"
#include "tests/cuda/cache_of.h"

enum { HEADS = 2, PER = 2, G = HEADS * PER, D = 4, POS0 = 401 };
enum { T = 18, CAP = POS0 + T }; /* more queries than a lane processes at once */
enum { N_TOP = 3, N_TAU = 4, N_CUTS = N_TOP + N_TAU, N_SHARES = 2, N_PAIRS = 7 };
enum { LD = 320, BLOCK = 2, RING = 12 };
static const int top_k[2][N_TOP] = {{1, 8, 230}, {200, 230, 280}}; /* the latter: whole rows */
static const double tau[N_TAU] = {.5, .9, .99, 1};
static const double share[N_SHARES] = {.3, 1.00000001}; /* the second one rounds to 1 in float */
static const int visits_cut[GPU_MAX_VISITS] = {1, 5};
static const int lengths[HEADS] = {301, 131};
static const int32_t first_pair[G + 1] = {0, 3, 3, 6, 7};
static const int32_t pair_token[N_PAIRS] = {3, 200, POS0 + 2, 7, POS0, POS0 + 1, 390};

/* Probe cells of all kinds, as the kernels and the definitions fill them. */
struct all_cells {
    double sum[G * CAP];
    float max[G * CAP], lse[G * CAP], entropy[G * CAP];
    uint32_t read[G * CAP], last[N_CUTS][G * CAP], at[N_CUTS][G * CAP], first[N_CUTS][G * CAP];
    struct gpu_visits visits[G * GPU_MAX_VISITS * CAP];
    uint32_t under[N_SHARES][G * CAP], seen[G * CAP];
    float received[N_PAIRS * CAP], window[HEADS * RING * CAP];
    struct row_cut cuts[G * T * N_CUTS];
};

struct scene {
    struct cache_of k;
    float p[G * T * LD], lse[G * T], entropy[G * T];
    int32_t seen[G * T], page[HEADS];
    unsigned char chosen[G * LD];
    const int *top_k;
};

/* Returns a random weight. Kind 0 is smooth, 1 has few values (ties), 2 mostly 0, 3 all 0, 4 equal
 * values. */
static float weight(struct rng *r, int kind)
{
    float x = (float)(exp(-3 * rng_uniform(r)) / 300);
    if (kind == 1)
        x = (float)(1 + rng_below(r, 3)) / 1200;
    if (kind == 2)
        x = rng_below(r, 10) == 0 ? x : 0;
    return kind == 3 ? 0 : kind == 4 ? 1.0f / 300 : x;
}

static bool sees(const struct scene *s, int g, int r, int slot)
{
    int h = g / PER, n = lengths[h] - (T - 1 - r);
    bool read = s->page[h] == 0 || s->chosen[g * LD + slot / s->page[h]];
    return slot < n && s->k.until[h * s->k.ld_slot + slot] > POS0 + r && read;
}

/* Makes a scene with positions in random slot order except the newest. Some entries expire, and
 * some pages are not read. */
static struct scene *make_scene(struct gpu *gpu, struct rng *r, int kind)
{
    struct scene *s = NEW(struct scene, 1);
    s->k = cache_of_random(gpu, r, HEADS, lengths, D, KV_F32);
    s->page[1] = 4;
    s->top_k = top_k[kind % 2];
    for (int i = 0; i < G * LD; i++)
        s->chosen[i] = i % LD * 4 > lengths[1] - T - 4 || rng_below(r, 3) > 0;
    for (int i = 0; i < G * T * LD; i++)
        s->p[i] = weight(r, kind);
    for (int h = 0; h < HEADS; h++) {
        int32_t *pos = s->k.pos + h * s->k.ld_slot, *until = s->k.until + h * s->k.ld_slot;
        int old = lengths[h] - T;
        for (int i = 0; i < lengths[h]; i++) {
            pos[i] = i < old ? i * POS0 / old : POS0 + i - old;
            until[i] = i < old && rng_below(r, 9) == 0 ? POS0 + (int)rng_below(r, T) : INT32_MAX;
        }
        for (int i = old - 1; i > 0; i--) {
            int j = (int)rng_below(r, (uint64_t)i + 1), x = pos[i];
            pos[i] = pos[j];
            pos[j] = x;
        }
        size_t bytes = (size_t)s->k.ld_slot * sizeof *pos, at = (size_t)(h * s->k.ld_slot);
        gpu_put(gpu, s->k.c.pos + at, pos, bytes);
        gpu_put(gpu, s->k.c.until + at, until, bytes);
    }
    for (int i = 0; i < G * T; i++) {
        s->lse[i] = (float)rng_normal(r);
        s->entropy[i] = (float)rng_normal(r);
        for (int slot = 0; slot < LD; slot++)
            s->seen[i] += slot < lengths[i / T / PER] && sees(s, i / T, i % T, slot);
    }
    return s;
}

struct seen_entry {
    int32_t pos;
    float p;
};

static int by_position(const void *a, const void *b)
{
    const struct seen_entry *x = a, *y = b;
    return (x->pos > y->pos) - (x->pos < y->pos);
}

static void take_set(struct all_cells *x, int c, int g, int32_t pos, int t)
{
    int cell = g * CAP + pos, age = t - pos;
    x->last[c][cell] = (uint32_t)t;
    for (int k = 0; k < 31; k++)
        x->at[c][cell] |= age == 1 << k ? 1u << k : 0;
    x->first[c][cell] += x->first[c][cell] == (uint32_t)age;
    for (int k = 0; k < GPU_MAX_VISITS; k++) {
        struct gpu_visits *v = &x->visits[(g * GPU_MAX_VISITS + k) * CAP + pos];
        int gap = v->last < 0 ? 0 : t - v->last - 1;
        if (visits_cut[k] != c)
            continue;
        v->count[0]++;
        v->count[1] += gap > 0;
        v->count[2] = gap > v->count[2] ? gap : v->count[2];
        v->last = t;
    }
}

/* Adds query r of query head g to the cells, by definition. */
static void take_query(const struct scene *s, struct all_cells *x, int g, int r, void *scratch)
{
    struct seen_entry e[LD];
    float p[LD], most = 0;
    int n = 0, h = g / PER, t = POS0 + r, row = g * T + r, at = g * CAP + t;
    for (int i = 0; i < lengths[h]; i++)
        if (sees(s, g, r, i))
            e[n++] = (struct seen_entry){s->k.pos[h * s->k.ld_slot + i], s->p[row * LD + i]};
    qsort(e, (size_t)n, sizeof *e, by_position);
    for (int i = 0; i < n; i++) {
        p[i] = e[i].p;
        most = fmaxf(most, p[i]);
        x->sum[g * CAP + e[i].pos] += (double)p[i];
        x->max[g * CAP + e[i].pos] = fmaxf(x->max[g * CAP + e[i].pos], p[i]);
        x->read[g * CAP + e[i].pos]++;
        for (int k = first_pair[g]; k < first_pair[g + 1]; k++)
            if (pair_token[k] == e[i].pos)
                x->received[k * CAP + t] = p[i];
    }
    for (int k = 0; k < N_SHARES; k++)
        for (int i = 0; i < n; i++)
            x->under[k][at] += (double)p[i] < share[k] * (double)most;
    for (int k = first_pair[g]; k < first_pair[g + 1]; k++)
        if (pair_token[k] <= t && isnan(x->received[k * CAP + t]))
            x->received[k * CAP + t] = -1;
    x->lse[at] = s->lse[row];
    x->entropy[at] = s->entropy[row];
    x->seen[at] = (uint32_t)n;
    struct row_cut *cut = &x->cuts[row * N_CUTS];
    row_cuts_ref(p, n, s->top_k, N_TOP, tau, N_TAU, cut, scratch);
    for (int c = 0; c < N_CUTS; c++) {
        for (int i = 0; i < n; i++)
            if (row_cut_has(&cut[c], p[i], i))
                take_set(x, c, g, e[i].pos, t);
        if (cut[c].first_tie > 0)
            cut[c].first_tie = e[cut[c].first_tie].pos;
    }
}

/* Adds a query to the window cells: sums over the queries of a block of the maximum weight over the
 * query heads of a KV head. */
static void take_window(const struct scene *s, struct all_cells *x, int h, int r)
{
    int b = (POS0 + r) / BLOCK;
    float *sum = x->window + (h * RING + b % RING) * CAP;
    for (int i = 0; (POS0 + r) % BLOCK == 0 && i < CAP; i++)
        sum[i] = 0;
    for (int i = 0; i < lengths[h]; i++) {
        float most = 0;
        for (int g = h * PER; g < (h + 1) * PER; g++)
            most = sees(s, g, r, i) ? fmaxf(most, s->p[(g * T + r) * LD + i]) : most;
        sum[s->k.pos[h * s->k.ld_slot + i]] += most;
    }
}

static void begin(struct all_cells *x)
{
    for (int i = 0; i < G * GPU_MAX_VISITS * CAP; i++)
        x->visits[i].last = i % 3 - 1; /* some entries were selected before */
    for (int i = 0; i < N_PAIRS * CAP; i++)
        x->received[i] = NAN;
    for (int i = 0; i < HEADS * RING * CAP; i++)
        x->window[i] = 7;
    for (int c = 0; c < N_CUTS; c++)
        for (int i = 0; i < G * CAP; i++)
            x->first[c][i] = i % CAP < POS0 ? (uint32_t)(POS0 - i % CAP - i % 2) : 0;
}

/* Computes the cells in x (device memory) with the kernels. */
static void take_there(struct gpu *gpu, const struct scene *s, struct all_cells *x)
{
    struct gpu_seen_rows rows = {.p = device_copy(gpu, s->p, sizeof s->p),
                                 .ld = LD,
                                 .lse = device_copy(gpu, s->lse, sizeof s->lse),
                                 .entropy = device_copy(gpu, s->entropy, sizeof s->entropy),
                                 .seen = device_copy(gpu, s->seen, sizeof s->seen)};
    rows.a = (struct gpu_attention){.cache = s->k.c, .n_heads = G, .T = T, .pos0 = POS0};
    rows.a.page = device_copy(gpu, s->page, sizeof s->page);
    rows.a.chosen = device_copy(gpu, s->chosen, sizeof s->chosen);
    rows.a.ld_chosen = LD;
    struct gpu_entry_cells entries = {.cap = CAP, .n_cuts = N_CUTS, .wide = true};
    entries.sum = x->sum;
    entries.max = x->max;
    entries.read = x->read;
    entries.visits = x->visits;
    entries.n_visits = GPU_MAX_VISITS;
    for (int k = 0; k < GPU_MAX_VISITS; k++)
        entries.visits_cut[k] = visits_cut[k];
    for (int c = 0; c < N_CUTS; c++) {
        entries.last[c] = x->last[c];
        entries.at[c] = x->at[c];
        entries.first[c] = x->first[c];
    }
    int32_t *first = device_copy(gpu, first_pair, sizeof first_pair);
    int32_t *token = device_copy(gpu, pair_token, sizeof pair_token);
    struct gpu_query_cells queries = {.cap = CAP,
                                      .wide = true,
                                      .lse = x->lse,
                                      .entropy = x->entropy,
                                      .under = {x->under[0], x->under[1]},
                                      .seen = x->seen,
                                      .share = {share[0], share[1]},
                                      .n_shares = N_SHARES,
                                      .first = first,
                                      .token = token,
                                      .received = x->received};
    const struct gpu_criteria criteria = {N_TOP, N_TAU, s->top_k, tau};
    gpu_row_cuts(gpu, &rows, &criteria, x->cuts);
    gpu_watch_entries(gpu, &rows, x->cuts, &entries);
    gpu_watch_queries(gpu, &rows, &queries);
    gpu_watch_window(gpu, &rows, x->window, CAP, BLOCK, RING);
    device_check(gpu, "watch");
}

static void expect_contributions(struct gpu *gpu, const struct scene *s, const double *gram,
                                 const float *old)
{
    struct gpu_seen_rows rows = {.p = device_copy(gpu, s->p, sizeof s->p), .ld = LD};
    rows.a = (struct gpu_attention){.cache = s->k.c, .n_heads = G, .T = T, .pos0 = POS0};
    float *norm = device_copy(gpu, old, G * CAP * sizeof *old);
    float *out = device_alloc(gpu, G * T * LD, sizeof *out);
    double *there = device_copy(gpu, gram, G * D * D * sizeof *gram);
    gpu_out_norms(gpu, &rows, there, norm, CAP);
    gpu_contributions(gpu, &rows, norm, CAP, out);
    device_check(gpu, "contributions");
    float *got_norm = host_copy(gpu, norm, G * CAP * sizeof *norm);
    float *got = host_copy(gpu, out, G * T * LD * sizeof *out);
    for (int row = 0; row < G * T; row++) {
        int g = row / T, r = row % T, h = g / PER, n = lengths[h] - (T - 1 - r), power = 0;
        float want[LD], most = 0;
        double square = 0;
        for (int i = 0; i < D; i++) { /* the last entry is the query's own */
            double part = 0;
            for (int j = 0; j < D; j++)
                part += gram[(g * D + i) * D + j] * (double)cache_of_get(&s->k, h, n - 1, j, true);
            square += part * (double)cache_of_get(&s->k, h, n - 1, i, true);
        }
        float own = square > 0 ? (float)sqrt(square) : 0;
        cr_expect(eq(flt, got_norm[g * CAP + POS0 + r], own));
        for (int i = 0; i < n; i++) {
            int32_t pos = s->k.pos[h * s->k.ld_slot + i];
            bool seen = s->k.until[h * s->k.ld_slot + i] > POS0 + r;
            want[i] = seen ? s->p[row * LD + i] * got_norm[g * CAP + pos] : 0;
            most = fmaxf(most, want[i]);
        }
        frexpf(most, &power);
        for (int i = 0; i < n; i++)
            want[i] = most > 1 ? ldexpf(want[i], -power) : want[i];
        cr_expect(zero(int, memcmp(got + row * LD, want, (size_t)n * sizeof *want)), "%d", row);
    }
}

/* Norms of older entries are kept. Large norms are scaled down. */
Test(cuda, contributions_are_as_defined, .timeout = 60)
{
    OWNED(device_close) struct gpu *gpu = device_open();
    struct rng r = rng_seeded(22);
    for (int kind = 0; kind < 2; kind++) {
        struct scene *s = make_scene(gpu, &r, kind);
        double gram[G * D * D];
        float old[G * CAP];
        for (int i = 0; i < G * D * D; i++)
            gram[i] = rng_normal(&r) * (kind ? 1e6 : 1);
        for (int i = 0; i < G * CAP; i++)
            old[i] = (float)rng_uniform(&r) * (kind ? 900.0f : 1.0f);
        emulation_seed((unsigned long long)kind);
        expect_contributions(gpu, s, gram, old);
    }
}

/* A case with rows longer than one pass of counting and gathering. */
struct long_case {
    const char *what;
    int n, kind; /* kind of weights */
    int top[N_TOP];
    bool leave; /* every fifth entry has expired; positions fall with slots but in the last */
};

/* Returns a weight. Kind 5 has close values, 6 values from 2^-9 to far below a unit of mass, 7 all
 * but the first in one bin, 8 all mass in one entry. */
static float long_weight(struct rng *r, int kind, int i, int n)
{
    if (kind == 5)
        return (float)((1 + 0.01 * rng_uniform(r)) / 16384);
    if (kind == 6)
        return (float)exp2(-9 - 61 * rng_uniform(r));
    if (kind == 7)
        return i == 0 ? .25f : (float)ldexp(1.03 + 0.001 * rng_uniform(r), -16);
    if (kind == 8)
        return i == 3 ? 1 : 0;
    return weight(r, kind) * 300 / (float)n;
}

/* Maps a slot to its position, and a position to its slot. */
static int other_of(const struct long_case *c, int i)
{
    return c->leave && i < c->n - 1 ? c->n - 2 - i : i;
}

/* Computes the sets of a row by definition, over the entries that it sees. */
static void right_cuts(const struct long_case *c, const float *p, struct row_cut want[N_CUTS])
{
    float *seen = NEW(float, (size_t)c->n);
    int *pos = NEW(int, (size_t)c->n), n = 0;
    for (int i = 0; i < c->n; i++)
        if (!c->leave || other_of(c, i) % 5 > 0) {
            pos[n] = i;
            seen[n++] = p[other_of(c, i)];
        }
    void *scratch = host_alloc(row_cuts_scratch(n), 1);
    row_cuts_ref(seen, n, c->top, N_TOP, tau, N_TAU, want, scratch);
    for (int i = 0; i < N_CUTS; i++)
        if (want[i].first_tie > 0)
            want[i].first_tie = pos[want[i].first_tie];
}

static void expect_long(struct gpu *gpu, struct rng *r, const struct long_case *c)
{
    int n = c->n, ld = (n + PAGE_SLOTS - 1) / PAGE_SLOTS * PAGE_SLOTS;
    float *p = NEW(float, (size_t)ld);
    int32_t length = n, *until = NEW(int32_t, (size_t)ld), *pos = NEW(int32_t, (size_t)ld);
    for (int i = 0; i < n; i++) {
        p[i] = long_weight(r, c->kind, i, n);
        until[i] = i % 5 ? INT32_MAX : n - 1;
        pos[i] = other_of(c, i);
    }
    struct gpu_seen_rows rows = {.p = device_copy(gpu, p, (size_t)ld * sizeof *p),
                                 .ld = (size_t)ld};
    int32_t *there = device_copy(gpu, &length, sizeof length);
    rows.a = (struct gpu_attention){.n_heads = 1, .T = 1, .pos0 = n - 1};
    rows.a.cache = (struct gpu_cache){.heads = 1, .n = there, .most = n};
    if (c->leave) {
        rows.a.cache.until = device_copy(gpu, until, (size_t)ld * sizeof *until);
        rows.a.cache.pos = device_copy(gpu, pos, (size_t)ld * sizeof *pos);
    }
    struct row_cut want[N_CUTS], *cuts = device_alloc(gpu, N_CUTS, sizeof *cuts);
    const struct gpu_criteria criteria = {N_TOP, N_TAU, c->top, tau};
    gpu_row_cuts(gpu, &rows, &criteria, cuts);
    device_check(gpu, c->what);
    struct row_cut *got = host_copy(gpu, cuts, sizeof want);
    right_cuts(c, p, want);
    for (int i = 0; i < N_CUTS; i++)
        cr_expect(zero(int, memcmp(&got[i], &want[i], sizeof want[i])),
                  "%s, cut %d: %.9g, from %d, %d members; right is %.9g, from %d, %d", c->what, i,
                  (double)got[i].threshold, got[i].first_tie, got[i].count,
                  (double)want[i].threshold, want[i].first_tie, want[i].count);
}

Test(cuda, cuts_of_rows_of_any_length, .timeout = 120)
{
    static const struct long_case all[] = {
        {"one entry", 1, 0, {1, 8, 230}},
        {"a lane more than a block", 2049, 0, {1, 512, 2048}},
        {"smooth", 20011, 0, {64, 512, 20010}},
        {"few values", 8200, 1, {64, 512, 8000}},
        {"mostly none", 20000, 2, {64, 512, 12000}},
        {"near each other", 16385, 5, {1, 512, 16000}},
        {"of all sizes", 16384, 6, {64, 9000, 16300}},
        {"all in one entry", 100, 8, {1, 2, 99}},
        {"all in one bin", 36000, 7, {1, 2, 9000}},
        {"few values, of which some have left", 2100, 1, {64, 512, 1600}, true},
        {"more equals than are gathered", 10400, 4, {64, 512, 8000}, true},
    };
    OWNED(device_close) struct gpu *gpu = device_open();
    struct rng r = rng_seeded(23);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        emulation_seed((unsigned long long)i);
        expect_long(gpu, &r, &all[i]);
    }
}

/* More queries than a block processes at once: an entry keeps the newest query that selected it. */
enum { MANY = 141, MARKED = 171, MARKS_LD = 192, MARKS_CAP = 1000 };
struct marks_case {
    int kind; /* kind of weights */
    bool moved, leave, pages, wide;
    int n_cuts;
};

/* Host arrays of a case. */
struct marks_scene {
    const struct marks_case *c;
    float *p; /* [PER][MANY][MARKS_LD] */
    int32_t pos[MARKS_LD], until[MARKS_LD];
    unsigned char chosen[PER * MARKS_LD];
};
enum { MARKS_PAGE = 8, MARKS_OLD = MARKED - MANY };

static struct marks_scene make_marks(struct rng *r, const struct marks_case *c)
{
    struct marks_scene s = {.c = c, .p = NEW(float, PER *MANY *MARKS_LD)};
    for (int i = 0; i < PER * MANY * MARKS_LD; i++)
        s.p[i] = weight(r, c->kind);
    for (int i = 0; i < MARKS_LD; i++) {
        s.pos[i] = c->moved && i < MARKS_OLD ? MARKS_OLD - 1 - i : i;
        s.until[i] = rng_below(r, 5) == 0 ? (int)rng_below(r, MARKED) : INT32_MAX;
    }
    for (int i = 0; i < PER * MARKS_LD; i++)
        s.chosen[i] = rng_below(r, 3) > 0;
    return s;
}

/* Computes the marks of set k by definition. */
static void right_marks(const struct marks_scene *s, const struct row_cut *cut, int k,
                        uint32_t want[PER * MARKS_CAP])
{
    for (int i = 0; i < PER * MANY * MARKED; i++) {
        int g = i / MARKED / MANY, q = i / MARKED % MANY, slot = i % MARKED, t = MARKS_OLD + q;
        bool seen = slot <= t && (!s->c->leave || s->until[slot] > t)
                    && (!s->c->pages || s->chosen[g * MARKS_LD + slot / MARKS_PAGE]);
        float p = s->p[(g * MANY + q) * MARKS_LD + slot];
        if (seen && row_cut_has(&cut[(g * MANY + q) * s->c->n_cuts + k], p, s->pos[slot]))
            want[g * MARKS_CAP + s->pos[slot]] = (uint32_t)t;
    }
}

static struct gpu_seen_rows marks_rows(struct gpu *gpu, const struct marks_scene *s)
{
    static const int32_t n = MARKED, page = MARKS_PAGE;
    struct gpu_seen_rows rows = {.p = device_copy(gpu, s->p, PER * MANY * MARKS_LD * sizeof *s->p),
                                 .ld = MARKS_LD};
    rows.a = (struct gpu_attention){.n_heads = PER, .T = MANY, .pos0 = MARKS_OLD};
    rows.a.cache = (struct gpu_cache){.heads = 1, .most = MARKED, .ld_slot = MARKS_LD};
    rows.a.cache.n = device_copy(gpu, &n, sizeof n);
    rows.a.cache.pos = s->c->moved ? device_copy(gpu, s->pos, sizeof s->pos) : NULL;
    rows.a.cache.until = s->c->leave ? device_copy(gpu, s->until, sizeof s->until) : NULL;
    rows.a.page = s->c->pages ? device_copy(gpu, &page, sizeof page) : NULL;
    rows.a.chosen = device_copy(gpu, s->chosen, sizeof s->chosen);
    rows.a.ld_chosen = MARKS_LD;
    return rows;
}

static void expect_marks(struct gpu *gpu, struct rng *r, const struct marks_case *c)
{
    static const int top[] = {1, 8, 40, 170};
    struct marks_scene s = make_marks(r, c);
    struct gpu_seen_rows rows = marks_rows(gpu, &s);
    const struct gpu_criteria criteria = {4, c->n_cuts - 4, top, tau};
    size_t n_cuts = (size_t)(PER * MANY * c->n_cuts), bytes = PER * MARKS_CAP * (c->wide ? 4 : 2);
    struct row_cut *cuts = device_alloc(gpu, n_cuts, sizeof *cuts);
    struct gpu_entry_cells cells = {.cap = MARKS_CAP, .n_cuts = c->n_cuts, .wide = c->wide};
    unsigned char *none = NEW(unsigned char, bytes);
    for (int k = 0; k < c->n_cuts; k++)
        cells.last[k] = k == 2 ? NULL : device_copy(gpu, none, bytes);
    gpu_row_cuts(gpu, &rows, &criteria, cuts);
    gpu_watch_entries(gpu, &rows, cuts, &cells);
    device_check(gpu, "marks");
    struct row_cut *cut = host_copy(gpu, cuts, n_cuts * sizeof *cut);
    for (int k = 0; k < c->n_cuts; k++) {
        uint32_t want[PER * MARKS_CAP] = {0};
        int wrong = 0;
        if (!cells.last[k])
            continue;
        right_marks(&s, cut, k, want);
        void *got = host_copy(gpu, cells.last[k], bytes);
        for (int i = 0; i < PER * MARKS_CAP; i++)
            wrong += (c->wide ? ((uint32_t *)got)[i] : ((uint16_t *)got)[i]) != want[i];
        cr_expect(zero(int, wrong), "kind %d, cut %d", c->kind, k);
    }
}

Test(cuda, marks_of_many_queries, .timeout = 120)
{
    static const struct marks_case all[] = {
        {0, false, false, false, false, 7}, {1, true, false, false, true, 8},
        {1, false, true, false, false, 5},  {0, false, false, true, true, 7},
        {2, true, true, true, false, 8},
    };
    OWNED(device_close) struct gpu *gpu = device_open();
    struct rng r = rng_seeded(24);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        emulation_seed((unsigned long long)i);
        expect_marks(gpu, &r, &all[i]);
    }
}

#define SAME(member)                                                                               \
    cr_expect(zero(int, memcmp(got->member, want->member, sizeof want->member)), "kind %d: %s",    \
              kind, #member)

Test(cuda, rows_are_watched_as_defined, .timeout = 120)
{
    OWNED(device_close) struct gpu *gpu = device_open();
    void *scratch = host_alloc(row_cuts_scratch(LD), 1);
    struct rng r = rng_seeded(21);
    for (int kind = 0; kind < 5; kind++) {
        struct scene *s = make_scene(gpu, &r, kind);
        struct all_cells *want = NEW(struct all_cells, 1);
        begin(want);
        struct all_cells *there = device_copy(gpu, want, sizeof *want);
        emulation_seed((unsigned long long)kind);
        take_there(gpu, s, there);
        for (int row = 0; row < T; row++) {
            for (int g = 0; g < G; g++)
                take_query(s, want, g, row, scratch);
            for (int h = 0; h < HEADS; h++)
                take_window(s, want, h, row);
        }
        struct all_cells *got = host_copy(gpu, there, sizeof *want);
        SAME(cuts);
        SAME(sum);
        SAME(max);
        SAME(lse);
        SAME(entropy);
        SAME(read);
        SAME(last);
        SAME(at);
        SAME(first);
        SAME(visits);
        SAME(under);
        SAME(seen);
        SAME(received);
        SAME(window);
    }
}
