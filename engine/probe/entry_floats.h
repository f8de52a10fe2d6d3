/* entry_floats.h - state and output of a probe that has one number for each entry. */
#ifndef KVF_ENGINE_ENTRY_FLOATS_H
#define KVF_ENGINE_ENTRY_FLOATS_H

#include "engine/probe/probe.h"

struct entry_floats {
    struct probe_config cfg;
    float *value; /* [L*H][cap], NaN until set; NULL: this run has no such column */
};

/* wanted: whether the run has the column.  NULL: no memory. */
void *entry_floats_create(const struct probe_config *cfg, bool wanted);
void entry_floats_destroy(void *state); /* accepts NULL */
/* Without effect where the run has no such column. */
void entry_floats_set(struct entry_floats *s, int layer, int head, int32_t pos, float value);
/* As the stream of a probe whose first column it is. */
int entry_floats_stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1);

#endif
