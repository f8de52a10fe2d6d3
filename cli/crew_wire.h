/* crew_wire.h - private: messages between the ranks of a crew (crew.h).
 *
 * One of crew_mpi.c and crew_alone.c is built.  Of a wire that is open only one thread calls these
 * at a time. */
#ifndef KVF_CLI_CREW_WIRE_H
#define KVF_CLI_CREW_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/err.h>

struct wire_message {
    int64_t kind, cell;
};

/* KVF_OK, also for a process that was started alone, which has rank 0 of 1; KVF_E_ARG or KVF_E_IO
 * with a sentence. */
int wire_open(int *ret_rank, int *ret_size, struct kvf_diag *d);

/* Sends to another rank.  What is sent to one that is dead is lost. */
void wire_send(int to, struct wire_message m);

/* Takes a message that has come, without waiting.  False: none has. */
bool wire_take(int *ret_from, struct wire_message *ret);

/* together: all ranks are alive and call this, and each waits for the others. */
void wire_close(bool together);

#endif
