/* cmd_plan.c - `kvfate trace plan` makes a plan from a trace, from which another run repeats its
 * tokens and evictions. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <kvf/trace.h>

#include "analyzers/heads.h"
#include "base/mem.h"
#include "cli/open_traces.h"
#include "engine/experiment/plan.h"

static int check_output(const char *in, const char *out, struct kvf_diag *d)
{
    struct stat a, b;
    if (!out)
        return kvf_fail(d, KVF_E_ARG, "no -o P.kvf: where to write the plan");
    if (stat(in, &a) == 0 && stat(out, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return kvf_fail(d, KVF_E_ARG, "-o %s would overwrite the input %s", out, in);
    return KVF_OK;
}

static int write_plan(const struct command *self, const char *in, const char *out,
                      struct plan_options *opt, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    unsigned char *mask = NULL;
    int err = kvf_open(in, KVF_OPEN_TAIL, &t, d);
    if (!err)
        err = kvf_check_size(t, d);
    if (!err && opt->head_text)
        err = heads_mask(t, KVF_SPACE_KV, opt->head_text, &mask, d);
    opt->heads = mask;
    if (!err)
        err = plan_write(t, opt, out, d); /* rejects a trace without steps */
    if (!err)
        trace_check_complete(self, t, "planning");
    mem_free(mask);
    kvf_close(t);
    return err;
}

struct request {
    struct plan_options plan;
    const char *out;
};

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, out), "P.kvf", "the plan"},
    {OPT_FLAG, 0, "overwrite", offsetof(struct request, plan.overwrite), NULL,
     "replace the plan that is there"},
    {OPT_STR, 0, "head", offsetof(struct request, plan.head_text), "SET",
     "evictions only of these KV heads; other heads keep all entries", .absent = "all"},
    {OPT_FLAG, 0, "no-tokens", offsetof(struct request, plan.no_tokens), NULL, "omit the tokens"},
    {OPT_FLAG, 0, "no-evictions", offsetof(struct request, plan.no_evictions), NULL,
     "omit the evictions"},
    {OPT_FLAG, 0, "no-mass", offsetof(struct request, plan.no_mass), NULL,
     "omit the attention received"},
    {.type = OPT_END},
};

static int cmd_plan(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    struct request *q = request;
    struct kvf_diag d = {""};
    int err = check_output(operand[0], q->out, &d);
    if (!err)
        err = write_plan(self, operand[0], q->out, &q->plan, &d);
    return command_end(self, err, &d);
}

const struct command command_plan = {
    .name = "plan",
    .group = "files",
    .summary = "save the evictions of a run as a plan for another run",
    .example = "kvfate trace plan run.kvf -o plan.kvf",
    .needs = "-o P.kvf",
    .operands = {"X.kvf", "trace", 1, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_plan,
};
