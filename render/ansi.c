/* ansi.c - places text and pixels in the cells of a terminal and writes them with escape codes. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "render/ansi.h"
#include "render/clamp.h"

int ansi_init(struct ansi *a, double w_mm, double h_mm)
{
    a->cols = (int)ceil(w_mm / ANSI_PIXEL - 1e-6);
    a->rows = (int)ceil(h_mm / (2 * ANSI_PIXEL) - 1e-6);
    a->cell = mem_alloc((size_t)a->rows, (size_t)a->cols * sizeof *a->cell);
    return a->cell ? KVF_OK : KVF_E_NOMEM;
}

void ansi_finish(struct ansi *a)
{
    mem_free(a->cell);
    memset(a, 0, sizeof *a);
}

/* ---- characters */

/* Returns the cells of a character: 0 for combining marks and controls, 2 for East Asian characters
 * and emoji, else 1. */
static int cells_of(uint32_t cp)
{
    if (cp < 32 || (cp >= 0x7f && cp < 0xa0) || (cp >= 0x300 && cp < 0x370)
        || (cp >= 0x200b && cp <= 0x200f) || (cp >= 0x202a && cp <= 0x202e)
        || (cp >= 0xfe00 && cp < 0xfe10))
        return 0;
    bool wide = (cp >= 0x1100 && cp < 0x1160) || (cp >= 0x2e80 && cp < 0xa4d0)
                || (cp >= 0xac00 && cp < 0xd7a4) || (cp >= 0xf900 && cp < 0xfb00)
                || (cp >= 0xfe30 && cp < 0xfe70) || (cp >= 0xff00 && cp < 0xff61)
                || (cp >= 0x1f300 && cp < 0x1fb00) || (cp >= 0x20000 && cp < 0x40000);
    return wide ? 2 : 1;
}

static size_t next(const char *s, uint32_t *cp)
{
    size_t n = utf8_decode(s, strlen(s), cp);
    if (n == 0) {
        *cp = '?';
        n = 1;
    }
    return n;
}

int ansi_width(const char *s)
{
    int n = 0;
    uint32_t cp;
    while (*s) {
        s += next(s, &cp);
        n += cells_of(cp);
    }
    return n;
}

static struct ansi_cell *at(const struct ansi *a, int col, int row)
{
    bool inside = col >= 0 && row >= 0 && col < a->cols && row < a->rows;
    return inside ? &a->cell[(size_t)row * (size_t)a->cols + (size_t)col] : NULL;
}

static bool fits(const struct ansi *a, int col, int row, int n, bool down)
{
    for (int i = 0; i < n; i++) {
        const struct ansi_cell *c = at(a, down ? col : col + i, down ? row + i : row);
        if (!c || c->taken)
            return false;
    }
    return true;
}

void ansi_text(struct ansi *a, int col, int row, const char *s, struct rgb colour, bool down)
{
    double least = fmin(colour.r, fmin(colour.g, colour.b));
    double most = fmax(colour.r, fmax(colour.g, colour.b));
    if (!fits(a, col, row, ansi_width(s), down))
        return;
    while (*s) {
        uint32_t cp;
        size_t n = next(s, &cp);
        struct ansi_cell *c = at(a, col, row);
        int wide = cells_of(cp);
        for (int i = 0; c && i < wide; i++)
            c[i].taken = true;
        if (c && wide) {
            c->text[utf8_encode(cp, c->text)] = 0;
            c->word = a->words;
            c->plain = most - least < 0.1 && most < 0.4; /* black text */
            c->rgb = (uint32_t)(colour.r * 255 + 0.5) << 16 | (uint32_t)(colour.g * 255 + 0.5) << 8
                     | (uint32_t)(colour.b * 255 + 0.5);
        }
        col += down ? 0 : wide;
        row += down ? wide : 0;
        s += n;
    }
}

static void put_side(struct ansi *a, int col, int row, char side)
{
    struct ansi_cell *c = at(a, col, row);
    if (c)
        c->side = side;
}

void ansi_frame(struct ansi *a, double x, double y, double w, double h)
{
    int c0 = (int)floor(x + 0.5), c1 = (int)floor(x + w + 0.5) - 1;
    int r0 = (int)floor(y / 2 + 0.5), r1 = (int)floor((y + h) / 2 + 0.5) - 1;
    for (int c = c0; c <= c1; c++) {
        put_side(a, c, r0, 't');
        put_side(a, c, r1, 'b');
    }
    for (int r = r0; r <= r1; r++) {
        put_side(a, c0, r, 'l');
        put_side(a, c1, r, 'r');
    }
}

static const char *side_text(char side)
{
    switch (side) {
    case 'l':
        return "\xe2\x96\x8f";
    case 'r':
        return "\xe2\x96\x95";
    case 't':
        return "\xe2\x96\x94";
    default:
        return "\xe2\x96\x81";
    }
}

/* ---- pixels */

/* Returns the fraction of the cell [a, a + 1) that is inside [lo, hi). */
static double overlap(double a, double lo, double hi)
{
    double n = fmin(a + 1, hi) - fmax(a, lo);
    return n > 0 ? n : 0;
}

static uint32_t mean(const uint32_t *from, int cols, int rows, double x0, double x1, double y0,
                     double y1)
{
    double sum[4] = {0}, area = (x1 - x0) * (y1 - y0);
    uint32_t out = 0;
    for (int r = (int)fmax(y0, 0); r < rows && r < y1; r++)
        for (int c = (int)fmax(x0, 0); c < cols && c < x1; c++) {
            double weight = overlap(r, y0, y1) * overlap(c, x0, x1);
            for (int k = 0; k < 4; k++)
                sum[k] += weight * (from[(size_t)r * (size_t)cols + (size_t)c] >> 8 * k & 255);
        }
    for (int k = 0; k < 4; k++)
        out |= (uint32_t)(sum[k] / area + 0.5) << 8 * k;
    return out;
}

void ansi_image(uint32_t *to, int w, int h, int stride, double x, double y, double wide,
                double high, const uint32_t *from, int cols, int rows)
{
    int c0 = (int)floor(x + 0.5), r0 = (int)floor(y + 0.5);
    int c1 = (int)floor(x + wide + 0.5), r1 = (int)floor(y + high + 0.5);
    c1 = c1 > c0 ? c1 : c0 + 1;
    r1 = r1 > r0 ? r1 : r0 + 1;
    double sx = (double)cols / (c1 - c0), sy = (double)rows / (r1 - r0);
    for (int r = r0 > 0 ? r0 : 0; r < r1 && r < h; r++)
        for (int c = c0 > 0 ? c0 : 0; c < c1 && c < w; c++) {
            uint32_t v = mean(from, cols, rows, (c - c0) * sx, (c + 1 - c0) * sx, (r - r0) * sy,
                              (r + 1 - r0) * sy);
            if (v >> 24 >= 128)
                to[(size_t)r * (size_t)stride + (size_t)c] = v;
        }
}

/* Computes the colour of a pixel.  Returns false if the pixel is less than half opaque. */
static bool colour_of(uint32_t v, uint32_t *rgb)
{
    uint32_t alpha = v >> 24;
    *rgb = 0;
    for (int k = 0; alpha >= 128 && k < 3; k++) {
        uint32_t x = ((v >> 8 * k & 255) * 255 + alpha / 2) / alpha;
        *rgb |= (x > 255 ? 255 : x) << 8 * k;
    }
    return alpha >= 128;
}

/* ---- escape codes */

enum { FRAME = 0x808080 };

struct pen {
    struct buf *out;
    int64_t ink, paper; /* current colours; -1: the terminal's own */
};

static void choose(struct pen *p, int64_t ink, int64_t paper)
{
    if ((ink < 0 && p->ink >= 0) || (paper < 0 && p->paper >= 0)) {
        buf_str(p->out, "\033[0m");
        p->ink = p->paper = -1;
    }
    if (ink >= 0 && ink != p->ink)
        buf_printf(p->out, "\033[38;2;%d;%d;%dm", (int)(ink >> 16), (int)(ink >> 8 & 255),
                   (int)(ink & 255));
    if (paper >= 0 && paper != p->paper)
        buf_printf(p->out, "\033[48;2;%d;%d;%dm", (int)(paper >> 16), (int)(paper >> 8 & 255),
                   (int)(paper & 255));
    p->ink = ink;
    p->paper = paper;
}

static void put_pixels(struct pen *p, uint32_t above, uint32_t below)
{
    uint32_t a, b;
    bool has_a = colour_of(above, &a), has_b = colour_of(below, &b);
    if (has_a)
        choose(p, a, has_b ? (int64_t)b : -1);
    else
        choose(p, has_b ? (int64_t)b : -1, -1);
    if (has_a)
        buf_str(p->out, "\xe2\x96\x80");
    else
        buf_str(p->out, has_b ? "\xe2\x96\x84" : " ");
}

/* Writes the mean lightness of both pixels as one of five shades.  A cell without pixels is a
 * space. */
static void put_shade(struct buf *out, uint32_t above, uint32_t below)
{
    static const char *const shade[] = {"\xc2\xb7", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93",
                                        "\xe2\x96\x88"};
    double y = 0;
    int n = 0;
    for (int i = 0; i < 2; i++) {
        uint32_t v;
        if (!colour_of(i ? below : above, &v))
            continue;
        y += 0.2126 * pow((v >> 16) / 255.0, 2.2) + 0.7152 * pow((v >> 8 & 255) / 255.0, 2.2)
             + 0.0722 * pow((v & 255) / 255.0, 2.2);
        n++;
    }
    double light = n ? cbrt(y / n) * 1.16 - 0.16 : 0; /* L* / 100 */
    buf_str(out, n ? shade[(int)clamp(light * 5, 0, 4)] : " ");
}

/* Writes the mark of a letter on a coloured cell: an underline for a cell with a hue (a kept
 * token), a dot for grey hatches. */
static void put_mark(struct buf *out, uint32_t above, uint32_t below)
{
    enum { HUE = 40, LIGHT = 200 }; /* of 255 */
    bool hue = false, grey = false;
    for (int i = 0; i < 2; i++) {
        uint32_t v;
        if (!colour_of(i ? below : above, &v))
            continue;
        int r = v >> 16 & 255, g = v >> 8 & 255, b = v & 255;
        int most = r > g ? r : g, least = r < g ? r : g;
        most = most > b ? most : b;
        least = least < b ? least : b;
        hue |= most - least > HUE;
        grey |= most - least <= HUE && most < LIGHT;
    }
    if (hue)
        buf_str(out, "\xcc\xb2");
    else if (grey)
        buf_str(out, "\xcc\xa3");
}

static void put_text(struct pen *p, const struct ansi *a, const struct ansi_cell *c, uint32_t above,
                     uint32_t below)
{
    uint32_t paper, other;
    bool on = colour_of(above, &paper) && colour_of(below, &other);
    if (!a->shades)
        choose(p, c->plain && !on ? -1 : (int64_t)c->rgb, on ? (int64_t)paper : -1);
    buf_str(p->out, c->text);
    if (a->shades && c->word)
        put_mark(p->out, above, below);
}

void ansi_write(const struct ansi *a, const uint32_t *pixels, int stride, struct buf *out)
{
    for (int r = 0; r < a->rows; r++) {
        struct pen p = {out, -1, -1};
        const uint32_t *above = pixels + (size_t)(2 * r) * (size_t)stride, *below = above + stride;
        for (int c = 0; c < a->cols; c++) {
            const struct ansi_cell *cell = at(a, c, r);
            if (cell->text[0])
                put_text(&p, a, cell, above[c], below[c]);
            else if (cell->taken)
                continue;
            else if (cell->side && above[c] >> 24 < 128 && below[c] >> 24 < 128)
                choose(&p, a->shades ? -1 : FRAME, -1), buf_str(out, side_text(cell->side));
            else if (a->shades)
                put_shade(out, above[c], below[c]);
            else
                put_pixels(&p, above[c], below[c]);
        }
        choose(&p, -1, -1);
        while (out->len && out->data[out->len - 1] == ' ')
            out->data[--out->len] = 0;
        buf_char(out, '\n');
    }
}
