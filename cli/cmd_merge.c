/* cmd_merge.c - `kvfate corpus merge` adds up the state files of shards, of a corpus or of an
 * evaluation. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/corpus_out.h"
#include "engine/experiment/eval_state.h"

/* Reads a state file, and rejects it unless all its documents are done. */
static int read_state(const char *path, struct corpus **ret, struct kvf_diag *d)
{
    int err = corpus_read(path, ret, d);
    if (err)
        return err;
    uint64_t done = (uint64_t)corpus_counted(*ret).documents, all = corpus_planned(*ret)->documents;
    if (done == all)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "%s: not finished, %llu of %llu documents: run it to its end "
                    "first",
                    path, (unsigned long long)done, (unsigned long long)all);
}

static int merge(int n, char **path, struct corpus **ret, struct kvf_diag *d)
{
    int err = read_state(path[0], ret, d);
    for (int i = 1; !err && i < n; i++) {
        struct corpus *b = NULL;
        err = read_state(path[i], &b, d);
        if (!err) {
            err = corpus_merge(*ret, b, d);
            if (err)
                kvf_diag_prefix(d, "%s", path[i]);
        }
        corpus_destroy(b);
    }
    return err;
}

struct request {
    struct corpus_target to;
    const char *state;
};

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, to.out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct request, to.json), NULL, "the table as JSON to stdout"},
    {OPT_STR, 0, "figure", offsetof(struct request, to.figure), "NAME",
     "another figure of this table"},
    {OPT_STR, 0, "state", offsetof(struct request, state), "FILE",
     "also write the sums of all parts"},
    {OPT_GROUP, 0, "figure", offsetof(struct request, to.look), .group = figure_options},
    {.type = OPT_END},
};

/* Merges result files of an evaluation into one file, from which `kvfate eval --state`
 * continues. */
static int merge_results(const struct command *self, const struct request *q, int n, char **path)
{
    struct kvf_diag d = {""};
    int err = KVF_OK;
    if (!q->state || q->to.out || q->to.json || q->to.figure)
        err = kvf_fail(&d, KVF_E_ARG,
                       "the inputs are results of an evaluation: give only --state FILE; `kvfate "
                       "eval` with that file then makes the table at once");
    if (!err)
        err = eval_states_merge(path, n, q->state, &d);
    return command_end(self, err, &d);
}

static int cmd_merge(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct corpus *c = NULL;
    struct kvf_diag d = {""};
    if (eval_state_is(operand[0]))
        return merge_results(self, q, n, operand);
    int err = merge(n, operand, &c, &d), wrong = KVF_OK;
    if (!err)
        err = wrong = corpus_out_check(corpus_analyzer(c), &q->to, &d);
    if (!err && q->state)
        err = corpus_write(c, q->state, &d);
    if (!err) {
        err = corpus_out(c, &q->to, &d);
        wrong = err == KVF_E_ARG ? err : KVF_OK;
    }
    corpus_destroy(c);
    command_print_error(self, err, &d);
    if (err && wrong)
        return EXIT_USAGE;
    return err ? EXIT_FAILED : EXIT_OK;
}

const struct command command_merge = {
    .name = "merge",
    .group = "files",
    .summary = "merge the saved states of shards of corpus or eval",
    .example = "kvfate corpus merge one.state two.state -o survival.tsv",
    .operands = {"A.state...", "state", 1, -1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_merge,
};
