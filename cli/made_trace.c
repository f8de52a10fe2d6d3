/* made_trace.c - opens, watches, copies and reports traces for the commands that make them. */
#include "cli/made_trace.h"

#include <stdio.h>

#include "base/mem.h"
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
    return kvf_fail(d, KVF_E_NOTFOUND, "%s has no steps: there is no part to copy", kvf_path(t));
}

struct kvf_copy_request made_trace_request(const struct made_trace *m)
{
    return (struct kvf_copy_request){.out = m->out, .overwrite = m->overwrite};
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

static void watch_sources(const struct kvf_copy_request *q, kvf_watch_fn watch, void *ctx)
{
    if (q->trace)
        kvf_watch(q->trace, watch, ctx);
    for (int i = 0; i < q->n_parts; i++)
        kvf_watch(q->part[i], watch, ctx);
}

int made_trace_write(const struct command *self, const struct kvf_copy_request *q,
                     struct kvf_copied *ret, struct kvf_diag *d)
{
    struct watcher w = watcher_begin(self->name);
    struct kvf_copy_request mine = *q;
    mine.watch = watcher_update;
    mine.watch_ctx = &w;
    watch_sources(q, watcher_update, &w);
    int err = kvf_copy(&mine, ret, d);
    watcher_end(&w);
    watch_sources(q, NULL, NULL);
    if (!err && !q->damaged)
        made_trace_print(q->out, ret);
    return err;
}

int made_trace_run(const struct command *self, const void *request, int err, int n, char **path,
                   const char *doing, made_trace_fn make, struct kvf_diag *d)
{
    struct kvf_trace **t = MEM_NEW(struct kvf_trace *, (size_t)n);
    if (!err && !t)
        err = KVF_E_NOMEM;
    for (int i = 0; !err && i < n; i++)
        err = kvf_open(path[i], KVF_OPEN_TAIL, &t[i], d);
    if (!err)
        err = make(self, request, t, d);
    for (int i = 0; !err && i < n; i++)
        trace_check_complete(self, t[i], doing);
    for (int i = 0; t && i < n; i++)
        kvf_close(t[i]);
    mem_free(t);
    return command_end(self, err, d);
}
