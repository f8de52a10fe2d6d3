/* cmd_split.c - `kvfate trace split` divides a trace into parts of consecutive steps. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "base/files.h"
#include "cli/made_trace.h"

enum { MOST_PARTS = 512 }; /* the maximum of 'kvfate trace cat', too */

struct request {
    struct made_trace made; /* its member out is the pattern of names */
    int64_t steps, parts;
};

static const struct opt options[] = {
    {OPT_INT, 0, "steps", offsetof(struct request, steps), "N", "tokens and steps of a part",
     .min = 1, .max = KVF_MAX_STEPS},
    {OPT_INT, 0, "parts", offsetof(struct request, parts), "N", "parts of about equal length",
     .min = 1, .max = MOST_PARTS},
    {OPT_STR, 'o', "output", offsetof(struct request, made.out), "PATTERN.kvf",
     "names of the parts, with %d for their numbers: part-%d.kvf"},
    {OPT_FLAG, 0, "overwrite", offsetof(struct request, made.overwrite), NULL,
     "replace traces that are there"},
    {.type = OPT_END},
};

static int check(const struct request *q, struct kvf_diag *d)
{
    const char *at = q->made.out ? strstr(q->made.out, "%d") : NULL;
    if (!q->made.out)
        return kvf_fail(d, KVF_E_ARG, "-o PATTERN is missing, such as -o part-%%d.kvf");
    if (!at || strstr(at + 2, "%d"))
        return kvf_fail(
            d, KVF_E_ARG,
            "-o %s: the name must contain one %%d for the number of a part, as in part-%%d.kvf",
            q->made.out);
    if (!q->steps == !q->parts)
        return kvf_fail(d, KVF_E_ARG, "give either --steps N, tokens of a part, or --parts N");
    return KVF_OK;
}

/* Sets *ret to the name of part i of n. All numbers have as many digits as n. */
static int name_part(const char *pattern, int i, int n, struct buf *ret)
{
    int digits = snprintf(NULL, 0, "%d", n);
    const char *at = strstr(pattern, "%d");
    buf_clear(ret);
    buf_add(ret, pattern, (size_t)(at - pattern));
    buf_printf(ret, "%0*d%s", digits, i + 1, at + 2);
    return ret->err;
}

/* Checks before writing that none of the names exists, unless --overwrite was given. */
static int check_names(const struct request *q, int n, struct kvf_diag *d)
{
    struct buf name = {0};
    int err = KVF_OK;
    for (int i = 0; !err && !q->made.overwrite && i < n; i++) {
        err = name_part(q->made.out, i, n, &name);
        err = err ? err : file_vacant(name.data, false, d);
    }
    buf_finish(&name);
    return err;
}

/* Returns the range of tokens of part i of n. */
static struct kvf_piece piece_of(const struct request *q, uint64_t T, uint64_t i, uint64_t n)
{
    uint64_t from = T * i / n, to = T * (i + 1) / n;
    if (q->steps) {
        from = (uint64_t)q->steps * i;
        to = from + (uint64_t)q->steps;
    }
    return (struct kvf_piece){(uint32_t)from, (uint32_t)(to < T ? to : T), NULL};
}

static int write_parts(const struct command *self, const struct request *q, struct kvf_trace *t,
                       int n, struct kvf_diag *d)
{
    struct kvf_copy_request copy = made_trace_request(&q->made);
    struct kvf_piece piece[MOST_PARTS];
    struct buf name = {0};
    copy.trace = t;
    for (int i = 0; i < n; i++)
        piece[i] = piece_of(q, kvf_n_steps(t), (uint64_t)i, (uint64_t)n);
    int err = check_names(q, n, d);
    if (!err)
        err = kvf_check_pieces(t, piece, n, d);
    for (int i = 0; !err && i < n; i++) {
        struct kvf_copied c;
        err = name_part(q->made.out, i, n, &name);
        copy.piece = &piece[i];
        copy.out = name.data;
        if (!err)
            err = made_trace_write(self, &copy, &c, d);
    }
    buf_finish(&name);
    return err;
}

static int split(const struct command *self, const void *request, struct kvf_trace *const *source,
                 struct kvf_diag *d)
{
    const struct request *q = request;
    struct kvf_trace *t = source[0];
    int64_t T = kvf_n_steps(t), n = q->steps ? (T + q->steps - 1) / q->steps : q->parts;
    int err = made_trace_needs_steps(t, d);
    if (err)
        return err;
    if (n > MOST_PARTS)
        return kvf_fail(d, KVF_E_ARG, "--steps %lld makes %lld parts of %lld tokens; at most %d",
                        (long long)q->steps, (long long)n, (long long)T, MOST_PARTS);
    if (n > T)
        return kvf_fail(d, KVF_E_ARG, "--parts %lld: %s has %lld tokens", (long long)n, kvf_path(t),
                        (long long)T);
    return write_parts(self, q, t, (int)n, d);
}

static int cmd_split(const struct command *self, void *request, int n, char **operand)
{
    struct kvf_diag d = {""};
    int err = check(request, &d);
    return made_trace_run(self, request, err, n, operand, "copying", split, &d);
}

const struct command command_split = {
    .name = "split",
    .group = "files",
    .summary = "split a trace into consecutive parts",
    .example = "kvfate trace split run.kvf --parts 2 -o part-%d.kvf",
    .needs = "-o PATTERN",
    .operands = {"X.kvf", "trace", 1, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_split,
};
