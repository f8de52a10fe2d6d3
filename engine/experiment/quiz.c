/* quiz.c - makes short questions with known answers. */
#include "engine/experiment/quiz.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

const char *const quiz_kind_words[] = {"facts", "copy", "sums", NULL};

static const char *const names[] = {"Tom", "Lily", "Ben", "Sue",  "Max", "Amy",  "Sam",  "Mia",
                                    "Tim", "Anna", "Joe", "Lucy", "Bob", "Sara", "Jack", "Mom"};
static const char *const colours[] = {"red",   "blue",  "green", "pink",
                                      "black", "white", "big",   "small"};
static const char *const things[] = {"ball", "cup", "hat",  "car",  "dog",  "box",  "cat", "bird",
                                     "book", "toy", "cake", "doll", "boat", "tree", "bed", "fish"};
static const char *const numbers[] = {
    "no",       "one",     "two",     "three",     "four",     "five",     "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",   "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"};
enum { NAMES = 16, COLOURS = 8, THINGS = 16, TEST_SHARE = 5 };

static const int64_t most_level[QUIZ_KINDS] = {NAMES, 64, 10};

int quiz_check(const struct quiz *q, struct kvf_diag *d)
{
    if (q->apart && q->kind != QUIZ_FACTS)
        return kvf_fail(d, KVF_E_ARG,
                        "--question unknown: questions of kind %s have no context that can be cut "
                        "before them; give --kind facts",
                        quiz_kind_words[q->kind]);
    if (q->level >= 1 && q->level <= most_level[q->kind])
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "--level %lld: questions of kind %s have 1 to %lld",
                    (long long)q->level, quiz_kind_words[q->kind], (long long)most_level[q->kind]);
}

static int below(struct rng *r, int n)
{
    return (int)rng_below(r, (uint64_t)n);
}

/* Writes n facts with different names, and asks for one of them. Returns the length of the facts.
 */
static size_t facts(struct rng *r, int n, struct buf *question, struct buf *answer,
                    struct buf *value)
{
    int name[NAMES], asked = below(r, n);
    for (int i = 0; i < NAMES; i++)
        name[i] = i;
    for (int i = 0; i < n; i++) {
        int j = i + below(r, NAMES - i), kept = name[i];
        name[i] = name[j];
        name[j] = kept;
        const char *colour = colours[below(r, COLOURS)], *thing = things[below(r, THINGS)];
        buf_printf(question, "%s has a %s %s. ", names[name[i]], colour, thing);
        if (i != asked)
            continue;
        buf_printf(value, "a %s %s", colour, thing);
        buf_printf(answer, "%s has a %s %s.", names[name[i]], colour, thing);
    }
    size_t end = question->len - (question->len > 0); /* without the white space */
    buf_printf(question, "What does %s have?", names[name[asked]]);
    return end;
}

static void copy(struct rng *r, int n, struct buf *question, struct buf *answer, struct buf *value)
{
    buf_str(question, "Say this:");
    for (int i = 0; i < n; i++) {
        int w = below(r, COLOURS + THINGS);
        const char *word = w < COLOURS ? colours[w] : things[w - COLOURS];
        buf_printf(question, " %s", word);
        buf_printf(value, "%s%s", i ? " " : "", word);
    }
    buf_str(answer, value->data ? value->data : "");
}

static const char *ending(int n)
{
    return n == 1 ? "" : "s";
}

/* Asks for a + b - c in words. */
static void sums(struct rng *r, int n, struct buf *question, struct buf *answer, struct buf *value)
{
    int a = 1 + below(r, n), b = 1 + below(r, n), c = 1 + below(r, a + b < n ? a + b : n);
    const char *name = names[below(r, NAMES)], *thing = things[below(r, 5)];
    buf_printf(question, "%s has %s %s%s, gets %s more and gives %s away. How many %ss has %s now?",
               name, numbers[a], thing, ending(a), numbers[b], numbers[c], thing, name);
    buf_printf(value, "%s %s%s", numbers[a + b - c], thing, ending(a + b - c));
    buf_printf(answer, "%s has %s.", name, value->data ? value->data : "");
}

/* Repeats the draw until its hash assigns it to the requested part. */
size_t quiz_make(const struct quiz *q, uint64_t i, struct buf *question, struct buf *answer,
                 struct buf *value)
{
    size_t end = 0;
    bool test = !q->test;
    for (uint64_t draw = 0; test != q->test && !question->err; draw++) {
        struct rng r;
        rng_init(&r, rng_hash(q->seed, (uint64_t)q->kind, i, draw));
        buf_clear(question);
        buf_clear(answer);
        buf_clear(value);
        if (q->kind == QUIZ_FACTS)
            end = facts(&r, (int)q->level, question, answer, value);
        else if (q->kind == QUIZ_COPY)
            copy(&r, (int)q->level, question, answer, value);
        else
            sums(&r, (int)q->level, question, answer, value);
        test = rng_hash_bytes(1, question->data ? question->data : "", question->len) % TEST_SHARE
               == 0;
    }
    return end;
}

double quiz_chance(const struct quiz *q)
{
    if (q->kind == QUIZ_FACTS)
        return 1.0 / (COLOURS * THINGS);
    if (q->kind == QUIZ_COPY)
        return pow(1.0 / (COLOURS + THINGS), (double)q->level);
    return 1.0 / (2.0 * (double)q->level); /* 0 to 2 level - 1 are equally likely */
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_letter(char c)
{
    char low = (char)(c | 32);
    return (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9');
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
}

/* Returns the length of a text without a full stop and white space at its end. */
static size_t trimmed(const char *s, size_t n)
{
    while (n > 0 && is_space(s[n - 1]))
        n--;
    if (n > 0 && s[n - 1] == '.')
        n--;
    while (n > 0 && is_space(s[n - 1]))
        n--;
    return n;
}

bool quiz_right(const char *answer, size_t n, const char *value)
{
    size_t want = trimmed(value, strlen(value)), have = trimmed(answer, n);
    if (want == 0 || have < want)
        return false;
    const char *end = answer + have - want;
    for (size_t i = 0; i < want; i++)
        if (lower(end[i]) != lower(value[i]))
            return false;
    return have == want || !is_letter(end[-1]) || !is_letter(value[0]);
}
