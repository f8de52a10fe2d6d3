/* crew.c - distributes cells to the ranks of a crew, and detects dead ranks. */
#include "cli/crew.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "base/opt.h"
#include "base/progress.h"
#include "cli/crew_wire.h"
#include "cli/environment.h"

/* Kinds of messages. To rank 0: ASK (a rank is free; cell is the cell that it finished, or -1),
 * PRINT (a text), ALIVE and LEFT. From rank 0: CELL, OVER (no work is left), HERE (the reply to
 * ALIVE) and BYE (cell is nonzero if all ranks are alive). */
enum kind { ASK, PRINT, ALIVE, LEFT, CELL, OVER, HERE, BYE };

enum cell_state { FREE, GIVEN, DONE };

/* The state of a rank, as rank 0 knows it. */
struct rank {
    int64_t cell;      /* cell that it works on; -1 if none */
    double heard;      /* time of its last message, in seconds */
    bool asks;         /* it waits for a cell */
    bool left, silent; /* it will ask for no more cells; it exceeded the patience */
};

/* A crew, as one of its ranks sees it. */
struct crew {
    int me, size;
    bool steps;       /* crew_join_steps(): all ranks run the same steps, without cells */
    double patience;  /* seconds without a message after which a rank counts as dead */
    pthread_t thread; /* exchanges messages, if the crew has several ranks */
    bool talking;
    pthread_mutex_t lock; /* protects all members below */
    pthread_cond_t changed;
    bool stop;

    /* used by rank 0 */
    bool offered;
    int64_t n, n_done;
    unsigned char *state; /* [size of n] enum cell_state */
    int64_t lowest;       /* no cell before this one is free */
    struct rank *rank;    /* [size] */

    /* used by every rank: its request, and the replies to it */
    bool asks, over, lost, bye, together;
    int64_t cell;
    /* times of the last message from rank 0, and of the last message of this rank */
    double heard, spoke;
};

static void send_cell(int to, enum kind kind, int64_t cell)
{
    wire_send(to, &(struct wire_message){.kind = kind, .cell = cell});
}

static void print_lines(const char *lines, size_t n)
{
    fwrite(lines, 1, n, stdout);
    fflush(stdout);
}

/* ---- rank 0: assigns cells. The caller of each function has locked c->lock. */

static void give_back(struct crew *c, struct rank *r)
{
    if (r->cell < 0)
        return;
    if (c->state[r->cell] == GIVEN)
        c->state[r->cell] = FREE;
    if (r->cell < c->lowest)
        c->lowest = r->cell;
    r->cell = -1;
}

static void mark_done(struct crew *c, struct rank *r, int64_t cell)
{
    if (cell >= 0 && cell < c->n && c->state[cell] != DONE) {
        c->state[cell] = DONE;
        c->n_done++;
    }
    if (r->cell == cell)
        r->cell = -1;
    /* The rank was thought dead: a cell that was sent to it since then did not reach it. */
    give_back(c, r);
}

static int64_t take_free(struct crew *c)
{
    while (c->lowest < c->n && c->state[c->lowest] != FREE)
        c->lowest++;
    if (c->lowest == c->n)
        return -1;
    c->state[c->lowest] = GIVEN;
    return c->lowest++;
}

static bool others_left(const struct crew *c)
{
    for (int i = 1; i < c->size; i++)
        if (!c->rank[i].left && !c->rank[i].silent)
            return false;
    return true;
}

/* Replies to a waiting rank if there is a free cell or all work is done. */
static void serve(struct crew *c, int i)
{
    struct rank *r = &c->rank[i];
    int64_t cell = take_free(c);
    bool over = cell < 0 && c->n_done == c->n && (i > 0 || others_left(c));
    if (cell < 0 && !over)
        return;
    r->asks = false;
    r->cell = cell;
    if (i > 0) {
        send_cell(i, over ? OVER : CELL, cell);
        return;
    }
    c->cell = cell;
    c->over = over;
    c->asks = false;
}

static void handle_request(struct crew *c, int from, struct wire_message m, double now)
{
    struct rank *r = &c->rank[from];
    r->heard = now;
    r->silent = false;
    if (m.kind == ASK) {
        mark_done(c, r, m.cell);
        r->asks = true;
    } else if (m.kind == PRINT && m.text) {
        print_lines(m.text, (size_t)m.bytes);
    } else if (m.kind == LEFT) {
        give_back(c, r);
        r->asks = false;
        r->left = true;
    } else if (m.kind == ALIVE) {
        send_cell(from, HERE, 0);
    }
}

static void assign_cells(struct crew *c, double now)
{
    for (int i = 1; i < c->size; i++) {
        struct rank *r = &c->rank[i];
        if (r->left || r->silent || now - r->heard < c->patience)
            continue;
        r->silent = true;
        r->asks = false;
        give_back(c, r);
    }
    for (int i = 0; c->offered && i < c->size; i++)
        if (c->rank[i].asks)
            serve(c, i);
}

/* ---- the other ranks */

static void handle_reply(struct crew *c, struct wire_message m, double now)
{
    c->heard = now;
    if (m.kind == CELL) {
        c->cell = m.cell;
        c->asks = false;
    } else if (m.kind == OVER) {
        c->over = true;
        c->asks = false;
    } else if (m.kind == BYE) {
        c->bye = true;
        c->together = m.cell;
    }
}

static void send_alive(struct crew *c, double now)
{
    if (now - c->spoke >= 0.25) {
        send_cell(0, ALIVE, -1);
        c->spoke = now;
    }
    if (now - c->heard > c->patience)
        c->lost = true;
}

/* ---- all ranks */

/* A thread of each rank exchanges its messages, so that a rank replies while it computes. */
static void *talk(void *arg)
{
    static const struct timespec pause = {0, 2000000};
    struct crew *c = arg;
    bool stop = false;
    while (!stop) {
        struct wire_message m;
        int from = 0;
        double now = clock_seconds();
        pthread_mutex_lock(&c->lock);
        while (wire_receive(&from, &m)) {
            if (c->me == 0)
                handle_request(c, from, m, now);
            else
                handle_reply(c, m, now);
            mem_free(m.text);
        }
        if (c->me == 0)
            assign_cells(c, now);
        else
            send_alive(c, now);
        stop = c->stop;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static int start(struct crew *c, struct kvf_diag *d)
{
    c->patience = environment_patience(CREW_PATIENCE);
    c->rank = MEM_NEW(struct rank, (size_t)c->size);
    if (!c->rank)
        return KVF_E_NOMEM;
    c->heard = clock_seconds();
    for (int i = 0; i < c->size; i++)
        c->rank[i] = (struct rank){.cell = -1, .heard = c->heard};
    if (c->size == 1 || c->steps)
        return KVF_OK;
    c->talking = pthread_create(&c->thread, NULL, talk, c) == 0;
    return c->talking ? KVF_OK
                      : kvf_fail(d, KVF_E_LIMIT, "no thread for the messages of the ranks");
}

static int join(bool steps, struct crew **ret, struct kvf_diag *d)
{
    struct crew *c = MEM_NEW(struct crew, 1);
    if (!c)
        return KVF_E_NOMEM;
    c->steps = steps;
    c->cell = -1;
    c->together = true;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    int err = wire_open(&c->me, &c->size, d);
    if (!err)
        err = start(c, d);
    if (err) {
        c->size = 1;
        crew_leave(c);
        return err;
    }
    *ret = c;
    return KVF_OK;
}

int crew_join(struct crew **ret, struct kvf_diag *d)
{
    return join(false, ret, d);
}

int crew_join_steps(struct crew **ret, struct kvf_diag *d)
{
    return join(true, ret, d);
}

int crew_broadcast(struct crew *c, int owner, void *data, size_t bytes, struct kvf_diag *d)
{
    if (c->size == 1 || wire_broadcast(owner, data, (int64_t)bytes))
        return KVF_OK;
    c->together = false;
    return kvf_fail(d, KVF_E_IO, "another rank has ended: give the same command again");
}

void crew_fail(struct crew *c)
{
    if (c)
        c->together = false;
}

bool crew_is_first(const struct crew *c)
{
    return c->me == 0;
}

int crew_rank(const struct crew *c)
{
    return c->me;
}

int crew_size(const struct crew *c)
{
    return c->size;
}

int crew_offer(struct crew *c, int64_t n, const bool *done)
{
    unsigned char *state = MEM_NEW(unsigned char, (size_t)n);
    if (!state)
        return KVF_E_NOMEM;
    pthread_mutex_lock(&c->lock);
    for (int64_t i = 0; done && i < n; i++)
        if (done[i]) {
            state[i] = DONE;
            c->n_done++;
        }
    c->state = state;
    c->n = n;
    c->offered = true;
    pthread_mutex_unlock(&c->lock);
    return KVF_OK;
}

/* Marks the previous cell of this rank as done and returns the next cell; -1 if there is none. */
static int64_t next_cell(struct crew *c)
{
    pthread_mutex_lock(&c->lock);
    int64_t previous = c->cell;
    c->cell = -1;
    c->asks = true;
    if (c->me == 0) {
        mark_done(c, &c->rank[0], previous);
        c->rank[0].asks = true;
        serve(c, 0);
    } else if (!c->lost && !c->bye) {
        send_cell(0, ASK, previous);
    }
    while (c->asks && !c->lost && !c->bye)
        pthread_cond_wait(&c->changed, &c->lock);
    int64_t cell = c->cell;
    pthread_mutex_unlock(&c->lock);
    return cell;
}

int crew_each(struct crew *c, crew_fn each, void *ctx, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int64_t i = next_cell(c); i >= 0; i = next_cell(c)) {
        err = each(ctx, i, d);
        if (err)
            return err;
    }
    if (c->over)
        return KVF_OK;
    return kvf_fail(
        d, KVF_E_IO,
        "the first rank has ended or does not answer: repeat the command; finished parts are kept");
}

void crew_file(const char *file, int rank, struct buf *b)
{
    buf_str(b, file);
    if (rank > 0)
        buf_printf(b, ".rank%d", rank);
}

void crew_own_file(const struct crew *c, const char *file, struct buf *b)
{
    crew_file(file, c->me, b);
}

int crew_print(struct crew *c, const char *lines, size_t n, struct kvf_diag *d)
{
    if (n > WIRE_MOST_TEXT)
        return kvf_fail(d, KVF_E_LIMIT, "an answer of %zu bytes cannot go from a rank to another",
                        n);
    if (c->size == 1) {
        print_lines(lines, n);
        return KVF_OK;
    }
    const struct wire_message m = {PRINT, -1, (char *)lines, (int64_t)n};
    bool sent = true;
    pthread_mutex_lock(&c->lock);
    if (c->me == 0)
        print_lines(lines, n);
    else
        sent = wire_send(0, &m);
    pthread_mutex_unlock(&c->lock);
    return sent ? KVF_OK : KVF_E_NOMEM;
}

/* Ends the thread. Rank 0 releases the other ranks; another rank informs rank 0 that it leaves,
 * and waits to be released. */
static void end_messages(struct crew *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->me > 0) {
        send_cell(0, LEFT, -1);
        while (!c->bye && !c->lost)
            pthread_cond_wait(&c->changed, &c->lock);
        c->together = c->together && c->bye;
    } else {
        for (int i = 1; i < c->size; i++)
            c->together = c->together && !c->rank[i].silent;
        for (int i = 1; i < c->size; i++)
            send_cell(i, BYE, c->together);
    }
    c->stop = true;
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
}

void crew_leave(struct crew *c)
{
    if (!c)
        return;
    if (c->talking)
        end_messages(c);
    wire_close(c->together);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    mem_free(c->state);
    mem_free(c->rank);
    mem_free(c);
}
