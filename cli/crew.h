/* crew.h - the processes that share the work of one command.
 *
 * mpirun, or srun, starts the same command several times; each process is a rank.  The work is a
 * number of cells, such as documents or prompts.  A rank that is free asks for the next cell, so
 * that slow cells and slow machines hold up nobody.  A process that was started alone is a crew of
 * one.
 *
 * Results do not pass through the crew: a rank keeps them where it would keep them alone, as traces
 * or in a state file of its own, before it asks for the next cell.  The first rank gets its end of
 * the work when all cells are done and all others have left, and then puts the results together.  A
 * rank that dies, or says nothing for CREW_PATIENCE seconds, has its cell taken away and given to
 * another; with Open MPI this needs `mpirun --enable-recovery`, without which the death of one ends
 * all.
 *
 *     err = crew_join(&crew, &d);
 *     err = crew_offer(crew, n, done);           (the first rank)
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

/* KVF_OK; KVF_E_ARG with a sentence where several processes were started and no module of MPI is
 * beside this program. */
int crew_join(struct crew **ret, struct kvf_diag *d);

/* As crew_join, for work that has no cells: all ranks do the same steps at the same time, and give
 * each other what they have by crew_share.  The death of one ends all. */
int crew_join_steps(struct crew **ret, struct kvf_diag *d);

/* What the rank `owner` has at data comes to all others, who call this alike.  KVF_OK, or KVF_E_IO
 * with a sentence. */
int crew_share(struct crew *c, int owner, void *data, size_t bytes, struct kvf_diag *d);

bool crew_is_first(const struct crew *c); /* the only rank is the first */
int crew_rank(const struct crew *c);      /* 0 of the first */
int crew_size(const struct crew *c);

/* The first rank says how many cells there are, and which of them are done already (borrowed; NULL:
 * none).  The others wait in crew_each until then.  KVF_OK or KVF_E_NOMEM. */
int crew_offer(struct crew *c, int64_t n, const bool *done);

/* Calls each(ctx, i, d) for the cells that this rank is given, in the order of their numbers.  When
 * it returns KVF_OK the cell is done: what came of it must be safe.  KVF_OK when no cell is left,
 * and for the first rank when all are done and the others have left; the first error of `each`;
 * KVF_E_IO with a sentence when the first rank is gone. */
typedef int (*crew_fn)(void *ctx, int64_t cell, struct kvf_diag *d);
int crew_each(struct crew *c, crew_fn each, void *ctx, struct kvf_diag *d);

/* Lines of n bytes to the standard output of the first rank, where those of other ranks do not cut
 * them apart, as they do in a pipe that all ranks share.  They are there before the cell is done
 * that they are of; after the death of a rank they may come twice.  KVF_OK, or KVF_E_LIMIT with a
 * sentence for over 1 GiB. */
int crew_print(struct crew *c, const char *lines, size_t n, struct kvf_diag *d);

/* Appends the name of the file of this rank beside a file that the command names: FILE for the
 * first, FILE.rank3 for the fourth. crew_file: of any rank. */
void crew_own_file(const struct crew *c, const char *file, struct buf *b);
void crew_file(const char *file, int rank, struct buf *b);

/* This rank has failed, and will not meet the others.  Accepts NULL. */
void crew_fail(struct crew *c);

/* Ends the crew: for ranks that are not the first it says that they have left, and may wait for the
 * first to end. Accepts NULL. */
void crew_leave(struct crew *c);

#endif
