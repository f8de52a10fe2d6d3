/* an_density.c - where in the text the entries lie that a head holds: a histogram of their
 * positions i / S, S the length of the text so far, and its mean; of each head and of all. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/common.h"
#include "analyzers/heads_par.h"
#include "base/mem.h"
#include "base/opt.h"

enum { OPT_BINS, OPT_STEP, MOST_BINS = 1 << 16 };
static const struct analyzer_option options[] = {
    {"bins", "N", "20", "bins of equal width (20)"},
    {"step", "N", "end", "what query N sees (default: what is left at the end)"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_density;

struct data {
    struct kvf_trace *t;
    struct head_list heads;
    int evict;
    int64_t a, b, step, length, bins; /* tokens [a, b); positions are of [0, length) */
    int64_t *count;                   /* [heads + 1][bins] */
    int64_t *total, *sum;             /* [heads + 1]: entries, and the sum of their positions */
    uint32_t *scratch;                /* [threads][T] */
    int threads;
};

/* The first position whose bin, floor(i bins / length), is k or later. */
static int64_t bin_start(const struct data *x, int64_t k)
{
    return (k * x->length + x->bins - 1) / x->bins;
}

static int64_t within(int64_t i, int64_t low, int64_t high)
{
    return i < low ? low : i > high ? high : i;
}

static void count_head(struct data *x, int h, const uint32_t *evict)
{
    int64_t end = x->b < x->length ? x->b : x->length, a = x->a < end ? x->a : end;
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

static int do_head(void *ctx, struct kvf_trace *t, int item, int h, int thread, struct kvf_diag *d)
{
    struct data *x = ctx;
    uint32_t T = kvf_n_steps(t);
    const uint32_t *evict;
    (void)item;
    int err = view_evict(t, x->evict, &x->heads.head[h], T, x->scratch + (size_t)thread * T, &evict,
                         d);
    if (!err)
        count_head(x, h, evict);
    return err;
}

static int read_heads(struct data *x, struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(x->t);
    struct heads_par *par = NULL;
    int err = heads_par_create(x->t, x->threads, (int64_t)T * x->heads.n, &par), all = x->heads.n;
    if (!err && !(x->scratch = mem_alloc((size_t)heads_par_threads(par), T * sizeof(uint32_t))))
        err = KVF_E_NOMEM;
    if (!err && T)
        err = heads_par_run(par, &x->heads, 1, do_head, x, d);
    for (int h = 0; !err && h < all; h++) {
        for (int64_t k = 0; k < x->bins; k++)
            x->count[all * x->bins + k] += x->count[h * x->bins + k];
        x->total[all] += x->total[h];
        x->sum[all] += x->sum[h];
    }
    heads_par_destroy(par);
    mem_free(x->scratch);
    return err;
}

static int put_columns(const struct data *x, struct table *out, double *edge, double *share,
                       double *mean)
{
    int64_t heads = x->heads.n + 1, bins = x->bins;
    int64_t undefined = 0;
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
    put_provenance(out, x->t);
    put_tokens(out, x->a, x->b, kvf_n_steps(x->t));
    table_meta_num(out, "step", (double)x->step);
    table_meta_num(out, "length", (double)x->length);
    table_meta_num(out, "bins", (double)bins);
    table_meta_num(out, "undefined", (double)undefined);
    int err = put_heads_all(out, &x->heads);
    table_cycle_real(out, "bin_low", "", edge, bins);
    table_cycle_real(out, "bin_high", "", edge + 1, bins);
    table_dense_real(out, "share", "", share);
    table_dense_int(out, "count", "entries", x->count);
    table_block_int(out, "total", "entries", x->total, heads);
    table_block_real(out, "mean", "", mean, heads);
    table_block_int(out, "position_sum", "", x->sum, heads);
    return err ? err : table_err(out);
}

static int build(const struct data *x, struct table *out)
{
    size_t heads = (size_t)x->heads.n + 1, bins = (size_t)x->bins;
    double *edge = MEM_NEW(double, bins + 1), *share = MEM_NEW(double, (heads * bins));
    double *mean = MEM_NEW(double, heads);
    int err = edge && share && mean ? put_columns(x, out, edge, share, mean) : KVF_E_NOMEM;
    mem_free(edge);
    mem_free(share);
    mem_free(mean);
    return err;
}

static int prepare(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    const char *bins = option_text(&an_density, args, OPT_BINS);
    int64_t T = kvf_n_steps(x->t);
    if (!opt_int(bins, &x->bins) || x->bins < 1 || x->bins > MOST_BINS)
        return kvf_fail(d, KVF_E_ARG, "--bins needs a number from 1 to %d, not '%s'", MOST_BINS,
                        bins);
    int err = step_select(option_text(&an_density, args, OPT_STEP), T, &x->step, d);
    x->length = x->step < T ? x->step + 1 : T;
    if (!err)
        err = tokens_select(x->t, args, &x->a, &x->b, d);
    if (!err)
        err = column_need(x->t, "evict_step", "evict", &x->evict, d);
    return err ? err : heads_select(x->t, KVF_SPACE_KV, args->heads, &x->heads, d);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct data x = {.t = traces[0], .threads = args->threads};
    struct table *out = NULL;
    (void)n_traces;
    int err = prepare(&x, args, d);
    if (err)
        return err;
    size_t heads = (size_t)x.heads.n + 1;
    x.count = mem_alloc(heads, (size_t)x.bins * sizeof *x.count);
    x.total = MEM_NEW(int64_t, heads);
    x.sum = MEM_NEW(int64_t, heads);
    out = table_create("density", (int64_t)heads * x.bins);
    err = x.count && x.total && x.sum && out ? read_heads(&x, d) : KVF_E_NOMEM;
    if (!err)
        err = build(&x, out);
    mem_free(x.count);
    mem_free(x.total);
    mem_free(x.sum);
    heads_free(&x.heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    int share = table_find(t, "share"), mean = table_find(t, "mean");
    int64_t bins = (int64_t)table_meta_real(t, "bins", 1), heads = table_rows(t) / bins - 1;
    int64_t all = heads * bins, low = -1, high = -1;
    for (int64_t h = 0; h < heads; h++) {
        double v = table_real(t, mean, h * bins);
        if (isnan(v))
            continue;
        low = low < 0 || v < table_real(t, mean, low) ? h * bins : low;
        high = high < 0 || v > table_real(t, mean, high) ? h * bins : high;
    }
    buf_printf(out, "%lld entries of %lld heads held at step %s, of a text of %s tokens\n",
               (long long)table_int(t, table_find(t, "total"), all), (long long)heads,
               table_meta(t, "step"), table_meta(t, "length"));
    if (low < 0)
        return;
    buf_printf(out, "mean position %.4f; heads from %.4f (%s) to %.4f (%s)\n",
               table_real(t, mean, all), table_real(t, mean, low),
               table_str(t, table_find(t, "head"), low), table_real(t, mean, high),
               table_str(t, table_find(t, "head"), high));
    buf_printf(out, "first bin %.4f, last bin %.4f of the entries; evenly it were %.4f\n",
               table_real(t, share, all), table_real(t, share, all + bins - 1), 1 / (double)bins);
}

static const char *const keys[] = {"head", "layer", "index", "bin_low", "bin_high", NULL};
static const struct analyzer_measure measures[] = {
    {"share", "count", "total"},
    {"mean", NULL, NULL},
    {NULL, NULL, NULL},
};
static const struct analyzer_pool pool = {keys, measures};

const struct analyzer an_density = {
    .name = "density",
    .summary = "where in the text the entries lie that are held",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};
