/* devices.h - what this machine has to compute with, and what a user's word for it means.
 *
 * Programs link one of two: devices_cuda.c with the kernels, or devices_none.c where nothing
 * compiled them. */
#ifndef KVF_ENGINE_DEVICES_H
#define KVF_ENGINE_DEVICES_H

#include <stddef.h>

#include "engine/decode/backend.h"

enum device_word { DEVICE_CPU, DEVICE_CUDA, DEVICE_AUTO };
extern const char *const device_words[]; /* of enum device_word; ends with NULL */

/* What a word means: "auto" is the first CUDA device that can be used, or else the processor.
 * KVF_OK, or KVF_E_BACKEND with a sentence that says why there is no device and what to do.  With
 * DEVICE_AUTO d says why it is the processor. */
int devices_choose(enum device_word word, const struct backend **ret_backend, int *ret_which,
                   struct kvf_diag *d);

/* CUDA devices.  backend NULL: the program has no kernels for any. */
struct devices {
    const struct backend *backend;
    int driver, built; /* CUDA: 13000 is 13.0; driver 0: there is none */
    int n;
    struct kvf_diag why; /* n 0: why none can be reached */
};
void devices_find(struct devices *ret);

struct device_facts {
    char name[256];
    size_t memory, free; /* bytes */
    int major, minor;    /* compute capability */
};
/* Device i of the n.  KVF_OK, or KVF_E_BACKEND with a sentence: it cannot be used, and what is
 * known of it is in *ret. */
int devices_look(int i, struct device_facts *ret, struct kvf_diag *d);

#endif
