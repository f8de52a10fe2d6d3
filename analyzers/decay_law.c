/* decay_law.c - maximum-likelihood fits of decay laws to censored lives (decay_law.h). */
#include <math.h>

#include "analyzers/decay_law.h"

/* The logarithm of the likelihood at (log lambda, log shape), its gradient and second derivatives.
 */
struct slope {
    double value, a, s, aa, as, ss;
};

/* u at one m with its derivatives; those by log lambda are u itself. */
struct point {
    double u, s, ss;
};

static struct point point_at(double log_lambda, double shape, double log_b)
{
    if (isinf(log_b))
        return (struct point){0, 0, 0};
    double u = exp(log_lambda + shape * log_b), x = shape * log_b;
    return (struct point){u, u * x, u * x + u * x * x};
}

static void add_left(struct slope *y, double n, struct point p)
{
    y->value -= n * p.u;
    y->a -= n * p.u;
    y->aa -= n * p.u;
    y->s -= n * p.s;
    y->as -= n * p.s;
    y->ss -= n * p.ss;
}

/* log(exp(-u) - exp(-v)) = -u + log(1 - exp(-w)), w = v - u > 0. */
static void add_died(struct slope *y, double n, struct point p, struct point q)
{
    double w = q.u - p.u, g = 1 / expm1(w), g2 = -g * (1 + g);
    double s = q.s - p.s, ss = q.ss - p.ss;
    add_left(y, n, p);
    y->value += n * log(-expm1(-w));
    y->a += n * g * w;
    y->aa += n * (g * w + g2 * w * w);
    y->s += n * g * s;
    y->as += n * (g * s + g2 * w * s);
    y->ss += n * (g * ss + g2 * s * s);
}

static struct slope slope_at(const struct decay_data *x, const double *log_b, double log_lambda,
                             double shape)
{
    struct slope y = {0};
    struct point p = point_at(log_lambda, shape, log_b[0]);
    for (int64_t m = 0; m < x->n; m++) {
        struct point q = point_at(log_lambda, shape, log_b[m + 1]);
        if (x->died[m])
            add_died(&y, (double)x->died[m], p, q);
        if (x->left[m])
            add_left(&y, (double)x->left[m], p);
        p = q;
    }
    if (x->left[x->n])
        add_left(&y, (double)x->left[x->n], p);
    return y;
}

/* One step of Newton's method uphill, made steeper until the curvature is negative. */
static void step_of(const struct slope *y, bool any_shape, double *da, double *ds)
{
    double ridge = 0, size = fabs(y->aa) + fabs(y->ss) + 1e-12;
    *ds = 0;
    if (!any_shape) {
        *da = y->aa < 0 ? -y->a / y->aa : y->a / size;
        return;
    }
    for (int i = 0; i < 60; i++) {
        double aa = y->aa - ridge, ss = y->ss - ridge, det = aa * ss - y->as * y->as;
        if (aa < 0 && det > 1e-14 * size * size) {
            *da = -(ss * y->a - y->as * y->s) / det;
            *ds = -(aa * y->s - y->as * y->a) / det;
            return;
        }
        ridge = ridge > 0 ? 2 * ridge : 1e-6 * size;
    }
    *da = y->a / size;
    *ds = y->s / size;
}

/* Where the geometric law has its maximum: events per step at risk, which B stretches. */
static double start_at(const struct decay_data *x, const double *log_b, double *ret_deaths,
                       double *ret_steps)
{
    double deaths = 0, exposure = 0, steps = 0;
    for (int64_t m = 0; m <= x->n; m++) {
        double died = m < x->n ? (double)x->died[m] : 0, left = (double)x->left[m];
        deaths += died;
        steps += (died + left) * (double)m;
        exposure += left * exp(log_b[m]) + (m < x->n ? died * exp(log_b[m + 1]) : 0);
    }
    *ret_deaths = deaths;
    *ret_steps = steps;
    return log(deaths / exposure);
}

struct decay_fit decay_law_fit(const struct decay_data *x, const double *log_b, bool any_shape)
{
    double deaths, steps, a = start_at(x, log_b, &deaths, &steps), s = 0;
    if (!(deaths > 0) || !(steps > 0)) /* no token died, or no token lived on for a step */
        return (struct decay_fit){.known = false};
    struct slope y = slope_at(x, log_b, a, 1);
    bool done = false;
    for (int i = 0; i < 200 && !done; i++) {
        double da, ds;
        step_of(&y, any_shape, &da, &ds);
        double shorter = fmin(1, fmin(1 / fabs(da), .5 / fabs(ds)));
        da *= shorter;
        ds *= shorter;
        struct slope next = slope_at(x, log_b, a + da, exp(s + ds));
        for (int k = 0; k < 40 && !(next.value >= y.value); k++) {
            da /= 2;
            ds /= 2;
            next = slope_at(x, log_b, a + da, exp(s + ds));
        }
        done = !(next.value >= y.value) || fabs(da) + fabs(ds) < 1e-13;
        if (next.value >= y.value) {
            a += da;
            s += ds;
            y = next;
        }
    }
    double det = y.aa * y.ss - y.as * y.as;
    bool top = any_shape ? det > 0 && y.aa < 0 : y.aa < 0;
    return (struct decay_fit){
        .lambda = exp(a),
        .shape = exp(s),
        .lambda_error = any_shape ? sqrt(-y.ss / det) : sqrt(-1 / y.aa),
        .shape_error = any_shape ? sqrt(-y.aa / det) : 0,
        .log_likelihood = y.value,
        .known = top && isfinite(y.value) && fabs(s) < 9,
    };
}

double decay_law_left(const struct decay_fit *f, const double *log_b, int64_t m)
{
    return -point_at(log(f->lambda), f->shape, log_b[m]).u;
}

double decay_law_died(const struct decay_fit *f, const double *log_b, int64_t m)
{
    double u = -decay_law_left(f, log_b, m), v = -decay_law_left(f, log_b, m + 1);
    return -u + log(-expm1(u - v));
}
