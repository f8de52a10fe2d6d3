/* claims_judge.c - one number, its interval, and what they say of the null. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/ranks.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/table.h"
#include "base/table_read.h"
#include "studies/claims.h"

static const uint64_t SEED = 1;
static const double LEVEL = 0.05; /* of p, and 1 - coverage of intervals */

/* ---- tables of a folder */

struct kept {
    char *path;
    struct table *table;
};

struct claims_folder {
    char *path;
    table_text_fn is_text;
    struct kept *kept;
    size_t n;
};

struct claims_folder *claims_folder_create(const char *path, table_text_fn is_text)
{
    struct claims_folder *f = MEM_NEW(struct claims_folder, 1);
    if (!f)
        return NULL;
    f->is_text = is_text;
    f->path = mem_strdup(path);
    if (f->path)
        return f;
    mem_free(f);
    return NULL;
}

void claims_folder_destroy(struct claims_folder *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++) {
        mem_free(f->kept[i].path);
        table_destroy(f->kept[i].table);
    }
    mem_free(f->kept);
    mem_free(f->path);
    mem_free(f);
}

/* Reads the file unless it was read before; KVF_E_NOTFOUND when there is none. */
static int folder_file(struct claims_folder *f, const char *path, const struct table **ret,
                       struct kvf_diag *d)
{
    struct stat st;
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->kept[i].path, path) == 0) {
            *ret = f->kept[i].table;
            return KVF_OK;
        }
    if (stat(path, &st) != 0)
        return KVF_E_NOTFOUND;
    struct kept *grown = mem_grow(f->kept, f->n, f->n + 1, sizeof *grown);
    if (!grown)
        return KVF_E_NOMEM;
    f->kept = grown;
    struct kept k = {mem_strdup(path), NULL};
    int err = k.path ? table_read(path, f->is_text, &k.table, d) : KVF_E_NOMEM;
    if (err) {
        mem_free(k.path);
        return err;
    }
    f->kept[f->n++] = k;
    *ret = k.table;
    return KVF_OK;
}

int claims_folder_table(struct claims_folder *f, const struct claim_side *s,
                        const struct table **ret, struct kvf_diag *d)
{
    static const char *const ends[] = {"tsv", "json"};
    int err = KVF_E_NOTFOUND;
    *ret = NULL;
    for (int i = 0; i < 2 && err == KVF_E_NOTFOUND; i++) {
        struct buf path = {0};
        buf_printf(&path, "%s/%s%s%s.%s", f->path, s->table, *s->run ? "." : "", s->run, ends[i]);
        err = path.err ? path.err : folder_file(f, path.data, ret, d);
        buf_finish(&path);
    }
    return err == KVF_E_NOTFOUND ? KVF_OK : err;
}

/* ---- statistics of units */

struct sample {
    int64_t n;
    double *value, *with; /* [n] */
    double *a, *b;        /* [n] scratch */
};

/* The claim's number of n values; changes the order of v.  with, scratch: for spearman. */
static double reduce(const struct claim *c, double *v, double *with, int64_t n)
{
    double yes = 0;
    switch (c->reduce) {
    case CLAIM_MEDIAN:
        return stats_quantile(v, (size_t)n, 0.5);
    case CLAIM_LEAST:
        return stats_quantile(v, (size_t)n, 0);
    case CLAIM_LARGEST:
        return stats_quantile(v, (size_t)n, 1);
    case CLAIM_SPREAD:
        return stats_quantile(v, (size_t)n, 0.9) - stats_quantile(v, (size_t)n, 0.1);
    case CLAIM_SHARE:
        for (int64_t i = 0; i < n; i++)
            yes += c->at_than == CLAIM_ABOVE ? v[i] > c->at : v[i] < c->at;
        return yes / (double)n;
    case CLAIM_SPEARMAN:
        if (ranks_average(v, (size_t)n, v) || ranks_average(with, (size_t)n, with))
            return NAN; /* out of memory: undecided rather than wrong */
        return ranks_correlation(with, v, (size_t)n);
    default:
        return stats_mean(v, (size_t)n);
    }
}

/* Of the units whose numbers the generator draws, or of all. */
static double statistic(const struct claim *c, struct sample *s, struct rng *r)
{
    for (int64_t i = 0; i < s->n; i++) {
        int64_t k = r ? (int64_t)rng_below(r, (uint64_t)s->n) : i;
        s->a[i] = s->value[k];
        s->b[i] = s->with[k];
    }
    return reduce(c, s->a, s->b, s->n);
}

/* Percentile bootstrap over the units. */
static int bootstrap(const struct claim *c, struct sample *s, struct claim_result *r)
{
    struct rng g;
    double *v = MEM_NEW(double, CLAIM_REPLICATES);
    size_t n = 0;
    if (!v)
        return KVF_E_NOMEM;
    rng_init(&g, SEED);
    for (int k = 0; k < CLAIM_REPLICATES; k++) {
        double x = statistic(c, s, &g);
        if (!isnan(x)) /* a correlation with one rank alone has none */
            v[n++] = x;
    }
    if (n >= CLAIM_REPLICATES / 2) {
        r->low = stats_quantile(v, n, LEVEL / 2);
        r->high = stats_quantile(v, n, 1 - LEVEL / 2);
    }
    mem_free(v);
    return KVF_OK;
}

/* Two-sided p that the order of the values has nothing to do with `with`. */
static int shuffle_p(struct sample *s, struct claim_result *r)
{
    struct rng g;
    int64_t as_far = 0;
    int err = ranks_average(s->value, (size_t)s->n, s->a);
    if (err)
        return err;
    err = ranks_average(s->with, (size_t)s->n, s->b);
    if (err)
        return err;
    double seen = fabs(ranks_correlation(s->b, s->a, (size_t)s->n));
    if (isnan(seen))
        return KVF_OK;
    rng_init(&g, SEED);
    for (int k = 0; k < CLAIM_SAMPLES; k++) {
        for (int64_t i = s->n - 1; i > 0; i--) {
            int64_t j = (int64_t)rng_below(&g, (uint64_t)i + 1);
            double keep = s->a[i];
            s->a[i] = s->a[j];
            s->a[j] = keep;
        }
        as_far += fabs(ranks_correlation(s->b, s->a, (size_t)s->n)) >= seen - 1e-12;
    }
    r->p = (1 + (double)as_far) / (1 + CLAIM_SAMPLES);
    return KVF_OK;
}

static int permute(const struct claim *c, struct sample *s, struct claim_result *r)
{
    if (c->reduce == CLAIM_SPEARMAN)
        return shuffle_p(s, r);
    for (int64_t i = 0; i < s->n; i++)
        s->a[i] = s->value[i] - c->null;
    r->p = stats_sign_flips(s->a, (size_t)s->n, CLAIM_SAMPLES, SEED);
    return KVF_OK;
}

static int resample(const struct claim *c, struct sample *s, struct claim_result *r)
{
    r->value = statistic(c, s, NULL);
    if (c->interval == CLAIM_NONE || s->n < 2)
        return KVF_OK;
    if (c->interval == CLAIM_WILSON) {
        stats_wilson((int64_t)llround(r->value * (double)s->n), s->n, &r->low, &r->high);
        return KVF_OK;
    }
    int err = bootstrap(c, s, r);
    if (err)
        return err;
    return c->interval == CLAIM_PERMUTATION ? permute(c, s, r) : KVF_OK;
}

/* ---- intervals that the table has */

/* "NAME_low" if there is one, else "low": corpus tables have the first measure's plain. */
static double bound(const struct table *t, const char *name, const char *end, int64_t row)
{
    char full[128];
    snprintf(full, sizeof full, "%.90s_%s", name, end);
    int col = table_find(t, full);
    if (col < 0)
        col = table_find(t, end);
    return col < 0 || table_col_type(t, col) == TABLE_STR ? NAN : table_real(t, col, row);
}

static int64_t documents(const struct claim *c, const struct table *t, int64_t row)
{
    double n = bound(t, c->value, "documents", row);
    int col = table_find(t, "docs");
    if (isnan(n) && col >= 0 && table_col_type(t, col) == TABLE_INT)
        n = table_real(t, col, row);
    if (isnan(n))
        n = table_meta_real(t, "documents", NAN);
    return n >= 0 && n < 1e15 ? (int64_t)n : -1;
}

struct range {
    double low, high;
};

static struct range row_range(const struct claim *c, const struct table *t, int64_t row)
{
    struct range x = {bound(t, c->value, "low", row), bound(t, c->value, "high", row)};
    if (c->less) {
        double low = bound(t, c->less, "low", row), high = bound(t, c->less, "high", row);
        x = (struct range){x.low - high, x.high - low};
    }
    return x;
}

/* ---- verdicts */

static enum claim_verdict verdict_of(bool supports, bool contradicts)
{
    if (supports)
        return CLAIM_SUPPORTED;
    return contradicts ? CLAIM_CONTRADICTED : CLAIM_UNDECIDED;
}

static enum claim_verdict side_of(const struct claim *c, double low, double high)
{
    if (isnan(low) || isnan(high))
        return CLAIM_UNDECIDED;
    if (c->than == CLAIM_BETWEEN)
        return verdict_of(low >= c->null && high <= c->null_high,
                          high < c->null || low > c->null_high);
    if (c->than == CLAIM_ABOVE)
        return verdict_of(low > c->null, c->null > high);
    return verdict_of(c->null > high, c->null < low);
}

static void conclude(const struct claim *c, struct claim_result *r)
{
    if (isnan(r->value)) {
        r->verdict = CLAIM_UNDECIDED;
        snprintf(r->why, sizeof r->why, "the value is not defined");
    } else if (c->interval == CLAIM_NONE) {
        r->verdict = side_of(c, r->value, r->value);
    } else if (c->interval == CLAIM_PERMUTATION) {
        r->verdict = r->p < LEVEL ? side_of(c, r->value, r->value) : CLAIM_UNDECIDED;
        if (isnan(r->p))
            snprintf(r->why, sizeof r->why, "there is nothing to permute");
    } else {
        r->verdict = side_of(c, r->low, r->high);
        if (isnan(r->low) || isnan(r->high))
            snprintf(r->why, sizeof r->why, "there is no interval: too few documents or units");
    }
}

/* ---- the two kinds of claims */

/* One row, or one less another: intervals are those of the table; of a difference the largest
 * that they allow, as the table does not say how the two vary together. */
static void judge_rows(const struct claim *c, const struct table *const t[2],
                       const struct claim_units u[2], struct claim_result *r)
{
    for (int k = 0; k < (c->paired ? 2 : 1); k++)
        if (u[k].rows != 1) {
            r->verdict = CLAIM_NOT_RUN;
            snprintf(r->why, sizeof r->why, "%lld rows of %.60s fit, where one is meant",
                     (long long)u[k].rows, k ? c->minus.table : c->of.table);
            return;
        }
    struct range x = row_range(c, t[0], u[0].first);
    r->documents = documents(c, t[0], u[0].first);
    r->value = u[0].n ? u[0].value[0] : NAN;
    r->left_out = u[0].left_out;
    r->units = 1;
    if (c->paired) {
        struct range y = row_range(c, t[1], u[1].first);
        int64_t n = documents(c, t[1], u[1].first);
        x = (struct range){x.low - y.high, x.high - y.low};
        r->value -= u[1].n ? u[1].value[0] : NAN;
        r->left_out += u[1].left_out;
        r->documents = n < r->documents ? n : r->documents;
    }
    if (c->interval == CLAIM_COLUMNS) {
        r->low = x.low;
        r->high = x.high;
    }
    conclude(c, r);
}

/* a[i] - b[i] of the units that both have, by name; both are in the order of their names. */
static int64_t pair(const struct claim_units *a, const struct claim_units *b, double *out)
{
    int64_t n = 0;
    for (int64_t i = 0, k = 0; i < a->n && k < b->n;) {
        int order = strcmp(a->name[i], b->name[k]);
        if (order == 0)
            out[n++] = a->value[i] - b->value[k];
        i += order <= 0;
        k += order >= 0;
    }
    return n;
}

static bool names_documents(const struct claim *c)
{
    return c->n_unit == 1
           && (strcmp(c->unit[0], "doc") == 0 || strcmp(c->unit[0], "doc_hash") == 0
               || strcmp(c->unit[0], "document") == 0);
}

static int judge_units(const struct claim *c, const struct table *t, const struct claim_units u[2],
                       struct claim_result *r)
{
    size_t n = (size_t)u[0].n;
    struct sample s = {u[0].n, MEM_NEW(double, n), MEM_NEW(double, n), MEM_NEW(double, n),
                       MEM_NEW(double, n)};
    int err = KVF_E_NOMEM;
    if (!s.value || !s.with || !s.a || !s.b)
        goto done;
    memcpy(s.value, u[0].value, n * sizeof *s.value);
    memcpy(s.with, u[0].with, n * sizeof *s.with);
    r->left_out = u[0].left_out + u[1].left_out;
    if (c->paired) {
        s.n = pair(&u[0], &u[1], s.value);
        r->left_out += u[0].n - s.n + u[1].n - s.n;
    }
    r->units = s.n;
    r->documents = u[0].first >= 0 ? documents(c, t, u[0].first) : -1;
    if (names_documents(c))
        r->documents = s.n;
    if (s.n == 0) {
        r->verdict = CLAIM_NOT_RUN;
        snprintf(r->why, sizeof r->why,
                 u[0].rows && (!c->paired || u[1].rows) ? "no unit has a value" : "no row fits");
        err = KVF_OK;
        goto done;
    }
    err = resample(c, &s, r);
    conclude(c, r);

done:
    mem_free(s.value);
    mem_free(s.with);
    mem_free(s.a);
    mem_free(s.b);
    return err;
}

/* The table and the units of each side; where one is missing the verdict is CLAIM_NOT_RUN. */
static int read_sides(const struct claim *c, struct claims_folder *f, const struct table *t[2],
                      struct claim_units u[2], struct claim_result *r, struct kvf_diag *d)
{
    for (int k = 0; k < (c->paired ? 2 : 1); k++) {
        const struct claim_side *s = k ? &c->minus : &c->of;
        int err = claims_folder_table(f, s, &t[k], d);
        if (err)
            return err;
        if (!t[k]) {
            r->verdict = CLAIM_NOT_RUN;
            snprintf(r->why, sizeof r->why, "there is no table %.64s%s%.64s", s->table,
                     *s->run ? "." : "", s->run);
            return KVF_OK;
        }
        err = claims_units(c, s, t[k], &u[k], r, d);
        if (err || r->verdict == CLAIM_NOT_RUN)
            return err;
    }
    return KVF_OK;
}

int claims_judge(const struct claim *c, struct claims_folder *f, struct claim_result *ret,
                 struct kvf_diag *d)
{
    struct claim_result r = {CLAIM_UNDECIDED, NAN, NAN, NAN, NAN, 0, -1, 0, ""};
    struct claim_units u[2] = {{0}, {0}};
    const struct table *t[2] = {NULL, NULL};
    if (c->untestable) {
        r.verdict = CLAIM_UNTESTABLE;
        snprintf(r.why, sizeof r.why, "%s", c->untestable);
        *ret = r;
        return KVF_OK;
    }
    int err = read_sides(c, f, t, u, &r, d);
    if (err)
        goto done;
    if (r.verdict != CLAIM_NOT_RUN && c->reduce == CLAIM_ONE)
        judge_rows(c, t, u, &r);
    else if (r.verdict != CLAIM_NOT_RUN)
        err = judge_units(c, t[0], u, &r);

done:
    claims_units_free(&u[0]);
    claims_units_free(&u[1]);
    if (!err)
        *ret = r;
    return err;
}
