/* arrays.h - creates, fills and writes the arrays that probes declare. Private to engine/probe/. */
#pragma once

#include "engine/probe/pen.h"
#include "engine/probe/probe.h"

/* Target of values: the writer thread, which writes them later; or, if pen is NULL, the writer
 * directly. */
struct probe_sink {
    struct pen *pen;
    struct kvf_writer *writer;
    uint32_t epoch; /* epoch of the snapshot that is written */
};

/* Stores the columns of a probe in a run, with PROBE_STEPS replaced by u16 or u32, in out unless
 * that is NULL. Returns their number. */
int probe_columns(const struct probe *p, const struct probe_config *cfg, struct probe_array *out);

/* Creates the arrays and the private state of a probe, before any value is recorded. cfg is
 * borrowed. Returns KVF_OK or KVF_E_NOMEM; call probe_state_close in either case. */
int probe_state_open(struct probe_state *s, const struct probe *p, const struct probe_config *cfg);
/* Copies the first n tokens and steps of a state to a new state of the same probe. */
void probe_state_copy(struct probe_state *s, const struct probe_state *from, int32_t n);
void probe_state_close(struct probe_state *s); /* accepts a zeroed struct */

/* Returns true if the probe has columns that are not snapshots. Their values are written as steps
 * complete. */
bool probe_streams(const struct probe_state *s);

/* Writes values [t0, t1) of all snapshot columns, or of all other columns and blobs. Values are
 * copied now, so the arrays may change afterwards. The arrays of a state with `away` are read later
 * by the writer thread, and change only in the next copy from the device. */
int probe_write(const struct probe_state *s, const struct probe_sink *sink, bool snapshots,
                int32_t t0, int32_t t1);

/* Queues a blob with a copy of its elements, kvf_blob_size(b) bytes. Returns KVF_OK, KVF_E_NOMEM,
 * or without a pen an error of the trace. */
int probe_put_blob(const struct probe_sink *sink, const struct kvf_blob *b, const void *data);

/* Queues a copy of values [t0, t0 + n) of a token column, `size` bytes each. Returns KVF_OK or
 * KVF_E_NOMEM. */
int probe_put_tokens(struct pen *pen, int column, const void *values, size_t size, int32_t t0,
                     int32_t n);
