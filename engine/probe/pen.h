/* pen.h - the thread that writes a trace, so that who decodes waits neither for compression nor for
 * the disk; private to engine/probe/.
 *
 * Tasks are done one by one in the order in which they were put, so the trace has the bytes that it
 * would have if each were done at once.  An error of the trace is kept, and no later task is done.
 * All functions but those of tasks are for one thread, the pen's owner. */
#ifndef KVF_ENGINE_PROBE_PEN_H
#define KVF_ENGINE_PROBE_PEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/trace.h>

struct pen;
struct probe_state;

struct pen_task {
    struct pen_task *next;
    /* KVF_OK or an error of the trace; w: what is written to, the trace or its tail. */
    int (*run)(const struct pen_task *t, struct kvf_writer *w);
    size_t bytes; /* of data */
    /* What run needs of these: */
    const struct probe_state *state; /* nobody changes its arrays before the task is done */
    int column, layer, heads;
    uint32_t t0, n, epoch;
    bool snapshots;
    _Alignas(16) unsigned char data[];
};

/* A task with room for so many bytes, zeroed but for these.  NULL: no memory. */
struct pen_task *pen_task(size_t bytes, int (*run)(const struct pen_task *, struct kvf_writer *));

/* w is borrowed; until pen_destroy nobody else may write to it.  KVF_OK, KVF_E_NOMEM. */
int pen_create(struct kvf_writer *w, struct pen **ret_pen, struct kvf_diag *d);
/* Does what was put, unless it is held, and ends.  Accepts NULL. */
void pen_destroy(struct pen *p);

/* Takes a task.  It waits only while PEN_BYTES are waiting and nothing is held. */
enum { PEN_BYTES = 64 << 20 };
void pen_put(struct pen *p, struct pen_task *t);
/* What is put between the two goes to the tail of the trace (kvf_writer_open_tail), in whose place
 * nothing is written where it cannot be. */
int pen_begin_tail(struct pen *p);
int pen_end_tail(struct pen *p);

/* What is put from now on is not begun before pen_release: what it reads is not there yet. */
void pen_hold(struct pen *p);
void pen_release(struct pen *p);
void pen_discard(struct pen *p); /* it never will be there: forgets what is held */

/* Waits until all that is not held is done.  The first error of the trace. */
int pen_settle(struct pen *p);
/* Waits until no task is left that reads the arrays of a state; none may be held. */
void pen_await_readers(struct pen *p);
/* The first error of what is done so far. */
int pen_error(const struct pen *p);
/* Whether there is nothing to do; then also when the last tail was begun and ended, in seconds of
 * the clock.  Both may be NULL. */
bool pen_idle(struct pen *p, double *ret_begun, double *ret_ended);

#endif
