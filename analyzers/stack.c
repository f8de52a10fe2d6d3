/* stack.c - stacks the tables of several traces (stack.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/head_budgets.h"
#include "analyzers/protocol.h"
#include "analyzers/stack.h"
#include "base/mem.h"
#include "base/table_stack.h"
#include "base/whole.h"

struct parts {
    struct table *t[STACK_MOST];
    char label[STACK_MOST][LABEL_TEXT];
    int n;
    int64_t rows;
};

static bool distinct(const struct parts *p)
{
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(p->label[i], p->label[k]) == 0)
                return false;
    return true;
}

/* Writes the name of a file without path and .kvf. */
static void stem(const char *path, char out[96])
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".kvf") == 0)
        n -= 4;
    snprintf(out, 96, "%.*s", (int)(n < 95 ? n : 95), name);
}

/* Labels a trace with its method and budget (way 0), the stem or the whole of its file's name, or
 * its number, and in any case with its protocol. */
static void label_part(struct parts *p, const char *name, int i, int way)
{
    const char *method = table_meta(p->t[i], "method"), *protocol = table_meta(p->t[i], "protocol");
    double budget = table_meta_real(p->t[i], "budget", 0);
    char text[96] = "", entries[24] = "";
    struct buf label = {0};
    if (budget > 0)
        snprintf(entries, sizeof entries, "%.0f", budget);
    if (way == 1)
        stem(name, text);
    else if (way == 2)
        snprintf(text, sizeof text, "%.95s", name);
    else
        snprintf(text, sizeof text, "%d: %.80s", i + 1, name);
    if (way == 0)
        label_put(&label, method ? method : "", " ", entries,
                  table_meta_real(p->t[i], "budget_percent", NAN), protocol ? protocol : "");
    else
        buf_printf(&label, "%s%s%s", text, protocol ? ", " : "", protocol ? protocol : "");
    label_copy(p->label[i], LABEL_TEXT, label.err ? text : label.data);
    buf_finish(&label);
}

static void label_parts(struct parts *p, const char *const *names)
{
    for (int way = 0; way == 0 || (way < 4 && !distinct(p)); way++)
        for (int i = 0; i < p->n; i++)
            label_part(p, names[i], i, way);
}

/* Returns the first column from c on that tables of all runs have: not that of head_budgets.h. */
static int usual_column(const struct table *t, int c)
{
    return c < table_cols(t) && strcmp(table_col_name(t, c), HEAD_BUDGET) == 0 ? c + 1 : c;
}

/* Returns true if the usual columns of two tables have equal names and types. */
static bool same_columns(const struct table *a, const struct table *b)
{
    int i = usual_column(a, 0), k = usual_column(b, 0);
    while (i < table_cols(a) && k < table_cols(b)) {
        if (strcmp(table_col_name(a, i), table_col_name(b, k)) != 0
            || table_col_type(a, i) != table_col_type(b, k))
            return false;
        i = usual_column(a, i + 1);
        k = usual_column(b, k + 1);
    }
    return i == table_cols(a) && k == table_cols(b);
}

static int check(const struct parts *p, const char *const *names, struct kvf_diag *d)
{
    for (int i = 1; i < p->n; i++)
        if (!same_columns(p->t[i], p->t[0]))
            return kvf_fail(d, KVF_E_ARG,
                            "%s and %s give tables of unlike columns; analyse them "
                            "one by one",
                            names[0], names[i]);
    return KVF_OK;
}

/* The metadata of the traces that the analyzer's own table lacks. */
static void put_column(struct table *out, const struct parts *p, const char *name, const char *unit,
                       double otherwise)
{
    int64_t at = 0, *v = MEM_NEW(int64_t, (size_t)p->rows);
    if (!v || table_find(out, name) >= 0) {
        mem_free(v);
        return;
    }
    for (int i = 0; i < p->n; i++)
        for (int64_t r = 0; r < table_rows(p->t[i]); r++)
            v[at++] = whole_of(table_meta_real(p->t[i], name, otherwise), -1);
    table_dense_int(out, name, unit, v);
    mem_free(v);
}

static void put_methods(struct table *out, const struct parts *p)
{
    const char **v = MEM_NEW(const char *, (size_t)p->rows);
    int64_t at = 0;
    if (!v || table_find(out, "method") >= 0) {
        mem_free((void *)v);
        return;
    }
    for (int i = 0; i < p->n; i++)
        for (int64_t r = 0; r < table_rows(p->t[i]); r++) {
            const char *name = table_meta(p->t[i], "method");
            v[at++] = name ? name : "";
        }
    table_dense_str(out, "method", "", v);
    mem_free((void *)v);
}

/* Notes the label of each trace, and the keys of metadata in which some traces differ. */
static int put_metadata(struct table *out, const struct parts *p)
{
    struct buf differ = {0};
    char key[24];
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < table_meta_count(p->t[i]); k++) {
            const char *name = table_meta_key(p->t[i], k);
            bool known = table_meta(out, name) != NULL; /* equal in all traces */
            for (int a = 0; a < i && !known; a++)
                known = table_meta(p->t[a], name) != NULL;
            if (!known)
                buf_printf(&differ, "%s%s", differ.len ? " " : "", name);
        }
    for (int i = 0; i < p->n; i++) {
        snprintf(key, sizeof key, "trace_%d", i + 1);
        table_meta_str(out, key, p->label[i]);
    }
    if (differ.len)
        table_meta_str(out, "differ", differ.data);
    int err = differ.err;
    buf_finish(&differ);
    return err;
}

static int stack(const struct parts *p, const struct analyzer_args *args, struct table **ret_table,
                 struct kvf_diag *d)
{
    const struct progress_callback watch = {args->watch, args->watch_ctx};
    const char *label[STACK_MOST];
    struct table *out = NULL;
    for (int i = 0; i < p->n; i++)
        label[i] = p->label[i];
    int err = table_stack((const struct table *const *)p->t, label, p->n, "trace", &watch, &out, d);
    if (err)
        return err;
    put_methods(out, p);
    put_column(out, p, "budget", "entries", 0);
    put_column(out, p, "T", "", -1);
    err = put_metadata(out, p);
    return table_deliver(out, err ? err : table_err(out), ret_table);
}

/* Of traces in a row: each is a hundred parts of all. */
struct turn {
    const struct analyzer_args *args;
    int i, n;
};

static void see_trace(void *ctx, uint64_t done, uint64_t of)
{
    const struct turn *x = ctx;
    const uint64_t fine = 100, i = (uint64_t)x->i, n = (uint64_t)x->n;
    x->args->watch(x->args->watch_ctx, i * fine + (of ? fine * done / of : 0), n * fine);
}

int stack_run(const struct analyzer *a, struct kvf_trace *const *traces, int n,
              const char *const *names, const struct analyzer_args *args, struct buf *about,
              struct table **ret_table, struct kvf_diag *d)
{
    struct parts p = {.n = n};
    int err = n <= STACK_MOST ? KVF_OK : kvf_fail(d, KVF_E_ARG, "at most %d traces", STACK_MOST);
    for (int i = 0; !err && i < n; i++) {
        struct turn turn = {args, i, n};
        struct analyzer_args one = *args;
        one.watch = args->watch ? see_trace : NULL;
        one.watch_ctx = &turn;
        err = analyzer_run(a, &traces[i], 1, &one, &p.t[i], d);
        analyzer_tell(&one, 1, 1);
        p.rows += err ? 0 : table_rows(p.t[i]);
    }
    if (!err)
        err = check(&p, names, d);
    if (!err) {
        label_parts(&p, names);
        err = stack(&p, args, ret_table, d);
    }
    for (int i = 0; !err && i < n; i++) {
        buf_printf(about, "%s%s:\n", i ? "\n" : "", p.label[i]);
        if (kvf_n_steps(traces[i]) || kvf_is_clean(traces[i]))
            a->describe(p.t[i], about);
        else
            buf_str(about, "no steps that can be read\n");
        analyzer_tell(args, i + 1, n);
    }
    for (int i = 0; i < n && i < STACK_MOST; i++)
        table_destroy(p.t[i]);
    return err;
}
