/* head_budgets.h - the budget of each head by a table (allocation=file).
 *
 * docs/reference/methods.md ("Budgets per head") states the rule of each form.  Sizes: L layers, H
 * heads per layer of the cache. */
#ifndef KVF_ENGINE_HEAD_BUDGETS_H
#define KVF_ENGINE_HEAD_BUDGETS_H

#include "engine/gate/head_table.h"
#include "engine/method/preset.h"

/* beta and temp of HeadKV if they are not given */
#define HEADKV_BETA 1.01
#define HEADKV_TEMP 1.0

/* Computes the budget of each head for a table that head_budgets_check() accepts.  n: tokens fed
 * before the first decision, which HEAD_TABLE_PRUNED reads.  ret: [L * H] entries, protected ones
 * included; HEAD_TABLE_BUDGET: no limit. */
void head_budgets(const struct head_table *t, const struct method_params *p,
                  const struct method_shape *shape, int64_t n, int *ret);

/* Checks that a table fits the heads of the cache and the parameters, and that each head has places
 * for its protected entries.  n_kv_heads: KV heads of the model.  KVF_OK, KVF_E_NOMEM, or KVF_E_ARG
 * with a sentence. */
int head_budgets_check(const struct head_table *t, const struct method_params *p,
                       const struct method_shape *shape, int n_kv_heads, struct kvf_diag *d);

#endif
