/* 03_own_statistic.c - a statistic that kvfate does not have: the half-life of
 * attention.  For every query head, the smallest age n at which fewer than half
 * of the tokens at risk (a query at i + n exists) are still in a query's top 64
 * at age n or later.
 *
 *     ./03_own_statistic X.kvf        one line per head: "L0H0 4" */
#include <stdio.h>
#include <stdlib.h>

#include <kvf/trace.h>

/* age[i]: the largest age at which token i was selected; -1: never. */
static int64_t half_life(const int32_t *age, uint32_t T)
{
    for (uint32_t n = 0; n < T; n++) {
        uint32_t at_risk = T - n, alive = 0;
        for (uint32_t i = 0; i < at_risk; i++)
            alive += age[i] >= (int64_t)n;
        if (2 * alive < at_risk)
            return n;
    }
    return -1; /* never under half */
}

static int all_heads(struct kvf_trace *t, int column, struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(t);
    int32_t *age = malloc((T + 1) * sizeof *age);
    int err = age ? KVF_OK : KVF_E_NOMEM;
    for (int l = 0; l < kvf_n_layers(t); l++)
        for (int h = 0; !err && h < kvf_n_heads(t, l, KVF_SPACE_QUERY); h++) {
            err = kvf_read_i32(t, column, l, h, 0, T, age, d); /* "never" becomes -1 */
            if (!err)
                printf("L%dH%d %lld\n", l, h, (long long)half_life(age, T));
        }
    free(age);
    return err;
}

int main(int argc, char **argv)
{
    struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    if (argc != 2) {
        fprintf(stderr, "usage: 03_own_statistic X.kvf\n");
        return 2;
    }
    int err = kvf_open(argv[1], KVF_OPEN_TAIL, &t, &d), column = -1;
    if (!err)
        column = kvf_find(t, "last_selected.top64");
    if (!err && column < 0)
        err = kvf_fail(&d, KVF_E_NOTFOUND,
                       "%s: no column last_selected.top64; record it with "
                       "--probes survival",
                       argv[1]);
    if (!err)
        err = all_heads(t, column, &d);
    if (err)
        fprintf(stderr, "03_own_statistic: %s\n", d.text[0] ? d.text : kvf_strerror(err));
    kvf_close(t);
    return err ? 1 : 0;
}
