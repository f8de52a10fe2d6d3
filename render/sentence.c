/* sentence.c - draws a sentence in place of a picture. */
#include "render/sentence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/axis.h"
#include "render/canvas.h"
#include "render/cells.h"
#include "render/figure.h"

static const double PITCH = 3.8, EDGE = 3, LETTER = 1.5; /* mm; mean width of a letter */
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
