/* plot.h - small multiples of line charts with common axes and one key.
 *
 * A figure walks over the rows of its table and adds points.  The first use of a panel or line name
 * creates it.  A line has the same look in every panel.  The figure then sets ranges, labels and
 * looks, and plot_draw arranges the page.  The key is next to a single panel or below several. */
#pragma once

#include "render/chart.h"
#include "render/figure.h"
#include "render/marks.h"
#include "render/note.h"
#include "render/style.h"

enum { PLOT_NAME = 96, PLOT_PANELS = 64, PLOT_LINES = 8192, PLOT_MARKS = 1024, PLOT_TICKS = 6 };

/* A line of the key. */
struct plot_line {
    char name[PLOT_NAME];
    struct chart_look look;
    bool hidden; /* not in the key */
    bool back;   /* drawn before other lines */
    bool method; /* named after a method, whose look it gets */
};

/* The points of one line in one panel. */
struct plot_series {
    int panel, line, room;
    struct chart_line data; /* low and high exist once a point has them */
};

/* A mark on a line. */
struct plot_mark {
    int panel, line;
    double x, y;
    bool cross; /* a ring otherwise */
};

/* A plot that plot_draw draws. */
struct plot {
    char (*panel)[PLOT_NAME];
    struct plot_line *line;
    struct plot_series *series;
    struct plot_mark *mark;
    int n_panels, n_lines, n_series, n_marks;
    size_t line_room, series_room;
    int last; /* index of the last series that got a point, or -1 */

    const char *xlabel, *ylabel;
    char text[96];        /* buffer for a label that the figure formats */
    char note[NOTE_TEXT]; /* small text below the axes; "": not drawn */
    bool log_x, log_y;
    bool whole_x, whole_y;     /* counts and positions: axis.h */
    double tick_x[PLOT_TICKS]; /* n_ticks ticks of the x axis; n_ticks 0: from the range */
    int n_ticks;
    double x0, x1, y0, y1;   /* NaN: from the data */
    double level;            /* y of a dotted horizontal line; NaN: not drawn */
    double upright;          /* x of a dashed vertical line; NaN: not drawn */
    double ramp_lo, ramp_hi; /* with a ramp_label: range of a colour bar that replaces the key */
    const char *ramp_label;
    bool key_upwards; /* key from the last line up, as stacked areas need */
    /* write the values of rings: after the names next to a single panel, else at the first and last
     * of a panel (below and above falling lines) */
    bool ring_values;
    double panel_h;      /* mm; 0: automatic */
    const char *lacking; /* reason for lines without values; NULL: "without values" */
    int copies;          /* points added per point of the table, to count them (1) */
    int err;             /* the first error */
};

void plot_init(struct plot *p);
void plot_free(struct plot *p);

/* Adds a point to a line of a panel.  Names are copied and cut to PLOT_NAME - 1 bytes; panel "" has
 * no heading.  low and high: the interval, NaN if there is none.  Too many panels or lines are an
 * error that plot_draw returns. */
void plot_add(struct plot *p, const char *panel, const char *line, double x, double y, double low,
              double high);
/* States that low and high of the line of the last added point are the ends of a filled area, and
 * not of an interval: the note counts them as no interval. */
void plot_filled(struct plot *p);
/* Sets the number of observations behind the last added point.  The line is paler from the first
 * point with less than a tenth of its maximum; NaN: not known. */
void plot_of(struct plot *p, double count);
/* Sets the number of documents behind the last added point.  The line is paler from the first point
 * with fewer documents than the maximum; 0 or NaN: not known. */
void plot_documents(struct plot *p, double count);
/* Appends the number of documents of an aggregated table to the note.  It adds the number at the
 * end of lines that lose documents, and the intervals unless the note names them. */
void plot_note_documents(struct plot *p, const struct table *t);
/* Appends the run of the table to the note, for example "SmolLM2-135M-Instruct; h2o, budget 64;
 * 1,046 tokens". */
void plot_note_run(struct plot *p, const struct table *t);
/* Explains pale lines at the end of the note, if there are any: "pale: fewer than a tenth of the
 * tokens". */
void plot_note_few(struct plot *p);
/* Adds a ring or cross in the look of an existing line.  Does nothing if the line does not
 * exist. */
void plot_mark(struct plot *p, const char *panel, const char *line, double x, double y, bool cross);
/* Returns the line of that name, to set its look, or NULL if it has no point. */
struct plot_line *plot_line(struct plot *p, const char *name);

/* Makes the line thin, grey, drawn first and absent from the key.  Lines get their looks in the
 * order in which they are added: add the lines of the key first. */
void plot_behind(struct plot *p, const char *name);

/* Gives lines of layers their looks: grey, and a colour, a sign and a place in the key for the
 * lines with the lowest and the highest mean.  Lines of layers are those drawn first
 * (plot_line.back). */
void plot_layers(struct plot *p);

/* Puts a tick of the x axis at a value, for example a budget.  With more than PLOT_TICKS values the
 * axis has its usual ticks. */
void plot_tick(struct plot *p, double x);

/* Moves the line numbered i by i - middle steps to the right, so that intervals at one x do not
 * cover each other.  A step is the fraction `part` of the x range, or of x on a logarithmic axis.
 * Lines without bars stay, and all lines of a plot without intervals. */
void plot_dodge(struct plot *p, double part);

/* Extends the x axis by 2 % beyond the first and the last point, so that the frame cuts no mark. */
void plot_pad(struct plot *p);

/* Removes lines without a drawable point from the key and lists their names at the end of the note.
 * Call it after all points are added and the note is set. */
void plot_hide_empty(struct plot *p);
/* Returns look i, a colour and dashes that are distinct in black and white. */
struct chart_look plot_look(int i);
/* Returns look i without black, which marks aggregated lines. */
struct chart_look plot_look_coloured(int i);
/* Gives all lines that are named after methods (plot_line.method) the looks of identity.h.  The
 * functions that draw plots call it after `build`. */
void plot_look_methods(struct plot *p);

/* The size and draw functions of a figure that is one plot, which its `build` fills from table and
 * style. */
void plot_figure_size(const struct table *t, const struct figure_style *s, double *ret_w,
                      double *ret_h);
int plot_figure_draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                     struct kvf_diag *d);

/* Defines such a figure at the end of its file: PLOT_FIGURE(fig_x, .name = "x", .table = "x",
 * ...). */
#define PLOT_FIGURE(symbol, ...)                                                                   \
    const struct figure symbol = {                                                                 \
        .size = plot_figure_size, .draw = plot_figure_draw, .build = build, __VA_ARGS__}

/* Settings that a panel shares with others of its page: the ranges (NaN: its own), and which parts
 * another panel or the page draws. */
struct plot_shared {
    double x0, x1, y0, y1;
    bool no_key, no_x, no_y;
    const char *note; /* parts of the note that the page draws; NULL: none */
};
/* Sets the axis ranges from the data unless the figure or the style sets them. */
int plot_ranges(struct plot *p, const struct figure_style *s, struct kvf_diag *d);
/* Draws the key in rows between x and x + w, from y down.  Returns its height in mm, 0 without
 * lines.  c NULL: only computes the height. */
double plot_key(struct canvas *c, const struct plot *p, double x, double y, double w);

/* Computes the size of the plot in mm. */
void plot_size(const struct plot *p, double *ret_w, double *ret_h);
/* Draws the plot.  Returns KVF_E_ARG if the canvas is too small or an axis cannot show its range,
 * or KVF_E_NOMEM. */
int plot_draw(struct canvas *c, struct plot *p, const struct figure_style *s, struct kvf_diag *d);

/* Returns "bands: 95 %", or a note that the intervals of many tokens are too narrow to see on an
 * axis from 0. */
const char *plot_bands(const struct plot *p);

/* The key `by` of most plots: one line for all heads, or one line (or panel) per head or layer.
 * The words of the key have this order. */
enum plot_by { BY_ALL, BY_HEAD, BY_LAYER };

/* Columns that most tables have; -1 if missing. */
struct plot_rows {
    const struct table *t;
    int head, layer, index, class, criterion, trace, documents;
};
struct plot_rows plot_rows_of(const struct table *t);
/* The least and the largest number of single heads that a trace has, and the name of the last head;
 * 0, 0 and "" without heads. */
struct head_count {
    int64_t least, most;
    const char *name;
};
/* Counts the heads of a table that has the rows of a trace, and in it those of a head, next to each
 * other. A trace may repeat its heads in several parts. */
struct head_count plot_count_heads(const struct plot_rows *k);
/* Writes that count: "1 head", "72 heads", or "72 to 336 heads" of several traces.  Returns out. */
enum { HEADS_TEXT = 56 };
const char *plot_heads_text(const struct plot_rows *k, char out[HEADS_TEXT]);
bool row_is(const struct table *t, int col, int64_t row, const char *text);
bool row_pooled(const struct plot_rows *k, int64_t row); /* head `all`, or no head column */
bool row_layer(const struct plot_rows *k, int64_t row);  /* all heads of a layer: L3K* */
bool row_head(const struct plot_rows *k, int64_t row);   /* one head */
bool row_all_classes(const struct plot_rows *k, int64_t row);

/* Returns "bands: 95 % over 24 documents" of an aggregated table.  A single document has no
 * interval.  Rows of single heads have one only on request. */
const char *bands_text(const struct table *t, const struct plot *p, char out[48]);

/* Formats a criterion: "top-64", "mass 0.90", "mass 0.95 - top-64" for top64, mass.90,
 * mass.95-top64. */
void criterion_name(const char *raw, char out[PLOT_NAME]);
/* Kinds of criteria, the beginnings of their names, each with its meaning. */
enum { CRITERION_KINDS = 2 };
extern const char *const criterion_meaning[CRITERION_KINDS][2];
/* Returns the look of a criterion: top-K blue, mass sets red and dashed, contribution sets green
 * and dotted.  Larger sets are darker. */
struct chart_look criterion_look(const char *raw);

/* The keys of figures that distinguish rows by head, criterion and class.  The words of a key have
 * the order of the enum.  CHOICE_AUTO: classes if the table has them, else criteria. */
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
    int heads;             /* 0: none, 1: thin lines behind the line of all heads */
    int y;                 /* enum choice_y, or words of the figure */
};
#define CHOICE_BY(...)                                                                             \
    WORD_KEY(struct choice_style, by, "auto",                                                      \
             "unit of a line, and of a panel for heads; auto: the unit of the table", "auto",      \
             __VA_ARGS__)
#define CHOICE_ONE                                                                                 \
    TEXT_KEY(struct choice_style, criterion, "NAME", "the only criterion that is drawn",           \
             .absent = "all")
#define CHOICE_HEADS                                                                               \
    WORD_KEY(struct choice_style, heads, "none", "thin: also a thin line for each head", "none",   \
             "thin")
#define CHOICE_Y                                                                                   \
    WORD_KEY(struct choice_style, y, "linear", "scale of the vertical axis", "linear", "log")

/* The rows that these keys choose: by default rows of all heads with a line per criterion.  Other
 * choices are a panel per head or trace, or a line per class or trace in a panel per criterion.
 * Thin lines of single heads can be added. */
struct row_choice {
    struct plot_rows k;
    bool heads, classes, gaps, thin, traces;
    const char *criterion; /* the only one; NULL: all */
};
/* Opens the choice.  Returns KVF_E_ARG with a message if no row has the criterion. */
int choice_open(struct row_choice *v, const struct table *t, const struct choice_style *o,
                struct kvf_diag *d);
/* Returns true if the row is drawn. */
bool choice_has(const struct row_choice *v, int64_t row);
/* The content of the drawn rows: selections, cached entries (criterion held), or both. */
enum choice_about { ABOUT_USE, ABOUT_CACHE, ABOUT_BOTH };
enum choice_about choice_about(const struct row_choice *v);
/* Writes the panel and the line of a drawn row.  Returns false for a line that is drawn behind
 * others. */
bool choice_name(const struct row_choice *v, int64_t row, char panel[PLOT_NAME],
                 char line[PLOT_NAME]);
/* Adds the point of a drawn row and sets the look of its line.  panel: a heading if the figure has
 * its own panels, or NULL. */
void choice_add(struct plot *p, const struct row_choice *v, int64_t row, const char *panel,
                double x, double y, double low, double high);
/* Writes the beginning of a note, for example "top-64; " if one criterion is drawn without its
 * name. */
void choice_note(const struct row_choice *v, const struct plot *p, char out[PLOT_NAME]);

/* Appends the meaning of the drawn criteria, the run and the number of heads to the note: "top-K: K
 * largest weights of a query; SmolLM2-135M-Instruct; full cache; 1,046 tokens x 270 heads". */
void choice_note_run(const struct row_choice *v, struct plot *p);

/* Sets a logarithmic axis of whole steps to the right, and a vertical axis from 0 if it is not
 * logarithmic. */
void plot_by_steps(struct plot *p, bool log_y, const char *xlabel, const char *ylabel);
/* Marks the points of all lines that are not drawn behind others. */
void plot_mark_points(struct plot *p);

/* Returns the value of a column, NaN for column -1. */
double value_at(const struct table *t, int col, int64_t row);
