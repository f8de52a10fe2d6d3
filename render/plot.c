/* plot.c - stores the panels, lines, points and marks of a plot. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/room.h"
#include "base/utf8.h"
#include "render/marks.h"
#include "render/palette.h"
#include "render/plot.h"

enum { PLOT_DODGED = 64 }; /* lines that plot_dodge can move */

void plot_init(struct plot *p)
{
    *p = (struct plot){.last = -1,
                       .x0 = NAN,
                       .x1 = NAN,
                       .y0 = NAN,
                       .y1 = NAN,
                       .level = NAN,
                       .upright = NAN,
                       .copies = 1};
    p->panel = mem_alloc(PLOT_PANELS, sizeof *p->panel);
    p->mark = MEM_NEW(struct plot_mark, PLOT_MARKS);
    if (!p->panel || !p->mark)
        p->err = KVF_E_NOMEM;
}

void plot_free(struct plot *p)
{
    for (int i = 0; i < p->n_series; i++) {
        struct chart_line *l = &p->series[i].data;
        mem_free_all(l->x, l->y, l->low, l->high);
    }
    mem_free_all(p->series, p->line, p->panel, p->mark);
    *p = (struct plot){0};
}

struct chart_look plot_look(int i)
{
    static const double dash[] = {0, 1.6, 0.5, 2.8};
    return (struct chart_look){.colour = palette_line(i),
                               .dash = dash[(i + i / 8) % 4],
                               .gap = (i + i / 8) % 4 == 2 ? 0.5 : 0.7,
                               .width = 0.4};
}

struct chart_look plot_look_coloured(int i)
{
    struct chart_look look = plot_look(i);
    static const unsigned char more[5][3] = {/* after grey */
                                             {110, 60, 20},
                                             {90, 70, 170},
                                             {140, 20, 70},
                                             {120, 130, 30},
                                             {30, 90, 90}};
    int k = i % 12;
    if (k < 7)
        look.colour = palette_line(k == 6 ? 7 : k);
    else
        look.colour = (struct rgb){more[k - 7][0] / 255.0, more[k - 7][1] / 255.0,
                                   more[k - 7][2] / 255.0};
    return look;
}

/* Copies a name and cuts it between characters, because an incomplete character is invalid text. */
static void copy_name(char *out, const char *name)
{
    size_t n = strlen(name);
    if (n >= PLOT_NAME)
        for (n = PLOT_NAME - 1; n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80;)
            n--;
    memcpy(out, name, n);
    out[n] = 0;
}

static bool same_name(const char *kept, const char *name)
{
    size_t n = strlen(kept);
    return strncmp(kept, name, n) == 0 && (!name[n] || n >= PLOT_NAME - 4);
}

static int panel_find(struct plot *p, const char *name)
{
    for (int i = p->n_panels - 1; i >= 0; i--)
        if (same_name(p->panel[i], name))
            return i;
    return -1;
}

static int line_find(const struct plot *p, const char *name)
{
    for (int i = p->n_lines - 1; i >= 0; i--)
        if (same_name(p->line[i].name, name))
            return i;
    return -1;
}

static int panel_make(struct plot *p, const char *name)
{
    int i = panel_find(p, name);
    if (i >= 0)
        return i;
    if (p->n_panels == PLOT_PANELS) {
        p->err = KVF_E_LIMIT;
        return -1;
    }
    copy_name(p->panel[p->n_panels], name);
    return p->n_panels++;
}

static int line_make(struct plot *p, const char *name)
{
    int i = line_find(p, name);
    if (i >= 0)
        return i;
    if (p->n_lines == PLOT_LINES)
        p->err = KVF_E_LIMIT;
    else if (!mem_room(&p->line, (size_t)p->n_lines, &p->line_room, 16, sizeof *p->line))
        p->err = KVF_E_NOMEM;
    if (p->err)
        return -1;
    copy_name(p->line[p->n_lines].name, name);
    p->line[p->n_lines].look = plot_look(p->n_lines);
    return p->n_lines++;
}

static int series_make(struct plot *p, const char *panel, const char *line)
{
    int i = p->last;
    if (i >= 0 && same_name(p->panel[p->series[i].panel], panel)
        && same_name(p->line[p->series[i].line].name, line))
        return i;
    int k = panel_make(p, panel), l = p->err ? -1 : line_make(p, line);
    if (k < 0 || l < 0)
        return -1;
    for (i = p->n_series - 1; i >= 0; i--)
        if (p->series[i].panel == k && p->series[i].line == l)
            return p->last = i;
    if (!mem_room(&p->series, (size_t)p->n_series, &p->series_room, 16, sizeof *p->series)) {
        p->err = KVF_E_NOMEM;
        return -1;
    }
    p->series[p->n_series] = (struct plot_series){.panel = k, .line = l};
    return p->last = p->n_series++;
}

static bool series_grow(struct plot_series *s, bool interval)
{
    struct chart_line *l = &s->data;
    double **part[] = {&l->x, &l->y, &l->low, &l->high};
    int grown = s->room ? 2 * s->room : 16, more = l->n < s->room ? s->room : grown;
    interval |= l->low != NULL;
    for (int k = 0; k < (interval ? 4 : 2); k++) {
        if (*part[k] && more == s->room)
            continue;
        double *larger = mem_grow(*part[k], *part[k] ? (size_t)l->n : 0, (size_t)more,
                                  sizeof(double));
        if (!larger)
            return false;
        for (int i = *part[k] ? l->n : 0; k >= 2 && i < more; i++)
            larger[i] = NAN;
        *part[k] = larger;
    }
    s->room = more;
    return true;
}

void plot_add(struct plot *p, const char *panel, const char *line, double x, double y, double low,
              double high)
{
    int i = p->err ? -1 : series_make(p, panel, line);
    if (i < 0)
        return;
    struct plot_series *s = &p->series[i];
    struct chart_line *l = &s->data;
    if (!series_grow(s, isfinite(low) && isfinite(high))) {
        p->err = KVF_E_NOMEM;
        return;
    }
    l->x[l->n] = x;
    l->y[l->n] = y;
    if (l->low) {
        l->low[l->n] = low;
        l->high[l->n] = high;
    }
    l->n++;
}

void plot_filled(struct plot *p)
{
    if (!p->err && p->last >= 0)
        p->series[p->last].data.filled = true;
}

void plot_of(struct plot *p, double count)
{
    if (p->err || p->last < 0 || isnan(count))
        return;
    struct chart_line *l = &p->series[p->last].data;
    l->most = fmax(l->most, count);
    if (!l->few && l->n > 1 && count < l->most / 10)
        l->few = l->n - 1;
}

void plot_documents(struct plot *p, double count)
{
    if (p->err || p->last < 0 || !(count > 0))
        return;
    struct chart_line *l = &p->series[p->last].data;
    l->documents[0] = fmax(l->documents[0], count);
    l->documents[1] = count;
    if (!l->few && l->n > 1 && count < l->documents[0]) {
        l->few = l->n - 1;
        l->dropped = true;
    }
}

void plot_note_few(struct plot *p)
{
    size_t n = strlen(p->note);
    bool any = false;
    for (int i = 0; i < p->n_series; i++)
        any |= chart_few(&p->series[i].data) && !p->series[i].data.dropped
               && !p->line[p->series[i].line].back;
    if (any)
        snprintf(p->note + n, sizeof p->note - n, "%spale: fewer than a tenth of the tokens",
                 n ? "; " : "");
}

void plot_mark(struct plot *p, const char *panel, const char *line, double x, double y, bool cross)
{
    int k = panel_find(p, panel), l = line_find(p, line);
    if (p->err || k < 0 || l < 0 || p->n_marks == PLOT_MARKS || !isfinite(x) || !isfinite(y))
        return;
    p->mark[p->n_marks++] = (struct plot_mark){k, l, x, y, cross};
}

struct plot_line *plot_line(struct plot *p, const char *name)
{
    int i = line_find(p, name);
    return i < 0 ? NULL : &p->line[i];
}

void plot_behind(struct plot *p, const char *name)
{
    struct plot_line *l = plot_line(p, name);
    if (!l)
        return;
    l->back = l->hidden = true;
    l->look = (struct chart_look){.colour = {.72, .72, .72}, .width = .1};
}

static double mean_of_line(const struct plot *p, int line)
{
    double sum = 0, n = 0;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; p->series[i].line == line && k < p->series[i].data.n; k++)
            if (isfinite(p->series[i].data.y[k])) {
                sum += p->series[i].data.y[k];
                n++;
            }
    return n > 0 ? sum / n : NAN;
}

/* Names the line of a layer at an end of the range. */
static void name_end(struct plot_line *l, const char *end, enum mark mark, int colour)
{
    char name[PLOT_NAME];
    snprintf(name, sizeof name, "%.60s, %s", l->name, end);
    memcpy(l->name, name, sizeof name);
    l->hidden = l->back = false;
    l->look = (struct chart_look){
        .colour = palette_line(colour), .width = .45, .sign = 1 + (int)mark};
}

void plot_layers(struct plot *p)
{
    int low = -1, high = -1, others = 0, n = 0;
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < p->n_lines; i++) {
        double mean = p->line[i].back ? mean_of_line(p, i) : NAN;
        n += p->line[i].back;
        if (mean < least) {
            least = mean;
            low = i;
        }
        if (mean > most) {
            most = mean;
            high = i;
        }
    }
    for (int i = 0; i < p->n_lines; i++) {
        struct plot_line *l = &p->line[i];
        if (!l->back)
            continue;
        l->look = (struct chart_look){.colour = {.72, .73, .76}, .width = .2};
        if (i == low || i == high || n == 1) /* a single layer is highest and lowest */
            continue;
        l->hidden = others++ > 0;
        if (!l->hidden)
            snprintf(l->name, PLOT_NAME, "other layers");
    }
    if (low >= 0 && low != high) {
        name_end(&p->line[high], "highest", MARK_TRIANGLE, 1);
        name_end(&p->line[low], "lowest", MARK_DOWN, 0);
    } else if (low >= 0) {
        p->line[low].hidden = p->line[low].back = false;
        p->line[low].look.width = .4;
    }
}

void plot_tick(struct plot *p, double x)
{
    int at = 0;
    if (!isfinite(x) || p->n_ticks < 0)
        return;
    while (at < p->n_ticks && p->tick_x[at] < x)
        at++;
    if (at < p->n_ticks && p->tick_x[at] == x)
        return;
    if (p->n_ticks == PLOT_TICKS) {
        p->n_ticks = -1; /* too many */
        return;
    }
    memmove(p->tick_x + at + 1, p->tick_x + at, sizeof *p->tick_x * (size_t)(p->n_ticks - at));
    p->tick_x[at] = x;
    p->n_ticks++;
}

static bool placed(double v, bool logarithmic)
{
    return isfinite(v) && (!logarithmic || v > 0);
}

void plot_pad(struct plot *p)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++) {
            double x = p->series[i].data.x[k];
            if (!placed(x, p->log_x) || !isfinite(p->series[i].data.y[k]))
                continue;
            lo = fmin(lo, x);
            hi = fmax(hi, x);
        }
    if (hi > lo) {
        double part = 0.02, more = p->log_x ? pow(hi / lo, part) : part * (hi - lo);
        p->x0 = p->log_x ? lo / more : lo - more;
        p->x1 = p->log_x ? hi * more : hi + more;
    }
}

void plot_dodge(struct plot *p, double part)
{
    double size = 0;
    bool any = false;
    int n = 0, place[PLOT_DODGED];
    for (int i = 0; i < p->n_lines && i < PLOT_DODGED; i++)
        place[i] = p->line[i].look.bars ? n++ : -1;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++)
            size = fmax(size, fabs(p->series[i].data.x[k]));
    for (int i = 0; i < p->n_series; i++)
        any |= p->series[i].data.low != NULL;
    for (int i = 0; any && i < p->n_series; i++) {
        int line = p->series[i].line;
        if (line >= PLOT_DODGED || place[line] < 0)
            continue;
        double by = part * (place[line] - (n - 1) / 2.0);
        for (int k = 0; k < p->series[i].data.n; k++)
            p->series[i].data.x[k] += by * (p->log_x ? p->series[i].data.x[k] : size);
    }
}

static bool empty(const struct plot *p, int line)
{
    for (int k = 0; k < p->n_series; k++)
        for (int j = 0; p->series[k].line == line && j < p->series[k].data.n; j++)
            if (placed(p->series[k].data.x[j], p->log_x)
                && placed(p->series[k].data.y[j], p->log_y))
                return false;
    return true;
}

void plot_hide_empty(struct plot *p)
{
    const char *begin = *p->note ? "; " : "", *why = p->lacking ? p->lacking : "without values";
    bool first = true;
    for (int i = 0; i < p->n_lines; i++) {
        if (p->line[i].hidden || !p->line[i].name[0] || !empty(p, i))
            continue;
        size_t n = strlen(p->note);
        snprintf(p->note + n, sizeof p->note - n, "%s%s%s%s", begin, first ? why : "",
                 first ? ": " : "", p->line[i].name);
        p->line[i].hidden = true;
        first = false;
        begin = ", ";
    }
}
