/* calibration_table.c - the columns and the description of calibration (calibration_table.h). */
#include <math.h>
#include <string.h>

#include "analyzers/calibration_table.h"
#include "base/mem.h"

void calibration_count(struct calibration_tally *y, double predicted, bool yes)
{
    double e = predicted - yes;
    y->n++;
    y->yes += yes;
    sum_add(&y->predicted, predicted);
    sum_add(&y->error, e * e);
}

void calibration_put(struct calibration_cell *c, const struct calibration_tally *y)
{
    double n = (double)y->n;
    *c = (struct calibration_cell){(uint32_t)y->n, (uint32_t)y->yes, NAN, NAN};
    if (!y->n)
        return;
    c->predicted = sum_get(&y->predicted) / n;
    c->brier = sum_get(&y->error) / n;
}

int calibration_found_create(const struct calibration_found *shape, struct calibration_found **ret)
{
    struct calibration_found *x = MEM_NEW(struct calibration_found, 1);
    if (!x)
        return KVF_E_NOMEM;
    *x = *shape;
    size_t pairs = (size_t)x->n_pairs, blocks = (size_t)x->n_blocks;
    x->cell = mem_alloc(blocks, pairs * ((size_t)x->bins + 1) * sizeof *x->cell);
    x->score = mem_alloc(blocks, (pairs + N_RANK_SCORES) * sizeof *x->score);
    if (!x->cell || !x->score) {
        calibration_found_destroy(x);
        return KVF_E_NOMEM;
    }
    *ret = x;
    return KVF_OK;
}

void calibration_found_destroy(struct calibration_found *x)
{
    if (!x)
        return;
    mem_free_all(x->cell, x->score, x);
}

static void destroy(void *x)
{
    calibration_found_destroy(x);
}

int64_t calibration_rows(const struct calibration_found *x)
{
    return (int64_t)x->n_pairs * (x->bins + 1) + N_RANK_SCORES;
}

/* ---- numbers, read when asked */

enum {
    N,
    PREDICTED,
    OBSERVED,
    LOW,
    HIGH,
    BRIER,
    BRIER_BASE,
    AUROC,
    ECE,
    TAU,
    N_AUROC,
    N_TAU,
    YES,
    EARLY,
    NEAR
};

/* Of a bin, or of all of them with s. */
static double of_cell(const struct calibration_cell *c, const struct calibration_score *s, int what)
{
    static const struct calibration_score none = {
        .auroc = NAN, .ece = NAN, .early = NAN, .near = NAN};
    double low = NAN, high = NAN, observed = c->n ? (double)c->yes / (double)c->n : NAN;
    if ((what == LOW || what == HIGH) && c->n)
        stats_wilson(c->yes, c->n, &low, &high);
    const struct calibration_score *of = s ? s : &none;
    const double value[] = {[N] = c->n,
                            [YES] = c->yes,
                            [PREDICTED] = c->predicted,
                            [OBSERVED] = observed,
                            [LOW] = low,
                            [HIGH] = high,
                            [BRIER] = c->brier,
                            [BRIER_BASE] = s ? observed * (1 - observed) : NAN,
                            [AUROC] = of->auroc,
                            [ECE] = of->ece,
                            [TAU] = NAN,
                            [EARLY] = of->early,
                            [NEAR] = of->near,
                            [N_AUROC] = -1,
                            [N_TAU] = -1};
    return value[what];
}

static double of_rank(const struct calibration_score *s, int what)
{
    switch (what) {
    case N:
        return (double)s->n;
    case AUROC:
        return s->auroc;
    case TAU:
        return s->tau;
    case N_AUROC:
        return (double)s->n_auroc;
    case N_TAU:
        return (double)s->n_tau;
    case YES:
        return -1;
    default:
        return NAN;
    }
}

static void read_number(void *ctx, int64_t row0, int64_t n, double *out)
{
    const struct calibration_lazy *lazy = ctx;
    const struct calibration_found *x = lazy->from;
    int64_t each = calibration_rows(x), per = x->bins + 1, pairs = x->n_pairs;
    for (int64_t i = 0; i < n; i++) {
        int64_t block = (row0 + i) / each, k = (row0 + i) % each, pair = k / per;
        const struct calibration_score *s = x->score + block * (pairs + N_RANK_SCORES);
        const struct calibration_cell *c = x->cell + block * pairs * per + k;
        if (k >= pairs * per)
            out[i] = of_rank(s + pairs + (k - pairs * per), lazy->what);
        else
            out[i] = of_cell(c, k % per == x->bins ? s + pair : NULL, lazy->what);
    }
}

static const struct {
    const char *name;
    enum table_type type;
} numbers[CALIBRATION_NUMBERS] = {
    [N] = {"n", TABLE_INT},
    [PREDICTED] = {"predicted", TABLE_REAL},
    [OBSERVED] = {"observed", TABLE_REAL},
    [LOW] = {"low", TABLE_REAL},
    [HIGH] = {"high", TABLE_REAL},
    [BRIER] = {"brier", TABLE_REAL},
    [BRIER_BASE] = {"brier_base", TABLE_REAL},
    [AUROC] = {"auroc", TABLE_REAL},
    [ECE] = {"ece", TABLE_REAL},
    [TAU] = {"tau", TABLE_REAL},
    [N_AUROC] = {"n_auroc", TABLE_INT},
    [N_TAU] = {"n_tau", TABLE_INT},
    [YES] = {"yes", TABLE_INT},
    [EARLY] = {"auroc_early", TABLE_REAL},
    [NEAR] = {"auroc_near", TABLE_REAL},
};

/* ---- values that are equal in every block */

struct names { /* of the rows of a block */
    const char **kind, **event, **score;
    int64_t *horizon, *bin;
    double *lo, *hi;
};

static void free_names(struct names *v)
{
    void *const all[] = {
        (void *)v->kind, (void *)v->event, (void *)v->score, v->horizon, v->bin, v->lo, v->hi};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static int make_names(const struct calibration_found *x, struct names *v)
{
    size_t n = (size_t)calibration_rows(x);
    v->kind = MEM_NEW(const char *, n);
    v->event = MEM_NEW(const char *, n);
    v->score = MEM_NEW(const char *, n);
    v->horizon = MEM_NEW(int64_t, n);
    v->bin = MEM_NEW(int64_t, n);
    v->lo = MEM_NEW(double, n);
    v->hi = MEM_NEW(double, n);
    return v->kind && v->event && v->score && v->horizon && v->bin && v->lo && v->hi ? KVF_OK
                                                                                     : KVF_E_NOMEM;
}

static void fill_names(const struct calibration_found *x, struct names *v)
{
    static const char *const scores[N_RANK_SCORES] = {"beta", "age", "random"};
    int64_t per = x->bins + 1, first_rank = x->n_pairs * per;
    for (int64_t k = 0; k < calibration_rows(x); k++) {
        bool rank = k >= first_rank, total = k % per == x->bins;
        const struct calibration_pair *p = &x->pair[rank ? 0 : k / per];
        v->kind[k] = total ? "summary" : "bin";
        v->event[k] = rank ? "selected-again" : p->event;
        v->score[k] = rank ? scores[k - first_rank] : "beta";
        v->horizon[k] = rank ? -1 : p->horizon;
        v->bin[k] = rank || total ? -1 : k % per;
        v->lo[k] = total ? 0 : (double)(k % per) / x->bins;
        v->hi[k] = total ? 1 : (double)(k % per + 1) / x->bins;
        if (rank) {
            v->kind[k] = "rank";
            v->lo[k] = v->hi[k] = NAN;
        }
    }
}

int calibration_columns(struct table *t, const struct head_list *heads, struct calibration_found *x)
{
    struct names v = {0};
    int64_t n = table_rows(t) ? calibration_rows(x) : 0;
    table_own(t, x, destroy);
    int err = table_err(t);
    if (!err)
        err = make_names(x, &v);
    if (!err)
        err = put_heads_all(t, heads);
    if (!err) {
        fill_names(x, &v);
        table_cycle_str(t, "kind", "", v.kind, n);
        table_cycle_str(t, "event", "", v.event, n);
        table_cycle_str(t, "score", "", v.score, n);
        table_cycle_int(t, "horizon", "step", v.horizon, n);
        table_cycle_int(t, "bin", "", v.bin, n);
        table_cycle_real(t, "lo", "", v.lo, n);
        table_cycle_real(t, "hi", "", v.hi, n);
    }
    for (int c = 0; !err && c < CALIBRATION_NUMBERS; c++) {
        x->lazy[c] = (struct calibration_lazy){x, c};
        table_lazy(t, numbers[c].name, "", numbers[c].type, read_number, &x->lazy[c]);
    }
    free_names(&v);
    return err ? err : table_err(t);
}

/* ---- for people */

static void describe_rank(const struct table *t, int64_t r, struct buf *out)
{
    double auroc = table_row_real(t, r, "auroc");
    double tau = table_row_real(t, r, "tau");
    int64_t n = table_row_int(t, r, "n");
    const char *score = table_row_str(t, r, "score");
    if (strcmp(score, "beta") == 0)
        buf_printf(out, "ranking at %lld evictions of a budget of %s entries per head:\n",
                   (long long)n, table_meta(t, "rank_budget"));
    if (n)
        buf_printf(out, "  %-7s AUROC of selected again %.3f, tau-b of the use left %+.3f\n", score,
                   auroc, tau);
}

void calibration_describe(const struct table *t, struct buf *out)
{
    int head = table_find(t, "head"), kind = table_find(t, "kind");
    if (table_rows(t) == 0)
        buf_str(out, "no tokens\n");
    buf_printf(out, "beta^n against selection by %s, of %s:\n", table_meta(t, "criterion"),
               table_meta(t, "group"));
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (strcmp(table_str(t, head, r), "all") != 0 || strcmp(table_str(t, kind, r), "bin") == 0)
            continue;
        if (strcmp(table_str(t, kind, r), "rank") == 0) {
            describe_rank(t, r, out);
            continue;
        }
        buf_printf(out,
                   "  %-10s n = %-5lld predicted %.3f observed %.3f  Brier %.3f (constant "
                   "%.3f)  AUROC %.3f (early %.3f, near %.3f)  ECE %.3f\n",
                   table_row_str(t, r, "event"), (long long)table_row_int(t, r, "horizon"),
                   table_row_real(t, r, "predicted"), table_row_real(t, r, "observed"),
                   table_row_real(t, r, "brier"), table_row_real(t, r, "brier_base"),
                   table_row_real(t, r, "auroc"), table_row_real(t, r, "auroc_early"),
                   table_row_real(t, r, "auroc_near"), table_row_real(t, r, "ece"));
    }
}
