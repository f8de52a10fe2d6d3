/* devices.c - maps the --device option to a backend and a device. */
#include "engine/device/devices.h"

const char *const device_words[] = {"cpu", "cuda", "auto", NULL};

/* Finds the first usable device. Returns KVF_E_BACKEND with the reason of the last unusable
 * device. */
static int first_usable(const struct devices *all, int *ret_which, struct kvf_diag *d)
{
    struct device_facts unused;
    int err = kvf_fail(d, KVF_E_BACKEND, "%s", all->why.text);
    for (int i = 0; err && i < all->n; i++) {
        err = devices_look(i, &unused, d);
        *ret_which = i;
    }
    return err;
}

int devices_choose(enum device_word word, const struct backend **ret_backend, int *ret_which,
                   struct kvf_diag *d)
{
    struct devices all;
    *ret_backend = &backend_cpu;
    *ret_which = 0;
    if (word == DEVICE_CPU)
        return KVF_OK;
    devices_find(&all);
    int err = first_usable(&all, ret_which, d);
    if (!err)
        *ret_backend = all.backend;
    return word == DEVICE_AUTO ? KVF_OK : err;
}
