/* parts.c - the tables of parts, made from the lists of their names. */
#include "engine/method/parts.h"

#define X(name) &admission_##name,
const struct admission *const admission_table[] = {
#include "engine/method/admissions.list"
    NULL,
};
#undef X

#define X(name) &score_##name,
const struct score *const score_table[] = {
#include "engine/method/scores.list"
    NULL,
};
#undef X

#define X(name) &allocation_##name,
const struct allocation *const allocation_table[] = {
#include "engine/method/allocations.list"
    NULL,
};
#undef X

#define X(name) &trigger_##name,
const struct trigger *const trigger_table[] = {
#include "engine/method/triggers.list"
    NULL,
};
#undef X

#define X(name) &read_##name,
const struct read *const read_table[] = {
#include "engine/method/reads.list"
    NULL,
};
#undef X
