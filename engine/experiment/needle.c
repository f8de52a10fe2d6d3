/* needle.c - texts with keys and numbers hidden in unrelated sentences. */
#include "engine/experiment/needle.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/rng.h"
#include "engine/experiment/needle_text.h"

static const char *const adjectives[] = {
    "amber",   "brass",   "broken", "cedar",   "copper", "crimson",  "distant",  "dusty",
    "eastern", "emerald", "foggy",  "frozen",  "golden", "granite",  "hidden",   "hollow",
    "iron",    "ivory",   "lonely", "marble",  "misty",  "narrow",   "northern", "painted",
    "quiet",   "rusty",   "sandy",  "scarlet", "silver", "southern", "sunken",   "violet"};
static const char *const things[] = {
    "anchor",  "archive", "bakery",     "balcony", "bridge", "cabin",    "canal",  "castle",
    "chapel",  "clock",   "cottage",    "ferry",   "forge",  "fountain", "garden", "gate",
    "harbour", "library", "lighthouse", "mill",    "museum", "orchard",  "quarry", "school",
    "station", "tavern",  "theatre",    "tower",   "tunnel", "vault",    "well",   "workshop"};
static const char *const people[] = {
    "The baker",          "A farmer",       "The old carpenter", "Her cousin",
    "The ferryman",       "A traveller",    "The new teacher",   "His neighbour",
    "The gardener",       "A young sailor", "The miller",        "The postman",
    "An uncle of theirs", "The tailor",     "A shepherd",        "The innkeeper"};
static const char *const deeds[] = {"mended the fence",
                                    "carried two baskets of apples",
                                    "sang the whole afternoon",
                                    "counted the boats",
                                    "swept the yard",
                                    "told a long story",
                                    "waited for the rain to stop",
                                    "painted a door green",
                                    "fed the geese",
                                    "read the newspaper aloud",
                                    "lost a glove",
                                    "baked a loaf of rye bread",
                                    "repaired the cart",
                                    "wrote a letter home",
                                    "looked for the black cat",
                                    "picked plums"};
static const char *const places[] = {"by the river",
                                     "behind the barn",
                                     "on the market square",
                                     "near the old oak",
                                     "at the edge of the village",
                                     "under the arches",
                                     "in the kitchen",
                                     "on the hill",
                                     "along the coast road",
                                     "beside the pond",
                                     "in the shade of a wall",
                                     "at the crossroads",
                                     "on the way to town",
                                     "in the meadow",
                                     "next to the church",
                                     "at the foot of the stairs"};
static const char *const times[] = {"before breakfast",
                                    "on a windy day",
                                    "when the bells rang",
                                    "late in autumn",
                                    "as every year",
                                    "while the others slept",
                                    "after supper",
                                    "in the first snow",
                                    "for no reason at all",
                                    "until it grew dark",
                                    "and nobody minded",
                                    "with great care",
                                    "as if nothing had happened",
                                    "and then went home",
                                    "for the second time",
                                    "in silence"};
static const char *const noise[] = {
    "The grass is green and the sky is wide.", "The day begins and the day ends.",
    "A road leads out and a road leads back.", "Water runs down and smoke goes up."};

enum {
    N_ADJECTIVES = sizeof adjectives / sizeof *adjectives,
    N_THINGS = sizeof things / sizeof *things,
    N_KEYS = N_ADJECTIVES * N_THINGS,
};
#define DRAWN(list, r) (list)[rng_below((r), sizeof(list) / sizeof *(list))]

static const char intro[] = "Here are some notes. They hold numbers that you will be asked for "
                            "at the end.\n\n";

/* The random choices of a task, which do not depend on the length of the text. */
struct draw {
    const struct needle_task *task;
    int key[N_KEYS];            /* random order of all keys */
    int64_t least;              /* smallest number with the given digits */
    int64_t value[NEEDLE_MOST]; /* [key * values + v], all different */
    double depth[NEEDLE_MOST];
};

int needle_check(const struct needle_task *t, struct kvf_diag *d)
{
    int64_t most = 9;
    for (int64_t i = 1; i < t->digits; i++)
        most *= 10;
    if (t->hops && (t->values > 1 || t->queries > 1 || t->haystack == HAYSTACK_NEEDLES))
        return kvf_fail(d, KVF_E_ARG,
                        "--hops asks for the variables of one chain: leave out --values, --queries "
                        "and --haystack needles; --keys %lld gives so many chains",
                        (long long)t->keys);
    if (t->keys * (t->hops + 1) > NEEDLE_MOST)
        return kvf_fail(d, KVF_E_ARG, "%lld chains of %lld hops are over %d variables",
                        (long long)t->keys, (long long)t->hops, NEEDLE_MOST);
    if (t->queries > t->keys)
        return kvf_fail(d, KVF_E_ARG, "--queries %lld: there are only %lld keys",
                        (long long)t->queries, (long long)t->keys);
    if (t->keys * t->values > NEEDLE_MOST)
        return kvf_fail(d, KVF_E_ARG, "%lld keys with %lld values each are over %d needles",
                        (long long)t->keys, (long long)t->values, NEEDLE_MOST);
    if (t->keys * t->values > most / 2)
        return kvf_fail(d, KVF_E_ARG, "--digits %lld: too few numbers for %lld different values",
                        (long long)t->digits, (long long)(t->keys * t->values));
    return KVF_OK;
}

static bool is_used(const struct draw *w, int n, int64_t value)
{
    for (int i = 0; i < n; i++)
        if (w->value[i] == value)
            return true;
    return false;
}

static void draw(struct draw *w, const struct needle_task *t)
{
    struct rng keys, values;
    w->task = t;
    w->least = 1;
    rng_init(&keys, rng_hash(t->seed, DRAW_KEYS, 0, 0));
    rng_init(&values, rng_hash(t->seed, DRAW_VALUES, 0, 0));
    for (int i = 0; i < N_KEYS; i++)
        w->key[i] = i;
    for (int i = 0; i < N_KEYS - 1; i++) { /* Fisher-Yates shuffle */
        int j = i + (int)rng_below(&keys, (uint64_t)(N_KEYS - i)), kept = w->key[i];
        w->key[i] = w->key[j];
        w->key[j] = kept;
    }
    for (int64_t i = 1; i < t->digits; i++)
        w->least *= 10;
    for (int i = 0; i < t->keys * t->values; i++) {
        do
            w->value[i] = w->least + (int64_t)rng_below(&values, (uint64_t)(9 * w->least));
        while (is_used(w, i, w->value[i]));
        struct rng r;
        rng_init(&r, rng_hash(t->seed, DRAW_DEPTH, (uint64_t)i, 0));
        w->depth[i] = rng_uniform(&r);
        if (i < t->queries * t->values && !isnan(t->depth))
            w->depth[i] = t->depth;
    }
}

static void put_key(struct buf *b, int key)
{
    buf_printf(b, "%s %s", adjectives[key / N_THINGS], things[key % N_THINGS]);
}

void needle_put_filler(const struct needle_task *t, int i, struct buf *text)
{
    struct rng r;
    rng_init(&r, rng_hash(t->seed, DRAW_FILLER, (uint64_t)i, 0));
    if (t->haystack == HAYSTACK_NOISE) {
        buf_str(text, noise[i % (int)(sizeof noise / sizeof *noise)]);
    } else {
        const char *who = DRAWN(people, &r), *what = DRAWN(deeds, &r), *where = DRAWN(places, &r);
        buf_printf(text, "%s %s %s %s.", who, what, where, DRAWN(times, &r));
    }
}

static void put_filler(const struct draw *w, int i, struct buf *text)
{
    const struct needle_task *t = w->task;
    if (t->haystack != HAYSTACK_NEEDLES) {
        needle_put_filler(t, i, text);
        return;
    }
    struct rng r;
    rng_init(&r, rng_hash(t->seed, DRAW_FILLER, (uint64_t)i, 0));
    int free_keys = N_KEYS - (int)t->keys; /* keys that are not asked for may be repeated */
    int64_t value;
    buf_str(text, "The number of the ");
    put_key(text, w->key[(int)t->keys + (int)rng_below(&r, (uint64_t)free_keys)]);
    do
        value = w->least + (int64_t)rng_below(&r, (uint64_t)(9 * w->least));
    while (is_used(w, (int)(t->keys * t->values), value));
    buf_printf(text, " is %lld.", (long long)value);
}

void needle_put_span(struct buf *b, const char *name, bool useful, size_t start, size_t end)
{
    if (!b)
        return;
    bool first = b->len > 0 && b->data[b->len - 1] == '[';
    buf_printf(b, "%s{\"name\":\"%s\",\"useful\":%s,\"start\":%zu,\"end\":%zu}", first ? "" : ",",
               name, useful ? "true" : "false", start, end);
}

static void put_needle(const struct draw *w, int i, struct buf *text, struct buf *spans)
{
    const struct needle_task *t = w->task;
    bool asked = i < t->queries * t->values;
    size_t start = text->len;
    buf_str(text, t->values > 1 ? "One of the numbers of the " : "The number of the ");
    put_key(text, w->key[i / t->values]);
    buf_printf(text, " is %lld.", (long long)w->value[i]);
    needle_put_span(spans, asked ? "needle" : "distractor", asked, start, text->len);
    if (asked)
        needle_put_span(spans, "value", false, text->len - 1 - (size_t)t->digits, text->len - 1);
}

/* Appends the keys in the question: "the amber mill and the iron gate". */
static void put_asked(const struct draw *w, struct buf *text)
{
    for (int k = 0; k < w->task->queries; k++) {
        if (k > 0)
            buf_str(text, k + 1 < w->task->queries ? ", " : " and ");
        buf_str(text, "the ");
        put_key(text, w->key[k]);
    }
}

size_t needle_begin_question(struct buf *text)
{
    while (text->len > 0 && text->data[text->len - 1] == ' ')
        text->data[--text->len] = 0;
    buf_str(text, "\n\n");
    return text->len;
}

static void put_question(const struct draw *w, struct buf *text, struct buf *spans)
{
    const struct needle_task *t = w->task;
    bool several = t->queries * t->values > 1;
    size_t start = needle_begin_question(text);
    buf_printf(text, "According to the notes, what %s of ",
               several ? "are the numbers" : "is the number");
    put_asked(w, text);
    buf_printf(text, "? Answer with the number%s alone.", several ? "s" : "");
    needle_put_span(spans, "question", false, start, text->len);
}

void needle_put_answers(struct buf *spans, const struct buf *lead, const struct buf *answer, int n)
{
    struct buf text = {0}, values = {0};
    buf_add(&text, lead->data ? lead->data : "", lead->len);
    for (int i = 0; i < n; i++) {
        if (i > 0)
            buf_str(&text, i + 1 < n ? ", " : " and ");
        size_t start = text.len;
        buf_add(&text, answer[i].data ? answer[i].data : "", answer[i].len);
        buf_printf(&values, "%s[%zu,%zu]", i ? "," : "", start, text.len);
        if (answer[i].err)
            spans->err = answer[i].err;
    }
    buf_char(&text, '.');
    buf_str(spans, "\"reply\":{");
    json_put_key(spans, "text");
    json_put_str(spans, text.data ? text.data : "", text.len);
    buf_printf(spans, ",\"values\":[%s]},\"answers\":[", values.data ? values.data : "");
    for (int i = 0; i < n; i++)
        buf_printf(spans, "%s\"%s\"", i ? "," : "", answer[i].data ? answer[i].data : "");
    buf_str(spans, "],\"spans\":[");
    if (text.err || values.err || lead->err)
        spans->err = KVF_E_NOMEM;
    buf_finish(&text);
    buf_finish(&values);
}

static void put_answers(const struct draw *w, struct buf *spans)
{
    struct buf lead = {0}, answer[NEEDLE_MOST] = {{0}};
    int n = (int)(w->task->queries * w->task->values);
    buf_str(&lead, n > 1 ? "The numbers of " : "The number of ");
    put_asked(w, &lead);
    buf_str(&lead, n > 1 ? " are " : " is ");
    for (int i = 0; i < n; i++)
        buf_printf(&answer[i], "%lld", (long long)w->value[i]);
    needle_put_answers(spans, &lead, answer, n);
    for (int i = 0; i < n; i++)
        buf_finish(&answer[i]);
    buf_finish(&lead);
}

double needle_chance(const struct needle_task *t)
{
    double numbers = t->hops ? pow(26, 5) : 9 * pow(10, (double)t->digits - 1), chance = 1;
    int64_t n = t->hops ? t->hops + 1 : t->queries * t->values;
    for (int64_t i = 0; i < n; i++)
        chance /= numbers - (double)i;
    return chance;
}

bool needle_is_before(double depth, int s, int n_sentences)
{
    return (int)fmin(n_sentences, depth * (n_sentences + 1)) == s;
}

void needle_write(const struct needle_task *t, int n_sentences, struct buf *text, struct buf *spans)
{
    struct draw w;
    int n = (int)(t->keys * t->values);
    draw(&w, t);
    if (spans)
        put_answers(&w, spans);
    buf_str(text, intro);
    for (int s = 0; s <= n_sentences; s++) {
        for (int i = 0; i < n; i++)
            if (needle_is_before(w.depth[i], s, n_sentences)) {
                put_needle(&w, i, text, spans);
                buf_char(text, ' ');
            }
        if (s < n_sentences) {
            put_filler(&w, s, text);
            buf_char(text, ' ');
        }
    }
    put_question(&w, text, spans);
    if (spans)
        buf_char(spans, ']');
}
