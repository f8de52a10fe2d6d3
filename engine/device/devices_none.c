/* devices_none.c - an empty list of devices, for programs without CUDA kernels. */
#include "engine/device/devices.h"

void devices_find(struct devices *ret)
{
    *ret = (struct devices){.n = 0};
    kvf_fail(&ret->why, KVF_E_BACKEND,
             "this kvfate was built without CUDA kernels: run 'meson setup build-cuda "
             "--buildtype=release -Dcuda=enabled && ninja -C build-cuda' on the machine with the "
             "device, where nvcc must be installed");
}

int devices_look(int i, struct device_facts *ret, struct kvf_diag *d)
{
    (void)ret;
    return kvf_fail(d, KVF_E_BACKEND, "there is no CUDA device %d", i);
}
