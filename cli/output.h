/* output.h - writes the table of a measurement to a file or figure by its extension, or as JSON or
 * TSV to the standard output. */
#ifndef KVF_CLI_OUTPUT_H
#define KVF_CLI_OUTPUT_H

#include <stdbool.h>

#include "base/table_io.h"
#include "cli/figure_options.h"

/* The destination of a table. */
struct output {
    /* value of -o, already checked. "-" is the standard output: TSV, or the figure on a terminal.
     * NULL if not given */
    const char *path;
    bool json;                         /* JSON on the standard output, in addition to a file */
    const struct figure_options *look; /* options of the table's figure; NULL if it has no figure */
    const char *figure; /* name of another figure of the table; NULL for its default figure */
};

/* Writes a table with table_write() and shows its progress. Shows no progress if the table is
 * written to a terminal or to a pipe. */
int output_write(const struct table *t, enum table_format f, const char *path, struct kvf_diag *d);

/* Checks that path is "-", NULL, or a name with an extension in which the table `table` can be
 * written or drawn. Returns KVF_OK, or KVF_E_ARG with a sentence. */
int output_check(const char *path, const char *table, struct kvf_diag *d);

/* Writes or draws the table as `o` specifies. Returns KVF_OK, or an error of table_write() or
 * figure_write(). */
int output_table(const struct output *o, const struct table *t, struct kvf_diag *d);

/* Returns true if the standard output receives neither a table nor a figure, so that a summary can
 * be printed. */
bool output_summary(const struct output *o);

#endif
