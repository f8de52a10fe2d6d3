/* cmd_diff.c - what differs between two traces.  Exit statuses are those of
 * diff(1): 0 equal, 1 different, 2 trouble. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/table_io.h"
#include "cli/cmds.h"
#include "studies/diff.h"

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

int cmd_diff(const struct command *self, int argc, char **argv)
{
    struct diff_args args = {false};
    struct kvf_diag d = {""};
    struct kvf_trace *t[2] = {NULL, NULL};
    struct table *table = NULL;
    const char *out = NULL;
    bool json = false, equal = false;
    int operands, status;
    const struct opt list[] = {
        {OPT_STR, 'o', "output", &out, "OUT", "tsv, csv, json or npz by extension; - = TSV", 0, 0},
        {OPT_FLAG, 0, "json", &json, NULL, "the table as JSON to stdout", 0, 0},
        {OPT_FLAG, 0, "no-header", &args.no_header, NULL, "compare columns and texts alone", 0, 0},
        {.type = OPT_END},
    };
    if (!command_options(self, list, argc, argv, 2, 2, &operands, &status))
        return status;
    int err = KVF_OK;
    if (out && strcmp(out, "-") != 0 && table_format_of(out) == TABLE_FORMAT_NONE)
        err = kvf_fail(&d, KVF_E_ARG, "-o %s: the name must end in .tsv, .csv, .json or .npz", out);
    if (!err)
        err = open_both(self, argv, t, &d);
    if (!err)
        err = diff_compare(t[0], t[1], &args, &table, &equal, &d);
    if (!err)
        err = deliver(table, out, json, &d);
    if (!err && fflush(stdout) != 0) /* its status would be 1 */
        err = kvf_fail(&d, KVF_E_IO, "standard output: %s", strerror(errno));
    if (err)
        fprintf(stderr, "kvfate %s: %s\n", self->name, d.text[0] ? d.text : kvf_strerror(err));
    table_destroy(table);
    kvf_close(t[0]);
    kvf_close(t[1]);
    return err ? DIFF_TROUBLE : equal ? DIFF_EQUAL : DIFF_DIFFERENT;
}
