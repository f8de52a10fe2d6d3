/* cmd_curves.c - `kvfate train curves` makes a table or a figure from the records of trainings. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/table_io.h"
#include "cli/commands.h"
#include "base/files.h"
#include "cli/output.h"
#include "cli/shown.h"
#include "cli/training_table.h"
#include "render/figure.h"

struct job {
    const char *out;
    bool json;
    struct figure_options look;
};

static int check_output(const struct job *j, int n, char **path, struct kvf_diag *d)
{
    if (!j->out || strcmp(j->out, "-") == 0)
        return KVF_OK;
    if (!figure_can_write(j->out) && table_format_of(j->out) == TABLE_FORMAT_NONE)
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: the name must end in .tsv, .csv, .json, .npz, .sqlite, .png, "
                        ".svg or .pdf",
                        j->out);
    for (int i = 0; i < n; i++)
        if (file_same(path[i], j->out))
            return kvf_fail(d, KVF_E_ARG, "-o %s would overwrite the record", j->out);
    return KVF_OK;
}

/* Prints a line for each run: its last step and loss, and the smallest KL of its checks. */
static void summary(const struct table *t)
{
    int run = table_find(t, "run"), step = table_find(t, "step"), loss = table_find(t, "loss");
    int kl = table_find(t, "mean_kl");
    int64_t n = table_rows(t), best = -1;
    double last = NAN;
    for (int64_t r = 0; r < n; r++) {
        double k = kl >= 0 ? table_real(t, kl, r) : NAN;
        if (!isnan(k) && (best < 0 || k < table_real(t, kl, best)))
            best = r;
        if (loss >= 0 && !isnan(table_real(t, loss, r)))
            last = table_real(t, loss, r);
        if (r + 1 < n && strcmp(table_str(t, run, r), table_str(t, run, r + 1)) == 0
            && table_int(t, step, r) < table_int(t, step, r + 1))
            continue;
        shown_print(table_str(t, run, r), strlen(table_str(t, run, r)));
        printf(": step %" PRId64, table_int(t, step, r));
        if (!isnan(last)) /* NaN if there are only checks before the first step */
            printf(", loss %.4f", last);
        if (best >= 0)
            printf("; least KL of the checks %.4f at step %" PRId64, table_real(t, kl, best),
                   table_int(t, step, best));
        printf("\n");
        best = -1;
        last = NAN;
    }
}

static int deliver(const struct job *j, const struct table *t, struct kvf_diag *d)
{
    const struct output o = {j->out, j->json, &j->look, NULL};
    int err = output_table(&o, t, d);
    if (!err && output_summary(&o))
        summary(t);
    return err;
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct job, out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL,
     "the table as JSON on the standard output"},
    {OPT_GROUP, 0, "figure", offsetof(struct job, look), .group = figure_options},
    {.type = OPT_END},
};

static int cmd_curves(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    struct kvf_diag d = {""};
    struct table *t = NULL;
    int err = figure_options_check(&j->look, j->out, j->json, &d);
    if (!err)
        err = check_output(j, n, operand, &d);
    if (!err)
        err = training_table(operand, n, &t, &d);
    if (!err)
        err = deliver(j, t, &d);
    table_destroy(t);
    return command_end(self, err, &d);
}

const struct command command_curves = {
    .name = "curves",
    .group = "training",
    .summary = "plot training and validation curves",
    .example = "kvfate train curves gates.safetensors.log.jsonl -o curves.png",
    .operands = {"LOG.jsonl...", "log", 1, 64},
    .options = options,
    .request_bytes = sizeof(struct job),
    .run = cmd_curves,
};
