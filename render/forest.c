/* forest.c - draws the rows of a forest plot and measures their names and notes. */
#include <math.h>

#include "render/forest.h"

static const double PAD = 1.5, MARK = 1.5, ARROW = 1.2;
static const struct rgb grey = {.55, .55, .55}, pale = {.93, .93, .93};

static double bold_or_not(struct canvas *c, const struct forest_row *r)
{
    return r->heading ? 0 : canvas_text_width(c, r->name, PT_TICK, 0);
}

void forest_measure(struct canvas *c, struct forest *f, double most)
{
    f->names = f->notes = 0;
    for (int i = 0; i < f->n; i++) {
        f->names = fmax(f->names, bold_or_not(c, &f->row[i]));
        f->notes = fmax(f->notes, canvas_text_width(c, f->row[i].note, PT_TICK, 0));
    }
    f->names = fmin(f->names, most);
    f->notes = fmin(f->notes, most);
}

static void null_line(struct canvas *c, const struct axis_box *a, const struct forest *f)
{
    double x0 = axis_x(a, f->null_low), x1 = axis_x(a, f->null_high);
    double xy[] = {x0, a->y, x0, a->y + a->h};
    if (isnan(x0) || isnan(x1))
        return;
    if (x1 > x0)
        canvas_rect(c, x0, a->y, x1 - x0, a->h, (struct rgb){.9, .9, .9});
    else
        canvas_line(c, xy, 2, 0.2, grey);
}

/* Draws an arrowhead at the edge, to the left (-1) or to the right (1). */
static void arrow(struct canvas *c, double x, double y, int side, struct rgb colour)
{
    const double xy[] = {x, y, x - side * ARROW, y - .6 * ARROW, x - side * ARROW, y + .6 * ARROW};
    canvas_area(c, xy, 3, colour, 1);
}

static void interval(struct canvas *c, const struct axis_box *a, const struct forest_row *r,
                     double y)
{
    double low = fmax(r->low, a->x0), high = fmin(r->high, a->x1);
    const double xy[] = {axis_x(a, low), y, axis_x(a, high), y};
    if (isnan(r->low) || isnan(r->high) || low > high)
        return;
    canvas_line(c, xy, 2, 0.35, r->colour);
    for (int k = 0; k < 2; k++) {
        double end = k ? r->high : r->low, x = axis_x(a, end);
        const double cap[] = {x, y - .55, x, y + .55};
        if (end < a->x0 || end > a->x1)
            arrow(c, k ? a->x + a->w : a->x, y, k ? 1 : -1, r->colour);
        else
            canvas_line(c, cap, 2, 0.25, r->colour);
    }
}

static void row(struct canvas *c, const struct axis_box *a, const struct forest *f,
                const struct forest_row *r, double y)
{
    char fit[96];
    double left = a->x - PAD - f->names;
    if (r->heading) {
        canvas_text(c, left, y, r->name, PT_LABEL, ALIGN_LEFT, ink, 0);
        return;
    }
    canvas_text(c, a->x - PAD, y, text_fit(c, r->name, PT_TICK, f->names + 0.01, fit, sizeof fit),
                PT_TICK, ALIGN_RIGHT, ink, 0);
    canvas_text(c, a->x + a->w + PAD, y,
                text_fit_own(c, r->note, PT_TICK, f->notes + 0.01, fit, sizeof fit), PT_TICK,
                ALIGN_LEFT, ink, 0);
    interval(c, a, r, y);
    if (r->value < a->x0 || r->value > a->x1)
        arrow(c, r->value > a->x1 ? a->x + a->w : a->x, y, r->value > a->x1 ? 1 : -1, r->colour);
    else if (!isnan(r->value))
        mark_draw(c, r->mark, axis_x(a, r->value), y, MARK, r->colour);
}

void forest_draw(struct canvas *c, const struct axis_box *a, const struct forest *f)
{
    double pitch = a->h / (f->n ? f->n : 1);
    for (int i = 1; i < f->n; i += 2)
        if (!f->row[i].heading)
            canvas_rect(c, a->x, a->y + i * pitch, a->w, pitch, pale);
    null_line(c, a, f);
    for (int i = 0; i < f->n; i++)
        row(c, a, f, &f->row[i], a->y + (i + .5) * pitch);
}
