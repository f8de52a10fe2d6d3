/* claims_judge.c - what one number and its interval say of the null, and what holds it back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "base/table.h"
#include "base/table_read.h"
#include "studies/claims.h"

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

/* Documents where the interval is the table's, else the units that were resampled. */
static bool enough(const struct claim *c, struct claim_result *r)
{
    bool columns = c->interval == CLAIM_COLUMNS;
    int64_t n = columns ? r->documents : r->units;
    const char *what = columns ? "documents" : "units";
    if (r->by_cluster)
        what = "clusters";
    if (c->interval == CLAIM_NONE || n >= c->least_n)
        return true;
    if (columns && n < 0)
        snprintf(r->why, sizeof r->why, "the table does not say of how many documents it is");
    else
        snprintf(r->why, sizeof r->why, "%lld %s are too few: the claim asks for %lld",
                 (long long)n, what, (long long)c->least_n);
    return false;
}

static void conclude(const struct claim *c, struct claim_result *r)
{
    r->verdict = CLAIM_UNDECIDED;
    if (isnan(r->value)) {
        snprintf(r->why, sizeof r->why, "the value is not defined");
    } else if (c->interval == CLAIM_NONE) {
        r->verdict = side_of(c, r->value, r->value);
    } else if (!enough(c, r)) {
        return;
    } else if (isnan(r->p)) {
        snprintf(r->why, sizeof r->why, "there is no interval: too few documents or units");
    } else if (c->interval == CLAIM_PERMUTATION) {
        r->verdict = r->p < CLAIM_LEVEL ? side_of(c, r->value, r->value) : CLAIM_UNDECIDED;
    } else {
        r->verdict = r->p < CLAIM_LEVEL ? side_of(c, r->low, r->high) : CLAIM_UNDECIDED;
    }
}

/* The p at which an interval of the table, taken as that of a normal law of its own width on each
 * side of the value, would end at the null. */
static double columns_p(const struct claim_result *r, double null)
{
    const double z = 1.959963984540054;
    double half = r->value > null ? r->value - r->low : r->high - r->value;
    if (isnan(null) || isnan(half))
        return NAN;
    if (half <= 0)
        return r->value == null ? 1 : 0;
    return claims_p_of_z(z * (r->value - null) / half);
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
        r->p = claims_p_between(c, r->value, columns_p(r, c->null), columns_p(r, c->null_high));
    }
    conclude(c, r);
}

/* a[i] - b[i] of the units that both have, by name, and which of a they are; both are in the order
 * of their names. */
static int64_t pair(const struct claim_units *a, const struct claim_units *b, double *out,
                    int64_t *which)
{
    int64_t n = 0;
    for (int64_t i = 0, k = 0; i < a->n && k < b->n;) {
        int order = strcmp(a->name[i], b->name[k]);
        if (order == 0) {
            which[n] = i;
            out[n++] = a->value[i] - b->value[k];
        }
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

/* The units of the claim, which[i] of the first side each. */
static void take_sample(const struct claim *c, const struct claim_units u[2],
                        struct claim_sample *s, int64_t *which, struct claim_result *r)
{
    r->left_out = u[0].left_out + u[1].left_out;
    for (int64_t i = 0; i < u[0].n; i++) {
        s->value[i] = u[0].value[i];
        s->with[i] = u[0].with[i];
        which[i] = i;
    }
    if (c->paired) {
        s->n = pair(&u[0], &u[1], s->value, which);
        r->left_out += u[0].n - s->n + u[1].n - s->n;
    }
}

/* Units on the claimed side of the null, where units have a side. */
static int64_t count_side(const struct claim *c, const struct claim_sample *s)
{
    int64_t n = 0;
    if (c->reduce != CLAIM_MEAN && c->reduce != CLAIM_MEDIAN)
        return -1;
    for (int64_t i = 0; i < s->n; i++)
        n += side_of(c, s->value[i], s->value[i]) == CLAIM_SUPPORTED;
    return n;
}

static int judge_units(const struct claim *c, struct claims_folder *f, const struct table *t,
                       const struct claim_units u[2], struct claim_result *r, struct kvf_diag *d)
{
    struct claim_sample s;
    int64_t *which = MEM_NEW(int64_t, (size_t)u[0].n);
    int err = claim_sample_create(u[0].n, &s);
    if (!which)
        err = KVF_E_NOMEM;
    if (err)
        goto done;
    take_sample(c, u, &s, which, r);
    r->documents = u[0].first >= 0 ? documents(c, t, u[0].first) : -1;
    if (names_documents(c))
        r->documents = s.n;
    if (s.n == 0) {
        r->verdict = CLAIM_NOT_RUN;
        snprintf(r->why, sizeof r->why,
                 u[0].rows && (!c->paired || u[1].rows) ? "no unit has a value" : "no row fits");
        goto done;
    }
    if (c->cluster)
        err = claims_clusters(c, f, t, &u[0], which, &s, r, d);
    r->units = s.n;
    if (err || r->verdict == CLAIM_NOT_RUN)
        goto done;
    r->value = claims_statistic(c, &s);
    r->on_side = count_side(c, &s);
    err = claims_interval(c, &s, r);
    conclude(c, r);

done:
    claim_sample_free(&s);
    mem_free(which);
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
        if (!claims_comparable(c, s, t[k], r))
            return KVF_OK;
        err = claims_units(c, s, t[k], &u[k], r, d);
        if (err || r->verdict == CLAIM_NOT_RUN)
            return err;
    }
    return KVF_OK;
}

/* The tables and units of the claim's data, or of other data that stand in their place. */
struct data {
    const struct table *t[2];
    struct claim_units u[2];
};

static void data_free(struct data *x)
{
    claims_units_free(&x->u[0]);
    claims_units_free(&x->u[1]);
}

/* The judgement of the number alone.  *x is to be freed. */
static int judge_data(const struct claim *c, struct claims_folder *f, struct data *x,
                      struct claim_result *r, struct kvf_diag *d)
{
    *x = (struct data){.t = {NULL, NULL}};
    int err = read_sides(c, f, x->t, x->u, r, d);
    bool there = r->verdict == CLAIM_UNDECIDED;
    if (!err && there && c->reduce == CLAIM_ONE)
        judge_rows(c, x->t, x->u, r);
    else if (!err && there)
        err = judge_units(c, f, x->t[0], x->u, r, d);
    return err;
}

static const struct claim_result fresh = {.verdict = CLAIM_UNDECIDED,
                                          .value = NAN,
                                          .low = NAN,
                                          .high = NAN,
                                          .p = NAN,
                                          .q = NAN,
                                          .null_value = NAN,
                                          .difference = {NAN, NAN, NAN, NAN, 0},
                                          .i2 = NAN,
                                          .on_side = -1,
                                          .documents = -1,
                                          .null_check = "none",
                                          .control = "none"};

static int judge_other(const struct claim *c, const struct claim_other *o, struct claims_folder *f,
                       struct data *x, struct claim_result *ret, struct kvf_diag *d)
{
    struct claim other = *c;
    other.of = o->of;
    other.minus = o->minus;
    *ret = fresh;
    return judge_data(&other, f, x, ret, d);
}

/* ---- the difference of the data and the null data */

/* Of two numbers with intervals of their own: the widest that both allow. */
static void difference_of_intervals(const struct claim_result *r, const struct claim_result *null,
                                    struct claim_difference *ret)
{
    struct claim_result x = {
        .value = r->value - null->value, .low = r->low - null->high, .high = r->high - null->low};
    *ret = (struct claim_difference){x.value, x.low, x.high, columns_p(&x, 0), 0};
}

/* Leaves of both samples the units that both have, in one order; which: of the first. */
static void match(const struct data *x, const struct data *y, struct claim_sample *a,
                  struct claim_sample *b, int64_t *which, const int64_t *other)
{
    int64_t n = 0;
    for (int64_t i = 0, k = 0; i < a->n && k < b->n;) {
        int order = strcmp(x->u[0].name[which[i]], y->u[0].name[other[k]]);
        if (order == 0) {
            a->value[n] = a->value[i];
            a->with[n] = a->with[i];
            b->value[n] = b->value[k];
            b->with[n] = b->with[k];
            which[n++] = which[i];
        }
        i += order <= 0;
        k += order >= 0;
    }
    a->n = b->n = n;
}

/* Of the units that both have.  NaN where they are fewer than the claim asks for. */
static int difference_of_units(const struct claim *c, struct claims_folder *f, const struct data *x,
                               const struct data *y, struct claim_difference *ret,
                               struct kvf_diag *d)
{
    struct claim_sample a = {0}, b = {0};
    struct claim_result unused = fresh;
    int64_t *which = MEM_NEW(int64_t, (size_t)x->u[0].n);
    int64_t *other = MEM_NEW(int64_t, (size_t)y->u[0].n);
    int err = which && other ? claim_sample_create(x->u[0].n, &a) : KVF_E_NOMEM;
    if (!err)
        err = claim_sample_create(y->u[0].n, &b);
    if (err)
        goto done;
    take_sample(c, x->u, &a, which, &unused);
    take_sample(c, y->u, &b, other, &unused);
    match(x, y, &a, &b, which, other);
    if (c->cluster && a.n)
        err = claims_clusters(c, f, x->t[0], &x->u[0], which, &a, &unused, d);
    if (!err && c->cluster && b.n)
        err = claims_clusters(c, f, x->t[0], &x->u[0], which, &b, &unused, d);
    ret->units = a.n;
    if (err || a.n < c->least_n || a.n < 1)
        goto done;
    a.less = &b;
    ret->value = claims_statistic(c, &a);
    err = claims_difference(c, &a, ret);

done:
    claim_sample_free(&a);
    claim_sample_free(&b);
    mem_free(which);
    mem_free(other);
    return err;
}

static int find_difference(const struct claim *c, struct claims_folder *f, const struct data *x,
                           const struct data *y, struct claim_result *null, struct claim_result *r,
                           struct kvf_diag *d)
{
    int err = KVF_OK;
    if (c->reduce != CLAIM_ONE && c->n_unit)
        err = difference_of_units(c, f, x, y, &r->difference, d);
    if (!err && isnan(r->difference.value) && enough(c, null))
        difference_of_intervals(r, null, &r->difference);
    return err;
}

/* Whether the difference is certain, and lies where the claim says. */
static void judge_difference(const struct claim *c, struct claim_result *r, bool *beyond,
                             bool *claimed)
{
    double middle = (c->null + c->null_high) / 2;
    double value = r->difference.value;
    *beyond = c->interval == CLAIM_NONE ? value != 0 : r->difference.p < CLAIM_LEVEL;
    if (c->than == CLAIM_BETWEEN)
        *claimed = fabs(r->value - middle) < fabs(r->null_value - middle);
    else
        *claimed = c->than == CLAIM_ABOVE ? value > 0 : value < 0;
}

/* ---- what holds a verdict back */

/* A claim that its control does not bear out is not supported. */
static int judge_control(const struct claim *c, struct claims_folder *f, struct claim_result *r,
                         struct kvf_diag *d)
{
    struct claim_result x;
    struct data y;
    int err = judge_other(c, &c->control, f, &y, &x, d);
    data_free(&y);
    if (err)
        return err;
    r->control = claim_verdict_names[x.verdict];
    if (r->verdict == CLAIM_SUPPORTED && x.verdict != CLAIM_SUPPORTED) {
        r->verdict = CLAIM_UNDECIDED;
        snprintf(r->why, sizeof r->why, "the matched control is %s", r->control);
    }
    return KVF_OK;
}

static bool decided(const struct claim_result *r)
{
    return r->verdict == CLAIM_SUPPORTED || r->verdict == CLAIM_CONTRADICTED;
}

static void unguard(struct claim_result *r, const char *why)
{
    if (!decided(r))
        return;
    snprintf(r->why, sizeof r->why, "%s by its number, without null data: %.150s",
             claim_verdict_names[r->verdict], why);
    r->verdict = CLAIM_UNGUARDED;
}

/* A number that null data show as well says nothing of the claim, on either side. */
static int judge_null(const struct claim *c, struct claims_folder *f, const struct data *own,
                      struct claim_result *r, struct kvf_diag *d)
{
    struct claim_result x;
    struct data y;
    bool beyond, claimed;
    int err = judge_other(c, &c->null_check, f, &y, &x, d);
    r->null_value = x.value;
    r->null_check = "not run";
    if (!err && !isnan(r->value) && !isnan(x.value))
        err = find_difference(c, f, own, &y, &x, r, d);
    data_free(&y);
    if (err)
        return err;
    if (isnan(r->difference.value) || (isnan(r->difference.p) && c->interval != CLAIM_NONE)) {
        unguard(r, x.why[0] ? x.why : "the difference has no interval");
        return KVF_OK;
    }
    judge_difference(c, r, &beyond, &claimed);
    const char *where = claimed ? "on the claimed side" : "on the other side";
    r->null_check = claimed ? "as claimed" : "other way";
    if (!beyond) {
        r->null_check = "not beyond";
        where = "not certain";
    }
    if (decided(r) && !(beyond && claimed == (r->verdict == CLAIM_SUPPORTED))) {
        snprintf(r->why, sizeof r->why,
                 "%s by its number; the null data have %.4g, and the difference is %s",
                 claim_verdict_names[r->verdict], x.value, where);
        r->verdict = CLAIM_UNSPECIFIC;
    }
    return KVF_OK;
}

static int judge_guards(const struct claim *c, struct claims_folder *f, const struct data *own,
                        struct claim_result *r, struct kvf_diag *d)
{
    int err = c->control.there ? judge_control(c, f, r, d) : KVF_OK;
    if (err)
        return err;
    if (c->no_null)
        r->null_check = "not possible";
    else if (c->null_check.there)
        err = judge_null(c, f, own, r, d);
    else
        unguard(r, "the register names none");
    return err;
}

int claims_judge(const struct claim *c, struct claims_folder *f, struct claim_result *ret,
                 struct kvf_diag *d)
{
    struct claim_result r = fresh;
    if (c->untestable) {
        r.verdict = r.by_number = CLAIM_UNTESTABLE;
        snprintf(r.why, sizeof r.why, "%s", c->untestable);
        *ret = r;
        return KVF_OK;
    }
    struct data x;
    int err = judge_data(c, f, &x, &r, d);
    r.by_number = r.verdict;
    if (!err)
        err = judge_guards(c, f, &x, &r, d);
    data_free(&x);
    if (!err)
        *ret = r;
    return err;
}

/* A claim with too few units was not tested, and is none of the many. */
static bool is_tested(const struct claim *c, const struct claim_result *r)
{
    int64_t n = c->interval == CLAIM_COLUMNS ? r->documents : r->units;
    return !c->untestable && c->interval != CLAIM_NONE && n >= c->least_n;
}

/* A verdict needs both the number and its difference to the null data. */
static double p_of_verdict(const struct claim_result *r)
{
    return isnan(r->p) ? NAN : fmax(r->p, r->difference.p);
}

int claims_judge_all(const struct claims *c, struct claims_folder *f, struct claim_result *ret,
                     struct kvf_diag *d)
{
    double *p = MEM_NEW(double, (size_t)c->n);
    int err = p ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < c->n; i++) {
        err = claims_judge(&c->claim[i], f, &ret[i], d);
        p[i] = !err && is_tested(&c->claim[i], &ret[i]) ? p_of_verdict(&ret[i]) : NAN;
    }
    if (!err)
        err = stats_fdr(p, (size_t)c->n, p);
    for (int i = 0; !err && i < c->n; i++) {
        struct claim_result *r = &ret[i];
        r->q = p[i];
        if ((decided(r) || r->verdict == CLAIM_UNGUARDED) && r->q >= CLAIM_LEVEL) {
            snprintf(r->why, sizeof r->why, "%s by p alone: q over the register is %.2g",
                     claim_verdict_names[r->by_number], r->q);
            r->verdict = CLAIM_UNDECIDED;
        }
    }
    mem_free(p);
    return err;
}
