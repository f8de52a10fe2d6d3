/* options.h - what --style tells a figure, and cells as text. */
#ifndef KVF_RENDER_OPTIONS_H
#define KVF_RENDER_OPTIONS_H

#include "base/table.h"

enum { OPTION_BYTES = 64 };

/* A key of --style with its default: one of "a|b|c", any text (allowed ""), or a number
 * (allowed NULL) within [least, most]. */
struct option_key {
    const char *name, *allowed;
    char value[OPTION_BYTES];
    double number, least, most;
};

/* Takes "key=value,..." of figure into keys[0..n); NULL leaves the defaults.  KVF_OK, or
 * KVF_E_ARG with a sentence that lists what the figure knows. */
int options_read(const char *figure, const char *option, struct option_key *key, int n,
                 struct kvf_diag *d);

/* Which of "a|b|c" value is, counted from 0. */
int option_index(const struct option_key *k);

/* KVF_OK, or KVF_E_ARG with a sentence on --size when the canvas is less than w x h mm. */
struct canvas;
int canvas_room(const struct canvas *c, const char *figure, double w, double h, struct kvf_diag *d);

/* The cell as text, also of a column of numbers (a saved table has no types, so that names
 * which are all digits come back as numbers). */
const char *cell_text(const struct table *t, int col, int64_t row, char out[24]);

/* Whether the column exists and holds numbers. */
int numeric_column(const struct table *t, const char *name); /* its number, or -1 */

#endif
