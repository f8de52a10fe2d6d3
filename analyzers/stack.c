#include <stdio.h>
#include <string.h>

#include "analyzers/stack.h"
#include "base/mem.h"

struct parts {
    struct table *t[STACK_MOST];
    char label[STACK_MOST][96];
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

static void stem(const char *path, char out[96])
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".kvf") == 0)
        n -= 4;
    snprintf(out, 96, "%.*s", (int)(n < 95 ? n : 95), name);
}

static void label_parts(struct parts *p, const char *const *names)
{
    for (int i = 0; i < p->n; i++) {
        const char *method = table_meta(p->t[i], "method");
        double budget = table_meta_real(p->t[i], "budget", 0);
        if (budget > 0)
            snprintf(p->label[i], 96, "%.60s %.0f", method ? method : "", budget);
        else
            snprintf(p->label[i], 96, "%.60s", method ? method : "");
    }
    for (int way = 0; way < 3 && !distinct(p); way++)
        for (int i = 0; i < p->n; i++)
            if (way == 0)
                stem(names[i], p->label[i]);
            else if (way == 1)
                snprintf(p->label[i], 96, "%.95s", names[i]);
            else
                snprintf(p->label[i], 96, "%d: %.80s", i + 1, names[i]);
}

static int check(const struct parts *p, const char *const *names, struct kvf_diag *d)
{
    for (int i = 1; i < p->n; i++) {
        bool same = table_cols(p->t[i]) == table_cols(p->t[0]);
        for (int c = 0; same && c < table_cols(p->t[0]); c++)
            same = strcmp(table_col_name(p->t[i], c), table_col_name(p->t[0], c)) == 0
                   && table_col_type(p->t[i], c) == table_col_type(p->t[0], c);
        if (!same)
            return kvf_fail(d, KVF_E_ARG, "%s and %s give tables of unlike columns; analyse them "
                            "one by one", names[0], names[i]);
    }
    return p->rows <= STACK_ROWS ? KVF_OK
           : kvf_fail(d, KVF_E_LIMIT, "%lld rows of %d traces are more than %d; choose fewer with "
                      "--head or the options of the analysis", (long long)p->rows, p->n,
                      STACK_ROWS);
}

/* One column of all tables, or of each table one value. */
static int put_column(struct table *out, const struct parts *p, int c)
{
    enum table_type type = table_col_type(p->t[0], c);
    size_t size = type == TABLE_STR ? sizeof(char *) : sizeof(double), n = 0;
    void *data = mem_alloc((size_t)p->rows, size < 8 ? 8 : size);
    if (!data)
        return KVF_E_NOMEM;
    for (int i = 0; i < p->n; i++)
        for (int64_t r = 0; r < table_rows(p->t[i]); r++, n++)
            if (type == TABLE_STR)
                ((const char **)data)[n] = table_str(p->t[i], c, r);
            else if (type == TABLE_INT)
                ((int64_t *)data)[n] = table_int(p->t[i], c, r);
            else
                ((double *)data)[n] = table_real(p->t[i], c, r);
    const char *name = table_col_name(p->t[0], c), *unit = table_col_unit(p->t[0], c);
    if (type == TABLE_STR)
        table_dense_str(out, name, unit, data);
    else if (type == TABLE_INT)
        table_dense_int(out, name, unit, data);
    else
        table_dense_real(out, name, unit, data);
    mem_free(data);
    return table_err(out);
}

static int put_traces(struct table *out, const struct parts *p)
{
    const char **trace = MEM_NEW(const char *, (size_t)p->rows);
    const char **method = MEM_NEW(const char *, (size_t)p->rows);
    int64_t *budget = MEM_NEW(int64_t, (size_t)p->rows), *T = MEM_NEW(int64_t, (size_t)p->rows);
    int64_t at = 0;
    int err = trace && method && budget && T ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < p->n; i++)
        for (int64_t r = 0; r < table_rows(p->t[i]); r++, at++) {
            const char *name = table_meta(p->t[i], "method");
            trace[at] = p->label[i];
            method[at] = name ? name : "";
            budget[at] = (int64_t)table_meta_real(p->t[i], "budget", 0);
            T[at] = (int64_t)table_meta_real(p->t[i], "T", -1);
        }
    if (!err) {
        table_dense_str(out, "trace", "", trace);
        table_dense_str(out, "method", "", method);
        table_dense_int(out, "budget", "entries", budget);
        table_dense_int(out, "T", "", T);
        err = table_err(out);
    }
    mem_free((void *)trace);
    mem_free((void *)method);
    mem_free(budget);
    mem_free(T);
    return err;
}

static void put_metadata(struct table *out, const struct parts *p)
{
    char differ[512] = "", key[24];
    size_t at = 0;
    for (int k = 0; k < table_meta_count(p->t[0]); k++) {
        const char *name = table_meta_key(p->t[0], k), *value = table_meta(p->t[0], name);
        bool same = true;
        for (int i = 1; i < p->n; i++)
            same = same && table_meta(p->t[i], name)
                   && strcmp(table_meta(p->t[i], name), value) == 0;
        if (same)
            table_meta_str(out, name, value);
        else if (at + strlen(name) + 2 < sizeof differ)
            at += (size_t)snprintf(differ + at, sizeof differ - at, "%s%s", at ? " " : "", name);
    }
    for (int i = 0; i < p->n; i++) {
        snprintf(key, sizeof key, "trace_%d", i + 1);
        table_meta_str(out, key, p->label[i]);
    }
    if (at)
        table_meta_str(out, "differ", differ);
}

static int stack(const struct analyzer *a, const struct parts *p, struct table **ret_table)
{
    struct table *out = table_create(a->name, p->rows);
    if (!out)
        return KVF_E_NOMEM;
    put_metadata(out, p);
    int err = put_traces(out, p);
    for (int c = 0; !err && c < table_cols(p->t[0]); c++)
        if (table_find(out, table_col_name(p->t[0], c)) < 0)
            err = put_column(out, p, c);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

int stack_run(const struct analyzer *a, struct kvf_trace *const *traces, int n,
              const char *const *names, const struct analyzer_args *args, struct buf *about,
              struct table **ret_table, struct kvf_diag *d)
{
    struct parts p = {.n = n};
    int err = n <= STACK_MOST ? KVF_OK : kvf_fail(d, KVF_E_ARG, "at most %d traces", STACK_MOST);
    for (int i = 0; !err && i < n; i++) {
        err = a->run(&traces[i], 1, args, &p.t[i], d);
        p.rows += err ? 0 : table_rows(p.t[i]);
    }
    if (!err)
        err = check(&p, names, d);
    if (!err) {
        label_parts(&p, names);
        err = stack(a, &p, ret_table);
    }
    for (int i = 0; !err && i < n; i++) {
        buf_printf(about, "%s%s:\n", i ? "\n" : "", p.label[i]);
        a->describe(p.t[i], about);
    }
    for (int i = 0; i < n && i < STACK_MOST; i++)
        table_destroy(p.t[i]);
    return err;
}
