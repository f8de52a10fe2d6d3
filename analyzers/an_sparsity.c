/* an_sparsity.c - sparsity of a head: 1 - 2 / (T (T + 1)) * sum_{i <= t} alpha_ti
 * (TRIM-KV).  kind alpha: alpha_ti = [i <= t < evict_step_i].  kind last-use: the
 * same with evict_step := i + last_selected + 1, never selected = nothing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "base/mem.h"

enum { OPT_KIND, OPT_CRITERION, OPT_TRIANGLE };
static const struct analyzer_option options[] = {
    {"kind", "K", "alpha", "alpha (evictions) or last-use"},
    {"criterion", "C", "top64", "selected set of kind last-use"},
    {"triangle", "T", "le", "sum over i <= t (le) or, as printed in the paper, i < t (lt)"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_sparsity;

/* sum over tokens of the steps at which they count; from: 0 with the diagonal. */
static double kept_steps(const double *v, uint32_t T, bool alpha, bool lt)
{
    double sum = 0;
    for (uint32_t i = 0; i < T; i++) {
        double end = alpha ? fmin(v[i], T) : (v[i] < 0 ? i : i + v[i] + 1);
        double n = end - i - (lt && end > i);
        sum += n > 0 ? n : 0;
    }
    return sum;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    const char *kind = option_text(&an_sparsity, args, OPT_KIND);
    const char *criterion = option_text(&an_sparsity, args, OPT_CRITERION);
    const char *triangle = option_text(&an_sparsity, args, OPT_TRIANGLE);
    bool alpha = strcmp(kind, "alpha") == 0, lt = strcmp(triangle, "lt") == 0;
    char name[KVF_NAME_MAX + 16] = "evict_step";
    struct head_list heads;
    int column;
    (void)n_traces;
    if (!alpha && strcmp(kind, "last-use") != 0)
        return kvf_fail(d, KVF_E_ARG, "--kind is alpha or last-use, not '%s'", kind);
    if (!lt && strcmp(triangle, "le") != 0)
        return kvf_fail(d, KVF_E_ARG, "--triangle is le or lt, not '%s'", triangle);
    if (!alpha)
        snprintf(name, sizeof name, "last_selected.%.40s", criterion);
    int err = column_need(t, name, alpha ? "evict" : "survival", &column, d);
    if (!err)
        err = heads_select(t, alpha ? KVF_SPACE_KV : KVF_SPACE_QUERY, args->heads, &heads, d);
    if (err)
        return err;
    uint32_t T = kvf_n_steps(t);
    double *v = MEM_NEW(double, T), *value = MEM_NEW(double, (size_t)heads.n);
    struct table *out = table_create("sparsity", heads.n);
    if (!v || !value || !out)
        err = KVF_E_NOMEM;
    for (int h = 0; !err && h < heads.n; h++) {
        const struct head *x = &heads.head[h];
        if (T)
            err = alpha ? read_evict(t, column, x, T, v, d)
                        : kvf_read_f64(t, column, x->layer, x->index, 0, T, v, d);
        if (!err)
            value[h] = T ? 1.0 - 2.0 * kept_steps(v, T, alpha, lt) / ((double)T * (T + 1.0)) : NAN;
    }
    if (!err) {
        put_provenance(out, t);
        table_meta_str(out, "kind", kind);
        if (!alpha)
            table_meta_str(out, "criterion", criterion);
        table_meta_str(out, "triangle", lt ? "i < t" : "i <= t");
        put_heads(out, &heads);
        const char *const kinds[1] = {alpha ? "alpha" : "last-use"};
        table_cycle_str(out, "kind", "", kinds, 1);
        table_dense_real(out, "sparsity", "", value);
        err = table_err(out);
    }
    mem_free(v);
    mem_free(value);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    int col = table_find(t, "sparsity"), name = table_find(t, "head");
    int64_t n = table_rows(t), lo = 0, hi = 0;
    double sum = 0;
    for (int64_t r = 0; r < n; r++) {
        double v = table_real(t, col, r);
        sum += v;
        if (v < table_real(t, col, lo))
            lo = r;
        if (v > table_real(t, col, hi))
            hi = r;
    }
    buf_printf(out, "sparsity (%s, %s): mean %.4f over %lld heads\n", table_meta(t, "kind"),
               table_meta(t, "triangle"), n ? sum / (double)n : NAN, (long long)n);
    buf_printf(out, "least %s %.4f, most %s %.4f\n", table_str(t, name, lo), table_real(t, col, lo),
               table_str(t, name, hi), table_real(t, col, hi));
}

const struct analyzer an_sparsity = {
    .name = "sparsity",
    .summary = "share of the attention triangle that was not kept or not used",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
};
