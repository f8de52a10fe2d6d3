/* probes.h - private to the device as a backend: probes whose arrays lie there, because they
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
/* Numbers of gates, for those who look at them beside rows: [L * KV heads][cap] on the device,
 * NULL: nobody does.  Of tokens pos0 to pos0 + T - 1 of a layer those that the host has been told
 * are put there. */
float *device_probes_numbers(const struct session *s, int *ret_cap);
void device_probes_put_numbers(struct session *s, int layer, int T, int pos0);

/* An array [rows][cap] of the host, and its twin on the device. */
struct twin_array {
    char *host, *device;
    size_t rows, size; /* bytes of a cell */
    bool snapshot;
};

/* dilution.c: probe_dilution, whose arrays have twins.  Whether it has kernels in this run;
 * what it needs beside, NULL: there is no room. */
struct device_dilution;
bool device_dilution_can(const struct session *s, const struct probe_state *p);
struct device_dilution *device_dilution_open(struct session *s, const struct probe_state *p,
                                             const struct twin_array *arrays);
void device_dilution_close(struct gpu *g, struct device_dilution *x); /* accepts NULL */
void device_dilution_take(struct gpu *g, const struct device_dilution *x, int layer,
                          const struct gpu_seen_rows *rows, const struct row_cut *cuts);
float *device_dilution_numbers(const struct device_dilution *x, int *ret_cap);
void device_dilution_put_numbers(struct gpu *g, const struct device_dilution *x, int layer, int T,
                                 int pos0);

#endif
