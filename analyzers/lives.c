/* lives.c - counts deaths and censored tokens by age (lives.h). */
#include <string.h>

#include "analyzers/lives.h"

const struct opt lives_grace_option[] = {
    {OPT_INT, 0, "grace", 0, "W", "steps without a selection after which a token counts as gone",
     "-1", .absent = "64, or T / 4 if less; 0 for held", .max = INT32_MAX},
    {.type = OPT_END},
};

int64_t lives_grace(int64_t asked, int64_t T)
{
    if (asked >= 0)
        return asked;
    return T / 4 < LIVES_GRACE ? T / 4 : LIVES_GRACE;
}

int lives_plan_init(struct frame *f, struct lives_plan *p)
{
    if (!p->n_edges)
        return KVF_OK;
    p->place = FRAME_NEW(f, int32_t, (size_t)p->T + 1);
    if (!p->place)
        return KVF_E_NOMEM;
    int k = 0;
    for (int64_t x = -1; x < p->T; x++) {
        while (k < p->n_edges && p->edge[k] <= x)
            k++;
        p->place[x + 1] = k;
    }
    return KVF_OK;
}

static size_t cells(const struct lives_plan *p)
{
    return (size_t)p->groups->n * ((size_t)p->T + 1);
}

static size_t steps(const struct lives_plan *p)
{
    return p->n_edges ? (size_t)p->groups->n * ((size_t)p->n_edges + 1) : 0;
}

struct lives lives_create(struct frame *f, const struct lives_plan *p)
{
    return (struct lives){.died = FRAME_NEW(f, int64_t, cells(p)),
                          .censored = FRAME_NEW(f, int64_t, cells(p)),
                          .entered = FRAME_NEW(f, int64_t, steps(p)),
                          .stayed = FRAME_NEW(f, int64_t, steps(p))};
}

void lives_clear(struct lives *x, const struct lives_plan *p)
{
    for (int g = 0; g < p->groups->n; g++)
        memset(x->died + g * (p->T + 1), 0, (size_t)x->most * sizeof *x->died);
    memset(x->censored, 0, cells(p) * sizeof *x->censored);
    if (steps(p)) {
        memset(x->entered, 0, steps(p) * sizeof *x->entered);
        memset(x->stayed, 0, steps(p) * sizeof *x->stayed);
    }
    x->most = 0;
}

void lives_add(const struct lives_plan *p, const struct lives *x, struct lives *to)
{
    for (int g = 0; g < p->groups->n; g++)
        for (int64_t k = g * (p->T + 1), end = k + x->most; k < end; k++)
            to->died[k] += x->died[k];
    for (size_t k = 0; k < cells(p); k++)
        to->censored[k] += x->censored[k];
    for (size_t k = 0; k < steps(p); k++) {
        to->entered[k] += x->entered[k];
        to->stayed[k] += x->stayed[k];
    }
    to->most = x->most > to->most ? x->most : to->most;
}

/* Counts one token of age a that is known up to c, in the edges of group g. */
static void count_steps(const struct lives_plan *p, int64_t a, int64_t c, int g, struct lives *out)
{
    int64_t at = g * (int64_t)(p->n_edges + 1);
    int32_t known = p->place[c + 1], reached = p->place[(a < c ? a : c) + 1];
    out->entered[at + (reached + 1 < known ? reached + 1 : known)]++;
    out->stayed[at + reached]++;
}

void lives_count(const struct lives_plan *p, const int32_t *age, int64_t end, struct lives *out)
{
    out->most = p->T + 1;
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t c = end - 1 - i - p->grace, a = age[i - p->a];
        if (c < 0)
            break; /* the text is too short for it and for all later tokens */
        int group = p->groups->of ? p->groups->of[i] : 0;
        for (int g = 0; g <= group; g += group ? group : 1) { /* all, and its class */
            int64_t at = g * (p->T + 1);
            if (a < c)
                out->died[at + a + 1]++;
            else
                out->censored[at + c]++;
            if (p->n_edges)
                count_steps(p, a, c, g, out);
        }
    }
}

void lives_count_narrow(const struct lives_plan *p, const uint16_t *age, struct lives *out)
{
    int64_t end = p->T - p->grace < p->b ? p->T - p->grace : p->b, c = p->T - 1 - p->grace - p->a;
    uint16_t top = 0;
    for (int64_t i = p->a; i < end; i++) {
        uint16_t next = (uint16_t)(age[i - p->a] + 1); /* -1 is 0 */
        top = next > top ? next : top;
    }
    int64_t most = top < p->T ? top + 1 : p->T + 1;
    out->most = most > out->most ? most : out->most;
    int64_t *died = out->died, *censored = out->censored;
    for (int64_t k = 0; k < end - p->a; k++, c--) {
        int64_t next = (uint16_t)(age[k] + 1);
        if (next <= c)
            died[next]++;
        else
            censored[c]++;
        if (p->n_edges)
            count_steps(p, next - 1, c, 0, out);
    }
}

/* How many are counted at k + 1 and above. */
static void at_and_above(const int64_t *count, int n, int64_t *out)
{
    int64_t sum = 0;
    for (int k = n - 1; k >= 0; k--) {
        sum += count[k + 1];
        out[k] = sum;
    }
}

void lives_steps(const struct lives_plan *p, const struct lives *x, int g, int64_t *entered,
                 int64_t *stayed)
{
    int64_t at = g * (int64_t)(p->n_edges + 1);
    at_and_above(x->entered + at, p->n_edges, entered);
    at_and_above(x->stayed + at, p->n_edges, stayed);
}

void lives_sums(const struct lives_plan *p, const struct lives *x, int g, int64_t *died,
                int64_t *exposed)
{
    const int64_t *d = x->died + g * (p->T + 1), *c = x->censored + g * (p->T + 1);
    int64_t risk = 0;
    for (int64_t k = 0; k <= p->T; k++)
        risk += d[k] + c[k];
    died[0] = exposed[0] = 0;
    for (int64_t k = 0; k <= p->T; k++) {
        died[k + 1] = died[k] + d[k];
        exposed[k + 1] = exposed[k] + risk;
        risk -= d[k] + c[k];
    }
}

int64_t lives_end(const struct lives_plan *p, int g, int64_t end, int64_t at_least)
{
    int64_t n = 0;
    for (int64_t i = p->a; i < p->b; i++) {
        n += g == 0 || (p->groups->of && p->groups->of[i] == g);
        if (n >= at_least && n > 0)
            return end - 1 - i - p->grace >= 0 ? end - 1 - i - p->grace : -2;
    }
    return -2;
}
