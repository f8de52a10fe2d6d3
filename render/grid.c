/* grid.c - draws small multiples, one map per head.
 *
 * A few heads each have a name and ticks.  Many heads are arranged with layers down and heads
 * across, folded into blocks side by side, with names only at the margins. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/par.h"
#include "render/clamp.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/note.h"

/* ---- the arrangement of a grid of maps.  Few heads: each with its name and ticks.  Many:
 * layers down, heads across, folded into blocks side by side.  Several traces: side by side. */

struct grid_window {
    int64_t n, first; /* tokens: first .. first + n - 1 */
    int64_t from, to; /* steps shown, counted from the first token */
};

/* Maps are in the order of the table: trace by trace, head by head. */
struct grid_plan {
    double margin;               /* right of each map */
    double above;                /* a strip above each map, mm; 0: none */
    int64_t traces, n, per_head; /* traces; maps of all; rows of each */
    bool named;                  /* every map has its own name */
    bool matrix;                 /* a column for each trace, a row for each head */
    int cols, rows, blocks;      /* maps across in a block, rows, blocks */
    double top, left, label, gap_x, gap_y, gap_block, side, tall; /* tall: height of a map */
    double aspect;                                                /* tall / side */
};

enum { GRID_RIGHT = 20, GRID_BOTTOM = 13 }; /* mm */

enum { TOP = 5, TRACE = 4, MIN_HEIGHT = 40, NAMED_MAX = 12, STRETCH = 3, TICKS_FROM = 18 };
static const double STRIP_GAP = 0.8;

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

static double grid_plan_width(const struct grid_plan *l)
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

static double grid_plan_height(const struct grid_plan *l)
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
                           "the traces differ in heads or in %ss; choose common ones with --head "
                           "and --tokens, or draw one trace",
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

/* Arranges the maps with a strip of `above` mm above each of them, if they have their own names. */
static struct grid_plan plan_with(const struct grid *g, const struct grid_window *win, double width,
                                  double height, double above)
{
    const struct table *t = g->t;
    struct grid_plan l = {.per_head = rows_per_head(t), .margin = g->margin};
    int64_t heads, each = rows_per_trace(t) / l.per_head;
    l.aspect = fmin(fmax((double)(win->to - win->from) / (double)win->n, 0.35), 4);
    l.n = table_rows(t) / l.per_head;
    l.traces = l.n / each;
    bool product = is_product(t, each, l.per_head, &heads);
    l.named = !product || each <= NAMED_MAX;
    l.matrix = l.named && l.traces > 1 && each > 1;
    l.above = l.named ? above : 0;
    l.top = TOP + (l.traces > 1 && each > 1 ? TRACE : 0) + l.above;
    l.left = l.named ? 13 : 6;
    l.label = l.named ? 0 : 6.5;
    double between = heads > 24 ? 0.6 : 1.2;
    l.gap_x = (l.named ? 5 : between) + l.margin;
    l.gap_y = l.named ? 6 + l.above : 1.2;
    l.gap_block = 1.5;
    int64_t k = best_k(&l, heads, product && heads > 1 && heads < l.n && l.traces == 1, width,
                       height);
    set_k(&l, k, heads);
    l.side = side_in(&l, width, height);
    l.tall = l.side * l.aspect;
    return l;
}

static struct grid_plan grid_plan_of(const struct grid *g, const struct grid_window *win,
                                     double width, double height)
{
    struct grid_plan l = plan_with(g, win, width, height, g->strip ? g->above + STRIP_GAP : 0);
    if (l.above > 0 && l.side < TICKS_FROM)
        l = plan_with(g, win, width, height, 0);
    return l;
}

static void grid_plan_fill(struct grid_plan *l, double width, double height)
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

static int grid_window_of(const struct grid *g, const struct figure_style *s,
                          struct grid_window *ret, struct kvf_diag *d)
{
    const struct grid_style *o = s->own;
    int64_t n = rows_per_head(g->t);
    int64_t first = table_int(g->t, table_find(g->t, "token"), 0), from = first, to = first + n;
    int64_t last = steps_of_all(g->t, to);
    int err = style_steps(o->steps, (last > first ? last : to) - 1, &from, &to, d);
    if (err)
        return err;
    if (!o->steps)
        near_event(g, last, &from, &to);
    from = from < first ? first : from; /* no token of the table exists before */
    to = to > last && last > first ? last : to;
    if (to <= from)
        return kvf_fail(d, KVF_E_ARG,
                        "--style steps: tokens from %lld on are seen at steps %lld "
                        "to %lld",
                        (long long)first, (long long)first, (long long)last - 1);
    *ret = (struct grid_window){n, first, from - first, to - first};
    return KVF_OK;
}

void grid_ends(const struct table *t, int64_t row0, int64_t n, double *end)
{
    double first = table_row_real(t, row0, "token");
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
    *ret_h = fmax(grid_plan_height(&l), MIN_HEIGHT);
    if (s->width_mm > 0) { /* margins do not shrink: limit the height to the maps of that width */
        l = grid_plan_of(g, &win, s->width_mm, *ret_h * s->width_mm / *ret_w);
        *ret_w = s->width_mm;
        *ret_h = fmax(grid_plan_height(&l), MIN_HEIGHT);
    }
}

static void grid_plan_cell(const struct grid_plan *l, int64_t h, int64_t *col, int64_t *row)
{
    int64_t each = l->n / l->traces;
    *col = l->matrix ? h / each : h % l->cols;
    *row = l->matrix ? h % each : h / l->cols;
}

static void grid_plan_place(const struct grid_plan *l, int64_t h, double *x, double *y)
{
    int64_t row, col;
    grid_plan_cell(l, h, &col, &row);
    int64_t block = row / l->rows;
    double width = l->label + l->cols * l->side + (l->cols - 1) * l->gap_x + l->gap_block;
    *x = l->left + l->label + (double)block * width + (double)col * (l->side + l->gap_x);
    *y = l->top + (double)(row % l->rows) * (l->tall + l->gap_y);
}

enum {
    MIN_PIXELS = 4,
    MAX_PIXELS = 8000, /* boxes per side; more pixels share a box */
    STRIPE = 64,
    MAX_THREADS = 16,
    MAX_BATCH = 1 << 24, /* pixels in memory at once */
};

struct painter {
    struct canvas *c;
    const struct grid *g;
    struct grid_window win;
    struct grid_plan l;
    struct colours k;
    bool usual_range; /* the style sets no end of the colour range */
    struct heat heat;
    struct par *pool;
    int batch, stripes; /* maps per batch; column stripes per map, one per task */
    double *number;     /* [batch][per_head] */
    uint32_t *argb;     /* [batch][h][w] */
    double *scratch;    /* [threads][span] */
    long span;
    uint32_t colour[PALETTE_STEPS + 1];
    int64_t clipped[MAX_THREADS], boxes[MAX_THREADS];
};

static uint32_t colour_of(const struct painter *p, struct colours *k, double v, double cover)
{
    double f = colours_at(k, p->g->floor > 0 ? log10(v) : v);
    if (isnan(f) || cover < 1)
        return palette_argb_at(k->map, f, cover);
    return p->colour[(int)(clamp(f, 0, 1) * PALETTE_STEPS + 0.5)];
}

/* Computes some columns of one map.  The result depends only on the task number, not on the
 * thread. */
static void stripe(void *ctx, int task, int thread)
{
    struct painter *p = ctx;
    int map = task / p->stripes, c0 = task % p->stripes * STRIPE, w = p->heat.w, h = p->heat.h;
    double *mean = p->scratch + thread * p->span, *cover = mean + h, *rest = cover + h;
    uint32_t *out = p->argb + (size_t)map * (size_t)w * (size_t)h;
    struct colours k = p->k;
    int64_t boxes = 0;
    rest += (4 - 2 * h % 4) % 4; /* align for lanes of four */
    for (int c = c0; c < w && c < c0 + STRIPE; c++) {
        p->g->raster(&p->heat, p->number + map * p->l.per_head, c, mean, cover, rest);
        for (int r = 0; r < h; r++) {
            bool seen = cover[r] > HEAT_MIN;
            boxes += seen;
            out[(size_t)r * (size_t)w + (size_t)c] = seen ? colour_of(p, &k, mean[r], cover[r]) : 0;
        }
    }
    p->clipped[thread] += k.clipped - p->k.clipped;
    p->boxes[thread] += boxes;
}

static struct axis_box box_of(const struct painter *p, int64_t h)
{
    double x, y, first = (double)p->win.first;
    grid_plan_place(&p->l, h, &x, &y);
    return (struct axis_box){.x = x,
                             .y = y,
                             .w = p->l.side,
                             .h = p->l.tall,
                             .x0 = first,
                             .x1 = first + (double)p->win.n,
                             .y0 = first + (double)p->win.to,
                             .y1 = first + (double)p->win.from,
                             .whole_x = 1,
                             .whole_y = 1};
}

static void put_map(const struct painter *p, int64_t h, const uint32_t *argb)
{
    struct axis_box a = box_of(p, h);
    canvas_image(p->c, a.x, a.y, a.w, a.h, argb, p->heat.w, p->heat.h);
    if (p->g->over)
        p->g->over(p->c, p->g->t, h * p->l.per_head, &a);
    canvas_frame(p->c, a.x, a.y, a.w, a.h, 0.1, (struct rgb){0.45, 0.45, 0.45});
}

static const char *text_of(const struct painter *p, const char *column, int64_t h)
{
    return table_str(p->g->t, table_find(p->g->t, column), h * p->l.per_head);
}

/* Writes the name of a trace above its column or block, if map h is its first. */
static void trace_name(const struct painter *p, int64_t h, double width)
{
    const struct grid_plan *l = &p->l;
    char fit[256];
    double x, y;
    if (h % (l->n / l->traces) != 0)
        return;
    grid_plan_place(l, h, &x, &y);
    canvas_text(p->c, x + width / 2, l->top - l->above - 6.4,
                text_fit(p->c, text_of(p, "trace", h), PT_LABEL, width + 2, fit, sizeof fit),
                PT_LABEL, ALIGN_CENTER, ink, 0);
}

/* Draws the name above a map and, if there is space, ticks at the left and bottom edges. */
static void name_and_ticks(const struct painter *p, int64_t h)
{
    struct axis_box a = box_of(p, h);
    int64_t col, row;
    char name[256], fit[256], limit[32] = "";
    double pt = p->l.side < 12 ? PT_SMALL : PT_TICK;
    int budget = table_find(p->g->t, "head_budget");
    bool named = p->l.traces > 1 && !p->l.matrix;
    grid_plan_cell(&p->l, h, &col, &row);
    if (p->l.matrix)
        trace_name(p, h, a.w);
    int64_t most = budget < 0 || p->l.side < 12 ? 0 : table_int(p->g->t, budget, h * p->l.per_head);
    if (most > 0)
        snprintf(limit, sizeof limit, ", budget %lld", (long long)most);
    snprintf(name, sizeof name, "%.100s%s%.100s%s", named ? text_of(p, "trace", h) : "",
             named ? ": " : "", text_of(p, "head", h), limit);
    canvas_text(p->c, a.x + a.w / 2, a.y - p->l.above - 1.9,
                text_fit(p->c, name, pt, named ? a.w + 3 : canvas_width(p->c), fit, sizeof fit), pt,
                ALIGN_CENTER, ink, 0);
    if (p->l.above > 0) {
        struct axis_box strip = a;
        strip.y = a.y - p->l.above;
        strip.h = p->g->above;
        p->g->strip(p->c, p->g->t, h * p->l.per_head, strip, col ? 0 : 1 + (h == 0));
    }
    if (p->l.side < TICKS_FROM)
        return;
    if (col == 0)
        axis_ticks_y(p->c, &a);
    if (p->l.matrix ? row + 1 == p->l.rows : h + p->l.cols >= p->l.n)
        axis_ticks_x(p->c, &a);
}

/* Writes the names at the margins: "L15" left of a block's row, "K2" above a block's column. */
static void margin_names(const struct painter *p, int64_t h)
{
    const struct table *t = p->g->t;
    const char *name = table_str(t, table_find(t, "head"), h * p->l.per_head), *second = name;
    char layer[24];
    double x, y;
    grid_plan_place(&p->l, h, &x, &y);
    while (*second && *second != 'K' && *second != 'H')
        second++;
    snprintf(layer, sizeof layer, "%.*s", (int)(second - name), name);
    double pt = p->l.side < 6 ? PT_SMALL : PT_TICK;
    pt = p->l.side < 2.4 ? 4 : pt;
    if (h % p->l.cols == 0)
        canvas_text(p->c, x - 1, y + p->l.tall / 2, layer, pt, ALIGN_RIGHT, ink, 0);
    if (p->l.traces > 1)
        trace_name(p, h, p->l.cols * (p->l.side + p->l.gap_x) - p->l.gap_x);
    if (h / p->l.cols % p->l.rows == 0)
        canvas_text(p->c, x + p->l.side / 2, y - 1.9, second, pt, ALIGN_CENTER, ink, 0);
}

static void range_text(double a, double b, char out[64])
{
    char from[24], to[24];
    tick_text(a, from);
    tick_text(b, to);
    snprintf(out, 64, "%s to %s", from, to);
}

/* Draws the colours of the two states of a cell. */
static void states_key(const struct painter *p, const struct colours *k, double x)
{
    for (int i = 0; i < 2; i++) {
        double y = p->l.top + 1.5 + 4.2 * i;
        canvas_rect(p->c, x, y - 1.4, 2.8, 2.8, palette_at(k->map, 1 - i));
        canvas_text(p->c, x + 4, y, p->g->states[i], PT_TICK, ALIGN_LEFT, ink, 0);
    }
}

/* Draws the colour bar and the names of the axes, which include the range if maps have no ticks. */
static void axis_names(const struct painter *p)
{
    const struct grid_plan *l = &p->l;
    struct axis_box a = box_of(p, 0);
    char range[64], name[96];
    bool ticks = l->named && l->side >= TICKS_FROM;
    double right = grid_plan_width(l) - GRID_RIGHT, bottom = grid_plan_height(l) - GRID_BOTTOM;
    range_text(a.x0, a.x1, range);
    snprintf(name, sizeof name, ticks ? "token position i" : "token position i (%s)", range);
    canvas_text(p->c, (l->left + right - l->margin) / 2,
                bottom + (ticks || p->g->margin > 0 ? 6.2 : 3.6), name, PT_LABEL, ALIGN_CENTER, ink,
                0);
    char about[NOTE_RUN];
    struct note n = note_below((l->left + right - l->margin) / 2, right + 3);
    note_draw(p->c, &n, bottom + GRID_BOTTOM - 1.9, note_run(p->g->t, about));
    range_text(a.y1, a.y0, range);
    snprintf(name, sizeof name, ticks ? "query step t" : "query step t (%s, downwards)", range);
    if (canvas_text_width(p->c, name, PT_LABEL, 0) > canvas_height(p->c) - 1)
        snprintf(name, sizeof name, "step t (%s)", range);
    if (canvas_text_width(p->c, name, PT_LABEL, 0) > canvas_height(p->c) - 1)
        snprintf(name, sizeof name, "step t");
    double half = canvas_text_width(p->c, name, PT_LABEL, 0) / 2 + 0.5;
    double middle = fmax(half, fmin((l->top + bottom) / 2, canvas_height(p->c) - half));
    canvas_text(p->c, 3.2, middle, name, PT_LABEL, ALIGN_CENTER, ink, 1);
    struct colours k = p->k;
    if (k.logs && p->usual_range) /* values below the floor are not clipped */
        k.clipped = 0;
    bool states = p->g->states[0] && !k.share && p->heat.w >= p->win.n
                  && p->heat.h >= p->win.to - p->win.from;
    double y = l->top;
    if (states)
        states_key(p, &k, right + 3);
    if (p->g->key)
        y = p->g->key(p->c, p->g->t, &a, right + 3, y + 1.5 + (states ? 8.4 : 0));
    if (!states)
        colours_bar(p->c, &k, right + 3, y, fmin(bottom - y, 60), p->g->label);
}

/* Computes and draws the maps, `batch` heads at a time on all threads.  Only this thread reads the
 * table. */
static void paint_all(struct painter *p)
{
    size_t area = (size_t)p->heat.w * (size_t)p->heat.h;
    for (int64_t h = 0; h < p->l.n; h += p->batch) {
        int n = (int)(p->l.n - h < p->batch ? p->l.n - h : p->batch);
        for (int i = 0; i < n; i++)
            p->g->fill(p->g->t, (h + i) * p->l.per_head, p->l.per_head,
                       p->number + i * p->l.per_head);
        par_run(p->pool, n * p->stripes, stripe, p);
        for (int i = 0; i < n; i++) {
            put_map(p, h + i, p->argb + (size_t)i * area);
            if (p->l.named)
                name_and_ticks(p, h + i);
            else
                margin_names(p, h + i);
        }
    }
    for (int i = 0; i < MAX_THREADS; i++) {
        p->k.clipped += p->clipped[i];
        p->k.of += p->boxes[i];
    }
    axis_names(p);
}

static int threads_for(const struct painter *p, int asked)
{
    int64_t work = p->l.n * (p->l.per_head + (int64_t)p->heat.w * p->heat.h);
    long n = work < 1 << 18 ? 1 : sysconf(_SC_NPROCESSORS_ONLN);
    return (int)clamp_whole(asked > 0 ? asked : n, 1, MAX_THREADS);
}

static int paint(struct painter *p, int asked)
{
    size_t area = (size_t)p->heat.w * (size_t)p->heat.h;
    int threads = threads_for(p, asked), err = par_create(threads, &p->pool);
    if (err)
        return err;
    p->batch = (int)fmax(
        1, fmin(fmin(4.0 * threads, (double)p->l.n), (double)MAX_BATCH / (double)area));
    p->stripes = (p->heat.w + STRIPE - 1) / STRIPE;
    p->span = (heat_scratch(p->heat.h) + 2 * p->heat.h + 8) / 4 * 4;
    p->number = MEM_NEW(double, (size_t)p->batch *(size_t)p->l.per_head);
    p->argb = MEM_NEW(uint32_t, (size_t)p->batch * area);
    p->scratch = MEM_NEW(double, (size_t)threads *(size_t)p->span);
    if (!p->number || !p->argb || !p->scratch) {
        err = KVF_E_NOMEM;
        goto done;
    }
    palette_table(p->k.map, p->colour);
    paint_all(p);
done:
    par_destroy(p->pool);
    mem_free_all(p->number, p->argb, p->scratch);
    return err;
}

/* Returns the number of boxes along a side of *mm, and rounds *mm to whole boxes.  A box is one
 * device pixel, or several if the side has more than MAX_PIXELS. */
static int boxes_in(double pixel, double *mm)
{
    double pixels = floor(*mm / pixel + 1e-6), each = ceil(pixels / MAX_PIXELS);
    if (pixels < MIN_PIXELS)
        return MIN_PIXELS;
    *mm = floor(pixels / each) * each * pixel;
    return (int)(pixels / each);
}

/* Computes the range of the colours, as logarithms if the grid has a floor. */
static int range_of(const struct grid *g, const struct figure_style *s, struct colours *ret,
                    struct kvf_diag *d)
{
    struct figure_style own = *s;
    if (g->floor > 0 && (s->vmin <= 0 || s->vmax <= 0))
        return kvf_fail(d, KVF_E_ARG, "--vmin, --vmax: a logarithmic scale begins above 0");
    own.vmin = g->floor > 0 ? log10(s->vmin) : s->vmin;
    own.vmax = g->floor > 0 ? log10(s->vmax) : s->vmax;
    *ret = g->floor > 0 ? colours_make(&own, log10(g->floor), 0) : colours_make(&own, 0, 1);
    ret->logs = g->floor > 0;
    return KVF_OK;
}

int grid_draw(struct canvas *c, const struct grid *g, const struct figure_style *s,
              struct kvf_diag *d)
{
    struct painter p = {.c = c, .g = g, .usual_range = isnan(s->vmin) && isnan(s->vmax)};
    int err = traces_alike(g->t, "token", d);
    if (!err)
        err = grid_window_of(g, s, &p.win, d);
    if (!err)
        err = range_of(g, s, &p.k, d);
    if (err)
        return err;
    p.l = grid_plan_of(g, &p.win, canvas_width(c), canvas_height(c));
    grid_plan_fill(&p.l, canvas_width(c), canvas_height(c));
    if (g->most && p.l.n > g->most)
        return kvf_fail(d, KVF_E_ARG, "%s shows up to %d heads, not %lld; choose some with --head",
                        s->figure->name, g->most, (long long)p.l.n);
    if (!(p.l.side >= 1 && p.l.tall >= 0.5))
        return kvf_fail(d, KVF_E_ARG,
                        "%lld maps do not fit into %.0f x %.0f mm; choose heads with "
                        "--head or a larger --size",
                        (long long)p.l.n, canvas_width(c), canvas_height(c));
    int w = boxes_in(canvas_pixel(c), &p.l.side), h = boxes_in(canvas_pixel(c), &p.l.tall);
    err = heat_init(&p.heat, (long)p.win.n, (long)p.win.from, (long)p.win.to, w, h);
    if (!err && p.l.n > 1)
        err = heat_share(&p.heat);
    if (!err)
        err = paint(&p, s->threads);
    heat_finish(&p.heat);
    return err;
}
