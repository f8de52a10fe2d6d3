/* claims_rows.c - the rows that a claim is about, as one value for each unit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/stats.h"
#include "base/table.h"
#include "studies/claims.h"

static const double NEAR = 1.25; /* how far from k T a row may be that stands for it */

/* ---- what cells are asked to be */

static bool scaled(const char *s, double *ret)
{
    double v = 1;
    char *end;
    if (*s == 'T' && s[1] == '/')
        return opt_real(s + 2, &v) && v > 0 && (*ret = 1 / v, true);
    if (*s != 'T') {
        v = strtod(s, &end);
        if (end == s || *end != ' ' || !(v > 0) || isinf(v))
            return false;
        s = end + 1;
    }
    *ret = v;
    return strcmp(s, "T") == 0;
}

bool claims_number(const char *text, char *ret_op, double *ret_value, bool *ret_scaled)
{
    char op = '=';
    if (*text == '!' || *text == '<' || *text == '>') {
        op = *text++;
        if (*text == '=' && op != '!') {
            op = op == '<' ? 'l' : 'g';
            text++;
        }
        text += strspn(text, " ");
    }
    double v;
    bool is_scaled = scaled(text, &v);
    if (!is_scaled && !opt_real(text, &v))
        return false;
    *ret_op = op;
    *ret_value = v;
    *ret_scaled = is_scaled;
    return true;
}

struct want {
    char op; /* of claims_number; 't': a text, 'u': any other text */
    double value;
    const char *text;
};

enum { MOST_FILTERS = 32, MOST_WANTS = 64 };
struct filter {
    int col;
    bool is_text;
    int first, n; /* wants[first .. first + n - 1], of which one must hold */
};
struct filters {
    struct filter f[MOST_FILTERS];
    struct want want[MOST_WANTS];
    int n, n_wants;
};

static void missing(struct claim_result *r, const char *what, const char *name)
{
    r->verdict = CLAIM_NOT_RUN;
    snprintf(r->why, sizeof r->why, "the table has no %s%s%.80s", what, *name ? " " : "", name);
}

/* The value of the column that is nearest to `target`; NaN when none is near. */
static double nearest(const struct table *t, int col, double target, double *ret_best)
{
    double best = NAN;
    for (int64_t r = 0; r < table_rows(t); r++) {
        double v = table_real(t, col, r);
        if (v > 0 && (isnan(best) || fabs(log(v / target)) < fabs(log(best / target))))
            best = v;
    }
    *ret_best = best;
    return !isnan(best) && fabs(log(best / target)) <= log(NEAR) ? best : NAN;
}

/* A number that is asked of a column; false after r->why. */
static bool want_number(const struct table *t, int col, const char *text, struct want *w,
                        struct claim_result *r)
{
    bool of_T;
    double T = table_meta_real(t, "T", NAN), best = NAN;
    if (!claims_number(text, &w->op, &w->value, &of_T)) {
        snprintf(r->why, sizeof r->why, "column %.40s holds numbers, and \"%.40s\" is none",
                 table_col_name(t, col), text);
        r->verdict = CLAIM_NOT_RUN;
        return false;
    }
    if (!of_T)
        return true;
    double target = w->value * T;
    if (!(T > 0)) {
        missing(r, "length in its metadata:", "T");
        return false;
    }
    w->value = w->op == '=' ? nearest(t, col, target, &best) : target;
    if (isnan(w->value)) {
        snprintf(r->why, sizeof r->why, "no %.40s near %s = %g; the nearest is %g",
                 table_col_name(t, col), text, target, best);
        r->verdict = CLAIM_NOT_RUN;
    }
    return !isnan(w->value);
}

static bool want_cell(const struct table *t, int col, const struct json *v, struct want *w,
                      struct claim_result *r)
{
    const char *s = json_str(v, NULL);
    char number[32];
    if (table_col_type(t, col) != TABLE_STR) {
        if (s)
            return want_number(t, col, s, w, r);
        *w = (struct want){'=', json_num(v, NAN), NULL};
        return true;
    }
    if (!s) { /* a number is asked of texts: no text is that number */
        snprintf(number, sizeof number, "%g", json_num(v, NAN));
        missing(r, "number in a column of texts:", number);
        return false;
    }
    *w = (struct want){*s == '!' ? 'u' : 't', NAN, *s == '!' ? s + 1 : s};
    return true;
}

static bool compile(const struct claim_side *s, const struct table *t, struct filters *x,
                    struct claim_result *r)
{
    for (const struct json *m = json_first(s->rows); m; m = json_next(m)) {
        int col = table_find(t, json_key(m)), n = json_is_array(m) ? json_len(m) : 1;
        if (col < 0) {
            missing(r, "column", json_key(m));
            return false;
        }
        if (x->n == MOST_FILTERS || x->n_wants + n > MOST_WANTS) {
            r->verdict = CLAIM_NOT_RUN;
            snprintf(r->why, sizeof r->why, "it asks for more than %d columns or %d cells",
                     MOST_FILTERS, MOST_WANTS);
            return false;
        }
        struct filter *f = &x->f[x->n++];
        *f = (struct filter){col, table_col_type(t, col) == TABLE_STR, x->n_wants, n};
        for (const struct json *v = json_is_array(m) ? json_first(m) : m; n > 0;
             v = json_next(v), n--)
            if (!want_cell(t, col, v, &x->want[x->n_wants++], r))
                return false;
    }
    return true;
}

static bool holds(const struct want *w, double v)
{
    double slack = 1e-9 * fmax(1, fabs(w->value));
    switch (w->op) {
    case '=':
        return fabs(v - w->value) <= slack;
    case '!':
        return !(fabs(v - w->value) <= slack);
    case '<':
        return v < w->value;
    case 'l':
        return v <= w->value;
    case '>':
        return v > w->value;
    default:
        return v >= w->value;
    }
}

bool claims_number_holds(const char *text, double v)
{
    struct want w;
    bool of_T;
    return claims_number(text, &w.op, &w.value, &of_T) && !of_T && holds(&w, v);
}

static bool passes(const struct filters *x, const struct table *t, int64_t row)
{
    for (int i = 0; i < x->n; i++) {
        const struct filter *f = &x->f[i];
        const char *text = f->is_text ? table_str(t, f->col, row) : NULL;
        double v = f->is_text ? NAN : table_real(t, f->col, row);
        bool any = false;
        for (int k = f->first; k < f->first + f->n && !any; k++) {
            const struct want *w = &x->want[k];
            any = text ? (strcmp(text, w->text) == 0) == (w->op == 't') : holds(w, v);
        }
        if (!any)
            return false;
    }
    return true;
}

/* ---- rows */

struct item {
    size_t key; /* offset of the unit's name */
    int64_t row;
    double value, with;
};

struct items {
    struct item *item;
    size_t n, room;
    struct buf keys;
    int value, less, with, unit[CLAIM_MOST_KEYS]; /* columns */
};

static bool number_column(const struct table *t, const char *name, int *ret, struct claim_result *r)
{
    *ret = name ? table_find(t, name) : -1;
    if (name && (*ret < 0 || table_col_type(t, *ret) == TABLE_STR)) {
        missing(r, *ret < 0 ? "column" : "numbers in column", name);
        return false;
    }
    return true;
}

static bool find_columns(const struct claim *c, const struct table *t, struct items *x,
                         struct claim_result *r)
{
    if (!number_column(t, c->value, &x->value, r) || !number_column(t, c->less, &x->less, r)
        || !number_column(t, c->with, &x->with, r))
        return false;
    for (int k = 0; k < c->n_unit; k++) {
        x->unit[k] = table_find(t, c->unit[k]);
        if (x->unit[k] < 0) {
            missing(r, "column", c->unit[k]);
            return false;
        }
    }
    return true;
}

static void put_key(const struct claim *c, const struct table *t, int64_t row, struct items *x)
{
    for (int k = 0; k < c->n_unit; k++) {
        if (table_col_type(t, x->unit[k]) == TABLE_STR)
            buf_str(&x->keys, table_str(t, x->unit[k], row));
        else
            buf_printf(&x->keys, "%.17g", table_real(t, x->unit[k], row));
        buf_char(&x->keys, k + 1 < c->n_unit ? '\x1f' : 0);
    }
}

static int add_item(const struct claim *c, const struct table *t, int64_t row, struct items *x)
{
    if (x->n == x->room) {
        size_t room = x->room ? 2 * x->room : 64;
        struct item *grown = mem_grow(x->item, x->room, room, sizeof *grown);
        if (!grown)
            return KVF_E_NOMEM;
        x->item = grown;
        x->room = room;
    }
    struct item *i = &x->item[x->n++];
    *i = (struct item){x->keys.len, row, table_real(t, x->value, row),
                       x->with >= 0 ? table_real(t, x->with, row) : 0};
    if (x->less >= 0)
        i->value -= table_real(t, x->less, row);
    put_key(c, t, row, x);
    return x->keys.err;
}

/* qsort has no context: the names are compared from here while sorting one list. */
struct named {
    const char *name;
    struct item item;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->item.row > y->item.row) - (x->item.row < y->item.row);
}

static bool defined(const struct item *i)
{
    return isfinite(i->value) && isfinite(i->with);
}

/* The value of a unit whose defined rows are the sample. */
static double one_value(const struct claim *c, struct claim_sample *s)
{
    struct claim rows = *c;
    rows.reduce = c->within;
    return s->n == 1 && c->within == CLAIM_MEAN ? s->value[0] : claims_statistic(&rows, s);
}

/* Rows with equal names become one unit. */
static int collapse(const struct claim *c, struct items *x, struct claim_units *u)
{
    struct claim_sample s = {0};
    struct named *list = MEM_NEW(struct named, x->n);
    int err = list ? claim_sample_create((int64_t)x->n, &s) : KVF_E_NOMEM;
    if (err)
        goto done;
    for (size_t i = 0; i < x->n; i++)
        list[i] = (struct named){c->n_unit ? x->keys.data + x->item[i].key : "", x->item[i]};
    if (c->n_unit)
        qsort(list, x->n, sizeof *list, by_name);
    for (size_t i = 0, end; i < x->n; i = end) {
        struct sum with = {0, 0};
        s.n = 0;
        end = i;
        do {
            if (defined(&list[end].item)) {
                s.value[s.n] = list[end].item.value;
                s.with[s.n++] = list[end].item.with;
                sum_add(&with, list[end].item.with);
            }
            end++;
        } while (end < x->n && c->n_unit && strcmp(list[end].name, list[i].name) == 0);
        u->left_out += (int64_t)(end - i) - s.n;
        double value = s.n > 0 ? one_value(c, &s) : NAN;
        if (isnan(value)) {
            u->left_out += s.n;
            continue;
        }
        u->value[u->n] = value;
        u->with[u->n] = sum_get(&with) / (double)s.n;
        u->row[u->n] = list[i].item.row;
        u->name[u->n] = c->n_unit ? mem_strdup(list[i].name) : NULL;
        if (c->n_unit && !u->name[u->n]) {
            err = KVF_E_NOMEM;
            goto done;
        }
        u->n++;
    }

done:
    claim_sample_free(&s);
    mem_free(list);
    return err;
}

int claims_units(const struct claim *c, const struct claim_side *s, const struct table *t,
                 struct claim_units *ret, struct claim_result *r, struct kvf_diag *d)
{
    struct filters f = {.n = 0};
    struct items x = {.n = 0};
    struct claim_units u = {.first = -1};
    if (table_rows(t) == 0) { /* of which no column has a type */
        missing(r, "rows", "");
        return KVF_OK;
    }
    if (!find_columns(c, t, &x, r) || !compile(s, t, &f, r))
        return KVF_OK;
    int err = KVF_OK;
    for (int64_t row = 0; row < table_rows(t); row++) {
        if (!passes(&f, t, row))
            continue;
        u.first = u.first < 0 ? row : u.first;
        err = add_item(c, t, row, &x);
        if (err)
            goto done;
    }
    u.rows = (int64_t)x.n;
    u.name = MEM_NEW(char *, x.n);
    u.value = MEM_NEW(double, x.n);
    u.with = MEM_NEW(double, x.n);
    u.row = MEM_NEW(int64_t, x.n);
    if (!u.name || !u.value || !u.with || !u.row) {
        err = KVF_E_NOMEM;
        goto done;
    }
    err = collapse(c, &x, &u);
    if (err)
        goto done;
    if (u.n > CLAIM_MOST_UNITS) {
        err = kvf_fail(d, KVF_E_LIMIT, "claim \"%.64s\": %lld units of table %s are more than %d",
                       c->id, (long long)u.n, s->table, CLAIM_MOST_UNITS);
        goto done;
    }
    *ret = u;
    u = (struct claim_units){0};

done:
    mem_free(x.item);
    buf_finish(&x.keys);
    claims_units_free(&u);
    return err;
}

void claims_units_free(struct claim_units *u)
{
    for (int64_t i = 0; u->name && i < u->n; i++)
        mem_free(u->name[i]);
    mem_free(u->name);
    mem_free(u->value);
    mem_free(u->with);
    mem_free(u->row);
    *u = (struct claim_units){0};
}
