/* an_tokens.c - one row per token: its text, and how long the chosen KV heads kept it; with
 * --by-head one row per head and token; several traces follow in order.
 * mean_residency: mean over heads of (min(evict_step, T) - i) / (T - i).
 * kept: share of the heads that cache it at the end; one that was cut after
 * the last query (evict_step = T) was seen by all queries and yet is not kept.
 * mean_beta, mean_retention: means over heads of the retention gates. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/protocol.h"
#include "analyzers/records.h"
#include "analyzers/selected.h"
#include "analyzers/token_text.h"
#include "base/mem.h"
#include "base/whole.h"
#include "libtrace/run_header.h"

enum { MOST_TRACES = 16 };

struct options {
    const char *classes, *criterion;
    bool by_head;
};

/* The fate of a token in a head; in several heads that differ: mixed. */
enum state { KEPT, EVICTED, SINK, RECENT, NEW, MIXED, UNKNOWN, N_STATES };
static const char *const state_names[N_STATES] = {"kept", "evicted", "sink", "recent",
                                                  "new",  "mixed",   ""};

/* Columns of the run that a trace may lack. */
static const char *const shared_columns[] = {"tokens.id", "tokens.role"};
enum { N_SHARED = sizeof shared_columns / sizeof *shared_columns };

/* One trace. */
struct source {
    struct kvf_trace *t;
    int evict, log_beta, saliency, age; /* columns, or -1 */
    struct head_list heads;
    int64_t a, n, T; /* tokens [a, a + n) of T */
    int64_t sinks, recent;
    bool cuts; /* its method ever evicts */
    char name[LABEL_TEXT], model[96];
};

struct row {
    double nll, kl, residency, kept, beta, retention, saliency, age;
    int64_t trace, layer, index, token, id;
    const char *text, *joined, *class, *role, *state, *head;
    enum state fate;
};

/* Rows panel by panel: a head or all heads of a trace. */
struct rows {
    struct row *row;
    double *value;  /* of a column of one head: [T] */
    uint8_t *class; /* [T] */
};

/* ---- before the rows */

static int read_method(struct source *s, struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = trace_number(s->t, "method", "sinks", 0, &s->sinks, d);
    if (!err)
        err = trace_number(s->t, "method", "recent", 0, &s->recent, d);
    if (!err)
        err = run_header(s->t, &root, d);
    if (err)
        return err;
    const char *name = json_str(json_get(json_get(root, "method"), "name"), "?");
    s->cuts = strcmp(name, "full") != 0;
    run_label(s->name, root, ", budget ");
    snprintf(s->model, sizeof s->model, "%.90s",
             json_str(json_get(json_get(root, "model"), "name"), "?"));
    json_free(root);
    return KVF_OK;
}

/* Of a trace of saliencies no cache was recorded. */
static int find_columns(struct source *s, const char *criterion, struct kvf_diag *d)
{
    char name[KVF_NAME_MAX + 16];
    snprintf(name, sizeof name, "last_selected.%.40s", criterion ? criterion : "top64");
    s->evict = kvf_find(s->t, "evict_step");
    s->log_beta = kvf_find(s->t, "log_beta");
    s->saliency = kvf_find(s->t, "saliency");
    s->age = kvf_find(s->t, name);
    struct lacks l = {.n = 0};
    if (s->saliency < 0 && s->evict < 0)
        lacks_add(&l, s->t, "evict_step");
    if (criterion && s->age < 0)
        lacks_add(&l, s->t, name);
    return columns_refuse(&l, NULL, KVF_OK, d);
}

static int open_source(struct source *s, struct kvf_trace *t, const struct analyzer_args *args,
                       struct kvf_diag *d)
{
    int64_t b;
    s->t = t;
    s->T = kvf_n_steps(t);
    int err = find_columns(s, ((const struct options *)args->options)->criterion, d);
    if (!err)
        err = tokens_select(t, args, &s->a, &b, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_KV, args->heads, &s->heads, d);
    if (err)
        return err;
    s->n = b - s->a;
    return read_method(s, d);
}

/* ---- a head's part of n rows from `at` on; sums, for the mean over heads */

static int read(struct rows *x, const struct source *s, int column, int layer, int index,
                struct kvf_diag *d)
{
    return kvf_read_f64(s->t, column, layer, index, 0, (uint32_t)s->T, x->value, d);
}

/* Entries that came at or after the last cut of the head were in no cut.  step: [T]. */
static enum state state_of(const struct source *s, const double *step, int64_t i, double last)
{
    if (!isinf(step[i]))
        return EVICTED;
    if (!s->cuts)
        return KEPT;
    if (i < s->sinks)
        return SINK;
    if (i >= s->T - s->recent)
        return RECENT;
    return (double)i >= last ? NEW : KEPT;
}

static int add_fates(struct rows *x, const struct source *s, const struct head *h, bool first,
                     int64_t at, struct kvf_diag *d)
{
    double last = 0;
    int err = read_evict(s->t, s->evict, h, (uint32_t)s->T, x->value, d);
    for (int64_t i = 0; !err && i < s->T; i++)
        last = isinf(x->value[i]) ? last : fmax(last, x->value[i]);
    for (int64_t k = 0; !err && k < s->n; k++) {
        int64_t i = s->a + k, T = s->T;
        enum state now = state_of(s, x->value, i, last), *was = &x->row[at + k].fate;
        x->row[at + k].residency += (fmin(x->value[i], (double)T) - (double)i) / (double)(T - i);
        x->row[at + k].kept += isinf(x->value[i]) != 0;
        *was = first || *was == now ? now : MIXED;
    }
    return err;
}

static int add_gates(struct rows *x, const struct source *s, const struct head *h, int64_t at,
                     struct kvf_diag *d)
{
    int err = read(x, s, s->log_beta, h->layer, h->index, d);
    for (int64_t k = 0; !err && k < s->n; k++) {
        x->row[at + k].beta += exp(x->value[s->a + k]);
        x->row[at + k].retention += mean_retention(x->value[s->a + k], s->a + k, s->T);
    }
    return err;
}

static int add_saliency(struct rows *x, const struct source *s, const struct head *h, int64_t at,
                        struct kvf_diag *d)
{
    int err = read(x, s, s->saliency, h->layer, h->index, d);
    for (int64_t k = 0; !err && k < s->n; k++)
        x->row[at + k].saliency += x->value[s->a + k];
    return err;
}

/* The largest of all heads; -1: never. */
static int add_ages(struct rows *x, const struct source *s, const struct head *h, int64_t at,
                    struct kvf_diag *d)
{
    int err = KVF_OK, share = kvf_n_heads(s->t, h->layer, KVF_SPACE_QUERY)
                              / kvf_n_heads(s->t, h->layer, KVF_SPACE_KV);
    for (int g = h->index * share; !err && g < (h->index + 1) * share; g++) {
        err = read(x, s, s->age, h->layer, g, d);
        for (int64_t k = 0; !err && k < s->n; k++)
            x->row[at + k].age = fmax(x->row[at + k].age, x->value[s->a + k]);
    }
    return err;
}

static int add_head(struct rows *x, const struct source *s, const struct head *h, bool first,
                    int64_t at, struct kvf_diag *d)
{
    int err = s->evict >= 0 ? add_fates(x, s, h, first, at, d) : KVF_OK;
    if (!err && s->log_beta >= 0)
        err = add_gates(x, s, h, at, d);
    if (!err && s->saliency >= 0)
        err = add_saliency(x, s, h, at, d);
    return !err && s->age >= 0 ? add_ages(x, s, h, at, d) : err;
}

/* Heads [from, to) of a source as one panel. */
static int fill_panel(struct rows *x, const struct source *s, int from, int to, int64_t at,
                      struct kvf_diag *d)
{
    const struct head *head = &s->heads.head[from];
    bool one = to - from == 1;
    int err = KVF_OK;
    for (int64_t r = at; r < at + s->n; r++) {
        x->row[r].age = s->age < 0 ? NAN : -1;
        x->row[r].fate = UNKNOWN;
    }
    for (int h = from; !err && h < to; h++)
        err = add_head(x, s, &s->heads.head[h], h == from, at, d);
    for (int64_t r = at; r < at + s->n; r++) {
        x->row[r].residency = s->evict < 0 ? NAN : x->row[r].residency / (to - from);
        x->row[r].kept = s->evict < 0 ? NAN : x->row[r].kept / (to - from);
        x->row[r].beta = s->log_beta < 0 ? NAN : x->row[r].beta / (to - from);
        x->row[r].retention = s->log_beta < 0 ? NAN : x->row[r].retention / (to - from);
        x->row[r].saliency = s->saliency < 0 ? NAN : x->row[r].saliency / (to - from);
        x->row[r].state = state_names[x->row[r].fate];
        x->row[r].head = one ? head->name : "all";
        x->row[r].layer = one ? head->layer : -1;
        x->row[r].index = one ? head->index : -1;
    }
    return err;
}

/* ---- values that all heads of a trace share */

static int read_shared(struct rows *x, const struct source *s, int number, const struct classes *c,
                       const struct token_text *text, int64_t at, struct kvf_diag *d)
{
    int nll = kvf_find(s->t, "nll"), kl = kvf_find(s->t, "shadow.kl"), err = KVF_OK;
    int id = kvf_find(s->t, "tokens.id");
    int role = kvf_find(s->t, "tokens.role");
    if (id >= 0)
        err = read(x, s, id, 0, 0, d);
    for (int64_t k = 0; !err && k < s->n; k++)
        x->row[at + k].id = id < 0 ? -1 : whole_of(x->value[s->a + k], -1);
    if (!err && role >= 0)
        err = read(x, s, role, 0, 0, d);
    for (int64_t k = 0; !err && k < s->n; k++)
        x->row[at + k].role = role < 0 ? "" : role_name(x->value[s->a + k]);
    if (!err && nll >= 0)
        err = read(x, s, nll, 0, 0, d);
    for (int64_t k = 0; !err && k < s->n; k++) {
        int64_t r = at + k;
        x->row[r].nll = nll < 0 ? NAN : x->value[s->a + k];
        x->row[r].trace = number;
        x->row[r].token = s->a + k;
        x->row[r].text = text->text[k];
        x->row[r].joined = text->joined[k];
        x->row[r].class = classes_name(c, x->class[s->a + k]);
    }
    if (!err && kl >= 0)
        err = read(x, s, kl, 0, 0, d);
    for (int64_t k = 0; !err && k < s->n; k++)
        x->row[at + k].kl = kl < 0 ? NAN : x->value[s->a + k];
    return err;
}

/* A panel begins with the values that all heads of its trace share. */
static void repeat_shared(struct rows *x, int64_t from, int64_t at, int64_t n)
{
    memcpy(x->row + at, x->row + from, (size_t)n * sizeof *x->row);
    for (int64_t r = at; r < at + n; r++)
        x->row[r].residency = x->row[r].kept = x->row[r].beta = x->row[r].retention =
            x->row[r].saliency = 0;
}

static int panels_of(const struct source *s, bool by_head)
{
    return by_head ? s->heads.n : 1;
}

static int fill_source(struct rows *x, const struct source *s, int number, bool by_head,
                       const struct classes *c, const struct token_text *text, int64_t at,
                       struct kvf_diag *d)
{
    int err = classes_of_trace(c, s->t, x->class, d);
    if (!err)
        err = read_shared(x, s, number, c, text, at, d);
    for (int p = 0; !err && p < panels_of(s, by_head); p++) {
        if (p)
            repeat_shared(x, at, at + p * s->n, s->n);
        err = fill_panel(x, s, by_head ? p : 0, by_head ? p + 1 : s->heads.n, at + p * s->n, d);
    }
    return err;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"token", "", TABLE_INT, AT(token)},
    {"id", "", TABLE_INT, AT(id)},
    {"text", "", TABLE_STR, AT(text)},
    {"class", "", TABLE_STR, AT(class)},
    {"role", "", TABLE_STR, AT(role)},
    {"mean_beta", "", TABLE_REAL, AT(beta)},
    {"mean_residency", "", TABLE_REAL, AT(residency)},
    {"kept", "", TABLE_REAL, AT(kept)},
    {"nll", "nat", TABLE_REAL, AT(nll)},
    {"joined", "", TABLE_STR, AT(joined)},
    {"mean_retention", "", TABLE_REAL, AT(retention)},
    {"saliency", "nat", TABLE_REAL, AT(saliency)},
    {"last_use_age", "step", TABLE_REAL, AT(age)},
    {"kl", "nat", TABLE_REAL, AT(kl)},
    {"state", "", TABLE_STR, AT(state)},
    {"trace", "", TABLE_INT, AT(trace)},
    {"head", "", TABLE_STR, AT(head)},
    {"layer", "", TABLE_INT, AT(layer)},
    {"index", "", TABLE_INT, AT(index)},
};

/* The columns that a trace lacks. */
static void put_lacks(struct table *out, const struct source *s, int n)
{
    struct lacks lacks = {.n = 0};
    for (int c = 0; c < N_SHARED; c++) {
        int have = 0;
        while (have < n && kvf_find(s[have].t, shared_columns[c]) >= 0)
            have++;
        if (have < n)
            lacks_add(&lacks, s[have].t, shared_columns[c]);
    }
    lacks_note(&lacks, out);
    lacks_free(&lacks);
}

static void put_meta(struct table *out, const struct source *s, int n, const struct classes *c,
                     const char *criterion)
{
    put_lacks(out, s, n);
    table_meta_num(out, "heads", s->heads.n);
    put_tokens(out, s->a, s->a + s->n, s->T);
    classes_note(c, out);
    if (s->age >= 0)
        table_meta_str(out, "criterion", criterion ? criterion : "top64");
    bool models = false; /* several */
    for (int k = 1; k < n; k++)
        models |= strcmp(s[k].model, s[0].model) != 0;
    for (int k = 0; n > 1 && k < n; k++) {
        char key[24], name[LABEL_TEXT + 96];
        snprintf(key, sizeof key, "trace_%d", k + 1);
        snprintf(name, sizeof name, "%s%s%s", models ? s[k].model : "", models ? ", " : "",
                 s[k].name);
        table_meta_str(out, key, name);
    }
}

struct job {
    struct source source[MOST_TRACES];
    struct token_text text[MOST_TRACES];
    struct rows x;
    struct classes *classes;
    int n;
    bool by_head;
};

static int fill(struct job *j, struct table *out, struct kvf_diag *d)
{
    int64_t at = 0;
    int err = KVF_OK;
    for (int k = 0; !err && k < j->n; k++) {
        const struct source *s = &j->source[k];
        err = token_text_read(s->t, s->a, s->n, &j->text[k]);
        if (!err && s->n)
            err = fill_source(&j->x, s, k + 1, j->by_head, j->classes, &j->text[k], at, d);
        at += s->n * panels_of(s, j->by_head);
    }
    return err ? err
               : records_put(out, j->x.row, sizeof *j->x.row, members,
                             sizeof members / sizeof *members);
}

static void close_job(struct job *j)
{
    mem_free_all(j->x.row, j->x.value, j->x.class);
    classes_close(j->classes);
    for (int k = 0; k < MOST_TRACES; k++) {
        token_text_finish(&j->text[k]);
        heads_free(&j->source[k].heads);
    }
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    const struct options *o = args->options;
    struct table *out = NULL;
    struct job j = {.n = n_traces, .by_head = o->by_head};
    int64_t rows = 0, T = 0;
    int err = KVF_OK;
    for (int k = 0; !err && k < n_traces; k++) {
        struct source *s = &j.source[k];
        err = open_source(s, traces[k], args, d);
        rows += err ? 0 : s->n * panels_of(s, j.by_head);
        T = s->T > T ? s->T : T;
    }
    if (!err)
        err = classes_open(o->classes, &j.classes, d);
    if (err)
        goto done;
    j.x = (struct rows){MEM_NEW(struct row, (size_t)rows), MEM_NEW(double, (size_t)T),
                        MEM_NEW(uint8_t, (size_t)T)};
    out = table_create("tokens", rows);
    err = out && j.x.row && j.x.value && j.x.class ? fill(&j, out, d) : KVF_E_NOMEM;
    if (!err)
        err = put_provenance_all(out, traces, n_traces, d);
    if (err)
        goto done;
    put_meta(out, j.source, n_traces, j.classes, o->criterion);
    err = table_err(out);

done:
    close_job(&j);
    return table_deliver(out, err, ret_table);
}

/* The rows of one trace. */
static void describe_trace(const struct table *t, int64_t from, int64_t to, struct buf *out)
{
    int kept = table_find(t, "kept"), res = table_find(t, "mean_residency"),
        nll = table_find(t, "nll"), head = table_find(t, "head");
    double k = 0, r = 0, l = 0;
    int64_t n = to - from, scored = 0;
    for (int64_t i = from; i < to; i++) {
        double v = table_real(t, nll, i);
        k += table_real(t, kept, i);
        r += table_real(t, res, i);
        if (!isnan(v)) {
            l += v;
            scored++;
        }
    }
    bool panels = strcmp(table_str(t, head, from), table_str(t, head, to - 1)) != 0;
    buf_printf(out, "%lld %s", (long long)n, panels ? "rows of heads and tokens" : "tokens");
    if (!isnan(k))
        buf_printf(out, "; kept at the end: %.1f %% of entries; mean residency %.3f",
                   100 * k / (double)n, r / (double)n);
    buf_char(out, '\n');
    if (scored)
        buf_printf(out, "mean NLL %.4f nats over %lld tokens\n", l / (double)scored,
                   (long long)scored);
}

static void describe(const struct table *t, struct buf *out)
{
    int trace = table_find(t, "trace");
    int64_t n = table_rows(t), to;
    if (n == 0)
        buf_str(out, "no tokens\n");
    for (int64_t from = 0; from < n; from = to) {
        to = from;
        while (to < n && table_int(t, trace, to) == table_int(t, trace, from))
            to++;
        if (from > 0 || to < n) {
            char key[24];
            snprintf(key, sizeof key, "trace_%d", (int)table_int(t, trace, from));
            const char *name = table_meta(t, key);
            buf_printf(out, "trace %d%s%s%s: ", (int)table_int(t, trace, from), name ? " (" : "",
                       name ? name : "", name ? ")" : "");
        }
        describe_trace(t, from, to, out);
    }
}

const struct analyzer an_tokens = {
    .name = "tokens",
    .summary = "highlight each token of the text by how long heads cached it",
    .example = "kvfate tokens run.kvf -o tokens.png",
    OPTIONS(CLASSES_OPTION(struct options, classes),
            {OPT_FLAG, 0, "by-head", offsetof(struct options, by_head), NULL,
             "a row for every head and token, not means over heads"},
            {OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
             "selected set of last_use_age", .absent = "top64"}),
    COLUMNS(
        {"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "unless the trace has saliency"},
        {"saliency", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS, "saliency"},
        {"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS, "log_beta"},
        {"last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "--criterion"},
        {"nll", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_HELPS, "nll"},
        {"shadow.kl", KVF_SPACE_RUN, KVF_AXIS_STEP, COLUMN_HELPS, "kl"},
        {"tokens.id", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_CAN_LACK, "id"},
        {"tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_CAN_LACK, "role"}),
    .max_traces = MOST_TRACES,
    .run = run,
    .describe = describe,
};
