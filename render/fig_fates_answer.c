/* fig_fates_answer.c - draws, for each run of one prompt, the fraction of heads that cache each
 * token when the answer begins, and the model's answer, marked correct or wrong.  With --from it
 * draws this fraction at another step, and with --tokens a part of the prompt.
 *
 * A bar stands for one token, or for the mean of a bin of tokens if the text is long. The tokens of
 * the hidden sentence (the needle) are in bins of their own. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/cells.h"
#include "render/figures.h"
#include "render/identity.h"

enum { RUNS = 16, BARS = 512, LINES = 3, NOTE = 160, ANSWER = 512 };
static const double MARGIN = 3, BAR_MM = 0.5, ROW_MM = 12, ROW_GAP = 3, LINE_MM = 3, HEAD = 15,
                    LEAST_MM = 80, NARROW_MM = 125, FOOT = 8.5, MARK_MM = 2.6,
                    ANSWER_FRACTION = 0.27, NEAR_MM = 1.5, SEAM = 0.01;
static const struct rgb band = {1, 0.94, 0.72}, rest = {0.925, 0.925, 0.94};

/* One run: its rows at the first step of the table. */
struct run {
    int64_t row0;
    char name[CELL_TEXT];
    struct rgb colour;
};

/* Tokens [from, to) that one bar stands for. */
struct bar {
    int64_t from, to;
    bool needle;
};

struct hero {
    const struct table *t;
    struct canvas *c;
    int trace, step, token, text, held, needle, answer, right; /* columns */
    struct run run[RUNS];
    struct bar bar[BARS];
    int n, bars;
    int64_t tokens, each; /* tokens of the prompt that are drawn; of a bar outside the needle */
    int64_t first, at;    /* the first of these tokens; the step at which they are drawn */
    int64_t prompt; /* tokens of the whole prompt; that step if the table does not name them */
    double left, w; /* of the bars, mm */
};

/* ---- the runs of a table */

static bool same_trace(const struct hero *x, int64_t a, int64_t b)
{
    char one[24], other[24];
    return x->trace < 0
           || strcmp(cell_text(x->t, x->trace, a, one), cell_text(x->t, x->trace, b, other)) == 0;
}

/* Counts the tokens of the prompt before the first step, which are first in a run. */
static int64_t tokens_of(const struct hero *x, int64_t row, int64_t end)
{
    int64_t n = 0, step = table_int(x->t, x->step, row);
    int64_t most = step < x->prompt ? step : x->prompt;
    while (row + n < end && table_int(x->t, x->step, row + n) == step
           && table_int(x->t, x->token, row + n) < most)
        n++;
    return n;
}

/* Returns true if two runs have the same tokens of the prompt. */
static bool same_prompt(const struct hero *x, int64_t a, int64_t b, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (table_int(x->t, x->token, a + k) != table_int(x->t, x->token, b + k)
            || strcmp(table_str(x->t, x->text, a + k), table_str(x->t, x->text, b + k)) != 0)
            return false;
    return true;
}

/* Reads the tokens of the prompt, after which the answer begins, from the metadata. */
static void read_prompt(struct hero *x, int64_t row)
{
    int64_t question = table_meta_int(x->t, "question_tokens", 0);
    x->first = table_int(x->t, x->token, row);
    x->at = table_int(x->t, x->step, row);
    x->prompt = table_meta_int(x->t, "prompt_tokens", 0);
    if (x->prompt > 0 && question > 0 && question <= INT64_MAX - x->prompt)
        x->prompt += question;
    if (x->prompt <= 0)
        x->prompt = x->at;
}

/* Returns true if the runs have different values of metadata. */
static bool differs(const struct hero *x, const char *key)
{
    const char *keys = table_meta(x->t, "differ");
    return keys && strstr(keys, key);
}

/* Returns true if not all tokens of the prompt are drawn. */
static bool is_part(const struct hero *x)
{
    return x->tokens < x->prompt;
}

static int add_run(struct hero *x, int64_t from, int64_t to, struct kvf_diag *d)
{
    struct run *r = &x->run[x->n];
    const char *method = table_meta(x->t, "method");
    int64_t step = table_int(x->t, x->step, from);
    if (!x->n)
        read_prompt(x, from);
    int64_t n = tokens_of(x, from, to);
    char number[24];
    const char *name = x->trace < 0 ? method : cell_text(x->t, x->trace, from, number);
    *r = (struct run){.row0 = from};
    snprintf(r->name, sizeof r->name, "%.60s", name ? name : "");
    if (n == 0)
        return kvf_fail(d, KVF_E_ARG,
                        "figure fates-answer: run '%s' has no token of the prompt before its "
                        "first step; leave --from and --tokens out",
                        r->name);
    if (x->n
        && (step != x->at || n != x->tokens || !same_prompt(x, x->run[0].row0, from, n)
            || differs(x, "prompt_tokens")))
        return kvf_fail(d, KVF_E_ARG,
                        "figure fates-answer: runs '%s' and '%s' have different prompts or first "
                        "steps; give traces of one prompt",
                        x->run[0].name, r->name);
    x->tokens = n;
    x->n++;
    return KVF_OK;
}

static int find_runs(struct hero *x, const struct table *t, struct kvf_diag *d)
{
    int64_t rows = table_rows(t);
    int err = KVF_OK;
    x->t = t;
    x->trace = table_find(t, "trace");
    x->step = table_find(t, "step");
    x->token = table_find(t, "token");
    x->text = table_find(t, "text");
    x->held = table_find(t, "held");
    x->needle = table_find(t, "needle");
    x->answer = table_find(t, "answer");
    x->right = table_find(t, "right");
    for (int64_t r = 0, next; !err && r < rows; r = next) {
        for (next = r + 1; next < rows && same_trace(x, r, next); next++)
            ;
        if (x->n == RUNS)
            return kvf_fail(d, KVF_E_ARG, "figure fates-answer: draws at most %d traces", RUNS);
        err = add_run(x, r, next, d);
    }
    const char *name[RUNS];
    struct identity look[RUNS];
    for (int i = 0; i < x->n; i++)
        name[i] = x->run[i].name;
    identity_of_methods(x->n, name, look);
    for (int i = 0; i < x->n; i++)
        x->run[i].colour = look[i].colour;
    return err;
}

/* ---- bars */

static bool in_needle(const struct hero *x, int64_t k)
{
    return table_real(x->t, x->needle, x->run[0].row0 + k) > 0;
}

/* Divides the tokens into bars of `each` tokens that do not cross the ends of the needle. Returns
 * their number, or BARS + 1 if they are more. */
static int divide(struct hero *x, int64_t each)
{
    int n = 0;
    for (int64_t k = 0, to; k < x->tokens; k = to) {
        bool needle = in_needle(x, k);
        for (to = k + 1; to < x->tokens && to - k < each && in_needle(x, to) == needle; to++)
            ;
        if (n == BARS)
            return BARS + 1;
        x->bar[n++] = (struct bar){k, to, needle};
    }
    return n;
}

static void choose_bars(struct hero *x)
{
    double fit = fmax(fmin(x->w / BAR_MM, BARS - 64), 1);
    x->each = (int64_t)ceil((double)x->tokens / fit);
    for (x->bars = divide(x, x->each); x->bars > BARS; x->bars = divide(x, x->each))
        x->each *= 2;
}

static double at_mm(const struct hero *x, int64_t token)
{
    return x->left + x->w * (double)token / (double)x->tokens;
}

/* Returns the mean fraction of heads that cache the tokens of a bar, or of the needle (b NULL). */
static double fraction(const struct hero *x, const struct run *r, const struct bar *b)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t k = b ? b->from : 0; k < (b ? b->to : x->tokens); k++)
        if (b || in_needle(x, k)) {
            sum += table_real(x->t, x->held, r->row0 + k);
            n++;
        }
    return n && !isnan(sum) ? fmin(fmax(sum / (double)n, 0), 1) : NAN;
}

/* ---- the answer */

/* Draws a disc with a tick, or a frame with a cross. They differ in shape, filling and word, so the
 * mark does not depend on colour. */
static void draw_mark(struct canvas *c, double x, double y, bool right)
{
    const double s = MARK_MM, r = s / 2;
    const double tick[] = {x + .22 * s, y, x + .43 * s, y + .22 * s, x + .78 * s, y - .24 * s};
    const double one[] = {x + .25 * s, y - .25 * s, x + .75 * s, y + .25 * s},
                 other[] = {x + .25 * s, y + .25 * s, x + .75 * s, y - .25 * s};
    const struct rgb paper = {1, 1, 1};
    if (right) {
        canvas_disc(c, x + r, y, r, 0, ink);
        canvas_line(c, tick, 3, 0.45, paper);
        return;
    }
    canvas_frame(c, x + .15, y - r + .15, s - .3, s - .3, 0.3, ink);
    canvas_line(c, one, 2, 0.45, ink);
    canvas_line(c, other, 2, 0.45, ink);
}

/* Returns the end of the next part of a text that stays on one line: a word, or a part of a word up
 * to a hyphen. */
static const char *part_end(const char *s)
{
    s += strspn(s, " ");
    s += strcspn(s, " -");
    return s + strspn(s, "-");
}

/* Draws text in at most LINES lines of a width, broken at blanks and after hyphens, or measures
 * them (draw false).  The last line is cut with an ellipsis; *ret_cut, which may be NULL, is then
 * true.  Returns the number of lines. */
static int draw_wrapped(struct canvas *c, const char *text, double x, double y, double width,
                        enum text_align align, bool draw, bool *ret_cut)
{
    char line[ANSWER], fit[ANSWER + 8];
    int k = 0;
    for (; k < LINES && *text; k++) {
        size_t used = 0;
        for (const char *end = text; *end && k + 1 < LINES;) {
            end = part_end(end);
            size_t n = (size_t)(end - text);
            snprintf(line, sizeof line, "%.*s", (int)(n < ANSWER - 1 ? n : ANSWER - 1), text);
            if (canvas_text_width(c, line, PT_TICK, 0) > width)
                break;
            used = n;
        }
        if (!used)
            used = k + 1 < LINES ? (size_t)(part_end(text) - text) : strlen(text);
        snprintf(line, sizeof line, "%.*s", (int)(used < ANSWER - 1 ? used : ANSWER - 1), text);
        const char *shown = text_fit(c, line, PT_TICK, width, fit, sizeof fit);
        if (ret_cut)
            *ret_cut |= shown != line || used > ANSWER - 1;
        if (draw)
            canvas_text(c, x, y + k * LINE_MM, shown, PT_TICK, align, ink, 0);
        text += used;
        text += strspn(text, " ");
    }
    return k;
}

static const char *answer_of(const struct hero *x, int k, char number[24])
{
    return cell_text(x->t, x->answer, x->run[k].row0, number);
}

/* Returns the number of bytes of the words with which the answers of all runs begin. */
static size_t common_words(const struct hero *x)
{
    char one[24], other[24];
    const char *a = answer_of(x, 0, one);
    size_t most = strlen(a), words = 0;
    for (int k = 1; k < x->n; k++) {
        const char *b = answer_of(x, k, other);
        size_t n = 0;
        while (n < most && a[n] == b[n])
            n++;
        most = n;
    }
    for (size_t n = 0; n < most; n++)
        if (a[n] == ' ')
            words = n + 1;
    return x->n > 1 ? words : 0;
}

/* Draws an answer.  One that needs more than LINES lines is drawn from the word on in which the
 * answers of the runs differ. */
static void draw_text(const struct hero *x, int k, double at, double y, double width)
{
    char number[24], tail[ANSWER];
    const char *text = answer_of(x, k, number);
    size_t skip = common_words(x);
    bool cut = false;
    draw_wrapped(x->c, text, at, y, width, ALIGN_LEFT, false, &cut);
    if (cut && skip) {
        snprintf(tail, sizeof tail, "\xe2\x80\xa6 %.*s", ANSWER - 8, text + skip);
        text = tail;
    }
    draw_wrapped(x->c, text, at, y, width, ALIGN_LEFT, true, NULL);
}

static void draw_answer(const struct hero *x, int k, double y, double left)
{
    const struct run *r = &x->run[k];
    double right = table_real(x->t, x->right, r->row0), kept = fraction(x, r, NULL);
    double width = canvas_width(x->c) - MARGIN - left;
    char word[64], fit[80];
    if (right >= 0) {
        const char *judged = right > 0 ? "correct" : "wrong";
        snprintf(word, sizeof word, "%s; needle cached: %.0f %%", judged, 100 * kept);
        bool fits = !isnan(kept) && !is_part(x) /* which can lack tokens of the needle */
                    && canvas_text_width(x->c, word, PT_TICK, 0) <= width - MARK_MM - 1;
        draw_mark(x->c, left, y + 1.5, right > 0);
        canvas_text(
            x->c, left + MARK_MM + 1, y + 1.5,
            text_fit_own(x->c, fits ? word : judged, PT_TICK, width - MARK_MM - 1, fit, sizeof fit),
            PT_TICK, ALIGN_LEFT, quiet, 0);
        y += LINE_MM + .3;
    }
    draw_text(x, k, left, y + 1.5, width);
}

/* ---- the page */

static void draw_bars(const struct hero *x, const struct run *r, double y)
{
    canvas_rect(x->c, x->left, y, x->w, ROW_MM, rest);
    for (int k = 0; k < x->bars; k++)
        if (x->bar[k].needle)
            canvas_cell(x->c, at_mm(x, x->bar[k].from), y,
                        at_mm(x, x->bar[k].to) - at_mm(x, x->bar[k].from), ROW_MM, band);
    for (int k = 0; k < x->bars; k++) {
        const struct bar *b = &x->bar[k];
        double from = at_mm(x, b->from), to = at_mm(x, b->to), v = fraction(x, r, b);
        if (v > 0)
            canvas_cell(x->c, from, y + ROW_MM * (1 - v), to - from + SEAM, ROW_MM * v, r->colour);
    }
}

/* Returns the y of the first row. A narrow page has a line more above it. */
static double head_mm(double width)
{
    return HEAD + (width < NARROW_MM ? LINE_MM : 0);
}

/* Appends the texts of the needle's tokens, with " ... " between separate places. */
static void needle_text(const struct hero *x, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (int64_t k = 0; k < x->tokens; k++) {
        if (!in_needle(x, k))
            continue;
        const char *text = table_str(x->t, x->text, x->run[0].row0 + k);
        bool gap = n && k && !in_needle(x, k - 1);
        int more = snprintf(out + n, cap - n, "%s%s", gap ? " ..." : "",
                            n ? text : text + (*text == ' '));
        if (more < 0 || (size_t)more >= cap - n)
            return;
        n += (size_t)more;
    }
}

/* Marks the needle above the first row: its text, and lines along its edges down to the last row.
 */
static void draw_needle(const struct hero *x, double bottom)
{
    char text[ANSWER], fit[ANSWER + 8], said[ANSWER + 16];
    double first = NAN, last = NAN, top = head_mm(canvas_width(x->c));
    for (int k = 0; k < x->bars; k++) {
        const struct bar *b = &x->bar[k];
        if (!b->needle)
            continue;
        first = isnan(first) ? at_mm(x, b->from) : first;
        last = at_mm(x, b->to);
        bool starts = k == 0 || !x->bar[k - 1].needle,
             ends = k + 1 == x->bars || !x->bar[k + 1].needle;
        const double from[] = {at_mm(x, b->from), top - 2, at_mm(x, b->from), bottom},
                     to[] = {at_mm(x, b->to), top - 2, at_mm(x, b->to), bottom};
        if (starts)
            canvas_line(x->c, from, 2, 0.2, ink);
        if (ends)
            canvas_line(x->c, to, 2, 0.2, ink);
    }
    if (isnan(first))
        return;
    needle_text(x, text, sizeof text);
    snprintf(said, sizeof said, "needle: \xe2\x80\x9c%s\xe2\x80\x9d", text);
    const char *shown = text_fit(x->c, said, PT_TICK, x->left + x->w - MARGIN, fit, sizeof fit);
    double w = canvas_text_width(x->c, shown, PT_TICK, 0), mid = (first + last) / 2;
    double at = fmin(fmax(mid - w / 2, MARGIN), x->left + x->w - w);
    canvas_text(x->c, at, top - 3.8, shown, PT_TICK, ALIGN_LEFT, ink, 0);
}

static void draw_head(const struct hero *x, double answers)
{
    char note[NOTE], fit[NOTE + 8], bars[48] = "", tokens[96], when[48] = "when the answer begins";
    double width = canvas_width(x->c), room = width - 2 * MARGIN;
    const char *heads = table_meta(x->t, "heads"), *model = table_meta(x->t, "model");
    if (x->each > 1)
        snprintf(bars, sizeof bars, ", means of %lld tokens", (long long)x->each);
    if (x->at != x->prompt)
        snprintf(when, sizeof when, "at step %lld", (long long)x->at);
    snprintf(tokens, sizeof tokens, "1 prompt, %lld tokens", (long long)x->tokens);
    if (is_part(x))
        snprintf(tokens, sizeof tokens, "tokens %lld to %lld of a prompt of %lld tokens",
                 (long long)x->first, (long long)(x->first + x->tokens - 1), (long long)x->prompt);
    snprintf(note, sizeof note, "%s%s%.80s", tokens, model ? "; " : "", model ? model : "");
    canvas_text(x->c, MARGIN, MARGIN, text_fit(x->c, note, PT_TICK, room, fit, sizeof fit), PT_TICK,
                ALIGN_LEFT, ink, 0);
    snprintf(note, sizeof note,
             "bars: fraction of %.20s heads (layer x KV head) that cache the token %s%s",
             heads ? heads : "all", when, bars);
    draw_wrapped(x->c, note, MARGIN, MARGIN + 3.4, room, ALIGN_LEFT, true, NULL);
    canvas_text(
        x->c, answers, head_mm(width) - 3.8,
        text_fit_own(x->c, "the model's answer", PT_TICK, width - answers - 1, fit, sizeof fit),
        PT_TICK, ALIGN_LEFT, ink, 0);
}

static double row_top(double width, int k)
{
    return head_mm(width) + k * (ROW_MM + ROW_GAP);
}

static double own_height(const struct hero *x, double width)
{
    return row_top(width, x->n) - ROW_GAP + FOOT;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct hero x = {.n = 0};
    *w = s->width_mm > 0 ? s->width_mm : 180;
    *h = 60;
    if (find_runs(&x, t, NULL) == KVF_OK && x.n)
        *h = own_height(&x, *w);
}

static void draw_rows(const struct hero *x, double answers)
{
    for (int k = 0; k < x->n; k++) {
        const struct run *r = &x->run[k];
        double y = row_top(canvas_width(x->c), k);
        draw_bars(x, r, y);
        double width = x->left - MARGIN - 2.5, right = x->left - 2.5;
        int lines = draw_wrapped(x->c, r->name, right, 0, width, ALIGN_RIGHT, false, NULL);
        draw_wrapped(x->c, r->name, right, y + (ROW_MM - (lines - 1) * LINE_MM) / 2, width,
                     ALIGN_RIGHT, true, NULL);
        canvas_text(x->c, x->left - 0.8, y + 1, "1", PT_SMALL, ALIGN_RIGHT, quiet, 0);
        canvas_text(x->c, x->left - 0.8, y + ROW_MM - 1, "0", PT_SMALL, ALIGN_RIGHT, quiet, 0);
        draw_answer(x, k, y, answers);
    }
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct hero x = {.n = 0};
    double names = 0, width = canvas_width(c), answers = width * (1 - ANSWER_FRACTION) + NEAR_MM;
    (void)s;
    int err = find_runs(&x, t, d);
    if (err)
        return err;
    x.c = c;
    for (int k = 0; k < x.n; k++)
        names = fmax(names, canvas_text_width(c, x.run[k].name, PT_TICK, 0));
    x.left = MARGIN + fmin(names, width / 7) + 3;
    x.w = answers - 2 * NEAR_MM - x.left;
    err = canvas_room(c, "fates-answer", LEAST_MM, own_height(&x, width), d);
    if (err)
        return err;
    choose_bars(&x);
    draw_head(&x, answers);
    draw_rows(&x, answers);
    double bottom = row_top(width, x.n) - ROW_GAP;
    draw_needle(&x, bottom);
    struct axis_box a = {.x = x.left,
                         .y = bottom,
                         .w = x.w,
                         .h = 0,
                         .x0 = (double)x.first,
                         .x1 = (double)x.first + (double)x.tokens,
                         .xlabel = "token of the prompt",
                         .whole_x = 1};
    axis_ticks_x(c, &a);
    canvas_text(c, x.left + x.w / 2, bottom + 6.5, a.xlabel, PT_TICK, ALIGN_CENTER, ink, 0);
    return KVF_OK;
}

const struct figure fig_fates_answer = {
    .name = "fates-answer",
    .table = "fates",
    .summary = "which tokens each method still caches when the answer begins, and the answer",
    .needs = "step token text:text held needle answer:text right",
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
