/* fig_words_cloud.c - draws a cloud of the words that the caches keep, with areas proportional to
 * their counts, and dark if they are kept more often than the text has them.
 *
 * Each word gets the first free place of a spiral from the middle, the most frequent word first.
 * Equal tables give equal clouds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/cells.h"
#include "render/words_list.h"

enum { MOST = 200, TURNS = 3000 };
static const double MARGIN = 1.5, BOTTOM = 6, MIN_PT = 5, MAX_PT = 46, PAD = 0.5, MM = 25.4 / 72;

struct cloud_style {
    int64_t top;
    int size; /* 0: count, 1: ratio */
};

struct place {
    double x, y, w, h; /* left, top */
};

struct cloud {
    struct words_list list;
    const struct cloud_style *o;
    struct place *place;
    int n, placed;
};

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)t, (void)s;
    *w = 88;
    *h = 58;
}

static bool free_at(const struct cloud *k, const struct place *p)
{
    for (int i = 0; i < k->placed; i++) {
        const struct place *q = &k->place[i];
        if (p->x < q->x + q->w && q->x < p->x + p->w && p->y < q->y + q->h && q->y < p->y + p->h)
            return false;
    }
    return true;
}

/* Sets p to the first free place along the spiral from the middle.  Returns false if the canvas has
 * no such place. */
static bool find_place(const struct cloud *k, struct place *p, double width, double height)
{
    double cx = width / 2, cy = height / 2, reach = hypot(cx, cy);
    for (int i = 0; i < TURNS; i++) {
        double f = (double)i / TURNS, r = reach * f, turn = 120 * sqrt(f);
        p->x = cx + r * cos(turn) * cx / reach * 1.42 - p->w / 2;
        p->y = cy + r * sin(turn) * cy / reach * 1.42 - p->h / 2;
        if (p->x >= MARGIN && p->y >= MARGIN && p->x + p->w <= width - MARGIN
            && p->y + p->h <= height && free_at(k, p))
            return true;
    }
    return false;
}

static double weight(const struct cloud *k, int i)
{
    const struct word_row *r = &k->list.row[i];
    double v = k->o->size == 1 ? r->lift : r->count;
    return isfinite(v) && v > 0 ? v : 0;
}

static struct rgb colour_of(const struct word_row *r)
{
    return r->lift > 1 ? palette_line(0) : quiet;
}

/* Places the words, the largest with max_pt.  With `draw` it draws all that fit; without, it stops
 * at the first word that does not.  Returns the number of placed words. */
static int pack(struct canvas *c, struct cloud *k, double max_pt, bool draw)
{
    double top = 0, w = canvas_width(c), h = canvas_height(c) - BOTTOM;
    k->placed = 0;
    for (int i = 0; i < k->n; i++)
        top = fmax(top, weight(k, i));
    for (int i = 0; i < k->n; i++) {
        const char *word = k->list.row[i].word;
        double pt = fmax(MIN_PT, max_pt * sqrt(weight(k, i) / top));
        struct place p = {.w = canvas_text_width(c, word, pt, 0) + 2 * PAD, .h = pt * MM * 1.12};
        if (!*word || !(top > 0) || !find_place(k, &p, w, h)) {
            if (!draw)
                break;
            continue;
        }
        k->place[k->placed++] = p;
        if (draw)
            canvas_text(c, p.x + PAD, p.y + p.h / 2, word, pt, ALIGN_LEFT,
                        colour_of(&k->list.row[i]), 0);
    }
    return k->placed;
}

static void note(struct canvas *c, const struct cloud *k)
{
    static const char *const texts[] = {"held more than the text has them", "less"};
    char text[64];
    double x = MARGIN + 1, y = canvas_height(c) - 2.6;
    for (int i = 0; i < 2; i++) {
        canvas_rect(c, x, y - .9, 1.8, 1.8, i ? quiet : palette_line(0));
        canvas_text(c, x + 2.6, y, texts[i], PT_SMALL, ALIGN_LEFT, ink, 0);
        x += 6 + canvas_text_width(c, texts[i], PT_SMALL, 0);
    }
    snprintf(text, sizeof text, "%d of %lld words", k->placed, (long long)k->list.n);
    if (x + canvas_text_width(c, text, PT_SMALL, 0) < canvas_width(c) - MARGIN)
        canvas_text(c, canvas_width(c) - MARGIN - 1, y, text, PT_SMALL, ALIGN_RIGHT, ink, 0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    (void)d;
    struct cloud k = {.o = s->own};
    int err = words_read(t, k.o->size == 1 ? WORDS_RATIO : WORDS_COUNT, &k.list);
    k.n = (int)(k.list.n < k.o->top ? k.list.n : k.o->top);
    k.place = MEM_NEW(struct place, MOST);
    if (!err && !k.place)
        err = KVF_E_NOMEM;
    double pt = MAX_PT;
    while (!err && pt > 1.3 * MIN_PT && pack(c, &k, pt, false) < k.n)
        pt *= .88; /* smaller until all words fit */
    if (!err) {
        pack(c, &k, pt, true);
        note(c, &k);
    }
    mem_free(k.place);
    words_free(&k.list);
    return err;
}

const struct figure fig_words_cloud = {
    .name = "words-cloud",
    .table = "words",
    .summary = "word cloud of kept words",
    .needs = "word:text count base_count",
    STYLE(struct cloud_style,
          COUNT_KEY(struct cloud_style, top, 1, MOST, "most words", .standard = "100"),
          WORD_KEY(struct cloud_style, size, "count", "meaning of the area of a word", "count",
                   "ratio")),
    .size = size,
    .draw = draw,
};
