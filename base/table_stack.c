/* table_stack.c - stacks tables of equal columns (table_stack.h). */
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/table_stack.h"

static void stack_text(struct table *out, const struct table *const *t, int n, int col)
{
    const char *name = table_col_name(t[0], col);
    const char **v = MEM_NEW(const char *, (size_t)table_rows(out));
    int64_t at = 0;
    for (int i = 0; v && i < n; i++)
        for (int64_t r = 0, c = table_find(t[i], name); r < table_rows(t[i]); r++)
            v[at++] = table_str(t[i], (int)c, r);
    if (v)
        table_dense_str(out, name, table_col_unit(t[0], col), v);
    mem_free(v);
}

static void stack_numbers(struct table *out, const struct table *const *t, int n, int col,
                          bool whole)
{
    const char *name = table_col_name(t[0], col), *unit = table_col_unit(t[0], col);
    double *v = MEM_NEW(double, (size_t)table_rows(out));
    int64_t *k = whole ? MEM_NEW(int64_t, (size_t)table_rows(out)) : NULL, at = 0;
    for (int i = 0; v && i < n; i++) {
        table_get(t[i], table_find(t[i], name), 0, table_rows(t[i]), v + at);
        at += table_rows(t[i]);
    }
    for (int64_t r = 0; v && k && r < at; r++)
        k[r] = (int64_t)v[r];
    if (v && k)
        table_dense_int(out, name, unit, k);
    else if (v && !whole)
        table_dense_real(out, name, unit, v);
    mem_free(v);
    mem_free(k);
}

/* A column of all tables; out has one column more then, or memory is out. */
static int stack_column(struct table *out, const struct table *const *t, int n, int col)
{
    int text = 0, real = 0, before = table_cols(out);
    for (int i = 0; i < n; i++) {
        int c = table_find(t[i], table_col_name(t[0], col));
        if (c < 0)
            return KVF_OK;
        text += table_col_type(t[i], c) == TABLE_STR;
        real += table_col_type(t[i], c) == TABLE_REAL;
    }
    if (text && text < n)
        return KVF_OK;
    if (text)
        stack_text(out, t, n, col);
    else
        stack_numbers(out, t, n, col, !real);
    return table_cols(out) > before ? table_err(out) : KVF_E_NOMEM;
}

static void stack_meta(struct table *out, const struct table *const *t, int n)
{
    for (int m = 0; m < table_meta_count(t[0]); m++) {
        const char *key = table_meta_key(t[0], m), *value = table_meta(t[0], key);
        int alike = 1;
        for (int i = 1; i < n; i++) {
            const char *other = table_meta(t[i], key);
            alike &= other && strcmp(other, value) == 0;
        }
        if (alike)
            table_meta_str(out, key, value);
    }
}

int table_stack(const struct table *const *t, const char *const *name, int n, const char *key,
                const struct progress_callback *w, struct table **ret, struct kvf_diag *d)
{
    int64_t rows = 0, at = 0;
    for (int i = 0; i < n; i++)
        rows += table_rows(t[i]);
    if (rows > 8000000)
        return kvf_fail(d, KVF_E_LIMIT,
                        "%lld rows are too many for one table; choose fewer "
                        "with --head or the options of the analysis",
                        (long long)rows);
    struct table *out = table_create(table_name(t[0]), rows);
    const char **which = MEM_NEW(const char *, (size_t)rows);
    int err = out && which ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < n; i++)
        for (int64_t r = 0; r < table_rows(t[i]); r++)
            which[at++] = name[i];
    if (!err) {
        stack_meta(out, t, n);
        table_dense_str(out, key, "", which);
    }
    for (int c = 0; !err && c < table_cols(t[0]); c++) {
        err = stack_column(out, t, n, c);
        progress_report(w, c + 1, table_cols(t[0]));
    }
    err = err ? err : table_err(out);
    mem_free(which);
    if (err)
        table_destroy(out);
    else
        *ret = out;
    return err;
}
