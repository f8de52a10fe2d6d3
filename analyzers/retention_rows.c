#include "analyzers/retention_rows.h"

#include <math.h>

void retention_rows(const double *log_beta, int64_t T, double *sum, double *most, double *last,
                    double *entropy, double *scratch)
{
    for (int64_t i = 0; i < T; i++) {
        sum[i] = most[i] = 0;
        last[i] = -1;
    }
    for (int64_t t = 0; t < T; t++) {
        double all = 0, logs = 0; /* of r = beta^age; ln r = age log_beta */
        for (int64_t i = 0; i <= t; i++) {
            double ln = i < t ? (double)(t - i) * log_beta[i] : 0; /* beta 0 has 1 at birth */
            scratch[i] = exp(ln);
            all += scratch[i];
            logs += scratch[i] > 0 ? scratch[i] * ln : 0;
        }
        entropy[t] = log(all) - logs / all;
        for (int64_t i = 0; i <= t; i++) {
            double w = scratch[i] / all;
            sum[i] += w;
            most[i] = w > most[i] ? w : most[i];
            if (scratch[i] * (double)(t + 1) >= all)
                last[i] = (double)(t - i);
        }
    }
}
