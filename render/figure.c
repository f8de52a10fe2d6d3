/* figure.c - finds figures, checks tables and styles, and draws figures into files, canvases and
 * terminals. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/replace.h"
#include "render/ansi.h"
#include "render/figure_fit.h"
#include "render/figures.h"
#include "render/marks.h"

enum { TITLE_PT = 9, SCALED_MIN = 45 }; /* mm */
enum { MAX_PIXELS = 64000000 };         /* maximum for a PNG: 256 MB before compression */

const struct figure *const figure_table[] = {
#define X(name) &fig_##name,
#define DROPPED(name, replacement)
#include "render/figures.list"
#undef DROPPED
#undef X
    NULL,
};

static const struct {
    const char *name, *replacement;
} dropped[] = {
#define X(name)
#define DROPPED(name, replacement) {name, replacement},
#include "render/figures.list"
#undef DROPPED
#undef X
};

const char *figure_replacement(const char *name)
{
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        if (strcmp(dropped[i].name, name) == 0)
            return dropped[i].replacement;
    return NULL;
}

const struct figure *figure_find(const char *name)
{
    for (const struct figure *const *f = figure_table; *f; f++)
        if (strcmp((*f)->name, name) == 0)
            return *f;
    return NULL;
}

/* A column that a figure needs. */
struct need {
    char name[48], type[8]; /* "number", "text" or "either" */
    bool optional;
};

/* Reads the next column of a list (figure.needs) and moves *list behind it.  Returns false at the
 * end. */
static bool next_need(const char **list, struct need *ret)
{
    const char *name = *list + strspn(*list, " ");
    int all = (int)strcspn(name, " "), end = (int)strcspn(name, "? "),
        n = (int)strcspn(name, ":? ");
    snprintf(ret->name, sizeof ret->name, "%.*s", n, name);
    snprintf(ret->type, sizeof ret->type, "%.*s", n < end ? end - n - 1 : 6,
             n < end ? name + n + 1 : "number");
    ret->optional = end < all;
    *list = name + all;
    return all > 0;
}

const char *figure_table_at(const struct figure *f, int i)
{
    if (f->maps)
        return f->maps[i].table;
    return i == 0 ? f->table : NULL;
}

/* Returns the list of columns that a figure needs of table i. */
static const char *needs_at(const struct figure *f, int i)
{
    return f->maps ? f->maps[i].needs : f->needs;
}

static bool has_text(const char *needs, const char *column)
{
    struct need need;
    while (next_need(&needs, &need))
        if (strcmp(need.type, "text") == 0 && strcmp(need.name, column) == 0)
            return true;
    return false;
}

bool figure_reads_text(const char *column)
{
    for (const struct figure *const *f = figure_table; *f; f++)
        for (int i = 0; figure_table_at(*f, i); i++)
            if (has_text(needs_at(*f, i), column))
                return true;
    return false;
}

bool figure_draws(const struct figure *f, const char *table)
{
    for (int i = 0; figure_table_at(f, i); i++)
        if (strcmp(figure_table_at(f, i), table) == 0)
            return true;
    return f->also && strcmp(f->also, table) == 0;
}

const struct figure *figure_of_table(const char *table)
{
    const struct figure *own = figure_find(table), *any = NULL;
    for (const struct figure *const *f = figure_table; !own && *f; f++)
        if (figure_draws(*f, table) && (!any || (*f)->maps))
            any = *f;
    return own ? own : any;
}

const char *figure_value(const char *table)
{
    for (const struct figure *const *f = figure_table; *f; f++)
        if (map_of_table(*f, table))
            return map_of_table(*f, table)->value;
    return NULL;
}

static enum canvas_format format_of(const char *path)
{
    static const char *const ext[] = {".png", ".svg", ".pdf"};
    const char *dot = strrchr(path, '.');
    for (int i = 0; dot && i < 3; i++)
        if (strcasecmp(dot, ext[i]) == 0)
            return (enum canvas_format)i;
    return CANVAS_NONE;
}

int figure_can_write(const char *path)
{
    return format_of(path) != CANVAS_NONE;
}

void figure_draw_title(struct canvas *c, const char *title)
{
    char fit[2048];
    double room = canvas_width(c) - 2, wide = canvas_text_width(c, title, TITLE_PT, 0);
    double pt = wide > room ? fmax(PT_SMALL, TITLE_PT * room / wide) : TITLE_PT;
    canvas_text(c, canvas_width(c) / 2, 4, text_fit(c, title, pt, room, fit, sizeof fit), pt,
                ALIGN_CENTER, (struct rgb){0, 0, 0}, 0);
    canvas_reserve_top(c, FIGURE_TITLE);
}

static void draw_no_data(struct canvas *c)
{
    canvas_text(c, canvas_width(c) / 2, canvas_height(c) / 2, "no data", 9, ALIGN_CENTER, quiet, 0);
}

void figure_provenance(const struct table *t, struct buf *out)
{
    buf_printf(out, "kvfate figure of table %s\n", table_name(t));
    for (int i = 0; i < table_meta_count(t); i++)
        buf_printf(out, "%s: %s\n", table_meta_key(t, i), table_meta(t, table_meta_key(t, i)));
}

/* Writes a title such as "eviction: SmolLM2, h2o, budget 64", without characters that are special
 * in TeX. */
int figure_about(struct canvas *c, const struct figure *f, const struct table *t,
                 const struct figure_style *s)
{
    static const char *const keys[] = {"model", "method"};
    struct buf title = {0}, words = {0};
    buf_printf(&title, "%s", s->title ? s->title : f->name);
    buf_printf(&words, "kvfate, KV cache, %s", f->name);
    for (int i = 0; i < 2; i++) {
        const char *v = table_meta(t, keys[i]);
        if (v && *v && !s->title)
            buf_printf(&title, "%s %s", i && table_meta(t, keys[0]) ? "," : ":", v);
        if (v && *v)
            buf_printf(&words, ", %s", v);
    }
    const char *budget = table_meta(t, "budget");
    if (budget && !s->title && strcmp(budget, "0") != 0)
        buf_printf(&title, ", budget %s", budget);
    const char *protocol = table_meta(t, "protocol"), *question = table_meta(t, "question");
    if (protocol && !s->title)
        buf_printf(&title, ", %s", protocol);
    if (question && !s->title)
        buf_printf(&title, ", question %s", question);
    for (size_t i = 0; i < title.len; i++)
        if ((unsigned char)title.data[i] < 32 || strchr("\\{}$&#^_~%", title.data[i]))
            title.data[i] = ' ';
    int err = title.err ? title.err : words.err;
    if (!err)
        canvas_about(c, title.data, words.data);
    buf_finish(&title);
    buf_finish(&words);
    return err;
}

int figure_write_bytes(const char *path, const struct buf *data, struct kvf_diag *d)
{
    struct replace r;
    int err = replace_open(&r, path, d);
    if (err)
        return err;
    replace_write(&r, data->data, data->len);
    return replace_finish(&r, d);
}

int figure_style_check(const struct figure_style *s, struct kvf_diag *d)
{
    struct canvas *c = NULL;
    if (!palette_known(s->cmap))
        return kvf_fail(d, KVF_E_ARG, "--cmap: no colour map '%.80s'; use one of " PALETTE_NAMES,
                        s->cmap);
    if (!isnan(s->vmin) && !isnan(s->vmax) && !(s->vmax > s->vmin))
        return kvf_fail(d, KVF_E_ARG, "--vmax must be above --vmin");
    int err = s->font ? canvas_create(CANVAS_PNG, 10, 10, 20, &c, d) : KVF_OK;
    if (!err && s->font)
        err = canvas_font(c, s->font, d);
    canvas_destroy(c);
    return err;
}

/* Checks the type of a column.  An edited table could have text in a number column, which would be
 * drawn as zeros. */
static int check_column(const struct figure *f, const struct table *t, const struct need *need,
                        struct kvf_diag *d)
{
    int col = table_find(t, need->name);
    if (col < 0 && need->optional)
        return KVF_OK;
    if (col < 0)
        return kvf_fail(d, KVF_E_ARG, "figure %s needs the column %s, which table %s lacks",
                        f->name, need->name, table_name(t));
    bool text = table_col_type(t, col) == TABLE_STR;
    if (table_rows(t) == 0 || strcmp(need->type, "either") == 0
        || text == (strcmp(need->type, "text") == 0))
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "figure %s: column %s has no %s", f->name, need->name,
                    text ? "numbers" : "text");
}

static int check_columns(const struct figure *f, const struct table *t, struct kvf_diag *d)
{
    int err = KVF_OK;
    struct need need;
    const struct map_table *m = map_of_table(f, table_name(t));
    if (f->maps && !m)
        return kvf_fail(d, KVF_E_ARG, "figure %s does not draw tables of %.80s", f->name,
                        table_name(t));
    for (const char *list = m ? m->needs : f->needs; !err && next_need(&list, &need);)
        err = check_column(f, t, &need, d);
    return err;
}

/* Returns the keys of a figure of a table.  Those of a map are copied to room[FIGURE_KEYS]. */
static const struct opt *keys_of(const struct figure *f, const char *table, struct opt *room)
{
    const struct map_table *m = map_of_table(f, table);
    if (!m)
        return f->style ? f->style : style_none;
    map_keys(m, room);
    return room;
}

/* ---- a style with the figure's defaults */

int figure_fit(struct figure_fit *x, const struct figure *f, const struct table *t,
               const struct figure_style *s, struct kvf_diag *d)
{
    struct opt room[FIGURE_KEYS];
    int err = figure_style_check(s, d);
    if (!err)
        err = check_columns(f, t, d);
    if (err)
        return err;
    x->own = mem_alloc(1, f->style_bytes ? f->style_bytes : 1);
    if (!x->own)
        return KVF_E_NOMEM;
    x->style = *s;
    x->style.figure = f;
    x->style.own = x->own;
    x->style.usual_cmap = !s->cmap;
    x->style.cmap = s->cmap ? s->cmap : f->cmap;
    return style_read(f->name, keys_of(f, table_name(t), room), s->option, x->own, &x->text, d);
}

void figure_fit_finish(struct figure_fit *x)
{
    buf_finish(&x->text);
    mem_free(x->own);
}

int figure_caption(const struct figure *f, const struct table *t, const struct figure_style *s,
                   struct buf *out, struct kvf_diag *d)
{
    struct figure_fit x = {.own = NULL};
    int err = figure_fit(&x, f, t, s, d);
    if (!err && table_rows(t) == 0)
        buf_printf(out, "The table has no rows.\n");
    else if (!err)
        err = figure_fit_size(&x, t, &x.style.width_mm, &x.style.height_mm, d);
    if (!err && table_rows(t) > 0)
        f->caption(t, &x.style, out);
    figure_fit_finish(&x);
    return err ? err : out->err;
}

/* ---- drawing */

/* Returns the size in mm that the style asks for, or else the figure's own size. */
static int size_of(const struct figure *f, const struct table *t, const struct figure_style *s,
                   double *ret_w, double *ret_h, struct kvf_diag *d)
{
    double w = 88, h = 40;
    if (table_rows(t) > 0)
        f->size(t, s, &w, &h);
    if (isnan(w))
        return KVF_E_NOMEM;
    if (s->width_mm != 0) { /* letters and legends do not shrink with the width */
        h = fmax(h * s->width_mm / w, fmin(h, SCALED_MIN));
        w = s->width_mm;
    }
    h += s->title ? FIGURE_TITLE : 0;
    h = s->height_mm != 0 ? s->height_mm : h;
    if (!(w >= FIGURE_MIN_WIDTH && h >= FIGURE_MIN_HEIGHT))
        return kvf_fail(d, KVF_E_ARG, "--size: a figure has at least %d x %d mm", FIGURE_MIN_WIDTH,
                        FIGURE_MIN_HEIGHT);
    *ret_w = w;
    *ret_h = h;
    return KVF_OK;
}

int figure_fit_size(const struct figure_fit *x, const struct table *t, double *ret_w, double *ret_h,
                    struct kvf_diag *d)
{
    return size_of(x->style.figure, t, &x->style, ret_w, ret_h, d);
}

int figure_draw_on(struct canvas *c, const struct figure *f, const struct table *t,
                   const struct figure_style *s, struct kvf_diag *d)
{
    if (table_rows(t) > 0)
        return f->draw(c, t, s, d);
    draw_no_data(c);
    return KVF_OK;
}

/* Draws title, figure and metadata, and appends the bytes of the finished file to out. */
static int draw(const struct figure *f, const struct table *t, const struct figure_style *s,
                struct canvas *c, struct buf *out, struct kvf_diag *d)
{
    struct buf about = {0};
    if (s->title)
        figure_draw_title(c, s->title);
    int err = figure_draw_on(c, f, t, s, d);
    if (!err)
        err = figure_about(c, f, t, s);
    if (!err) {
        figure_provenance(t, &about);
        err = about.err ? about.err : canvas_finish(c, about.data, out);
    }
    buf_finish(&about);
    return err;
}

void figure_prepare(void)
{
    canvas_prepare();
}

/* Checks the number of pixels, because a table may need any size and each pixel uses four bytes
 * before compression. */
static int check_pixels(double w, double h, int dpi, struct kvf_diag *d)
{
    double pixels = w / 25.4 * dpi * h / 25.4 * dpi;
    if (pixels <= MAX_PIXELS)
        return KVF_OK;
    return kvf_fail(d, KVF_E_LIMIT,
                    "the figure would have %.0f x %.0f mm and %.0f million pixels at %d dpi, of at "
                    "most %.0f; choose --size, a smaller --dpi, SVG or PDF, or show less",
                    w, h, pixels / 1e6, dpi, MAX_PIXELS / 1e6);
}

int figure_canvas(const char *path, double w, double h, const struct figure_style *s,
                  struct canvas **ret, struct kvf_diag *d)
{
    struct canvas *c = NULL;
    enum canvas_format format = path ? format_of(path) : CANVAS_PNG;
    int dpi = s->dpi ? s->dpi : 300, err = KVF_OK;
    if (format == CANVAS_NONE)
        return kvf_fail(d, KVF_E_ARG, "%s: figures are written as .png, .svg or .pdf", path);
    if (format == CANVAS_PNG)
        err = check_pixels(w, h, dpi, d);
    if (!err)
        err = canvas_create(format, w, h, dpi, &c, d);
    if (!err && s->font)
        err = canvas_font(c, s->font, d);
    if (err) {
        canvas_destroy(c);
        return err;
    }
    canvas_threads(c, s->threads);
    canvas_boxes(c, s->boxes);
    *ret = c;
    return KVF_OK;
}

/* Draws a file for the path, or a small PNG if path is NULL. */
static int make_at(const struct figure *f, const struct table *t, const struct figure_style *s,
                   const char *path, double w, double h, struct buf *out, bool *ret_cut,
                   struct kvf_diag *d)
{
    struct canvas *c = NULL;
    int err = figure_canvas(path, w, h, s, &c, d);
    if (!err)
        err = draw(f, t, s, c, out, d);
    *ret_cut = c && canvas_is_cut(c);
    canvas_destroy(c);
    return err;
}

/* ---- sizes that do not fit */

/* Returns true if the figure's own words all fit at a size. */
static bool fits(const struct figure *f, const struct table *t, const struct figure_style *s,
                 double w, double h)
{
    struct figure_style small = *s;
    struct buf none = {0};
    struct kvf_diag ignored = {""};
    bool cut = false;
    small.dpi = 20;
    int err = make_at(f, t, &small, ".svg", w, h, &none, &cut, &ignored);
    buf_finish(&none);
    return !err && !cut;
}

/* Finds the smallest size of *side in whole mm that fits, between `low` and *side.  *side fits;
 * `low` is not tried if it equals *side.  side points to w or h. */
static void shrink(const struct figure *f, const struct table *t, const struct figure_style *s,
                   const double *w, const double *h, double *side, double low)
{
    double high = *side;
    *side = low;
    if (low >= high || fits(f, t, s, *w, *h))
        return;
    while (high - low > 1) {
        *side = floor((low + high) / 2);
        if (*side <= low)
            break;
        if (fits(f, t, s, *w, *h))
            high = *side;
        else
            low = *side;
    }
    *side = high;
}

/* Finds a minimum size between (*w, *h), which does not fit, and the figure's own size.  It keeps
 * the requested width if the style leaves the height open and that works.  Returns false if the
 * figure's own size does not fit either, because the table has long texts. */
static bool min_size(const struct figure *f, const struct table *t, const struct figure_style *s,
                     double *w, double *h)
{
    struct figure_style own = *s;
    double W, H, w0 = *w, h0 = *h, low = 0, high = 1;
    own.width_mm = own.height_mm = 0;
    if (size_of(f, t, &own, &W, &H, NULL))
        return false;
    W = ceil(fmax(W, w0));
    H = ceil(fmax(H, h0));
    if (s->height_mm == 0 && fits(f, t, s, w0, 1.5 * H)) { /* only a width */
        *h = ceil(1.5 * H);
        shrink(f, t, s, w, h, h, h0);
        return true;
    }
    if (!fits(f, t, s, W, H))
        return false;
    while (W > w0 && H > h0 && high - low > 0.04) {
        double k = (low + high) / 2;
        if (fits(f, t, s, ceil(w0 + k * (W - w0)), ceil(h0 + k * (H - h0))))
            high = k;
        else
            low = k;
    }
    *w = ceil(w0 + high * (W - w0));
    *h = ceil(h0 + high * (H - h0));
    shrink(f, t, s, w, h, w, w0);
    shrink(f, t, s, w, h, h, h0);
    return true;
}

static int make(const struct figure *f, const struct table *t, const struct figure_style *s,
                const char *path, struct buf *out, struct kvf_diag *d)
{
    double w = 0, h = 0;
    bool cut = false, asked = s->width_mm != 0 || s->height_mm != 0;
    int err = size_of(f, t, s, &w, &h, d);
    if (!err)
        err = make_at(f, t, s, path, w, h, out, &cut, d);
    double asked_w = w;
    if (!asked || !(cut || err == KVF_E_ARG) || !min_size(f, t, s, &w, &h))
        return err;
    if (w > asked_w || s->height_mm != 0)
        return kvf_fail(d, KVF_E_ARG, "--size: figure %s needs at least %.0f x %.0f mm here",
                        f->name, ceil(w), ceil(h));
    buf_clear(out); /* the height is the figure's own for this width */
    return make_at(f, t, s, path, w, h, out, &cut, d);
}

int figure_write(const struct figure *f, const struct table *t, const struct figure_style *s,
                 const char *path, struct kvf_diag *d)
{
    struct buf out = {0};
    struct figure_fit x = {.own = NULL};
    int err = figure_fit(&x, f, t, s, d);
    if (!err)
        err = make(f, t, &x.style, path, &out, d);
    if (!err)
        err = figure_write_bytes(path, &out, d);
    figure_fit_finish(&x);
    buf_finish(&out);
    return err;
}

int figure_try(const struct figure *f, const struct table *t, const struct figure_style *s,
               struct kvf_diag *d)
{
    struct buf out = {0};
    struct figure_fit x = {.own = NULL};
    int err = figure_fit(&x, f, t, s, d);
    x.style.dpi = 20;
    if (!err)
        err = make(f, t, &x.style, ".svg", &out, d);
    figure_fit_finish(&x);
    buf_finish(&out);
    return err;
}

/* Computes the size in mm on a screen: as wide as its columns, at most as high as its rows. */
static int screen_size(const struct figure *f, const struct table *t, struct figure_style *s,
                       const struct figure_screen *screen, double *w, double *h, struct kvf_diag *d)
{
    double most = screen->rows * 2 * ANSI_PIXEL;
    if (!(s->width_mm > 0)) {
        s->width_mm = fmax(screen->cols * ANSI_PIXEL, FIGURE_MIN_WIDTH);
        s->height_mm = 0;
    }
    int err = size_of(f, t, s, w, h, d);
    if (!err && screen->rows > 0 && *h > most)
        *h = fmax(most, FIGURE_MIN_HEIGHT);
    return err;
}

int figure_preview(const struct figure *f, const struct table *t, const struct figure_style *s,
                   const struct figure_screen *screen, struct buf *out, struct kvf_diag *d)
{
    struct canvas *c = NULL;
    struct figure_fit x = {.own = NULL};
    double w = 0, h = 0;
    int err = figure_fit(&x, f, t, s, d);
    if (err)
        goto done;
    struct figure_style asked = x.style;
    err = screen_size(f, t, &asked, screen, &w, &h, d);
    if (!err)
        err = canvas_create(CANVAS_ANSI, w, h, 20, &c, d);
    if (err)
        goto done;
    if (screen->shades)
        canvas_shades(c);
    err = draw(f, t, &x.style, c, out, d);
done:
    canvas_destroy(c);
    figure_fit_finish(&x);
    return err;
}

/* ---- descriptions of figures */

static void columns_json(const char *needs, struct buf *out)
{
    const char *sep = "[{";
    struct need need;
    while (next_need(&needs, &need)) {
        if (need.optional)
            continue;
        buf_str(out, sep);
        sep = ",{";
        json_put_member_str(out, "name", need.name);
        json_put_member_str(out, "type", need.type);
        buf_char(out, '}');
    }
    buf_char(out, ']');
}

/* Appends the object of a figure and its table i. */
static void figure_json(const struct figure *f, int i, struct buf *out)
{
    struct opt room[FIGURE_KEYS];
    const char *table = figure_table_at(f, i);
    buf_char(out, '{');
    json_put_member_str(out, "name", f->name);
    json_put_member_str(out, "table", table);
    json_put_key(out, "default");
    buf_str(out, figure_of_table(table) == f ? "true" : "false");
    json_put_member_str(out, "summary", f->summary);
    json_put_key(out, "columns");
    columns_json(needs_at(f, i), out);
    json_put_key(out, "side_by_side");
    buf_str(out, f->side_by_side ? "true" : "false");
    json_put_key(out, "cmap");
    if (f->cmap)
        json_put_str(out, f->cmap, strlen(f->cmap));
    else
        buf_str(out, "null");
    json_put_key(out, "style");
    opt_json(keys_of(f, table, room), out);
    buf_char(out, '}');
}

void figures_json(struct buf *out)
{
    for (const struct figure *const *f = figure_table; *f; f++)
        for (int i = 0; figure_table_at(*f, i); i++) {
            buf_str(out, f == figure_table && !i ? "[" : ",\n ");
            figure_json(*f, i, out);
        }
    buf_str(out, "]\n");
}
