/* cmd_draw.c - `kvfate draw` draws figures from saved tables, and from the difference of two
 * tables. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/table_io.h"
#include "cli/commands.h"
#include "base/files.h"
#include "cli/draw_layout.h"
#include "cli/output.h"
#include "cli/saved_table.h"
#include "cli/table_minus.h"

struct job {
    const char *out, *figure, *minus, *value, *layout;
    int letters;
    bool json;
    struct figure_options look;
    int64_t threads;
};

/* Returns the column that a map of the table shows: --value, or the default of the table, or NULL.
 */
static const char *value_of(const struct job *j, const struct table *t)
{
    if (j->value)
        return j->value;
    return strcmp(table_name(t), "effect") == 0 ? "kl" : figure_value(table_name(t));
}

static int subtract(struct job *j, struct table **t, struct kvf_diag *d)
{
    struct table *b = NULL, *out = NULL;
    int64_t alone = 0;
    const struct table_minus q = {value_of(j, *t), j->look.style.option};
    int err = saved_table_open(j->minus, true, &b, d);
    if (err)
        return err;
    if (strcmp(table_name(*t), table_name(b)) != 0)
        err = kvf_fail(d, KVF_E_ARG, "--minus: a table %s is not subtracted from a table %s",
                       table_name(b), table_name(*t));
    else if (!q.value)
        err = kvf_fail(d, KVF_E_ARG, "--minus: which column of table %s? Name it with --value",
                       table_name(*t));
    else
        err = table_minus(*t, b, &q, &out, &alone, d);
    if (!err && alone)
        fprintf(stderr, "note: %" PRId64 " rows have no partner and are left out\n", alone);
    if (!err) {
        table_destroy(*t);
        *t = out;
        /* --style selected rows for the subtraction, so the figure must not parse it */
        j->look.style.option = NULL;
    }
    table_destroy(b);
    return err;
}

/* Returns whether a figure may be drawn, also on a terminal or to check --style. */
static bool may_draw(const struct job *j)
{
    bool file = !j->out || table_format_of(j->out) != TABLE_FORMAT_NONE;
    return !file || j->minus || j->look.preview || j->look.style.option;
}

static int check_output(const struct job *j, const char *path, struct kvf_diag *d)
{
    if (!j->out && !j->json && !j->look.preview)
        return kvf_fail(d, KVF_E_ARG, "where to? -o FILE.{png,svg,pdf}, or --preview");
    if (j->minus && j->figure)
        return kvf_fail(
            d, KVF_E_ARG,
            "--figure has no effect with --minus, which has its own figure; leave it out");
    if (j->value && !j->minus)
        return kvf_fail(d, KVF_E_ARG, "--value belongs to --minus");
    if (!j->out || strcmp(j->out, "-") == 0)
        return KVF_OK;
    if (!figure_can_write(j->out) && table_format_of(j->out) == TABLE_FORMAT_NONE)
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: the name must end in .png, .svg, .pdf, .tsv, .csv, "
                        ".json, .npz or .sqlite",
                        j->out);
    if (file_same(path, j->out) || (j->minus && file_same(j->minus, j->out)))
        return kvf_fail(d, KVF_E_ARG, "-o %s would overwrite the table", j->out);
    return KVF_OK;
}

static int check_figure(const struct job *j, const struct table *t, const char *path,
                        struct kvf_diag *d)
{
    const struct figure *f;
    if (j->figure)
        return figure_named("--figure: ", j->figure, table_name(t), &f, d);
    f = figure_of_table(table_name(t));
    bool own = f && figure_draws(f, table_name(t));
    if (!own && j->out && figure_can_write(j->out))
        return kvf_fail(
            d, KVF_E_ARG,
            "%s: table '%.80s' has no figure; 'kvfate list figures' lists the tables with figures",
            path, table_name(t));
    return KVF_OK;
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct job, out), "OUT",
     "png, svg or pdf by extension; tsv, csv, json, npz, sqlite: the table; -"},
    {OPT_STR, 0, "figure", offsetof(struct job, figure), "NAME", "another figure of the table"},
    {OPT_STR, 0, "layout", offsetof(struct job, layout), "ab/cc",
     "draw several tables as panels of a page, in rows of letters"},
    {OPT_WORD, 0, "letters", offsetof(struct job, letters), "FORM", "how panels are lettered", "a",
     .words = layout_letters},
    {OPT_STR, 0, "minus", offsetof(struct job, minus), "TABLE", "draw the difference to this one"},
    {OPT_STR, 0, "value", offsetof(struct job, value), "COLUMN", "column to subtract",
     .absent = "the figure's"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL,
     "the table as JSON on the standard output"},
    {OPT_INT, 't', "threads", offsetof(struct job, threads), "N", "threads",
     .absent = "number of cores", .min = 1, .max = 256},
    {OPT_GROUP, 0, "figure", offsetof(struct job, look), .group = figure_options},
    {.type = OPT_END},
};

/* Draws several tables on one page. */
static int draw_layout(const struct command *self, struct job *j, int n, char **operand)
{
    struct kvf_diag d = {""};
    const struct draw_layout x = {j->layout, (enum layout_letters)j->letters, n, operand};
    j->look.style.threads = (int)j->threads;
    int err = figure_options_check(&j->look, j->out, j->json, &d);
    if (!err
        && (j->figure || j->minus || j->value || j->json || j->look.preview || j->look.caption
            || j->look.style.option))
        err = kvf_fail(&d, KVF_E_ARG,
                       "--layout: a panel is TABLE, TABLE@FIGURE or TABLE@FIGURE:KEY=VALUE,..., "
                       "drawn with -o FILE.{png,svg,pdf}; --figure, --style, --minus, --value, "
                       "--json, --preview and --caption do not go with it");
    if (!err && (!j->out || !figure_can_write(j->out)))
        err = kvf_fail(&d, KVF_E_ARG, "where to? -o FILE.{png,svg,pdf}");
    if (!err)
        err = draw_layout_write(&x, &j->look.style, j->out, &d);
    if (!err)
        figure_options_note(&j->look);
    return command_end(self, err, &d);
}

/* Parses an operand. The figure and the style of TABLE@FIGURE:KEY=VALUE,... act as --figure and
 * --style. */
static int parse_operand(struct job *j, const char *text, struct draw_operand *ret,
                         struct kvf_diag *d)
{
    int err = draw_operand(text, ret, d);
    if (err || !ret->figure)
        return err;
    if (j->figure || (ret->option && j->look.style.option))
        return kvf_fail(d, KVF_E_ARG, "%.200s names its figure%s; --figure%s is for a single table",
                        text, ret->option ? " and its style" : "",
                        ret->option ? " or --style" : "");
    j->figure = ret->figure->name;
    if (ret->option)
        j->look.style.option = ret->option;
    return KVF_OK;
}

static int cmd_draw(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    struct kvf_diag d = {""};
    if (j->layout)
        return draw_layout(self, j, n, operand);
    if (n > 1)
        return command_end(
            self, kvf_fail(&d, KVF_E_ARG, "several tables are panels of a page: --layout ab/cc"),
            &d);
    struct table *t = NULL;
    struct draw_operand x;
    int err = parse_operand(j, operand[0], &x, &d);
    if (!err)
        err = figure_options_check(&j->look, j->out, j->json, &d);
    if (!err)
        err = check_output(j, x.path, &d);
    if (!err)
        figure_prepare();
    if (!err)
        err = saved_table_open(x.path, may_draw(j), &t, &d);
    if (!err)
        err = j->minus ? subtract(j, &t, &d) : check_figure(j, t, x.path, &d);
    const struct output o = {j->out, j->json, &j->look, j->figure};
    if (!err)
        err = output_table(&o, t, &d);
    table_destroy(t);
    return command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"2", "The command line was wrong, or this table has no such figure; no file was written."},
    {NULL, NULL},
};

const struct command command_draw = {
    .name = "draw",
    .group = "files",
    .summary = "draw figures from saved tables, or from the difference of two tables",
    .example = "kvfate draw h2o.tsv --minus full.tsv -o difference.pdf",
    .needs = "-o OUT.{png,svg,pdf}",
    .operands = {"TABLE[@FIGURE[:KEY=VALUE,...]] [TABLE...]", "table", 1, LAYOUT_PANELS},
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_draw,
};
