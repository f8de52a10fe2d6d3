/* allocation_file.c - every head has the budget that a table of --head-budgets gives it. */
#include "engine/method/head_budgets.h"
#include "engine/method/parts.h"

static void heads(const struct method_state *m, int32_t reach, int *ret_share)
{
    head_budgets(method_inputs_of(m)->head_table, method_params_of(m), method_shape_of(m), reach,
                 ret_share);
}

const struct allocation allocation_file = {.name = "file",
                                           .summary = "each head gets its budget from a table",
                                           .uses = USES_HEADKV,
                                           .heads = heads};
