/* probes.c - the table of probes, generated from the list of their names. */
#include "engine/probe/probes.h"

#define X(name) &probe_##name,
const struct probe *const probe_table[] = {
#include "engine/probe/probes.list"
    NULL,
};
#undef X
