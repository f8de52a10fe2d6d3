/* test_scores.c - evidence that steps collect about entries, and scores computed from it, compared
 * with plain sums in double precision. */
#include "tests/cuda/heads_of.h"

/* ---- scores: entry by entry, as defined in methods.md */

static struct gpu_window window_of(struct bed *b, const int32_t *row_t, int newest, int held)
{
    return (struct gpu_window){.rows = b->h.column[1].data,
                               .row_t = device_copy(b->g, row_t, RING * 4),
                               .row_n = device_alloc(b->g, HEADS * ROWS, 4),
                               .row_lse = device_alloc(b->g, HEADS * ROWS, 4),
                               .ring = RING,
                               .newest = newest,
                               .held = held};
}

/* Returns the weight of slot i for query head j of head h in a row. */
static float weight(const struct bed *b, const int32_t *row_t, int h, int j, int row, int i)
{
    size_t at = (size_t)((h * PER + j) * RING + row) * (size_t)b->ld + (size_t)i;
    return b->k.pos[h * b->ld + i] <= row_t[row] ? b->rows[at] : 0;
}

enum { SINKS = 4, RECENT_FROM = 180, HELD = 4, NEWEST = 1 };
static const int32_t row_times[RING] = {290, 300, 170, 270, 280}; /* the row at 2 is too old */

/* Returns the aggregate weight of slot i over the window and a head's query heads. share: each row
 * is normalised to sum 1 over the candidates. */
static double window_score(const struct bed *b, int h0, int heads, int h, int i, bool max,
                           bool mean, bool most, bool share)
{
    double out = 0;
    for (int age = HELD - 1; age >= 0; age--) {
        int row = (NEWEST - age + RING) % RING;
        double v = 0;
        for (int j = 0; j < heads * PER; j++) {
            double all = 0, p = (double)weight(b, row_times, h0 + j / PER, j % PER, row, i);
            const int32_t *pos = b->k.pos + h * b->ld;
            for (int s = 0; s < b->n[h] && share; s++)
                if (pos[s] >= SINKS && pos[s] < RECENT_FROM)
                    all += (double)weight(b, row_times, h0 + j / PER, j % PER, row, s);
            p = share ? (all > 0 ? p / all : 0) : p;
            v = max ? fmax(v, p) : v + p;
        }
        out = most ? fmax(out, v) : out + v;
    }
    out /= mean ? heads * PER : 1;
    return most ? out : out / HELD;
}

static void expect_scores(struct bed *b, const float *d_out, int together, const char *what,
                          bool max, bool mean, bool most, bool share)
{
    float *out = host_copy(b->g, d_out, (size_t)(HEADS * b->ld) * 4);
    for (int h = 0; h < HEADS; h += together)
        for (int i = 0; i < b->n[h]; i++) {
            double want = window_score(b, h, together, h, i, max, mean, most, share);
            cr_expect(epsilon_eq(dbl, (double)out[h * b->ld + i], want, 2e-6 * (1 + want)),
                      "%s, head %d, slot %d", what, h, i);
        }
    device_check(b->g, what);
}

Test(heads, windows_are_summed_pooled_and_shared)
{
    static const int n[HEADS] = {130, 130, 130, 130};
    static const unsigned char due[HEADS] = {1, 1, 1, 1};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(33);
    struct bed b = bed_of(g, &r, n, KV_F32);
    for (int h = 1; h < HEADS; h++) /* heads that decide together have the same entries */
        memcpy(b.k.pos + h * b.ld, b.k.pos, (size_t)b.ld * 4);
    gpu_put(g, b.k.c.pos, b.k.pos, (size_t)(HEADS * b.ld) * 4);
    struct gpu_window w = window_of(&b, row_times, NEWEST, HELD);
    unsigned char *d_due = device_copy(g, due, sizeof due);
    size_t all = (size_t)(HEADS * b.ld);
    float *out = device_alloc(g, all, 4), *share = device_alloc(g, HEADS * ROWS, 4);
    for (int i = 0; i < 16; i++) {
        bool layer = i & 1, max = i & 2, mean = i & 4, most = i & 8;
        int together = layer ? 2 : 1;
        struct gpu_group x = {PER, 2, layer, max, mean && !max};
        emulation_seed((unsigned long long)i);
        if (!most) {
            gpu_score_window(g, &b.h, d_due, &x, &w, 0x1.8p7, out);
            expect_scores(&b, out, together, "sums", max, x.mean, false, false);
        }
        gpu_score_rows(g, &b.h, d_due, &x, &w, most, SINKS, RECENT_FROM, NULL, out);
        expect_scores(&b, out, together, "rows", max, x.mean, most, false);
        gpu_score_rows(g, &b.h, d_due, &x, &w, most, SINKS, RECENT_FROM, share, out);
        expect_scores(&b, out, together, "shares", max, x.mean, most, true);
    }
}

/* Returns minus the number of rows in which the slot got less than a uniform share of the
 * weight. */
static double below_even(const struct bed *b, const int32_t *seen, int h, int i)
{
    int count = 0;
    for (int age = 0; age < HELD; age++) {
        int row = (NEWEST - age + RING) % RING;
        float sum = weight(b, row_times, h, 0, row, i) + weight(b, row_times, h, 1, row, i);
        float even = (float)PER / (float)seen[(h * PER + PER - 1) * RING + row];
        count += b->k.pos[h * b->ld + i] <= row_times[row] && sum < even;
    }
    return -count;
}

/* Returns the sum over query heads of the mean weight of slot i plus gamma times its variance, over
 * the rows of the window. */
static double spread(const struct bed *b, double gamma, int h, int i)
{
    double all = 0;
    for (int j = 0; j < PER; j++) {
        double mean = 0, var = 0;
        for (int age = 0; age < HELD; age++)
            mean += (double)weight(b, row_times, h, j, (NEWEST - age + RING) % RING, i) / HELD;
        for (int age = 0; age < HELD; age++)
            var += pow((double)weight(b, row_times, h, j, (NEWEST - age + RING) % RING, i) - mean,
                       2);
        all += mean + gamma * var / (HELD - 1);
    }
    return all;
}

/* Returns the mean over the window of the maximum over query heads of p exp(lse). Each row is
 * normalised to sum 1 over the candidates. */
static double largest_logits(const struct bed *b, const float *lse, int h, int i)
{
    double out = 0;
    for (int age = 0; age < HELD; age++) {
        int row = (NEWEST - age + RING) % RING;
        double all = 0, own = 0;
        for (int s = 0; s < b->n[h]; s++) {
            double most = 0;
            int32_t pos = b->k.pos[h * b->ld + s];
            for (int j = 0; j < PER; j++)
                most = fmax(most, (double)weight(b, row_times, h, j, row, s)
                                      * exp((double)lse[(h * PER + j) * RING + row]));
            own = s == i ? most : own;
            all += pos >= SINKS && pos < RECENT_FROM ? most : 0;
        }
        out += own / all / HELD;
    }
    return out;
}

struct spreads {
    float *below, *spread, *logits;
};

static struct spreads score_rows(struct bed *b, const struct gpu_window *w, double gamma)
{
    static const unsigned char due[HEADS] = {1, 1, 1, 1};
    const struct gpu_group x = {PER, 2, false, false, false, false},
                           most = {PER, 2, false, false, false, true};
    size_t bytes = (size_t)(HEADS * b->ld) * 4;
    unsigned char *d_due = device_copy(b->g, due, sizeof due);
    float *out = device_alloc(b->g, bytes, 1), *share = device_alloc(b->g, HEADS * ROWS, 4);
    struct spreads s;
    gpu_score_below(b->g, &b->h, d_due, &x, w, out);
    s.below = host_copy(b->g, out, bytes);
    gpu_score_spread(b->g, &b->h, d_due, &x, w, gamma, out);
    gpu_score_divide(b->g, &b->h, d_due, PER, out);
    s.spread = host_copy(b->g, out, bytes);
    gpu_score_rows(b->g, &b->h, d_due, &most, w, false, SINKS, RECENT_FROM, share, out);
    s.logits = host_copy(b->g, out, bytes);
    device_check(b->g, "rows");
    return s;
}

Test(heads, rows_are_counted_spread_and_compared)
{
    static const int n[HEADS] = {130, 90, 64, 3};
    enum { QUERY_ROWS = HEADS * ROWS };
    int32_t seen[QUERY_ROWS];
    float lse[QUERY_ROWS];
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(38);
    struct bed b = bed_of(g, &r, n, KV_F32);
    struct gpu_window w = window_of(&b, row_times, NEWEST, HELD);
    for (int i = 0; i < QUERY_ROWS; i++) {
        seen[i] = 2 + (int)rng_below(&r, 5);
        lse[i] = (float)rng_normal(&r);
    }
    gpu_put(g, w.row_n, seen, sizeof seen);
    gpu_put(g, w.row_lse, lse, sizeof lse);
    struct spreads got = score_rows(&b, &w, 3.5);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < n[h]; i++) {
            size_t at = (size_t)(h * b.ld + i);
            double want = spread(&b, 3.5, h, i) / PER, logits = largest_logits(&b, lse, h, i);
            cr_expect(eq(dbl, (double)got.below[at], below_even(&b, seen, h, i)));
            cr_expect(epsilon_eq(dbl, (double)got.spread[at], want, 1e-6 * (1 + want)));
            cr_expect(epsilon_eq(dbl, (double)got.logits[at], logits, 1e-5 * (1 + logits)));
        }
}

/* Checks the pooled scores: candidates in order of time, pooled over the neighbours that exist. */
static void expect_pooled(const struct bed *b, const float *got, int h, int width, bool max)
{
    const int32_t *order = b->order + h * b->ld, *pos = b->k.pos + h * b->ld;
    const float *x = b->number + h * b->ld;
    int first = 0, m = 0, half = width / 2;
    for (int i = 0; i < b->n[h]; i++) {
        first += pos[i] < SINKS;
        m += pos[i] >= SINKS && pos[i] < RECENT_FROM;
    }
    for (int i = 0; i < b->n[h]; i++) {
        int s = order[i], at = i - first;
        double want = (double)x[s], sum = 0, most = -1e30;
        for (int j = at - half; j <= at + half; j++)
            if (j >= 0 && j < m) {
                sum += (double)x[order[first + j]];
                most = fmax(most, (double)x[order[first + j]]);
            }
        if (at >= 0 && at < m)
            want = max ? most : sum / width;
        cr_expect(epsilon_eq(dbl, (double)got[h * b->ld + s], want, 1e-6), "head %d, slot %d", h,
                  s);
    }
}

Test(heads, neighbours_in_time_are_pooled)
{
    static const int n[HEADS] = {130, 1, 64, 3};
    static const unsigned char due[HEADS] = {1, 1, 1, 1};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(34);
    struct bed b = bed_of(g, &r, n, KV_F32);
    unsigned char *d_due = device_copy(g, due, sizeof due);
    size_t all = (size_t)(HEADS * b.ld);
    float *copy = device_alloc(g, all, 4);
    for (int width = 3; width < 9; width += 2)
        for (int max = 0; max < 2; max++) {
            float *out = device_copy(g, b.number, all * 4);
            emulation_seed((unsigned long long)width);
            gpu_pool(g, &b.h, d_due, width, max, SINKS, RECENT_FROM, copy, out);
            float *got = host_copy(g, out, all * 4);
            for (int h = 0; h < HEADS; h++)
                expect_pooled(&b, got, h, width, max);
            device_check(g, "pool");
        }
}

/* Returns the log of the sum over k < N of beta^(age + k), term by term. */
static double retention(double log_beta, int age, int N)
{
    double sum = 0;
    for (int k = 0; k < N; k++)
        sum += exp(log_beta * (age + k));
    return log(sum);
}

Test(heads, retention_and_positions)
{
    static const int n[HEADS] = {130, 1, 64, 3};
    static const unsigned char due[HEADS] = {1, 0, 1, 1};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(35);
    struct bed b = bed_of(g, &r, n, KV_F32);
    size_t all = (size_t)(HEADS * b.ld);
    for (size_t i = 0; i < all; i++)
        b.number[i] = i % 9 == 0 ? 0 : (float)(-0.4 * rng_uniform(&r));
    gpu_put(g, b.h.column[2].data, b.number, all * 4);
    unsigned char *d_due = device_copy(g, due, sizeof due);
    float *out = device_alloc(g, all, 4), *positions = device_alloc(g, all, 4);
    gpu_zero(g, out, all * 4);
    for (int N = 1; N < 4; N++) {
        gpu_score_retention(g, &b.h, d_due, b.h.column[2].data, 400, N, out);
        gpu_score_position(g, &b.h, d_due, positions);
        float *got = host_copy(g, out, all * 4), *at = host_copy(g, positions, all * 4);
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < n[h]; i++) {
                size_t s = (size_t)(h * b.ld + i);
                double want = due[h] ? retention((double)b.number[s], 400 - b.k.pos[s], N) : 0;
                cr_expect(epsilon_eq(dbl, (double)got[s], want, 1e-5 * (1 + fabs(want))));
                if (due[h])
                    cr_expect(eq(flt, at[s], (float)b.k.pos[s]));
            }
        device_check(g, "retention");
    }
}

/* ---- evidence: keys of new and of evicted entries */

static void unit_key(const struct bed *b, int h, int s, double *unit, double *norm)
{
    double square = 0;
    for (int d = 0; d < D; d++)
        square += pow((double)cache_of_get(&b->k, h, s, d, false), 2);
    *norm = sqrt(square);
    for (int d = 0; d < D; d++)
        unit[d] = (double)cache_of_get(&b->k, h, s, d, false) / *norm;
}

struct keys {
    double *anchor;
    float *norms, *diff;
};

/* Measures each slot once as the slot of a new entry, then evicts three entries. */
static struct keys measure(struct bed *b, const int *n)
{
    static const double zeros[HEADS * D];
    static const unsigned char due[HEADS] = {1, 1, 1, 1};
    size_t all = (size_t)(HEADS * b->ld);
    double *anchor = device_copy(b->g, zeros, sizeof zeros);
    float *norms = device_copy(b->g, b->number, all * 4), *out = device_alloc(b->g, all, 4);
    unsigned char *d_due = device_copy(b->g, due, sizeof due);
    for (int s = 0; s < 70; s++) {
        int32_t slot[HEADS];
        for (int h = 0; h < HEADS; h++)
            slot[h] = s < n[h] ? s : n[h] - 1;
        gpu_put(b->g, b->h.slot, slot, sizeof slot);
        for (int h = 0; h < HEADS; h++)
            if (s < n[h])
                gpu_take_keys(b->g, &b->h, h, 1, norms, anchor);
    }
    memset(b->mark, 0, all);
    b->mark[2 * b->ld + 5] = b->mark[2 * b->ld + 60] = b->mark[0] = GPU_GONE;
    b->mark[2 * b->ld + 7] = GPU_CANDIDATE; /* not evicted */
    gpu_put(b->g, b->h.mark, b->mark, all);
    gpu_drop_keys(b->g, &b->h, 1, anchor);
    gpu_score_keydiff(b->g, &b->h, d_due, norms, anchor, out);
    struct keys k = {host_copy(b->g, anchor, sizeof zeros), host_copy(b->g, norms, all * 4),
                     host_copy(b->g, out, all * 4)};
    device_check(b->g, "keys");
    return k;
}

static void expect_keys(const struct bed *b, const struct keys *k, int h, int n)
{
    double want[D] = {0}, unit[D], norm, length = 0;
    for (int s = 0; s < n; s++) {
        unit_key(b, h, s, unit, &norm);
        cr_expect(epsilon_eq(dbl, (double)k->norms[h * b->ld + s], norm, 1e-5));
        for (int d = 0; d < D && b->mark[h * b->ld + s] != GPU_GONE; d++)
            want[d] += unit[d];
    }
    for (int d = 0; d < D; d++) {
        cr_expect(epsilon_eq(dbl, k->anchor[h * D + d], want[d], 1e-5));
        length += want[d] * want[d];
    }
    for (int s = 0; s < n; s++) {
        double dot = 0;
        unit_key(b, h, s, unit, &norm);
        for (int d = 0; d < D; d++)
            dot += unit[d] * want[d] / sqrt(length);
        cr_expect(epsilon_eq(dbl, (double)k->diff[h * b->ld + s], -dot, 1e-4));
    }
}

Test(heads, keys_are_measured_and_counted)
{
    static const int n[HEADS] = {70, 1, 64, 3};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(36);
    for (int type = KV_F32; type <= KV_F16; type++) {
        struct bed b = bed_of(g, &r, n, (enum kv_type)type);
        struct keys k = measure(&b, n);
        for (int h = 0; h < HEADS; h++)
            expect_keys(&b, &k, h, n[h]);
    }
}

/* ---- evidence: rows of attention */

static void expect_received(const struct bed *b, const int *n)
{
    static const unsigned char due[HEADS] = {1, 1, 1, 1};
    size_t all = (size_t)(HEADS * b->ld);
    unsigned char *d_due = device_copy(b->g, due, sizeof due);
    float *out = device_alloc(b->g, all, 4);
    for (int i = 0; i < 3; i++) {
        struct gpu_group x = {PER, 2, false, i == 1, i == 2};
        gpu_score_received(b->g, &b->h, d_due, &x, b->h.column[0].data, out);
        float *got = host_copy(b->g, out, all * 4);
        for (int h = 0; h < HEADS; h++)
            for (int s = 0; s < n[h]; s++) {
                const double *sum = b->sum + (size_t)(h * PER * b->ld + s);
                double want = i == 1 ? fmax(sum[0], sum[b->ld]) : sum[0] + sum[b->ld];
                cr_expect(eq(flt, got[h * b->ld + s], (float)(i == 2 ? want / PER : want)));
            }
    }
}

/* A sequence from which rows are taken: its heads with sums and windows, their initial values, and
 * the new rows of the query heads of heads 1 and 2. */
enum { TAKEN_LD = 320, Q0 = PER, N_Q = 2 * PER };
struct taken_bed {
    struct bed b;
    struct gpu_taken in;
    double *sum;
    float *rows, p[N_Q * TAKEN_LD], lse[N_Q];
    int32_t seen[N_Q], now[2];
};

/* Every third sequence has heads longer than the lanes of a block. Some sequences have no sums,
 * others no window. */
static void taken_begin(struct taken_bed *x, struct gpu *g, struct rng *r, int i)
{
    static const int n[][HEADS] = {{70, 1, 64, 3}, {5, 300, 2, 259}, {1, 9, 65, 2}};
    x->b = bed_of(g, r, n[i % 3], KV_F32);
    size_t all = (size_t)(HEADS * x->b.ld);
    x->sum = host_alloc(all * PER, 8);
    x->rows = host_alloc(all * ROWS, 4);
    memcpy(x->sum, x->b.sum, all * PER * 8);
    memcpy(x->rows, x->b.rows, all * ROWS * 4);
    x->now[0] = 333 + i;
    x->now[1] = (3 + i) % RING;
    for (int k = 0; k < N_Q * TAKEN_LD; k++)
        x->p[k] = (float)rng_uniform(r);
    for (int k = 0; k < N_Q; k++) {
        x->lse[k] = (float)(10 * i + k) + 0.5f;
        x->seen[k] = 60 * i + k;
    }
    struct gpu_window none = {NULL};
    x->in = (struct gpu_taken){.p = device_copy(g, x->p, sizeof x->p),
                               .ld = TAKEN_LD,
                               .lse = device_copy(g, x->lse, sizeof x->lse),
                               .seen = device_copy(g, x->seen, sizeof x->seen),
                               .n = x->b.h.n,
                               .most = x->b.k.c.most,
                               .ld_slot = x->b.ld,
                               .now = device_copy(g, x->now, sizeof x->now),
                               .sum = i == 3 ? NULL : x->b.h.column[0].data,
                               .window = i == 4 ? none : window_of(&x->b, row_times, 3, HELD)};
}

/* Checks slot i of query head q: its sum, and its weights in the rows of the window. */
static void expect_slot(const struct taken_bed *x, int q, int i)
{
    bool takes = q >= Q0 && q < Q0 + N_Q;
    float weight = takes ? x->p[(q - Q0) * TAKEN_LD + i] : 0;
    size_t at = (size_t)(q * x->b.ld + i);
    cr_expect(eq(dbl, x->b.sum[at], x->sum[at] + (x->in.sum ? (double)weight : 0)),
              "query head %d, slot %d", q, i);
    for (int w = 0; w < RING; w++) {
        size_t of_row = (size_t)((q * RING + w) * x->b.ld + i);
        bool own = takes && x->in.window.rows && w == x->now[1];
        cr_expect(eq(flt, x->b.rows[of_row], own ? weight : x->rows[of_row]),
                  "query head %d, slot %d of row %d", q, i, w);
    }
}

static void expect_taken(struct taken_bed *x)
{
    const struct gpu_window *w = &x->in.window;
    bed_fetch(&x->b);
    for (int q = 0; q < HEADS * PER; q++)
        for (int i = 0; i < x->b.n[q / PER]; i++)
            expect_slot(x, q, i);
    if (!w->rows)
        return;
    int32_t *row_t = host_copy(x->b.g, w->row_t, RING * 4),
            *row_n = host_copy(x->b.g, w->row_n, HEADS * ROWS * 4);
    float *row_lse = host_copy(x->b.g, w->row_lse, HEADS * ROWS * 4);
    for (int i = 0; i < RING; i++)
        cr_expect(eq(int, row_t[i], i == x->now[1] ? x->now[0] : row_times[i]));
    for (int i = 0; i < N_Q; i++) {
        cr_expect(eq(int, row_n[(Q0 + i) * RING + x->now[1]], x->seen[i]));
        cr_expect(eq(flt, row_lse[(Q0 + i) * RING + x->now[1]], x->lse[i]));
    }
}

Test(heads, rows_are_taken_and_received)
{
    static const int n_of[] = {1, 2, GPU_TOGETHER};
    static struct taken_bed x[GPU_TOGETHER];
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(37);
    for (int k = 0; k < 3; k++) {
        struct gpu_taken in[GPU_TOGETHER];
        for (int i = 0; i < n_of[k]; i++) {
            taken_begin(&x[i], g, &r, i);
            in[i] = x[i].in;
        }
        gpu_accumulate_rows(g, in, n_of[k], PER, Q0, N_Q);
        for (int i = 0; i < n_of[k]; i++)
            expect_taken(&x[i]);
        expect_received(&x->b, x->b.n);
        device_check(g, "rows");
    }
}
