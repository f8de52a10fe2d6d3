/* cmd_figures.c - the list of figures. */
#include <stdio.h>

#include "cli/commands.h"
#include "render/figure.h"

struct request {
    bool json;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "a JSON array"},
    {.type = OPT_END},
};

static int cmd_figures(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    (void)self;
    (void)operand;
    struct request *q = request;
    if (q->json) {
        struct buf out = {0};
        figures_json(&out);
        if (!out.err)
            fwrite(out.data, 1, out.len, stdout);
        buf_finish(&out);
        return out.err ? EXIT_FAILED : EXIT_OK;
    }
    for (const struct figure *const *f = figure_table; *f; f++)
        printf("%-13s of %-10s %s\n", (*f)->name, (*f)->table, (*f)->summary);
    return EXIT_OK;
}

const struct command command_figures = {
    .name = "figures",
    .group = "analyses",
    .summary = "list the figures",
    .example = "kvfate figures",
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_figures,
};
