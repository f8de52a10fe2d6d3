/* environment.c - parses and checks the environment variables of kvfate. */
#include "cli/environment.h"

#include <stdlib.h>

#include "base/opt.h"
#include "engine/kernels/kernels.h"

static const char *given(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

double environment_patience(double standard)
{
    const char *value = given("KVFATE_PATIENCE");
    double seconds;
    return value && opt_real(value, &seconds) && seconds >= 1 ? seconds : standard;
}

int environment_check(struct kvf_diag *d)
{
    const char *mask = given("KVFATE_CPU_MASK"), *patience = given("KVFATE_PATIENCE");
    unsigned flags;
    if (mask && !cpu_mask_parse(mask, &flags))
        return kvf_fail(
            d, KVF_E_ARG,
            "KVFATE_CPU_MASK is '%.80s', and must be a hexadecimal number of at most 32 "
            "bits; 0 selects the portable kernels",
            mask);
    if (patience && environment_patience(-1) < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "KVFATE_PATIENCE is '%.80s', and must be a number of seconds from 1 on",
                        patience);
    return KVF_OK;
}
