/* marks.c - draws point signs and hatches, mixes colours and fits text into a width. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/axis.h"
#include "render/marks.h"
#include "render/text_colours.h"

static void polygon(struct canvas *c, double x, double y, const double (*p)[2], int n, double r,
                    struct rgb colour)
{
    double xy[16];
    for (int i = 0; i < n; i++) {
        xy[2 * i] = x + r * p[i][0];
        xy[2 * i + 1] = y + r * p[i][1];
    }
    canvas_area(c, xy, n, colour, 1);
}

static void cross(struct canvas *c, double x, double y, double r, struct rgb colour)
{
    const double a[] = {x - r, y - r, x + r, y + r}, b[] = {x - r, y + r, x + r, y - r};
    canvas_line(c, a, 2, 0.3, colour);
    canvas_line(c, b, 2, 0.3, colour);
}

void mark_draw(struct canvas *c, enum mark m, double x, double y, double size, struct rgb colour)
{
    static const double up[3][2] = {{0, -1.1}, {1, .75}, {-1, .75}};
    static const double down[3][2] = {{0, 1.1}, {1, -.75}, {-1, -.75}};
    static const double diamond[4][2] = {{0, -1.2}, {1.2, 0}, {0, 1.2}, {-1.2, 0}};
    static const double square[4][2] = {{-.88, -.88}, {.88, -.88}, {.88, .88}, {-.88, .88}};
    double r = size / 2;
    if (!isfinite(x) || !isfinite(y))
        return;
    switch (m) {
    case MARK_SQUARE:
        polygon(c, x, y, square, 4, r, colour);
        break;
    case MARK_TRIANGLE:
        polygon(c, x, y, up, 3, r, colour);
        break;
    case MARK_DOWN:
        polygon(c, x, y, down, 3, r, colour);
        break;
    case MARK_DIAMOND:
        polygon(c, x, y, diamond, 4, r, colour);
        break;
    case MARK_RING: /* white inside hides lines */
        canvas_disc(c, x, y, r, 0, (struct rgb){1, 1, 1});
        canvas_disc(c, x, y, r - 0.12, 0.24, colour);
        break;
    case MARK_FRAME:
        canvas_rect(c, x - .85 * r, y - .85 * r, 1.7 * r, 1.7 * r, (struct rgb){1, 1, 1});
        canvas_frame(c, x - .75 * r, y - .75 * r, 1.5 * r, 1.5 * r, 0.24, colour);
        break;
    case MARK_CROSS:
        cross(c, x, y, .8 * r, colour);
        break;
    default:
        canvas_disc(c, x, y, r, 0, colour);
    }
}

/* Writes the first n bytes of s without an incomplete character, and an ellipsis.  Returns the
 * width. */
static double width_cut(struct canvas *c, const char *s, size_t *n, double pt, char *out,
                        size_t cap)
{
    while (*n > 0 && ((unsigned char)s[*n] & 0xc0) == 0x80)
        --*n;
    snprintf(out, cap, "%.*s\xe2\x80\xa6", (int)*n, s);
    return canvas_text_width(c, out, pt, 0);
}

/* Finds the longest cut text that fits.  Bisection removes texts far wider than the limit.  A
 * longer text is narrower only if letters join, and by less than SLACK letter sizes. */
const char *text_fit(struct canvas *c, const char *s, double pt, double limit, char *out,
                     size_t cap)
{
    enum { SLACK = 12, FEW = 24 };
    size_t n = strlen(s), fits = 0;
    if (canvas_text_width(c, s, pt, 0) <= limit)
        return s;
    n = n < cap - 4 ? n : cap - 4;
    while (n > fits + FEW) {
        size_t half = fits + (n - fits) / 2;
        if (width_cut(c, s, &half, pt, out, cap) > limit + SLACK * pt * 25.4 / 72)
            n = half;
        else
            fits = half + 1;
    }
    while (width_cut(c, s, &n, pt, out, cap) > limit && n > 0)
        n--;
    return out;
}

const char *text_fit_own(struct canvas *c, const char *s, double pt, double limit, char *out,
                         size_t cap)
{
    const char *shown = text_fit(c, s, pt, limit, out, cap);
    if (shown != s)
        canvas_cut(c);
    return shown;
}

struct rgb tint(struct rgb v, double a)
{
    return (struct rgb){1 - a * (1 - v.r), 1 - a * (1 - v.g), 1 - a * (1 - v.b)};
}

struct rgb ink_on(struct rgb v)
{
    return contrast_ink(v);
}

void hatch(struct canvas *c, double x, double y, double w, double h)
{
    enum { STROKES = 64 }; /* drawn at once */
    static const double APART = 1.1, WIDTH = 0.16;
    static const struct rgb grey = {0.62, 0.62, 0.62};
    double xy[6 * STROKES];
    int n = 0;
    for (double at = ceil((x + y) / APART) * APART; at < x + y + w + h; at += APART) {
        double x0 = fmax(x, at - y - h), x1 = fmin(x + w, at - y); /* of the line x + y = at */
        const double stroke[] = {x0, at - x0, x1, at - x1, NAN, NAN};
        if (x1 <= x0)
            continue;
        memcpy(xy + 6 * n++, stroke, sizeof stroke);
        if (n < STROKES)
            continue;
        canvas_line(c, xy, 3 * n, WIDTH, grey);
        n = 0;
    }
    if (n)
        canvas_line(c, xy, 3 * n, WIDTH, grey);
}
