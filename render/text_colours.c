/* text_colours.c - interpolates colours in CIELAB and computes contrast. */
#include "render/clamp.h"
#include "render/text_colours.h"

#include <math.h>

static const double white_point[3] = {0.95047, 1, 1.08883}; /* D65 */

static double to_linear(double v)
{
    return v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
}

static double from_linear(double v)
{
    v = v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
    return clamp(v, 0, 1);
}

/* Computes the CIELAB coordinates of an sRGB colour (IEC 61966-2-1 and CIE 15). */
static void to_lab(struct rgb c, double *L, double *a, double *b)
{
    const double r = to_linear(c.r), g = to_linear(c.g), u = to_linear(c.b);
    const double xyz[3] = {0.4124564 * r + 0.3575761 * g + 0.1804375 * u,
                           0.2126729 * r + 0.7151522 * g + 0.0721750 * u,
                           0.0193339 * r + 0.1191920 * g + 0.9503041 * u};
    double f[3];
    for (int k = 0; k < 3; k++) {
        double t = xyz[k] / white_point[k];
        f[k] = t > 216.0 / 24389 ? cbrt(t) : (24389.0 / 27 * t + 16) / 116;
    }
    *L = 116 * f[1] - 16;
    *a = 500 * (f[0] - f[1]);
    *b = 200 * (f[1] - f[2]);
}

static struct rgb from_lab(double L, double a, double b)
{
    double y = (L + 16) / 116, f[3] = {y + a / 500, y, y - b / 200}, xyz[3];
    for (int k = 0; k < 3; k++) {
        double cube = f[k] * f[k] * f[k];
        xyz[k] = white_point[k] * (cube > 216.0 / 24389 ? cube : (116 * f[k] - 16) * 27 / 24389);
    }
    return (struct rgb){from_linear(3.2404542 * xyz[0] - 1.5371385 * xyz[1] - 0.4985314 * xyz[2]),
                        from_linear(-0.9692660 * xyz[0] + 1.8760108 * xyz[1] + 0.0415560 * xyz[2]),
                        from_linear(0.0556434 * xyz[0] - 0.2040259 * xyz[1] + 1.0572252 * xyz[2])};
}

struct rgb lab_between(struct rgb a, struct rgb b, double v)
{
    double p[3], q[3];
    v = clamp(v, 0, 1);
    to_lab(a, &p[0], &p[1], &p[2]);
    to_lab(b, &q[0], &q[1], &q[2]);
    for (int k = 0; k < 3; k++)
        p[k] += v * (q[k] - p[k]);
    return from_lab(p[0], p[1], p[2]);
}

static double luminance(struct rgb c)
{
    return 0.2126 * to_linear(c.r) + 0.7152 * to_linear(c.g) + 0.0722 * to_linear(c.b);
}

double contrast_ratio(struct rgb a, struct rgb b)
{
    double x = luminance(a), y = luminance(b);
    return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

struct rgb contrast_ink(struct rgb fill)
{
    const struct rgb black = {0, 0, 0}, white = {1, 1, 1};
    return contrast_ratio(fill, black) >= contrast_ratio(fill, white) ? black : white;
}
