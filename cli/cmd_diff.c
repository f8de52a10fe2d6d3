/* cmd_diff.c - what differs between two traces.  Exit statuses are those of
 * diff(1): 0 equal, 1 different, 2 trouble. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/diff.h"
#include "base/table_io.h"
#include "cli/cmds.h"

enum { DIFF_EQUAL = 0, DIFF_DIFFERENT = 1, DIFF_TROUBLE = 2 };

static int deliver(const struct table *t, const char *out, bool json, struct kvf_diag *d)
{
    bool screen = json || (out && strcmp(out, "-") == 0);
    struct buf b = {0};
    int err = KVF_OK;
    if (screen || out)
        err = table_write(t,
                          json     ? TABLE_JSON
                          : screen ? TABLE_TSV
                                   : table_format_of(out),
                          screen ? "-" : out, d);
    if (err || screen)
        return err;
    diff_describe(t, &b);
    err = b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
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
     "tsv, csv, json or npz by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "the table as JSON to stdout"},
    {OPT_FLAG, 0, "no-header", offsetof(struct request, args.no_header), NULL,
     "compare columns and texts alone"},
    {.type = OPT_END},
};

int cmd_diff(const struct command *self, int argc, char **argv)
{
    struct request q = {0};
    struct kvf_diag d = {""};
    struct kvf_trace *t[2] = {NULL, NULL};
    struct table *table = NULL;
    bool equal = false;
    int operands, status;
    if (!command_options(self, options, &q, argc, argv, 2, 2, &operands, &status))
        return status;
    int err = KVF_OK;
    if (q.out && strcmp(q.out, "-") != 0 && table_format_of(q.out) == TABLE_FORMAT_NONE)
        err = kvf_fail(&d, KVF_E_ARG, "-o %s: the name must end in .tsv, .csv, .json or .npz",
                       q.out);
    if (!err)
        err = open_both(self, argv, t, &d);
    if (!err)
        err = diff_compare(t[0], t[1], &q.args, &table, &equal, &d);
    if (!err)
        err = deliver(table, q.out, q.json, &d);
    if (!err && fflush(stdout) != 0) /* its status would be 1 */
        err = kvf_fail(&d, KVF_E_IO, "standard output: %s", strerror(errno));
    if (err)
        fprintf(stderr, "kvfate %s: %s\n", self->name, d.text[0] ? d.text : kvf_strerror(err));
    table_destroy(table);
    kvf_close(t[0]);
    kvf_close(t[1]);
    return err ? DIFF_TROUBLE : equal ? DIFF_EQUAL : DIFF_DIFFERENT;
}
