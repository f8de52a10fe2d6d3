/* cmd_compact.c - `kvfate trace compact` recompresses a trace. */
#include <stdio.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "cli/made_trace.h"

struct request {
    struct made_trace made;
};

static const struct opt options[] = {
    {OPT_GROUP, 0, "made trace", offsetof(struct request, made), .group = made_trace_options},
    {.type = OPT_END},
};

static int compact(const struct command *self, const void *request, struct kvf_trace *const *t,
                   struct kvf_diag *d)
{
    const struct request *q = request;
    struct kvf_copied c;
    struct kvf_copy_request copy = made_trace_request(&q->made);
    struct stat before = {0};
    copy.trace = t[0];
    copy.smallest = true;
    if (stat(kvf_path(t[0]), &before) != 0)
        return kvf_fail(d, KVF_E_IO, "%s: it is not there any more", kvf_path(t[0]));
    int err = made_trace_write(self, &copy, &c, d);
    if (!err)
        printf("%lld bytes before, %llu after: %.1f %%\n", (long long)before.st_size,
               (unsigned long long)c.bytes, 100.0 * (double)c.bytes / (double)before.st_size);
    return err;
}

static int cmd_compact(const struct command *self, void *request, int n, char **operand)
{
    const struct request *q = request;
    struct kvf_diag d = {""};
    int err = made_trace_check(&q->made, &d);
    return made_trace_run(self, q, err, n, operand, "copying", compact, &d);
}

const struct command command_compact = {
    .name = "compact",
    .group = "files",
    .summary = "recompress a trace",
    .example = "kvfate trace compact run.kvf -o small.kvf",
    .needs = "-o OUT.kvf",
    .operands = {"X.kvf", "trace", 1, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_compact,
};
