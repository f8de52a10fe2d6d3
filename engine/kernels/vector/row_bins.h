/* row_bins.h - selects sets of a row with a histogram of its largest weights. One file per
 * instruction set includes it. Before, it defines the names listed in row_cuts.h, with LEAF >=
 * SAMPLE; afterwards, the five functions declared here.
 *
 * All targets are within the largest weights, usually within a third of the row. Weights from a
 * guessed threshold on are copied to a list, and the rest is not read again. Bins are ranges of
 * weights, from the largest weight down. A bin counts its weights and sums their units in one
 * integer, so that one search of the bins finds the bin of each target. Only the weights of these
 * few bins are sorted. row_cuts.h handles the exceptions: a guess that is too large, a bin that is
 * too full, numbers that are not weights.
 *
 * The mass of the row is a float sum with a known error bound. Nearly always all masses within this
 * bound give the same sets. Otherwise the units of all entries are added. */
#pragma once

#include "engine/kernels/vector/row_cuts.h"

enum {
    BINS = 256,
    BIN_TABLES = 2, /* used alternately, so that neighbours do not wait for each other */
    BIN_GROUPS = 8,
    GROUP_BINS = BINS / BIN_GROUPS,
    BIN_TARGETS = 10,
    COUNT_SHIFT = 51, /* bits of the units of a row of mass < 2 */
    MOST_LISTED = (1 << (64 - COUNT_SHIFT)) - 1,
    SAMPLE = 64,
};
#define UNITS_OF_BIN (((uint64_t)1 << COUNT_SHIFT) - 1)

/* Result of keep_from. */
struct kept {
    int m;        /* weights in the list */
    uint32_t top; /* bits of the largest entry: at most 1.0f if all are weights */
    double mass;  /* sum of the row, with a relative error of at most MASS_ERROR */
};
#define MASS_ERROR 0x1p-21

/* Bins are numbered from the largest weight down: (top >> shift) - (bits >> shift), at most BINS -
 * 1. Bin b is stored at place_of(b). Consecutive bins of one group are BIN_GROUPS apart, so that
 * the sums of all groups advance together. */
struct bins {
    int shift, top;                              /* top: already shifted */
    unsigned char *code;                         /* [m] place of each weight's bin */
    _Alignas(64) uint64_t sum[BIN_TABLES][BINS]; /* weights << COUNT_SHIFT | units */
    uint64_t above[BIN_GROUPS + 1];              /* sums of all preceding groups */
};

static inline unsigned place_of(unsigned b)
{
    return b % GROUP_BINS * BIN_GROUPS + b / GROUP_BINS;
}

/* The bin of a target, and its place in the cumulative sums. */
struct in_bin {
    int bin, rank;  /* rank: of its first weight within the weights of all wanted bins */
    int before, n;  /* number of weights in larger bins and in this bin */
    uint64_t units; /* units of larger bins */
};

/* The bins of all targets: without duplicates in place[], per target in top and mass. */
struct wanted {
    int n_bins, n; /* number of bins, and of the weights in them */
    unsigned char place[BIN_TARGETS];
    struct in_bin top[BIN_TARGETS], mass[BIN_TARGETS];
};

/* Copies the weights >= least to list[] in order; list has space for n + 16. p, n: the row. */
static struct kept keep_from(int32_t *list, const float *p, size_t n, float least);
/* Adds the m weights of a list to their bins; list and b->code have space for m + 64. */
static void put_in_bins(struct bins *b, const int32_t *list, size_t m);
/* Returns the number of groups before the last one at whose end the masked sum is less than x. */
static int groups_below(const struct bins *b, uint64_t x, uint64_t mask);
/* Sums all tables into the first one, cumulatively from the first bin of each group; fills
 * above[]. */
static void add_up_bins(struct bins *b);
/* Copies the weights of the wanted bins in the order of the list; out has space for 16 more. */
static void take_bins(int32_t *out, const int32_t *list, const struct bins *b, size_t m,
                      const struct wanted *w);

/* Returns the first bin up to which the masked sum reaches x; clears *all if no bin does. */
static struct in_bin find_bin(const struct bins *b, uint64_t x, uint64_t mask, bool *all)
{
    int g = groups_below(b, x, mask), i = 0;
    const uint64_t *sum = b->sum[0] + g;
    for (int step = GROUP_BINS / 2; step > 0; step /= 2) {
        uint64_t to = b->above[g] + sum[(i + step - 1) * BIN_GROUPS];
        i += step & -((to & mask) < x);
    }
    uint64_t before = b->above[g] + (i > 0 ? sum[(i - 1) * BIN_GROUPS] : 0);
    uint64_t inside = b->above[g] + sum[i * BIN_GROUPS] - before;
    *all &= (b->above[BIN_GROUPS] & mask) >= x;
    return (struct in_bin){.bin = g * GROUP_BINS + i,
                           .before = (int)(before >> COUNT_SHIFT),
                           .n = (int)(inside >> COUNT_SHIFT),
                           .units = before & UNITS_OF_BIN};
}

/* Adds the bin of a target, which is at least *last. */
static void want(struct wanted *w, struct in_bin *at, int *last)
{
    if (at->bin != *last) {
        w->place[w->n_bins++] = (unsigned char)place_of((unsigned)at->bin);
        w->n += at->n;
    }
    *last = at->bin;
    at->rank = w->n - at->n;
}

/* Finds the bins of all targets. Returns false if a target is beyond the list. */
static bool find_bins(const struct search *s, const struct bins *b, const int64_t *need,
                      struct wanted *w)
{
    bool all = true;
    int last = -1;
    struct in_bin *top = w->top, *mass = w->mass;
    const struct in_bin *end_top = top + s->n_top, *end_mass = mass + s->n_tau;
    for (int i = 0; i < s->n_top; i++)
        top[i] = find_bin(b, (uint64_t)s->top_k[i] << COUNT_SHIFT, UINT64_MAX, &all);
    for (int i = 0; i < s->n_tau; i++)
        mass[i] = find_bin(b, (uint64_t)need[i], UNITS_OF_BIN, &all);
    w->n_bins = w->n = 0;
    while (all && top < end_top && mass < end_mass)
        want(w, top->bin <= mass->bin ? top++ : mass++, &last);
    while (all && top < end_top)
        want(w, top++, &last);
    while (all && mass < end_mass)
        want(w, mass++, &last);
    return all;
}

/* Returns a weight that all targets probably exceed, from a sorted sample. The sample also
 * estimates the mass below it. */
static float guess_least(const struct search *s)
{
    int32_t sample[SAMPLE], sorted[2 * SAMPLE];
    for (size_t i = 0; i < SAMPLE; i += 4) /* four at a time: neighbours are similar */
        memcpy(sample + i, s->p + (size_t)(s->n - 4) * i / (SAMPLE - 4), 4 * sizeof *s->p);
    sort_leaf(sorted, sample, SAMPLE);
    int rank = SAMPLE;
    float per = (float)s->n / SAMPLE, below = 0;
    float spare = s->n_tau > 0 ? 0.5f * (float)(1 - s->tau[s->n_tau - 1]) : 1;
    while (rank > 0 && below <= spare) {
        rank -= 4;
        below += 4 * per * bits_float(sorted_at(sorted, SAMPLE, rank + 1));
    }
    if (s->n_top > 0) {
        float k = (float)s->top_k[s->n_top - 1] / per;
        int of_top = (int)(k + 1.25f * sqrtf(k) + 1);
        rank = of_top > rank ? of_top : rank;
    }
    return rank < SAMPLE - 1 ? bits_float(sorted_at(sorted, SAMPLE, rank)) : 0;
}

/* Sets the smallest masses that reach tau, for the smallest and the largest possible mass of the
 * row. */
static void bound_needs(const struct search *s, double mass, double error, int64_t *low,
                        int64_t *high)
{
    double units = mass / MASS_UNIT, off = units * error + (error > 0 ? s->n : 0);
    for (int i = 0; i < s->n_tau; i++) {
        low[i] = (int64_t)ceil(s->tau[i] * floor(units - off));
        high[i] = (int64_t)ceil(s->tau[i] * ceil(units + off));
    }
}

/* Computes the cuts from the sorted weights of the wanted bins. Returns false if the mass of the
 * row must be known more precisely. */
static bool cut_in_bins(const struct search *s, const struct wanted *w, const int32_t *sorted,
                        const int64_t *low, const int64_t *high)
{
    struct segment g = {.from = 0, .to = w->n};
    for (int i = 0; i < s->n_top; i++) {
        const struct in_bin *b = &w->top[i];
        g.from = b->before - b->rank;
        s->top[i] = cut_at(s, &g, sorted, w->n, s->top_k[i] - 1 - g.from);
    }
    for (int i = 0; i < s->n_tau; i++) {
        const struct in_bin *b = &w->mass[i];
        int rank = b->rank;
        int64_t units = (int64_t)b->units;
        if (units >= low[i])
            return false;
        for (;; rank++) {
            units += mass_units(bits_float(sorted_at(sorted, w->n, rank)));
            if (units >= low[i])
                break;
        }
        if (units < high[i])
            return false;
        g.from = b->before - b->rank;
        s->mass[i] = cut_at(s, &g, sorted, w->n, rank);
    }
    return true;
}

/* Sets the finest bins that cover all weights >= least. */
static void fit_bins(struct bins *b, uint32_t top, float least, unsigned char *code)
{
    uint32_t span = top - (uint32_t)float_bits(least);
    memset(b->sum, 0, sizeof b->sum);
    b->code = code;
    b->shift = span < BINS ? 0 : 24 - __builtin_clz(span); /* then span >> shift < BINS */
    b->top = (int)(top >> b->shift);
}

/* Result of an attempt with a threshold. */
enum outcome { DECIDED, TOO_FEW, NOTHING };

/* Computes the cuts from the weights >= least. TOO_FEW: a target is below `least`. */
static enum outcome cut_from(const struct search *s, float least, int32_t *list, int32_t *room,
                             int32_t *copy)
{
    struct bins b;
    struct wanted w = {0};
    int32_t leaf[LEAF + 32], sorted[2 * LEAF];
    int64_t low[BIN_TARGETS], high[BIN_TARGETS];
    struct kept kept = keep_from(list, s->p, (size_t)s->n, least);
    if (kept.top > (uint32_t)float_bits(1) || kept.mass <= 0 || kept.mass > 1.9
        || kept.m > MOST_LISTED)
        return NOTHING;
    if (s->n_top > 0 && kept.m < s->top_k[s->n_top - 1])
        return TOO_FEW;
    fit_bins(&b, kept.top, least, (unsigned char *)room);
    put_in_bins(&b, list, (size_t)kept.m);
    add_up_bins(&b);
    bound_needs(s, kept.mass, MASS_ERROR, low, high);
    for (int round = 0; round < 2; round++) {
        if (!find_bins(s, &b, high, &w))
            return TOO_FEW;
        if (w.n > LEAF)
            return NOTHING;
        take_bins(leaf, list, &b, (size_t)kept.m, &w);
        sort_leaf(sorted, leaf, w.n);
        if (cut_in_bins(s, &w, sorted, low, high))
            return DECIDED;
        bound_needs(s, (double)take_row(copy, s->p, (size_t)s->n) * MASS_UNIT, 0, low, high);
    }
    return NOTHING;
}

/* Computes the cuts with bins; returns false if they could not be decided. */
static bool cut_by_bins(const struct search *s, int32_t *list, int32_t *room, int32_t *copy)
{
    enum { ROUNDS = 3 };
    enum outcome got = TOO_FEW;
    if (s->n_top + s->n_tau > BIN_TARGETS)
        return false;
    float least = guess_least(s);
    for (int round = 0; round < ROUNDS && got == TOO_FEW; round++, least /= 3)
        got = cut_from(s, least, list, room, copy);
    return got == DECIDED;
}
