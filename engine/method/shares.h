/* shares.h - shares of the budget that several allocations deal out; private to engine/method/.
 * Arguments are those of `shares` in struct allocation. */
#ifndef KVF_ENGINE_METHOD_SHARES_H
#define KVF_ENGINE_METHOD_SHARES_H

#include "engine/method/parts.h"

/* Gives every head the budget B. */
void shares_uniform(const struct method_state *m, const struct cache *c, int32_t recent_from,
                    double *scratch, int *ret_share);
/* Gives layers shares that fall linearly from 2u - u/beta to u/beta over those in which the row
 * decides. */
void shares_pyramid(const struct method_state *m, const struct cache *c, int32_t recent_from,
                    double *x, int *ret_share);

/* The places of a head that are not dealt out: those of sinks and of the newest entries. */
int shares_protected(const struct method_params *p);
/* Deals out the places that are not protected, by weights x[L] >= 0; evenly where all are 0.  Whole
 * places per head, whose sum is exact: places that do not divide go by largest remainder, the lower
 * layer first among equals.  x is overwritten with what each layer lacks. */
void shares_by_weight(const struct method_state *m, double *x, int *ret_share);

#endif
