/* tune_job.c - helpers of `kvfate tune` for steps and checks on texts and on questions. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/stats.h"
#include "cli/tune_job.h"

enum { REPLICATES = 2000 }; /* of a bootstrap interval */

struct session_options tune_session(const struct tune_job *j, const struct method *row,
                                    const struct method_params *params)
{
    return (struct session_options){.method = row,
                                    .params = params,
                                    .gates = j->methods.gates,
                                    .inputs = &j->methods.inputs,
                                    .kv_type = KV_F32};
}

void tune_key(char key[TUNE_KEY], const char *name, int budget)
{
    if (budget)
        snprintf(key, TUNE_KEY, "%s_%d", name, budget);
    else
        snprintf(key, TUNE_KEY, "%s_full", name);
}

double tune_put_values(struct tune_job *j, const char *name, int budget, const double *value, int n)
{
    const char *const member[] = {name, "low", "high"};
    double number[] = {stats_mean(value, (size_t)n), NAN, NAN};
    char key[TUNE_KEY];
    int err = stats_mean_interval(value, (size_t)n, REPLICATES, 1, &number[1], &number[2]);
    if (err)
        j->t.log.err = err;
    for (int i = 0; i < 3; i++) {
        tune_key(key, member[i], budget);
        buf_printf(&j->t.log, ", \"%s\": ", key);
        json_put_num(&j->t.log, number[i]);
    }
    tune_key(key, j->reward ? "questions" : "documents", budget);
    buf_printf(&j->t.log, ", \"%s\": [", key);
    for (int k = 0; k < n; k++) {
        buf_str(&j->t.log, k ? ", " : "");
        json_put_num(&j->t.log, value[k]);
    }
    buf_char(&j->t.log, ']');
    return number[0];
}
