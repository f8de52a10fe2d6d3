/* probes.h - private header of the CUDA backend: probes with arrays on the device. They read
 * attention rows there, so that rows need no copy to the host. The recorder requests host copies of
 * the arrays before it writes them. */
#ifndef KVF_ENGINE_DEVICE_PROBES_H
#define KVF_ENGINE_DEVICE_PROBES_H

#include "engine/cuda/watch.h"
#include "engine/decode/session_state.h"

/* Moves the recorder's probes to the device if they have kernels and memory suffices. Returns
 * KVF_OK or KVF_E_NOMEM. */
int device_probes_open(struct session *s);
/* Returns the probes to the recorder, unless it has been closed. */
void device_probes_close(struct session *s);

/* Returns true if a probe is on the device. Such probes need all rows. */
bool device_probes_any(const struct session *s);
/* Runs the kernels of all moved probes on the attention rows of a layer. */
void device_probes_take(struct session *s, int layer, const struct gpu_seen_rows *rows);
/* Returns the gate numbers for the probes that read them, [L * KV heads][cap] on the device.
 * Returns NULL if no probe needs them. */
float *device_probes_numbers(const struct session *s, int *ret_cap);
/* Uploads the gate numbers of tokens pos0 to pos0 + T - 1 of a layer that the host has. */
void device_probes_put_numbers(struct session *s, int layer, int T, int pos0);

/* An array [rows][cap] of the host and its device copy. */
struct probe_copy {
    char *host, *device;
    size_t rows, size; /* bytes of a cell */
    bool snapshot;
};

/* dilution.c: probe_dilution on the device. Returns true if it has kernels for this run. */
struct device_dilution;
bool device_dilution_supported(const struct session *s, const struct probe_state *p);
/* Uploads the further inputs of probe_dilution, with columns in `arrays`. Returns NULL if memory is
 * exhausted. */
struct device_dilution *device_dilution_open(struct session *s, const struct probe_state *p,
                                             const struct probe_copy *arrays);
void device_dilution_close(struct gpu *g, struct device_dilution *x); /* accepts NULL */
/* Updates the arrays with the rows of a layer. `cuts` has the sets of attended entries of each
 * row. */
void device_dilution_take(struct gpu *g, const struct device_dilution *x, int layer,
                          const struct gpu_seen_rows *rows, const struct row_cut *cuts);
/* Returns the gate numbers as device_probes_numbers does. */
float *device_dilution_numbers(const struct device_dilution *x, int *ret_cap);
/* Uploads gate numbers as device_probes_put_numbers does. */
void device_dilution_put_numbers(struct gpu *g, const struct device_dilution *x, int layer, int T,
                                 int pos0);

#endif
