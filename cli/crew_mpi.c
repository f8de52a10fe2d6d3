/* crew_mpi.c - sends the messages of a crew with MPI. It is a separate module (crew_wire.h), and
 * only this file includes the MPI header. */
#include <mpi.h>

#include "cli/crew_wire.h"

static bool joined;

static const char *open_mpi(int *ret_rank, int *ret_size)
{
    int level = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return "MPI could not be started";
    joined = true;
    if (level < MPI_THREAD_SERIALIZED)
        return "this MPI cannot be called from threads (MPI_THREAD_SERIALIZED)";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, ret_rank);
    MPI_Comm_size(MPI_COMM_WORLD, ret_size);
    return NULL;
}

static void send_message(int to, const void *data, int64_t bytes)
{
    MPI_Send(data, (int)bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

static int64_t message_waits(int *ret_from)
{
    MPI_Status s;
    int there = 0, n = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &s) != MPI_SUCCESS || !there)
        return 0;
    *ret_from = s.MPI_SOURCE;
    return MPI_Get_count(&s, MPI_BYTE, &n) == MPI_SUCCESS && n > 0 ? n : 0;
}

static bool take_message(int from, void *data, int64_t bytes)
{
    return MPI_Recv(data, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
           == MPI_SUCCESS;
}

static bool share(int owner, void *data, int64_t bytes)
{
    enum { PIECE = 1 << 28 }; /* MPI counts are int */
    bool good = true;
    for (int64_t at = 0; good && at < bytes; at += PIECE) {
        int n = bytes - at < PIECE ? (int)(bytes - at) : PIECE;
        good = MPI_Bcast((char *)data + at, n, MPI_BYTE, owner, MPI_COMM_WORLD) == MPI_SUCCESS;
    }
    return good;
}

/* MPI_Finalize() waits for all ranks. It is skipped if a rank is dead, because it would never
 * return. */
static void close_mpi(bool together)
{
    if (joined && together)
        MPI_Finalize();
    joined = false;
}

extern const struct wire kvfate_mpi_wire_2;
const struct wire kvfate_mpi_wire_2 = {open_mpi,     send_message, message_waits,
                                       take_message, share,        close_mpi};
