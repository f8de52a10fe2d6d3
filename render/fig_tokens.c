/* fig_tokens.c - draws running text with the fate of each token (TRIM-KV, figures 14 to 26): a blue
 * background for kept tokens, hatches for protected ones.
 *
 * Heads and traces of the table are side by side.  A text that is longer than the page continues on
 * further pages of a PDF; other formats omit its middle. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/caption.h"
#include "render/text_pages.h"
#include "render/text_style.h"

enum { WIDTH = 180, NUMBER_MM = 12 };

struct sheet {
    struct text_sheet s;
    struct text_style style;
    double height;
};

/* Finds panels, colours and columns for a canvas of that width.  c may be a canvas that only
 * measures text. */
static int prepare(struct sheet *x, struct canvas *c, const struct table *t,
                   const struct figure_style *s, double width, struct kvf_diag *d)
{
    int err = text_sheet_init(&x->s, t);
    x->style.one = x->s.one;
    x->style.head = x->s.head;
    if (!err)
        err = text_style_read(&x->style, t, s, d);
    if (err)
        return err;
    if (x->style.columns > width / 10)
        return kvf_fail(d, KVF_E_ARG, "--style: a figure of %.0f mm has at most %d columns", width,
                        (int)(width / 10));
    text_sheet_columns(&x->s, width, x->style.columns);
    x->s.flow = (struct text_flow){.c = c,
                                   .look = text_style_look,
                                   .ctx = &x->style,
                                   .bold = x->style.fill ? NULL : text_style_bold};
    int rows = text_style_legend(&x->style, c, MARGIN_MM, width - MARGIN_MM, NUMBER_MM, 0, false);
    x->s.top = MARGIN_MM - 1 + rows * LEGEND_PITCH + 1.5;
    return KVF_OK;
}

void text_figure_size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct sheet x = {.height = 0};
    struct canvas *ruler = NULL;
    *w = s->width_mm > 0 ? s->width_mm : WIDTH;
    *h = PAGE_MM;
    if (s->height_mm <= 0 && canvas_create(CANVAS_PNG, 10, 10, 72, &ruler, NULL) == KVF_OK
        && (!s->font || canvas_font(ruler, s->font, NULL) == KVF_OK)
        && prepare(&x, ruler, t, s, *w, NULL) == KVF_OK)
        text_sheet_height(&x.s, PAGE_MM, h);
    text_sheet_finish(&x.s);
    canvas_destroy(ruler);
    *h = fmax(*h, 26);
}

static void draw_head(struct sheet *x, struct canvas *c, int page, int pages)
{
    double right = canvas_width(c) - MARGIN_MM;
    char number[32];
    text_style_legend(&x->style, c, MARGIN_MM, right, NUMBER_MM, MARGIN_MM - 1, true);
    snprintf(number, sizeof number, "%d / %d", page + 1, pages);
    if (pages > 1)
        canvas_text(c, right, MARGIN_MM - 1 + LEGEND_PITCH / 2, number, PT_TICK, ALIGN_RIGHT, ink,
                    0);
}

/* Draws all pages, or only the selected one. */
static int draw_pages(struct sheet *x, struct canvas *c, const struct text_slices *of)
{
    int chosen = x->style.page - 1, err = KVF_OK;
    struct text_flow *open = MEM_NEW(struct text_flow, (size_t)x->s.columns);
    if (!open)
        return KVF_E_NOMEM;
    for (int p = 0; !err && p < of->pages && (chosen < 0 || p <= chosen); p++) {
        bool drawn = chosen < 0 || p == chosen;
        if (p && drawn && chosen < 0)
            canvas_new_page(c);
        if (drawn)
            draw_head(x, c, p, of->pages);
        err = text_sheet_draw(&x->s, of, p, drawn, open);
    }
    for (int k = 0; k < x->s.columns; k++)
        text_flow_close(&open[k]);
    mem_free(open);
    return err;
}

static void note_missing(struct sheet *x, struct canvas *c, const struct text_slices *of)
{
    char note[64];
    int left = x->s.n - of->bands * x->s.columns;
    if (left <= 0)
        return;
    snprintf(note, sizeof note, "\xe2\x80\xa6 %d texts left out \xe2\x80\xa6", left);
    canvas_text(c, MARGIN_MM, canvas_height(c) - 0.6 * MARGIN_MM, note, PT_TICK, ALIGN_LEFT,
                (struct rgb){0.68, 0.28, 0}, 0);
}

int text_figure_draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                     struct kvf_diag *d)
{
    struct sheet x = {.height = canvas_height(c)};
    struct text_slices of = {.n = 0};
    int err = prepare(&x, c, t, s, canvas_width(c), d);
    if (err)
        goto done;
    x.s.bottom = x.height - MARGIN_MM + 1 + 0.01;
    bool pages = canvas_has_pages(c) || x.style.page;
    err = pages ? text_slices_pages(&x.s, &of) : text_slices_fold(&x.s, &of);
    if (err)
        goto done;
    if (x.style.page > of.pages) {
        err = kvf_fail(d, KVF_E_ARG, "--style: there is no page %d, the last is %d", x.style.page,
                       of.pages);
        goto done;
    }
    err = draw_pages(&x, c, &of);
    if (err)
        goto done;
    note_missing(&x, c, &of);
done:
    mem_free(of.item);
    text_sheet_finish(&x.s);
    return err;
}

/* A token class: its tokens, and the sum of their kept fractions. */
struct class_kept {
    const char *name;
    double sum, n;
};

enum { CLASSES = 24 };

/* Collects the kept fractions by class.  Returns the number of classes with 3 tokens or more, which
 * it moves to the front. */
static int classes_of(const struct table *t, struct class_kept x[CLASSES])
{
    int class = table_find(t, "class"), kept = table_find(t, "kept"), n = 0, m = 0;
    for (int64_t r = 0; class >= 0 && r < table_rows(t); r++) {
        const char *name = table_str(t, class, r);
        double v = table_real(t, kept, r);
        int k = 0;
        while (k < n && strcmp(x[k].name, name) != 0)
            k++;
        if (isnan(v) || k == CLASSES)
            continue;
        if (k == n)
            x[n++] = (struct class_kept){name, 0, 0};
        x[k].sum += v;
        x[k].n++;
    }
    for (int k = 0; k < n; k++)
        if (x[k].n >= 3)
            x[m++] = x[k];
    return m;
}

static void caption(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct text_style x = {.one = false};
    struct class_kept of[CLASSES];
    int n = classes_of(t, of), low = 0, high = 0;
    char a[24], b[24];
    if (text_style_read(&x, t, s, NULL))
        return;
    buf_printf(out, "The background of each token shows this: %s. ", x.by->label);
    for (int k = 1; k < n; k++) {
        low = of[k].sum / of[k].n < of[low].sum / of[low].n ? k : low;
        high = of[k].sum / of[k].n > of[high].sum / of[high].n ? k : high;
    }
    if (n < 2 || low == high)
        buf_printf(out, "The text has no two token classes to compare.\n");
    else
        buf_printf(
            out,
            "At the end the caches keep %s of the entries of class %s and %s of class %s, the "
            "highest and the lowest fraction.\n",
            caption_percent(of[high].sum / of[high].n, a), of[high].name,
            caption_percent(of[low].sum / of[low].n, b), of[low].name);
}

const struct figure fig_tokens = {
    .name = "tokens",
    .caption = caption,
    .table = "tokens",
    .summary = "the text, tokens coloured by their state; heads or runs next to each other",
    .needs = "joined:text text:text kept mean_residency mean_beta mean_retention nll saliency "
             "last_use_age state:text trace:either head:text",
    .style = text_style_keys,
    .style_bytes = sizeof(struct tokens_style),
    .size = text_figure_size,
    .draw = text_figure_draw,
};
