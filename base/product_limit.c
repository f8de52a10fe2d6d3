/* product_limit.c - the Kaplan-Meier estimate with its errors (product_limit.h). */
#include <math.h>

#include "base/product_limit.h"
#include "base/stats.h"

void product_limit(const int64_t *died, const int64_t *censored, int64_t n, double *S, double *G)
{
    int64_t risk = 0;
    double s = 1, g = 0;
    for (int64_t k = 0; k < n; k++)
        risk += died[k] + censored[k];
    for (int64_t k = 0; k < n; k++) {
        S[k] = s;
        G[k] = g;
        if (died[k]) {
            double r = (double)risk, x = (double)died[k];
            s = died[k] == risk ? 0 : s * ((r - x) / r);
            g = died[k] == risk ? NAN : g + x / (r * (r - x));
        } else if (!risk) {
            s = s == 0 ? 0 : NAN; /* survival cannot be estimated */
            g = NAN;
        }
        risk -= died[k] + censored[k];
    }
    S[n] = s;
    G[n] = g;
}

void product_limit_interval(double S, double G, int64_t risk, double *ret_low, double *ret_high)
{
    const double z = STATS_Z975;
    *ret_low = *ret_high = NAN;
    if (S == 1) {
        *ret_low = risk ? pow(0.025, 1 / (double)risk) : 1;
        *ret_high = 1;
    } else if (S > 0 && S < 1) {
        double radius = z * sqrt(G) / -log(S);
        *ret_low = pow(S, exp(radius));
        *ret_high = pow(S, exp(-radius));
    }
}

double product_limit_mean(const int64_t *died, const int64_t *censored, int64_t n, const double *S,
                          int64_t first, int64_t end, double *ret_error)
{
    double area = end > n ? S[n] : 0, variance = 0;
    int64_t risk = 0;
    for (int64_t k = n - 1; k >= 0; k--) {
        risk += died[k] + censored[k];
        if (died[k] && area != 0) {
            double r = (double)risk, x = (double)died[k];
            variance += area * area * x / (r * (r - x));
        }
        if (k >= first && k < end)
            area += S[k];
    }
    *ret_error = sqrt(variance);
    return area;
}

int64_t product_limit_half(const double *S, int64_t first, int64_t end)
{
    for (int64_t k = first; k < end; k++)
        if (S[k] < .5)
            return k;
    return -1;
}
