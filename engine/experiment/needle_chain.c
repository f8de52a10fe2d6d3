/* needle_chain.c - chains of variables that pass on a number, and the question which of them have
 * it: the variable tracking task of RULER (Hsieh et al. 2024, arXiv 2404.06654). Chain k is "VAR A
 * = 12345." and, for each hop, "VAR B = VAR A.". Its sentences have this order in the text. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "engine/experiment/needle_text.h"

enum { LETTERS = 5, N_NAMES = 26 * 26 * 26 * 26 * 26 };

static const char intro[] = "Here are some notes. They set variables, and you will be asked for "
                            "these at the end.\n\n";

/* The random choices of a task. */
struct chains {
    const struct needle_task *task;
    int links;                  /* variables per chain */
    int name[NEEDLE_MOST];      /* [chain * links + link], all different, less than N_NAMES */
    int64_t value[NEEDLE_MOST]; /* [chain], all different */
    double depth[NEEDLE_MOST];  /* [chain * links + link], not decreasing along a chain */
};

static bool has_name(const struct chains *w, int n)
{
    for (int i = 0; i < n; i++)
        if (w->name[i] == w->name[n])
            return true;
    return false;
}

static bool has_value(const struct chains *w, int n)
{
    for (int i = 0; i < n; i++)
        if (w->value[i] == w->value[n])
            return true;
    return false;
}

/* Draws the depths of a chain and sorts them in increasing order. */
static void draw_depths(struct chains *w, int chain)
{
    double *depth = w->depth + chain * w->links;
    for (int i = 0; i < w->links; i++) {
        struct rng r;
        int at = i;
        rng_init(&r, rng_hash(w->task->seed, DRAW_DEPTH, (uint64_t)(chain * w->links + i), 0));
        double x = chain == 0 && !isnan(w->task->depth) ? w->task->depth : rng_uniform(&r);
        for (; at > 0 && depth[at - 1] > x; at--)
            depth[at] = depth[at - 1];
        depth[at] = x;
    }
}

static void draw(struct chains *w, const struct needle_task *t)
{
    struct rng names, values;
    uint64_t least = 1;
    w->task = t;
    w->links = (int)t->hops + 1;
    rng_init(&names, rng_hash(t->seed, DRAW_NAMES, 0, 0));
    rng_init(&values, rng_hash(t->seed, DRAW_VALUES, 0, 0));
    for (int64_t i = 1; i < t->digits; i++)
        least *= 10;
    for (int i = 0; i < t->keys * w->links; i++)
        do
            w->name[i] = (int)rng_below(&names, N_NAMES);
        while (has_name(w, i));
    for (int k = 0; k < t->keys; k++) {
        do
            w->value[k] = (int64_t)(least + rng_below(&values, 9 * least));
        while (has_value(w, k));
        draw_depths(w, k);
    }
}

static void put_name(struct buf *b, int name)
{
    char text[LETTERS];
    for (int i = LETTERS; i-- > 0; name /= 26)
        text[i] = (char)('A' + name % 26);
    buf_add(b, text, LETTERS);
}

static void put_link(const struct chains *w, int i, struct buf *text, struct buf *spans)
{
    int chain = i / w->links, link = i % w->links;
    size_t start = text->len, name = start + strlen("VAR ");
    buf_str(text, "VAR ");
    put_name(text, w->name[i]);
    buf_str(text, link ? " = VAR " : " = ");
    if (link)
        put_name(text, w->name[i - 1]);
    else
        buf_printf(text, "%lld", (long long)w->value[chain]);
    buf_char(text, '.');
    needle_put_span(spans, chain ? "distractor" : "needle", chain == 0, start, text->len);
    if (chain == 0)
        needle_put_span(spans, "value", false, name, name + LETTERS);
}

static void put_question(const struct chains *w, struct buf *text, struct buf *spans)
{
    size_t start = needle_begin_question(text);
    buf_printf(text,
               "According to the notes, which variables hold the number %lld, set to it or to a "
               "variable that holds it? Answer with their names alone.",
               (long long)w->value[0]);
    needle_put_span(spans, "question", false, start, text->len);
}

static void put_answers(const struct chains *w, struct buf *spans)
{
    struct buf lead = {0}, answer[NEEDLE_MOST] = {{0}};
    buf_printf(&lead, "The variables that hold %lld are ", (long long)w->value[0]);
    for (int i = 0; i < w->links; i++)
        put_name(&answer[i], w->name[i]);
    needle_put_answers(spans, &lead, answer, w->links);
    for (int i = 0; i < w->links; i++)
        buf_finish(&answer[i]);
    buf_finish(&lead);
}

void needle_write_chains(const struct needle_task *t, int n_sentences, struct buf *text,
                         struct buf *spans)
{
    struct chains w;
    draw(&w, t);
    if (spans)
        put_answers(&w, spans);
    buf_str(text, intro);
    for (int s = 0; s <= n_sentences; s++) {
        for (int i = 0; i < t->keys * w.links; i++)
            if (needle_is_before(w.depth[i], s, n_sentences)) {
                put_link(&w, i, text, spans);
                buf_char(text, ' ');
            }
        if (s < n_sentences) {
            needle_put_filler(t, s, text);
            buf_char(text, ' ');
        }
    }
    put_question(&w, text, spans);
    if (spans)
        buf_char(spans, ']');
}
