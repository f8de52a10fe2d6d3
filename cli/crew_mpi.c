/* crew_mpi.c - the messages of a crew by MPI; the only file that includes its header. */
#include <mpi.h>
#include <stdlib.h>

#include "cli/crew_wire.h"

static bool joined;

/* MPI is started only where somebody started several processes: it takes a tenth of a second. */
static bool started_together(void)
{
    static const char *const said[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                       "MPI_LOCALNRANKS", NULL};
    for (int i = 0; said[i]; i++)
        if (getenv(said[i]))
            return true;
    return false;
}

int wire_open(int *ret_rank, int *ret_size, struct kvf_diag *d)
{
    int level = 0;
    *ret_rank = 0;
    *ret_size = 1;
    if (!started_together())
        return KVF_OK;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return kvf_fail(d, KVF_E_IO, "MPI could not be started");
    joined = true;
    if (level < MPI_THREAD_SERIALIZED)
        return kvf_fail(d, KVF_E_ARG,
                        "this MPI cannot be called from threads (MPI_THREAD_SERIALIZED)");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, ret_rank);
    MPI_Comm_size(MPI_COMM_WORLD, ret_size);
    return KVF_OK;
}

void wire_send(int to, struct wire_message m)
{
    MPI_Send(&m, 2, MPI_INT64_T, to, 0, MPI_COMM_WORLD);
}

bool wire_take(int *ret_from, struct wire_message *ret)
{
    MPI_Status s;
    int there = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &s) != MPI_SUCCESS || !there)
        return false;
    *ret_from = s.MPI_SOURCE;
    return MPI_Recv(ret, 2, MPI_INT64_T, s.MPI_SOURCE, 0, MPI_COMM_WORLD, &s) == MPI_SUCCESS;
}

/* Without a dead rank the end is a meeting of all; with one nobody would come out of it. */
void wire_close(bool together)
{
    if (joined && together)
        MPI_Finalize();
    joined = false;
}
