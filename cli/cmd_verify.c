/* cmd_verify.c - `kvfate trace verify` checks that a trace is complete and not damaged. */
#include <stdio.h>

#include <kvf/trace.h>

#include "cli/commands.h"
#include "cli/open_traces.h"
#include "cli/shown.h"
#include "cli/watcher.h"

struct request {
    bool full;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "full", offsetof(struct request, full), NULL,
     "check and decode every payload, and judge every value, too"},
    {.type = OPT_END},
};

struct check_context {
    const struct command *self;
    const char *path;
    struct watcher watcher;
};

static void say(void *ctx, const char *line)
{
    const struct check_context *j = ctx;
    watcher_end(&j->watcher);
    struct kvf_diag d = {""};
    kvf_fail(&d, KVF_E_CORRUPT, "%s: %s", j->path, line);
    command_print_error(j->self, KVF_E_CORRUPT, &d);
}

/* Checks that the records of a trace are consistent, and with `values` that every value is
 * possible. Returns KVF_OK, or KVF_E_CORRUPT after each finding was printed. Reports a trace
 * without steps as partial. */
static int check_values(const struct command *self, const char *path, bool values,
                        struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    struct check_context j = {self, path, watcher_begin("judge")};
    int n = 0, err = kvf_open(path, KVF_OPEN_TAIL, &t, d);
    if (!err)
        kvf_watch(t, watcher_update, &j.watcher);
    if (!err)
        err = kvf_judge(t, values, say, &j, &n);
    watcher_end(&j.watcher);
    if (!err && n)
        err = kvf_fail(d, KVF_E_CORRUPT,
                       n < KVF_MAX_FINDINGS
                           ? "%s: every record is complete, but values are impossible: %d finding%s"
                           : "%s: every record is complete, but values are impossible: the first "
                             "%d finding%s are named",
                       path, n, n == 1 ? "" : "s");
    if (!err && kvf_n_steps(t) == 0)
        trace_check_complete(self, t, "judging");
    kvf_close(t);
    return err;
}

static void print_check(const char *what, const struct kvf_check *c, bool full)
{
    printf("%s: %llu records, %llu bytes, %s", shown_name(what).text,
           (unsigned long long)c->records, (unsigned long long)c->bytes,
           c->clean ? "closed" : "unfinished");
    if (c->torn)
        printf(", %llu of them torn at the end", (unsigned long long)c->torn);
    if (!full)
        printf("; the values of columns were not decoded (--full does)");
    else
        printf(", columns %llu bytes stored, %llu decoded", (unsigned long long)c->payload_bytes,
               (unsigned long long)c->raw_bytes);
    printf("\n");
}

/* Prints and clears the remark in d on an intact file, such as that it is unfinished. */
static void remark(const struct command *self, struct kvf_diag *d)
{
    if (d->text[0])
        fprintf(command_errors(), "kvfate %s: %s\n", self->name, d->text);
    d->text[0] = 0;
}

/* Checks the newest state of an unfinished trace, which may be stored in a second file. Returns
 * KVF_OK if there is none. */
static int check_tail(const struct command *self, const char *path, bool full, struct kvf_diag *d)
{
    struct kvf_check c;
    int err = kvf_verify_tail(path, full, &c, d);
    if (err == KVF_E_NOTFOUND)
        return KVF_OK;
    if (err)
        return err;
    remark(self, d);
    print_check("its tail", &c, full);
    return KVF_OK;
}

static int cmd_verify(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    struct request *q = request;
    struct kvf_diag d = {""};
    struct kvf_check c;
    struct watcher w = watcher_begin("verify");
    int err = kvf_verify_watched(operand[0], q->full, watcher_update, &w, &c, &d);
    watcher_end(&w);
    if (!err) {
        remark(self, &d);
        print_check(operand[0], &c, q->full);
        err = c.clean ? KVF_OK : check_tail(self, operand[0], q->full, &d);
    }
    if (!err)
        err = check_values(self, operand[0], q->full, &d);
    command_print_error(self, err, &d);
    if (err)
        return EXIT_FAILED;
    return c.clean ? EXIT_OK : EXIT_LOST;
}

static const struct exit_status exits[] = {
    {"0", "The trace is complete and was closed."},
    {"1", "It is damaged, cannot be read, or has impossible values: values are missing, are there "
          "twice or are out of their range."},
    {"3", "All complete records are good, but the trace was not closed, so that the last values "
          "may be missing, or it has no steps."},
    {NULL, NULL},
};

const struct command command_verify = {
    .name = "verify",
    .group = "files",
    .summary = "check the structure and the checksums of a trace",
    .example = "kvfate trace verify --full run.kvf",
    .operands = {"X.kvf", "trace", 1, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .exits = exits,
    .run = cmd_verify,
};
