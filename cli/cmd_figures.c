/* cmd_figures.c - `kvfate list figures` lists the figures, or the --style keys of one figure. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/figure_options.h"
#include "render/figure.h"

struct request {
    bool json;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "a JSON array"},
    {.type = OPT_END},
};

/* Prints a line such as "  by=auto|class: HELP (default: auto)" for each key of
 * --style. */
static void print_keys(const struct figure *f)
{
    for (const struct opt *o = f->style; o && o->type != OPT_END; o++) {
        const char *usual = o->absent ? o->absent : o->standard;
        printf("  %s=%s", o->name, o->words ? o->words[0] : o->arg);
        for (int i = 1; o->words && o->words[i]; i++)
            printf("|%s", o->words[i]);
        printf(": %s", o->help);
        if (usual)
            printf(" (default: %s)", usual);
        putchar('\n');
    }
}

/* Prints the name of a figure, padded to some width, its tables and its summary. */
static void print_line(const struct figure *f, int width, const char *before)
{
    char room[256] = "";
    for (int i = 0, used = 0; figure_table_at(f, i) && used < (int)sizeof room; i++)
        used += snprintf(room + used, sizeof room - (size_t)used, "%s%s", i ? ", " : "",
                         figure_table_at(f, i));
    printf("%-*s of %-*s%s %s\n", width, f->name, width ? 10 : 0, room, before, f->summary);
}

static int print_figure(const char *name, struct kvf_diag *d)
{
    const struct figure *f;
    int err = figure_named("", name, NULL, &f, d);
    if (err)
        return err;
    print_line(f, 0, ":");
    if (f->style && f->style->type != OPT_END)
        printf("--style KEY=VALUE,...\n");
    print_keys(f);
    return KVF_OK;
}

static int cmd_figures(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct kvf_diag d = {""};
    if (n && q->json)
        return command_end(self, kvf_fail(&d, KVF_E_ARG, "--json is of all figures"), &d);
    if (n)
        return command_end(self, print_figure(operand[0], &d), &d);
    if (q->json) {
        struct buf out = {0};
        figures_json(&out);
        if (!out.err)
            fwrite(out.data, 1, out.len, stdout);
        buf_finish(&out);
        return out.err ? EXIT_FAILED : EXIT_OK;
    }
    for (const struct figure *const *f = figure_table; *f; f++)
        print_line(*f, 13, "");
    return EXIT_OK;
}

const struct command command_figures = {
    .name = "figures",
    .group = "running",
    .summary = "list the figures, or the style keys of one figure",
    .example = "kvfate list figures pareto",
    .operands = {"[NAME]", "figure", 0, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_figures,
};
