/* figure_options.h - the options of every command that draws figures: --size, --dpi, --cmap,
 * --vmin, --vmax, --title, --font, --style, --preview, --caption. */
#ifndef KVF_CLI_FIGURE_OPTIONS_H
#define KVF_CLI_FIGURE_OPTIONS_H

#include "base/opt.h"
#include "render/figure.h"

/* Values of the figure options. */
struct figure_options {
    struct figure_style style; /* complete after figure_options_check() */
    const char *size;
    bool preview, caption;
    bool boxes; /* some characters were drawn as boxes because no font has them */
    int64_t dpi;
};

extern const struct opt figure_options[]; /* fill a struct figure_options */

/* Parses the options into f->style. out and json are the values of -o and --json. Rejects figure
 * options if neither -o nor --preview draws a figure; --style is checked by figure_options_idle()
 * instead. Returns KVF_OK, or KVF_E_ARG with a sentence. */
int figure_options_check(struct figure_options *f, const char *out, bool json, struct kvf_diag *d);

/* Checks --style when no figure is written. Draws the figure f and discards it, so that an unknown
 * key is an error. f is NULL if the table has no figure. Returns KVF_OK if --style was not
 * given. */
int figure_options_idle(const struct figure_options *o, const struct figure *f,
                        const struct table *t, struct kvf_diag *d);

/* Calls figure_write(), then figure_options_note(). */
int figure_options_write(const struct figure_options *o, const struct figure *f,
                         const struct table *t, const char *path, struct kvf_diag *d);
/* Prints a note if characters were drawn as boxes because no installed font has them. */
void figure_options_note(const struct figure_options *o);

/* Finds a figure by name that draws `table`; NULL allows figures of any table. Returns KVF_E_ARG
 * with a sentence that lists the figures and the most similar name. `option` is the prefix of the
 * message, such as "--figure: " or "". */
int figure_named(const char *option, const char *name, const char *table, const struct figure **ret,
                 struct kvf_diag *d);

/* Parses "88x60", "88mmx60mm", "3.5x2.2in", "88mm" (a width only: height 0), or a name such as
 * "single-column". Units are mm, cm, in and pt; a single unit applies to both lengths. Returns
 * false if the text is malformed or out of range. */
bool figure_size_parse(const char *s, double *ret_w_mm, double *ret_h_mm);

#endif
