/* diff.c - compares two traces column by column (diff.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/common.h"
#include "base/mem.h"
#include "base/room.h"
#include "base/utf8.h"
#include "studies/diff.h"
#include "studies/diff_header.h"

struct row {
    const char *kind, *state;          /* "header", "text", "column"; see below */
    size_t name, a, b, type_a, type_b; /* texts, as offsets */
    size_t head;
    int64_t compared, differ, undefined, index;
    double largest;
};

struct result {
    struct row *row; /* [n] */
    size_t n, cap;
    struct buf text;
    bool equal;
};

/* Two columns that are being compared. */
struct pair {
    struct kvf_trace *t[2];
    int column[2];
    const struct kvf_column *c[2];
    double *v[2];
    uint64_t *u[2]; /* of two u64 columns: the values, exactly */
    uint32_t T;
};

static size_t text(struct result *r, const char *s)
{
    size_t at = r->text.len;
    buf_add(&r->text, s, strlen(s) + 1);
    return at;
}

static struct row *add(struct result *r, const char *kind, const char *name)
{
    if (!mem_room(&r->row, r->n, &r->cap, 64, sizeof *r->row))
        return NULL;
    struct row *x = &r->row[r->n++];
    *x = (struct row){.kind = kind, .state = "equal", .index = -1, .largest = NAN};
    x->a = x->b = x->type_a = x->type_b = x->head = text(r, "");
    x->name = text(r, name);
    return x;
}

/* The header and the result of a trace as pairs, sorted by key. */
static int flatten(struct kvf_trace *t, struct flat *f)
{
    const char *result = kvf_note(t, "result");
    int err = flat_add(f, "", kvf_meta(t));
    if (err || !result)
        return err;
    return flat_add(f, "result", result);
}

/* < 0: pair i of A is before pair j of B, > 0: after it, 0: both are of one key. */
static int compare_keys(const struct flat f[2], size_t i, size_t j)
{
    if (i == f[0].n)
        return 1;
    if (j == f[1].n)
        return -1;
    return strcmp(f[0].pair[i].key, f[1].pair[j].key);
}

static int compare_headers(struct kvf_trace *const t[2], struct result *r)
{
    struct flat f[2] = {{.n = 0}, {.n = 0}};
    size_t i = 0, j = 0;
    int err = flatten(t[0], &f[0]);
    if (!err)
        err = flatten(t[1], &f[1]);
    if (err)
        goto done;
    while (i < f[0].n || j < f[1].n) {
        int order = compare_keys(f, i, j);
        const struct flat_pair *a = order <= 0 ? &f[0].pair[i++] : NULL;
        const struct flat_pair *b = order >= 0 ? &f[1].pair[j++] : NULL;
        if (a && b && strcmp(a->value, b->value) == 0)
            continue;
        struct row *x = add(r, "header", a ? a->key : b->key);
        if (!x) {
            err = KVF_E_NOMEM;
            goto done;
        }
        x->state = "differs";
        if (!a || !b)
            x->state = a ? "only_a" : "only_b";
        x->a = text(r, a ? a->value : "");
        x->b = text(r, b ? b->value : "");
        r->equal = false;
    }

done:
    flat_free(&f[0]);
    flat_free(&f[1]);
    return err;
}

static bool undefined(double v, const struct kvf_column *c)
{
    return isnan(v) || (c->flags & KVF_COL_AGE && v < 0)
           || (c->dtype == KVF_U32 && v == (double)UINT32_MAX);
}

static void put_number(struct result *r, size_t *at, double v, const struct kvf_column *c)
{
    char s[40];
    if (undefined(v, c) && !isnan(v))
        snprintf(s, sizeof s, c->flags & KVF_COL_AGE ? "never" : "alive");
    else
        snprintf(s, sizeof s, c->dtype == KVF_F32 ? "%.9g" : "%.17g", v);
    *at = text(r, s);
}

static void differs(const struct pair *p, struct result *r, size_t row, const char *head,
                    uint32_t i)
{
    struct row *x = &r->row[row];
    if (x->differ++ > 0)
        return;
    x->state = "differs";
    x->index = i;
    x->head = text(r, head);
    put_number(r, &r->row[row].a, p->v[0][i], p->c[0]);
    put_number(r, &r->row[row].b, p->v[1][i], p->c[1]);
}

static void compare_values(const struct pair *p, struct result *r, size_t row, const char *head)
{
    for (uint32_t i = 0; i < p->T; i++) {
        double a = p->v[0][i], b = p->v[1][i];
        bool none = undefined(a, p->c[0]), no_b = undefined(b, p->c[1]);
        bool exact = p->u[0] && p->u[1];
        if (exact ? p->u[0][i] == p->u[1][i] : none == no_b && (none || a == b))
            continue;
        differs(p, r, row, head, i);
        struct row *x = &r->row[row];
        double size = fabs(a - b);
        if (exact) /* more than a double can distinguish */
            size = (double)(p->u[0][i] > p->u[1][i] ? p->u[0][i] - p->u[1][i]
                                                    : p->u[1][i] - p->u[0][i]);
        if (none || no_b)
            x->undefined++;
        else if (!(size <= x->largest))
            x->largest = size;
    }
}

/* Values of one head; false in *there: the trace lacks them. */
static int read_side(const struct pair *p, int s, int layer, int head, bool *there,
                     struct kvf_diag *d)
{
    struct kvf_diag why = {""};
    int err = kvf_read_f64(p->t[s], p->column[s], layer, head, 0, p->T, p->v[s], &why);
    *there = err == KVF_OK;
    if (!err && p->u[s])
        err = kvf_read(p->t[s], p->column[s], layer, head, 0, p->T, p->u[s], &why);
    if (err == KVF_E_NOTFOUND) {
        for (uint32_t i = 0; i < p->T; i++)
            p->v[s][i] = NAN;
        return KVF_OK;
    }
    return err ? kvf_fail(d, err, "%s", why.text) : KVF_OK;
}

static int compare_head(const struct pair *p, int layer, int head, struct result *r, size_t row,
                        struct kvf_diag *d)
{
    bool there[2];
    char name[32] = "";
    for (int s = 0; s < 2; s++) {
        int err = read_side(p, s, layer, head, &there[s], d);
        if (err)
            return err;
    }
    if (p->c[0]->space != KVF_SPACE_RUN)
        snprintf(name, sizeof name, "L%d%c%d", layer, p->c[0]->space == KVF_SPACE_KV ? 'K' : 'H',
                 head);
    if (!there[0] && !there[1])
        return KVF_OK;
    r->row[row].compared += p->T;
    if (there[0] != there[1])
        r->row[row].undefined += p->T;
    for (uint32_t i = 0; there[0] != there[1] && i < p->T; i++)
        differs(p, r, row, name, i);
    if (there[0] && there[1])
        compare_values(p, r, row, name);
    return KVF_OK;
}

static void put_type(struct result *r, size_t *at, const struct kvf_column *c)
{
    static const char *const dtypes[] = {"?", "u8", "u16", "u32", "i32", "f32", "f64", "u64"};
    static const char *const spaces[] = {"run", "kv", "query"};
    static const char *const axes[] = {"token", "step"};
    char s[64];
    snprintf(s, sizeof s, "%s %s %s", c->dtype < 8 ? dtypes[c->dtype] : "?",
             c->space < 3 ? spaces[c->space] : "?", c->axis < 2 ? axes[c->axis] : "?");
    *at = text(r, s);
}

static bool same_shape(struct kvf_trace *const t[2], enum kvf_space space)
{
    bool same = kvf_n_steps(t[0]) == kvf_n_steps(t[1]);
    if (space == KVF_SPACE_RUN)
        return same;
    same = same && kvf_n_layers(t[0]) == kvf_n_layers(t[1]);
    for (int l = 0; same && l < kvf_n_layers(t[0]); l++)
        same = kvf_n_heads(t[0], l, space) == kvf_n_heads(t[1], l, space);
    return same;
}

static int compare_values_of(struct pair *p, struct result *r, size_t row, struct kvf_diag *d)
{
    enum kvf_space space = (enum kvf_space)p->c[0]->space;
    int L = space == KVF_SPACE_RUN ? 1 : kvf_n_layers(p->t[0]), err = KVF_OK;
    bool exact = p->c[0]->dtype == KVF_U64 && p->c[1]->dtype == KVF_U64;
    for (int s = 0; s < 2; s++) {
        p->v[s] = MEM_NEW(double, p->T);
        p->u[s] = exact ? MEM_NEW(uint64_t, p->T) : NULL;
        if (!p->v[s] || (exact && !p->u[s])) {
            err = KVF_E_NOMEM;
            goto done;
        }
    }
    for (int l = 0; p->T && l < L; l++)
        for (int h = 0; h < kvf_n_heads(p->t[0], l, space); h++) {
            err = compare_head(p, l, h, r, row, d);
            if (err)
                goto done;
        }

done:
    for (int s = 0; s < 2; s++) {
        mem_free_all(p->v[s], p->u[s]);
    }
    return err;
}

static int compare_column(struct kvf_trace *const t[2], int a, int b, struct result *r,
                          struct kvf_diag *d)
{
    struct pair p = {.t = {t[0], t[1]},
                     .column = {a, b},
                     .c = {kvf_column(t[0], a), kvf_column(t[1], b)},
                     .T = kvf_n_steps(t[0])};
    if (!add(r, "column", p.c[0] ? p.c[0]->name : p.c[1]->name))
        return KVF_E_NOMEM;
    size_t row = r->n - 1;
    int err = KVF_OK;
    if (p.c[0])
        put_type(r, &r->row[row].type_a, p.c[0]);
    if (p.c[1])
        put_type(r, &r->row[row].type_b, p.c[1]);
    if (!p.c[0] || !p.c[1])
        r->row[row].state = p.c[0] ? "only_a" : "only_b";
    else if (p.c[0]->space != p.c[1]->space || p.c[0]->axis != p.c[1]->axis)
        r->row[row].state = "type";
    else if (!same_shape(t, (enum kvf_space)p.c[0]->space))
        r->row[row].state = "shape";
    else
        err = compare_values_of(&p, r, row, d);
    if (strcmp(r->row[row].state, "equal") != 0)
        r->equal = false;
    return err;
}

static int compare_columns(struct kvf_trace *const t[2], struct result *r, struct kvf_diag *d)
{
    for (int i = 0; i < kvf_n_columns(t[0]); i++) {
        int err = compare_column(t, i, kvf_find(t[1], kvf_column(t[0], i)->name), r, d);
        if (err)
            return err;
    }
    for (int i = 0; i < kvf_n_columns(t[1]); i++) {
        if (kvf_find(t[0], kvf_column(t[1], i)->name) >= 0)
            continue;
        int err = compare_column(t, -1, i, r, d);
        if (err)
            return err;
    }
    return KVF_OK;
}

static void put_bytes(struct result *r, size_t *at, const char *s, size_t n)
{
    enum { SHOWN = 60 };
    struct buf b = {0};
    if (s)
        utf8_show(&b, s, n < SHOWN ? n : SHOWN);
    *at = text(r, s && b.data ? b.data : "");
    buf_finish(&b);
}

static int compare_texts(struct kvf_trace *const t[2], struct result *r)
{
    if (!add(r, "text", "tokens"))
        return KVF_E_NOMEM;
    size_t row = r->n - 1;
    uint32_t T = kvf_n_steps(t[0]);
    if (T != kvf_n_steps(t[1])) {
        r->row[row].state = "shape";
        r->equal = false;
        return KVF_OK;
    }
    if (kvf_texts(t[0]) != KVF_OK || kvf_texts(t[1]) != KVF_OK)
        return KVF_E_NOMEM;
    for (uint32_t i = 0; i < T; i++) {
        size_t n[2] = {0, 0};
        const char *s[2] = {kvf_token(t[0], i, &n[0]), kvf_token(t[1], i, &n[1])};
        r->row[row].compared += s[0] || s[1];
        if (!s[0] == !s[1] && n[0] == n[1] && (!n[0] || memcmp(s[0], s[1], n[0]) == 0))
            continue;
        if (r->row[row].differ++ > 0)
            continue;
        r->row[row].state = "differs";
        r->row[row].index = i;
        put_bytes(r, &r->row[row].a, s[0], n[0]);
        put_bytes(r, &r->row[row].b, s[1], n[1]);
        r->equal = false;
    }
    return KVF_OK;
}

static void put_str(struct table *t, const struct result *r, const char *name, size_t at,
                    const char **s)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t offset;
        memcpy(&offset, (const char *)&r->row[i] + at, sizeof offset);
        s[i] = r->text.data + offset;
    }
    table_dense_str(t, name, "", s);
}

static void put_int(struct table *t, const struct result *r, const char *name, size_t at,
                    int64_t *v)
{
    for (size_t i = 0; i < r->n; i++)
        memcpy(&v[i], (const char *)&r->row[i] + at, sizeof v[i]);
    table_dense_int(t, name, "", v);
}

static int build(const struct result *r, struct table **ret_table)
{
    struct table *t = table_create("diff", (int64_t)r->n);
    const char **s = MEM_NEW(const char *, r->n);
    int64_t *v = MEM_NEW(int64_t, r->n);
    double *x = MEM_NEW(double, r->n);
    int err = KVF_E_NOMEM;
    if (!t || !s || !v || !x)
        goto done;
    table_meta_str(t, "equal", r->equal ? "yes" : "no");
    for (size_t i = 0; i < r->n; i++)
        s[i] = r->row[i].kind;
    table_dense_str(t, "kind", "", s);
    put_str(t, r, "name", offsetof(struct row, name), s);
    for (size_t i = 0; i < r->n; i++)
        s[i] = r->row[i].state;
    table_dense_str(t, "state", "", s);
    put_str(t, r, "type_a", offsetof(struct row, type_a), s);
    put_str(t, r, "type_b", offsetof(struct row, type_b), s);
    put_int(t, r, "compared", offsetof(struct row, compared), v);
    put_int(t, r, "differ", offsetof(struct row, differ), v);
    put_int(t, r, "undefined", offsetof(struct row, undefined), v);
    for (size_t i = 0; i < r->n; i++)
        x[i] = r->row[i].largest;
    table_dense_real(t, "largest", "", x);
    put_str(t, r, "head", offsetof(struct row, head), s);
    put_int(t, r, "index", offsetof(struct row, index), v);
    put_str(t, r, "a", offsetof(struct row, a), s);
    put_str(t, r, "b", offsetof(struct row, b), s);
    err = table_err(t);
    if (err)
        goto done;
    *ret_table = t;
    t = NULL;

done:
    mem_free_all((void *)s, v, x);
    table_destroy(t);
    return err;
}

int diff_compare(struct kvf_trace *a, struct kvf_trace *b, const struct diff_args *args,
                 struct table **ret_table, bool *ret_equal, struct kvf_diag *d)
{
    struct kvf_trace *const t[2] = {a, b};
    struct result r = {.equal = true};
    int err = args->no_header ? KVF_OK : compare_headers(t, &r);
    if (!err)
        err = compare_texts(t, &r);
    if (!err)
        err = compare_columns(t, &r, d);
    if (!err)
        err = r.text.err;
    if (!err)
        err = build(&r, ret_table);
    if (err)
        goto done;
    *ret_equal = r.equal;

done:
    buf_finish(&r.text);
    mem_free(r.row);
    return err;
}

/* ---- a comparison of two traces for people. */

static const char *str(const struct table *t, const char *column, int64_t row)
{
    return table_row_str(t, row, column);
}

static int64_t whole(const struct table *t, const char *column, int64_t row)
{
    return table_row_int(t, row, column);
}

/* A value cut to a line: its first bytes, no character torn. */
static void say_value(struct buf *out, const char *s)
{
    enum { SHOWN = 60 };
    size_t n = strlen(s), shown = n < SHOWN ? n : SHOWN;
    while (shown < n && shown > 0 && ((unsigned char)s[shown] & 0xc0) == 0x80)
        shown--;
    if (!n)
        buf_char(out, '-');
    buf_add(out, s, shown);
    if (shown < n)
        buf_str(out, "...");
}

static void say_pair(const struct table *t, int64_t row, struct buf *out)
{
    say_value(out, str(t, "a", row));
    buf_str(out, " | ");
    say_value(out, str(t, "b", row));
}

static void say_row(const struct table *t, int64_t row, struct buf *out)
{
    const char *state = str(t, "state", row), *head = str(t, "head", row);
    double largest = table_row_real(t, row, "largest");
    buf_printf(out, "  %-22s ", str(t, "name", row));
    if (strcmp(state, "differs") != 0) {
        if (strcmp(state, "only_a") == 0)
            buf_str(out, "only in A");
        else if (strcmp(state, "only_b") == 0)
            buf_str(out, "only in B");
        else if (strcmp(state, "type") == 0)
            buf_printf(out, "other heads or axis: %s | %s", str(t, "type_a", row),
                       str(t, "type_b", row));
        else
            buf_str(out, "another number of heads or tokens");
        buf_char(out, '\n');
        return;
    }
    buf_printf(out, "%lld of %lld differ, first at %s%s%lld: ", (long long)whole(t, "differ", row),
               (long long)whole(t, "compared", row), head, *head ? " " : "",
               (long long)whole(t, "index", row));
    say_pair(t, row, out);
    if (!isnan(largest))
        buf_printf(out, "; largest difference %.6g", largest);
    if (whole(t, "undefined", row))
        buf_printf(out, "; %lld defined in only one", (long long)whole(t, "undefined", row));
    buf_char(out, '\n');
}

void diff_describe(const struct table *t, struct buf *out)
{
    int64_t equal = 0, n = table_rows(t);
    bool headed = false;
    for (int64_t r = 0; r < n; r++) {
        bool header = strcmp(str(t, "kind", r), "header") == 0;
        if (strcmp(str(t, "state", r), "equal") == 0) {
            equal += strcmp(str(t, "kind", r), "column") == 0;
        } else if (header) {
            buf_printf(out, "%s  %-22s ", headed ? "" : "run header\n", str(t, "name", r));
            say_pair(t, r, out);
            buf_char(out, '\n');
            headed = true;
        }
    }
    if (strcmp(table_meta(t, "equal"), "yes") != 0)
        buf_str(out, "columns\n");
    for (int64_t r = 0; r < n; r++)
        if (strcmp(str(t, "kind", r), "header") != 0 && strcmp(str(t, "state", r), "equal") != 0)
            say_row(t, r, out);
    buf_printf(out, "  %lld columns are equal\n", (long long)equal);
}
