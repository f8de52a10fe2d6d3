#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/parts.h"
#include "render/ansi.h"
#include "render/figures.h"
#include "render/marks.h"

enum { TITLE_MM = 7, TITLE_PT = 9, SCALED_LEAST = 45 }; /* mm */

const struct figure *const figure_table[] = {
    &fig_agreement_map,
    &fig_atlas,
    &fig_attention_sparsity,
    &fig_attention_sparsity_map,
    &fig_calibration,
    &fig_claims,
    &fig_compare,
    &fig_density,
    &fig_density_map,
    &fig_difference,
    &fig_dilution,
    &fig_dilution_map,
    &fig_dynamics,
    &fig_effect,
    &fig_eviction,
    &fig_eviction_mask,
    &fig_ghosts,
    &fig_ghosts_map,
    &fig_hazard,
    &fig_heads,
    &fig_heads_map,
    &fig_intermittency,
    &fig_intermittency_map,
    &fig_kv_size,
    &fig_occupancy,
    &fig_occupancy_curves,
    &fig_overlap,
    &fig_pareto,
    &fig_persistence,
    &fig_persistence_map,
    &fig_predict,
    &fig_predict_units,
    &fig_received,
    &fig_regret,
    &fig_retention,
    &fig_saliency,
    &fig_sparsity,
    &fig_survival,
    &fig_survival_map,
    &fig_tokens,
    &fig_training,
    &fig_variance,
    &fig_words,
    &fig_words_cloud,
    NULL,
};

const struct figure *figure_find(const char *name)
{
    for (const struct figure *const *f = figure_table; *f; f++)
        if (strcmp((*f)->name, name) == 0)
            return *f;
    return NULL;
}

const struct figure *figure_of_table(const char *table)
{
    const struct figure *own = figure_find(table);
    for (const struct figure *const *f = figure_table; !own && *f; f++)
        if (strcmp((*f)->table, table) == 0)
            own = *f;
    return own;
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

static void draw_title(struct canvas *c, const char *title)
{
    char fit[2048];
    double room = canvas_width(c) - 2, wide = canvas_text_width(c, title, TITLE_PT, 0);
    double pt = wide > room ? fmax(PT_SMALL, TITLE_PT * room / wide) : TITLE_PT;
    canvas_text(c, canvas_width(c) / 2, 4, text_fit(c, title, pt, room, fit, sizeof fit), pt,
                ALIGN_CENTER, (struct rgb){0, 0, 0}, 0);
    canvas_reserve_top(c, TITLE_MM);
}

static void draw_no_data(struct canvas *c)
{
    canvas_text(c, canvas_width(c) / 2, canvas_height(c) / 2, "no data", 9, ALIGN_CENTER,
                (struct rgb){0.5, 0.5, 0.5}, 0);
}

static void provenance(const struct table *t, struct buf *out)
{
    buf_printf(out, "kvfate figure of table %s\n", table_name(t));
    for (int i = 0; i < table_meta_count(t); i++)
        buf_printf(out, "%s: %s\n", table_meta_key(t, i), table_meta(t, table_meta_key(t, i)));
}

/* "eviction: SmolLM2, h2o, budget 64", without what TeX would take for its own. */
static void describe(struct canvas *c, const struct figure *f, const struct table *t,
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
    for (size_t i = 0; i < title.len; i++)
        if ((unsigned char)title.data[i] < 32 || strchr("\\{}$&#^_~%", title.data[i]))
            title.data[i] = ' ';
    if (!title.err && !words.err)
        canvas_about(c, title.data, words.data);
    buf_finish(&title);
    buf_finish(&words);
}

static int write_whole(const char *path, const struct buf *data, struct kvf_diag *d)
{
    struct buf part = {0};
    buf_printf(&part, "%s.part", path);
    int number = part.err ? -1 : parts_note(part.data);
    FILE *f = part.err ? NULL : fopen(part.data, "wb");
    int err = f ? KVF_OK : KVF_E_IO;
    if (f && fwrite(data->data, 1, data->len, f) != data->len)
        err = KVF_E_IO;
    if (f && fclose(f) != 0)
        err = KVF_E_IO;
    if (!err && rename(part.data, path) != 0)
        err = KVF_E_IO;
    if (err) {
        kvf_fail(d, err, "%s: cannot write the figure: %s", path, strerror(errno));
        if (f)
            unlink(part.data);
    }
    parts_done(number);
    buf_finish(&part);
    return err;
}

int figure_style_check(const struct figure_style *s, struct kvf_diag *d)
{
    struct canvas *c = NULL;
    if (!palette_known(s->cmap))
        return kvf_fail(d, KVF_E_ARG, "--cmap is one of " PALETTE_NAMES ", not '%.80s'", s->cmap);
    if (!isnan(s->vmin) && !isnan(s->vmax) && !(s->vmax > s->vmin))
        return kvf_fail(d, KVF_E_ARG, "--vmax must be above --vmin");
    int err = s->font ? canvas_create(CANVAS_PNG, 10, 10, 20, &c, d) : KVF_OK;
    if (!err && s->font)
        err = canvas_font(c, s->font, d);
    canvas_destroy(c);
    return err;
}

/* A table that was edited: text where numbers belong would be drawn as zeros. */
static int check_type(const struct figure *f, const struct table *t, int col, struct kvf_diag *d)
{
    /* as it has them */
    static const char *const either[] = {"id", "score", "trace", "window"};
    const char *name = table_col_name(t, col);
    bool text = table_col_type(t, col) == TABLE_STR;
    for (size_t i = 0; i < sizeof either / sizeof *either; i++)
        if (strcmp(name, either[i]) == 0)
            return KVF_OK;
    if (text == table_holds_text(name))
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "figure %s: column %s holds no %s", f->name, name,
                    text ? "numbers" : "text");
}

static int check(const struct figure *f, const struct table *t, const struct figure_style *s,
                 struct kvf_diag *d)
{
    int err = figure_style_check(s, d);
    if (err)
        return err;
    for (const char *const *need = f->needs; !err && *need; need++) {
        int col = table_find(t, *need);
        if (col < 0)
            err = kvf_fail(d, KVF_E_ARG, "figure %s needs the column %s, which table %s lacks",
                           f->name, *need, table_name(t));
        else if (table_rows(t) > 0)
            err = check_type(f, t, col, d);
    }
    return err;
}

/* The size asked for, or the figure's own, in mm. */
static int size_of(const struct figure *f, const struct table *t, const struct figure_style *s,
                   double *ret_w, double *ret_h, struct kvf_diag *d)
{
    double w = 88, h = 40;
    if (table_rows(t) > 0)
        f->size(t, s, &w, &h);
    if (s->width_mm != 0) { /* letters and legends do not shrink with the width */
        h = fmax(h * s->width_mm / w, fmin(h, SCALED_LEAST));
        w = s->width_mm;
    }
    h += s->title ? TITLE_MM : 0;
    h = s->height_mm != 0 ? s->height_mm : h;
    if (!(w >= FIGURE_LEAST_WIDTH && h >= FIGURE_LEAST_HEIGHT))
        return kvf_fail(d, KVF_E_ARG, "--size: a figure has at least %d x %d mm",
                        FIGURE_LEAST_WIDTH, FIGURE_LEAST_HEIGHT);
    *ret_w = w;
    *ret_h = h;
    return KVF_OK;
}

/* All that is drawn, and the bytes of it. */
static int draw(const struct figure *f, const struct table *t, const struct figure_style *s,
                struct canvas *c, struct buf *out, struct kvf_diag *d)
{
    struct buf about = {0};
    int err = KVF_OK;
    if (s->title)
        draw_title(c, s->title);
    if (table_rows(t) == 0)
        draw_no_data(c);
    else
        err = f->draw(c, t, s, d);
    if (!err) {
        describe(c, f, t, s);
        provenance(t, &about);
        err = about.err ? about.err : canvas_finish(c, about.data, out);
    }
    buf_finish(&about);
    return err;
}

void figure_prepare(void)
{
    canvas_prepare();
}

static int make(const struct figure *f, const struct table *t, const struct figure_style *s,
                enum canvas_format format, int dpi, struct buf *out, struct kvf_diag *d)
{
    struct canvas *c = NULL;
    double w = 0, h = 0;
    int err = size_of(f, t, s, &w, &h, d);
    if (!err)
        err = canvas_create(format, w, h, dpi, &c, d);
    if (!err && s->font)
        err = canvas_font(c, s->font, d);
    if (!err) {
        canvas_threads(c, s->threads);
        err = draw(f, t, s, c, out, d);
    }
    canvas_destroy(c);
    return err;
}

int figure_write(const struct figure *f, const struct table *t, const struct figure_style *s,
                 const char *path, struct kvf_diag *d)
{
    struct buf out = {0};
    int err = check(f, t, s, d);
    if (!err && !figure_can_write(path))
        err = kvf_fail(d, KVF_E_ARG, "%s: figures are written as .png, .svg or .pdf", path);
    if (!err)
        err = make(f, t, s, format_of(path), s->dpi ? s->dpi : 300, &out, d);
    if (!err)
        err = write_whole(path, &out, d);
    buf_finish(&out);
    return err;
}

int figure_try(const struct figure *f, const struct table *t, const struct figure_style *s,
               struct kvf_diag *d)
{
    struct buf out = {0};
    int err = check(f, t, s, d);
    if (!err)
        err = make(f, t, s, CANVAS_PNG, 20, &out, d);
    buf_finish(&out);
    return err;
}

int figure_preview(const struct figure *f, const struct table *t, const struct figure_style *s,
                   const struct figure_screen *screen, struct buf *out, struct kvf_diag *d)
{
    struct canvas *c = NULL;
    struct figure_style own = *s;
    double w = 0, h = 0, most = screen->rows * 2 * ANSI_PIXEL;
    if (!(own.width_mm > 0)) {
        own.width_mm = fmax(screen->cols * ANSI_PIXEL, FIGURE_LEAST_WIDTH);
        own.height_mm = 0;
    }
    int err = check(f, t, s, d);
    if (!err)
        err = size_of(f, t, &own, &w, &h, d);
    if (!err && screen->rows > 0 && h > most)
        h = fmax(most, FIGURE_LEAST_HEIGHT);
    if (!err)
        err = canvas_create(CANVAS_ANSI, w, h, 20, &c, d);
    if (!err && screen->shades)
        canvas_shades(c);
    if (!err)
        err = draw(f, t, s, c, out, d);
    canvas_destroy(c);
    return err;
}
