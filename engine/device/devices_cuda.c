/* devices_cuda.c - lists the CUDA devices of this machine. */
#include <stdio.h>

#include "engine/cuda/gpu.h"
#include "engine/device/devices.h"

void devices_find(struct devices *ret)
{
    *ret = (struct devices){.backend = &backend_cuda};
    gpu_versions(&ret->driver, &ret->built);
    ret->n = gpu_count(&ret->why);
}

int devices_look(int i, struct device_facts *ret, struct kvf_diag *d)
{
    struct gpu_facts f = {.name = ""};
    int err = gpu_look(i, &f, d);
    *ret = (struct device_facts){
        .memory = f.memory, .free = f.free, .major = f.major, .minor = f.minor};
    snprintf(ret->name, sizeof ret->name, "%s", f.name);
    return err ? KVF_E_BACKEND : KVF_OK;
}
