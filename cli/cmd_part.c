/* cmd_part.c - `kvfate trace diff --first` finds the first step where two runs differ. */
#include <stdio.h>
#include <string.h>

#include "base/table_io.h"
#include "cli/open_traces.h"
#include "cli/output.h"
#include "cli/shown.h"
#include "studies/part.h"

struct request {
    struct part_args args;
    const char *out;
    int64_t most;
    bool entries, json;
};

static int check(const struct request *q, struct kvf_diag *d)
{
    if (q->out && table_format_of(q->out) == TABLE_FORMAT_NONE && strcmp(q->out, "-") != 0)
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: the name must end in .tsv, .csv, .json, .npz or .sqlite", q->out);
    return KVF_OK;
}

static int describe(const struct part *p, const struct request *q, char **operand,
                    struct kvf_diag *d)
{
    const char *const name[2] = {operand[0], operand[1]};
    struct buf b = {0};
    int err = part_describe(p, name, q->most < 0 ? 10 : q->most, &b, d);
    if (!err && b.len)
        shown_print(b.data, b.len);
    buf_finish(&b);
    return err;
}

static int deliver(const struct part *p, const struct request *q, char **operand,
                   struct kvf_diag *d)
{
    struct table *t = NULL;
    if (!q->json && !q->out)
        return describe(p, q, operand, d);
    int64_t most = q->most < 0 ? 0 : q->most;
    int err = q->entries ? part_entries(p, false, most, &t, d) : part_heads(p, &t, d);
    const struct output o = {.path = q->json ? NULL : q->out, .json = q->json};
    if (!err)
        err = output_table(&o, t, d);
    table_destroy(t);
    return err || !output_summary(&o) ? err : describe(p, q, operand, d);
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, out), "OUT",
     "tsv, csv, json, npz or sqlite by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "the table as JSON to stdout"},
    {OPT_FLAG, 0, "entries", offsetof(struct request, entries), NULL,
     "a table of the entries that differ instead of the heads"},
    {OPT_STR, 0, "head", offsetof(struct request, args.heads), "SET", "heads: L0-5K*, 15.2",
     .absent = "all"},
    {OPT_INT, 'n', "most", offsetof(struct request, most), "N", "most entries to list", "-1",
     .absent = "10; all in a table", .max = 1 << 30},
    {OPT_FLAG, 0, "common", offsetof(struct request, args.common), NULL,
     "of runs of different length, the steps that both have"},
    {.type = OPT_END},
};

static int cmd_part(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    struct request *q = request;
    struct kvf_diag d = {""};
    struct kvf_trace *t[2] = {NULL, NULL};
    struct part *p = NULL;
    int err = check(q, &d);
    if (err)
        return command_end(self, err, &d);
    err = open_both(self, operand, t, &d);
    if (err)
        goto done;
    traces_report_diverged(self, t, 2);
    err = part_compare(t[0], t[1], &q->args, &p, &d);
    if (!err)
        err = deliver(p, q, operand, &d);
done:
    part_free(p);
    kvf_close(t[0]);
    kvf_close(t[1]);
    return command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"0", "The runs were compared; they may be equal or not."},
    {"1", "A trace could not be read, is damaged, or lacks evictions."},
    {"2", "The command line was wrong, or the runs cannot be compared: they differ in layers, "
          "heads or tokens."},
    {NULL, NULL},
};

const struct command command_part = {
    .name = "part",
    .group = "files",
    .summary = "find the first step where two runs differ",
    .example = "kvfate trace diff --first full.kvf h2o.kvf",
    .operands = {"A.kvf B.kvf", "trace", 2, 2},
    .options = options,
    .request_bytes = sizeof(struct request),
    .exits = exits,
    .run = cmd_part,
};
