/* grid_plan.c - arranges a grid of maps.
 *
 * A few heads each have a name and ticks.  Many heads have layers down and heads across, folded
 * into blocks side by side.  Several traces are side by side. */
#include <math.h>
#include <string.h>

#include "render/grid_plan.h"

enum { TOP = 5, TRACE = 4, LEAST_HEIGHT = 40, NAMED_MOST = 12, STRETCH = 3 };

/* Returns true if every layer shows the same heads. *heads receives their number. */
static bool is_product(const struct table *t, int64_t n, int64_t per_head, int64_t *heads)
{
    int layer = table_find(t, "layer"), index = table_find(t, "index");
    int64_t k = 1;
    while (k < n && table_int(t, layer, k * per_head) == table_int(t, layer, 0))
        k++;
    *heads = k;
    for (int64_t h = 0; h < n; h++) {
        int64_t first = h - h % k;
        if (table_int(t, layer, h * per_head) != table_int(t, layer, first * per_head)
            || table_int(t, index, h * per_head) != table_int(t, index, h % k * per_head)
            || (h % k == 0 && h
                && table_int(t, layer, h * per_head) == table_int(t, layer, (h - 1) * per_head)))
            return false;
    }
    return n % k == 0;
}

/* Returns the height that is not used by maps. */
static double around(const struct grid_plan *l)
{
    return l->top + GRID_BOTTOM + (l->rows - 1) * l->gap_y;
}

double grid_plan_width(const struct grid_plan *l)
{
    double block = l->label + l->cols * l->side + (l->cols - 1) * l->gap_x;
    return l->left + GRID_RIGHT + l->margin + l->blocks * block + (l->blocks - 1) * l->gap_block;
}

static double side_in(const struct grid_plan *l, double width, double height)
{
    double b = l->blocks, x = width - l->left - GRID_RIGHT - l->margin
                              - b * (l->label + (l->cols - 1) * l->gap_x) - (b - 1) * l->gap_block;
    return fmin(x / (b * l->cols), (height - around(l)) / (l->rows * l->aspect));
}

/* Returns how many of the first `most` rows have the value of the first row; they are a prefix. */
static int64_t like_first(const struct table *t, int col, int64_t most)
{
    int64_t lo = 0, hi = most;
    if (most == 0)
        return 0;
    const char *first = table_str(t, col, 0);
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (strcmp(table_str(t, col, mid), first) == 0)
            lo = mid;
        else
            hi = mid;
    }
    return lo + 1;
}

int64_t rows_per_trace(const struct table *t)
{
    int trace = table_find(t, "trace");
    bool told = trace >= 0 && table_col_type(t, trace) == TABLE_STR;
    return told ? like_first(t, trace, table_rows(t)) : table_rows(t);
}

int64_t rows_per_head(const struct table *t)
{
    return like_first(t, table_find(t, "head"), rows_per_trace(t));
}

double grid_plan_height(const struct grid_plan *l)
{
    return around(l) + l->rows * l->tall;
}

int traces_alike(const struct table *t, const char *number, struct kvf_diag *d)
{
    int64_t n = table_rows(t), per = rows_per_trace(t);
    int head = table_find(t, "head"), trace = table_find(t, "trace"), col = table_find(t, number);
    bool same = per == 0 || n % per == 0;
    for (int64_t r = per; same && r < n; r++)
        same = table_real(t, col, r) == table_real(t, col, r - per)
               && strcmp(table_str(t, head, r), table_str(t, head, r - per)) == 0
               && strcmp(table_str(t, trace, r), table_str(t, trace, r - r % per)) == 0;
    return same ? KVF_OK
                : kvf_fail(d, KVF_E_ARG,
                           "the traces differ in heads or in %ss; choose with --head and --tokens "
                           "what all have, or draw one trace",
                           number);
}

/* Sets one of the possible arrangements: k maps per row, or k blocks. */
static void set_k(struct grid_plan *l, int64_t k, int64_t heads)
{
    int64_t most = l->named ? l->n : l->n / heads;
    l->cols = (int)(l->named ? k : heads);
    l->blocks = (int)(l->named ? 1 : k);
    l->rows = (int)((most + k - 1) / k);
}

/* Returns the k with the largest maps.  A layer's heads stay in one row, the heads of a trace in
 * one column or block. */
static int64_t best_k(struct grid_plan *l, int64_t heads, bool by_layer, double width,
                      double height)
{
    int64_t most = l->named ? l->n : l->n / heads, best = 1;
    double side = -INFINITY;
    if (l->matrix || (l->traces > 1 && !l->named))
        return l->traces;
    for (int64_t k = 1; k <= most; k++) {
        if (l->named && by_layer && k != heads)
            continue;
        set_k(l, k, heads);
        l->side = side_in(l, width, height);
        if (isinf(side) || l->side > side * (1 + 1e-9)) {
            side = l->side;
            best = k;
        }
    }
    return best;
}

struct grid_plan grid_plan_of(const struct grid *g, const struct grid_window *win, double width,
                              double height)
{
    const struct table *t = g->t;
    struct grid_plan l = {.per_head = rows_per_head(t), .margin = g->margin};
    int64_t heads, each = rows_per_trace(t) / l.per_head;
    l.aspect = fmin(fmax((double)(win->to - win->from) / (double)win->n, 0.35), 4);
    l.n = table_rows(t) / l.per_head;
    l.traces = l.n / each;
    bool product = is_product(t, each, l.per_head, &heads);
    l.named = !product || each <= NAMED_MOST;
    l.matrix = l.named && l.traces > 1 && each > 1;
    l.top = TOP + (l.traces > 1 && each > 1 ? TRACE : 0);
    l.left = l.named ? 13 : 6;
    l.label = l.named ? 0 : 6.5;
    double between = heads > 24 ? 0.6 : 1.2;
    l.gap_x = (l.named ? 5 : between) + l.margin;
    l.gap_y = l.named ? 6 : 1.2;
    l.gap_block = 1.5;
    int64_t k = best_k(&l, heads, product && heads > 1 && heads < l.n && l.traces == 1, width,
                       height);
    set_k(&l, k, heads);
    l.side = side_in(&l, width, height);
    l.tall = l.side * l.aspect;
    return l;
}

void grid_plan_fill(struct grid_plan *l, double width, double height)
{
    double x = (width - grid_plan_width(l)) / (l->blocks * l->cols),
           y = (height - grid_plan_height(l)) / l->rows;
    l->side = fmin(l->side + fmax(x, 0), STRETCH * l->side);
    l->tall = fmin(l->tall + fmax(y, 0), STRETCH * l->tall);
}

/* Returns the first step of the event, or -1 if it never occurs. */
static int64_t first_event(const struct grid *g)
{
    int col = table_find(g->t, g->event);
    int64_t first = -1;
    for (int64_t r = 0; r < table_rows(g->t); r++) {
        int64_t step = table_int(g->t, col, r);
        first = step >= 0 && (first < 0 || step < first) ? step : first;
    }
    return first;
}

/* Restricts the steps [*from, *to) to the surroundings of the event: 1/20 as many steps before it
 * as after it.  If all tokens are earlier than the event, the steps extend to the last step of the
 * run. */
static void near_event(const struct grid *g, int64_t last, int64_t *from, int64_t *to)
{
    int64_t event = g->event ? first_event(g) : -1;
    if (event < 0 || event >= last)
        return;
    *to = event >= *to ? last : *to;
    int64_t before = (*to - event + 19) / 20, begin = event - before;
    if (begin - *from > (*to - *from) / 10) /* do not cut a small corner */
        *from = begin;
}

/* Returns the number of steps that all traces have. */
static int64_t steps_of_all(const struct table *t, int64_t otherwise)
{
    int col = table_find(t, "T");
    int64_t least = INT64_MAX;
    if (table_meta(t, "T") || col < 0 || table_col_type(t, col) == TABLE_STR)
        return table_meta_int(t, "T", otherwise);
    for (int64_t r = 0; r < table_rows(t); r += rows_per_trace(t))
        least = table_int(t, col, r) < least ? table_int(t, col, r) : least;
    return least;
}

int grid_window_of(const struct grid *g, const struct figure_style *s, struct grid_window *ret,
                   struct kvf_diag *d)
{
    const struct grid_style *o = s->own;
    int64_t n = rows_per_head(g->t);
    int64_t first = table_int(g->t, table_find(g->t, "token"), 0), from = first, to = first + n;
    int64_t last = steps_of_all(g->t, to);
    int err = style_steps(o->steps, &from, &to, d);
    if (err)
        return err;
    if (!o->steps)
        near_event(g, last, &from, &to);
    to = to == INT64_MAX ? last : to;
    from = from < first ? first : from;
    to = to > last && last > first ? last : to;
    if (to <= from)
        return kvf_fail(d, KVF_E_ARG,
                        "--style steps: tokens from %lld on are seen at steps %lld "
                        "to %lld",
                        (long long)first, (long long)first, (long long)last - 1);
    *ret = (struct grid_window){n, first, from - first, to - first};
    return KVF_OK;
}

const struct opt grid_keys[] = {
    GRID_STEPS("those of the tokens, from shortly before the first eviction on"),
    {.type = OPT_END},
};

void grid_ends(const struct table *t, int64_t row0, int64_t n, double *end)
{
    double first = table_real(t, table_find(t, "token"), row0);
    table_get(t, table_find(t, "evict_step"), row0, n, end);
    for (int64_t i = 0; i < n; i++)
        end[i] = end[i] < 0 ? INFINITY : end[i] - first;
}

/* Computes the figure's own size: as wide as two columns of a paper, as high as a page if maps
 * would be tiny, larger for thousands of maps. */
void grid_size(const struct grid *g, const struct figure_style *s, double *ret_w, double *ret_h)
{
    struct grid_window win;
    int64_t per_head = rows_per_head(g->t), n = table_rows(g->t) / per_head;
    double w = n == 2 ? 140 : 180, h = n == 2 ? 90 : 150;
    w = n == 1 ? 88 : w;
    if (grid_window_of(g, s, &win, NULL)) /* `draw` reports the error */
        win = (struct grid_window){per_head, 0, 0, per_head};
    struct grid_plan l = grid_plan_of(g, &win, w, h);
    if (l.side < 4)
        l = grid_plan_of(g, &win, w, h = 230);
    while (l.side < 1.6 && w < 2000) {
        w *= 1.2;
        h *= 1.2;
        l = grid_plan_of(g, &win, w, h);
    }
    *ret_w = grid_plan_width(&l);
    *ret_h = fmax(grid_plan_height(&l), LEAST_HEIGHT);
    if (s->width_mm > 0) { /* margins do not shrink: limit the height to the maps of that width */
        l = grid_plan_of(g, &win, s->width_mm, *ret_h * s->width_mm / *ret_w);
        *ret_w = s->width_mm;
        *ret_h = fmax(grid_plan_height(&l), LEAST_HEIGHT);
    }
}

void grid_plan_cell(const struct grid_plan *l, int64_t h, int64_t *col, int64_t *row)
{
    int64_t each = l->n / l->traces;
    *col = l->matrix ? h / each : h % l->cols;
    *row = l->matrix ? h % each : h / l->cols;
}

void grid_plan_place(const struct grid_plan *l, int64_t h, double *x, double *y)
{
    int64_t row, col;
    grid_plan_cell(l, h, &col, &row);
    int64_t block = row / l->rows;
    double width = l->label + l->cols * l->side + (l->cols - 1) * l->gap_x + l->gap_block;
    *x = l->left + l->label + (double)block * width + (double)col * (l->side + l->gap_x);
    *y = l->top + (double)(row % l->rows) * (l->tall + l->gap_y);
}
