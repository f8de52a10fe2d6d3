#include "cli/made_trace.h"

#include <stdio.h>

#include "cli/open_traces.h"
#include "cli/shown.h"
#include "cli/watcher.h"

const struct opt made_trace_options[] = {
    {OPT_STR, 'o', "output", offsetof(struct made_trace, out), "OUT.kvf", "the trace that is made"},
    {OPT_FLAG, 0, "overwrite", offsetof(struct made_trace, overwrite), NULL,
     "replace the trace that is there"},
    {.type = OPT_END},
};

int made_trace_check(const struct made_trace *m, struct kvf_diag *d)
{
    return m->out ? KVF_OK : kvf_fail(d, KVF_E_ARG, "-o OUT.kvf is missing");
}

int made_trace_needs_steps(const struct kvf_trace *t, struct kvf_diag *d)
{
    if (kvf_n_steps(t) > 0)
        return KVF_OK;
    return kvf_fail(d, KVF_E_NOTFOUND, "%s holds no steps: there is no piece of it", kvf_path(t));
}

struct kvf_copy_options made_trace_how(const struct made_trace *m)
{
    return (struct kvf_copy_options){.overwrite = m->overwrite};
}

void made_trace_print(const char *out, const struct kvf_copied *c)
{
    printf("%s: %u tokens, %llu bytes", shown_name(out).text, c->n_steps,
           (unsigned long long)c->bytes);
    if (c->columns_left)
        printf(", without %d column%s", c->columns_left, c->columns_left == 1 ? "" : "s");
    if (c->left_out)
        printf(", without %llu blobs or records of later releases",
               (unsigned long long)c->left_out);
    printf("\n");
}

int made_trace_copy(const struct command *self, struct kvf_trace *t, const struct kvf_piece *piece,
                    const char *out, const struct kvf_copy_options *how, struct kvf_copied *ret,
                    struct kvf_diag *d)
{
    struct watcher w = watcher_begin(self->name);
    kvf_watch(t, watcher_see, &w);
    int err = kvf_copy(t, piece, out, how, ret, d);
    watcher_end(&w);
    kvf_watch(t, NULL, NULL);
    if (!err)
        made_trace_print(out, ret);
    return err;
}

int made_trace_run(const struct command *self, const void *request, int err, const char *path,
                   made_trace_fn make, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    if (!err)
        err = kvf_open(path, KVF_OPEN_TAIL, &t, d);
    if (!err)
        err = make(self, request, t, d);
    if (!err)
        trace_judge(self, t, "copying");
    kvf_close(t);
    return command_end(self, err, d);
}
