/* read_all.c - every query reads every kept entry. */
#include "engine/method/parts.h"

const struct read read_all = {
    .name = "all", .summary = "every query reads every cached entry", .all = true};
