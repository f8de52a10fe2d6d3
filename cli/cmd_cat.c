/* cmd_cat.c - `kvfate trace cat` joins the parts of a trace. */
#include "cli/commands.h"
#include "cli/made_trace.h"

enum { MOST_PARTS = 512 };

struct request {
    struct made_trace made;
    int n;
};

static const struct opt options[] = {
    {OPT_GROUP, 0, "made trace", offsetof(struct request, made), .group = made_trace_options},
    {.type = OPT_END},
};

static int join(const struct command *self, const void *request, struct kvf_trace *const *t,
                struct kvf_diag *d)
{
    const struct request *q = request;
    struct kvf_copy_request copy = made_trace_request(&q->made);
    struct kvf_copied c;
    copy.part = t;
    copy.n_parts = q->n;
    return made_trace_write(self, &copy, &c, d);
}

static int cmd_cat(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct kvf_diag d = {""};
    q->n = n;
    return made_trace_run(self, q, made_trace_check(&q->made, &d), n, operand, "joining", join, &d);
}

static const struct exit_status exits[] = {
    {"1", "A part could not be read or is damaged, or the trace could not be written."},
    {"2", "The command line was wrong, or the files are no parts of one trace that follow each "
          "other."},
    {NULL, NULL},
};

const struct command command_cat = {
    .name = "cat",
    .group = "files",
    .summary = "join the parts of a split trace",
    .example = "kvfate trace cat part-1.kvf part-2.kvf -o joined.kvf",
    .needs = "-o OUT.kvf",
    .operands = {"PART.kvf...", "trace", 1, MOST_PARTS},
    .options = options,
    .request_bytes = sizeof(struct request),
    .exits = exits,
    .run = cmd_cat,
};
