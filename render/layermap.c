/* layermap.c - draws one coloured cell per head: layers across, heads down. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/marks.h"
#include "render/note.h"

enum { LEFT = 13, TOP = 3, RIGHT = 22, BOTTOM = 10, TITLE = 3 };
static const double LEAST = 28; /* mm; a shorter colour bar has no room for its title */

struct extent {
    int64_t layer0, layers, head0, heads;
};

static struct extent extent_of(const struct table *t)
{
    int layer = table_find(t, "layer"), index = table_find(t, "index");
    int64_t l0 = INT64_MAX, l1 = -1, h0 = INT64_MAX, h1 = -1;
    for (int64_t r = 0; r < table_rows(t); r++) {
        int64_t a = table_int(t, layer, r), b = table_int(t, index, r);
        if (a < 0 || b < 0)
            continue;
        l0 = a < l0 ? a : l0;
        l1 = a > l1 ? a : l1;
        h0 = b < h0 ? b : h0;
        h1 = b > h1 ? b : h1;
    }
    if (l1 < 0)
        return (struct extent){0, 1, 0, 1};
    return (struct extent){l0, l1 - l0 + 1, h0, h1 - h0 + 1};
}

/* Computes the size of a map: as wide as one column of a paper if a layer gets 1.5 mm, else up to
 * two columns. */
void layermap_size(const struct table *t, double *ret_w, double *ret_h)
{
    struct extent e = extent_of(t);
    double cell = fmax(1.2, fmin(4, 60.0 / (double)e.heads));
    *ret_w = fmax(88, fmin(180, LEFT + RIGHT + 1.5 * (double)e.layers));
    *ret_h = TOP + BOTTOM + LAYERMAP_NOTE + fmax(LEAST, fmin(200, cell * (double)e.heads));
}

/* Returns the value that is coloured: its logarithm on a logarithmic scale, or NaN (a grey cell) if
 * it is undefined. */
static double value_of(const struct layermap *m, int col, int64_t row)
{
    double v = m->number ? m->number(m->t, row, m->ctx) : table_real(m->t, col, row);
    if (m->logs)
        return v > 0 ? log10(v) : NAN;
    return v;
}

static struct colours colours_of(const struct layermap *m, int col, const struct figure_style *s)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int64_t r = 0; r < table_rows(m->t); r++) {
        double x = value_of(m, col, r);
        if (m->chosen && !m->chosen(m->t, r, m->ctx))
            continue;
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    struct figure_style own = *s;
    if (m->logs) {
        own.vmin = log10(s->vmin);
        own.vmax = log10(s->vmax);
    }
    struct colours k = colours_make(&own, lo, hi);
    k.logs = m->logs;
    return k;
}

void layermap_numbers(struct canvas *c, int64_t first, int64_t n, double x, double y, double dx,
                      double dy)
{
    char text[24];
    double cell = fmax(dx, dy), need = dx > 0 ? 5.5 : 2.8;
    static const int64_t steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    int64_t every = 1;
    for (int i = 0; i < 10 && cell * (double)every < need; i++)
        every = steps[i];
    for (int64_t k = (every - first % every) % every; k < n; k += every) {
        double at = (double)k + 0.5;
        snprintf(text, sizeof text, "%lld", (long long)(first + k));
        canvas_text(c, x + at * dx, y + at * dy, text, PT_TICK, dx > 0 ? ALIGN_CENTER : ALIGN_RIGHT,
                    ink, 0);
    }
}

/* Draws the dots with a rim that is visible on dark and light cells.  top: of the map, mm */
static void draw_dots(struct canvas *c, const struct layermap *m, const struct extent *e,
                      double top, double cw, double ch)
{
    int layer = table_find(m->t, "layer"), index = table_find(m->t, "index");
    double radius = fmin(.55, .3 * fmin(cw, ch));
    for (int64_t r = 0; m->marked && r < table_rows(m->t); r++) {
        int64_t a = table_int(m->t, layer, r) - e->layer0, b = table_int(m->t, index, r) - e->head0;
        if (a < 0 || b < 0 || (m->chosen && !m->chosen(m->t, r, m->ctx))
            || !m->marked(m->t, r, m->ctx))
            continue;
        double x = LEFT + ((double)a + .5) * cw, y = top + ((double)b + .5) * ch;
        canvas_disc(c, x, y, radius + .15, 0, (struct rgb){1, 1, 1});
        canvas_disc(c, x, y, radius, 0, (struct rgb){0, 0, 0});
    }
}

/* Returns the number of lines below the map: the lines of the note, and one that names the run. */
static int notes_of(const struct layermap *m)
{
    int n = 1;
    for (const char *s = m->note; s && *s; s += strcspn(s, "\n"), s += *s == '\n')
        n++;
    return n;
}

static void draw_notes(struct canvas *c, const struct layermap *m, double x, double y, double right)
{
    char line[NOTE_RUN];
    struct note n = note_below(x, right);
    for (const char *s = m->note; s && *s; s += strcspn(s, "\n"), s += *s == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(s, "\n"), s);
        note_draw(c, &n, y, line);
        y += LAYERMAP_NOTE;
    }
    note_draw(c, &n, y, note_run(m->t, line));
}

int layermap_draw(struct canvas *c, const struct layermap *m, const struct figure_style *s)
{
    const struct table *t = m->t;
    int col = table_find(t, m->value), layer = table_find(t, "layer"),
        index = table_find(t, "index");
    struct extent e = extent_of(t);
    struct colours k = colours_of(m, col, s);
    double w = canvas_width(c) - LEFT - RIGHT, top = m->title ? TOP + TITLE : TOP;
    double h = canvas_height(c) - top - BOTTOM - notes_of(m) * LAYERMAP_NOTE;
    double cw = w / (double)e.layers, ch = h / (double)e.heads;
    char room[NOTE_RUN];
    for (int64_t r = 0; r < table_rows(t); r++) {
        int64_t a = table_int(t, layer, r) - e.layer0, b = table_int(t, index, r) - e.head0;
        if (a < 0 || b < 0 || (m->chosen && !m->chosen(t, r, m->ctx)))
            continue;
        colours_cell(c, &k, value_of(m, col, r), LEFT + (double)a * cw, top + (double)b * ch, cw,
                     ch);
    }
    draw_dots(c, m, &e, top, cw, ch);
    if (m->title)
        canvas_text(c, LEFT, top - 2.2, text_fit(c, m->title, PT_TICK, w, room, sizeof room),
                    PT_TICK, ALIGN_LEFT, ink, 0);
    draw_notes(c, m, LEFT + w / 2, top + h + 9.5, LEFT + w + 2.5);
    canvas_frame(c, LEFT, top, w, h, 0.18, ink);
    layermap_numbers(c, e.head0, e.heads, LEFT - 1.3, top, 0, ch);
    layermap_numbers(c, e.layer0, e.layers, LEFT, top + h + 2.3, cw, 0);
    canvas_text(c, LEFT + w / 2, top + h + 5.8, "layer", PT_LABEL, ALIGN_CENTER, ink, 0);
    bool kv = strchr(table_row_str(t, 0, "head"), 'K') != NULL;
    canvas_text(c, LEFT - 8.5, top + h / 2, kv ? "KV head" : "query head", PT_LABEL, ALIGN_CENTER,
                ink, 1);
    colours_bar(c, &k, LEFT + w + 2.5, top, fmin(h, 60), m->label);
    return KVF_OK;
}
