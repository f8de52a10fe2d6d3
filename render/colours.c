/* colours.c - computes the colour ranges of maps and draws their bars. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/marks.h"

static const double BAR = 2.6; /* mm; width of a bar */

/* Stores the range for other maps of the page, or replaces it by the common range. */
static struct colours shared(const struct figure_style *s, struct colours k)
{
    k.share = s->colours;
    if (k.share && k.share->common) {
        k.lo = k.share->lo;
        k.hi = k.share->hi;
    } else if (k.share) {
        k.share->lo = k.lo;
        k.share->hi = k.hi;
    }
    return k;
}

struct colours colours_diverging(const struct figure_style *s, double reach)
{
    double a = isnan(s->vmin) ? 0 : fabs(s->vmin), b = isnan(s->vmax) ? 0 : fabs(s->vmax);
    double end = isfinite(reach) && reach > 0 ? reach : 1;
    end = fmax(a, b) > 0 ? fmax(a, b) : end;
    return shared(s, (struct colours){palette_diverging(s->cmap) ? s->cmap : "bluered", -end, end,
                                      .clipped = 0});
}

struct colours colours_make(const struct figure_style *s, double lo, double hi)
{
    if (palette_diverging(s->cmap))
        return colours_diverging(s, fmax(fabs(lo), fabs(hi)));
    if (!(hi - lo > 1e-9 * fmax(fabs(lo), fabs(hi)))) { /* one value, or no value */
        bool known = isfinite(lo) && isfinite(hi), share = known && lo >= 0 && hi <= 1;
        hi = share || !known ? 1 : lo + 0.5;
        lo = share || !known ? 0 : lo - 0.5;
    }
    struct colours k = {s->cmap, isnan(s->vmin) ? lo : s->vmin, isnan(s->vmax) ? hi : s->vmax,
                        .clipped = 0};
    if (!(k.hi > k.lo)) { /* one given end is outside the data */
        if (isnan(s->vmax))
            k.hi = k.lo + 1;
        else
            k.lo = k.hi - 1;
    }
    return shared(s, k);
}

struct colours colours_fraction(const struct figure_style *s, double lo, double hi)
{
    struct colours k = colours_make(s, fmin(lo, 0), fmax(hi, 1));
    k.zoomed = k.lo > 0 || k.hi < 1;
    return k;
}

double colours_at(struct colours *k, double v)
{
    double slack = 1e-9 * (k->hi - k->lo);
    k->clipped += v < k->lo - slack || v > k->hi + slack;
    return (v - k->lo) / (k->hi - k->lo);
}

bool colours_negative(const struct colours *k, double v)
{
    static const double VISIBLE = 0.02; /* of the range on one side of 0 */
    return palette_diverging(k->map) && v < -VISIBLE * k->hi;
}

/* Draws a minus sign in the middle of a cell. */
static void minus_sign(struct canvas *c, double x, double y, double w, double h, struct rgb fill)
{
    double half = fmin(0.3 * w, 0.6),
           xy[] = {x + w / 2 - half, y + h / 2, x + w / 2 + half, y + h / 2};
    canvas_line(c, xy, 2, fmin(0.25, 0.25 * h), ink_on(fill));
}

void colours_cell(struct canvas *c, struct colours *k, double v, double x, double y, double w,
                  double h)
{
    struct rgb fill = palette_at(k->map, colours_at(k, v));
    canvas_cell(c, x, y, w, h, fill);
    if (colours_negative(k, v))
        minus_sign(c, x, y, w, h, fill);
}

void colours_note(const struct colours *k, char note[COLOURS_NOTE])
{
    double share = k->of ? 100 * (double)k->clipped / (double)k->of : 0;
    long long n = (long long)k->clipped;
    const char *zoomed = k->zoomed ? "zoomed" : "", *join = k->zoomed && n ? "; " : "";
    if (n && k->of && share < 0.1)
        snprintf(note, COLOURS_NOTE, "%s%s< 0.1 %% beyond this range", zoomed, join);
    else if (n && k->of)
        snprintf(note, COLOURS_NOTE, "%s%s%.3g %% beyond this range", zoomed, join, share);
    else if (n)
        snprintf(note, COLOURS_NOTE, "%s%s%lld value%s beyond this range", zoomed, join, n,
                 n == 1 ? "" : "s");
    else
        snprintf(note, COLOURS_NOTE, "%s", zoomed);
}

/* Draws the bar of a logarithmic range, labelled with the numbers themselves. */
static void log_bar(struct canvas *c, const struct colours *k, double x, double y, double h,
                    const char *label, const char *note)
{
    enum { MOST = 64 };
    double v[MOST], lo = k->lo, span = k->hi - lo;
    char name[MOST][24], least[24];
    int n = ticks_log(pow(10, lo), pow(10, k->hi), h / 3, v, name, MOST);
    for (int i = 0; i < n; i++)
        v[i] = (log10(v[i]) - lo) / span;
    for (int i = 0; i < n; i++)
        if (name[i][0] && v[i] < 0.01) {
            snprintf(least, sizeof least, "\xe2\x89\xa4%.20s", name[i]);
            memcpy(name[i], least, sizeof least);
        }
    colour_bar_ticks(c, x, y, BAR, h, k->map, v, name, n, label, note);
}

/* Draws the bar of signed decades, labelled with numbers. */
static void signed_bar(struct canvas *c, const struct colours *k, double x, double y, double h,
                       const char *label, const char *note)
{
    enum { MOST = 32 };
    double at[MOST];
    char name[MOST][24];
    int n = 0;
    for (double v = ceil(k->lo - 1e-9); v <= k->hi + 1e-9 && n < MOST; v++) {
        at[n] = (v - k->lo) / (k->hi - k->lo);
        tick_text(v == 0 ? 0 : copysign(k->least * pow(10, fabs(v)), v), name[n++]);
    }
    colour_bar_ticks(c, x, y, BAR, h, k->map, at, name, n, label, note);
}

void colours_bar(struct canvas *c, const struct colours *k, double x, double y, double h,
                 const char *label)
{
    char note[COLOURS_NOTE];
    struct colour_share *page = k->share;
    if (page && page->barless)
        return;
    if (page && !page->measured) {
        *page = (struct colour_share){.measured = true,
                                      .lo = k->lo,
                                      .hi = k->hi,
                                      .room = canvas_width(c) - x,
                                      .y = y,
                                      .h = h,
                                      .logs = k->logs};
        snprintf(page->map, sizeof page->map, "%s", k->map);
        snprintf(page->label, sizeof page->label, "%s", label);
    }
    colours_note(k, note);
    if (k->logs)
        log_bar(c, k, x, y, h, label, note);
    else if (k->least > 0)
        signed_bar(c, k, x, y, h, label, note);
    else
        colour_bar(c, x, y, BAR, h, k->map, k->lo, k->hi, label, note);
    for (int i = 0; palette_diverging(k->map) && i < 3; i++) /* the sign of the lower half */
        minus_sign(c, x, y + (.6 + .15 * i) * h, BAR, .1 * h, palette_at(k->map, .4 - .15 * i));
}
