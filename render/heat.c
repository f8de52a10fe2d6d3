#include <math.h>

#include "render/heat.h"

long heat_scratch(int h)
{
    return 4 * ((long)h + 2);
}

/* Adds to rows the length of [a, b) that falls into each of h equal parts of
 * [0, T), times weight: whole parts through a difference array `inner`, the two
 * ends directly into `edge`. */
static void add_span(double a, double b, double weight, double part, int h, double *inner,
                     double *edge)
{
    if (!(b > a))
        return;
    int ra = (int)floor(a / part), rb = (int)floor(b / part);
    ra = ra < 0 ? 0 : ra >= h ? h - 1 : ra;
    rb = rb < 0 ? 0 : rb >= h ? h - 1 : rb;
    if (ra == rb) {
        edge[ra] += weight * (b - a);
        return;
    }
    edge[ra] += weight * ((ra + 1) * part - a);
    edge[rb] += weight * (b - rb * part);
    inner[ra + 1] += weight * part;
    inner[rb] -= weight * part;
}

void heat_alpha(const double *end, long T, int w, int h, double *out, double *cover,
                double *scratch)
{
    double cell = (double)T / w, part = (double)T / h;
    double *inner = scratch, *edge = inner + h + 2, *all_inner = edge + h + 2,
           *all_edge = all_inner + h + 2;
    for (int c = 0; c < w; c++) {
        double x0 = c * cell, x1 = c + 1 == w ? (double)T : (c + 1) * cell, kept = 0, all = 0;
        for (long k = 0; k < heat_scratch(h); k++)
            scratch[k] = 0;
        for (long i = (long)floor(x0); i < T && (double)i < x1; i++) {
            double wt = fmin(x1, (double)(i + 1)) - fmax(x0, (double)i);
            if (wt <= 0)
                continue;
            add_span((double)i, fmin(end[i], (double)T), wt, part, h, inner, edge);
            add_span((double)i, (double)T, wt, part, h, all_inner, all_edge);
        }
        for (int r = 0; r < h; r++) {
            kept += inner[r];
            all += all_inner[r];
            double area = all + all_edge[r];
            if (cover)
                cover[(long)r * w + c] = fmin(area / (cell * part), 1);
            out[(long)r * w + c] = area > HEAT_LEAST * cell * part ? (kept + edge[r]) / area : NAN;
        }
    }
}
