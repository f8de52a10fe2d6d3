/* svg.c - writes the shapes and pictures of an SVG file. */
#include <math.h>
#include <string.h>

#include "render/svg.h"
#include "render/svg_fonts.h"

void svg_finish(struct svg *s)
{
    svg_fonts_destroy(s->fonts);
    buf_finish(&s->body);
    memset(s, 0, sizeof *s);
}

void svg_escape(struct buf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '<')
            buf_str(b, "&lt;");
        else if (s[i] == '>')
            buf_str(b, "&gt;");
        else if (s[i] == '&')
            buf_str(b, "&amp;");
        else if (n - i >= 3
                 && (memcmp(s + i, "\xef\xbf\xbe", 3) == 0
                     || memcmp(s + i, "\xef\xbf\xbf", 3) == 0))
            i += 2; /* XML excludes U+FFFE and U+FFFF */
        else if ((unsigned char)s[i] >= 32 || s[i] == '\n')
            buf_char(b, s[i]);
    }
}

void svg_colour(struct buf *b, const char *what, struct rgb v, double alpha)
{
    buf_printf(b, "%s:rgb(%.6g%%,%.6g%%,%.6g%%);%s-opacity:%.6g;", what, 100 * v.r, 100 * v.g,
               100 * v.b, what, alpha);
}

/* ---- strokes: in mm */

static void open_stroke(struct svg *s, double width, struct rgb colour)
{
    buf_printf(&s->body,
               "<path style=\"fill:none;stroke-width:%.6g;stroke-linecap:butt;"
               "stroke-linejoin:round;",
               width);
    svg_colour(&s->body, "stroke", colour, 1);
    if (s->dash[0] > 0)
        buf_printf(&s->body, "stroke-dasharray:%.6g,%.6g;", s->dash[0], s->dash[1]);
    buf_str(&s->body, "stroke-miterlimit:10;\" d=\"");
}

static void close_stroke(struct svg *s)
{
    buf_printf(&s->body, "\" transform=\"matrix(%.6f,0,0,%.6f,%.6g,%.6g)\"/>\n", SVG_PT, SVG_PT,
               s->dx * SVG_PT, s->dy * SVG_PT);
}

void svg_line(struct svg *s, const double *xy, int n, double width, struct rgb colour)
{
    int open = 0;
    open_stroke(s, width, colour);
    for (int i = 0; i < n; i++) {
        int gap = !isfinite(xy[2 * i]) || !isfinite(xy[2 * i + 1]);
        if (!gap)
            buf_printf(&s->body, "%s %.4f %.4f ", open ? "L" : "M", xy[2 * i], xy[2 * i + 1]);
        open = !gap;
    }
    close_stroke(s);
}

void svg_frame(struct svg *s, double x, double y, double w, double h, double width,
               struct rgb colour)
{
    open_stroke(s, width, colour);
    buf_printf(&s->body, "M %.4f %.4f L %.4f %.4f L %.4f %.4f L %.4f %.4f Z", x, y, x + w, y, x + w,
               y + h, x, y + h);
    close_stroke(s);
}

/* ---- areas: in points */

static void open_fill(struct svg *s, struct rgb fill, double alpha)
{
    buf_printf(&s->body, "<path style=\" %sstroke:none;fill-rule:nonzero;",
               s->crisp ? "shape-rendering:crispEdges;" : "");
    svg_colour(&s->body, "fill", fill, alpha);
    buf_str(&s->body, "\" d=\"");
}

void svg_area(struct svg *s, const double *xy, int n, struct rgb fill, double alpha)
{
    open_fill(s, fill, alpha);
    for (int i = 0; i < n && isfinite(xy[2 * i]) && isfinite(xy[2 * i + 1]); i++)
        buf_printf(&s->body, "%s %.4f %.4f ", i ? "L" : "M", (xy[2 * i] + s->dx) * SVG_PT,
                   (xy[2 * i + 1] + s->dy) * SVG_PT);
    buf_str(&s->body, "Z\"/>\n");
}

/* Writes a circle as four Bezier arcs, each at most 0.03 % off. */
static void circle(struct buf *b, double x, double y, double r)
{
    static const int turn[5][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {1, 0}};
    const double k = 0.5522847498;
    buf_printf(b, "M %.4f %.4f ", x + r, y);
    for (int i = 0; i < 4; i++) {
        const int *p = turn[i], *q = turn[i + 1];
        buf_printf(b, "C %.4f %.4f %.4f %.4f %.4f %.4f ", x + r * (p[0] + k * q[0]),
                   y + r * (p[1] + k * q[1]), x + r * (q[0] + k * p[0]), y + r * (q[1] + k * p[1]),
                   x + r * q[0], y + r * q[1]);
    }
    buf_str(b, "Z");
}

void svg_disc(struct svg *s, double x, double y, double radius, double width, struct rgb colour)
{
    if (!isfinite(x) || !isfinite(y))
        return;
    if (width > 0) {
        open_stroke(s, width, colour);
        circle(&s->body, x, y, radius);
        close_stroke(s);
    } else {
        open_fill(s, colour, 1);
        circle(&s->body, (x + s->dx) * SVG_PT, (y + s->dy) * SVG_PT, radius * SVG_PT);
        buf_str(&s->body, "\"/>\n");
    }
}

/* Clips with a nested viewport, which needs no name.  Names would have to be unique if a page
 * contains several pictures. */
void svg_clip(struct svg *s, double x, double y, double w, double h)
{
    double px = (x + s->dx) * SVG_PT, py = (y + s->dy) * SVG_PT, pw = w * SVG_PT, ph = h * SVG_PT;
    buf_printf(&s->body,
               "<svg x=\"%.4f\" y=\"%.4f\" width=\"%.4f\" height=\"%.4f\" "
               "viewBox=\"%.4f %.4f %.4f %.4f\">\n",
               px, py, pw, ph, px, py, pw, ph);
}

void svg_unclip(struct svg *s)
{
    buf_str(&s->body, "</svg>\n");
}

/* Embeds the picture with width and height in pixels; the matrix sets its size. */
void svg_image(struct svg *s, double x, double y, double w, double h, int cols, int rows,
               const struct buf *png)
{
    buf_printf(&s->body,
               "<image width=\"%d\" height=\"%d\" preserveAspectRatio=\"none\" "
               "style=\"image-rendering:optimizeSpeed;image-rendering:pixelated\" "
               "transform=\"matrix(%.8g,0,0,%.8g,%.4f,%.4f)\" "
               "xlink:href=\"data:image/png;base64,",
               cols, rows, w * SVG_PT / cols, h * SVG_PT / rows, (x + s->dx) * SVG_PT,
               (y + s->dy) * SVG_PT);
    buf_base64(&s->body, png->data, png->len);
    buf_str(&s->body, "\"/>\n");
}

int svg_write(struct svg *s, const char *title, const char *about, struct buf *out)
{
    double w = s->w * SVG_PT, h = s->h * SVG_PT;
    buf_printf(out,
               "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
               "<svg xmlns=\"http://www.w3.org/2000/svg\" "
               "xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"%.6fpt\" height=\"%.6fpt\" "
               "viewBox=\"0 0 %.6f %.6f\" version=\"1.1\">\n<title>",
               w, h, w, h);
    svg_escape(out, title, strlen(title));
    buf_str(out, "</title>\n<desc>");
    svg_escape(out, about, strlen(about));
    buf_str(out, "</desc>\n");
    int err = svg_fonts_write(s->fonts, out);
    buf_printf(out,
               "<rect x=\"0\" y=\"0\" width=\"%.6f\" height=\"%.6f\" "
               "style=\"fill:rgb(100%%,100%%,100%%);fill-opacity:1;stroke:none;\"/>\n",
               w, h);
    if (s->body.len)
        buf_add(out, s->body.data, s->body.len);
    buf_str(out, "</svg>\n");
    if (err)
        return err;
    return s->body.err ? s->body.err : out->err;
}
