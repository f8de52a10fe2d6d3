/* cmd_part.c - the first step at which two runs part. */
#include <stdio.h>
#include <string.h>

#include "analyzers/part.h"
#include "base/table_io.h"
#include "cli/cmds.h"

struct request {
    struct part_args args;
    const char *out;
    int64_t most;
    bool entries, json;
};

static int check(const struct request *q, struct kvf_diag *d)
{
    if (q->out && table_format_of(q->out) == TABLE_FORMAT_NONE && strcmp(q->out, "-") != 0)
        return kvf_fail(d, KVF_E_ARG, "-o %s: the name must end in .tsv, .csv, .json or .npz",
                        q->out);
    return KVF_OK;
}

static int describe(const struct part *p, const struct request *q, char **argv, struct kvf_diag *d)
{
    const char *const name[2] = {argv[1], argv[2]};
    struct buf b = {0};
    int err = part_describe(p, name, q->most < 0 ? 10 : q->most, &b, d);
    if (!err && b.len)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return err;
}

static int deliver(const struct part *p, const struct request *q, char **argv, struct kvf_diag *d)
{
    struct table *t = NULL;
    if (!q->json && !q->out)
        return describe(p, q, argv, d);
    int err = q->entries ? part_entries(p, false, q->most < 0 ? 0 : q->most, &t, d)
                         : part_heads(p, &t);
    bool screen = q->json || strcmp(q->out, "-") == 0;
    if (!err)
        err = table_write(t,
                          q->json  ? TABLE_JSON
                          : screen ? TABLE_TSV
                                   : table_format_of(q->out),
                          screen ? "-" : q->out, d);
    table_destroy(t);
    return err || screen ? err : describe(p, q, argv, d);
}

int open_both(const struct command *self, char **argv, struct kvf_trace *ret[2], struct kvf_diag *d)
{
    for (int s = 0; s < 2; s++) {
        int err = kvf_open(argv[1 + s], KVF_OPEN_TAIL, &ret[s], d);
        if (err)
            return err;
        if (!kvf_is_clean(ret[s]))
            fprintf(stderr,
                    "kvfate %s: %s was not closed: comparing its last snapshot "
                    "(%u steps)\n",
                    self->name, argv[1 + s], kvf_n_steps(ret[s]));
    }
    return KVF_OK;
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, out), "OUT",
     "tsv, csv, json or npz by extension; - = TSV"},
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

int cmd_part(const struct command *self, int argc, char **argv)
{
    struct request q = {0};
    struct kvf_diag d = {""};
    struct kvf_trace *t[2] = {NULL, NULL};
    struct part *p = NULL;
    int operands, status;
    if (!command_options(self, options, &q, argc, argv, 2, 2, &operands, &status))
        return status;
    int err = check(&q, &d);
    if (!err)
        err = open_both(self, argv, t, &d);
    if (!err)
        err = part_compare(t[0], t[1], &q.args, &p, &d);
    if (!err)
        err = deliver(p, &q, argv, &d);
    if (err)
        fprintf(stderr, "kvfate %s: %s\n", self->name, d.text[0] ? d.text : kvf_strerror(err));
    part_free(p);
    kvf_close(t[0]);
    kvf_close(t[1]);
    return err == KVF_OK ? EXIT_OK : err == KVF_E_ARG ? EXIT_USAGE : EXIT_FAILED;
}
