/* analyzer_table.c - the list of all analyzers, and analyzer_run() (analyzer.h). */
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/frame.h"

#define X(name) extern const struct analyzer an_##name;
#include "analyzers/analyzers.list"
#undef X

const struct analyzer *const analyzer_table[] = {
#define X(name) &an_##name,
#include "analyzers/analyzers.list"
#undef X
    NULL,
};

const struct analyzer *analyzer_find(const char *name)
{
    for (const struct analyzer *const *a = analyzer_table; *a; a++)
        if (strcmp((*a)->name, name) == 0)
            return *a;
    return NULL;
}

int analyzer_run(const struct analyzer *a, struct kvf_trace *const *traces, int n_traces,
                 const struct analyzer_args *args, struct table **ret_table, struct kvf_diag *d)
{
    struct analyzer_options standard = {{0}};
    struct analyzer_args mine = *args;
    int err = KVF_OK;
    if (!mine.options && a->options)
        err = opt_defaults(a->options, &standard, d);
    if (!mine.options)
        mine.options = &standard;
    for (int i = 0; !err && i < n_traces; i++)
        err = kvf_check_size(traces[i], d);
    if (err)
        return err;
    return a->heads ? frame_run(a, traces[0], &mine, ret_table, d)
                    : a->run(traces, n_traces, &mine, ret_table, d);
}
