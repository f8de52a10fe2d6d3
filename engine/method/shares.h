/* shares.h - places that layers share; private to engine/method/. */
#ifndef KVF_ENGINE_METHOD_SHARES_H
#define KVF_ENGINE_METHOD_SHARES_H

#include "engine/method/parts.h"

/* Weights that fall linearly from 2u - u/beta to u/beta over the layers in which the row decides,
 * u their mean places; with less slope where no layer can hold as many as the first would get.
 * Arguments are those of `weights` in struct allocation. */
void shares_pyramid(const struct method_state *m, const struct cache *c, int32_t reach,
                    int32_t recent_from, double *weight);

/* The places of a head that are not dealt out: those of sinks and of the newest entries. */
int shares_protected(const struct method_params *p);

/* Deals out the places that are not protected, as many as heads with the budget each would fill
 * once `reach` tokens have come, by weights weight[L] >= 0; evenly where all are 0.  No layer gets
 * more than it can fill.  Whole places per head, whose sum is exact: places that do not divide go
 * by largest remainder, the lower layer first among equals.  scratch: [L]. */
void shares_deal(const struct method_state *m, int32_t reach, const double *weight, double *scratch,
                 int *ret_share);

#endif
