/* row_cuts.h - selects sets of a row without sorting it, with a quickselect for several targets at
 * once. One file per instruction set includes it and first defines, for entries that are the bits
 * of weights:
 *     LEAF                        largest number of entries for sort_leaf
 *     take_row(a, p, n)           copies the row, clamped to [0, 1]; returns its units
 *     sum_units(a, n)             returns the units of n entries
 *     sample_mean(a, n)           returns the mean of some of n > LEAF entries
 *     partition(a, tmp, n, pivot) moves entries > pivot to the front; returns their number
 *     sort_leaf(out, a, n)        sorts n <= LEAF entries; out has space for 2 n, at least 16
 *     sorted_at(out, n, rank)     returns the entry of a rank; 0: the largest
 *     find_mass(out, n, units)    returns the rank at which the sum reaches units
 *
 * Weights are >= 0, so their bits as integers have the same order. Pivots divide the row into
 * segments, largest first. Only segments that contain a target, a rank K or a mass tau, are divided
 * further, down to leaves, which are sorted. All sums are in integer units (MASS_UNIT), so the
 * order of summation does not matter. */
#pragma once

#include <math.h>

/* Entries [from, to): the entries of the row with bits in [low, high]. */
struct segment {
    int from, to, level;
    int32_t low, high;
    int64_t before, inside; /* units of all larger entries and of these */
};

/* The pivot is a mean of bits, about the median of the logarithms. Every fourth pivot halves the
 * range, which is at most 2^30 initially. This bounds the nesting depth. */
enum { HALVE_EVERY = 4, MAX_DEPTH = HALVE_EVERY * 32 };

/* The search for all cuts of a row. */
struct search {
    const float *p;
    int n;
    const int *top_k;
    int n_top, i_top; /* the first i_top ranks are found */
    const double *tau;
    int n_tau, i_tau;
    int64_t total, need; /* units; need: the smallest mass that reaches tau[i_tau] */
    struct row_cut *top, *mass;
};

/* Continues with mass target i. */
static void next_tau(struct search *s, int i)
{
    s->i_tau = i;
    if (i < s->n_tau)
        s->need = (int64_t)ceil(s->tau[i] * (double)s->total);
}

/* Returns true if the next rank is in segment g. */
static bool has_rank(const struct search *s, const struct segment *g)
{
    return s->i_top < s->n_top && s->top_k[s->i_top] <= g->to;
}

/* Returns true if the next mass is reached in segment g. */
static bool has_mass(const struct search *s, const struct segment *g)
{
    return s->i_tau < s->n_tau && s->need <= g->before + g->inside;
}

/* Returns the position of the m-th entry with these bits from the end of the row. */
static int tie_from_end(const struct search *s, int32_t bits, int m)
{
    int i = s->n;
    while (i > 0 && m > 0)
        m -= float_bits(s->p[--i]) == bits;
    return i;
}

/* Returns the cut of the first `count` entries; the last `taken` of them are some of `ties` equal
 * ones. */
INLINE struct row_cut make_cut(const struct search *s, int32_t bits, int count, int taken, int ties)
{
    if (count == s->n)
        return (struct row_cut){0, 0, count};
    int tie = taken == ties ? 0 : tie_from_end(s, bits, taken);
    return (struct row_cut){bits_float(bits), tie, count};
}

/* Sets the cuts of targets in a segment of equal entries. */
static void cut_equal(struct search *s, const struct segment *g)
{
    int m = g->to - g->from;
    for (; has_rank(s, g); s->i_top++) {
        int k = s->top_k[s->i_top];
        s->top[s->i_top] = make_cut(s, g->low, k, k - g->from, m);
    }
    for (; has_mass(s, g); next_tau(s, s->i_tau + 1)) {
        int64_t unit = g->inside / m;
        int taken = (int)((s->need - g->before + unit - 1) / unit);
        s->mass[s->i_tau] = make_cut(s, g->low, g->from + taken, taken, m);
    }
}

/* Returns the cut after the entry of a rank in the n sorted entries of a segment. */
INLINE struct row_cut cut_at(const struct search *s, const struct segment *g, const int32_t *v,
                             int n, int rank)
{
    int32_t bits = sorted_at(v, n, rank);
    int first = rank, end = rank + 1;
    while (first > 0 && sorted_at(v, n, first - 1) == bits)
        first--;
    while (end < n && sorted_at(v, n, end) == bits)
        end++;
    return make_cut(s, bits, g->from + rank + 1, rank + 1 - first, end - first);
}

/* Sets the cuts of targets in a sorted segment v. */
static void cut_sorted(struct search *s, const struct segment *g, const int32_t *v)
{
    int n = g->to - g->from;
    for (; has_rank(s, g); s->i_top++)
        s->top[s->i_top] = cut_at(s, g, v, n, s->top_k[s->i_top] - 1 - g->from);
    for (; has_mass(s, g); next_tau(s, s->i_tau + 1))
        s->mass[s->i_tau] = cut_at(s, g, v, n, find_mass(v, n, s->need - g->before));
}

/* Returns the next pivot of a segment. */
static int32_t pivot_of(const struct segment *g, const int32_t *a)
{
    int32_t half = g->low + (g->high - g->low) / 2;
    if (g->level % HALVE_EVERY == HALVE_EVERY - 1)
        return half;
    float mean = sample_mean(a + g->from, (size_t)(g->to - g->from));
    return mean > (float)g->low && mean < (float)g->high ? (int32_t)mean : half;
}

/* Computes exact bounds, so that the next pivot, their midpoint, divides the segment unless all
 * entries are equal. */
static void tighten(struct segment *g, const int32_t *a)
{
    g->low = g->high = a[g->from];
    for (int i = g->from + 1; i < g->to; i++) {
        g->low = a[i] < g->low ? a[i] : g->low;
        g->high = a[i] > g->high ? a[i] : g->high;
    }
    g->level |= HALVE_EVERY - 1;
}

/* Divides g: entries > pivot stay in g, the rest becomes *right. Returns false if either part would
 * be empty. */
static bool split(struct segment *g, struct segment *right, int32_t *a, int32_t *tmp, bool masses)
{
    size_t n = (size_t)(g->to - g->from);
    int32_t pivot = pivot_of(g, a);
    int n_left = partition(a + g->from, tmp, n, pivot);
    g->level++;
    if (n_left == 0 || n_left == g->to - g->from) {
        tighten(g, a);
        return false;
    }
    /* units are needed only if a mass is a target in g */
    int64_t left = masses ? sum_units(a + g->from, (size_t)n_left) : 0;
    *right = *g;
    right->from = g->to = g->from + n_left;
    right->high = pivot;
    g->low = pivot + 1;
    right->before += left;
    right->inside -= left;
    g->inside = left;
    return true;
}

/* Finds the cuts of all targets; the largest weights first. */
static void find_cuts(struct search *s, int32_t *a, int32_t *tmp)
{
    struct segment stack[MAX_DEPTH + 1], right;
    int depth = 1;
    stack[0] = (struct segment){0, s->n, 0, 0, float_bits(1), 0, s->total};
    while (depth > 0) { /* the top of the stack has the largest weights */
        struct segment *g = &stack[depth - 1];
        if (has_rank(s, g) || has_mass(s, g)) {
            if (g->to - g->from <= LEAF) {
                sort_leaf(tmp, a + g->from, g->to - g->from);
                cut_sorted(s, g, tmp);
            } else if (g->low == g->high) {
                cut_equal(s, g);
            } else {
                if (split(g, &right, a, tmp, has_mass(s, g))) {
                    stack[depth++] = *g;
                    *g = right;
                }
                continue;
            }
        }
        depth--;
    }
}

/* Initialises the search of a row; `out` starts with cuts that select the full row. */
static struct search search_of(const float *p, int n, const int *top_k, int n_top,
                               const double *tau, int n_tau, struct row_cut *out)
{
    struct search s = {p, n, top_k, n_top, 0, tau, n_tau, 0, 0, 0, out, out + n_top};
    for (int c = 0; c < n_top + n_tau; c++)
        out[c] = (struct row_cut){0, 0, n};
    while (s.n_top > 0 && top_k[s.n_top - 1] >= n)
        s.n_top--; /* these cuts select the full row */
    return s;
}

/* Finds all cuts; a, tmp: space for n + 32 entries each. */
static void cut_row(struct search *s, int32_t *a, int32_t *tmp)
{
    s->total = take_row(a, s->p, (size_t)s->n);
    next_tau(s, s->total > 0 ? 0 : s->n_tau);
    find_cuts(s, a, tmp);
}
