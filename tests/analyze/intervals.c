/* intervals.c - prints intervals of base/stats.h over units, for tests/analyze/test_coverage.py.
 *
 * usage: intervals N < VALUES. Numbers are separated by white space, N per repetition.  Each line
 * has the ends of stats_mean_interval and of stats_wilson (for values 0 or 1). */
#include <stdio.h>
#include <stdlib.h>

#include "base/stats.h"

enum { MOST = 64, REPLICATES = 2000 };

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 0, got = 0;
    double v[MOST], low, high, least, most;
    if (n < 1 || n > MOST)
        return 2;
    while (scanf("%lf", &v[got]) == 1) {
        int yes = 0;
        if (++got < n)
            continue;
        got = 0;
        for (int i = 0; i < n; i++)
            yes += v[i] == 1;
        if (stats_mean_interval(v, (size_t)n, REPLICATES, 1, &low, &high) != KVF_OK)
            return 1;
        stats_wilson(yes, n, &least, &most);
        printf("%.17g %.17g %.17g %.17g\n", low, high, least, most);
    }
    return 0;
}
