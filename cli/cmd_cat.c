/* cmd_cat.c - parts of a trace into one again. */
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/made_trace.h"
#include "cli/open_traces.h"
#include "cli/watcher.h"

enum { MOST_PARTS = 512 };

struct request {
    struct made_trace made;
};

static const struct opt options[] = {
    {OPT_GROUP, 0, "made trace", offsetof(struct request, made), .group = made_trace_options},
    {.type = OPT_END},
};

static int join(const struct command *self, const struct request *q, int n, char **path,
                struct kvf_diag *d)
{
    struct kvf_trace **part = MEM_NEW(struct kvf_trace *, (size_t)n);
    const struct kvf_copy_options how = made_trace_how(&q->made);
    struct kvf_copied c;
    int err = part ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < n; i++)
        err = kvf_open(path[i], KVF_OPEN_TAIL, &part[i], d);
    struct watcher w = watcher_begin("cat");
    for (int i = 0; !err && i < n; i++)
        kvf_watch(part[i], watcher_see, &w);
    if (!err)
        err = kvf_join(part, n, q->made.out, &how, &c, d);
    watcher_end(&w);
    if (!err)
        made_trace_print(q->made.out, &c);
    for (int i = 0; !err && i < n; i++)
        trace_judge(self, part[i], "joining");
    for (int i = 0; part && i < n; i++)
        kvf_close(part[i]);
    mem_free(part);
    return err;
}

static int cmd_cat(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct kvf_diag d = {""};
    int err = made_trace_check(&q->made, &d);
    if (!err)
        err = join(self, q, n, operand, &d);
    return command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"1", "A part could not be read or is damaged, or the trace could not be written."},
    {"2", "The command line was wrong, or the files are no parts of one trace that follow each "
          "other."},
    {NULL, NULL},
};

const struct command command_cat = {
    .name = "cat",
    .group = "traces",
    .summary = "join the parts of a trace again",
    .example = "kvfate cat part-1.kvf part-2.kvf -o joined.kvf",
    .needs = "-o OUT.kvf",
    .operands = {"PART.kvf...", "trace", 1, MOST_PARTS},
    .options = options,
    .request_bytes = sizeof(struct request),
    .exits = exits,
    .run = cmd_cat,
};
