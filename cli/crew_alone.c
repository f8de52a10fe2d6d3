/* crew_alone.c - a program that was built without MPI. */
#include <stdlib.h>

#include "base/opt.h"
#include "cli/crew_wire.h"

int wire_open(int *ret_rank, int *ret_size, struct kvf_diag *d)
{
    static const char *const said[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    for (int i = 0; said[i]; i++) {
        const char *size = getenv(said[i]);
        int64_t n = 1;
        if (size && opt_int(size, &n) && n > 1)
            return kvf_fail(d, KVF_E_ARG,
                            "%s processes were started together, and this kvfate was built without "
                            "MPI: each would do all of the work; build it with -Dmpi=enabled, or "
                            "give each its part by --shard",
                            size);
    }
    *ret_rank = 0;
    *ret_size = 1;
    return KVF_OK;
}

void wire_send(int to, struct wire_message m)
{
    (void)to;
    (void)m;
}

bool wire_take(int *ret_from, struct wire_message *ret)
{
    (void)ret_from;
    (void)ret;
    return false;
}

void wire_close(bool together)
{
    (void)together;
}
