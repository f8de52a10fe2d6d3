/* arrays.h - makes, fills and writes the arrays that probes declare; private to engine/probe/. */
#ifndef KVF_ENGINE_PROBE_ARRAYS_H
#define KVF_ENGINE_PROBE_ARRAYS_H

#include "engine/probe/pen.h"
#include "engine/probe/probe.h"

/* Where values go: to the pen, which writes them later; or, with none, to the writer at once. */
struct probe_sink {
    struct pen *pen;
    struct kvf_writer *writer;
    uint32_t epoch; /* of the snapshot that is written */
};

/* The columns of a probe in a run, PROBE_STEPS made u16 or u32: to out unless that is NULL.
 * Returns how many. */
int probe_columns(const struct probe *p, const struct probe_config *cfg, struct probe_array *out);

/* Arrays and own state of a probe, before anything is recorded.  cfg is borrowed.  KVF_OK or
 * KVF_E_NOMEM; close it in either case. */
int probe_state_open(struct probe_state *s, const struct probe *p, const struct probe_config *cfg);
void probe_state_close(struct probe_state *s); /* accepts a zeroed struct */

/* Whether it has columns that are no snapshots, whose values come step by step. */
bool probe_streams(const struct probe_state *s);

/* Writes values [t0, t1) of all columns that are snapshots, or of all others.  They are copied now,
 * so that the arrays may change; those of a state that is away are read when the pen comes to them,
 * and change only when they are brought again. */
int probe_write(const struct probe_state *s, const struct probe_sink *sink, bool snapshots,
                int32_t t0, int32_t t1);

/* Puts a copy of values [t0, t0 + n), of so many bytes each, of a column of tokens.  KVF_OK or
 * KVF_E_NOMEM. */
int probe_put_tokens(struct pen *pen, int column, const void *values, size_t size, int32_t t0,
                     int32_t n);

#endif
