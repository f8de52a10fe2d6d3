/* cmd_diff.c - `kvfate trace diff` lists differences between two traces. The exit statuses equal
 * those of diff(1): 0 if equal, 1 if different, 2 on errors. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/table_io.h"
#include "cli/open_traces.h"
#include "cli/output.h"
#include "cli/shown.h"
#include "cli/watcher.h"
#include "studies/diff.h"

enum { DIFF_EQUAL = 0, DIFF_DIFFERENT = 1, DIFF_TROUBLE = 2 };

static int deliver(const struct table *t, const char *out, bool json, struct kvf_diag *d)
{
    const struct output o = {.path = json ? NULL : out, .json = json};
    struct buf b = {0};
    int err = output_table(&o, t, d);
    if (err || !output_summary(&o))
        return err;
    diff_describe(t, &b);
    err = b.err;
    if (!err)
        shown_print(b.data, b.len);
    buf_finish(&b);
    return err;
}

struct request {
    struct diff_args args;
    const char *out;
    bool json;
};

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, out), "OUT",
     "tsv, csv, json, npz or sqlite by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "the table as JSON to stdout"},
    {OPT_FLAG, 0, "no-header", offsetof(struct request, args.no_header), NULL,
     "compare only columns and texts"},
    {.type = OPT_END},
};

static int cmd_diff(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    struct request *q = request;
    struct kvf_diag d = {""};
    struct kvf_trace *t[2] = {NULL, NULL};
    struct table *table = NULL;
    bool equal = false;
    int err = KVF_OK;
    if (q->out && strcmp(q->out, "-") != 0 && table_format_of(q->out) == TABLE_FORMAT_NONE)
        err = kvf_fail(&d, KVF_E_ARG,
                       "-o %s: the name must end in .tsv, .csv, .json, .npz or .sqlite", q->out);
    if (!err)
        err = open_both(self, operand, t, &d);
    struct watcher w = watcher_begin(self->name);
    if (!err)
        kvf_watch(t[0], watcher_update, &w);
    if (!err)
        err = diff_compare(t[0], t[1], &q->args, &table, &equal, &d);
    watcher_end(&w);
    if (!err)
        err = deliver(table, q->out, q->json, &d);
    /* the check in commands_main() would exit with 1, which means a difference here */
    if (!err && fflush(stdout) != 0)
        err = kvf_fail(&d, KVF_E_IO, "standard output: %s", strerror(errno));
    command_print_error(self, err, &d);
    table_destroy(table);
    kvf_close(t[0]);
    kvf_close(t[1]);
    if (err)
        return DIFF_TROUBLE;
    return equal ? DIFF_EQUAL : DIFF_DIFFERENT;
}

static const struct exit_status exits[] = {
    {"0", "Nothing differs."},
    {"1", "Something differs."},
    {"2", "Trouble: the command line was wrong, or a trace could not be read."},
    {NULL, NULL},
};

const struct command command_diff = {
    .name = "diff",
    .group = "files",
    .summary = "compare two traces column by column",
    .example = "kvfate trace diff a.kvf b.kvf",
    .operands = {"A.kvf B.kvf", "trace", 2, 2},
    .options = options,
    .request_bytes = sizeof(struct request),
    .exits = exits,
    .run = cmd_diff,
};
