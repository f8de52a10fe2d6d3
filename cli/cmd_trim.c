/* cmd_trim.c - `kvfate trace trim` copies some heads and tokens of a trace into a new trace. */
#include <stdio.h>

#include "analyzers/heads.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/made_trace.h"
#include "cli/open_traces.h"

struct request {
    struct made_trace made;
    const char *heads, *tokens;
};

static const struct opt options[] = {
    {OPT_GROUP, 0, "made trace", offsetof(struct request, made), .group = made_trace_options},
    {OPT_STR, 0, "head", offsetof(struct request, heads), "SET",
     "these KV heads and their query heads, which are numbered anew from 0: L0-5K*, 15.2",
     .absent = "all"},
    {OPT_STR, 0, "tokens", offsetof(struct request, tokens), "A:B", "tokens and steps A to B - 1",
     .absent = "all"},
    {.type = OPT_END},
};

static int check(const struct request *q, struct kvf_diag *d)
{
    int err = made_trace_check(&q->made, d);
    if (!err && !q->heads && !q->tokens)
        err = kvf_fail(d, KVF_E_ARG,
                       "--head SET or --tokens A:B selects the part to copy; 'kvfate trace "
                       "compact' copies all");
    return err;
}

/* Sets *ret to the KV heads of a set in the form that kvf_copy() takes. The caller frees it with
 * mem_free(), also after an error. */
static int choose_heads(const struct kvf_trace *t, const char *set, unsigned char **ret,
                        struct kvf_diag *d)
{
    struct head_list list;
    int all = 0, err = heads_select(t, KVF_SPACE_KV, set, &list, d);
    for (int l = 0; l < kvf_n_layers(t); l++)
        all += kvf_n_heads(t, l, KVF_SPACE_KV);
    unsigned char *keep = err ? NULL : MEM_NEW(unsigned char, (size_t)all);
    for (int i = 0, l = 0, at = 0; keep && i < list.n; i++) {
        for (; l < list.head[i].layer; l++)
            at += kvf_n_heads(t, l, KVF_SPACE_KV);
        keep[at + list.head[i].index] = 1;
    }
    heads_free(&list);
    *ret = keep;
    return err || keep ? err : KVF_E_NOMEM;
}

static int choose_tokens(const struct kvf_trace *t, const char *range, struct kvf_piece *p,
                         struct kvf_diag *d)
{
    int64_t a = 0, b = -1;
    int err = opt_range("--tokens", range, &a, &b, d);
    if (!err)
        err = opt_range_fit("--tokens", "tokens", kvf_path(t), kvf_n_steps(t), &a, &b, d);
    if (!err && a == b)
        err = kvf_fail(d, KVF_E_ARG, "--tokens %s: the range has no token", range);
    if (err)
        return err;
    p->from = (uint32_t)a;
    p->to = (uint32_t)b;
    return KVF_OK;
}

static int trim(const struct command *self, const void *request, struct kvf_trace *const *t,
                struct kvf_diag *d)
{
    const struct request *q = request;
    unsigned char *keep = NULL;
    struct kvf_piece piece = {.to = 0};
    struct kvf_copied c;
    struct kvf_copy_request copy = made_trace_request(&q->made);
    int err = made_trace_needs_steps(t[0], d);
    if (!err && q->heads)
        err = choose_heads(t[0], q->heads, &keep, d);
    if (!err && q->tokens)
        err = choose_tokens(t[0], q->tokens, &piece, d);
    piece.heads = keep;
    copy.trace = t[0];
    copy.piece = &piece;
    if (!err)
        err = made_trace_write(self, &copy, &c, d);
    mem_free(keep);
    struct kvf_trace *made = NULL;
    if (!err && q->heads)
        err = kvf_open(copy.out, KVF_OPEN_TAIL, &made, d);
    if (made)
        trace_report_heads(self, made);
    kvf_close(made);
    return err;
}

static int cmd_trim(const struct command *self, void *request, int n, char **operand)
{
    struct kvf_diag d = {""};
    int err = check(request, &d);
    return made_trace_run(self, request, err, n, operand, "copying", trim, &d);
}

const struct command command_trim = {
    .name = "trim",
    .group = "files",
    .summary = "copy some heads and tokens of a trace to a new trace",
    .example = "kvfate trace trim run.kvf --head L0-5K* --tokens 0:8 -o piece.kvf",
    .needs = "-o OUT.kvf",
    .operands = {"X.kvf", "trace", 1, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_trim,
};
