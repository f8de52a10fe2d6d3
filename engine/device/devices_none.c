/* devices_none.c - for programs that were built where nothing compiles kernels. */
#include "engine/device/devices.h"

void devices_find(struct devices *ret)
{
    *ret = (struct devices){.n = 0};
    kvf_fail(
        &ret->why, KVF_E_BACKEND,
        "this kvfate was built without kernels for CUDA devices: build it where nvcc is found");
}

int devices_look(int i, struct device_facts *ret, struct kvf_diag *d)
{
    (void)ret;
    return kvf_fail(d, KVF_E_BACKEND, "there is no CUDA device %d", i);
}
