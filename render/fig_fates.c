/* fig_fates.c - draws the text and, below each line, a ribbon per trace in which time runs down.
 *
 * The coloured width of a token's cell, from the left, is the fraction of heads that cache it.  The
 * black part beside it is the fraction of heads that evicted it although it was needed.
 *
 * Lines of the chat template, its system text, blank lines, answers that differ and the text after
 * a difference of the prompts are not drawn.  Texts without a common passage are rejected.  Of a
 * text that does not fit, the figure draws the passage in which the runs differ most. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/caption.h"
#include "render/cells.h"
#include "render/figure_fit.h"
#include "render/figures.h"
#include "render/identity.h"
#include "render/text_flow.h"
#include "render/note.h"

enum { RIBBONS = 16, POINTS = 256, MAX_MM = 240, PASSAGE_MM = 110 };
static const double MARGIN = 3, LETTERS = 7.5, TEXT_MM = 3.4, GAP = 0.7, LINE_GAP = 2.2;
static const double SEAM = 0.01, LEAST = 2, READABLE = 4, KEY_MM = 3.8, COARSE = 0.5, NOTE_MM = 2.6;
static const struct rgb black = {0.1, 0.1, 0.12}, gone = {0.925, 0.925, 0.94};

struct fates_style {
    double ribbon;
    int fold;    /* 0: yes, 1: no */
    int passage; /* 0: auto, 1: first */
};

/* Rows of the first ribbon that begin on a new line, and their lines. */
struct segment {
    int64_t row0, row1, lines;
};

struct ribbon {
    int64_t row0, n, points, first; /* rows of a step; the token of row0 */
    char name[CELL_TEXT];
    struct rgb colour;
};

struct fates {
    const struct table *t;
    struct canvas *c;
    int trace, step, token, joined, held, needed; /* columns */
    struct ribbon ribbon[RIBBONS];
    int n;
    struct segment *segment;   /* owned; [segments] */
    int64_t segments, folded;  /* folded: rows in no segment, before `common` */
    int64_t common;            /* rows that may be drawn; the others are not common */
    int64_t differ;            /* first row in which a text differs from the first one; n: none */
    int other;                 /* the ribbon of that text */
    const char *unlike;        /* what differs there: "answers", "prompts" or "texts" */
    bool bare;                 /* no line is common but those of the chat template */
    char about[NOTE_RUN + 48]; /* the model, and the head if there is one */
    bool one;                  /* the table has one head */
    bool passage;              /* a part of the text is drawn */
    const char *why;           /* the choice of the passage, or "" */
    int64_t lines, shown;      /* of text */
    bool *drawn;               /* owned; [rows of the first ribbon]: its token is drawn */
    double left, top, high;    /* of a ribbon, mm */
    struct text_flow flow;
};

/* ---- the ribbons of a table */

static bool same_trace(const struct fates *x, int64_t a, int64_t b)
{
    char one[24], other[24];
    return x->trace < 0
           || strcmp(cell_text(x->t, x->trace, a, one), cell_text(x->t, x->trace, b, other)) == 0;
}

static void add_ribbon(struct fates *x, int64_t from, int64_t to)
{
    struct ribbon *r = &x->ribbon[x->n];
    const char *method = table_meta(x->t, "method");
    char number[24];
    *r = (struct ribbon){.row0 = from, .n = 1};
    while (from + r->n < to
           && table_real(x->t, x->step, from + r->n) == table_real(x->t, x->step, from))
        r->n++;
    r->points = (to - from) / r->n;
    r->first = table_int(x->t, x->token, from);
    const char *name = x->trace < 0 ? method : cell_text(x->t, x->trace, from, number);
    snprintf(r->name, sizeof r->name, "%.60s", name ? name : "");
    x->n++;
}

/* Returns the row of a ribbon's first step with the token of a row of the first ribbon, or -1. */
static int64_t row_in(const struct fates *x, const struct ribbon *r, int64_t row)
{
    int64_t k = table_int(x->t, x->token, row) - r->first;
    return k < 0 || k >= r->n ? -1 : r->row0 + k;
}

static bool same_text(const struct fates *x, int64_t a, int64_t b)
{
    return strcmp(table_str(x->t, x->joined, a), table_str(x->t, x->joined, b)) == 0;
}

static bool has_role(const struct fates *x, int64_t row, const char *role)
{
    int col = table_find(x->t, "role");
    return col >= 0 && strcmp(table_str(x->t, col, row), role) == 0;
}

/* Returns true for a token that the model wrote. */
static bool in_answer(const struct fates *x, int64_t row)
{
    return has_role(x, row, "answer") || has_role(x, row, "think");
}

/* Finds the first row of the first ribbon that another one lacks or has with a different text.  The
 * answers differ if both rows are of answers, or one text ends there. */
static void find_difference(struct fates *x)
{
    x->differ = x->ribbon[0].n;
    x->unlike = "";
    for (int64_t r = 0; r < x->differ; r++)
        for (int k = 1; k < x->n; k++) {
            int64_t row = row_in(x, &x->ribbon[k], r);
            if (row >= 0 && same_text(x, r, row))
                continue;
            bool known = table_find(x->t, "role") >= 0 && !has_role(x, r, "");
            bool answers = in_answer(x, r) && (row < 0 || in_answer(x, row));
            if (!answers)
                x->unlike = known ? "prompts" : "texts";
            else if (!*x->unlike)
                x->unlike = "answers";
            x->differ = r; /* ends the outer loop; the inner one still finds other prompts */
            x->other = k;
        }
}

static int find_ribbons(struct fates *x, const struct table *t, struct kvf_diag *d)
{
    int64_t rows = table_rows(t);
    x->t = t;
    x->trace = table_find(t, "trace");
    x->step = table_find(t, "step");
    x->token = table_find(t, "token");
    x->joined = table_find(t, "joined");
    x->held = table_find(t, "held");
    x->needed = table_find(t, "needed");
    for (int64_t r = 0, next; r < rows; r = next) {
        for (next = r + 1; next < rows && same_trace(x, r, next); next++)
            ;
        if (x->n == RIBBONS)
            return kvf_fail(d, KVF_E_ARG, "figure fates: draws at most %d traces", RIBBONS);
        add_ribbon(x, r, next);
    }
    const char *name[RIBBONS], *head = table_meta(t, "head");
    char run[NOTE_RUN];
    struct identity look[RIBBONS];
    x->one = table_meta_int(t, "heads", 0) == 1;
    note_method(t, run);
    snprintf(x->about, sizeof x->about, "%s%s%s%.30s", run, *run && head ? "; " : "",
             head ? "head " : "", head ? head : "");
    for (int i = 0; i < x->n; i++)
        name[i] = x->ribbon[i].name;
    identity_of_methods(x->n, name, look);
    for (int i = 0; i < x->n; i++)
        x->ribbon[i].colour = look[i].colour;
    find_difference(x);
    return KVF_OK;
}

/* ---- a token in a ribbon */

/* Returns the mean of a column over the tokens of rows [row0, row1) of the first ribbon, taken from
 * ribbon r at a point.  Returns NaN if the ribbon has a different text there. */
static double value_of(const struct fates *x, const struct ribbon *r, int col, int64_t row0,
                       int64_t row1, int64_t point)
{
    double sum = 0;
    for (int64_t row = row0; row < row1; row++) {
        int64_t k = row_in(x, r, row);
        if (k < 0 || !same_text(x, row, k))
            return NAN;
        sum += table_real(x->t, col, k + point * r->n);
    }
    return isnan(sum) ? NAN : fmin(fmax(sum / (double)(row1 - row0), 0), 1);
}

/* Fills the area between two stepped edges with n points, each `pitch` mm high. */
static void draw_between(struct canvas *c, const double *left, const double *right, int n, double y,
                         double pitch, struct rgb colour)
{
    double xy[8 * POINTS + 8];
    int corners = 0;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < n; i++) {
            int k = side ? n - 1 - i : i;
            const double *edge = side ? right : left;
            for (int end = 0; end < 2; end++) {
                bool first = end == side, inner = first ? k > 0 : k + 1 < n;
                if (inner && edge[k] == edge[first ? k - 1 : k + 1])
                    continue; /* the edge continues */
                xy[2 * corners] = edge[k];
                xy[2 * corners++ + 1] = y + pitch * (k + !first);
            }
        }
    canvas_area(c, xy, corners, colour, 1);
}

struct cell {
    double held[POINTS], needed[POINTS];
    int born, n; /* points [born, n) */
};

static void read_cell(const struct fates *x, const struct ribbon *r, int64_t row0, int64_t row1,
                      struct cell *cell)
{
    cell->n = r->points < POINTS ? (int)r->points : POINTS;
    cell->born = cell->n;
    for (int k = cell->n - 1; k >= 0; k--) {
        int64_t point = cell->n < 2 ? 0 : (r->points - 1) * k / (cell->n - 1);
        double held = value_of(x, r, x->held, row0, row1, point);
        double needed = value_of(x, r, x->needed, row0, row1, point);
        if (isnan(held))
            break;
        cell->born = k;
        cell->held[k] = held;
        cell->needed[k] = isnan(needed) ? 0 : fmin(needed, 1 - held);
    }
}

/* Draws the life of a token as an image, because large pixels show the mean. */
static void draw_coarse(struct canvas *c, const struct cell *cell, double x, double w, double y,
                        double high, struct rgb colour)
{
    enum { ACROSS = 48 };
    const struct rgb of[] = {gone, black, colour};
    uint32_t argb[POINTS * ACROSS];
    int n = cell->n - cell->born;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < ACROSS; i++) {
            double at = (i + .5) / ACROSS, held = cell->held[cell->born + k];
            bool needed = at < held + cell->needed[cell->born + k];
            argb[k * ACROSS + i] = rgb_argb(of[at < held ? 2 : needed]);
        }
    canvas_image(c, x, y + high * cell->born / cell->n, w, high * n / cell->n, argb, ACROSS, n);
}

/* Draws the life of a token between x and x + w, from y down. */
static void draw_cell(struct canvas *c, const struct cell *cell, double x, double w, double y,
                      double high, struct rgb colour)
{
    double a[POINTS], b[POINTS], pitch = high / cell->n, needed_max = 0, held_max = 0;
    int n = cell->n - cell->born;
    if (n > 0 && canvas_pixel(c) > COARSE)
        draw_coarse(c, cell, x, w, y, high, colour);
    if (n <= 0 || canvas_pixel(c) > COARSE)
        return;
    y += pitch * cell->born;
    canvas_rect(c, x, y, w, pitch * n, gone);
    for (int k = 0; k < n; k++) {
        double held = cell->held[cell->born + k], needed = cell->needed[cell->born + k];
        needed_max = fmax(needed_max, needed);
        held_max = fmax(held_max, held);
        a[k] = x + fmax(w * held - SEAM, 0);
        b[k] = x + w * (held + needed);
    }
    if (needed_max > 0)
        draw_between(c, a, b, n, y, pitch, black);
    for (int k = 0; k < n; k++) {
        a[k] = x;
        b[k] = x + w * cell->held[cell->born + k];
    }
    if (held_max > 0)
        draw_between(c, a, b, n, y, pitch, colour);
}

static void draw_below(const void *ctx, int64_t row0, int64_t row1, double at, double y, double w)
{
    const struct fates *x = ctx;
    for (int64_t r = row0; r < row1; r++)
        x->drawn[r] = true;
    for (int k = 0; k < x->n; k++) {
        struct cell cell;
        read_cell(x, &x->ribbon[k], row0, row1, &cell);
        if (cell.n)
            draw_cell(x->c, &cell, at + 0.1, fmax(w - 0.2, 0.2), y + 1.3 + k * (x->high + GAP),
                      x->high, x->ribbon[k].colour);
    }
}

static struct text_look plain(const void *ctx, int64_t row0, int64_t row1)
{
    (void)ctx;
    (void)row0;
    (void)row1;
    return (struct text_look){.ink = ink};
}

/* ---- the key */

enum { KEY_HELD, KEY_NEEDED, KEY_GONE, KEY_LACKING, KEY_TIME, KEYS, KEY_BYTES = 96 };

/* Draws a sample of the key: cached by fewer and fewer heads, or needed by more and more.  It has
 * one colour if pixels are large and would mix two states. */
static void draw_sample(struct canvas *c, int kind, double x, double y, struct rgb colour, bool one)
{
    struct cell cell = {.n = 6};
    bool whole = one || canvas_pixel(c) > COARSE;
    for (int k = 0; k < 6; k++) {
        cell.held[k] = kind != KEY_HELD ? 0 : fmax(whole, 1 - k / 6.0);
        cell.needed[k] = kind != KEY_NEEDED ? 0 : fmax(whole, k / 6.0);
    }
    draw_cell(c, &cell, x, 3.2, y - 1.4, 2.8, colour);
}

/* Counts the ribbons whose runs recorded the attention to evicted entries, and those that evicted
 * entries without recording it. */
static void count_recorded(const struct fates *x, int *ret_known, int *ret_lacking)
{
    *ret_known = *ret_lacking = 0;
    for (int k = 0; k < x->n; k++) {
        const struct ribbon *r = &x->ribbon[k];
        bool known = false, evicts = false;
        for (int64_t i = r->row0 + r->n * (r->points - 1); i < r->row0 + r->n * r->points; i++) {
            known |= !isnan(table_real(x->t, x->needed, i));
            evicts |= table_real(x->t, x->held, i) < 1;
        }
        *ret_known += known;
        *ret_lacking += evicts && !known;
    }
}

/* Writes the definition of the black part and the runs without it, or "" if neither applies.
 * Traces of different lengths have no common threshold. */
static void needed_text(const struct fates *x, char text[KEYS][KEY_BYTES])
{
    double least = 100 * table_meta_real(x->t, "needed", NAN);
    int known, lacking;
    char number[24] = "1/T";
    count_recorded(x, &known, &lacking);
    if (!isnan(least))
        snprintf(number, sizeof number, "%.2g %%", least);
    if (known)
        snprintf(text[KEY_NEEDED], KEY_BYTES,
                 "evicted, mean attention of later queries \xe2\x89\xa5 %s", number);
    if (lacking)
        snprintf(text[KEY_LACKING], KEY_BYTES, "black: not recorded in %d of %d runs", lacking,
                 x->n);
}

/* Writes the first and the last step, or those of all runs if they differ. */
static void time_text(const struct fates *x, char out[KEY_BYTES])
{
    int64_t from = 0, to = 0;
    bool same = true;
    for (int k = 0; k < x->n; k++) {
        const struct ribbon *r = &x->ribbon[k];
        int64_t a = table_int(x->t, x->step, r->row0);
        int64_t b = table_int(x->t, x->step, r->row0 + r->n * r->points - 1);
        same &= !k || (a == from && b == to);
        from = !k || a < from ? a : from;
        to = !k || b > to ? b : to;
    }
    snprintf(out, KEY_BYTES,
             same ? "time runs down, from step %lld to %lld"
                  : "time runs down, over each run's own steps (%lld to %lld in all)",
             (long long)from, (long long)to);
}

/* Draws the key in lines of the given width.  Returns the number of lines.  draw false: only
 * counts. */
static int draw_key(const struct fates *x, double width, bool draw)
{
    char text[KEYS][KEY_BYTES] = {"cached: width = fraction of heads", "", "evicted", "", ""};
    const char *heads = table_meta(x->t, "heads");
    if (heads)
        snprintf(text[KEY_HELD], KEY_BYTES, "cached: width = fraction of %.20s heads", heads);
    if (x->one)
        snprintf(text[KEY_HELD], KEY_BYTES, "cached");
    const struct ribbon *r = &x->ribbon[0];
    double at = MARGIN, y = MARGIN + 0.6;
    int rows = 1;
    time_text(x, text[KEY_TIME]);
    needed_text(x, text);
    for (int k = 0; k < KEYS; k++) {
        double mark = k == KEY_TIME || k == KEY_LACKING ? 0 : 4.2;
        char fit[sizeof *text];
        if (!text[k][0])
            continue;
        const char *said = text_fit_own(x->c, text[k], PT_TICK, width - 2 * MARGIN - mark, fit,
                                        sizeof fit);
        double w = mark + canvas_text_width(x->c, said, PT_TICK, 0);
        if (at > MARGIN && at + w > width - MARGIN) {
            at = MARGIN;
            y += KEY_MM;
            rows++;
        }
        if (draw && mark > 0)
            draw_sample(x->c, k, at, y, r->colour, x->one);
        if (draw)
            canvas_text(x->c, at + mark, y, said, PT_TICK, ALIGN_LEFT, ink, 0);
        at += w + 4;
    }
    return rows;
}

/* ---- paragraphs, and the passage that is drawn */

/* Counts the line breaks in the text of a row. */
static int breaks_in(const struct fates *x, int64_t row)
{
    int n = 0;
    static const char mark[] = "\xe2\x86\xb5";
    for (const char *s = strstr(table_str(x->t, x->joined, row), mark); s;
         s = strstr(s + sizeof mark - 1, mark))
        n++;
    return n;
}

/* Returns true for the text of a special token, such as <|im_start|>. */
static bool is_special(const char *s)
{
    size_t n = strlen(s);
    return n > 2 && s[0] == '<' && s[n - 1] == '>' && !strchr(s, ' ');
}

/* Returns true if the rows [row0, row1) are a blank line, or a line of a chat template: special
 * tokens, which may be followed by a word such as "user". */
static bool is_folded(const struct fates *x, int64_t row0, int64_t row1)
{
    enum { LONGEST = 16 }; /* bytes of the word */
    size_t bytes = 0;
    bool several = false;
    for (int64_t r = row0; r < row1; r++) {
        const char *s = table_str(x->t, x->joined, r);
        if (is_special(s) || !s[strspn(s, " \xe2\x86\xb5")])
            continue;
        several |= strchr(s, ' ') != NULL;
        bytes += strlen(s);
    }
    bool template = is_special(table_str(x->t, x->joined, row0)) && !several && bytes <= LONGEST;
    return bytes == 0 || template;
}

/* Returns true if the rows [row0, row1) are the line of a chat template that begins the system
 * text. */
static bool opens_system(const struct fates *x, int64_t row0, int64_t row1)
{
    bool found = false;
    for (int64_t r = row0; r < row1; r++)
        found |= strcmp(table_str(x->t, x->joined, r), "system") == 0;
    return found && is_special(table_str(x->t, x->joined, row0));
}

/* Returns the row of the answer's first token, for a row of the answer; other rows unchanged. */
static int64_t answer_row(const struct fates *x, int64_t row)
{
    while (row > 0 && in_answer(x, row - 1))
        row--;
    return row;
}

/* Returns the number of rows of the first ribbon before its text differs from that of another,
 * without the beginning of the answer, or all if this leaves none. */
static int64_t common_rows(const struct fates *x)
{
    int64_t n = x->ribbon[0].n, rows = x->differ < n ? answer_row(x, x->differ) : n;
    return rows ? rows : n;
}

/* Divides the text into paragraphs without the folded ones. */
static int read_segments(struct fates *x, const struct figure_style *s)
{
    bool fold = ((const struct fates_style *)s->own)->fold == 0, system = false;
    x->common = fold ? common_rows(x) : x->ribbon[0].n;
    int64_t n = x->common;
    x->segment = MEM_NEW(struct segment, (size_t)n + 1);
    if (!x->segment)
        return KVF_E_NOMEM;
    for (int64_t row0 = 0, row1; fold && row0 < n; row0 = row1) {
        for (row1 = row0 + 1; row1 < n && !breaks_in(x, row1 - 1); row1++)
            ;
        bool special = is_special(table_str(x->t, x->joined, row0));
        system = special ? opens_system(x, row0, row1) : system;
        if (system || is_folded(x, row0, row1))
            x->folded += row1 - row0;
        else
            x->segment[x->segments++] = (struct segment){row0, row1, 0};
    }
    if (!x->segments) { /* nothing but template and blank lines, or no folding */
        x->folded = 0;
        x->bare = x->common < x->ribbon[0].n && strcmp(x->unlike, "answers") != 0;
        x->segment[x->segments++] = (struct segment){0, n, 0};
    }
    return KVF_OK;
}

/* Counts the lines of a segment, without blank lines that its last token begins. */
static int count_lines(struct fates *x, struct segment *g)
{
    text_flow_open(&x->flow, x->t, g->row0, g->row1);
    int err = text_flow_run(&x->flow, INT64_MAX, false, 0, 0, 1);
    int breaks = breaks_in(x, g->row1 - 1);
    g->lines = x->flow.at - (x->segments > 1 && breaks > 1 ? breaks - 1 : 0);
    g->lines = g->lines > 1 ? g->lines : 1;
    text_flow_close(&x->flow);
    return err;
}

/* Returns the mean over time of the fraction of heads that cache the token of a row. */
static double mean_held(const struct fates *x, const struct ribbon *r, int64_t row)
{
    double sum = 0, n = 0;
    for (int64_t point = 0; point < r->points; point++) {
        double v = value_of(x, r, x->held, row, row + 1, point);
        sum += isnan(v) ? 0 : v;
        n += !isnan(v);
    }
    return n > 0 ? sum / n : NAN;
}

/* Returns how far the runs differ about the token of a row, 0 to 1: the range of their means.  Of
 * one run: how far its heads differ.  Tokens of a needle count 1 more. */
static double difference_at(const struct fates *x, int64_t row)
{
    double low = NAN, high = NAN;
    for (int k = 0; k < x->n; k++) {
        double v = mean_held(x, &x->ribbon[k], row);
        low = fmin(low, v);
        high = fmax(high, v);
    }
    int needle = table_find(x->t, "needle");
    double more = needle >= 0 && table_real(x->t, needle, row) > 0;
    if (isnan(low))
        return more;
    return more + (x->n > 1 ? high - low : 1 - fabs(2 * low - 1));
}

/* Returns the reason for a passage that begins at row `best` because its differences are the
 * largest, or "".  A needle adds to them. */
static const char *reason(const struct fates *x, int64_t best)
{
    int needle = table_find(x->t, "needle");
    for (int64_t r = 0; needle >= 0 && r < x->common; r++)
        if (table_real(x->t, needle, r) > 0)
            return "";
    return x->n > 1 && best > 0 ? ", where the runs differ most" : "";
}

/* Returns true if a passage may begin at a row: it begins a segment or follows the end of a
 * sentence. */
static bool begins(const struct fates *x, const struct segment *g, int64_t row)
{
    if (row == g->row0)
        return true;
    const char *s = table_str(x->t, x->joined, row - 1);
    return *s && strchr(".!?", s[strlen(s) - 1]) && *table_str(x->t, x->joined, row) == ' ';
}

/* Finds the beginning of the passage of about `tokens` tokens in which the runs differ most. sum:
 * [rows + 1], for cumulative differences of the rows in segments.  *ret_differ: they do differ. */
static int64_t best_row(const struct fates *x, int64_t tokens, double *sum, bool *ret_differ)
{
    int64_t n = 0, best = x->segment[0].row0;
    double most = -1;
    sum[0] = 0;
    for (int64_t i = 0; i < x->segments; i++)
        for (int64_t r = x->segment[i].row0; r < x->segment[i].row1; r++, n++)
            sum[n + 1] = sum[n] + difference_at(x, r);
    int64_t at = 0;
    for (int64_t i = 0; i < x->segments; i++)
        for (int64_t r = x->segment[i].row0; r < x->segment[i].row1; r++, at++) {
            double v = sum[at + tokens < n ? at + tokens : n] - sum[at];
            if (begins(x, &x->segment[i], r) && v > most * (1 + 1e-9)) {
                most = v;
                best = r;
            }
        }
    *ret_differ = most > 0;
    return best;
}

/* Chooses the passage of x->shown lines. */
static int choose_passage(struct fates *x, const struct figure_style *s)
{
    int64_t rows = x->common - x->folded, k = 0;
    double each = (double)rows / (double)x->lines; /* tokens in a line */
    double *sum = MEM_NEW(double, (size_t)rows + 1);
    if (!sum)
        return KVF_E_NOMEM;
    int64_t best = x->segment[0].row0;
    bool differ = false;
    if (((const struct fates_style *)s->own)->passage == 0)
        best = best_row(x, (int64_t)(each * (double)x->shown), sum, &differ);
    mem_free(sum);
    while (x->segment[k].row1 <= best)
        k++;
    x->segments -= k;
    memmove(x->segment, x->segment + k, (size_t)x->segments * sizeof *x->segment);
    x->segment[0].row0 = best;
    int err = count_lines(x, &x->segment[0]);
    x->lines = 0;
    for (int64_t i = 0; i < x->segments; i++)
        x->lines += x->segment[i].lines;
    x->shown = x->shown < x->lines ? x->shown : x->lines;
    x->passage = true;
    x->why = differ ? reason(x, best) : "";
    return err;
}

/* ---- the page */

static double line_mm(const struct fates *x, double high)
{
    return TEXT_MM + x->n * (high + GAP) + LINE_GAP;
}

/* Counts the lines of the text on a canvas of that width. */
static int lay_out(struct fates *x, struct canvas *c, double width, const struct figure_style *s)
{
    double names = 0;
    int err = read_segments(x, s);
    x->c = c;
    for (int k = 0; k < x->n; k++)
        names = fmax(names, canvas_text_width(c, x->ribbon[k].name, PT_TICK, 0));
    x->left = MARGIN + (names > 0 ? fmin(names, width / 4) + 1.5 : 0);
    x->top = MARGIN + KEY_MM * draw_key(x, width, false) + 0.8;
    x->flow = (struct text_flow){
        .c = c, .pt = LETTERS, .width = width - x->left - MARGIN, .look = plain, .ctx = x};
    for (int64_t i = 0; !err && i < x->segments; i++) {
        err = count_lines(x, &x->segment[i]);
        x->lines += x->segment[i].lines;
    }
    x->shown = x->lines;
    return err;
}

/* Returns the height of the notes below the text. */
static double foot_mm(const struct fates *x, bool passage)
{
    int lines = passage + (x->folded > 0) + (x->differ < x->ribbon[0].n) + (*x->about != 0);
    return lines ? lines * NOTE_MM + 1.3 : 0;
}

static double own_height(const struct fates *x, const struct figure_style *s)
{
    const struct fates_style *k = s->own;
    return k->ribbon > 0 ? k->ribbon : fmax(4, fmin(9, 20.0 / x->n));
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct fates x = {.n = 0};
    struct canvas *ruler = NULL;
    *w = s->width_mm > 0 ? s->width_mm : 180;
    *h = 60;
    if (canvas_create(CANVAS_PNG, 10, 10, 72, &ruler, NULL) == KVF_OK
        && (!s->font || canvas_font(ruler, s->font, NULL) == KVF_OK)
        && find_ribbons(&x, t, NULL) == KVF_OK && lay_out(&x, ruler, *w, s) == KVF_OK)
        *h = x.top + (double)x.lines * line_mm(&x, own_height(&x, s)) - LINE_GAP + MARGIN
             + foot_mm(&x, false);
    canvas_destroy(ruler);
    mem_free(x.segment);
    double line = line_mm(&x, own_height(&x, s)), all = (double)x.lines * line_mm(&x, READABLE);
    double foot = foot_mm(&x, true);
    if (*h > MAX_MM && x.top + all + MARGIN + foot <= MAX_MM)
        *h = MAX_MM; /* lower ribbons show the whole text */
    else if (*h > MAX_MM)
        *h = x.top + fmax(2, floor((PASSAGE_MM - x.top) / line)) * line + MARGIN + foot;
    *h = fmax(*h, FIGURE_MIN_HEIGHT);
}

/* Computes the height of the ribbons and the number of lines that fit. */
static int fill_page(struct fates *x, const struct figure_style *s, struct kvf_diag *d)
{
    const struct fates_style *k = s->own;
    double room = canvas_height(x->c) - x->top - MARGIN + LINE_GAP,
           least = k->ribbon > 0 ? k->ribbon : LEAST;
    room -= foot_mm(x, false);
    double each = room / (double)x->lines;
    x->high = k->ribbon > 0 ? k->ribbon : fmin((each - TEXT_MM - LINE_GAP) / x->n - GAP, 14);
    if (x->high >= least && (double)x->lines * line_mm(x, x->high) <= room + 0.1)
        return KVF_OK;
    double foot = foot_mm(x, true) - foot_mm(x, false);
    x->high = k->ribbon > 0
                  ? k->ribbon
                  : fmin(own_height(x, s), (room - foot - TEXT_MM - LINE_GAP) / x->n - GAP);
    if (x->high < least || line_mm(x, x->high) > room - foot)
        return canvas_room(x->c, "fates", canvas_width(x->c),
                           x->top + MARGIN + foot_mm(x, true) + line_mm(x, least), d);
    x->shown = (int64_t)((room - foot) / line_mm(x, x->high));
    return choose_passage(x, s);
}

static void draw_names(const struct fates *x)
{
    char fit[CELL_TEXT + 8];
    for (int64_t line = 0; line < x->shown; line++)
        for (int k = 0; k < x->n; k++) {
            double y = x->top + (double)line * line_mm(x, x->high) + TEXT_MM + k * (x->high + GAP)
                       + x->high / 2;
            const char *name = text_fit(x->c, x->ribbon[k].name, PT_TICK, x->left - MARGIN - 1.5,
                                        fit, sizeof fit);
            canvas_text(x->c, x->left - 1.5, y, name, PT_TICK, ALIGN_RIGHT, ink, 0);
        }
}

/* Writes where the texts differ, and what is therefore not drawn, or "" if they do not. */
static void difference_text(const struct fates *x, char out[128])
{
    const struct ribbon *r = &x->ribbon[0];
    long long begin = r->first + x->common, differ = r->first + x->differ;
    *out = 0;
    if (x->differ == r->n)
        return;
    if (x->common == r->n)
        snprintf(out, 128, "the %s differ from token %lld on; other text has no ribbon here",
                 x->unlike, differ);
    else if (strcmp(x->unlike, "answers") != 0)
        snprintf(out, 128, "not shown: the rest, because the %s differ from token %lld on",
                 x->unlike, differ);
    else if (begin < differ)
        snprintf(out, 128, "not shown: answers, from token %lld on; they differ from token %lld on",
                 begin, differ);
    else
        snprintf(out, 128, "not shown: answers, which differ from token %lld on", differ);
}

/* Returns the number of tokens of the first run, also of those that the table leaves out. */
static int64_t tokens_of_run(const struct fates *x)
{
    const struct ribbon *r = &x->ribbon[0];
    int col = table_find(x->t, "T");
    int64_t end = r->first + r->n, T = table_meta_int(x->t, "T", end);
    if (col >= 0 && table_col_type(x->t, col) == TABLE_INT)
        T = table_int(x->t, col, r->row0);
    return T > end ? T : end;
}

/* Writes the model, the passage that is drawn, and the tokens that are not. */
static void draw_notes(const struct fates *x)
{
    char note[4][128] = {"", "", "", ""}, fit[128];
    const struct ribbon *r = &x->ribbon[0];
    double y = canvas_height(x->c) - MARGIN;
    int64_t from = 0, to = r->n - 1;
    while (from < to && !x->drawn[from])
        from++;
    while (to > from && !x->drawn[to])
        to--;
    snprintf(note[0], sizeof *note, "%.120s", x->about);
    if (x->passage)
        snprintf(note[1], sizeof *note,
                 "tokens %lld to %lld of %lld%s; --tokens A:B chooses others",
                 (long long)(r->first + from), (long long)(r->first + to),
                 (long long)tokens_of_run(x), x->why);
    if (x->folded)
        snprintf(note[2], sizeof *note,
                 "not shown: chat template, system text and blank lines (%lld tokens)",
                 (long long)x->folded);
    difference_text(x, note[3]);
    for (int i = 3; i >= 0; i--) {
        if (!note[i][0])
            continue;
        canvas_text(
            x->c, MARGIN, y,
            text_fit(x->c, note[i], PT_SMALL, canvas_width(x->c) - 2 * MARGIN, fit, sizeof fit),
            PT_SMALL, ALIGN_LEFT, quiet, 0);
        y -= NOTE_MM;
    }
}

/* Draws the first x->shown lines of the segments with their ribbons. */
static int draw_text(struct fates *x)
{
    double pitch = line_mm(x, x->high), top = x->top + TEXT_MM - 1.3;
    int err = KVF_OK;
    x->flow.below = draw_below;
    for (int64_t i = 0, line = 0; !err && i < x->segments && line < x->shown; i++) {
        const struct segment *g = &x->segment[i];
        int64_t n = x->shown - line < g->lines ? x->shown - line : g->lines;
        text_flow_open(&x->flow, x->t, g->row0, g->row1);
        err = text_flow_run(&x->flow, n, true, x->left, top + (double)line * pitch, pitch);
        text_flow_close(&x->flow);
        line += n;
    }
    return err;
}

/* Rejects runs whose texts have nothing in common that a figure could show. */
static int check_common(const struct fates *x, struct kvf_diag *d)
{
    const struct ribbon *r = &x->ribbon[0];
    if (x->differ == r->n || (x->differ > 0 && !x->bare))
        return KVF_OK;
    return kvf_fail(
        d, KVF_E_ARG,
        "figure fates: the %s of '%.40s' and '%.40s' differ from token %lld on, so they "
        "have no ribbons in common; draw a figure of each, or record both methods on "
        "one text with 'kvfate run --force TRACE'",
        x->unlike, r->name, x->ribbon[x->other].name, (long long)(r->first + x->differ));
}

/* Draws the figure, and finds the tokens that it shows: *ret_drawn, [rows of the first ribbon],
 * which the caller frees. */
static int draw_page(struct canvas *c, const struct table *t, const struct figure_style *s,
                     bool **ret_drawn, struct kvf_diag *d)
{
    struct fates x = {.n = 0};
    int err = find_ribbons(&x, t, d);
    if (!err)
        x.drawn = MEM_NEW(bool, (size_t)x.ribbon[0].n);
    if (!err && !x.drawn)
        err = KVF_E_NOMEM;
    if (!err)
        err = lay_out(&x, c, canvas_width(c), s);
    if (!err)
        err = check_common(&x, d);
    if (!err)
        err = fill_page(&x, s, d);
    if (!err) {
        draw_key(&x, canvas_width(c), true);
        draw_names(&x);
        err = draw_text(&x);
    }
    if (!err)
        draw_notes(&x);
    mem_free(x.segment);
    *ret_drawn = x.drawn;
    return err;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    bool *drawn = NULL;
    int err = draw_page(c, t, s, &drawn, d);
    mem_free(drawn);
    return err;
}

/* Writes the caption of the tokens that the figure shows at its size. */
static void caption(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct canvas *c = NULL;
    bool *drawn = NULL;
    double h = s->height_mm - (s->title ? FIGURE_TITLE : 0);
    int err = canvas_create(CANVAS_SVG, s->width_mm, h, 72, &c, NULL);
    if (!err && s->font)
        err = canvas_font(c, s->font, NULL);
    if (!err)
        err = draw_page(c, t, s, &drawn, NULL);
    if (!err)
        caption_fates(t, drawn, out);
    else if (!out->err)
        out->err = err;
    canvas_destroy(c);
    mem_free(drawn);
}

const struct figure fig_fates = {
    .name = "fates",
    .caption = caption,
    .table = "fates",
    .summary = "the text, under it the history of each token, a ribbon for each method",
    .needs = "step token text:text joined:text held needed",
    STYLE(struct fates_style,
          REAL_KEY(struct fates_style, ribbon, 2, 40, "the height of a ribbon, mm",
                   .absent = "4 to 9, by how many there are"),
          WORD_KEY(struct fates_style, fold, "yes",
                   "leave the chat template, blank lines and answers that differ out", "yes", "no"),
          WORD_KEY(struct fates_style, passage, "auto",
                   "of a text that does not fit: where the runs differ most, or its beginning",
                   "auto", "first")),
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
