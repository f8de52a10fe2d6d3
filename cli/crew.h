/* crew.h - several processes that divide the work of one command.
 *
 * mpirun or srun starts the same command several times, and each process is a rank. The work
 * consists of cells, such as documents or prompts. A rank that is free asks for the next cell, so
 * that slow cells and slow machines do not delay the other ranks. A process that was started
 * without MPI is a crew of one.
 *
 * Results are not sent through the crew. A rank stores them as a single process would, as traces
 * or in its own state file, before it asks for the next cell. Rank 0 returns from crew_each() when
 * all cells are done and all other ranks have left. It then combines the results. If a rank dies,
 * or sends no message for CREW_PATIENCE seconds, its cell is given to another rank. With Open MPI
 * this requires `mpirun --enable-recovery`; without it the death of one rank ends the job.
 *
 *     err = crew_join(&crew, &d);
 *     err = crew_offer(crew, n, done);           (rank 0)
 *     err = crew_each(crew, do_one, ctx, &d);
 *     crew_leave(crew);
 */
#ifndef KVF_CLI_CREW_H
#define KVF_CLI_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/err.h>

#include "base/buf.h"

enum { CREW_PATIENCE = 20 }; /* seconds, unless KVFATE_PATIENCE is set */

struct crew;

/* Joins the processes of this job to a crew. Returns KVF_OK. Returns KVF_E_ARG with a sentence if
 * several processes were started and the MPI module is not installed with this program. */
int crew_join(struct crew **ret, struct kvf_diag *d);

/* Joins a crew for work without cells: all ranks run the same steps at the same time, and exchange
 * data with crew_broadcast(). The death of one rank ends the job. Returns as crew_join() does. */
int crew_join_steps(struct crew **ret, struct kvf_diag *d);

/* Broadcasts `bytes` bytes at data from rank `owner` to all other ranks. All ranks call this with
 * equal arguments. Returns KVF_OK, or KVF_E_IO with a sentence. */
int crew_broadcast(struct crew *c, int owner, void *data, size_t bytes, struct kvf_diag *d);

bool crew_is_first(const struct crew *c); /* rank 0, which a single process is too */
int crew_rank(const struct crew *c);      /* 0 .. crew_size() - 1 */
/* Returns the number of ranks, at least 1. */
int crew_size(const struct crew *c);

/* Rank 0 announces the number of cells and marks those that are already done (borrowed; NULL if
 * none is done). The other ranks wait in crew_each() for this call. Returns KVF_OK or
 * KVF_E_NOMEM. */
int crew_offer(struct crew *c, int64_t n, const bool *done);

/* Calls each(ctx, i, d) for every cell i that this rank receives, in increasing order. The cell
 * counts as done when each() returns KVF_OK, so each() must have stored its result. Returns KVF_OK
 * when no cell is left, and on rank 0 only after all cells are done and the other ranks have left.
 * Returns the first error of each(), or KVF_E_IO with a sentence if rank 0 is lost. */
typedef int (*crew_fn)(void *ctx, int64_t cell, struct kvf_diag *d);
int crew_each(struct crew *c, crew_fn each, void *ctx, struct kvf_diag *d);

/* Sends lines of n bytes to the standard output of rank 0, which prints them without mixing them
 * with lines of other ranks. A pipe that all ranks share would mix them. The lines are printed
 * before their cell counts as done. After the death of a rank they may be printed twice. Returns
 * KVF_OK, or KVF_E_LIMIT with a sentence if n exceeds 1 GiB. */
int crew_print(struct crew *c, const char *lines, size_t n, struct kvf_diag *d);

/* Appends the name of this rank's own version of a file that the command names: FILE for rank 0,
 * FILE.rank3 for rank 3. crew_file() appends the name for any rank. */
void crew_own_file(const struct crew *c, const char *file, struct buf *b);
void crew_file(const char *file, int rank, struct buf *b);

/* Records that this rank has failed and will not wait for the other ranks at the end. Accepts
 * NULL. */
void crew_fail(struct crew *c);

/* Ends the crew. A rank other than 0 informs rank 0 that it has left, and may wait for rank 0 to
 * finish. Accepts NULL. */
void crew_leave(struct crew *c);

#endif
