/* fig_map.c - layer x head maps of a number of each head, as small multiples with one colour bar.
 *
 * These forms of --style choose the content: COLUMN=VALUE selects rows, value=COLUMN selects the
 * number, panel=COLUMN draws one map per value of the column.  minus=yes subtracts the first map
 * from each other one and uses a diverging map around 0.  A table of several traces has a column
 * `trace`, which is the default panel.  If several rows of a head remain, their mean is drawn. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/plot.h"
#include "render/marks.h"
#include "render/cells.h"
#include "render/caption.h"
#include "render/sentence.h"
#include "render/note.h"

enum { LEFT = 13, TOP = 3, NAME = 4, RIGHT = 22, BOTTOM = 13, GAP_X = 4, GAP_Y = 2, ABOUT = 3 };
enum { PANELS = 16, CELLS_OF_ANY = 1 << 20 };
static const double MIN_CELL = 1.4; /* mm per layer of maps side by side */
static const double LEAST = 28;     /* mm; a shorter colour bar has no room for its title */

/* A column that selects rows in every table that names it in `needs`. */
struct filter {
    const char *column;
    const char *usual; /* default if the table has it; NULL: value of the first row */
    double of_length;  /* > 0: the default is the number nearest to this fraction of T */
    const char *word;  /* displayed instead of the column name; NULL: the name */
    const char *about; /* prefix of the metadata ABOUTn that describe number n; may be NULL */
    bool each;         /* a table without `trace` has a map for each value */
};

/* F(column, default as --style describes it, `usual`, other fields) */
#define FIRST "that of the first row"
#define FILTERS(F)                                                                                 \
    F(a, FIRST, NULL, .word = "of trace", .about = "trace_")                                       \
    F(b, "all, each a map", NULL, .word = "with trace", .about = "trace_", .each = true)           \
    F(at, "all, each a map", "end", .each = true)                                                  \
    F(kind, FIRST, NULL)                                                                           \
    F(form, FIRST, NULL)                                                                           \
    F(p, FIRST, NULL)                                                                              \
    F(criterion, FIRST, NULL)                                                                      \
    F(quantity, "returns", "returns")                                                              \
    F(above, FIRST, NULL)                                                                          \
    F(horizon, "T / 4", NULL, .of_length = 0.25, .word = "at age")                                 \
    F(age, "T / 4", NULL, .of_length = 0.25)                                                       \
    F(class, "all", "all")

#define F(key, otherwise, ...) {.column = #key, __VA_ARGS__},
static const struct filter filters[] = {FILTERS(F)};
#undef F
enum { N_FILTERS = sizeof filters / sizeof *filters };

/* The values of the keys. */
struct map_style {
    const char *value, *panel;
    int minus;                  /* 1: yes */
    const char *row[N_FILTERS]; /* requested value, in the order of `filters`; may be NULL */
};

#define F(key, ...) FILTER_##key,
enum { FILTERS(F) };
#undef F
#define F(key, otherwise, ...)                                                                     \
    {.type = OPT_STR,                                                                              \
     .name = #key,                                                                                 \
     .offset = offsetof(struct map_style, row[FILTER_##key]),                                      \
     .arg = "VALUE",                                                                               \
     .help = "the rows with this value of the column",                                             \
     .absent = otherwise},
static const struct opt keys[] = {
    TEXT_KEY(struct map_style, value, "COLUMN", "the column that is drawn",
             .absent = "one for each table"),
    TEXT_KEY(struct map_style, panel, "COLUMN", "a map for each value of a column",
             .absent = "one map, or one for each trace"),
    WORD_KEY(struct map_style, minus, "no", "each map less the first", "no", "yes"),
    FILTERS(F){.type = OPT_END}};
#undef F
_Static_assert(sizeof keys / sizeof *keys <= FIGURE_KEYS, "figure.c has room for the keys");

struct plan {
    const struct figure *figure;
    const struct map_table *m;
    const struct table *t;
    int value, panel; /* columns; panel -1: one map */
    bool minus;
    int n_filters;
    struct chosen {
        int column;
        const char *name;
        const struct filter *of;
        char text[CELL_TEXT];
        double number;
    } filter[N_FILTERS];
    int n, first; /* panels; index of the first drawn one */
    char name[PANELS][CELL_TEXT];
    int64_t layer0, layers, head0, heads;
    double *cell;      /* [n][layers][heads] */
    int64_t *count;    /* rows per cell */
    bool drawn, mixed; /* there are rows; several rows of a head with unequal values */
};

static int find_or_fail(const struct plan *p, const char *name, int *ret, struct kvf_diag *d)
{
    const char *known[65] = {NULL};
    *ret = table_find(p->t, name);
    if (*ret >= 0)
        return KVF_OK;
    for (int i = 0; i < table_cols(p->t) && i < 64; i++)
        known[i] = table_col_name(p->t, i);
    const char *near = opt_near(known, name);
    return kvf_fail(d, KVF_E_ARG, "--style: table %s has no column '%s'%s%s%s", table_name(p->t),
                    name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* Returns true if a list of words between blanks has the name.  ":TYPE" and "?" may follow it. */
static bool listed(const char *list, const char *name)
{
    for (size_t n = strlen(name); list && *list; list += strspn(list, " ")) {
        if (strcspn(list, " :?") == n && strncmp(list, name, n) == 0)
            return true;
        list += strcspn(list, " ");
    }
    return false;
}

const struct map_table *map_of_table(const struct figure *f, const char *table)
{
    for (const struct map_table *m = f->maps; m && m->table; m++)
        if (strcmp(m->table, table) == 0)
            return m;
    return NULL;
}

void map_keys(const struct map_table *m, struct opt *ret)
{
    int n = 0, first_filter = (int)(sizeof keys / sizeof *keys) - 1 - N_FILTERS;
    for (int i = 0; keys[i].type != OPT_END; i++)
        if (i < first_filter || listed(m->needs, keys[i].name))
            ret[n++] = keys[i];
    ret[n] = (struct opt){.type = OPT_END};
    ret[0].absent = m->value;
}

static bool is_number(const struct table *t, int col)
{
    return table_col_type(t, col) != TABLE_STR;
}

static bool has_text(const struct table *t, int col, const char *s)
{
    char room[24];
    for (int64_t r = 0; r < table_rows(t); r++)
        if (strcmp(cell_text(t, col, r, room), s) == 0)
            return true;
    return false;
}

/* Chooses the number that a filter selects: the requested one, which some row must have, or the one
 * that is nearest to the default. */
static int choose_number(struct chosen *x, const struct table *t, const char *asked,
                         struct kvf_diag *d)
{
    char room[24];
    double T = table_meta_real(t, "T", NAN), want = table_real(t, x->column, 0);
    want = x->of->of_length > 0 && !isnan(T) ? x->of->of_length * T : want;
    if (asked && !opt_real(asked, &want))
        return kvf_fail(d, KVF_E_ARG, "--style: %s=%s is no number", table_col_name(t, x->column),
                        asked);
    x->number = table_nearest(t, x->column, want);
    tick_text(x->number, room);
    if (asked && !isnan(x->number) && x->number != want)
        return kvf_fail(d, KVF_E_ARG, "--style: table %s has no %s=%s; the nearest is %s",
                        table_name(t), table_col_name(t, x->column), asked, room);
    snprintf(x->text, sizeof x->text, "%s", room);
    return KVF_OK;
}

/* Chooses the text that a filter selects.  Some row must have it. */
static int choose_text(struct chosen *x, const struct table *t, const char *asked,
                       struct kvf_diag *d)
{
    const char *usual = x->of->usual;
    if (!usual || !has_text(t, x->column, usual))
        usual = table_str(t, x->column, 0);
    snprintf(x->text, sizeof x->text, "%s", asked ? asked : usual);
    if (has_text(t, x->column, x->text))
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "--style: no row of table %s has %s=%s", table_name(t),
                    table_col_name(t, x->column), x->text);
}

/* Adds filter i to the plan if the table has its column. */
static int choose(struct plan *p, int i, const char *asked, struct kvf_diag *d)
{
    const struct filter *f = &filters[i];
    struct chosen *x = &p->filter[p->n_filters];
    *x = (struct chosen){
        .column = table_find(p->t, f->column), .of = f, .name = f->word ? f->word : f->column};
    if (!listed(p->m->needs, f->column) || (x->column < 0 && !asked))
        return KVF_OK;
    if (x->column < 0)
        return find_or_fail(p, f->column, &x->column, d);
    p->n_filters++;
    return is_number(p->t, x->column) ? choose_number(x, p->t, asked, d)
                                      : choose_text(x, p->t, asked, d);
}

static bool matches(const struct plan *p, int64_t row)
{
    for (int i = 0; i < p->n_filters; i++) {
        const struct chosen *x = &p->filter[i];
        if (x->column == p->panel)
            continue;
        if (is_number(p->t, x->column) ? table_real(p->t, x->column, row) != x->number
                                       : strcmp(table_str(p->t, x->column, row), x->text) != 0)
            return false;
    }
    return table_int(p->t, table_find(p->t, "layer"), row) >= 0
           && table_int(p->t, table_find(p->t, "index"), row) >= 0;
}

/* Returns the metadata that describe the value of a filter, for example "log_beta of trimkv" for
 * trace 1, or NULL. */
static const char *about(const struct plan *p, const struct filter *f, const char *text)
{
    char key[CELL_TEXT + 24];
    if (!f->about)
        return NULL;
    snprintf(key, sizeof key, "%.20s%s", f->about, text);
    return table_meta(p->t, key);
}

static bool noted(const struct plan *p, int filter)
{
    const struct chosen *x = &p->filter[filter];
    return x->column != p->panel && about(p, x->of, x->text);
}

/* Returns the height in mm of the notes on the selected rows below the layer axis. */
static double notes_height(const struct plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_filters; i++)
        n += noted(p, i);
    return n * ABOUT;
}

/* Returns the panel of a row by its name.  A new name gets a new panel.  Returns -1 if there are
 * too many. */
static int panel_of(struct plan *p, int64_t row)
{
    char room[24];
    if (p->panel < 0) {
        p->n = 1;
        return 0;
    }
    const char *name = cell_text(p->t, p->panel, row, room);
    for (int i = 0; i < p->n; i++)
        if (strncmp(p->name[i], name, CELL_TEXT - 1) == 0)
            return i;
    if (p->n == PANELS)
        return -1;
    snprintf(p->name[p->n], CELL_TEXT, "%s", name);
    return p->n++;
}

static int measure(struct plan *p, struct kvf_diag *d)
{
    int layer = table_find(p->t, "layer"), index = table_find(p->t, "index");
    int64_t l1 = -1, h1 = -1;
    p->layer0 = p->head0 = INT64_MAX;
    for (int64_t r = 0; r < table_rows(p->t); r++) {
        if (!matches(p, r))
            continue;
        if (panel_of(p, r) < 0)
            return kvf_fail(d, KVF_E_ARG, "%s draws up to %d maps; column %s has more values",
                            p->figure->name, PANELS, table_col_name(p->t, p->panel));
        int64_t l = table_int(p->t, layer, r), h = table_int(p->t, index, r);
        p->layer0 = l < p->layer0 ? l : p->layer0;
        p->head0 = h < p->head0 ? h : p->head0;
        l1 = l > l1 ? l : l1;
        h1 = h > h1 ? h : h1;
    }
    p->drawn = l1 >= 0;
    if (!p->n) { /* no row is of a single head */
        p->n = 1;
        p->panel = -1;
    }
    p->layers = l1 < 0 ? 1 : l1 - p->layer0 + 1;
    p->heads = h1 < 0 ? 1 : h1 - p->head0 + 1;
    int64_t rows = table_rows(p->t), most = rows > CELLS_OF_ANY ? rows : CELLS_OF_ANY;
    if (p->layers <= most / p->heads / p->n)
        return KVF_OK;
    return kvf_fail(d, KVF_E_LIMIT,
                    "%s: the table has %lld rows, too few for %d maps of %lld layers and %lld "
                    "heads; choose some with --head",
                    p->figure->name, (long long)rows, p->n, (long long)p->layers,
                    (long long)p->heads);
}

/* Returns the column of the panels, or NULL for one map. */
static const char *panel_column(const struct plan *p, const struct map_style *o)
{
    if (o->panel || table_find(p->t, "trace") >= 0)
        return o->panel ? o->panel : "trace";
    for (int i = 0; i < N_FILTERS; i++)
        if (filters[i].each && !o->row[i] && listed(p->m->needs, filters[i].column)
            && table_find(p->t, filters[i].column) >= 0)
            return filters[i].column;
    return NULL;
}

/* Reads the style into p, then finds the panels and heads. */
static int plan_make(struct plan *p, const struct table *t, const struct figure_style *s,
                     struct kvf_diag *d)
{
    const struct map_style *o = s->own;
    *p = (struct plan){.figure = s->figure, .t = t, .panel = -1};
    p->m = map_of_table(s->figure, table_name(t));
    p->minus = o->minus == 1;
    const char *panel = panel_column(p, o), *value = o->value ? o->value : p->m->value;
    int err = find_or_fail(p, value, &p->value, d);
    if (!err && panel)
        err = find_or_fail(p, panel, &p->panel, d);
    if (err)
        return err;
    if (!is_number(t, p->value))
        return kvf_fail(d, KVF_E_ARG, "--style: column %s has no numbers", value);
    for (int i = 0; !err && i < N_FILTERS; i++)
        err = choose(p, i, o->row[i], d);
    if (!err)
        err = measure(p, d);
    if (err)
        return err;
    if (p->minus && p->n < 2)
        return kvf_fail(d, KVF_E_ARG,
                        "--style minus=yes needs two traces, or panel=COLUMN with "
                        "two values");
    return KVF_OK;
}

static int fill(struct plan *p)
{
    size_t all = (size_t)p->n * (size_t)p->layers * (size_t)p->heads;
    int layer = table_find(p->t, "layer"), index = table_find(p->t, "index");
    p->cell = MEM_NEW(double, all);
    p->count = MEM_NEW(int64_t, all);
    if (!p->cell || !p->count)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < table_rows(p->t); r++) {
        if (!matches(p, r))
            continue;
        int64_t l = table_int(p->t, layer, r) - p->layer0, h = table_int(p->t, index, r) - p->head0;
        int64_t k = (panel_of(p, r) * p->layers + l) * p->heads + h;
        double v = table_real(p->t, p->value, r);
        if (isnan(v)) {
            p->cell[k] = p->count[k] ? p->cell[k] : NAN;
            continue;
        }
        p->mixed |= p->count[k] && p->cell[k] != v;
        p->cell[k] = p->count[k] ? p->cell[k] + (v - p->cell[k]) / (double)(p->count[k] + 1) : v;
        p->count[k]++;
    }
    for (size_t k = 0; k < all; k++)
        if (!p->count[k] && !isnan(p->cell[k]))
            p->count[k] = -1; /* no such head: drawn white */
    return KVF_OK;
}

/* Subtracts the first panel from all others.  The first one is then not drawn. */
static void subtract(struct plan *p)
{
    size_t each = (size_t)p->layers * (size_t)p->heads;
    for (size_t k = each; k < each * (size_t)p->n; k++) {
        p->cell[k] -= p->cell[k % each];
        if (p->count[k] < 0 || p->count[k % each] < 0)
            p->count[k] = -1;
    }
    p->first = 1;
}

static struct colours colours_for(const struct plan *p, const struct figure_style *s)
{
    double lo = INFINITY, hi = -INFINITY;
    size_t each = (size_t)p->layers * (size_t)p->heads;
    for (size_t k = each * (size_t)p->first; k < each * (size_t)p->n; k++) {
        if (p->count[k] <= 0 || !isfinite(p->cell[k]))
            continue;
        lo = p->cell[k] < lo ? p->cell[k] : lo;
        hi = p->cell[k] > hi ? p->cell[k] : hi;
    }
    if (p->minus)
        return colours_diverging(s, fmax(fabs(lo), fabs(hi)));
    return listed(p->m->fractions, table_col_name(p->t, p->value)) ? colours_fraction(s, lo, hi)
                                                                   : colours_make(s, lo, hi);
}

/* ---- layout: panels in a row if layers stay wide enough, then down */

struct layout {
    int cols, rows;
    double top, w, h, step_x, step_y; /* of a map */
};

static struct layout layout_in(const struct plan *p, double width, double height)
{
    int n = p->n - p->minus;
    bool named = p->panel >= 0;
    struct layout l = {.cols = n};
    double gap = LEFT - 6, room = width - LEFT - RIGHT;
    while (l.cols > 1 && (room - (l.cols - 1) * gap) / l.cols < MIN_CELL * (double)p->layers)
        l.cols--;
    l.rows = (n + l.cols - 1) / l.cols;
    l.cols = (n + l.rows - 1) / l.rows;
    l.top = named ? NAME + 1 : TOP;
    l.w = (room - (l.cols - 1) * gap) / l.cols;
    double between = GAP_Y + (named ? NAME : 0), below = BOTTOM + notes_height(p);
    double each = (height - below - l.top - (l.rows - 1) * between) / l.rows;
    l.h = each;
    l.step_x = l.w + gap;
    l.step_y = each + between;
    return l;
}

/* Reads the cells, and subtracts the first map if the style asks for it. */
static int read_cells(struct plan *p)
{
    int err = fill(p);
    if (!err && p->minus)
        subtract(p);
    return err;
}

/* Returns a value of a column as the figure writes it: "top-64" for the criterion top64, "retention
 * gates" for the kind beta. */
static const char *plain_value(const struct plan *p, int column, const char *value,
                               char plain[PLOT_NAME])
{
    const char *name = column < 0 ? "" : table_col_name(p->t, column);
    if (strcmp(name, "kind") == 0 && strcmp(value, "beta") == 0)
        return "retention gates";
    if (strcmp(name, "kind") == 0 && strcmp(value, "alpha") == 0)
        return "evictions";
    if (strcmp(name, "criterion") != 0)
        return value;
    criterion_name(value, plain);
    return plain;
}

static void label_of(const struct plan *p, char *out, size_t cap);
static void panel_name(const struct plan *p, int panel, char *out, size_t cap);

/* Finds the range of a map.  Returns the number of heads with a value. */
static int64_t range_of(const struct plan *p, int panel, double *lo, double *hi)
{
    int64_t each = p->layers * p->heads, n = 0;
    *lo = INFINITY;
    *hi = -INFINITY;
    for (int64_t k = each * panel; k < each * (panel + 1); k++) {
        if (p->count[k] <= 0 || !isfinite(p->cell[k]))
            continue;
        *lo = fmin(*lo, p->cell[k]);
        *hi = fmax(*hi, p->cell[k]);
        n++;
    }
    return n;
}

/* Writes a sentence for each map if every map has one value, which two or more heads have. Returns
 * false if some map shows differences. */
static bool describe_equal(const struct plan *p, char text[SENTENCES])
{
    char label[96], name[4 * CELL_TEXT], number[24];
    int used = 0;
    label_of(p, label, sizeof label);
    for (int i = p->first; i < p->n; i++) {
        double lo, hi;
        int64_t n = range_of(p, i, &lo, &hi);
        if (n < 2 || hi - lo > 1e-9 * fmax(fabs(lo), fabs(hi)))
            return false;
        snprintf(number, sizeof number, "%.4g", lo);
        minus_signs(number, sizeof number);
        name[0] = 0;
        if (p->panel >= 0)
            panel_name(p, i, name, sizeof name);
        used += snprintf(text + used, SENTENCES - (size_t)used,
                         "%s%s%sall %lld heads have the same value, %s: %s.", used ? "\n" : "",
                         name, name[0] ? ": " : "", (long long)n, number, label);
        if (used >= SENTENCES)
            return false;
    }
    return true;
}

static void size(const struct table *t, const struct figure_style *s, double *ret_w, double *ret_h)
{
    struct plan p;
    *ret_w = 88;
    *ret_h = 40;
    if (plan_make(&p, t, s, NULL)) /* `draw` reports the error */
        return;
    char text[SENTENCES];
    bool equal = read_cells(&p) == KVF_OK && describe_equal(&p, text);
    mem_free_all(p.cell, p.count);
    if (equal) {
        sentence_size(text, ret_w, ret_h);
        return;
    }
    int n = p.n - p.minus;
    double one = LEFT + RIGHT + 1.5 * (double)p.layers;
    double two = LEFT + RIGHT + LEFT + 2 * MIN_CELL * (double)p.layers;
    *ret_w = fmax(88, fmin(180, one));
    if (n > 1 && two <= 180)
        *ret_w = fmax(140, fmin(180, two + 20));
    *ret_w = s->width_mm > 0 ? s->width_mm : *ret_w;
    struct layout l = layout_in(&p, *ret_w, 100);
    double cell = fmax(1.2, fmin(4, 60.0 / (double)p.heads));
    double each = fmax(n > 2 ? 9 : LEAST, fmin(200, cell * (double)p.heads));
    *ret_h = l.top + BOTTOM + notes_height(&p) + l.rows * each + (l.rows - 1) * (l.step_y - l.h);
    *ret_h = fmax(*ret_h, 40);
}

/* ---- drawing */

/* Writes the heading of a panel, for example "age 4", "with trace 2: log_beta of trimkv" or "h2o -
 * window". */
static void panel_name(const struct plan *p, int panel, char *out, size_t cap)
{
    const char *word = table_col_name(p->t, p->panel), *more = NULL;
    for (int i = 0; i < p->n_filters; i++)
        if (p->filter[i].column == p->panel) {
            word = p->filter[i].name;
            more = p->minus ? NULL : about(p, p->filter[i].of, p->name[panel]);
        }
    bool number = is_number(p->t, p->panel);
    char plain[PLOT_NAME];
    const char *value = plain_value(p, p->panel, p->name[panel], plain);
    int n = snprintf(out, cap, "%s%s%s", number ? word : "", number ? " " : "", value);
    if (p->minus && n < (int)cap)
        snprintf(out + n, cap - (size_t)n, " \xe2\x88\x92 %s",
                 plain_value(p, p->panel, p->name[0], plain));
    else if (more && n < (int)cap)
        snprintf(out + n, cap - (size_t)n, ": %s", more);
}

static void draw_panel(struct canvas *c, const struct plan *p, const struct layout *l, int panel,
                       struct colours *k)
{
    int place = panel - p->first, col = place % l->cols, row = place / l->cols, n = p->n - p->first;
    double x = LEFT + col * l->step_x, y = l->top + row * l->step_y;
    double cw = l->w / (double)p->layers, ch = l->h / (double)p->heads;
    char room[4 * CELL_TEXT], name[4 * CELL_TEXT];
    for (int64_t a = 0; a < p->layers; a++)
        for (int64_t b = 0; b < p->heads; b++) {
            int64_t i = ((int64_t)panel * p->layers + a) * p->heads + b;
            if (p->count[i] >= 0)
                colours_cell(c, k, p->count[i] ? p->cell[i] : NAN, x + (double)a * cw,
                             y + (double)b * ch, cw, ch);
        }
    canvas_frame(c, x, y, l->w, l->h, 0.18, ink);
    if (col == 0)
        layermap_numbers(c, p->head0, p->heads, x - 1.3, y, 0, ch);
    if (place + l->cols >= n)
        layermap_numbers(c, p->layer0, p->layers, x, y + l->h + 2.3, cw, 0);
    if (p->panel < 0)
        return;
    panel_name(p, panel, name, sizeof name);
    canvas_text(c, x, y - 2.2, text_fit(c, name, PT_TICK, l->w, room, sizeof room), PT_TICK,
                ALIGN_LEFT, ink, 0);
}

/* Returns true if rows of a criterion are drawn with this beginning of its name. */
static bool has_criterion(const struct plan *p, const char *begin)
{
    bool any = false;
    for (int i = 0; i < p->n_filters; i++)
        if (strcmp(table_col_name(p->t, p->filter[i].column), "criterion") == 0
            && p->filter[i].column != p->panel)
            any |= strncmp(p->filter[i].text, begin, strlen(begin)) == 0;
    for (int i = 0; p->panel >= 0 && i < p->n; i++)
        if (strcmp(table_col_name(p->t, p->panel), "criterion") == 0)
            any |= strncmp(p->name[i], begin, strlen(begin)) == 0;
    return any;
}

/* Writes the run of the table and the meaning of the drawn criteria. */
static const char *run_and_criteria(const struct plan *p, char out[NOTE_TEXT])
{
    note_run(p->t, out);
    for (int i = 0; i < CRITERION_KINDS; i++)
        if (has_criterion(p, criterion_meaning[i][0]))
            note_add(out, criterion_meaning[i][1]);
    return out;
}

/* Writes the label of the bar, the value and the selected rows, for example "fraction still in use
 * (top-64, at age 128)". */
static void label_of(const struct plan *p, char *out, size_t cap)
{
    int used;
    char plain[PLOT_NAME];
    const char *column = table_col_name(p->t, p->value), *open = " (";
    bool usual = strcmp(p->m->value, column) == 0;
    const char *label = p->m->held && has_criterion(p, "held") ? p->m->held : p->m->label;
    used = snprintf(out, cap, "%s%s%s", p->minus ? "difference" : "", p->minus ? open : "",
                    usual ? label : column);
    open = p->minus ? ", " : open;
    if (p->mixed && used < (int)cap) {
        used += snprintf(out + used, cap - (size_t)used, "%smean", open);
        open = ", ";
    }
    for (int i = 0; i < p->n_filters && used < (int)cap; i++) {
        const struct chosen *x = &p->filter[i];
        bool held = p->m->held && strcmp(x->text, "held") == 0; /* the label names it */
        if (x->column == p->panel || held || strcmp(x->text, "all") == 0)
            continue;
        bool named = is_number(p->t, x->column) || strlen(x->name) < 3; /* "at end" */
        used += snprintf(out + used, cap - (size_t)used, named ? "%s%s %s" : "%s%.0s%s", open,
                         x->name, plain_value(p, x->column, x->text, plain));
        open = ", ";
    }
    if (open[0] == ',' && used < (int)cap)
        snprintf(out + used, cap - (size_t)used, ")");
}

/* Writes notes on the selected rows if the number of a row does not explain it. */
static void draw_notes(struct canvas *c, const struct plan *p, double y)
{
    char note[4 * CELL_TEXT], room[4 * CELL_TEXT];
    for (int i = 0; i < p->n_filters; i++) {
        const struct chosen *x = &p->filter[i];
        if (!noted(p, i))
            continue;
        snprintf(note, sizeof note, "%s %s: %s", x->name, x->text, about(p, x->of, x->text));
        canvas_text(c, LEFT, y,
                    text_fit_own(c, note, PT_SMALL, canvas_width(c) - LEFT - 2, room, sizeof room),
                    PT_SMALL, ALIGN_LEFT, (struct rgb){0.35, 0.35, 0.35}, 0);
        y += ABOUT;
    }
}

static void draw_axes(struct canvas *c, const struct plan *p, const struct layout *l,
                      const struct colours *k)
{
    char label[96], about[NOTE_TEXT];
    double right = LEFT + (l->cols - 1) * l->step_x + l->w;
    double bottom = l->top + (l->rows - 1) * l->step_y + l->h;
    bool kv = strchr(table_str(p->t, table_find(p->t, "head"), 0), 'K') != NULL;
    canvas_text(c, (LEFT + right) / 2, bottom + 5.8, "layer", PT_LABEL, ALIGN_CENTER, ink, 0);
    canvas_text(c, LEFT - 8.5, (l->top + bottom) / 2, kv ? "KV head" : "query head", PT_LABEL,
                ALIGN_CENTER, ink, 1);
    label_of(p, label, sizeof label);
    draw_notes(c, p, bottom + 9.2);
    struct note n = note_below((LEFT + right) / 2, right + 2.5);
    note_draw(c, &n, bottom + 9.5 + notes_height(p), run_and_criteria(p, about));
    colours_bar(c, k, right + 2.5, l->top, fmin(bottom - l->top, 60), label);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct plan p;
    int err = plan_make(&p, t, s, d);
    if (err)
        return err;
    struct layout l = layout_in(&p, canvas_width(c), canvas_height(c));
    err = read_cells(&p);
    char text[SENTENCES];
    if (!err && describe_equal(&p, text)) {
        err = sentence_draw(c, p.figure->name, text, d);
    } else if (!err && !(l.w >= 2 && l.h >= 2)) {
        err = kvf_fail(d, KVF_E_ARG,
                       "%d maps do not fit into %.0f x %.0f mm; choose fewer or a "
                       "larger --size",
                       p.n - p.minus, canvas_width(c), canvas_height(c));
    } else if (!err) {
        struct colours k = colours_for(&p, s);
        for (int i = p.first; i < p.n; i++)
            draw_panel(c, &p, &l, i, &k);
        draw_axes(c, &p, &l, &k);
    }
    mem_free_all(p.cell, p.count);
    return err;
}

/* Writes the name of head k of a map, such as "layer 3, head 1". */
static const char *head_name(const struct plan *p, int64_t k, char out[48])
{
    snprintf(out, 48, "layer %lld, head %lld", (long long)(p->layer0 + k / p->heads),
             (long long)(p->head0 + k % p->heads));
    return out;
}

static void caption(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct plan p;
    char label[96], name[4 * CELL_TEXT] = "", where[5 * CELL_TEXT] = "", a[24], b[24], c[24],
                             low_name[48], high_name[48];
    if (plan_make(&p, t, s, NULL) || read_cells(&p)) {
        mem_free_all(p.cell, p.count);
        return;
    }
    int64_t each = p.layers * p.heads, low = -1, high = -1, n = 0;
    double *v = p.cell + each * p.first, sum = 0;
    label_of(&p, label, sizeof label);
    if (p.panel >= 0)
        panel_name(&p, p.first, name, sizeof name);
    for (int64_t k = 0; k < each; k++) {
        if (p.count[each * p.first + k] <= 0 || !isfinite(v[k]))
            continue;
        low = low < 0 || v[k] < v[low] ? k : low;
        high = high < 0 || v[k] > v[high] ? k : high;
        sum += v[k];
        n++;
    }
    if (name[0])
        snprintf(where, sizeof where, "In the map \xe2\x80\x9c%s\xe2\x80\x9d ", name);
    buf_printf(out, "Each cell is a head, layers across and heads down, coloured by: %s. ", label);
    if (!n)
        buf_printf(out, "No head has a value.\n");
    else if (v[high] - v[low] <= 1e-9 * fabs(v[high]))
        buf_printf(out, "%s%sll %lld heads have the value %s.\n", where, name[0] ? "a" : "A",
                   (long long)n, caption_number(v[high], a));
    else
        buf_printf(out, "%s%she mean is %s, and the heads range from %s (%s) to %s (%s).\n", where,
                   name[0] ? "t" : "T", caption_number(sum / (double)n, a),
                   caption_number(v[low], b), head_name(&p, low, low_name),
                   caption_number(v[high], c), head_name(&p, high, high_name));
    mem_free_all(p.cell, p.count);
}

/* The tables.  Of several values of a head the first column is drawn by default. */
#define TABLE(name, usual, title, ratios, others)                                                  \
    .table = name, .needs = "head:text layer index " usual " " others, .value = usual,             \
    .label = title, .fractions = ratios
static const struct map_table tables[] = {
    {TABLE("agreement", "rho", "rank correlation", "overlap", "a? b?")},
    /* G-KV, figure 9, by head. */
    {TABLE("attention-sparsity", "sparsity", "fraction below p \xc3\x97 max", "sparsity share",
           "form:text? p")},
    {TABLE("density", "mean", "mean position of cached entries", "mean", "")},
    {TABLE("dilution", "dilution", "dilution",
           "dilution useful_mass rho_u rho_d dilution_retained bound dilution_oracle", "step")},
    {TABLE("ghosts", "mass", "attention lost per entry", "", "")},
    {TABLE("heads", "score", "score of its kind",
           "score sink_mass recent never top_tenth entropy number gist filler prompt residence "
           "last_use_sparsity",
           "")},
    {TABLE("intermittency", "share", "fraction of tokens", "share",
           "criterion:text? quantity:text above class:text?")},
    /* WG-KV, figure 13. */
    {TABLE("kv-size", "size", "cached fraction", "size ratio", "at:text")},
    {TABLE("persistence", "shrunk", "selected", "shrunk rate", "criterion:text? age class:text?")},
    /* TRIM-KV, figure 5c. */
    {TABLE("sparsity", "sparsity", "sparsity", "sparsity", "kind:text")},
    /* DBTrimKV, figure 2b. */
    {TABLE("survival", "fraction", "fraction still in use", "fraction",
           "criterion:text horizon class:text?"),
     .held = "fraction still cached"},
    {.table = NULL}};

const struct figure fig_map = {
    .name = "map",
    .maps = tables,
    .summary = "layer x head map of one number of each head",
    .style = keys,
    .style_bytes = sizeof(struct map_style),
    .cmap = "viridis",
    .side_by_side = true,
    .size = size,
    .caption = caption,
    .draw = draw,
};
