/* fig_effect_text.c - colours each token of the text by the degradation of predictions when its
 * entries are removed from the cache. */
#include "render/text_style.h"

static int check_rows(const struct table *t, struct kvf_diag *d)
{
    int token = table_find(t, "token"), count = table_find(t, "count");
    bool each = true;
    for (int64_t r = 0; each && r < table_rows(t); r++)
        each = table_int(t, count, r) == 1 && table_int(t, token, r) == table_int(t, token, 0) + r;
    return each ? KVF_OK
                : kvf_fail(d, KVF_E_ARG,
                           "figure effect-text draws tokens that follow each other, one by one: "
                           "kvfate ablate --entries span=A:B --each");
}

/* Returns the style with `by` counted from the first colouring of this figure. */
static struct figure_style style_of(const struct figure_style *s, struct tokens_style *own)
{
    struct figure_style out = *s;
    *own = *(const struct tokens_style *)s->own;
    own->by += TEXT_BY_EFFECT;
    out.own = own;
    return out;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct tokens_style own;
    struct figure_style style = style_of(s, &own);
    text_figure_size(t, &style, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct tokens_style own;
    struct figure_style style = style_of(s, &own);
    int err = check_rows(t, d);
    return err ? err : text_figure_draw(c, t, &style, d);
}

static const struct opt keys[] = {
    WORD_KEY(struct tokens_style, by, "kl",
             "kl: how far predictions move; dnll: whether the token helped them or harmed", "kl",
             "dnll"),
    COUNT_KEY(struct tokens_style, page, 1, 100000, "the page that a PNG or SVG shows",
              .absent = "the complete text in the space available"),
    {.type = OPT_END},
};

const struct figure fig_effect_text = {
    .name = "effect-text",
    .table = "effect-entries",
    .summary = "the text, tokens coloured by the loss of the predictions when they are evicted",
    .needs = "text:text token count kl dnll",
    .style = keys,
    .style_bytes = sizeof(struct tokens_style),
    .size = size,
    .draw = draw,
};
