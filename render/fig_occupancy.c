/* fig_occupancy.c - draws the cached entries of every head over the steps, a map per token class
 * (DBTrimKV, figure 6) and trace: heads down by layer, steps across. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/caption.h"
#include "render/clamp.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/sentence.h"
#include "render/note.h"

enum {
    LEFT = 15,
    TOP = 3,
    NAME = 2,
    RIGHT = 22,
    BOTTOM = 13,
    GAP_X = 4,
    GAP_Y = 5,
    NAMED_MAX = 14,
    MAX_MAPS = 16
};

enum scale { SCALE_AUTO, SCALE_LINEAR, SCALE_ROOT, SCALE_LOG };
struct occupancy_style {
    int scale;         /* enum scale */
    const char *class; /* names joined by +; NULL: all of the table */
    const char *steps; /* "C:D"; NULL: all */
};

struct occupancy {
    const struct table *t;
    int64_t per_class, steps, skip, per_head, heads; /* rows shown of a class, after `skip` */
    int64_t per_trace, traces;                       /* rows per trace; traces */
    int scale;                                       /* enum scale except SCALE_AUTO */
    bool named;                                      /* draw the names of classes or traces */
    int n; /* maps, each with its first row and its name */
    int64_t row[MAX_MAPS];
    char name[MAX_MAPS][96];
    int equal; /* maps whose heads are all equal, which the note describes */
    char note[160];
    int cols, rows;
    double top, w, h; /* of a map */
    double lo, span;  /* colour of v: (f(v) - lo) / span, with f = v, its root or log(1 + v) */
    int w_px, h_px;
    double *sum, *mean; /* [steps + 1] cumulative sums of one head; [h_px][w_px] */
};

/* Returns the number of steps in the table: the rows until the step decreases. */
static int64_t steps_of(const struct table *t)
{
    int col = table_find(t, "step");
    int64_t n = 1;
    while (n < table_rows(t) && table_real(t, col, n) > table_real(t, col, n - 1))
        n++;
    return n;
}

/* Returns true if a list such as "all+prompt" has the name.  NULL has every name. */
static bool is_requested(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = list; s && *s; s += strcspn(s, "+"), s += *s == '+')
        if (strcspn(s, "+") == n && strncmp(s, name, n) == 0)
            return true;
    return !list;
}

/* Restricts the rows of each class to the requested steps. */
static int choose_steps(struct occupancy *x, const char *value, struct kvf_diag *d)
{
    int64_t from = INT64_MIN, to = INT64_MAX, n = x->steps, k = 0;
    int step = table_find(x->t, "step");
    int64_t last = n > 0 ? table_int(x->t, step, n - 1) : 0;
    if (n > 1) /* the last row stands for the steps up to the next one */
        last += last - table_int(x->t, step, n - 2) - 1;
    int64_t T = table_meta_int(x->t, "T", last + 1);
    last = T > 0 && last >= T ? T - 1 : last;
    int err = style_steps(value, last, &from, &to, d);
    if (err)
        return err;
    while (k < n && table_int(x->t, step, k) < from)
        k++;
    x->skip = k;
    while (k < n && table_int(x->t, step, k) < to)
        k++;
    x->steps = k - x->skip;
    if (x->steps <= 0)
        return kvf_fail(d, KVF_E_ARG, "--style: the table has no step of %s", value);
    return KVF_OK;
}

/* Adds a map for each class of a trace. */
static void add_maps(struct occupancy *x, int64_t trace, const char *classes)
{
    int class = table_find(x->t, "class"), name = table_find(x->t, "trace");
    int64_t each = x->per_head / x->per_class, at = trace * x->per_trace;
    for (int64_t k = 0; k < each && x->n < MAX_MAPS; k++) {
        int64_t row = at + k * x->per_class;
        const char *of = class < 0 ? "all" : table_str(x->t, class, row);
        if (!is_requested(classes, of))
            continue;
        bool told = each > 1 || strcmp(of, "all") != 0;
        x->named |= told || x->traces > 1;
        x->row[x->n] = row + x->skip;
        if (x->traces > 1)
            snprintf(x->name[x->n], sizeof *x->name, "%.60s%s%.30s", table_str(x->t, name, row),
                     told ? ": " : "", told ? of : "");
        else
            snprintf(x->name[x->n], sizeof *x->name, "%.90s", of);
        x->n++;
    }
}

/* Returns true if all heads of a map have equal numbers of entries at each step. */
static bool heads_equal(const struct occupancy *x, int map)
{
    int col = table_find(x->t, "entries");
    for (int64_t i = 1; i < x->heads; i++)
        for (int64_t r = 0; r < x->steps; r++)
            if (table_real(x->t, col, i * x->per_head + x->row[map] + r)
                != table_real(x->t, col, x->row[map] + r))
                return false;
    return true;
}

/* Removes maps whose heads are all equal if other maps show differences, and names them in the
 * note. */
static void drop_equal(struct occupancy *x)
{
    bool equal[MAX_MAPS];
    int n = 0, used = 0, step = table_find(x->t, "entries");
    char last[24];
    for (int k = 0; k < x->n; k++)
        x->equal += equal[k] = x->heads > 1 && heads_equal(x, k);
    if (x->equal == x->n) /* a sentence describes all of them */
        x->equal = 0;
    for (int k = 0; x->equal && k < x->n; k++) {
        if (!equal[k]) {
            x->row[n] = x->row[k];
            memmove(x->name[n++], x->name[k], sizeof *x->name);
            continue;
        }
        tick_text(table_real(x->t, step, x->row[k] + x->steps - 1), last);
        if (used < (int)sizeof x->note)
            used += snprintf(x->note + used, sizeof x->note - (size_t)used,
                             "%s%s (%s entries at the end)",
                             used ? ", " : "all heads equal: ", x->name[k], last);
    }
    x->n = x->equal ? n : x->n;
}

static int plan(struct occupancy *x, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const struct occupancy_style *o = s->own;
    *x = (struct occupancy){.t = t, .per_head = rows_per_head(t), .per_trace = rows_per_trace(t)};
    x->per_class = x->steps = steps_of(t);
    x->heads = x->per_trace / x->per_head;
    x->traces = table_rows(t) / x->per_trace;
    x->scale = o->scale;
    if (x->per_head % x->per_class != 0)
        return kvf_fail(d, KVF_E_ARG,
                        "figure occupancy needs all steps of every class; the table "
                        "has %lld rows of the first head, %lld steps",
                        (long long)x->per_head, (long long)x->per_class);
    int err = traces_alike(t, "step", d);
    if (!err)
        err = choose_steps(x, o->steps, d);
    for (int64_t k = 0; !err && k < x->traces; k++)
        add_maps(x, k, o->class);
    if (!err && !x->n)
        err = kvf_fail(d, KVF_E_ARG, "--style: table occupancy has no class '%s'", o->class);
    if (!err && !o->class)
        drop_equal(x);
    return err;
}

/* Returns the height in mm of the note. */
static double foot_of(const struct occupancy *x)
{
    return x->equal ? 3 : 0;
}

/* Arranges the maps in as many columns as have 35 mm each. */
static void arrange(struct occupancy *x, double width, double height)
{
    double room = width - LEFT - RIGHT;
    x->cols = (int)fmin(x->n, fmax(1, floor((room + GAP_X) / (35 + GAP_X))));
    int each = (int)fmax(
        1, x->n / (double)x->traces); /* keep the maps of a trace in one row if they fit */
    if (x->traces > 1 && each > 1 && x->cols >= each)
        x->cols -= x->cols % each;
    x->rows = (x->n + x->cols - 1) / x->cols;
    if (each == 1 || x->cols < each)
        x->cols = (x->n + x->rows - 1) / x->rows;
    x->top = x->named ? TOP + NAME : TOP;
    x->w = (room - (x->cols - 1) * GAP_X) / x->cols;
    x->h = (height - x->top - BOTTOM - foot_of(x) - (x->rows - 1) * GAP_Y) / x->rows;
}

/* Writes a sentence for each map if no map shows a difference between two or more heads. */
static bool describe_equal(const struct occupancy *x, char text[SENTENCES])
{
    int col = table_find(x->t, "entries"), used = 0;
    int64_t every = table_meta_int(x->t, "every", 1);
    char seen[48] = "";
    if (every > 1)
        snprintf(seen, sizeof seen, " (seen every %lld steps)", (long long)every);
    for (int k = 0; k < x->n; k++) {
        char most[24], last[24];
        double top = 0;
        if (x->heads < 2 || !heads_equal(x, k))
            return false;
        for (int64_t r = 0; r < x->steps; r++)
            top = fmax(top, table_real(x->t, col, x->row[k] + r));
        tick_text(table_real(x->t, col, x->row[k] + x->steps - 1), last);
        tick_text(top, most);
        used += snprintf(text + used, SENTENCES - (size_t)used,
                         "%s%s%sEvery head caches %s entries at the end and %s at the peak%s.",
                         used ? "\n" : "", x->named ? x->name[k] : "", x->named ? ": " : "", last,
                         most, seen);
        if (used >= SENTENCES)
            return false;
    }
    return true;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    static const double wide[] = {180, 88, 140, 180}; /* by the number of maps; 3: more */
    struct occupancy x;
    *w = 88;
    *h = 40;
    if (plan(&x, t, s, NULL)) /* `draw` reports the error */
        return;
    char text[SENTENCES];
    if (describe_equal(&x, text)) {
        sentence_size(text, w, h);
        return;
    }
    *w = wide[x.n < 3 ? x.n : 3];
    arrange(&x, s->width_mm > 0 ? s->width_mm : *w, 100);
    *h = x.top + BOTTOM + foot_of(&x) + x.rows * fmax(20, fmin(50, 4.0 * (double)x.heads))
         + (x.rows - 1) * GAP_Y;
}

static int64_t layers_of(const struct occupancy *x, int layer)
{
    int64_t n = 1;
    for (int64_t i = 1; i < x->heads; i++)
        n += table_int(x->t, layer, i * x->per_head)
             != table_int(x->t, layer, (i - 1) * x->per_head);
    return n;
}

/* Writes the names of the heads if there are few, else the name of a layer at its first head. */
static void head_names(struct canvas *c, const struct occupancy *x, const struct axis_box *a)
{
    int head = table_find(x->t, "head"), layer = table_find(x->t, "layer");
    double each = a->h / (double)x->heads, last = -INFINITY;
    bool named = x->heads <= NAMED_MAX;
    int64_t every = layers_of(x, layer) <= 10 ? 1 : 5;
    char text[24];
    for (int64_t i = 0; i < x->heads; i++) {
        int64_t l = table_int(x->t, layer, i * x->per_head);
        double at = a->y + ((double)i + (named ? 0.5 : 0)) * each;
        bool first = i == 0 || table_int(x->t, layer, (i - 1) * x->per_head) != l;
        if (at - last < 2.6 || (!named && (!first || l % every != 0)))
            continue;
        last = at;
        snprintf(text, sizeof text, "L%lld", (long long)l);
        if (!named) {
            double xy[] = {a->x - 0.9, at, a->x, at};
            canvas_line(c, xy, 2, 0.18, ink);
        }
        canvas_text(c, a->x - (named ? 1.2 : 1.5), at,
                    named ? table_str(x->t, head, i * x->per_head) : text, PT_TICK, ALIGN_RIGHT,
                    ink, 0);
    }
}

static double scaled(const struct occupancy *x, double v)
{
    double least = clamp(v, 0, INFINITY);
    if (x->scale == SCALE_LOG)
        return log1p(least);
    return x->scale == SCALE_ROOT ? sqrt(least) : v;
}

static double largest_of(const struct occupancy *x, int class)
{
    int col = table_find(x->t, "entries");
    double top = 1;
    for (int64_t i = 0; i < x->heads; i++)
        for (int64_t r = 0; r < x->steps; r++)
            top = fmax(top, table_real(x->t, col, i * x->per_head + x->row[class] + r));
    return top;
}

/* Returns the maximum number of entries of any class.  The automatic scale is the square root if
 * some class never has a tenth of it and would otherwise have one colour. */
static double largest(struct occupancy *x, const struct occupancy_style *o)
{
    double most = 1, least = INFINITY;
    for (int k = 0; k < x->n; k++) {
        double top = largest_of(x, k);
        most = fmax(most, top);
        least = fmin(least, top);
    }
    if (o->scale == SCALE_AUTO)
        x->scale = least < most / 10 ? SCALE_ROOT : SCALE_LINEAR;
    return most;
}

/* Finds the heads [*a, *b) of pixel row r: one, or several if there are fewer pixels. */
static void heads_of(const struct occupancy *x, int r, int64_t *a, int64_t *b)
{
    *a = r * x->heads / x->h_px;
    *b = (r + 1) * x->heads / x->h_px;
    if (x->heads <= x->h_px || *b <= *a)
        *b = *a + 1;
}

/* Fills x->mean with the means over all steps and heads of each pixel. */
static void average(struct occupancy *x, int class)
{
    int col = table_find(x->t, "entries");
    double each = (double)x->steps / x->w_px;
    int64_t a, b;
    for (int r = 0; r < x->h_px; r++) {
        double *out = x->mean + (size_t)r * (size_t)x->w_px;
        heads_of(x, r, &a, &b);
        for (int64_t h = a; h < b; h++) {
            double *v = x->sum + 1, before = 0;
            table_get(x->t, col, h * x->per_head + x->row[class], x->steps, v);
            x->sum[0] = 0;
            for (int64_t k = 1; k <= x->steps; k++)
                x->sum[k] += x->sum[k - 1];
            for (int i = 0; i < x->w_px; i++) {
                double end = i + 1 == x->w_px ? (double)x->steps : (i + 1) * each, upto;
                int64_t k = (int64_t)end;
                upto = x->sum[k]
                       + (k < x->steps ? (end - (double)k) * (x->sum[k + 1] - x->sum[k]) : 0);
                out[i] = (h == a ? 0 : out[i]) + (upto - before) / each / (double)(b - a);
                before = upto;
            }
        }
    }
}

static struct axis_box box_of(const struct occupancy *x, int panel)
{
    int step = table_find(x->t, "step");
    double first = table_real(x->t, step, x->skip);
    double every = x->steps > 1 ? table_real(x->t, step, x->skip + 1) - first : 1;
    return (struct axis_box){.x = LEFT + panel % x->cols * (x->w + GAP_X),
                             .y = x->top + panel / x->cols * (x->h + GAP_Y),
                             .w = x->w,
                             .h = x->h,
                             .x0 = first - 0.5 * every, /* a value is centred on its step */
                             .x1 = first + every * ((double)x->steps - 0.5),
                             .y0 = 0,
                             .y1 = 1,
                             .whole_x = 1};
}

static void map(struct canvas *c, struct occupancy *x, int panel, struct colours *k, uint32_t *argb)
{
    struct axis_box a = box_of(x, panel);
    average(x, panel);
    for (int64_t i = 0; i < (int64_t)x->w_px * x->h_px; i++) {
        double v = x->mean[i];
        colours_at(k, v); /* counts clipped values */
        argb[i] = palette_argb(k->map, (scaled(x, v) - x->lo) / x->span);
    }
    k->of += (int64_t)x->w_px * x->h_px;
    canvas_image(c, a.x, a.y, a.w, a.h, argb, x->w_px, x->h_px);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
    if (panel + x->cols >= x->n)
        axis_ticks_x(c, &a);
    if (panel % x->cols == 0)
        head_names(c, x, &a);
    if (x->named)
        canvas_text(c, a.x, a.y - 2.2, x->name[panel], PT_TICK, ALIGN_LEFT, ink, 0);
}

/* Draws the bar of a non-linear scale: ticks at 0, 1, 10, 100, ... of log(1 + v), and at 0, 1, 5,
 * 10, 50, ... of the root. */
static void curved_bar(struct canvas *c, const struct occupancy *x, const struct colours *k,
                       double at, double h)
{
    static const double factor[2][2] = {{10, 10}, {5, 2}}; /* factors between ticks, alternating */
    double place[16], last = -1, v = 0;
    char name[16][24], note[COLOURS_NOTE];
    int n = 0;
    for (int i = 0; v <= k->hi * (1 + 1e-9) && n < 16; i++) {
        double now = v;
        v = i == 0 ? 1 : v * factor[x->scale == SCALE_ROOT][(i - 1) % 2];
        double f = (scaled(x, now) - x->lo) / x->span;
        if (f < -1e-9 || (f - last) * h < 2.6)
            continue;
        place[n] = last = f;
        tick_text(now, name[n++]);
    }
    colours_note(k, note);
    colour_bar_ticks(c, at, x->top, 2.6, h, k->map, place, name, n, "cached entries", note);
}

static void names(struct canvas *c, const struct occupancy *x, const struct colours *k)
{
    double right = LEFT + x->cols * (x->w + GAP_X) - GAP_X;
    double bottom = x->top + x->rows * (x->h + GAP_Y) - GAP_Y, h = fmin(bottom - x->top, 60);
    canvas_text(c, (LEFT + right) / 2, bottom + 6, "query step t", PT_LABEL, ALIGN_CENTER, ink, 0);
    canvas_text(c, LEFT - 11.5, (x->top + bottom) / 2,
                x->heads <= NAMED_MAX ? "KV head" : "KV heads by layer", PT_LABEL, ALIGN_CENTER,
                ink, 1);
    char fit[192], about[NOTE_RUN];
    struct note n = note_below((LEFT + right) / 2, right + 2.5);
    note_draw(c, &n, bottom + BOTTOM - 1.6 + foot_of(x), note_run(x->t, about));
    if (x->equal)
        canvas_text(c, LEFT, bottom + 9.5,
                    text_fit(c, x->note, PT_SMALL, canvas_width(c) - LEFT - 2, fit, sizeof fit),
                    PT_SMALL, ALIGN_LEFT, (struct rgb){.35, .35, .35}, 0);
    if (x->scale != SCALE_LINEAR)
        curved_bar(c, x, k, right + 2.5, h);
    else
        colours_bar(c, k, right + 2.5, x->top, h, "cached entries");
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct occupancy x;
    int err = plan(&x, t, s, d);
    if (err)
        return err;
    char text[SENTENCES];
    if (describe_equal(&x, text))
        return sentence_draw(c, "occupancy", text, d);
    arrange(&x, canvas_width(c), canvas_height(c));
    if (!(x.w >= 2 && x.h >= 2))
        return kvf_fail(d, KVF_E_ARG,
                        "%d maps do not fit into %.0f x %.0f mm; choose classes with "
                        "--style class=all or a larger --size",
                        x.n, canvas_width(c), canvas_height(c));
    struct colours k = colours_make(s, 0, largest(&x, s->own));
    x.lo = scaled(&x, k.lo);
    x.span = scaled(&x, k.hi) - x.lo;
    x.w_px = (int)fmax(1, fmin(8000, floor(x.w / canvas_pixel(c) + 1e-6)));
    x.h_px = (int)fmax(1, fmin(8000, floor(x.h / canvas_pixel(c) + 1e-6)));
    size_t area = (size_t)x.w_px * (size_t)x.h_px;
    x.sum = MEM_NEW(double, (size_t)x.steps + 1);
    x.mean = MEM_NEW(double, area);
    uint32_t *argb = MEM_NEW(uint32_t, area);
    err = x.sum && x.mean && argb ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < x.n; i++)
        map(c, &x, i, &k, argb);
    if (!err)
        names(c, &x, &k);
    mem_free_all(x.sum, x.mean, argb);
    return err;
}

const struct figure fig_occupancy = {
    .name = "occupancy",
    .caption = caption_occupancy,
    .table = "occupancy",
    .summary = "cached entries of every KV head over time, by class of tokens",
    .side_by_side = true,
    .needs = "step head:text layer entries",
    .cmap = "blues",
    STYLE(struct occupancy_style,
          WORD_KEY(struct occupancy_style, scale, "auto",
                   "colours; auto is root if a class has few entries", "auto", "linear", "root",
                   "log"),
          TEXT_KEY(struct occupancy_style, class, "A+B", "the classes that are drawn (up to 16)",
                   .absent = "all"),
          TEXT_KEY(struct occupancy_style, steps, "C:D", "the steps that are drawn",
                   .absent = "all")),
    .size = size,
    .draw = draw,
};
