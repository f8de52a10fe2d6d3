/* devices.h - lists the CUDA devices of this machine and selects one by the --device option.
 *
 * A program links devices_cuda.c with the kernels, or devices_none.c if it is built without
 * CUDA. */
#ifndef KVF_ENGINE_DEVICES_H
#define KVF_ENGINE_DEVICES_H

#include <stddef.h>

#include "engine/decode/backend.h"

/* The values of --device: "cpu", "cuda" and "auto". */
enum device_word { DEVICE_CPU, DEVICE_CUDA, DEVICE_AUTO };
extern const char *const device_words[]; /* names of enum device_word, terminated by NULL */

/* Selects a backend and a device. "auto" selects the first usable CUDA device, or else the CPU.
 * Returns KVF_OK, or KVF_E_BACKEND with a message with the reason and a remedy. For DEVICE_AUTO
 * with the CPU, d gives the reason. */
int devices_choose(enum device_word word, const struct backend **ret_backend, int *ret_which,
                   struct kvf_diag *d);

/* The CUDA devices of this machine. backend is NULL if the program has no kernels. */
struct devices {
    const struct backend *backend;
    int driver, built; /* CUDA versions, 13000 is 13.0; driver 0: no driver */
    int n;
    struct kvf_diag why; /* n = 0: reason that no device is available */
};
/* Lists the CUDA devices of this machine. */
void devices_find(struct devices *ret);

/* The properties of a CUDA device. */
struct device_facts {
    char name[256];
    size_t memory, free; /* bytes */
    int major, minor;    /* compute capability */
};
/* Reads the properties of device i < n. Returns KVF_OK, or KVF_E_BACKEND with a message if the
 * device is not usable; *ret then has the properties that are known. */
int devices_look(int i, struct device_facts *ret, struct kvf_diag *d);

#endif
