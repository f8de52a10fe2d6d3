/* cells.c - reads table cells as text, finds numeric columns and checks the canvas size. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "render/axis.h"
#include "render/cells.h"
#include "render/figure.h"

int canvas_room(const struct canvas *c, const char *figure, double w, double h, struct kvf_diag *d)
{
    if (canvas_width(c) >= w - 1e-9 && canvas_height(c) >= h - 1e-9)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "--size: figure %s needs at least %.0f x %.0f mm here", figure,
                    ceil(fmax(w, FIGURE_MIN_WIDTH) - 1e-9),
                    ceil(fmax(h, FIGURE_MIN_HEIGHT) - 1e-9));
}

const char *cell_text(const struct table *t, int col, int64_t row, char out[24])
{
    if (table_col_type(t, col) == TABLE_STR)
        return table_str(t, col, row);
    tick_text(table_real(t, col, row), out);
    return out;
}

int numeric_column(const struct table *t, const char *name)
{
    int col = table_find(t, name);
    return col >= 0 && table_col_type(t, col) != TABLE_STR ? col : -1;
}

double half_life(double beta)
{
    return beta < 1 ? log(0.5) / log(fmax(beta, 0)) : beta + INFINITY;
}

/* Appends `part` to out, after "; " if out has text.  Control characters are shown as \xNN. */
static void add_part(char out[RUN_NOTE], const char *part)
{
    struct buf shown = {0};
    size_t n = strlen(out);
    utf8_show(&shown, part, strlen(part));
    buf_char(&shown, 0);
    if (!shown.err)
        snprintf(out + n, RUN_NOTE - n, "%s%s", n ? "; " : "", shown.data);
    buf_finish(&shown);
}

const char *run_note(const struct table *t, char out[RUN_NOTE])
{
    const char *model = table_meta(t, "model"), *method = table_meta(t, "method");
    double budget = table_meta_real(t, "budget", 0), tokens = table_meta_real(t, "T", 0);
    double prompt = table_meta_real(t, "prompt_tokens", 0);
    char part[RUN_NOTE], number[24];
    out[0] = 0;
    if (model && *model)
        add_part(out, model);
    if (method && strcmp(method, "full") == 0) {
        add_part(out, "full cache");
    } else if (method && *method) {
        tick_text(budget, number);
        snprintf(part, sizeof part, budget > 0 ? "%.60s, budget %s" : "%.60s", method, number);
        add_part(out, part);
    } else if (budget > 0) {
        tick_text(budget, number);
        snprintf(part, sizeof part, "budget %s", number);
        add_part(out, part);
    }
    if (tokens > 0 || prompt > 0) {
        tick_text(tokens > 0 ? tokens : prompt, number);
        snprintf(part, sizeof part, "%s %s", number, tokens > 0 ? "tokens" : "prompt tokens");
        add_part(out, part);
    }
    return out;
}

void note_draw(struct canvas *c, double x, double y, double right, const char *note)
{
    enum { NAME_OF_AXIS = 6 };
    char text[RUN_NOTE];
    snprintf(text, sizeof text, "%s", note);
    double most = right - NAME_OF_AXIS, wide = canvas_text_width(c, text, PT_SMALL, 0);
    while (wide > most && *text) {
        char *last = text;
        for (char *s = strstr(text, "; "); s; s = strstr(s + 1, "; "))
            last = s;
        *last = 0;
        wide = canvas_text_width(c, text, PT_SMALL, 0);
    }
    canvas_text(c, fmax(NAME_OF_AXIS + wide / 2, fmin(x, right - wide / 2)), y, text, PT_SMALL,
                ALIGN_CENTER, quiet, 0);
}
