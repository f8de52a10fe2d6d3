/* fuzz_figures.c - a figure of the table of any analysis (any_analysis.h) must be drawn, or
 * rejected with a message. */
#include <math.h>

#include "any_analysis.h"
#include "base/opt.h"
#include "fuzz.h"
#include "render/figure.h"

/* Writes key=value with one of the figure's keys. */
static void take_style(struct source *s, const struct figure *f, char out[64])
{
    static const char *const numbers[] = {"0", "1", "3", "0.5", "100", "-1", "1e9", "4096"};
    static const char *const texts[] = {"head", "all", "x", "L0K0", "1,2", "", "top64", "yes"};
    int n = 0;
    struct opt_walk w = opt_walk(f->style);
    while (opt_next(&w))
        n++;
    int i = n ? (int)(take(s, 1) % (unsigned)n) : 0;
    unsigned b = (unsigned)take(s, 1);
    const struct opt *o;
    w = opt_walk(f->style);
    for (o = opt_next(&w); o && i > 0; i--)
        o = opt_next(&w);
    if (!o)
        return;
    int words = 0;
    while (o->type == OPT_WORD && o->words[words])
        words++;
    const char *value = words                                       ? o->words[b % (unsigned)words]
                        : o->type == OPT_INT || o->type == OPT_REAL ? numbers[b % 8]
                        : o->type == OPT_FLAG                       ? (b & 1 ? "yes" : "no")
                                                                    : texts[b % 8];
    snprintf(out, 64, "%s=%s", o->name, value);
}

static void draw(struct source *s, const struct figure *f, const struct table *t)
{
    static const double widths[] = {0, 40, 90, 180}, heights[] = {0, 25, 60, 120};
    char option[64] = "";
    struct kvf_diag d = {""};
    unsigned b = (unsigned)take(s, 1), more = (unsigned)take(s, 1);
    struct figure_style style = {.width_mm = widths[b & 3],
                                 .height_mm = heights[b >> 2 & 3],
                                 .dpi = 50,
                                 .vmin = more & 1 ? (double)(int8_t)take(s, 1) / 16 : NAN,
                                 .vmax = more & 2 ? (double)(int8_t)take(s, 1) / 16 : NAN,
                                 .threads = 1};
    if (more & 4 && f->style)
        take_style(s, f, option);
    style.option = option[0] ? option : NULL;
    int err = figure_try(f, t, &style, &d);
    MUST(err == KVF_OK || (d.text[0] && err != KVF_E_IO && err != KVF_E_NOMEM));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct source s = {data, n}, look;
    struct any_analysis x;
    struct kvf_diag d = {""};
    if (n < 8 || n > 1024)
        return 0;
    look = (struct source){data, 8}; /* the analysis follows the bytes for the style */
    take(&s, 8);
    if (!any_analysis(&s, &x))
        return 0;
    struct any_open o = any_open(&s);
    struct table *t = o.t ? any_run(&x, o.t, &d) : NULL;
    unsigned which = (unsigned)take(&look, 1), fit = 0, k = 0;
    for (int i = 0; figure_table[i]; i++)
        fit += t && figure_draws(figure_table[i], table_name(t));
    for (int i = 0; t && fit && figure_table[i]; i++)
        if (figure_draws(figure_table[i], table_name(t)) && k++ == which % fit)
            draw(&look, figure_table[i], t);
    table_destroy(t);
    any_close(&o);
    return 0;
}
