/* device_probes.h - private to the device as a backend: probes whose arrays lie there, because they
 * look at rows of attention, which then need not come to the host.  The recorder has the arrays
 * brought home before it writes them. */
#ifndef KVF_ENGINE_DEVICE_PROBES_H
#define KVF_ENGINE_DEVICE_PROBES_H

#include "engine/cuda/watch.h"
#include "engine/decode/session_state.h"

/* Takes over those of the recorder's probes that there are kernels and room for.  KVF_OK or
 * KVF_E_NOMEM. */
int device_probes_open(struct session *s);
/* Gives them back to the recorder, unless that has ended. */
void device_probes_close(struct session *s);

bool device_probes_any(const struct session *s); /* whether any is there: they want all rows */
void device_probes_take(struct session *s, int layer, const struct gpu_seen_rows *rows);

#endif
