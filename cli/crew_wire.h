/* crew_wire.h - private: messages between the ranks of a crew (crew.h).
 *
 * MPI is a module of its own, crew_mpi.c, that is loaded only where several processes were started
 * together: the program itself starts without MPI's library.  Of a wire that is open only one
 * thread calls these at a time. */
#ifndef KVF_CLI_CREW_WIRE_H
#define KVF_CLI_CREW_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/err.h>

struct wire_message {
    int64_t kind, cell;
    char *text; /* that goes with it; NULL: none */
    int64_t bytes;
};

/* What the module gives.  It calls nothing of the program. */
#define WIRE_MODULE "kvfate_mpi.so"
#define WIRE_SYMBOL "kvfate_mpi_wire_2" /* the number counts changes of this struct */
struct wire {
    const char *(*open)(int *ret_rank, int *ret_size); /* NULL, or a sentence: what failed */
    void (*send)(int to, const void *data, int64_t bytes);
    int64_t (*waits)(int *ret_from); /* bytes of a message that has come; 0: none has */
    bool (*take)(int from, void *data, int64_t bytes);
    bool (*share)(int owner, void *data, int64_t bytes);
    void (*close)(bool together);
};

/* KVF_OK, also for a process that was started alone, which has rank 0 of 1; KVF_E_ARG or KVF_E_IO
 * with a sentence. */
int wire_open(int *ret_rank, int *ret_size, struct kvf_diag *d);

enum { WIRE_MOST_TEXT = 1 << 30 }; /* bytes of a text */

/* Sends to another rank; m and its text are the caller's again.  What is sent to one that is dead
 * is lost.  False: there is no memory for it. */
bool wire_send(int to, const struct wire_message *m);

/* Takes a message that has come, without waiting; its text is the caller's (mem_free).  False:
 * none has. */
bool wire_take(int *ret_from, struct wire_message *ret);

/* All ranks call this alike: what the owner has at data comes to all.  Returns when this rank may
 * change data.  False: it failed. */
bool wire_share(int owner, void *data, int64_t bytes);

/* together: all ranks are alive and call this, and each waits for the others. */
void wire_close(bool together);

#endif
