/* crew_wire.h - private: messages between the ranks of a crew (crew.h).
 *
 * MPI is a separate module, built from crew_mpi.c. It is loaded only if several processes were
 * started together, so the program runs without the MPI library. Only one thread at a time may
 * call the functions of an open wire.
 */
#ifndef KVF_CLI_CREW_WIRE_H
#define KVF_CLI_CREW_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/err.h>

/* A message: two numbers and an optional text. */
struct wire_message {
    int64_t kind, cell;
    char *text; /* text of the message, `bytes` bytes; NULL if it has no text */
    int64_t bytes;
};

/* The functions that the MPI module exports. The module calls no function of the program. */
#define WIRE_MODULE "kvfate_mpi.so"
#define WIRE_SYMBOL "kvfate_mpi_wire_2" /* the number counts changes of this struct */
struct wire {
    /* returns NULL, or a sentence if it failed */
    const char *(*open)(int *ret_rank, int *ret_size);
    void (*send)(int to, const void *data, int64_t bytes);
    int64_t (*pending)(int *ret_from); /* bytes of a pending message; 0 if there is no message */
    bool (*receive)(int from, void *data, int64_t bytes);
    bool (*broadcast)(int owner, void *data, int64_t bytes);
    void (*close)(bool together);
};

/* Connects the processes that were started together. Sets rank 0 of 1 for a process that was
 * started without MPI. Returns KVF_OK, or KVF_E_ARG or KVF_E_IO with a sentence. */
int wire_open(int *ret_rank, int *ret_size, struct kvf_diag *d);

enum { WIRE_MOST_TEXT = 1 << 30 }; /* maximum bytes of a text */

/* Sends a copy of a message to another rank; the caller keeps m and its text. A message to a dead
 * rank is lost. Returns false if memory is exhausted. */
bool wire_send(int to, const struct wire_message *m);

/* Receives a pending message without waiting. The caller frees its text with mem_free(). Returns
 * false if there is no message. */
bool wire_receive(int *ret_from, struct wire_message *ret);

/* Broadcasts `bytes` bytes at data from the owner to all ranks; all ranks call this with equal
 * arguments. When it returns, this rank may change data. Returns false on failure. */
bool wire_broadcast(int owner, void *data, int64_t bytes);

/* Closes the wire. together: all ranks are alive and call this, and each waits for all others. */
void wire_close(bool together);

#endif
