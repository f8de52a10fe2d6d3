/* pen.h - the writer thread of a trace, so that decoding does not wait for compression or the disk.
 * Private to engine/probe/.
 *
 * Tasks run in the order in which they were queued, so the trace has the same bytes as with direct
 * writes. The first error of the trace is kept, and later tasks are skipped. Except for functions
 * of tasks, all functions may be called only from the thread that owns the pen. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/trace.h>

/* A writer thread and its queue. */
struct pen;
struct probe_state;

/* A task of the writer thread, with its data. */
struct pen_task {
    struct pen_task *next;
    /* Writes the task to w, the trace or its tail. Returns KVF_OK or an error of the trace. */
    int (*run)(const struct pen_task *t, struct kvf_writer *w);
    size_t bytes; /* length of data */
    /* Arguments for run; each task sets some of them: */
    const struct probe_state *state; /* its arrays must not change before the task is done */
    int column, layer, heads;
    uint32_t t0, n, epoch;
    bool snapshots;
    _Alignas(16) unsigned char data[];
};

/* Creates a task with `bytes` bytes of data, zeroed except for these. Returns NULL if memory is
 * short. */
struct pen_task *pen_task(size_t bytes, int (*run)(const struct pen_task *, struct kvf_writer *));

/* Starts the thread. w is borrowed; only the pen may write to it until pen_destroy. Returns KVF_OK
 * or KVF_E_NOMEM. */
int pen_create(struct kvf_writer *w, struct pen **ret_pen, struct kvf_diag *d);
/* Runs the queued tasks, except held ones, and ends the thread. Accepts NULL. */
void pen_destroy(struct pen *p);

/* Queues a task, which the pen then owns. Waits only while PEN_BYTES are queued and no task is
 * held. */
enum { PEN_BYTES = 64 << 20 };
void pen_put(struct pen *p, struct pen_task *t);
/* Tasks queued between pen_begin_tail and pen_end_tail write to the tail of the trace
 * (kvf_writer_open_tail). If the tail cannot be opened, they are skipped. */
int pen_begin_tail(struct pen *p);
int pen_end_tail(struct pen *p);

/* Keeps the tasks of the trace from now on, without those of tails. No task may have a state. */
void pen_log(struct pen *p);
/* Waits until all tasks are done, ends pen_log(), and returns the kept tasks in order. */
struct pen_task *pen_take_log(struct pen *p);
/* Queues copies of a list of tasks. Returns KVF_OK or KVF_E_NOMEM. */
int pen_put_copies(struct pen *p, const struct pen_task *list);
void pen_tasks_free(struct pen_task *list); /* accepts NULL */

/* Holds tasks that are queued from now on until pen_release, because their data are not yet
 * available. */
void pen_hold(struct pen *p);
void pen_release(struct pen *p);
void pen_discard(struct pen *p); /* drops the held tasks; their data will not arrive */

/* Waits until all tasks that are not held are done. Returns the first error of the trace. */
int pen_settle(struct pen *p);
/* Waits until no remaining task reads the arrays of a state. No such task may be held. */
void pen_await_readers(struct pen *p);
/* Returns the first error of the completed tasks. */
int pen_error(const struct pen *p);
/* Returns true if no task is pending. Then also sets the start and end time of the last tail, in
 * seconds of the clock. Both may be NULL. */
bool pen_idle(struct pen *p, double *ret_begun, double *ret_ended);
