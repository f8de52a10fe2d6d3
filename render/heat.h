/* heat.h - exact rasterisation of alpha and retention maps, in time proportional to pixels
 * plus tokens: no T x T array.
 *
 * A map shows tokens i = 0 .. n - 1 to the right and steps t = from .. to - 1 downwards, both
 * counted from the first token shown, over w x h equal boxes; cell (t, i) is a unit square.
 * A box holds the mean of alpha_ti (or of beta_i^(t - i)) over the part of it with t >= i, by
 * area: a cell counts with what of it lies in the box. */
#ifndef KVF_RENDER_HEAT_H
#define KVF_RENDER_HEAT_H

/* The rows of boxes of a window: where they begin, the same for all maps of that window. */
struct heat {
    long n, from, to; /* 0 <= from < to */
    int w, h;
    long *row;    /* [h + 1] step in which row r begins, rounded down; row[h] = to */
    double *part; /* [h + 1] how far into that step */
    double *area; /* [w][h] of each box, with t >= i; NULL until heat_share */
};

#define HEAT_LEAST 1e-9 /* parts of a box below it are none: sums differ from 0 by rounding */

/* Divides a window of tokens and steps into boxes.  KVF_OK or KVF_E_NOMEM; heat_finish accepts a
 * zeroed struct. */
int heat_init(struct heat *m, long n, long from, long to, int w, int h);
void heat_finish(struct heat *m);

/* Computes once what all maps of a window have in common: worth it for more than one, and done
 * only where it is small.  KVF_OK or KVF_E_NOMEM. */
int heat_share(struct heat *m);

/* Boxes of column c, from the top: mean[r], NaN where cover[r] is no more than HEAT_LEAST;
 * cover[r] is the part of the box with t >= i, as a share.  number: [n].  scratch:
 * heat_scratch(h) doubles, aligned to 16 bytes. */
typedef void heat_column_fn(const struct heat *m, const double *number, int c, double *mean,
                            double *cover, double *scratch);
long heat_scratch(int h);

/* number: the step at which token i ends, alpha_ti = [i <= t < end_i]; INFINITY = alive. */
heat_column_fn heat_alpha;

/* number: log beta_i, at most 0 (-INFINITY too); NaN makes the boxes that it lies in NaN.
 * Time in proportion to tokens times rows, less where values vanish (below 1e-18 they are 0). */
heat_column_fn heat_decay;

#endif
