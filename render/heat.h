/* heat.h - exact rasterisation of alpha maps, in time proportional to pixels plus
 * tokens: no T x T array. */
#ifndef KVF_RENDER_HEAT_H
#define KVF_RENDER_HEAT_H

/* alpha_ti = [i <= t < end_i], t down, i to the right, over [0, T) x [0, T) cut
 * into h x w equal boxes.  out[r * w + c] = mean of alpha over the part of the
 * box with t >= i (by area, cells weighted by what of them lies in the box), NaN
 * where that part is no more than HEAT_LEAST of the box.  cover (may be NULL):
 * that part as a share of the box.  end: [T], real steps; INFINITY = alive.  scratch:
 * heat_scratch(h) doubles. */
#define HEAT_LEAST 1e-9 /* below, sums differ from zero by rounding only */
void heat_alpha(const double *end, long T, int w, int h, double *out, double *cover,
                double *scratch);
long heat_scratch(int h);

/* The same with exp((t - i) log_beta_i) in place of alpha_ti.  log_beta: [T], at most 0
 * (-INFINITY too); NaN makes the boxes that it lies in NaN.  Time in proportion to tokens
 * times rows, less where values vanish. */
void heat_decay(const double *log_beta, long T, int w, int h, double *out, double *cover,
                double *scratch);

#endif
