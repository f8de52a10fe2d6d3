/* heat.h - exact rasterisation of alpha and retention maps.  Time is proportional to pixels plus
 * tokens; there is no T x T array.
 *
 * A map shows tokens i = 0 .. n - 1 to the right and steps t = from .. to - 1 downwards, both
 * counted from the first token shown, in w x h equal boxes.  Cell (t, i) is a unit square.  The
 * value of a box is the area-weighted mean of alpha_ti (or of beta_i^(t - i)) over its part with t
 * >= i: a cell counts by its area in the box. */
#pragma once

/* The rows of boxes of a window, equal for all its maps. */
struct heat {
    long n, from, to; /* 0 <= from < to */
    int w, h;
    long *row;    /* [h + 1] step in which row r begins, rounded down; row[h] = to */
    double *part; /* [h + 1] fraction of that step before the row begins */
    double *area; /* [w][h] area of each box with t >= i; NULL until heat_share */
};

#define HEAT_MIN 1e-9 /* smaller areas count as 0: rounding makes sums differ from 0 */

/* Divides a window of tokens and steps into boxes.  Returns KVF_OK or KVF_E_NOMEM. heat_finish
 * accepts a zeroed struct. */
int heat_init(struct heat *m, long n, long from, long to, int w, int h);
void heat_finish(struct heat *m);

/* Precomputes the areas that all maps of a window share, if they are small.  This is useful for
 * more than one map.  Returns KVF_OK or KVF_E_NOMEM. */
int heat_share(struct heat *m);

/* Computes the boxes of column c from the top.  mean[r] is NaN if cover[r] is at most HEAT_MIN;
 * cover[r] is the fraction of the box with t >= i.  number: [n]. scratch: heat_scratch(h) doubles,
 * aligned to 16 bytes. */
typedef void heat_column_fn(const struct heat *m, const double *number, int c, double *mean,
                            double *cover, double *scratch);
long heat_scratch(int h);

/* Draws alpha_ti = [i <= t < end_i]. number: end_i, the step at which token i is evicted; INFINITY
 * if it is not. */
heat_column_fn heat_alpha;

/* Draws retention.  number: log beta_i, at most 0; -INFINITY is allowed.  NaN makes every box that
 * it touches NaN. Time is proportional to tokens times rows, less if values vanish (below 1e-18
 * they are 0). */
heat_column_fn heat_decay;
