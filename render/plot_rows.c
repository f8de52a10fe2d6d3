/* plot_rows.c - reads the options, rows and criterion names that plot figures share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/identity.h"
#include "render/line_colours.h"
#include "render/palette.h"
#include "render/plot.h"
#include "render/note.h"

struct plot_rows plot_rows_of(const struct table *t)
{
    return (struct plot_rows){t,
                              table_find(t, "head"),
                              table_find(t, "layer"),
                              table_find(t, "index"),
                              table_find(t, "class"),
                              table_find(t, "criterion"),
                              table_find(t, "trace"),
                              table_find(t, "documents")};
}

bool row_is(const struct table *t, int col, int64_t row, const char *text)
{
    return strcmp(table_str(t, col, row), text) == 0;
}

bool row_pooled(const struct plot_rows *k, int64_t row)
{
    return k->head < 0 || row_is(k->t, k->head, row, "all");
}

bool row_layer(const struct plot_rows *k, int64_t row)
{
    if (k->head < 0)
        return false;
    const char *name = table_str(k->t, k->head, row);
    size_t n = strlen(name);
    return n > 1 && name[n - 1] == '*';
}

bool row_head(const struct plot_rows *k, int64_t row)
{
    return !row_pooled(k, row) && !row_layer(k, row);
}

bool row_all_classes(const struct plot_rows *k, int64_t row)
{
    return k->class < 0 || row_is(k->t, k->class, row, "all");
}

static bool any_interval(const struct plot *p)
{
    for (int i = 0; i < p->n_series; i++) {
        const struct chart_line *l = &p->series[i].data;
        for (int k = 0; l->low && !l->filled && k < l->n; k++)
            if (isfinite(l->low[k]) && isfinite(l->high[k]))
                return true;
    }
    return false;
}

const char *plot_bands(const struct plot *p)
{
    double widest = 0, top = p->y1; /* of an axis from the data: its largest value */
    for (int i = 0; i < p->n_series; i++) {
        const struct chart_line *l = &p->series[i].data;
        for (int k = 0; l->low && !l->filled && k < (l->few ? l->few : l->n); k++)
            if (isfinite(l->low[k]) && isfinite(l->high[k])) {
                widest = fmax(widest, l->high[k] - l->low[k]);
                top = isnan(p->y1) ? fmax(top, l->high[k]) : top;
            }
    }
    return widest > 0.012 * top || p->log_y ? "bands: 95 % CI" : "95 % CI narrower than lines";
}

const char *bands_text(const struct table *t, const struct plot *p, char out[48])
{
    double n = table_meta_real(t, "documents", NAN);
    if (n == 1)
        snprintf(out, 48, "1 document: no intervals");
    else if (n > 1 && !any_interval(p))
        snprintf(out, 48, "%.0f documents, no intervals", n);
    else if (n > 1)
        snprintf(out, 48, "bands: 95 %% CI over %.0f documents", n);
    else
        snprintf(out, 48, "bands: 95 %% CI over documents");
    return out;
}

void plot_note_documents(struct plot *p, const struct table *t)
{
    double most = 0, last = INFINITY;
    size_t n = strlen(p->note);
    char bands[48];
    bool dropped = false;
    for (int i = 0; i < p->n_series; i++) {
        const struct chart_line *l = &p->series[i].data;
        most = fmax(most, l->documents[0]);
        if (l->documents[1] > 0)
            last = fmin(last, l->documents[1]);
        dropped |= l->dropped;
    }
    if (most > 0 && !strstr(p->note, "document"))
        n += (size_t)snprintf(p->note + n, sizeof p->note - n, "%s%s", n ? "; " : "",
                              bands_text(t, p, bands));
    if (dropped && n < sizeof p->note)
        snprintf(p->note + n, sizeof p->note - n,
                 "; pale: fewer than %.0f documents, %.0f at the end", most, last);
}

struct head_count plot_count_heads(const struct plot_rows *k)
{
    struct head_count x = {.name = ""};
    int64_t n = 0, first = -1, before = -1, rows = k->head < 0 ? 0 : table_rows(k->t);
    bool traces = k->trace >= 0 && table_col_type(k->t, k->trace) == TABLE_STR, again = false;
    for (int64_t r = 0; r <= rows; r++) {
        bool next = r == rows
                    || (traces && r
                        && !row_is(k->t, k->trace, r, table_str(k->t, k->trace, r - 1)));
        if (next && n) {
            x.least = !x.most || n < x.least ? n : x.least;
            x.most = n > x.most ? n : x.most;
        }
        if (next) {
            n = 0;
            first = -1;
            again = false;
        }
        if (r == rows || again || !row_head(k, r))
            continue;
        first = first < 0 ? r : first;
        if (n && row_is(k->t, k->head, r, table_str(k->t, k->head, before)))
            continue;
        again = n && row_is(k->t, k->head, r, table_str(k->t, k->head, first));
        if (again)
            continue;
        before = r;
        x.name = table_str(k->t, k->head, r);
        n++;
    }
    return x;
}

const char *plot_heads_text(const struct plot_rows *k, char out[HEADS_TEXT])
{
    struct head_count x = plot_count_heads(k);
    if (x.least < x.most)
        snprintf(out, HEADS_TEXT, "%lld to %lld heads", (long long)x.least, (long long)x.most);
    else
        snprintf(out, HEADS_TEXT, "%lld head%s", (long long)x.most, x.most == 1 ? "" : "s");
    return out;
}

void plot_note_run(struct plot *p, const struct table *t)
{
    char run[NOTE_RUN];
    note_add(p->note, note_run(t, run));
}

static void one_criterion(const char *raw, size_t n, char *out, size_t room)
{
    if (n > 5 && strncmp(raw, "mass.", 5) == 0)
        snprintf(out, room, "mass 0.%.*s", (int)(n - 5), raw + 5);
    else if (n > 3 && strncmp(raw, "top", 3) == 0)
        snprintf(out, room, "top-%.*s", (int)(n - 3), raw + 3);
    else if (n > 7 && strncmp(raw, "contrib", 7) == 0)
        snprintf(out, room, "contribution top-%.*s", (int)(n - 7), raw + 7);
    else if (n == 4 && strncmp(raw, "held", 4) == 0)
        snprintf(out, room, "cached");
    else
        snprintf(out, room, "%.*s", (int)n, raw);
}

const char *const criterion_meaning[CRITERION_KINDS][2] = {
    {"top", "top-K: K largest weights of a query"}, {"mass", "mass p: fewest weights with sum p"}};

void criterion_name(const char *raw, char out[PLOT_NAME])
{
    char first[PLOT_NAME / 2 - 2], second[PLOT_NAME / 2 - 2];
    size_t n = strcspn(raw, "-");
    one_criterion(raw, n, first, sizeof first);
    if (!raw[n]) {
        snprintf(out, PLOT_NAME, "%s", first);
        return;
    }
    one_criterion(raw + n + 1, strlen(raw + n + 1), second, sizeof second);
    snprintf(out, PLOT_NAME, "%s \xe2\x88\x92 %s", first, second);
}

struct chart_look criterion_look(const char *raw)
{
    enum { N = sizeof criterion_colours / sizeof *criterion_colours };
    uint32_t colour = other_criterion_colour;
    double dash = 0.5;
    /* from the largest set to the smallest that is large enough */
    for (int i = N - 1; i >= 0; i--) {
        const char *kind = criterion_colours[i].kind;
        size_t n = strlen(kind);
        bool last = i == N - 1 || strcmp(criterion_colours[i + 1].kind, kind) != 0;
        if (strncmp(raw, kind, n) != 0
            || (!last && strtol(raw + n, NULL, 10) > criterion_colours[i].most))
            continue;
        colour = criterion_colours[i].colour;
        dash = kind[0] == 't' ? 0 : 1.3;
    }
    return (struct chart_look){.colour = rgb_of(colour), .dash = dash, .width = 0.4};
}

double value_at(const struct table *t, int col, int64_t row)
{
    return col < 0 ? NAN : table_real(t, col, row);
}

static bool is_gap(const char *criterion)
{
    return strchr(criterion, '-') != NULL;
}

static bool any_class(const struct plot_rows *k)
{
    bool any = false;
    for (int64_t r = 0; !any && r < table_rows(k->t); r++)
        any = !row_all_classes(k, r);
    return any;
}

static enum choice_by choose_by(const struct plot_rows *k, const struct choice_style *o)
{
    if (o->by != CHOICE_AUTO)
        return (enum choice_by)o->by;
    return any_class(k) && o->heads == 0 ? CHOICE_CLASS : CHOICE_CRITERION;
}

/* Returns the first drawn criterion, or NULL. *ret_more: there are others. */
static const char *first_criterion(const struct row_choice *v, bool *ret_more)
{
    const char *first = NULL;
    *ret_more = false;
    for (int64_t r = 0; !*ret_more && r < table_rows(v->k.t); r++) {
        const char *name = table_str(v->k.t, v->k.criterion, r);
        if (v->criterion ? strcmp(name, v->criterion) != 0 : is_gap(name) != v->gaps)
            continue;
        first = first ? first : name;
        *ret_more = strcmp(name, first) != 0;
    }
    return first;
}

int choice_open(struct row_choice *v, const struct table *t, const struct choice_style *o,
                struct kvf_diag *d)
{
    struct plot_rows k = plot_rows_of(t);
    enum choice_by by = choose_by(&k, o);
    bool more;
    *v = (struct row_choice){.k = k,
                             .heads = by == CHOICE_HEAD,
                             .classes = by == CHOICE_CLASS,
                             .gaps = by == CHOICE_GAP,
                             .traces = by == CHOICE_TRACE,
                             .thin = o->heads == 1,
                             .criterion = o->criterion};
    if (v->classes && table_rows(t) > 0 && !any_class(&v->k))
        return kvf_fail(d, KVF_E_ARG,
                        "--style by=class: the table has no rows of classes; "
                        "--by class of the analysis makes them");
    if (v->traces && v->k.trace < 0)
        return kvf_fail(d, KVF_E_ARG, "--style by=trace: the table is of one trace; give several");
    const char *first = first_criterion(v, &more);
    if (o->criterion && !first)
        return kvf_fail(d, KVF_E_ARG, "--style: the table has no rows of criterion '%s'",
                        o->criterion);
    if (v->classes && first && !more) /* the note names it instead of headings */
        v->criterion = first;
    return KVF_OK;
}

bool choice_has(const struct row_choice *v, int64_t r)
{
    const char *name = table_str(v->k.t, v->k.criterion, r);
    bool pooled = row_pooled(&v->k, r);
    if (v->heads ? pooled : !pooled && !v->thin)
        return false;
    if (is_gap(name) != v->gaps || (v->criterion && strcmp(name, v->criterion) != 0))
        return false;
    return v->classes || row_all_classes(&v->k, r);
}

enum choice_about choice_about(const struct row_choice *v)
{
    bool use = false, cache = false;
    for (int64_t r = 0; r < table_rows(v->k.t) && !(use && cache); r++) {
        bool held = strcmp(table_str(v->k.t, v->k.criterion, r), "held") == 0;
        bool in = choice_has(v, r);
        cache |= in && held;
        use |= in && !held;
    }
    if (cache)
        return use ? ABOUT_BOTH : ABOUT_CACHE;
    return ABOUT_USE;
}

bool choice_name(const struct row_choice *v, int64_t r, char panel[PLOT_NAME], char line[PLOT_NAME])
{
    panel[0] = 0;
    criterion_name(table_str(v->k.t, v->k.criterion, r), line);
    if (v->classes && v->k.class >= 0) {
        snprintf(panel, PLOT_NAME, "%s", v->criterion ? "" : line);
        snprintf(line, PLOT_NAME, "%s", table_str(v->k.t, v->k.class, r));
    }
    if (v->heads)
        snprintf(panel, PLOT_NAME, "%s", table_str(v->k.t, v->k.head, r));
    else if (v->thin)
        snprintf(panel, PLOT_NAME, "%s", line);
    if (v->traces) {
        snprintf(panel, PLOT_NAME, "%s", line);
        snprintf(line, PLOT_NAME, "%.90s", table_str(v->k.t, v->k.trace, r));
    } else if (v->k.trace >= 0) {
        char own[PLOT_NAME];
        memcpy(own, panel, sizeof own);
        snprintf(panel, PLOT_NAME, "%.50s%s%.40s", table_str(v->k.t, v->k.trace, r),
                 own[0] ? ": " : "", own);
    }
    if (v->heads || row_pooled(&v->k, r))
        return true;
    snprintf(line, PLOT_NAME, "head %.40s %.40s", table_str(v->k.t, v->k.head, r),
             v->traces ? table_str(v->k.t, v->k.trace, r) : "");
    return false;
}

void plot_look_methods(struct plot *p)
{
    const char **name = MEM_NEW(const char *, (size_t)p->n_lines + 1);
    struct identity *look = MEM_NEW(struct identity, (size_t)p->n_lines + 1);
    int n = 0;
    if (!name || !look)
        p->err = KVF_E_NOMEM;
    for (int i = 0; !p->err && i < p->n_lines; i++)
        if (p->line[i].method)
            name[n++] = p->line[i].name;
    if (!p->err)
        identity_of_methods(n, name, look);
    for (int i = p->n_lines - 1; !p->err && i >= 0; i--)
        if (p->line[i].method) {
            p->line[i].look.colour = look[--n].colour;
            p->line[i].look.dash = look[n].dash;
            p->line[i].look.sign = 1 + (int)look[n].mark;
        }
    mem_free_all(name, look);
}

void choice_add(struct plot *p, const struct row_choice *v, int64_t r, const char *panel, double x,
                double y, double low, double high)
{
    char own[PLOT_NAME], line[PLOT_NAME];
    int n = p->n_lines;
    bool front = choice_name(v, r, own, line);
    plot_add(p, panel ? panel : own, line, x, y, low, high);
    plot_documents(p, value_at(v->k.t, v->k.documents, r));
    if (p->n_lines == n)
        return;
    struct plot_line *made = &p->line[p->n_lines - 1];
    if (!front)
        plot_behind(p, line);
    else if (v->traces)
        made->method = true;
    else if (!v->classes && !v->gaps)
        made->look = criterion_look(table_str(v->k.t, v->k.criterion, r));
    else if (strcmp(line, "all") == 0)
        made->look = (struct chart_look){.colour = ink, .width = 0.55};
    else
        made->look = plot_look_coloured(n - (v->classes && strcmp(p->line[0].name, "all") == 0));
    if (front && v->classes) /* dashes by index, colour by class */
        made->look.colour = identity_of_class(line, n);
    made->hidden |= v->thin && !v->traces; /* the panels have the names */
    if (front && v->thin && !v->traces)
        made->look = (struct chart_look){.colour = ink};
    if (front && v->thin)
        made->look.width = 0.6;
}

void plot_by_steps(struct plot *p, bool log_y, const char *xlabel, const char *ylabel)
{
    p->log_x = true;
    p->log_y = log_y;
    p->whole_x = true;
    p->xlabel = xlabel;
    p->ylabel = ylabel;
    p->y0 = log_y ? NAN : 0;
}

void plot_mark_points(struct plot *p)
{
    for (int i = 0; i < p->n_lines; i++)
        p->line[i].look.points = !p->line[i].back;
}

void choice_note(const struct row_choice *v, const struct plot *p, char out[PLOT_NAME])
{
    char name[PLOT_NAME] = "";
    if ((v->classes || v->traces) && v->criterion)
        criterion_name(v->criterion, name);
    snprintf(out, PLOT_NAME, "%.40s%s%s", name, name[0] ? "; " : "",
             v->thin && p->n_lines ? "grey: single heads; thick: all heads together; " : "");
}

void choice_note_run(const struct row_choice *v, struct plot *p)
{
    static const char tokens[] = "tokens";
    char run[NOTE_RUN + 64], text[HEADS_TEXT];
    struct head_count heads = plot_count_heads(&v->k);
    for (int i = 0; i < CRITERION_KINDS; i++) {
        bool any = false;
        for (int64_t r = 0; !any && r < table_rows(v->k.t); r++)
            any = choice_has(v, r)
                  && strstr(table_str(v->k.t, v->k.criterion, r), criterion_meaning[i][0]);
        if (any)
            note_add(p->note, criterion_meaning[i][1]);
    }
    note_run(v->k.t, run);
    size_t n = strlen(run);
    if (n >= strlen(tokens) && heads.most == 1)
        snprintf(run + n, sizeof run - n, ", head %.20s", heads.name);
    else if (n >= strlen(tokens) && heads.most)
        snprintf(run + n, sizeof run - n, "%s %s",
                 strcmp(run + n - strlen(tokens), tokens) == 0 ? " \xc3\x97" : ",",
                 plot_heads_text(&v->k, text));
    note_add(p->note, run);
}
