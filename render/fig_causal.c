/* fig_causal.c - draws how an answer changes when entries are removed at its query: a row per kind
 * and amount of removed entries, and a panel per group of heads.
 *
 * The axis has the change of the answer's log probability or the fraction of correct answers.  It
 * covers all rows but the evidence, whose effect is far larger.  Values beyond it are an arrow and
 * a number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "render/figures.h"
#include "render/cells.h"
#include "render/forest.h"
#include "render/note.h"

enum { LOG_P, RIGHT };
enum { TOP = 9, BOTTOM = 9, PARTS = 16, GROUPS = 3, GAP = 5, NOTES = 7, TICKS = 12 };
static const double ROW = 3.5, NOTE = 2.7, MIN_ROW = 2.6, MIN_W = 20, WIDE = 150;

struct causal_style {
    int y;
};

static const char *const ups[][3] = {{"dlogp", "dlogp_low", "dlogp_high"},
                                     {"right", "right_low", "right_high"}};

/* The rows from the top: a heading has no `what`.  dose NAN: as much attention as the evidence
 * has. */
static const struct part {
    const char *what;
    double dose;
    const char *name;
} parts[PARTS] = {{NULL, 0, "distractors"},
                  {"distractors", 1, "all"},
                  {"distractors", .75, "75 % of their attention"},
                  {"distractors", .5, "50 %"},
                  {"distractors", .25, "25 %"},
                  {"distractors", NAN, "few: up to evidence's attention"},
                  {"sham", NAN, "few, consecutive"},
                  {NULL, 0, "other tokens (control)"},
                  {"random", 1, "up to all distractors' attention"},
                  {"random", .75, "up to 75 %"},
                  {"random", .5, "up to 50 %"},
                  {"random", .25, "up to 25 %"},
                  {"random", NAN, "few: up to evidence's attention"},
                  {NULL, 0, "evidence"},
                  {"evidence", 1, "all"},
                  {"evidence", NAN, "up to distractors' attention"}};

/* A panel: the rows of a group of heads. */
struct panel {
    const char *group; /* borrowed from the table */
    struct forest_row row[PARTS];
};

struct removals {
    struct panel panel[GROUPS];
    int groups, rows;
    double x0, x1;              /* of the axis */
    double full_low, full_high; /* of the full cache */
    const char *const *up;      /* columns of the value and its interval */
};

static int64_t find_row(const struct table *t, const char *group, const char *what, double dose)
{
    for (int64_t r = 0; r < table_rows(t); r++) {
        double d = table_real(t, table_find(t, "dose"), r);
        if (strcmp(table_row_str(t, r, "group"), group) == 0
            && strcmp(table_row_str(t, r, "removed"), what) == 0
            && (d == dose || (isnan(d) && isnan(dose))))
            return r;
    }
    return -1;
}

/* Returns true if some group has the row of a part; of a heading: of a part below it. */
static bool has_part(const struct table *t, int k)
{
    bool any = false;
    int end = k + 1;
    while (!parts[k].what && end < PARTS && parts[end].what)
        end++;
    for (; k < end; k++)
        for (int64_t r = 0; parts[k].what && !any && r < table_rows(t); r++)
            any = find_row(t, table_row_str(t, r, "group"), parts[k].what, parts[k].dose) >= 0;
    return any;
}

static double number(const struct table *t, const char *column, int64_t r)
{
    return table_real(t, table_find(t, column), r);
}

static struct forest_row row_of(const struct table *t, const struct removals *x, const char *group,
                                const struct part *k)
{
    static const char *const kinds[] = {"distractors", "random", "evidence", "sham"};
    static const enum mark marks[] = {MARK_DISC, MARK_RING, MARK_DIAMOND, MARK_DISC};
    struct forest_row y = {.heading = !k->what, .value = NAN, .low = NAN, .high = NAN};
    int64_t r = k->what ? find_row(t, group, k->what, k->dose) : -1;
    snprintf(y.name, sizeof y.name, "%s", k->name);
    if (r < 0)
        return y;
    double mass = number(t, "mass", r);
    y.value = number(t, x->up[0], r);
    y.low = number(t, x->up[1], r);
    y.high = number(t, x->up[2], r);
    for (int i = 0; i < 4; i++)
        if (strcmp(kinds[i], k->what) == 0) {
            y.colour = palette_line(i % 3);
            y.mark = marks[i];
        }
    if (isfinite(mass))
        snprintf(y.note, sizeof y.note, mass < .0995 ? "%.1f %%" : "%.0f %%", 100 * mass);
    return y;
}

/* Adds the panels of all groups.  Returns KVF_E_ARG if there are too many. */
static int add_groups(const struct table *t, struct removals *x, struct kvf_diag *d)
{
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *group = table_row_str(t, r, "group");
        int g = 0;
        while (g < x->groups && strcmp(x->panel[g].group, group) != 0)
            g++;
        if (g == GROUPS)
            return kvf_fail(d, KVF_E_ARG, "figure causal: more than %d groups of heads", GROUPS);
        if (g < x->groups)
            continue;
        x->panel[x->groups++].group = group;
        x->rows = 0;
        for (int k = 0; k < PARTS; k++)
            if (has_part(t, k))
                x->panel[g].row[x->rows++] = row_of(t, x, group, &parts[k]);
    }
    return KVF_OK;
}

/* Extends the axis to the rows of evidence or to all others. */
static void extend(struct removals *x, bool evidence)
{
    for (int g = 0; g < x->groups; g++)
        for (int i = 0; i < x->rows; i++) {
            const struct forest_row *r = &x->panel[g].row[i];
            const double v[] = {r->value, r->low, r->high};
            for (int e = 0; e < 3; e++)
                if (isfinite(v[e]) && (r->mark == MARK_DIAMOND) == evidence) {
                    x->x0 = fmin(x->x0, v[e]); /* fmin and fmax ignore NaN */
                    x->x1 = fmax(x->x1, v[e]);
                }
        }
}

/* Sets the value of the full cache and the range of the axis. */
static void find_range(const struct table *t, const struct figure_style *s, struct removals *x)
{
    bool right = x->up == ups[RIGHT];
    int64_t full = find_row(t, "all", "nothing", 0);
    x->full_low = x->full_high = right ? NAN : 0;
    if (right && full >= 0) {
        x->full_low = number(t, x->up[1], full);
        x->full_high = number(t, x->up[2], full);
    }
    x->x0 = x->full_low;
    x->x1 = x->full_high;
    extend(x, false);
    if (!(x->x1 > x->x0))
        extend(x, true);
    double more = x->x1 > x->x0 ? .06 * (x->x1 - x->x0) : 1;
    x->x0 = axis_end(x->x0 - more);
    x->x1 = axis_end(x->x1 + more);
    if (right) {
        x->x0 = -.03;
        x->x1 = 1.03;
    }
    x->x0 = isnan(s->vmin) ? x->x0 : s->vmin;
    x->x1 = isnan(s->vmax) ? x->x1 : s->vmax;
    if (!(x->x1 > x->x0))
        x->x1 = x->x0 + 1;
}

static int read_removals(const struct table *t, const struct figure_style *s, struct removals *x,
                         struct kvf_diag *d)
{
    *x = (struct removals){.up = ups[((const struct causal_style *)s->own)->y]};
    for (int k = 0; k < 3; k++)
        if (numeric_column(t, x->up[k]) < 0)
            return kvf_fail(d, KVF_E_ARG, "figure causal: the table has no numbers %s, %s and %s",
                            x->up[0], x->up[1], x->up[2]);
    int err = add_groups(t, x, d);
    if (!err)
        find_range(t, s, x);
    return err;
}

static int columns_of(const struct removals *x, double w)
{
    return w < WIDE || x->groups < 1 ? 1 : x->groups;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct removals x;
    struct kvf_diag unused;
    bool read = read_removals(t, s, &x, &unused) == KVF_OK;
    *w = s->width_mm > 0 ? s->width_mm : 180;
    int panels = read ? (int)ceil(x.groups / (double)columns_of(&x, *w)) : 1;
    *h = panels * (TOP + BOTTOM + ROW * fmax(read ? x.rows : 1, 3)) + NOTE * (*w < WIDE ? 5 : 3);
}

/* Writes the fraction of the heads that are in the group `looking`, in %, or NAN. */
static double looking_part(const struct table *t)
{
    const char *looking = table_meta(t, "looking");
    double part = looking ? 100 * strtod(looking, NULL) : NAN;
    return part > 0 && part < 100 ? part : NAN;
}

static void panel_name(const struct table *t, const char *group, char out[CELL_TEXT])
{
    double part = looking_part(t);
    bool looking = strcmp(group, "looking") == 0, other = strcmp(group, "other") == 0;
    int n = snprintf(out, CELL_TEXT, "%.32s", looking ? "evidence heads" : group);
    if (!looking)
        n += snprintf(out + n, CELL_TEXT - (size_t)n, " heads");
    if ((looking || other) && isfinite(part))
        snprintf(out + n, CELL_TEXT - (size_t)n, " (%.3g %%)", looking ? part : 100 - part);
}

static void one_decimal(double v, char out[16])
{
    snprintf(out, 16, fabs(v) < 1e6 ? "%.1f" : "%.3g", v);
}

/* Writes the numbers of the rows that are beyond the axis, next to their arrows. */
static void beyond(struct canvas *c, const struct axis_box *a, const struct forest *f)
{
    char text[64], value[16], low[16], high[16];
    for (int i = 0; i < f->n; i++) {
        const struct forest_row *r = &f->row[i];
        bool left = r->value < a->x0;
        if (!left && !(r->value > a->x1))
            continue;
        one_decimal(r->value, value);
        one_decimal(r->low, low);
        one_decimal(r->high, high);
        snprintf(text, sizeof text, "%s (%s .. %s)", value, low, high);
        if (!isfinite(r->low) || !isfinite(r->high)
            || canvas_text_width(c, text, PT_SMALL, 0) > a->w - 3)
            snprintf(text, sizeof text, "%s", value);
        minus_signs(text, sizeof text);
        double h = a->h / f->n, wide = canvas_text_width(c, text, PT_SMALL, 0);
        double x = left ? a->x + 2 : a->x + a->w - 2 - wide;
        struct rgb below = {1 - .07 * (i % 2), 1 - .07 * (i % 2), 1 - .07 * (i % 2)};
        canvas_rect(c, x - .5, a->y + (i + .1) * h, wide + 1, .8 * h, below); /* hides the null */
        canvas_text(c, x, a->y + (i + .5) * h, text, PT_SMALL, ALIGN_LEFT, ink, 0);
    }
}

static void draw_panel(struct canvas *c, const struct table *t, const struct removals *x, int g,
                       struct axis_box *a, const struct forest *f)
{
    char name[CELL_TEXT], fit[CELL_TEXT];
    panel_name(t, x->panel[g].group, name);
    forest_draw(c, a, f);
    beyond(c, a, f);
    axis_ticks_x(c, a);
    canvas_frame(c, a->x, a->y, a->w, a->h, .18, ink);
    canvas_text(c, a->x + a->w / 2, a->y - 5.4,
                text_fit(c, name, PT_LABEL, a->w + f->notes, fit, sizeof fit), PT_LABEL,
                ALIGN_CENTER, ink, 0);
    canvas_text(c, a->x + a->w + 1.5 + f->notes, a->y - 1.8, "attention removed", PT_SMALL,
                ALIGN_RIGHT, ink, 0);
}

/* Writes the note: the counts, and the terms that the panels use. */
static void write_note(const struct table *t, const struct removals *x, char text[NOTE_TEXT])
{
    const char *model = table_meta(t, "model"), *tasks = table_meta(t, "tasks");
    double part = looking_part(t);
    int n = snprintf(
        text, NOTE_TEXT,
        "%.60s%sn = %.12s tasks; bars: 95 %% CI; %s; distractors: the text without the "
        "evidence; other tokens: template, first tokens and question",
        model ? model : "", model ? "; " : "", tasks ? tasks : "?",
        x->up == ups[RIGHT] ? "grey: full cache"
                            : "right of 0: answer likelier than with the full cache");
    if (isfinite(part) && x->groups > 1)
        snprintf(text + n, NOTE_TEXT - (size_t)n,
                 "; evidence heads: the %.3g %% with most attention to the evidence", part);
}

static void draw_removals(struct canvas *c, const struct table *t, struct removals *x)
{
    int cols = columns_of(x, canvas_width(c)), rows = (x->groups + cols - 1) / cols;
    char note[NOTE_TEXT];
    struct note below = {2, canvas_width(c) - 2, canvas_width(c) / 2, .pitch = NOTE, .most = NOTES};
    write_note(t, x, note);
    double each = (canvas_height(c) - note_height(c, NULL, &below, note) - 1) / rows, names = 0,
           notes = 0, tick[TICKS];
    struct forest f = {NULL, x->rows, x->full_low, x->full_high, 0, 0};
    for (int g = 0; g < x->groups; g++) {
        f.row = x->panel[g].row;
        forest_measure(c, &f, .4 * canvas_width(c));
        names = fmax(names, f.names);
        notes = fmax(notes, f.notes);
    }
    f.names = names;
    f.notes = notes;
    struct axis_box a = {
        .w = (canvas_width(c) - names - 4.5 - cols * (notes + 1.5) - (cols - 1) * GAP) / cols,
        .h = each - TOP - BOTTOM,
        .x0 = x->x0,
        .x1 = x->x1,
        .at_x = tick};
    a.n_at_x = ticks_linear(a.x0, a.x1, (int)fmax(2, a.w / 6), tick, TICKS);
    const char *label = x->up == ups[RIGHT] ? "fraction of correct answers"
                                            : "change of ln p(answer), nats";
    for (int g = 0; g < x->groups; g++) {
        a.x = names + 3 + g % cols * (a.w + notes + 1.5 + GAP);
        a.y = TOP + g / cols * each;
        f.row = x->panel[g].row;
        for (int i = 0; g % cols && i < x->rows; i++)
            x->panel[g].row[i].name[0] = 0;
        draw_panel(c, t, x, g, &a, &f);
        canvas_text(c, a.x + a.w / 2, a.y + a.h + 6, label, PT_LABEL, ALIGN_CENTER, ink, 0);
    }
    canvas_text(c, 1.5, TOP - 1.8, "removed entries", PT_SMALL, ALIGN_LEFT, ink, 0);
    note_draw_up(c, &below, canvas_height(c) - 2, note);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct removals x;
    int err = read_removals(t, s, &x, d);
    int cols = err ? 1 : columns_of(&x, canvas_width(c));
    int panels = err ? 1 : (x.groups + cols - 1) / cols;
    if (!err)
        err = canvas_room(c, "causal", 55 + MIN_W,
                          panels * (TOP + BOTTOM + MIN_ROW * x.rows) + 3 * NOTE, d);
    if (!err)
        draw_removals(c, t, &x);
    return err;
}

const struct figure fig_causal = {
    .name = "causal",
    .table = "causal",
    .summary = "change of the answer after attention to distractors is removed",
    .needs = "group:text removed:text dose mass dlogp",
    STYLE(struct causal_style, WORD_KEY(struct causal_style, y, "logp",
                                        "column on the horizontal axis", "logp", "right")),
    .size = size,
    .draw = draw,
};
