/* admission_all.c - every newcomer stays until the budget cuts it. */
#include "engine/method/parts.h"

const struct admission admission_all = {.name = "all", .summary = "every new entry is cached"};
