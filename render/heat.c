#include <math.h>

#include "base/stats.h"
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

/* v(t) = beta^(t - i) over the rows of a raster.  Row r spans [r T / h, (r + 1) T / h): the
 * whole parts of its two ends, in integers, are `step` or step + 1 apart, so that powers of
 * beta for these two distances lead from row to row. */
struct decay {
    double x;                  /* log beta */
    long step;                 /* T / h, rounded down */
    double power[2], whole[2]; /* beta^n; sum of beta^k, 1 <= k < n: n = step, step + 1 */
};

static struct decay decay_make(double log_beta, long step)
{
    struct decay d = {.x = log_beta < -1e4 ? -1e4 : log_beta, .step = step}; /* 0 * INFINITY */
    for (int k = 0; k < 2; k++) {
        double n = (double)(step + k);
        d.power[k] = exp(n * d.x);
        d.whole[k] = n > 1 ? exp(d.x) * stats_geometric(d.x, n - 1) : isnan(d.x) ? d.x : 0;
    }
    return d;
}

/* Adds weight times the integral of v over each row to rows; values below 1e-18 are 0. */
static void add_decay(const struct decay *d, long i, long T, double weight, int h, double *rows)
{
    long r = i * h / T, from = i;
    double v = 1, part = 0; /* v(from), and where in [from, from + 1) the row begins */
    for (; r < h && !(v < 1e-18); r++) {
        long to = (r + 1) * T / h, n = to - from;
        double end = (double)((r + 1) * T % h) / h, power, whole;
        if (n == d->step || n == d->step + 1) {
            power = d->power[n - d->step];
            whole = d->whole[n - d->step];
        } else { /* the row of birth */
            power = exp((double)n * d->x);
            whole = n > 1 ? exp(d->x) * stats_geometric(d->x, (double)n - 1) : 0;
        }
        rows[r] += n == 0 ? weight * v * (end - part)
                          : weight * v * ((1 - part) + whole + power * end);
        v *= power;
        from = to;
        part = end;
    }
}

void heat_decay(const double *log_beta, long T, int w, int h, double *out, double *cover,
                double *scratch)
{
    double cell = (double)T / w, part = (double)T / h;
    double *value = scratch, *inner = value + h + 2, *edge = inner + h + 2;
    for (int c = 0; c < w; c++) {
        double x0 = c * cell, x1 = c + 1 == w ? (double)T : (c + 1) * cell, all = 0;
        for (long k = 0; k < heat_scratch(h); k++)
            scratch[k] = 0;
        for (long i = (long)floor(x0); i < T && (double)i < x1; i++) {
            double wt = fmin(x1, (double)(i + 1)) - fmax(x0, (double)i);
            if (wt <= 0)
                continue;
            struct decay d = decay_make(log_beta[i], T / h);
            add_decay(&d, i, T, wt, h, value);
            add_span((double)i, (double)T, wt, part, h, inner, edge);
        }
        for (int r = 0; r < h; r++) {
            all += inner[r];
            double area = all + edge[r];
            if (cover)
                cover[(long)r * w + c] = fmin(area / (cell * part), 1);
            out[(long)r * w + c] = area > HEAT_LEAST * cell * part ? value[r] / area : NAN;
        }
    }
}
