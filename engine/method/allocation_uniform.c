/* allocation_uniform.c - every KV head gets the budget. */
#include "engine/method/parts.h"

const struct allocation allocation_uniform = {.name = "uniform",
                                              .summary = "every KV head gets B entries"};
