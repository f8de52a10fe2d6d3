/* an_heads.c - the kind of each head by stated rules, with the evidence.  TRIM-KV names kinds of
 * heads by looking at maps (section 5.3, figures 4 and 11 to 19); this analysis uses rules on sums
 * of the trace (signature.h, head_kind.h). */
#include <math.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/classes.h"
#include "analyzers/copies.h"
#include "analyzers/head_kind.h"
#include "base/mem.h"

#define CRITERION "mass.90" /* default */

struct options {
    int by; /* a place in by_words */
    const char *criterion, *classes, *needle;
};
static const char *const by_words[] = {"attention", "beta", NULL};
struct row {
    struct signature s;
    enum head_kind kind;
    double score, rule[N_RULES];
    struct copies copies;
    double retrieval_kv, induction_kv; /* maxima over the query heads of its KV head */
};

static void put_real(struct table *out, const char *name, const char *unit, const void *rows,
                     size_t offset, double *v)
{
    for (int64_t r = 0; r < table_rows(out); r++)
        v[r] = *(const double *)((const char *)rows + (size_t)r * sizeof(struct row) + offset);
    table_dense_real(out, name, unit, v);
}

static void put_int(struct table *out, const char *name, const void *rows, size_t offset,
                    int64_t *v)
{
    for (int64_t r = 0; r < table_rows(out); r++)
        v[r] = *(const int64_t *)((const char *)rows + (size_t)r * sizeof(struct row) + offset);
    table_dense_int(out, name, "", v);
}

#define AT(member) offsetof(struct row, member)
static void put_numbers(struct table *out, const struct row *rows, double *v, int64_t *n)
{
    static const char *const rule_names[N_RULES] = {
        "score_sliding_window", "score_several_windows", "score_sink",
        "score_a_shape",        "score_context_switch",  "score_gist",
        "score_number",         "score_instruction",     "score_filler"};
    static const char *const risk[N_HORIZONS] = {"at_risk_64th", "at_risk_16th", "at_risk_4th",
                                                 "at_risk_half"};
    static const char *const alive[N_HORIZONS] = {"alive_64th", "alive_16th", "alive_4th",
                                                  "alive_half"};
    static const char *const group[N_GROUPS] = {"number_tokens", "gist_tokens", "filler_tokens"};
    put_real(out, "score", "", rows, AT(score), v);
    put_real(out, "window", "step", rows, AT(s.f[SIGNATURE_WINDOW]), v);
    put_real(out, "sink_mass", "", rows, AT(s.f[SIGNATURE_SINK]), v);
    for (int f = 0; f < N_SIGNATURE; f++)
        if (f != SIGNATURE_WINDOW && f != SIGNATURE_SINK)
            put_real(out, signature_name(f), signature_unit(f), rows,
                     AT(s.f) + (size_t)f * sizeof(double), v);
    put_int(out, "tokens", rows, AT(s.tokens), n);
    put_int(out, "never_tokens", rows, AT(s.never), n);
    for (size_t k = 0; k < N_HORIZONS; k++) {
        put_int(out, risk[k], rows, AT(s.at_risk) + k * sizeof(int64_t), n);
        put_int(out, alive[k], rows, AT(s.alive) + k * sizeof(int64_t), n);
    }
    for (size_t k = 0; k < N_GROUPS; k++)
        put_int(out, group[k], rows, AT(s.in_group) + k * sizeof(int64_t), n);
    for (size_t k = 0; k < N_RULES; k++)
        put_real(out, rule_names[k], "", rows, AT(rule) + k * sizeof(double), v);
}

static void put_copies(struct table *out, const struct copies_text *x, const struct row *rows,
                       double *v, int64_t *n)
{
    put_real(out, "previous", "", rows, AT(copies.previous), v);
    put_real(out, "duplicate", "", rows, AT(copies.duplicate), v);
    put_real(out, "induction", "", rows, AT(copies.induction), v);
    put_real(out, "induction_sum", "", rows, AT(copies.induction_sum), v);
    put_real(out, "induction_kv", "", rows, AT(induction_kv), v);
    table_meta_num(out, "previous_uniform", x->uniform.previous);
    table_meta_num(out, "duplicate_uniform", x->uniform.duplicate);
    table_meta_num(out, "induction_uniform", x->uniform.induction);
    table_meta_num(out, "induction_sum_uniform", x->uniform.induction_sum);
    if (!x->needle)
        return;
    put_int(out, "copied", rows, AT(copies.copied), n);
    put_real(out, "retrieval", "", rows, AT(copies.retrieval), v);
    put_real(out, "retrieval_kv", "", rows, AT(retrieval_kv), v);
    table_meta_str(out, "needle", x->needle);
    table_meta_num(out, "needle_tokens", (double)x->needle_tokens);
    table_meta_num(out, "answer_tokens", (double)x->answer_tokens);
    table_meta_num(out, "needle_recall", x->recall);
}

/* copies: NULL if the trace has no such evidence. */
static int put_columns(struct table *out, const struct head_list *heads, const struct row *rows,
                       const struct copies_source *copies)
{
    size_t n = (size_t)heads->n;
    const char **kind = MEM_NEW(const char *, n);
    double *v = MEM_NEW(double, n);
    int64_t *w = MEM_NEW(int64_t, n);
    int64_t unknown = 0;
    for (size_t r = 0; kind && r < n; r++) {
        kind[r] = head_kind_name(rows[r].kind);
        unknown += rows[r].kind == HEAD_UNKNOWN;
    }
    if (kind && v && w) {
        table_meta_num(out, "undefined", (double)unknown);
        put_heads(out, heads);
        table_dense_str(out, "kind", "", kind);
        put_numbers(out, rows, v, w);
        if (copies)
            put_copies(out, copies_text(copies), rows, v, w);
    }
    int err = kind && v && w ? table_err(out) : KVF_E_NOMEM;
    mem_free_all((void *)kind, v, w);
    return err;
}

static int fill(struct signature_source *s, int n, struct row *rows, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int h = 0; !err && h < n; h++) {
        struct signature all[3];
        err = signature_read(s, h, all, d);
        if (err)
            break;
        rows[h].s = all[0];
        rows[h].kind = head_kind_of(&all[0], rows[h].rule, &rows[h].score);
    }
    return err;
}

static double larger(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

/* Gives each query head the largest scores of the query heads that read the same KV head. Only
 * chosen heads count. */
static void find_maxima(const struct kvf_trace *t, const struct head_list *heads, struct row *rows)
{
    for (int h = 0; h < heads->n; h++) {
        const struct head *own = &heads->head[h];
        int G = kvf_n_heads(t, own->layer, KVF_SPACE_QUERY);
        int H = kvf_n_heads(t, own->layer, KVF_SPACE_KV), each = H && G >= H ? G / H : 1;
        rows[h].retrieval_kv = rows[h].induction_kv = NAN;
        for (int k = 0; k < heads->n; k++)
            if (heads->head[k].layer == own->layer
                && heads->head[k].index / each == own->index / each) {
                const struct copies *c = &rows[k].copies;
                rows[h].retrieval_kv = larger(rows[h].retrieval_kv, c->retrieval);
                rows[h].induction_kv = larger(rows[h].induction_kv, c->induction);
            }
    }
}

static int fill_copies(struct kvf_trace *t, struct copies_source *copies,
                       const struct head_list *heads, struct row *rows, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int h = 0; !err && copies && h < heads->n; h++)
        err = copies_read(copies, &heads->head[h], &rows[h].copies, d);
    if (!err && copies)
        find_maxima(t, heads, rows);
    return err;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    const struct options *o = args->options;
    const struct head_list none = {0}, *heads = &none;
    struct signature_source *s = NULL;
    struct copies_source *copies = NULL;
    struct row *rows = NULL;
    struct table *out = NULL;
    int64_t a, b, T = kvf_n_steps(traces[0]);
    (void)n_traces;
    bool beta = o->by == 1;
    if (beta && strcmp(o->criterion, CRITERION) != 0)
        return kvf_fail(d, KVF_E_ARG, "--criterion has no effect with --by beta; leave it out");
    if (beta && o->needle)
        return kvf_fail(d, KVF_E_ARG, "--needle has no effect with --by beta; leave it out");
    int err = signature_open(traces[0], args, beta ? NULL : o->criterion, o->classes, &s, d);
    if (!err)
        err = tokens_select(traces[0], args, &a, &b, d);
    if (!err && !beta)
        err = copies_open(traces[0], o->needle, a, b, &copies, d);
    if (err)
        goto done;
    if (T)
        heads = signature_heads(s);
    rows = MEM_NEW(struct row, (size_t)heads->n);
    out = table_create("heads", heads->n);
    err = rows && out ? fill(s, heads->n, rows, d) : KVF_E_NOMEM;
    if (!err)
        err = fill_copies(traces[0], copies, heads, rows, d);
    if (!err)
        err = put_provenance(out, traces[0], d);
    if (err)
        goto done;
    put_tokens(out, a, b, T);
    if (beta)
        table_meta_str(out, "by", by_words[o->by]);
    else
        table_meta_str(out, "criterion", o->criterion);
    if (!beta && kvf_find(traces[0], "evict_step") >= 0 && !saw_everything(traces[0], (uint32_t)T))
        table_meta_str(
            out, "note",
            "the run evicts entries, and heads are classified by their attention to the entries "
            "that were still cached; a run of --method full shows all their attention");
    err = put_columns(out, heads, rows, copies);

done:
    mem_free(rows);
    copies_close(copies);
    signature_close(s);
    return table_deliver(out, err, ret_table);
}

/* Writes how many heads reach a published limit, and the head with the largest score. */
static void describe_score(const struct table *t, const char *name, const char *kind, double limit,
                           struct buf *out)
{
    int column = table_find(t, name), head = table_find(t, "head");
    int64_t n = 0, best = -1;
    for (int64_t r = 0; r < table_rows(t); r++) {
        double score = column < 0 ? NAN : table_real(t, column, r);
        if (isnan(score))
            continue;
        n += score >= limit;
        if (best < 0 || score > table_real(t, column, best))
            best = r;
    }
    if (best >= 0)
        buf_printf(out, "%lld %s heads (%s >= %g), largest %s with %.3f\n", (long long)n, kind,
                   name, limit, table_str(t, head, best), table_real(t, column, best));
}

static void describe_copies(const struct table *t, struct buf *out)
{
    if (table_find(t, "induction") >= 0)
        buf_printf(out, "copies of tokens: uniform attention would give induction %.4f\n",
                   table_meta_real(t, "induction_uniform", NAN));
    describe_score(t, "induction", "induction", COPIES_INDUCTION, out);
    if (table_meta(t, "needle"))
        buf_printf(out, "needle '%s': %s tokens; the answer has %.0f %% of its words%s\n",
                   table_meta(t, "needle"), table_meta(t, "needle_tokens"),
                   100 * table_meta_real(t, "needle_recall", 0),
                   table_meta_real(t, "needle_recall", 0) > COPIES_SUCCESS
                       ? ""
                       : ": no retrieval score, which needs more than half");
    describe_score(t, "retrieval", "retrieval", COPIES_RETRIEVAL, out);
}

static void describe(const struct table *t, struct buf *out)
{
    int kind = table_find(t, "kind"), window = table_find(t, "window");
    int sink = table_find(t, "sink_mass");
    buf_printf(out, "kinds of %lld %s, by rules (docs/reference/analyses/heads.md)\n",
               (long long)table_rows(t),
               table_meta(t, "by") ? "KV heads by their retention" : "query heads");
    for (int k = 0; k < N_HEAD_KINDS; k++) {
        const char *name = head_kind_name((enum head_kind)k);
        double windows = 0, sinks = 0;
        int64_t n = 0;
        for (int64_t r = 0; r < table_rows(t); r++) {
            if (strcmp(table_str(t, kind, r), name) != 0)
                continue;
            n++;
            windows += table_real(t, window, r);
            sinks += table_real(t, sink, r);
        }
        if (n)
            buf_printf(out, "%-16s %5lld  mean window %8.1f steps, mean sink mass %.3f\n", name,
                       (long long)n, windows / (double)n, sinks / (double)n);
    }
    describe_copies(t, out);
}

const struct analyzer an_heads = {
    .name = "heads",
    .summary = "classify heads: sink, sliding window, A-shape and others",
    .example = "kvfate heads run.kvf -o heads.tsv",
    OPTIONS({OPT_WORD, 0, "by", offsetof(struct options, by), "WHAT",
             "of query heads by attention, or of KV heads by the retention that gates give",
             "attention", .words = by_words},
            {OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
             "selected set that defines the last use: top64 ... mass.99", CRITERION},
            CLASSES_OPTION(struct options, classes),
            {OPT_STR, 0, "needle", offsetof(struct options, needle), "NAME",
             "span of the prompt for which copies in the answer give retrieval scores",
             .absent = "needle"}),
    COLUMNS(SIGNATURE_COLUMNS("always"),
            COPIES_COLUMNS("the scores of retrieval and induction heads"),
            {"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED,
             "with --by beta; replaces all other limits"}),
    .run = run,
    .describe = describe,
    POOL(KEYS("head", "layer", "index"), {"window"}, {"sink_mass"}, {"recent"}, {"spread"},
         {"last_use_sparsity"}, {"entropy"}, {"number"}, {"gist"}, {"filler"}, {"prompt"},
         {"never", "never_tokens", "tokens"}, {"survival_64th", "alive_64th", "at_risk_64th"},
         {"survival_16th", "alive_16th", "at_risk_16th"},
         {"survival_4th", "alive_4th", "at_risk_4th"},
         {"survival_half", "alive_half", "at_risk_half"}, {"previous", .optional = true},
         {"duplicate", .optional = true}, {"induction", .optional = true},
         {"induction_kv", .optional = true}, {"retrieval", .optional = true},
         {"retrieval_kv", .optional = true}),
};
