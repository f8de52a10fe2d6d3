/* an_retention.c - how long each token was of use.  Traces without gates give the
 * last-use map: the largest age at which the token was in the selected set of a
 * query.  It is an observation, not a learned retention score: beta stays NaN. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "base/mem.h"

enum { OPT_CRITERION };
static const struct analyzer_option options[] = {
    {"criterion", "C", "top64", "selected set: top64 ... top512, mass.90 ... mass.99"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_retention;

static struct table *build(struct kvf_trace *t, const struct head_list *heads,
                           const char *criterion, const double *age, const int64_t *token,
                           int64_t n)
{
    static const double nan_value[1] = {NAN};
    static const char *const source[1] = {"last-use"};
    struct table *out = table_create("retention", heads->n * n);
    int64_t one = heads->n * n > 0;
    int64_t *last = MEM_NEW(int64_t, (size_t)(heads->n * n));
    if (!out || !last) {
        table_destroy(out);
        mem_free(last);
        return NULL;
    }
    for (int64_t i = 0; i < heads->n * n; i++)
        last[i] = (int64_t)age[i];
    put_provenance(out, t);
    table_meta_str(out, "criterion", criterion);
    table_meta_str(out, "source", "last-use");
    table_cycle_str(out, "source", "", source, one);
    put_heads(out, heads);
    table_cycle_int(out, "token", "", token, n);
    table_cycle_int(out, "birth", "step", token, n);
    table_cycle_real(out, "log_beta", "nat", nan_value, one);
    table_cycle_real(out, "beta", "", nan_value, one);
    table_cycle_real(out, "mean_retention", "", nan_value, one);
    table_dense_int(out, "last_use_age", "step", last);
    mem_free(last);
    return out;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    const char *criterion = option_text(&an_retention, args, OPT_CRITERION);
    char name[KVF_NAME_MAX + 16];
    struct head_list heads;
    int column;
    int64_t a, b;
    (void)n_traces;
    snprintf(name, sizeof name, "last_selected.%.40s", criterion);
    int err = column_need(t, name, "survival", &column, d);
    if (!err)
        err = tokens_select(t, args, &a, &b, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_QUERY, args->heads, &heads, d);
    if (err)
        return err;
    int64_t n = b - a;
    double *age = MEM_NEW(double, (size_t)(heads.n * n));
    int64_t *token = MEM_NEW(int64_t, (size_t)n);
    if (!age || !token)
        err = KVF_E_NOMEM;
    for (int64_t i = 0; !err && i < n; i++)
        token[i] = a + i;
    for (int h = 0; !err && n && h < heads.n; h++)
        err = kvf_read_f64(t, column, heads.head[h].layer, heads.head[h].index, (uint32_t)a,
                           (uint32_t)n, age + h * n, d);
    struct table *out = err ? NULL : build(t, &heads, criterion, age, token, n);
    if (!err)
        err = out ? table_err(out) : KVF_E_NOMEM;
    mem_free(age);
    mem_free(token);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    int age = table_find(t, "last_use_age");
    int64_t n = table_rows(t), never = 0;
    double sum = 0;
    for (int64_t r = 0; r < n; r++) {
        double v = table_real(t, age, r);
        never += v < 0;
        sum += v > 0 ? v : 0;
    }
    buf_printf(out, "last-use map (criterion %s): no gates in this trace\n",
               table_meta(t, "criterion"));
    buf_printf(
        out, "%lld head-token pairs; never selected: %.1f %%; mean last-use age %.1f steps\n",
        (long long)n, n ? 100.0 * (double)never / (double)n : 0.0, n ? sum / (double)n : 0.0);
}

const struct analyzer an_retention = {
    .name = "retention",
    .summary = "how long each token stayed in use (last-use map)",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
};
