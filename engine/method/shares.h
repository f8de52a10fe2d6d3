/* shares.h - division of a budget among layers; private to engine/method/. */
#ifndef KVF_ENGINE_METHOD_SHARES_H
#define KVF_ENGINE_METHOD_SHARES_H

#include "engine/method/parts.h"

/* Sets weights that fall linearly from 2u - u/beta to u/beta over the layers in which the preset
 * decides, where u is their mean number of places.  The slope is smaller if no layer can fill the
 * first layer's places.  Arguments: as for `weights` in struct allocation. */
void shares_pyramid(const struct method_state *m, const struct cache *c, int32_t reach,
                    int32_t recent_from, double *weight);

/* Returns the places of a head that are not divided: those of protected tokens, of sinks and of the
 * newest entries. */
int shares_protected(const struct method_params *p);

/* Divides the unprotected places among layers by weights weight[L] >= 0, or evenly if all are 0.
 * The total is the number of places that heads with a budget of B each would fill after `reach`
 * tokens.  No layer gets more than it can fill.  Places per head are integers, and their sum is
 * exact: remaining places go to the largest remainders, and to the lower layer if remainders are
 * equal.  scratch: [L].  ret_share: [L] entries per head, protected ones included. */
void shares_deal(const struct method_state *m, int32_t reach, const double *weight, double *scratch,
                 int *ret_share);

#endif
