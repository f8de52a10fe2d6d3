/* an_runs.c - whether the cached entries of a head are in blocks or scattered: how many runs of
 * neighbours they form, against a random choice of as many (Wald and Wolfowitz 1940). */
#include <math.h>
#include <stdio.h>

#include "analyzers/frame.h"

struct options {
    const char *step;
};

/* Of each head, then of all: counts, then values derived from them. */
enum { TOKENS, KEPT, RUNS, ALONE, LONGEST, CHANGES, COUNTS };
enum { MEAN_RUN, EXPECTED_RUNS, CLUSTERING, EXPECTED_CHANGES, Z, REALS };

struct row {
    struct row_head of;
    int64_t count[COUNTS];
    double real[REALS];
};

struct data {
    int64_t step;
    int64_t undefined; /* heads without z */
};

struct scratch {   /* of one thread */
    double *evict; /* [T] of the head at hand */
};

static void count_head(const struct frame *f, int64_t step, const double *evict, int64_t *count)
{
    int64_t run = 0, end = step < f->b ? step + 1 : f->b;
    for (int64_t i = f->a; i <= end && end > f->a; i++) {
        bool kept = i < end && evict[i] > (double)step;
        if (i < end) {
            count[TOKENS]++;
            count[KEPT] += kept;
            count[CHANGES] += i == f->a || kept != (run > 0);
        }
        if (kept) {
            run++;
            continue;
        }
        count[RUNS] += run > 0;
        count[ALONE] += run == 1;
        if (run > count[LONGEST])
            count[LONGEST] = run;
        run = 0;
    }
}

/* k of n places chosen at random: k (n - k + 1) / n runs of them are expected, and of both kinds
 * together 1 + 2 k (n - k) / n, with the variance 2 k (n - k) (2 k (n - k) - n) / (n^2 (n - 1)). */
static void expect(const int64_t *count, double *real)
{
    double n = (double)count[TOKENS], k = (double)count[KEPT];
    double runs = (double)count[RUNS], both = 2 * k * (n - k);
    double variance = n > 1 ? both * (both - n) / (n * n * (n - 1)) : 0;
    real[MEAN_RUN] = runs > 0 ? k / runs : NAN;
    real[EXPECTED_RUNS] = n > 0 ? k * (n - k + 1) / n : NAN;
    real[CLUSTERING] = runs > 0 ? real[EXPECTED_RUNS] / runs : NAN;
    real[EXPECTED_CHANGES] = n > 0 ? 1 + both / n : NAN;
    real[Z] = variance > 0 ? ((double)count[CHANGES] - real[EXPECTED_CHANGES]) / sqrt(variance)
                           : NAN;
}

/* Sums over the heads; the longest of them, and the mean of z where it is defined. */
static int finish(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    struct row *row = f->row, *all = &row[f->heads.n];
    double z = 0, expected = 0, changes = 0;
    (void)d;
    all->of = frame_row_head(f, f->heads.n);
    for (const struct row *r = row; r < all; r++) {
        for (int c = 0; c < COUNTS; c++)
            if (c != LONGEST)
                all->count[c] += r->count[c];
            else if (r->count[c] > all->count[c])
                all->count[c] = r->count[c];
        x->undefined += isnan(r->real[Z]);
        z += isnan(r->real[Z]) ? 0 : r->real[Z];
        expected += r->real[EXPECTED_RUNS];
        changes += r->real[EXPECTED_CHANGES];
    }
    double runs = (double)all->count[RUNS];
    int64_t defined = f->heads.n - x->undefined;
    bool any = all->count[TOKENS] > 0;
    all->real[MEAN_RUN] = runs > 0 ? (double)all->count[KEPT] / runs : NAN;
    all->real[EXPECTED_RUNS] = any ? expected : NAN;
    all->real[CLUSTERING] = runs > 0 ? expected / runs : NAN;
    all->real[EXPECTED_CHANGES] = any ? changes : NAN;
    all->real[Z] = defined > 0 ? z / (double)defined : NAN;
    return KVF_OK;
}

static void thread(struct frame *f, void *scratch)
{
    ((struct scratch *)scratch)->evict = FRAME_NEW(f, double, (size_t)f->T);
}

static int head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct data *x = f->state;
    double *evict = ((struct scratch *)y->scratch)->evict;
    struct row *r = (struct row *)f->row + y->h;
    int err = f->T ? read_evict(y->t, f->column[0], y->head, (uint32_t)f->T, evict, d) : KVF_OK;
    if (err)
        return err;
    r->of = frame_row_head(f, y->h);
    count_head(f, x->step, evict, r->count);
    expect(r->count, r->real);
    return KVF_OK;
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    return step_select(((const struct options *)f->options)->step, f->T, &x->step, d);
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    (void)d;
    f->n_rows = f->heads.n + 1;
    return KVF_OK;
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    (void)d;
    const struct data *x = f->state;
    put_tokens(out, f->a, f->b, f->T);
    table_meta_num(out, "step", (double)x->step);
    table_meta_num(out, "undefined", (double)x->undefined);
    return KVF_OK;
}

static void describe(const struct table *t, struct buf *out)
{
    int64_t heads = table_rows(t) - 1, below = 0, above = 0;
    int z = table_find(t, "z");
    for (int64_t h = 0; h < heads; h++) {
        below += table_real(t, z, h) < -1.96;
        above += table_real(t, z, h) > 1.96;
    }
    long long kept = (long long)table_row_int(t, heads, "kept");
    buf_printf(out, "%lld entries of %lld heads cached at step %s in %lld runs\n", kept,
               (long long)heads, table_meta(t, "step"), (long long)table_row_int(t, heads, "runs"));
    if (!kept)
        return;
    buf_printf(out, "mean run %.3f; as many at random give %.3f\n",
               table_row_real(t, heads, "mean_run"),
               (double)kept / table_row_real(t, heads, "expected_runs"));
    buf_printf(out, "%.1f %% have no cached neighbour, longest run %lld\n",
               100 * (double)table_row_int(t, heads, "alone") / (double)kept,
               (long long)table_row_int(t, heads, "longest"));
    buf_printf(out,
               "fewer runs than at random (z < -1.96): %lld heads, more (z > 1.96): %lld, "
               "undefined: %s\n",
               (long long)below, (long long)above, table_meta(t, "undefined"));
}

#define COUNT(name, unit, k)                                                                       \
    {                                                                                              \
        name, unit, TABLE_INT, offsetof(struct row, count[k])                                      \
    }
#define REAL(name, unit, k)                                                                        \
    {                                                                                              \
        name, unit, TABLE_REAL, offsetof(struct row, real[k])                                      \
    }
static const struct record_member members[] = {
    ROW_HEAD_MEMBERS(row, of),
    COUNT("tokens", "tokens", TOKENS),
    COUNT("kept", "tokens", KEPT),
    COUNT("runs", "", RUNS),
    COUNT("alone", "tokens", ALONE),
    COUNT("longest", "tokens", LONGEST),
    COUNT("changes", "", CHANGES),
    REAL("mean_run", "tokens", MEAN_RUN),
    REAL("expected_runs", "", EXPECTED_RUNS),
    REAL("clustering", "", CLUSTERING),
    REAL("expected_changes", "", EXPECTED_CHANGES),
    REAL("z", "", Z),
};

const struct analyzer an_runs = {
    .name = "runs",
    .summary = "test whether cached entries are contiguous or scattered",
    .example = "kvfate where --as runs run.kvf -o runs.tsv",
    OPTIONS({OPT_STR, 0, "step", offsetof(struct options, step), "N",
             "entries that query N sees, or entries cached at the end", "end"}),
    COLUMNS(COLUMN_EVICT_STEP),
    HEADS(.space = KVF_SPACE_KV, FRAME_USUAL(struct data, struct scratch),
          FRAME_RECORDS(struct row), .finish = finish),
    .describe = describe,
    POOL(KEYS("head", "layer", "index"), {"mean_run", "kept", "runs"},
         {"alone_share", "alone", "kept"}, {"clustering"}, {"z"}),
};
