/* figure_options.h - the options that every command with a figure has, once: --size, --dpi,
 * --cmap, --vmin, --vmax, --title, --font, --style, --preview. */
#ifndef KVF_CLI_FIGURE_OPTIONS_H
#define KVF_CLI_FIGURE_OPTIONS_H

#include "base/opt.h"
#include "render/figure.h"

struct figure_options {
    struct figure_style style; /* complete after figure_options_check */
    const char *size;
    bool preview, boxes; /* boxes: text was drawn that no font has */
    int64_t dpi;
};

extern const struct opt figure_options[]; /* of a struct figure_options */

/* Turns what was given into f->style.  out, json: -o and --json of the command; options of a figure
 * are rejected where neither they nor --preview draw one, but for --style, which is checked all the
 * same (figure_options_idle).  KVF_OK, or KVF_E_ARG with a sentence. */
int figure_options_check(struct figure_options *f, const char *out, bool json, struct kvf_diag *d);

/* Checks --style where no figure is asked for: the figure f is drawn and thrown away, so that a
 * wrong key is refused all the same.  f: NULL where the table has no figure.  KVF_OK without
 * --style. */
int figure_options_idle(const struct figure_options *o, const struct figure *f,
                        const struct table *t, struct kvf_diag *d);

/* figure_write, and a note where text was drawn as boxes, since no installed font has it. */
int figure_options_write(const struct figure_options *o, const struct figure *f,
                         const struct table *t, const char *path, struct kvf_diag *d);
/* The note alone. */
void figure_options_note(const struct figure_options *o);

/* The figure of that name that draws a table; table NULL: any table.  KVF_E_ARG says which figures
 * there are, and the nearest by name.  option: what the user gave it by, "--figure: " or "". */
int figure_named(const char *option, const char *name, const char *table, const struct figure **ret,
                 struct kvf_diag *d);

/* "88x60", "88mmx60mm", "3.5x2.2in", "88mm" (a width alone: height 0), or a name such as
 * "single-column"; units mm, cm, in and pt, of which one holds for both. */
bool figure_size_parse(const char *s, double *ret_w_mm, double *ret_h_mm);

#endif
