/* sentence.c - draws a sentence in place of a picture, and a note below one. */
#include "render/sentence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/axis.h"
#include "render/canvas.h"
#include "render/cells.h"
#include "render/figure.h"

static const double PITCH = 3.8, EDGE = 3, LETTER = 1.5; /* mm; mean width of a letter */
static const double NOTE_PITCH = 3;                      /* of a note */
enum { WIDTH = 88, MIN_HEIGHT = 26 };

void sentence_size(const char *text, double *ret_w, double *ret_h)
{
    double lines = 0;
    for (const char *s = text; *s; s += strcspn(s, "\n"), s += *s == '\n')
        lines += ceil(LETTER * (double)strcspn(s, "\n") / (WIDTH - 2 * EDGE));
    *ret_w = WIDTH;
    *ret_h = fmax(MIN_HEIGHT, 2 * EDGE + PITCH * lines);
}

/* Copies the beginning of a text that fits into `room` mm, up to a space or a line end.  Returns
 * the number of bytes that it stands for. */
static size_t next_line(struct canvas *c, const char *s, double pt, double room, char out[256])
{
    size_t all = strcspn(s, "\n"), n = all < 255 ? all : 255;
    snprintf(out, 256, "%.*s", (int)n, s);
    while (canvas_text_width(c, out, pt, 0) > room && strrchr(out, ' '))
        *strrchr(out, ' ') = 0;
    n = strlen(out);
    return n + (s[n] == ' ' || s[n] == '\n');
}

int sentence_draw(struct canvas *c, const char *figure, const char *text, struct kvf_diag *d)
{
    char line[256];
    double room = canvas_width(c) - 2 * EDGE;
    int n = 0;
    for (const char *s = text; *s; n++)
        s += next_line(c, s, PT_LABEL, room, line);
    int err = canvas_room(c, figure, 40, 2 * EDGE + PITCH * n, d);
    double y = canvas_height(c) / 2 - PITCH * (n - 1) / 2;
    for (const char *s = text; !err && *s; y += PITCH) {
        s += next_line(c, s, PT_LABEL, room, line);
        canvas_text(c, canvas_width(c) / 2, y, line, PT_LABEL, ALIGN_CENTER, ink, 0);
    }
    return err;
}

double note_height(struct canvas *c, const char *text, double room)
{
    char line[256];
    int n = 0;
    for (const char *s = text; *s; n++)
        s += next_line(c, s, PT_TICK, room, line);
    return NOTE_PITCH * n;
}

double note_height_of(const struct figure_style *s, const char *text, double room)
{
    struct canvas *c = NULL;
    double h = 0;
    if (canvas_create(CANVAS_PNG, 10, 10, 72, &c, NULL) == KVF_OK
        && (!s->font || canvas_font(c, s->font, NULL) == KVF_OK))
        h = note_height(c, text, room);
    canvas_destroy(c);
    return h;
}

void note_lines_draw(struct canvas *c, const char *text, double x, double y, double room)
{
    char line[256];
    for (const char *s = text; *s; y += NOTE_PITCH) {
        s += next_line(c, s, PT_TICK, room, line);
        canvas_text(c, x, y + NOTE_PITCH / 2, line, PT_TICK, ALIGN_LEFT, quiet, 0);
    }
}

void about_run(const struct table *t, char out[ABOUT_RUN])
{
    const char *model = table_meta(t, "model"), *method = table_meta(t, "method");
    const char *percent = table_meta(t, "budget_percent"), *budget = table_meta(t, "budget");
    bool one = method && !table_meta(t, "trace_2");
    int64_t entries = table_meta_int(t, "budget", 0), T = table_meta_int(t, "T", INT64_MAX);
    int n = snprintf(out, ABOUT_RUN, "%.80s", model ? model : "");
    if (one)
        n += snprintf(out + n, ABOUT_RUN - (size_t)n, "%s%.60s%s", n ? ", " : "", method,
                      strcmp(method, "full") == 0 ? " cache" : "");
    if (one && entries > 0 && entries < T)
        snprintf(out + n, ABOUT_RUN - (size_t)n, ", budget %.12s%s", percent ? percent : budget,
                 percent ? " %" : "");
    for (char *c = out; *c; c++) /* names in a file can have control characters */
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = ' ';
}
