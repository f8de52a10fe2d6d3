/* fig_atlas.c - draws clusters of heads: a map with framed medoids, sorted silhouettes, and for
 * each cluster a bar of the fractions of heads that stay in it in all, most or few texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/identity.h"
#include "render/kindmap.h"
#include "render/cells.h"
#include "render/note.h"

enum {
    TOP = 3,
    KEY = 44,
    PROFILE = 34,
    GAP = 5,
    BOTTOM = 11,
    LEFT = 11,
    MOST = 99,
    COLOURS = 12,
    LEAST = 12
};
enum { ALL, HALF, FEW, LEVELS }; /* of stability */
static const double LINE = 3.8;
static const char *const level_name[LEVELS] = {"all", "half or more", "fewer"};
static const struct rgb level_fill[LEVELS] = {{.25, .25, .25}, {.62, .62, .62}, {.9, .9, .9}};

struct member {
    int64_t row;
    int cluster;
    double silhouette, stability;
};

struct clusters {
    struct kind_cell *cell;
    struct member *member; /* [n], by cluster, then silhouette */
    int64_t n;
    int k;                                     /* largest cluster number, at most MOST */
    int64_t count[MOST + 1], medoid[MOST + 1]; /* rows; -1 if none */
    int64_t level[MOST + 1][LEVELS];           /* heads by stability */
    bool query;
};

static struct rgb colour_of(int cluster)
{
    static const struct rgb c[COLOURS] = {
        {0, .447, .698},    {.902, .624, 0}, {0, .62, .451},     {.8, .475, .655},
        {.337, .706, .914}, {.835, .369, 0}, {.941, .894, .259}, {.3, .3, .3},
        {.533, .133, .333}, {.6, .6, .2},    {.2, .13, .53},     {.72, .72, .72}};
    return cluster < 1 ? (struct rgb){.95, .95, .95} : c[(cluster - 1) % COLOURS];
}

static int by_cluster(const void *a, const void *b)
{
    const struct member *p = a, *q = b;
    if (p->cluster != q->cluster)
        return (p->cluster > q->cluster) - (p->cluster < q->cluster);
    double x = isnan(p->silhouette) ? -2 : p->silhouette;
    double y = isnan(q->silhouette) ? -2 : q->silhouette;
    return x != y ? (x < y) - (x > y) : (p->row > q->row) - (p->row < q->row);
}

static void add(struct clusters *x, const struct table *t, int64_t r, const int col[6])
{
    struct kind_cell *k = &x->cell[x->n];
    struct member *m = &x->member[x->n];
    *k = (struct kind_cell){.layer = table_int(t, col[0], r), .index = table_int(t, col[1], r)};
    if (k->layer < 0 || k->index < 0)
        return;
    int64_t c = table_int(t, col[2], r);
    *m = (struct member){r, c < 1 || c > MOST ? 0 : (int)c, table_real(t, col[3], r),
                         table_real(t, col[4], r)};
    k->fill = colour_of(m->cluster);
    if (m->cluster)
        snprintf(k->sign, sizeof k->sign, "%d", m->cluster);
    k->framed = table_int(t, col[5], r) == 1;
    x->count[m->cluster]++;
    if (m->stability >= 1)
        x->level[m->cluster][ALL]++;
    else if (isfinite(m->stability))
        x->level[m->cluster][m->stability >= .5 ? HALF : FEW]++;
    if (k->framed)
        x->medoid[m->cluster] = r;
    x->k = m->cluster > x->k ? m->cluster : x->k;
    x->n++;
}

static int read_clusters(const struct table *t, struct clusters *x)
{
    static const char *const names[] = {"layer",      "index",     "cluster",
                                        "silhouette", "stability", "is_medoid"};
    int col[6];
    char cell[24];
    *x = (struct clusters){.n = 0};
    for (int k = 0; k < 6; k++)
        col[k] = table_find(t, names[k]);
    for (int k = 0; k <= MOST; k++)
        x->medoid[k] = -1;
    x->cell = MEM_NEW(struct kind_cell, (size_t)table_rows(t));
    x->member = MEM_NEW(struct member, (size_t)table_rows(t));
    if (!x->cell || !x->member)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < table_rows(t); r++)
        add(x, t, r, col);
    qsort(x->member, (size_t)x->n, sizeof *x->member, by_cluster);
    x->query = !strchr(cell_text(t, table_find(t, "head"), 0, cell), 'K');
    return KVF_OK;
}

static void free_clusters(struct clusters *x)
{
    mem_free_all(x->cell, x->member);
}

static int clusters_of(const struct clusters *x)
{
    int n = 0;
    for (int k = 1; k <= x->k; k++)
        n += x->count[k] > 0;
    return n;
}

static double key_height(const struct clusters *x)
{
    return clusters_of(x) * 2 * LINE + (x->count[0] ? 4 : 3) * LINE;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct clusters x;
    (void)s;
    *w = 88;
    *h = 60;
    if (read_clusters(t, &x) == KVF_OK) {
        struct kindmap m = {x.cell, x.n, x.query};
        kindmap_size(&m, 180 - KEY, 160, w, h);
        *w = fmax(88, *w + KEY);
        *h = TOP + fmax(*h, key_height(&x)) + GAP + PROFILE + BOTTOM;
    }
    free_clusters(&x);
}

/* Draws the heads of a cluster as a stacked bar: those that stay in it in all, most or few texts.
 */
static void stability(struct canvas *c, const struct clusters *x, int k, double left, double right,
                      double y)
{
    char text[24];
    double known = (double)(x->level[k][ALL] + x->level[k][HALF] + x->level[k][FEW]);
    for (int i = 0; i < LEVELS && known > 0; i++) {
        double part = (right - left) * (double)x->level[k][i] / known;
        double before = (double)(x->level[k][ALL] + (i > HALF ? x->level[k][HALF] : 0));
        double at = left + (i ? (right - left) * before / known : 0);
        snprintf(text, sizeof text, "%lld", (long long)x->level[k][i]);
        if (part > 0)
            canvas_rect(c, at, y - 1.4, part, 2.8, level_fill[i]);
        if (part > canvas_text_width(c, text, PT_SMALL, 0) + .6)
            canvas_text(c, at + part / 2, y, text, PT_SMALL, ALIGN_CENTER, ink_on(level_fill[i]),
                        0);
    }
}

/* Draws the key of the stacked bars, and the texts over which membership was tested. */
static void levels(struct canvas *c, const struct table *t, double left, double y)
{
    const char *halves = table_meta(t, "halves");
    double n = table_meta_real(t, "traces", 1);
    char text[64];
    snprintf(text, sizeof text, "heads in their cluster, of n = %.0f text%s:", n, n > 1 ? "s" : "");
    if (halves && strcmp(halves, "tokens") == 0)
        snprintf(text, sizeof text, "heads in their cluster, of two halves:");
    canvas_text(c, left, y, text, PT_SMALL, ALIGN_LEFT, ink, 0);
    for (int i = 0; i < LEVELS; i++) {
        canvas_rect(c, left, y + 1.8, 2, 2, level_fill[i]);
        canvas_text(c, left + 2.8, y + 2.8, level_name[i], PT_SMALL, ALIGN_LEFT, ink, 0);
        left += 5.5 + canvas_text_width(c, level_name[i], PT_SMALL, 0);
    }
}

static void key(struct canvas *c, const struct clusters *x, const struct table *t, double left)
{
    char text[96], sign[8], head[24], kind[24], fit[96];
    double y = TOP + 1.5, wide = 0;
    int kinds = table_find(t, "kind");
    for (int k = 1; k <= x->k; k++) {
        snprintf(text, sizeof text, "%lld heads", (long long)x->count[k]);
        wide = fmax(wide, canvas_text_width(c, text, PT_TICK, 0));
    }
    for (int k = 1; k <= x->k; k++) {
        if (!x->count[k])
            continue;
        snprintf(sign, sizeof sign, "%d", k);
        snprintf(text, sizeof text, "%lld head%s", (long long)x->count[k],
                 x->count[k] > 1 ? "s" : "");
        stability(c, x, k, left + 6 + wide, canvas_width(c) - 2, y);
        y = kindmap_key(c, left, y, colour_of(k), sign, text) - .4;
        if (x->medoid[k] >= 0) {
            int n = snprintf(text, sizeof text, "center %.20s",
                             cell_text(t, table_find(t, "head"), x->medoid[k], head));
            const char *of = kinds < 0 ? "" : cell_text(t, kinds, x->medoid[k], kind);
            if (*of)
                snprintf(text + n, sizeof text - (size_t)n, " (%.30s)", of);
            const char *shown = text_fit(c, text, PT_SMALL, KEY - 10, fit, sizeof fit);
            canvas_text(c, left + 4.1, y - .3, shown, PT_SMALL, ALIGN_LEFT,
                        (struct rgb){.3, .3, .3}, 0);
        }
        y += LINE - .4;
    }
    if (x->count[0]) {
        snprintf(text, sizeof text, "in none (%lld)", (long long)x->count[0]);
        y = kindmap_key(c, left, y, colour_of(0), "", text);
    }
    canvas_frame(c, left + .2, y - 1.1, 2.4, 2.4, .5, ink);
    canvas_text(c, left + 4.1, y, "center: the most central head", PT_SMALL, ALIGN_LEFT, ink, 0);
    levels(c, t, left, y + LINE);
}

/* Writes the cluster number above the middle of its members, if there is space. */
static void profile_number(struct canvas *c, const struct axis_box *a, int cluster, int64_t from,
                           int64_t to)
{
    char text[16];
    snprintf(text, sizeof text, "%d", cluster);
    double x0 = axis_x(a, (double)from), x1 = axis_x(a, (double)to);
    if (cluster > 0 && x1 - x0 > canvas_text_width(c, text, PT_SMALL, 0) + .4)
        canvas_text(c, (x0 + x1) / 2, a->y - 1.5, text, PT_SMALL, ALIGN_CENTER, ink, 0);
}

static void bars(struct canvas *c, const struct clusters *x, const struct axis_box *a)
{
    double zero = axis_y(a, 0), wide = a->w / fmax(1, (double)x->n);
    int64_t from = 0;
    for (int64_t i = 0; i < x->n; i++) {
        const struct member *m = &x->member[i];
        double y = axis_y(a, fmax(a->y0, fmin(1, m->silhouette)));
        if (isfinite(m->silhouette))
            canvas_cell(c, axis_x(a, (double)i), fmin(y, zero), wide, fabs(zero - y),
                        colour_of(m->cluster));
        if (i + 1 == x->n || x->member[i + 1].cluster != m->cluster) {
            profile_number(c, a, m->cluster, from, i + 1);
            double edge = axis_x(a, (double)(i + 1));
            const double xy[] = {edge, a->y, edge, a->y + a->h};
            if (i + 1 < x->n)
                canvas_line(c, xy, 2, .12, (struct rgb){.6, .6, .6});
            from = i + 1;
        }
    }
}

/* Draws a dashed line across the axes at y. */
static void mean_line(struct canvas *c, const struct axis_box *a, double y)
{
    const double line[] = {a->x, axis_y(a, y), a->x + a->w, axis_y(a, y)};
    canvas_dash(c, 1, .8);
    if (y > a->y0 && y <= a->y1)
        canvas_line(c, line, 2, .2, ink);
    canvas_dash(c, 0, 0);
}

static void name_y(struct canvas *c, const struct axis_box *a, const char *name)
{
    double pt = canvas_text_width(c, name, PT_LABEL, 0) > a->h + 2 ? PT_SMALL : PT_LABEL;
    canvas_text(c, a->x - 8, a->y + a->h / 2, name, pt, ALIGN_CENTER, ink, 1);
}

static void silhouettes(struct canvas *c, const struct clusters *x, const struct table *t,
                        struct axis_box a)
{
    double least = 0;
    for (int64_t i = 0; i < x->n; i++)
        least = fmin(least, x->member[i].silhouette); /* ignores NaN */
    a.y0 = least < 0 ? fmax(-1, floor(least * 5) / 5) : 0;
    a.y1 = 1;
    bars(c, x, &a);
    axis_ticks_y(c, &a);
    canvas_frame(c, a.x, a.y, a.w, a.h, .18, ink);
    const double zero[] = {a.x, axis_y(&a, 0), a.x + a.w, axis_y(&a, 0)};
    canvas_line(c, zero, 2, .18, ink);
    mean_line(c, &a, table_meta_real(t, "mean_silhouette", NAN));
    name_y(c, &a, "silhouette");
}

/* Draws the silhouettes of the heads and the note. */
static void profile(struct canvas *c, const struct clusters *x, const struct table *t, double y,
                    double w, double h)
{
    char note[NOTE_TEXT];
    const char *model = table_meta(t, "model");
    struct axis_box a = {.x = LEFT, .y = y, .w = w, .h = h, .x1 = fmax(1, (double)x->n)};
    silhouettes(c, x, t, a);
    canvas_text(c, a.x + a.w / 2, y + h + 2.8, "heads, by cluster and silhouette", PT_LABEL,
                ALIGN_CENTER, ink, 0);
    snprintf(note, sizeof note,
             "%.60s%s%lld heads; silhouette: 1 = far from other clusters, below 0 = nearer to "
             "another; dashed: mean",
             model ? model : "", model ? "; " : "", (long long)x->n);
    struct note at = {1.5, canvas_width(c) - 1.5, canvas_width(c) / 2, .pitch = 2.6, .most = 2};
    note_draw(c, &at, y + h + 6, note);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    (void)s;
    struct clusters x = {.n = 0};
    int err = read_clusters(t, &x);
    double key_h = err ? 0 : key_height(&x), rest = TOP + GAP + BOTTOM;
    if (!err)
        err = canvas_room(c, "atlas", KEY + 36, rest + fmax(key_h, 20) + LEAST, d);
    if (!err) {
        struct kindmap m = {x.cell, x.n, x.query};
        double w = canvas_width(c) - KEY, h = canvas_height(c) - rest;
        double low = fmin(fmin(PROFILE, .45 * h), h - key_h);
        kindmap_draw(c, &m, 0, TOP, w, h - low);
        profile(c, &x, t, TOP + h - low + GAP, canvas_width(c) - LEFT - 3, low);
        key(c, &x, t, w + 2.5);
    }
    free_clusters(&x);
    return err;
}

const struct figure fig_atlas = {
    .name = "atlas",
    .table = "atlas",
    .summary = "clusters of heads: where they are, silhouettes and stability of their members",
    .needs = "head:text layer index cluster silhouette stability is_medoid",
    .size = size,
    .draw = draw,
};
