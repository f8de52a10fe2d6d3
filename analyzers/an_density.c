/* an_density.c - the positions in the text of the entries that a head caches: a histogram of their
 * positions i / S, S the length of the text so far, and its mean; of each head and of all. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/frame.h"

struct options {
    int64_t bins;
    const char *step;
};

struct data {
    int64_t step, length, bins; /* positions are of [0, length) */
    int64_t *count;             /* [heads + 1][bins] */
    int64_t *total, *sum;       /* [heads + 1]: entries, and the sum of their positions */
};

struct scratch {     /* of one thread */
    uint32_t *evict; /* [T] of the head at hand */
};

/* The first position with a bin, floor(i bins / length), of k or later. */
static int64_t bin_start(const struct data *x, int64_t k)
{
    return (k * x->length + x->bins - 1) / x->bins;
}

static int64_t within(int64_t i, int64_t low, int64_t high)
{
    if (i < low)
        return low;
    return i > high ? high : i;
}

static void count_head(const struct frame *f, int h, const uint32_t *evict)
{
    const struct data *x = f->state;
    int64_t end = f->b < x->length ? f->b : x->length, a = f->a < end ? f->a : end;
    uint32_t step = (uint32_t)x->step;
    for (int64_t k = 0; k < x->bins; k++) {
        int64_t from = within(bin_start(x, k), a, end), to = within(bin_start(x, k + 1), a, end);
        int64_t n = 0, sum = 0;
        for (int64_t i = from; i < to; i++) {
            n += evict[i] > step;
            sum += evict[i] > step ? i : 0;
        }
        x->count[h * x->bins + k] = n;
        x->total[h] += n;
        x->sum[h] += sum;
    }
}

static void thread(struct frame *f, void *scratch)
{
    ((struct scratch *)scratch)->evict = FRAME_NEW(f, uint32_t, (size_t)f->T);
}

static int head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct scratch *mine = y->scratch;
    const uint32_t *evict;
    int err = view_evict(y->t, f->column[0], y->head, (uint32_t)f->T, mine->evict, &evict, d);
    if (!err)
        count_head(f, y->h, evict);
    return err;
}

/* All heads together. */
static int finish(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    int all = f->heads.n;
    (void)d;
    for (int h = 0; h < all; h++) {
        for (int64_t k = 0; k < x->bins; k++)
            x->count[all * x->bins + k] += x->count[h * x->bins + k];
        x->total[all] += x->total[h];
        x->sum[all] += x->sum[h];
    }
    return KVF_OK;
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    (void)d;
    const struct data *x = f->state;
    int64_t heads = f->heads.n + 1, bins = x->bins, undefined = 0;
    double *edge = FRAME_NEW(f, double, (size_t)bins + 1);
    double *share = FRAME_NEW(f, double, (size_t)f->n_rows);
    double *mean = FRAME_NEW(f, double, (size_t)heads);
    if (!edge || !share || !mean)
        return KVF_E_NOMEM;
    for (int64_t k = 0; k <= bins; k++)
        edge[k] = (double)k / (double)bins;
    for (int64_t r = 0; r < heads * bins; r++) {
        int64_t n = x->total[r / bins];
        share[r] = n ? (double)x->count[r] / (double)n : NAN;
    }
    for (int64_t h = 0; h < heads; h++) {
        double n = (double)x->total[h] * (double)x->length;
        mean[h] = n > 0 ? (double)x->sum[h] / n : NAN;
        undefined += h < heads - 1 && x->total[h] == 0;
    }
    put_tokens(out, f->a, f->b, f->T);
    table_meta_num(out, "step", (double)x->step);
    table_meta_num(out, "length", (double)x->length);
    table_meta_num(out, "bins", (double)bins);
    table_meta_num(out, "undefined", (double)undefined);
    int err = put_heads_all(out, &f->heads);
    table_cycle_real(out, "bin_low", "", edge, bins);
    table_cycle_real(out, "bin_high", "", edge + 1, bins);
    table_dense_real(out, "share", "", share);
    table_dense_int(out, "count", "entries", x->count);
    table_block_int(out, "total", "entries", x->total, heads);
    table_block_real(out, "mean", "", mean, heads);
    table_block_int(out, "position_sum", "", x->sum, heads);
    return err;
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    const struct options *o = f->options;
    int err = step_select(o->step, f->T, &x->step, d);
    x->bins = o->bins;
    x->length = x->step < f->T ? x->step + 1 : f->T;
    return err;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    size_t heads = (size_t)f->heads.n + 1;
    (void)d;
    f->items = f->T > 0;
    f->n_rows = (int64_t)heads * x->bins;
    x->count = FRAME_NEW(f, int64_t, (size_t)f->n_rows);
    x->total = FRAME_NEW(f, int64_t, heads);
    x->sum = FRAME_NEW(f, int64_t, heads);
    return KVF_OK;
}

static void describe(const struct table *t, struct buf *out)
{
    int share = table_find(t, "share"), mean = table_find(t, "mean");
    int64_t bins = table_meta_int(t, "bins", 1), heads = table_rows(t) / bins - 1;
    int64_t all = heads * bins, low = -1, high = -1;
    for (int64_t h = 0; h < heads; h++) {
        double v = table_real(t, mean, h * bins);
        if (isnan(v))
            continue;
        low = low < 0 || v < table_real(t, mean, low) ? h * bins : low;
        high = high < 0 || v > table_real(t, mean, high) ? h * bins : high;
    }
    const char *range = table_meta(t, "tokens");
    buf_printf(out, "%lld entries of %lld heads cached at step %s, of a text of %s tokens%s%s\n",
               (long long)table_row_int(t, all, "total"), (long long)heads, table_meta(t, "step"),
               table_meta(t, "length"), range ? "; only tokens " : "", range ? range : "");
    if (low < 0)
        return;
    buf_printf(out, "mean position %.4f; heads from %.4f (%s) to %.4f (%s)\n",
               table_real(t, mean, all), table_real(t, mean, low), table_row_str(t, low, "head"),
               table_real(t, mean, high), table_row_str(t, high, "head"));
    buf_printf(out, "first bin %.4f, last bin %.4f of the entries; %.4f if uniform\n",
               table_real(t, share, all), table_real(t, share, all + bins - 1), 1 / (double)bins);
}

const struct analyzer an_density = {
    .name = "density",
    .summary = "positions of cached entries in the text",
    .example = "kvfate where run.kvf -o density.png",
    OPTIONS({OPT_INT, 0, "bins", offsetof(struct options, bins), "N", "bins of equal width", "20",
             .min = 1, .max = 1 << 16},
            {OPT_STR, 0, "step", offsetof(struct options, step), "N",
             "entries that query N sees, or entries cached at the end", "end"}),
    COLUMNS(COLUMN_EVICT_STEP),
    HEADS(.space = KVF_SPACE_KV, FRAME_USUAL(struct data, struct scratch), .finish = finish),
    .describe = describe,
    POOL(KEYS("head", "layer", "index", "bin_low", "bin_high"), {"share", "count", "total"},
         {"mean"}),
};
