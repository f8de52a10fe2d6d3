#include <stdio.h>

#include "cli/open_traces.h"

int open_trace(const struct command *self, const char *path, const char *doing,
               struct kvf_trace **ret, struct kvf_diag *d)
{
    int err = kvf_open(path, KVF_OPEN_TAIL, ret, d);
    if (!err && !kvf_is_clean(*ret))
        fprintf(stderr, "kvfate %s: %s was not closed: %s its last snapshot (%u steps)\n",
                self->name, kvf_path(*ret), doing, kvf_n_steps(*ret));
    return err;
}

int open_both(const struct command *self, char *const path[2], struct kvf_trace *ret[2],
              struct kvf_diag *d)
{
    int err = open_trace(self, path[0], "comparing", &ret[0], d);
    return err ? err : open_trace(self, path[1], "comparing", &ret[1], d);
}
