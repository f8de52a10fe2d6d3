/* figure_options.c - parses the options of figures. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/caption.h"
#include "cli/figure_options.h"
#include "cli/idle.h"
#include "render/palette.h"

/* Named sizes: the column widths of journals, and the text widths of conference styles. Height 0
 * uses the height that the figure needs. A slide is drawn at half its size: enlarged to 338 x 190
 * mm, text of 6.5 and 7.5 points appears as 14 and 16 points. */
static const struct {
    const char *name;
    double w, h; /* in mm */
} named_size[] = {{"single-column", 88, 0},
                  {"one-and-half-column", 120, 0},
                  {"double-column", 180, 0},
                  {"neurips", 5.5 * 25.4, 0},
                  {"iclr", 5.5 * 25.4, 0},
                  {"icml", 6.75 * 25.4, 0},
                  {"icml-column", 3.25 * 25.4, 0},
                  {"acl", 160, 0},
                  {"acl-column", 77, 0},
                  {"nature", 183, 0},
                  {"nature-column", 89, 0},
                  {"page", 180, 240},
                  {"slide", 160, 90}};
#define SIZE_NAMES                                                                                 \
    "single-column, one-and-half-column, double-column, neurips, iclr, icml, icml-column, acl, "   \
    "acl-column, nature, nature-column, page or slide"

const struct opt figure_options[] = {
    {OPT_STR, 0, "size", offsetof(struct figure_options, size), "WxH",
     "88x60 (mm), 3.5x2.2in, 88mm, single-column, neurips, icml-column, slide, ..."},
    {OPT_INT, 0, "dpi", offsetof(struct figure_options, dpi), "N", "resolution of rasters",
     .absent = "300", .min = 20, .max = 2400},
    {OPT_STR, 0, "cmap", offsetof(struct figure_options, style.cmap), "NAME", PALETTE_NAMES,
     .absent = "mostly viridis"},
    {OPT_REAL, 0, "vmin", offsetof(struct figure_options, style.vmin), "X",
     "lower end of the colours", "nan", .absent = "of the data"},
    {OPT_REAL, 0, "vmax", offsetof(struct figure_options, style.vmax), "X",
     "upper end of the colours", "nan", .absent = "of the data"},
    {OPT_STR, 0, "title", offsetof(struct figure_options, style.title), "TEXT",
     "title of the figure", .absent = "no title"},
    {OPT_STR, 0, "font", offsetof(struct figure_options, style.font), "NAME", "font family",
     .absent = "Lato, or DejaVu Sans where it is missing"},
    {OPT_STR, 0, "style", offsetof(struct figure_options, style.option), "K=V,...",
     "options of the figure"},
    {OPT_FLAG, 0, "preview", offsetof(struct figure_options, preview), NULL,
     "draw the figure on the standard output"},
    {OPT_FLAG, 0, "caption", offsetof(struct figure_options, caption), NULL,
     "print two sentences: the content of the figure, and what to observe"},
    {.type = OPT_END},
};

/* Reads a plain decimal number at *s and advances *s. Signs, exponents, hexadecimal numbers and
 * "inf" are not accepted. */
static bool read_number(const char **s, double *ret)
{
    char text[32];
    size_t n = strspn(*s, "0123456789.");
    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, *s, n);
    text[n] = 0;
    *s += n;
    return opt_real(text, ret);
}

/* Reads a unit at *s, advances *s, and returns its length in mm; 0 if there is no unit. */
static double read_unit(const char **s)
{
    static const struct {
        const char *name;
        double mm;
    } unit[] = {{"mm", 1}, {"cm", 10}, {"in", 25.4}, {"pt", 25.4 / 72}};
    for (int i = 0; i < 4; i++)
        if (strncmp(*s, unit[i].name, 2) == 0) {
            *s += 2;
            return unit[i].mm;
        }
    return 0;
}

static void skip_space(const char **s)
{
    while (**s == ' ')
        ++*s;
}

static bool read_length(const char **s, double *ret, double *unit)
{
    skip_space(s);
    if (!read_number(s, ret))
        return false;
    skip_space(s);
    *unit = read_unit(s);
    skip_space(s);
    return true;
}

bool figure_size_parse(const char *s, double *ret_w_mm, double *ret_h_mm)
{
    double w, h = 0, w_unit, h_unit = 0;
    for (size_t i = 0; i < sizeof named_size / sizeof *named_size; i++)
        if (strcmp(s, named_size[i].name) == 0) {
            *ret_w_mm = named_size[i].w;
            *ret_h_mm = named_size[i].h;
            return true;
        }
    if (!read_length(&s, &w, &w_unit))
        return false;
    bool both = *s == 'x';
    s += both;
    if (both && !read_length(&s, &h, &h_unit))
        return false;
    if (w_unit == 0 && h_unit == 0)
        w_unit = h_unit = 1;
    w *= w_unit > 0 ? w_unit : h_unit; /* a single unit applies to both lengths */
    h *= h_unit > 0 ? h_unit : w_unit;
    if (*s || !(w >= FIGURE_MIN_WIDTH && w <= 5000)
        || (both && !(h >= FIGURE_MIN_HEIGHT && h <= 5000)))
        return false;
    *ret_w_mm = w;
    *ret_h_mm = h;
    return true;
}

int figure_options_idle(const struct figure_options *o, const struct figure *f,
                        const struct table *t, struct kvf_diag *d)
{
    if (!o->style.option)
        return KVF_OK;
    if (!f)
        return kvf_fail(d, KVF_E_ARG,
                        "--style is for figures, and no figure of table %s is drawn; leave it out",
                        table_name(t));
    return figure_try(f, t, &o->style, d);
}

void figure_options_note(const struct figure_options *o)
{
    if (o->boxes)
        fprintf(stderr,
                "note: no installed font has some characters of the text, which are drawn as "
                "boxes; install one that has them and draw again\n");
}

int figure_options_write(const struct figure_options *o, const struct figure *f,
                         const struct table *t, const char *path, struct kvf_diag *d)
{
    int err = figure_write(f, t, &o->style, path, d);
    if (!err)
        figure_options_note(o);
    if (!err)
        err = caption_print(o, f, t, d);
    return err;
}

/* Rejects figure options if no figure is drawn. Output "-" may be drawn on a terminal. */
static int check_drawn(const struct figure_options *f, const char *out, bool json,
                       struct kvf_diag *d)
{
    const char *why = "where no figure is drawn, by -o NAME.png, .svg or .pdf, or by --preview";
    bool shown = f->preview || (out && strcmp(out, "-") == 0);
    bool drawn = (shown && !json) || (out && figure_can_write(out));
    const struct idle list[] = {{f->preview && json, "--preview", "with --json"},
                                {f->size && !drawn, "--size", why},
                                {f->dpi && !drawn, "--dpi", why},
                                {f->style.cmap && !drawn, "--cmap", why},
                                {!isnan(f->style.vmin) && !drawn, "--vmin", why},
                                {!isnan(f->style.vmax) && !drawn, "--vmax", why},
                                {f->style.title && !drawn, "--title", why},
                                {f->style.font && !drawn, "--font", why},
                                {f->caption && !drawn, "--caption", why}};
    return IDLE_CHECK(list, d);
}

int figure_options_check(struct figure_options *f, const char *out, bool json, struct kvf_diag *d)
{
    f->style.dpi = (int)f->dpi;
    f->style.boxes = &f->boxes;
    if (!f->size || figure_size_parse(f->size, &f->style.width_mm, &f->style.height_mm)) {
        int err = figure_style_check(&f->style, d);
        return err ? err : check_drawn(f, out, json, d);
    }
    return kvf_fail(d, KVF_E_ARG,
                    "--size needs WxH from %dx%d to 5000x5000 (units mm, cm, in, "
                    "pt), a width alone, " SIZE_NAMES ", not '%.60s'",
                    FIGURE_MIN_WIDTH, FIGURE_MIN_HEIGHT, f->size);
}

enum { MOST_FIGURES = 128 };

int figure_named(const char *option, const char *name, const char *table, const struct figure **ret,
                 struct kvf_diag *d)
{
    const char *known[MOST_FIGURES + 1] = {NULL};
    struct buf all = {0};
    int n = 0;
    *ret = figure_find(name);
    if (*ret && (!table || figure_draws(*ret, table)))
        return KVF_OK;
    if (figure_replacement(name))
        return kvf_fail(d, KVF_E_ARG, "%sthe figure '%s' is now %s", option, name,
                        figure_replacement(name));
    for (int i = 0; figure_table[i] && n < MOST_FIGURES; i++)
        if (!table || figure_draws(figure_table[i], table))
            known[n++] = figure_table[i]->name;
    for (int i = 0; table && i < n; i++)
        buf_printf(&all, "%s%s", i ? ", " : "; it has ", known[i]);
    const char *near = opt_near(known, name);
    int err = kvf_fail(
        d, KVF_E_ARG, "%sno figure '%.80s'%s%.80s%s%s%s%s; 'kvfate list figures' lists them",
        option, name, table ? " of table " : "", table ? table : "", near ? " (did you mean '" : "",
        near ? near : "", near ? "'?)" : "", n && !all.err && all.len ? all.data : "");
    buf_finish(&all);
    return err;
}
