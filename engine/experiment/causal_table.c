/* causal_table.c - makes the tables of `kvfate ablate --as causal`. */
#include <math.h>

#include "base/mem.h"
#include "base/stats.h"
#include "engine/experiment/causal.h"

enum { SAMPLES = 20000, SEED = 1 }; /* of the permutation test */

const char *const causal_group_name[CAUSAL_N_GROUPS] = {"all", "looking", "other"};
const char *const causal_what_name[] = {"nothing", "evidence", "distractors", "random", "sham"};

enum column {
    DLOGP,
    DLOGP_LOW,
    DLOGP_HIGH,
    DLOGP_P,
    CONTRAST,
    CONTRAST_LOW,
    CONTRAST_HIGH,
    CONTRAST_P,
    RIGHT,
    RIGHT_LOW,
    RIGHT_HIGH,
    LOGP,
    MASS,
    ENTRIES,
    SHARE,
    N_COLUMNS
};

static const struct {
    const char *name, *unit;
} column[N_COLUMNS] = {
    {"dlogp", "nats"},    {"dlogp_low", "nats"},    {"dlogp_high", "nats"},    {"dlogp_p", ""},
    {"contrast", "nats"}, {"contrast_low", "nats"}, {"contrast_high", "nats"}, {"contrast_p", ""},
    {"right", ""},        {"right_low", ""},        {"right_high", ""},        {"logp", "nats"},
    {"mass", ""},         {"entries", ""},          {"evidence_share", ""},
};

static const struct causal_outcome *at(const struct causal_result *r, int task, int group, int row)
{
    return &r->outcome[((size_t)task * CAUSAL_N_GROUPS + (size_t)group) * CAUSAL_N_ROWS
                       + (size_t)row];
}

/* Returns the mean of `field` over the tasks. v is scratch of [n_tasks]. */
static double mean_of(const struct causal_result *r, int group, int row,
                      double (*field)(const struct causal_outcome *), double *v)
{
    for (int k = 0; k < r->n_tasks; k++)
        v[k] = field(at(r, k, group, row));
    return stats_mean(v, (size_t)r->n_tasks);
}

static double logp(const struct causal_outcome *o)
{
    return o->logp;
}

static double dlogp(const struct causal_outcome *o)
{
    return o->dlogp;
}

static double mass(const struct causal_outcome *o)
{
    return o->mass;
}

static double entries(const struct causal_outcome *o)
{
    return o->entries;
}

static double share(const struct causal_outcome *o)
{
    return o->share;
}

/* Sets four columns from c on: mean, CI (two) and p value of v. */
static void put(double *cell, size_t ld, enum column c, const double *v, size_t n)
{
    double *low = &cell[((size_t)c + 1) * ld], *high = &cell[((size_t)c + 2) * ld];
    cell[(size_t)c * ld] = stats_mean(v, n);
    *low = *high = NAN;
    if (n >= STATS_LEAST)
        stats_t_interval(v, n, low, high);
    cell[((size_t)c + 3) * ld] = stats_sign_flips(v, n, SAMPLES, SEED);
}

/* Returns true if two rows removed equal mass from the heads, within a tenth of the larger one. */
static bool matched(const struct causal_result *r, int group, int row, int against, double *v)
{
    double a = mean_of(r, group, row, mass, v), b = mean_of(r, group, against, mass, v);
    return fabs(a - b) <= .1 * fmax(a, b);
}

/* Fills a row. cell is its place in the first column; columns are ld apart. v is scratch of
 * [n_tasks]. */
static void fill(const struct causal_result *r, int group, int row, double *cell, size_t ld,
                 double *v)
{
    int64_t right = 0;
    size_t n = (size_t)r->n_tasks;
    int against = causal_rows[row].against;
    bool fair = against >= 0 && matched(r, group, row, against, v);
    mean_of(r, group, row, dlogp, v);
    put(cell, ld, DLOGP, v, n);
    for (int k = 0; k < r->n_tasks; k++) {
        right += at(r, k, group, row)->right;
        if (against >= 0)
            v[k] -= at(r, k, group, against)->dlogp;
    }
    for (int c = CONTRAST; c <= CONTRAST_P; c++)
        cell[(size_t)c * ld] = NAN;
    if (fair)
        put(cell, ld, CONTRAST, v, n);
    cell[RIGHT * ld] = (double)right / (double)n;
    stats_wilson(right, (int64_t)n, &cell[RIGHT_LOW * ld], &cell[RIGHT_HIGH * ld]);
    cell[LOGP * ld] = mean_of(r, group, row, logp, v);
    cell[MASS * ld] = mean_of(r, group, row, mass, v);
    cell[ENTRIES * ld] = mean_of(r, group, row, entries, v);
    cell[SHARE * ld] = mean_of(r, group, row, share, v);
}

static void add_meta(struct table *t, const struct causal_result *r)
{
    const struct effect *e = r->e;
    table_meta_str(t, "model", e->engine->config.name);
    table_meta_str(t, "model_hash", e->engine->hash);
    table_meta_num(t, "tasks", r->n_tasks);
    table_meta_str(t, "kv_type", kv_type_name(e->kv_type));
    engine_put_scale(e->engine, t);
    table_meta_str(t, "interval", "95 %, Student's t over 4 tasks or more; of right: Wilson");
    table_meta_str(t, "p", "two-sided, signs of the tasks' values flipped");
}

/* Adds the columns group, removed and dose for n rows that start with the first row of a group. */
static int add_names(struct table *t, int64_t n)
{
    const char **group = MEM_NEW(const char *, (size_t)n),
               **what = MEM_NEW(const char *, (size_t)n);
    double *dose = MEM_NEW(double, (size_t)n);
    int err = group && what && dose ? KVF_OK : KVF_E_NOMEM;
    for (int64_t i = 0; !err && i < n; i++) {
        const struct causal_row *row = &causal_rows[i % CAUSAL_N_ROWS];
        group[i] = causal_group_name[i / CAUSAL_N_ROWS % CAUSAL_N_GROUPS];
        what[i] = causal_what_name[row->what];
        dose[i] = row->dose;
    }
    if (!err) {
        table_dense_str(t, "group", "", group);
        table_dense_str(t, "removed", "", what);
        table_dense_real(t, "dose", "", dose);
    }
    mem_free(group);
    mem_free(what);
    mem_free(dose);
    return err;
}

struct table *causal_table(const struct causal_result *r)
{
    enum { ROWS = (int)CAUSAL_N_GROUPS * (int)CAUSAL_N_ROWS };
    struct table *t = table_create("causal", ROWS);
    double *cell = MEM_NEW(double, (size_t)N_COLUMNS *ROWS);
    double *v = MEM_NEW(double, (size_t)r->n_tasks);
    const char *against[ROWS], *fair[ROWS];
    int err = t && cell && v ? add_names(t, ROWS) : KVF_E_NOMEM;
    for (int i = 0; !err && i < ROWS; i++) {
        int row = i % CAUSAL_N_ROWS, other = causal_rows[row].against;
        against[i] = other < 0 ? "" : causal_what_name[causal_rows[other].what];
        fill(r, i / CAUSAL_N_ROWS, row, cell + i, ROWS, v);
        fair[i] = other < 0 ? "" : "no";
        if (other >= 0 && matched(r, i / CAUSAL_N_ROWS, row, other, v))
            fair[i] = "yes";
    }
    if (!err) {
        add_meta(t, r);
        for (int c = 0; c < N_COLUMNS; c++) {
            if (c == CONTRAST) {
                table_dense_str(t, "against", "", against);
                table_dense_str(t, "matched", "", fair);
            }
            table_dense_real(t, column[c].name, column[c].unit, cell + (size_t)c * ROWS);
        }
    }
    mem_free(cell);
    mem_free(v);
    return table_made(t, err);
}

struct table *causal_table_tasks(const struct causal_result *r)
{
    static const struct {
        const char *name, *unit;
        double (*field)(const struct causal_outcome *);
    } part[] = {{"dlogp", "nats", dlogp},
                {"logp", "nats", logp},
                {"mass", "", mass},
                {"entries", "", entries},
                {"evidence_share", "", share}};
    int64_t each = (int64_t)CAUSAL_N_GROUPS * CAUSAL_N_ROWS, n = r->n_tasks * each;
    struct table *t = table_create("causal-tasks", n);
    double *v = MEM_NEW(double, (size_t)n);
    int64_t *right = MEM_NEW(int64_t, (size_t)n);
    int err = t && v && right ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        table_block_str(t, "task", "", r->name, r->n_tasks);
        err = add_names(t, n);
    }
    for (size_t p = 0; !err && p < sizeof part / sizeof *part; p++) {
        for (int64_t i = 0; i < n; i++)
            v[i] = part[p].field(&r->outcome[i]);
        table_dense_real(t, part[p].name, part[p].unit, v);
    }
    for (int64_t i = 0; !err && i < n; i++)
        right[i] = r->outcome[i].right;
    if (!err) {
        table_dense_int(t, "right", "", right);
        add_meta(t, r);
    }
    mem_free(v);
    mem_free(right);
    return table_made(t, err);
}
