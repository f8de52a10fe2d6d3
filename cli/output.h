/* output.h - where the table of a measurement goes: a file or figure by its extension, JSON
 * or TSV on the standard output. */
#ifndef KVF_CLI_OUTPUT_H
#define KVF_CLI_OUTPUT_H

#include <stdbool.h>

#include "base/table_io.h"
#include "cli/figure_options.h"

struct output {
    const char *path; /* of -o, checked before; "-": TSV on the standard output, or the figure
                         where that is a terminal; NULL: none */
    bool json;        /* JSON on the standard output, beside a file too */
    const struct figure_options *look; /* of the table's figure; NULL: it has none */
    const char *figure;                /* another figure of the table; NULL: that of its name */
};

/* table_write with a line of progress, but where the standard output is a terminal or a pipe to
 * what may be one. */
int output_write(const struct table *t, enum table_format f, const char *path, struct kvf_diag *d);

/* Whether path is "-", NULL, or a name by which a table of that name can be written or drawn:
 * KVF_OK, or KVF_E_ARG with a sentence. */
int output_check(const char *path, const char *table, struct kvf_diag *d);

/* Writes or draws the table where o says.  KVF_OK, or what table_write or figure_write
 * gives. */
int output_table(const struct output *o, const struct table *t, struct kvf_diag *d);

/* Whether the standard output is free for a summary. */
bool output_summary(const struct output *o);

#endif
