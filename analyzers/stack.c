/* stack.c - stacks the tables of several traces (stack.h). */
#include <stdio.h>
#include <string.h>

#include "analyzers/stack.h"
#include "base/mem.h"
#include "base/table_stack.h"
#include "base/whole.h"

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
        const char *protocol = table_meta(p->t[i], "protocol");
        double budget = table_meta_real(p->t[i], "budget", 0);
        char entries[24] = "";
        if (budget > 0)
            snprintf(entries, sizeof entries, " %.0f", budget);
        snprintf(p->label[i], 96, "%.30s%s%s%.40s", method ? method : "", entries,
                 protocol ? ", " : "", protocol ? protocol : "");
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
            return kvf_fail(d, KVF_E_ARG,
                            "%s and %s give tables of unlike columns; analyse them "
                            "one by one",
                            names[0], names[i]);
    }
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

/* Which traces they are, and of which metadata they differ. */
static void put_metadata(struct table *out, const struct parts *p)
{
    char differ[512] = "", key[24];
    size_t at = 0;
    for (int k = 0; k < table_meta_count(p->t[0]); k++) {
        const char *name = table_meta_key(p->t[0], k);
        if (!table_meta(out, name) && at + strlen(name) + 2 < sizeof differ)
            at += (size_t)snprintf(differ + at, sizeof differ - at, "%s%s", at ? " " : "", name);
    }
    for (int i = 0; i < p->n; i++) {
        snprintf(key, sizeof key, "trace_%d", i + 1);
        table_meta_str(out, key, p->label[i]);
    }
    if (at)
        table_meta_str(out, "differ", differ);
}

static int stack(const struct parts *p, const struct analyzer_args *args, struct table **ret_table,
                 struct kvf_diag *d)
{
    const struct teller watch = {args->watch, args->watch_ctx};
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
    put_metadata(out, p);
    return table_deliver(out, table_err(out), ret_table);
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
        a->describe(p.t[i], about);
        analyzer_tell(args, i + 1, n);
    }
    for (int i = 0; i < n && i < STACK_MOST; i++)
        table_destroy(p.t[i]);
    return err;
}
