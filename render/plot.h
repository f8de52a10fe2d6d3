/* plot.h - small multiples of line charts: panels with common axes and one key for all.
 *
 * A figure walks over the rows of its table and adds points; panels and lines come into being
 * in the order in which they are first named.  A line has the same look in every panel.  Then
 * the figure says what it knows better than the data (ranges, labels, looks) and plot_draw
 * arranges it all: the key is beside a single panel or below. */
#ifndef KVF_RENDER_PLOT_H
#define KVF_RENDER_PLOT_H

#include "render/chart.h"
#include "render/figure.h"
#include "render/style.h"

enum { PLOT_NAME = 96, PLOT_PANELS = 64, PLOT_LINES = 8192, PLOT_MARKS = 1024 };

struct plot_line {
    char name[PLOT_NAME];
    struct chart_look look;
    bool hidden; /* not in the key */
    bool back;   /* drawn before the others */
};

struct plot_series {
    int panel, line, room;
    struct chart_line data; /* low and high are there once one point has them */
};

struct plot_mark {
    int panel, line;
    double x, y;
    bool cross; /* else a ring */
};

struct plot {
    char (*panel)[PLOT_NAME];
    struct plot_line *line;
    struct plot_series *series;
    struct plot_mark *mark;
    int n_panels, n_lines, n_series, n_marks;
    int line_room, series_room, last; /* last: series added to, -1 none */

    const char *xlabel, *ylabel;
    char text[96];  /* room for a label of the figure's own making */
    char note[256]; /* below the axes, small; "": none */
    bool log_x, log_y;
    bool whole_x, whole_y;   /* counts and positions: axis.h */
    double x0, x1, y0, y1;   /* NaN: from the data */
    double level;            /* a dotted line across at this y; NaN: none */
    double upright;          /* a dashed line upwards at this x; NaN: none */
    double ramp_lo, ramp_hi; /* with a ramp_label: a bar of colours instead of a key */
    const char *ramp_label;
    bool key_upwards; /* the last line first, as areas are stacked */
    bool ring_values; /* numbers of the rings: after the names beside a single panel, else at the
                       * first and the last of a panel (below and above lines that fall) */
    double panel_h;   /* mm; 0: own choice */
    int copies;       /* points added for one of the table, to count them (1) */
    int err;          /* the first failure */
};

void plot_init(struct plot *p);
void plot_free(struct plot *p);

/* Adds a point to a line of a panel.  Names are copied and cut to PLOT_NAME - 1 bytes; a panel
 * "" has no heading.  low and high: the interval, NaN where there is none.  Too many panels or
 * lines are an error that plot_draw returns. */
void plot_add(struct plot *p, const char *panel, const char *line, double x, double y, double low,
              double high);
/* Says of how many things the point added last is.  It and those after it on its line are drawn
 * paler once that is less than a tenth of the most of the line; NaN: not known. */
void plot_of(struct plot *p, double count);
/* Says how many documents the point added last is of.  The line is paler from the first point on
 * that has fewer than the most; 0 or NaN: not known. */
void plot_documents(struct plot *p, double count);
/* Ends the note with the number of documents of a pooled table, with the number at the end of the
 * lines where documents drop out, and with the intervals where the note does not name them. */
void plot_note_documents(struct plot *p, const struct table *t);
/* Ends the note with what pale lines are, where there are any: "pale: fewer than a tenth of the
 * tokens". */
void plot_note_few(struct plot *p);
/* A ring or cross in the look of a line that there is already; else nothing. */
void plot_mark(struct plot *p, const char *panel, const char *line, double x, double y, bool cross);
/* The line of that name, to set its look; NULL: no point was added to it. */
struct plot_line *plot_line(struct plot *p, const char *name);

/* Makes the line thin, grey, behind the others and absent from the key.  Looks are given in the
 * order in which lines are first added: add the lines of the key before those behind them. */
void plot_behind(struct plot *p, const char *name);

/* Takes lines without a point that has a place out of the key, and ends the note with their names.
 * To be called when all points are added and the note is set. */
void plot_hide_empty(struct plot *p);
/* Colours and dashes by number, to be told apart in black and white, too. */
struct chart_look plot_look(int i);
/* The same without black, which is for what is pooled. */
struct chart_look plot_look_coloured(int i);
/* Gives a look the colour and the sign that a method has in every figure: those of one hue differ
 * in their signs.  i: the place of the line, for a method that is not known. */
void plot_look_method(struct chart_look *look, const char *name, int i);

/* The functions of a figure that is one plot, which its `build` fills from table and style. */
void plot_figure_size(const struct table *t, const struct figure_style *s, double *ret_w,
                      double *ret_h);
int plot_figure_draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                     struct kvf_diag *d);

/* Such a figure, at the end of its file: PLOT_FIGURE(fig_x, .name = "x", .table = "x", ...). */
#define PLOT_FIGURE(symbol, ...)                                                                   \
    const struct figure symbol = {                                                                 \
        .size = plot_figure_size, .draw = plot_figure_draw, .build = build, __VA_ARGS__}

/* What a panel of a page has in common with others: its ranges (NaN: its own), and what stands at
 * another one or below all. */
struct plot_shared {
    double x0, x1, y0, y1;
    bool no_key, no_x, no_y;
};
/* Sets the ranges of the axes from the data, where the figure and the style leave them open. */
int plot_ranges(struct plot *p, const struct figure_style *s, struct kvf_diag *d);
/* Draws the key into rows between x and x + w, from y down; its height in mm, 0 without lines.  c
 * NULL: that alone. */
double plot_key(struct canvas *c, const struct plot *p, double x, double y, double w);

void plot_size(const struct plot *p, double *ret_w, double *ret_h);
/* KVF_E_ARG: no room at this size, or a range that the axis cannot have; KVF_E_NOMEM. */
int plot_draw(struct canvas *c, struct plot *p, const struct figure_style *s, struct kvf_diag *d);

/* "bands: 95 %", or that those of many tokens are too narrow to be seen on an axis from 0 to 1. */
const char *plot_bands(const struct plot *p);

/* What the key `by` of most plots says: a line for all heads together, or one (or a panel) for
 * each head or layer.  The words of the key are in this order. */
enum plot_by { BY_ALL, BY_HEAD, BY_LAYER };

/* What the rows of most tables share.  Columns that the table lacks: -1. */
struct plot_rows {
    const struct table *t;
    int head, layer, index, class, criterion, trace, documents;
};
struct plot_rows plot_rows_of(const struct table *t);
bool row_is(const struct table *t, int col, int64_t row, const char *text);
bool row_pooled(const struct plot_rows *k, int64_t row); /* head `all`, or the table has none */
bool row_layer(const struct plot_rows *k, int64_t row);  /* a layer's heads together: L3K* */
bool row_head(const struct plot_rows *k, int64_t row);   /* one head */
bool row_all_classes(const struct plot_rows *k, int64_t row);

/* "bands: 95 % over 24 documents" of a pooled table; one document has no interval, nor have the
 * rows of single heads unless they were asked for. */
const char *bands_text(const struct table *t, const struct plot *p, char out[48]);

/* "top-64", "mass 0.90", "mass 0.95 - top-64" for top64, mass.90, mass.95-top64. */
void criterion_name(const char *raw, char out[PLOT_NAME]);
/* Top-K in blues, mass sets in reds and dashed, by contribution in green and dotted: darker for
 * larger sets. */
struct chart_look criterion_look(const char *raw);

/* The keys of figures whose rows are told apart by head, criterion and class; the words of a key
 * are in the order of the enum.  CHOICE_AUTO: classes where the table has them, else criteria. */
enum choice_by {
    CHOICE_AUTO,
    CHOICE_CRITERION,
    CHOICE_CLASS,
    CHOICE_HEAD,
    CHOICE_TRACE,
    CHOICE_GAP
};
enum choice_y { CHOICE_LINEAR, CHOICE_LOG };
struct choice_style {
    int by;                /* enum choice_by */
    const char *criterion; /* the only one; NULL: all */
    int heads;             /* 0: none, 1: thin lines behind the pooled one */
    int y;                 /* enum choice_y, or the figure's own words */
};
#define CHOICE_BY(...)                                                                             \
    WORD_KEY(struct choice_style, by, "auto",                                                      \
             "what a line is of; of heads, what a panel is of; auto: what the table has", "auto",  \
             __VA_ARGS__)
#define CHOICE_ONE                                                                                 \
    TEXT_KEY(struct choice_style, criterion, "NAME", "the only criterion that is drawn",           \
             .absent = "all")
#define CHOICE_HEADS                                                                               \
    WORD_KEY(struct choice_style, heads, "none", "lines of single heads behind the pooled one",    \
             "none", "thin")
#define CHOICE_Y                                                                                   \
    WORD_KEY(struct choice_style, y, "linear", "the axis that goes up", "linear", "log")

/* Rows as such keys choose them: pooled rows, a line for each criterion; a panel for each head or
 * trace, or a line for each class or trace in a panel for each criterion; thin lines of the heads
 * behind the pooled one. */
struct row_choice {
    struct plot_rows k;
    bool heads, classes, gaps, thin, traces;
    const char *criterion; /* the only one; NULL: all */
};
/* KVF_E_ARG with a sentence when no row has the criterion. */
int choice_open(struct row_choice *v, const struct table *t, const struct choice_style *o,
                struct kvf_diag *d);
/* Whether the row is in the picture. */
bool choice_has(const struct row_choice *v, int64_t row);
/* What the rows in the picture are about: selections, entries in the cache (criterion held), or
 * both. */
enum choice_about { ABOUT_USE, ABOUT_CACHE, ABOUT_BOTH };
enum choice_about choice_about(const struct row_choice *v);
/* Panel and line of such a row; false: a line behind. */
bool choice_name(const struct row_choice *v, int64_t row, char panel[PLOT_NAME],
                 char line[PLOT_NAME]);
/* Adds a point of such a row; panel: its heading where the figure has panels of its own, or
 * NULL.  Looks of lines are set. */
void choice_add(struct plot *p, const struct row_choice *v, int64_t row, const char *panel,
                double x, double y, double low, double high);
/* What a note begins with: "top-64; " when one criterion is drawn without its name. */
void choice_note(const struct row_choice *v, const struct plot *p, char out[PLOT_NAME]);

/* Value of a column, NaN for column -1. */
double value_at(const struct table *t, int col, int64_t row);

#endif
