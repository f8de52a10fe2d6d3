/* fig_atlas.c - draws clusters of heads: a map with framed medoids, sorted silhouettes, and below
 * them dots for the stability of membership over texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/identity.h"
#include "render/kindmap.h"
#include "render/cells.h"

enum { TOP = 3, KEY = 44, PROFILE = 44, GAP = 4, BOTTOM = 10, LEFT = 11, MOST = 99, COLOURS = 12 };
static const double LINE = 3.8, STABILITY = .34, APART = 3; /* mm, but STABILITY is a fraction */

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
    double stability[MOST + 1];
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
    x->stability[m->cluster] += m->stability;
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
        *h = TOP + fmax(*h + GAP + PROFILE + BOTTOM, fmin(160, x.k * LINE * 2 + 2));
    }
    free_clusters(&x);
}

static void key(struct canvas *c, const struct clusters *x, const struct table *t, double left)
{
    char text[96], sign[8], head[24], kind[24], fit[96];
    double y = TOP + 1.5;
    int kinds = table_find(t, "kind");
    for (int k = 1; k <= x->k && y < canvas_height(c) - 2 * LINE; k++) {
        if (!x->count[k])
            continue;
        snprintf(sign, sizeof sign, "%d", k);
        snprintf(text, sizeof text, "%lld head%s", (long long)x->count[k],
                 x->count[k] > 1 ? "s" : "");
        if (isfinite(x->stability[k]))
            snprintf(text + strlen(text), 40, ", stability %.2g",
                     x->stability[k] / (double)x->count[k]);
        y = kindmap_key(c, left, y, colour_of(k), sign, text) - .4;
        if (x->medoid[k] >= 0) {
            int n = snprintf(text, sizeof text, "medoid %.20s",
                             cell_text(t, table_find(t, "head"), x->medoid[k], head));
            const char *of = kinds < 0 ? "" : cell_text(t, kinds, x->medoid[k], kind);
            if (*of)
                snprintf(text + n, sizeof text - (size_t)n, " (%.30s)", of);
            const char *shown = text_fit(c, text, PT_SMALL, KEY - 10, fit, sizeof fit);
            canvas_text(c, left + 4.1, y - .3, shown, PT_SMALL, ALIGN_LEFT,
                        (struct rgb){.3, .3, .3}, 0);
            y += LINE - .4;
        }
    }
    if (x->count[0]) {
        snprintf(text, sizeof text, "in none (%lld)", (long long)x->count[0]);
        y = kindmap_key(c, left, y, colour_of(0), "", text);
    }
    if (y < canvas_height(c) - LINE) {
        canvas_frame(c, left + .2, y - 1.1, 2.4, 2.4, .5, ink);
        canvas_text(c, left + 4.1, y, "medoid: the most central head", PT_SMALL, ALIGN_LEFT, ink,
                    0);
    }
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

static void stabilities(struct canvas *c, const struct clusters *x, struct axis_box a)
{
    a.y0 = -.1;
    a.y1 = 1.1;
    for (int64_t i = 0; i < x->n; i++) {
        double edge = axis_x(&a, (double)i), up[] = {edge, a.y, edge, a.y + a.h};
        if (i && x->member[i].cluster != x->member[i - 1].cluster)
            canvas_line(c, up, 2, .12, (struct rgb){.6, .6, .6});
        if (isfinite(x->member[i].stability))
            canvas_disc(c, axis_x(&a, (double)i + .5), axis_y(&a, x->member[i].stability), .28, 0,
                        ink);
    }
    axis_ticks_y(c, &a);
    canvas_frame(c, a.x, a.y, a.w, a.h, .18, ink);
    name_y(c, &a, "stability");
}

/* Draws the silhouettes and below them the stabilities of the heads. */
static void profile(struct canvas *c, const struct clusters *x, const struct table *t, double y,
                    double w, double h)
{
    char note[96];
    double low = STABILITY * (h - APART);
    struct axis_box a = {
        .x = LEFT, .y = y, .w = w, .h = h - APART - low, .x1 = fmax(1, (double)x->n)};
    silhouettes(c, x, t, a);
    a.y += a.h + APART;
    a.h = low;
    stabilities(c, x, a);
    canvas_text(c, a.x + a.w / 2, y + h + 2.8, "heads, by cluster and silhouette", PT_LABEL,
                ALIGN_CENTER, ink, 0);
    snprintf(note, sizeof note, "dashed: mean; stability: fraction of n = %.0f text%s",
             table_meta_real(t, "traces", 1), table_meta_real(t, "traces", 1) > 1 ? "s" : "");
    const char *halves = table_meta(t, "halves");
    if (halves && strcmp(halves, "tokens") == 0)
        snprintf(note, sizeof note, "dashed: mean; stability: fraction of the halves of the text");
    canvas_text(c, a.x + a.w / 2, y + h + 6.4, note, PT_SMALL, ALIGN_CENTER,
                (struct rgb){.35, .35, .35}, 0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    (void)s;
    struct clusters x = {.n = 0};
    double w = canvas_width(c) - KEY, h = canvas_height(c) - TOP - GAP - BOTTOM;
    int err = canvas_room(c, "atlas", KEY + 36, TOP + GAP + BOTTOM + 36, d);
    if (!err)
        err = read_clusters(t, &x);
    if (!err) {
        struct kindmap m = {x.cell, x.n, x.query};
        double low = fmin(PROFILE, .5 * h);
        kindmap_draw(c, &m, 0, TOP, w, h - low);
        profile(c, &x, t, TOP + h - low + GAP, w - LEFT, low);
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
