/* fig_eviction.c - draws alpha_ti of selected heads (TRIM-KV, figures 4 and 13): blue if the entry
 * is cached, grey after its eviction.
 *
 * --style form=mask draws the attention mask that eviction causes (G-KV, figure 3): the entries
 * that each query can attend to, a cross at each eviction, the evictions per step on the right, and
 * the end of the prompt. */
#include <math.h>

#include "base/mem.h"
#include "render/caption.h"
#include "render/figures.h"
#include "render/marks.h"

enum { FORM_MAP, FORM_MASK };
enum { MAX_CROSSES = 4000, MAX_HEADS = 12, BARS = 9 };
static const double LEAST_BAR = 0.25, MARGIN = 5.5; /* mm */
static const struct rgb red = {0.84, 0.1, 0.16}, border = {1, 1, 1};

/* Counts the entries of a head that were evicted at each step shown.  Returns the largest count. */
static int64_t count_events(const struct table *t, int64_t row0, const struct axis_box *a,
                            int64_t *count)
{
    int64_t n = rows_per_head(t), steps = (int64_t)(a->y0 - a->y1), most = 0;
    int col = table_find(t, "evict_step");
    for (int64_t k = 0; k < steps; k++)
        count[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = table_int(t, col, row0 + i) - (int64_t)a->y1;
        if (table_int(t, col, row0 + i) >= 0 && k >= 0 && k < steps)
            most = ++count[k] > most ? count[k] : most;
    }
    return most;
}

/* Draws the ends of the bar axis: 0 and the largest count. */
static void bar_ticks(struct canvas *c, const struct axis_box *a, double x, double most)
{
    const double line[] = {x, a->y, x, a->y + a->h};
    canvas_line(c, line, 2, 0.18, ink);
    for (int k = 0; k < 2; k++) {
        char text[24];
        double at = x + k * BARS, foot = a->y + a->h, xy[] = {at, foot, at, foot + 0.9};
        canvas_line(c, xy, 2, 0.18, ink);
        tick_text(k * most, text);
        canvas_text(c, at, foot + 2.3, text, PT_TICK, ALIGN_CENTER, ink, 0);
    }
}

/* Draws a bar per step from 0 on.  Some steps evict hundreds of entries and others one, so the
 * shortest bar is still visible. */
static void bars(struct canvas *c, const struct table *t, int64_t row0, const struct axis_box *a)
{
    int64_t steps = (int64_t)(a->y0 - a->y1), n = rows_per_head(t), most = 1;
    int64_t *count = MEM_NEW(int64_t, (size_t)steps);
    double x = a->x + a->w + MARGIN, each = a->h / (double)steps;
    if (!count) {
        canvas_fail(c, KVF_E_NOMEM);
        return;
    }
    for (int64_t r = 0; r + n <= table_rows(t); r += n) { /* one scale for all heads */
        int64_t m = count_events(t, r, a, count);
        most = m > most ? m : most;
    }
    count_events(t, row0, a, count);
    double reached = -INFINITY, longest = 0;
    for (int64_t k = 0; k < steps; k++) {
        double y = a->y + (double)k * each;
        double w = fmax(BARS * (double)count[k] / (double)most, count[k] ? LEAST_BAR : 0);
        longest = y > reached ? w : fmax(longest, w);
        /* draw the longest bar of steps that share a pixel row */
        reached = y > reached ? y + 0.08 : reached;
        if (count[k] && w >= longest)
            canvas_rect(c, x, y, w, fmax(0.8 * each, 0.08), red);
    }
    mem_free(count);
    bar_ticks(c, a, x, (double)most);
}

static void crosses(struct canvas *c, const struct table *t, int64_t row0, const struct axis_box *a)
{
    int col = table_find(t, "evict_step"), token = table_find(t, "token");
    int64_t n = rows_per_head(t);
    double cell = fmin(a->w / (double)n, a->h / (a->y0 - a->y1));
    double half = fmin(fmax(0.4 * cell, 0.3), 1.1), width = fmin(0.22, 0.6 * half);
    for (int64_t i = 0; i < n && n <= MAX_CROSSES; i++) {
        double step = table_real(t, col, row0 + i);
        if (step < a->y1 || step >= a->y0)
            continue;
        double x = axis_x(a, table_real(t, token, row0 + i) + 0.5), y = axis_y(a, step + 0.5);
        double one[] = {x - half, y - half, x + half, y + half};
        double two[] = {x - half, y + half, x + half, y - half};
        canvas_line(c, one, 2, width, red);
        canvas_line(c, two, 2, width, red);
    }
}

/* Returns true if the end of the prompt is inside the map. */
static bool has_border(const struct table *t, const struct axis_box *a)
{
    double P = table_meta_real(t, "prompt_tokens", 0);
    return (P > a->x0 && P < a->x1) || (P > a->y1 && P < a->y0);
}

/* Draws the end of the prompt, horizontally for steps and vertically for tokens. */
static void prompt_border(struct canvas *c, const struct table *t, const struct axis_box *a)
{
    double P = table_meta_real(t, "prompt_tokens", 0), x = axis_x(a, P), y = axis_y(a, P);
    double down[] = {x, fmax(y, a->y), x, a->y + a->h};
    double across[] = {a->x, y, fmin(x, a->x + a->w), y};
    bool in_x = P > a->x0 && P < a->x1;
    bool in_y = P > a->y1 && P < a->y0;
    for (int k = 0; k < 2; k++) {
        canvas_dash(c, k ? 0.9 : 0, 0.7); /* white and black are visible on any colour */
        if (in_x && P < a->y0)
            canvas_line(c, down, 2, k ? 0.2 : 0.3, k ? ink : border);
        if (in_y && P > a->x0)
            canvas_line(c, across, 2, k ? 0.2 : 0.3, k ? ink : border);
    }
    canvas_dash(c, 0, 0);
}

/* Continues the key from y down: crosses, and the end of the prompt.  Returns the y below. */
static double key(struct canvas *c, const struct table *t, const struct axis_box *a, double x,
                  double y)
{
    if (rows_per_head(t) <= MAX_CROSSES) {
        mark_draw(c, MARK_CROSS, x + 1.4, y, 1.4, red);
        canvas_text(c, x + 4, y, "evicted here", PT_TICK, ALIGN_LEFT, ink, 0);
        y += 4.2;
    }
    if (has_border(t, a)) {
        const double dash[] = {x, y, x + 2.8, y};
        canvas_dash(c, 0.9, 0.7);
        canvas_line(c, dash, 2, 0.2, ink);
        canvas_dash(c, 0, 0);
        canvas_text(c, x + 4, y, "prompt end", PT_TICK, ALIGN_LEFT, ink, 0);
        y += 4.2;
    }
    return y;
}

/* Draws what the mask adds to a map. */
static void over(struct canvas *c, const struct table *t, int64_t row0, const struct axis_box *a)
{
    canvas_clip(c, a->x, a->y, a->w, a->h);
    crosses(c, t, row0, a);
    prompt_border(c, t, a);
    canvas_unclip(c);
    if (row0 == 0)
        canvas_text(c, a->x + a->w + MARGIN + BARS / 2.0, a->y - 1.9, "evicted entries", PT_TICK,
                    ALIGN_CENTER, ink, 0);
    bars(c, t, row0, a);
}

static struct grid grid_of(const struct table *t, const struct figure_style *s)
{
    const struct grid_style *o = s->own;
    struct grid g = {.t = t,
                     .fill = grid_ends,
                     .raster = heat_alpha,
                     .event = "evict_step",
                     .label = "fraction still cached, \xce\xb1"};
    if (o->form == FORM_MASK) {
        g.over = over;
        g.key = key;
        g.margin = BARS + MARGIN + 1;
        g.most = MAX_HEADS;
        g.states[0] = "cached";
        g.states[1] = "evicted";
    }
    return g;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct grid g = grid_of(t, s);
    grid_size(&g, s, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct grid g = grid_of(t, s);
    return grid_draw(c, &g, s, d);
}

const struct figure fig_eviction = {
    .name = "eviction",
    .caption = caption_eviction,
    .table = "eviction",
    .summary = "which entries each query still sees, one map per KV head",
    .needs = "head:text layer index token evict_step",
    STYLE(struct grid_style,
          GRID_STEPS("those of the tokens, from shortly before the first eviction on"),
          WORD_KEY(struct grid_style, form, "map",
                   "mask: with a cross at each eviction and the evictions per step", "map",
                   "mask")),
    .cmap = "blues",
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
