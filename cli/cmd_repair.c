/* cmd_repair.c - `kvfate trace repair` makes a readable trace from a damaged or unfinished one. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/made_trace.h"

enum { MAX_MESSAGES = 20 };

struct request {
    struct made_trace made;
};

static const struct opt options[] = {
    {OPT_GROUP, 0, "made trace", offsetof(struct request, made), .group = made_trace_options},
    {.type = OPT_END},
};

/* The command and the trace of messages on missing data, and the number of messages printed. */
struct repair_output {
    const struct command *self;
    const char *path;
    uint64_t n_messages;
};

KVF_PRINTF(2, 3) static void tell(struct repair_output *x, const char *fmt, ...)
{
    struct kvf_diag line = {""};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line.text, sizeof line.text, fmt, ap);
    va_end(ap);
    command_print(x->self->name, "%s: %s", x->path, line.text);
}

static void say(void *ctx, const char *line)
{
    struct repair_output *x = ctx;
    if (x->n_messages++ < MAX_MESSAGES)
        tell(x, "%s", line);
}

static void tell_damage(struct repair_output *x, const struct kvf_repaired *r)
{
    if (r->places)
        tell(x, "damaged at %llu place%s, the first at byte %llu; %llu bytes belong to no record",
             (unsigned long long)r->places, r->places == 1 ? "" : "s",
             (unsigned long long)r->first_place, (unsigned long long)r->lost_bytes);
    if (r->breaks)
        tell(x, "the chain of checksums is broken at byte %llu, and at %llu place%s in all",
             (unsigned long long)r->first_break, (unsigned long long)r->breaks,
             r->breaks == 1 ? "" : "s");
    if (r->bad_index)
        tell(x, "the index does not match the records; the content of the records is used");
    if (r->closed && !r->places && !r->intact)
        tell(x, "every record is complete, but the content differs from the digest of its writer");
}

static void tell_end(struct repair_output *x, const struct kvf_copied *made,
                     const struct kvf_repaired *r)
{
    const char *why = r->tail ? "content of the second file" : "its last complete commit";
    if (r->no_commit)
        why = "its values go so far, and no commit is left";
    if (!r->closed || r->no_commit)
        tell(x, "%s kept up to step %u: %s%s", r->closed ? "it is" : "it was not closed, and is",
             made->n_steps, why, r->torn_bytes ? "; a torn record follows" : "");
    if (made->columns_left)
        tell(x, "%d column%s could not be recovered", made->columns_left,
             made->columns_left == 1 ? "" : "s");
    if (r->texts_missing)
        tell(x, "the texts of %llu tokens are not there", (unsigned long long)r->texts_missing);
    if (x->n_messages > MAX_MESSAGES)
        tell(x, "%llu more columns, layers and blobs lack values",
             (unsigned long long)x->n_messages - MAX_MESSAGES);
}

static void print(const char *out, const struct kvf_copied *made, const struct kvf_repaired *r)
{
    char blobs[48] = "";
    if (r->blobs_missing)
        snprintf(blobs, sizeof blobs, "; %llu blob%s lost", (unsigned long long)r->blobs_missing,
                 r->blobs_missing == 1 ? "" : "s");
    made_trace_print(out, made);
    if (r->intact)
        printf("all data were recovered%s\n",
               r->places || r->bad_index ? "" : ": the trace was complete");
    else
        printf("%llu values kept, %llu lost%s\n", (unsigned long long)r->values,
               (unsigned long long)r->missing, blobs);
}

static int cmd_repair(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    struct request *q = request;
    struct kvf_diag d = {""};
    struct kvf_copied made;
    struct kvf_repaired r;
    struct repair_output x = {self, operand[0], 0};
    struct kvf_copy_request copy = made_trace_request(&q->made);
    copy.damaged = operand[0];
    copy.say = say;
    copy.say_ctx = &x;
    copy.ret_repaired = &r;
    int err = made_trace_check(&q->made, &d);
    if (!err)
        err = made_trace_write(self, &copy, &made, &d);
    if (err)
        return command_end(self, err, &d);
    tell_damage(&x, &r);
    if (!r.intact)
        tell_end(&x, &made, &r);
    if (r.intact && made.n_steps == 0)
        tell(&x, "it has no steps");
    print(q->made.out, &made, &r);
    return r.intact && made.n_steps ? EXIT_OK : EXIT_LOST;
}

static const struct exit_status exits[] = {
    {"0", "The new trace has all data of the old trace."},
    {"1", "No data could be recovered, or the new trace could not be written."},
    {"3", "The new trace is valid but lacks data; messages name them."},
    {NULL, NULL},
};

const struct command command_repair = {
    .name = "repair",
    .group = "files",
    .summary = "recover the readable part of a damaged or unfinished trace",
    .example = "kvfate trace repair run.kvf -o repaired.kvf",
    .needs = "-o OUT.kvf",
    .operands = {"X.kvf", "trace", 1, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .exits = exits,
    .run = cmd_repair,
};
