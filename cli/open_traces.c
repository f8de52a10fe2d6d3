#include "cli/open_traces.h"

#include <stdio.h>

static bool partial; /* a trace that was read held less than a whole run */

bool traces_partial(void)
{
    return partial;
}

void trace_say_partial(const char *command, const char *path)
{
    partial = true;
    fprintf(stderr, "kvfate %s: %s was not closed, was repaired, or holds no steps\n", command,
            path);
}

bool trace_is_partial(const struct kvf_trace *t)
{
    return !kvf_is_clean(t) || kvf_n_steps(t) == 0 || kvf_note(t, "repaired");
}

void trace_judge(const struct command *self, const struct kvf_trace *t, const char *doing)
{
    if (!trace_is_partial(t))
        return;
    partial = true;
    if (kvf_n_steps(t) == 0)
        fprintf(stderr, "kvfate %s: %s holds no steps%s\n", self->name, kvf_path(t),
                kvf_is_clean(t) ? "" : ": it was not closed");
    else if (kvf_is_clean(t))
        fprintf(stderr, "kvfate %s: %s was repaired, and lacks what was lost\n", self->name,
                kvf_path(t));
    else
        fprintf(stderr, "kvfate %s: %s was not closed: %s its last snapshot (%u steps)\n",
                self->name, kvf_path(t), doing, kvf_n_steps(t));
}

int open_trace(const struct command *self, const char *path, const char *doing,
               struct kvf_trace **ret, struct kvf_diag *d)
{
    int err = kvf_open(path, KVF_OPEN_TAIL, ret, d);
    if (!err)
        err = kvf_check_size(*ret, d);
    if (!err)
        trace_judge(self, *ret, doing);
    return err;
}

int open_both(const struct command *self, char *const path[2], struct kvf_trace *ret[2],
              struct kvf_diag *d)
{
    int err = open_trace(self, path[0], "comparing", &ret[0], d);
    return err ? err : open_trace(self, path[1], "comparing", &ret[1], d);
}
