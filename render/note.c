/* note.c - writes notes of figures, breaks them into lines and draws them. */
#include "render/note.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "base/utf8.h"
#include "render/axis.h"
#include "render/canvas.h"
#include "render/figure.h"
#include "render/marks.h"

/* Between the parts of a run: no line ends here if the run fits into one. It is drawn as "; ". */
#define JOIN ";\xc2\xa0"

/* Appends `part` to out, after JOIN if out has text.  Control characters are shown as \xNN. */
static void add_part(char out[NOTE_RUN], const char *part)
{
    struct buf shown = {0};
    size_t n = strlen(out);
    utf8_show(&shown, part, strlen(part));
    buf_char(&shown, 0);
    if (!shown.err)
        snprintf(out + n, NOTE_RUN - n, "%s%s", n ? JOIN : "", shown.data);
    buf_finish(&shown);
}

void note_number(double v, char out[24])
{
    tick_text(v, out);
    if (v == floor(v) && v >= 1000 && v < 10000)
        snprintf(out, 24, "%d,%03d", (int)(v / 1000), (int)fmod(v, 1000));
}

/* Writes "budget 64" or "budget 50 %"; "" without a budget. */
static void budget_of(const struct table *t, char out[64])
{
    double percent = table_meta_real(t, "budget_percent", 0),
           budget = table_meta_real(t, "budget", 0);
    char count[24];
    out[0] = 0;
    note_number(percent > 0 ? percent : budget, count);
    if (percent > 0 || budget > 0)
        snprintf(out, 64, "budget %s%s", count, percent > 0 ? " %" : "");
}

/* Returns true if the traces of a table differ in a key of its metadata. */
static bool differs(const struct table *t, const char *key)
{
    const char *list = table_meta(t, "differ");
    size_t n = strlen(key), m;
    for (const char *s = list ? list : ""; *s; s += m, s += strspn(s, ", ")) {
        m = strcspn(s, ", ");
        if (m == n && strncmp(s, key, n) == 0)
            return true;
    }
    return false;
}

/* Appends the options and overrides of the method: the protocol without a budget in percent, which
 * the budget names.  "..." stands for those that do not fit. */
static void add_protocol(const struct table *t, char *out, size_t cap)
{
    const char *s = table_meta(t, "protocol"), *next;
    for (s = s ? s : ""; *s; s = next) {
        const char *end = strstr(s, ", ");
        size_t n = end ? (size_t)(end - s) : strlen(s), at = strlen(out);
        next = end ? end + 2 : s + n;
        if (n && strncmp(s, "budget=", 7) == 0 && s[n - 1] == '%')
            continue;
        bool fits = n + strlen(", , ...") < cap - at;
        snprintf(out + at, cap - at, ", %.*s", fits ? (int)n : 3, fits ? s : "...");
        if (!fits)
            return;
    }
}

/* Writes the model, the method, the budget and the options. */
static void method_of(const struct table *t, char out[NOTE_RUN])
{
    const char *model = table_meta(t, "model"), *method = table_meta(t, "method");
    char budget[64], part[200];
    budget_of(t, budget);
    out[0] = 0;
    if (model && *model)
        add_part(out, model);
    else if (differs(t, "model"))
        add_part(out, "several models");
    /* Tables without `differ` that name several traces have the method of the first one. */
    if (table_meta(t, "trace_2") && !table_meta(t, "differ"))
        return;
    if (method && strcmp(method, "full") == 0) {
        snprintf(part, sizeof part, "full cache");
    } else {
        method = method ? method : "";
        snprintf(part, sizeof part, "%.60s%s%s", method, *method && *budget ? ", " : "", budget);
    }
    if (method && *method)
        add_protocol(t, part, sizeof part);
    if (*part)
        add_part(out, part);
}

/* Replaces each JOIN by "; ". */
static void plain(char *s)
{
    char *to = s;
    while (*s)
        if (strncmp(s, JOIN, 3) == 0) {
            memcpy(to, "; ", 2);
            to += 2;
            s += 3;
        } else {
            *to++ = *s++;
        }
    *to = 0;
}

const char *note_method(const struct table *t, char out[NOTE_RUN])
{
    method_of(t, out);
    plain(out);
    return out;
}

/* Finds the lengths of the shortest and the longest text; 0: not known.  Several traces have them
 * in a column. */
static void lengths_of(const struct table *t, double *ret_least, double *ret_most)
{
    double least = INFINITY, most = 0;
    int col = table_find(t, "T");
    *ret_most = table_meta_real(t, "T", 0);
    *ret_least = table_meta_real(t, "T_least", *ret_most);
    if (*ret_most > 0 || !differs(t, "T") || col < 0 || table_col_type(t, col) == TABLE_STR)
        return;
    for (int64_t r = 0; r < table_rows(t); r++) {
        least = fmin(least, table_real(t, col, r));
        most = fmax(most, table_real(t, col, r));
    }
    if (least > 0 && most > 0 && isfinite(most)) {
        *ret_least = least;
        *ret_most = most;
    }
}

/* Writes the number of tokens with its unit; "" if it is not known. */
static void tokens_of(const struct table *t, char out[112])
{
    const char *range = table_meta(t, "tokens"), *unit = "tokens";
    long long a, b;
    double least, most, prompt = table_meta_real(t, "prompt_tokens", 0);
    char part[32] = "", from[32] = "", count[24];
    out[0] = 0;
    lengths_of(t, &least, &most);
    if (differs(t, "tokens"))
        return;
    if (!(most > 0) && !differs(t, "T")) {
        least = most = prompt;
        unit = "prompt tokens";
    }
    if (!(most > 0))
        return;
    if (range && sscanf(range, "%lld:%lld", &a, &b) == 2 && b >= a) {
        note_number((double)b - (double)a, count);
        snprintf(part, sizeof part, "%s of ", count);
    }
    if (least < most) {
        note_number(least, count);
        snprintf(from, sizeof from, "%s to ", count);
    }
    note_number(most, count);
    snprintf(out, 112, "%s%s%s %s", part, from, count, most == 1 ? "token" : unit);
}

const char *note_run(const struct table *t, char out[NOTE_RUN])
{
    char part[112];
    method_of(t, out);
    tokens_of(t, part);
    if (*part)
        add_part(out, part);
    return out;
}

void note_add(char note[NOTE_TEXT], const char *part)
{
    size_t n = strlen(note);
    snprintf(note + n, NOTE_TEXT - n, "%s%s", n && *part ? "; " : "", part);
}

void note_parts(char *note, const char *other, bool common)
{
    char *to = note, *next;
    for (char *part = note; part; part = next) {
        size_t n;
        bool had = false;
        next = strstr(part, "; ");
        n = next ? (size_t)(next - part) : strlen(part);
        next = next ? next + 2 : NULL;
        for (const char *at = other; at && !had; at = (at = strstr(at, "; ")) ? at + 2 : NULL)
            had = strncmp(at, part, n) == 0 && (!at[n] || strncmp(at + n, "; ", 2) == 0);
        if (had != common)
            continue;
        if (to > note) {
            memcpy(to, "; ", 2);
            to += 2;
        }
        memmove(to, part, n);
        to += n;
    }
    *to = 0;
}

struct note note_below(double x, double right)
{
    enum { NAME_OF_AXIS = 6 };
    return (struct note){NAME_OF_AXIS, right, x, .most = 1, .shorten = true};
}

/* The lines of a note. */
struct lines {
    char text[NOTE_MOST][NOTE_TEXT];
    int n;
    bool cut;
};

static double size_of(const struct note *n)
{
    return n->pt > 0 ? n->pt : PT_SMALL;
}

static double pitch_of(const struct note *n)
{
    return n->pitch > 0 ? n->pitch : 3;
}

/* Leaves out the last parts of a text that is wider than the bounds. */
static void shorten(struct canvas *c, const struct note *n, char *text)
{
    while (*text && canvas_text_width(c, text, size_of(n), 0) > n->right - n->left) {
        char *last = strrchr(text, ';');
        *(last ? last : text) = 0;
    }
}

/* Returns where a text that is too long ends its line: at the last "; ", else within a run, else at
 * the last blank.  NULL: the text has no such place. */
static char *last_gap(char *text)
{
    char *gap = NULL;
    for (char *s = strstr(text, "; "); s; s = strstr(s + 1, "; "))
        gap = s;
    gap = gap ? gap : strrchr(text, ';');
    return gap ? gap : strrchr(text, ' ');
}

static void break_lines(struct canvas *c, const struct note *n, const char *text, struct lines *l)
{
    char rest[NOTE_TEXT], first[NOTE_TEXT];
    int most = n->most > 0 && n->most < NOTE_MOST ? n->most : NOTE_MOST;
    double pt = size_of(n), room = n->right - n->left;
    l->n = 0;
    l->cut = false;
    snprintf(rest, sizeof rest, "%s", text);
    if (n->shorten)
        shorten(c, n, rest);
    while (rest[0] && l->n < most) {
        size_t end = strcspn(rest, "\n");
        snprintf(first, sizeof first, "%.*s", (int)end, rest);
        end += rest[end] == '\n';
        while (l->n + 1 < most && canvas_text_width(c, first, pt, 0) > room) {
            char *gap = last_gap(first);
            if (!gap)
                break;
            *gap = 0;
            end = (size_t)(gap - first) + 1;
            if (strncmp(rest + end, &JOIN[1], 2) == 0)
                end += 2;
            else
                end += rest[end] == ' ';
        }
        char *line = l->text[l->n++];
        plain(first);
        const char *shown = text_fit(c, first, pt, room, line, NOTE_TEXT);
        l->cut |= shown == line;
        if (shown == first)
            memcpy(line, first, sizeof first);
        memmove(rest, rest + end, strlen(rest + end) + 1);
    }
}

double note_height(struct canvas *c, const struct figure_style *s, const struct note *n,
                   const char *text)
{
    struct canvas *ruler = NULL;
    struct lines l = {.n = 0};
    if (!c && canvas_create(CANVAS_PNG, 10, 10, 72, &ruler, NULL) == KVF_OK
        && (!s->font || canvas_font(ruler, s->font, NULL) == KVF_OK))
        c = ruler;
    if (c)
        break_lines(c, n, text, &l);
    canvas_destroy(ruler);
    return l.n * pitch_of(n);
}

static void draw_lines(struct canvas *c, const struct note *n, const struct lines *l, double y)
{
    double pt = size_of(n);
    if (l->cut)
        canvas_cut(c);
    for (int i = 0; i < l->n; i++, y += pitch_of(n)) {
        double half = canvas_text_width(c, l->text[i], pt, 0) / 2;
        if (n->middle > 0)
            canvas_text(c, fmax(n->left + half, fmin(n->middle, n->right - half)), y, l->text[i],
                        pt, ALIGN_CENTER, quiet, 0);
        else
            canvas_text(c, n->left, y, l->text[i], pt, ALIGN_LEFT, quiet, 0);
    }
}

void note_draw(struct canvas *c, const struct note *n, double y, const char *text)
{
    struct lines l;
    break_lines(c, n, text, &l);
    draw_lines(c, n, &l, y);
}

void note_draw_up(struct canvas *c, const struct note *n, double y, const char *text)
{
    struct lines l;
    break_lines(c, n, text, &l);
    draw_lines(c, n, &l, y - (l.n - 1) * pitch_of(n));
}
