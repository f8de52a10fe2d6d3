/* device_together.c - a step of one session or of many: products of all their rows at once, in
 * between each with its own cache, and one wait for all. */
#include "base/mem.h"
#include "engine/decode/device_step.h"

/* Where a session works: in buffers of its own, or in a row of the room. */
struct row {
    struct session *s;
    struct elsewhere_round round;
    float *x, *normed, *att, *logits; /* its own */
    int err;
};

static void lend(struct session *room, struct row *row, int i)
{
    struct mirror *m = row->s->mirror;
    const struct mirror *of = room->mirror;
    size_t at = (size_t)i, d = (size_t)room->e->config.d_model;
    row->x = m->x;
    row->normed = m->normed;
    row->att = m->att;
    row->logits = m->logits;
    m->x = of->x + at * d;
    m->normed = of->normed + at * d;
    m->att = of->att + at * room->ld_att;
    m->logits = of->logits + at * room->ld_vocab;
}

static float *own_logits(const struct row *row)
{
    return row->x ? row->logits : ((struct mirror *)row->s->mirror)->logits;
}

static void take_back(struct row *row)
{
    struct mirror *m = row->s->mirror;
    m->x = row->x;
    m->normed = row->normed;
    m->att = row->att;
    m->logits = row->logits;
}

/* Projections of all rows; those of one session alone are made where it looks for them. */
static void project(struct session *room, const struct row *row, int n, int layer)
{
    struct mirror *m = room->mirror;
    bool alone = n == 1 && room == row[0].s;
    device_project(room, layer, n, alone ? step_projected(room, layer) : m->qkv);
}

/* What each session does with its own row, side by side: caches, evidence and probes are its own.
 */
static void attend(struct session *room, const struct row *row, int n, int layer)
{
    struct mirror *m = room->mirror;
    for (int i = 0; i < n; i++) {
        gpu_branch(m->gpu, i);
        if (row[i].s != room)
            gpu_copy(m->gpu, step_projected(row[i].s, layer), m->qkv + (size_t)i * room->ld_qkv,
                     room->ld_qkv * sizeof *m->qkv);
        step_attend(row[i].s, layer);
    }
    gpu_branch(m->gpu, -1);
}

/* What differs from step to step lies on the device by now: so all that is launched here is mostly
 * what was launched the last time, and goes there at once. */
static void launch(struct session *room, struct row *row, int n)
{
    struct mirror *m = room->mirror;
    room->stepping = true;
    gpu_graph_begin(m->gpu, &m->graph);
    for (int l = 0; l < room->e->config.n_layers; l++) {
        project(room, row, n, l);
        attend(room, row, n, l);
        device_finish(room, l, n);
    }
    device_norm(room, n);
    if (room != row[0].s || !room->no_logits)
        device_logits(room, m->normed, n);
    for (int i = 0; i < n; i++)
        step_fetch(row[i].s, own_logits(&row[i]));
    gpu_graph_end(m->gpu);
}

/* What leaves behind the queries, with one wait where anything does. */
static int after(struct session *room, struct row *row, int n)
{
    struct mirror *m = room->mirror;
    bool due = false;
    int err = KVF_OK;
    for (int i = 0; !err && i < n; i++)
        err = step_after(row[i].s, &row[i].round, &due);
    if (!err && due)
        err = gpu_wait(m->gpu, &room->e->said);
    for (int i = 0; !err && i < n; i++)
        err = step_learn_after(row[i].s, &row[i].round);
    return err;
}

static void learn_task(void *ctx, int task, int thread)
{
    struct row *row = (struct row *)ctx + task;
    (void)thread;
    row->err = step_learn(row->s, &row->round);
}

/* What came of the step, on the host: of several sessions side by side. */
static int learn_all(struct session *room, struct row *row, int n)
{
    for (int i = 0; i < n; i++)
        row[i].s->in_task = n > 1;
    par_run(n > 1 ? room->e->pool : NULL, n, learn_task, row);
    for (int i = 0; i < n; i++)
        row[i].s->in_task = false;
    for (int i = 0; i < n; i++)
        if (row[i].err)
            return row[i].err;
    return KVF_OK;
}

/* A trace that cannot be written ends a session that is alone. */
static int record(const struct row *row, bool alone)
{
    struct session *s = row->s;
    if (!s->recorder)
        return KVF_OK;
    int err = recorder_advance(s->recorder, s->n_past);
    return alone ? err : KVF_OK;
}

static int run(struct session *room, struct row *row, int n, const int32_t *ids)
{
    struct mirror *m = room->mirror;
    int err = mirror_hold_logits(room, n);
    for (int i = 0; !err && i < n; i++) {
        if (room != row[i].s)
            lend(room, &row[i], i);
        err = step_begin(row[i].s, own_logits(&row[i]), ids[i], &row[i].round);
    }
    if (err)
        return err;
    launch(room, row, n);
    err = gpu_wait(m->gpu, &room->e->said);
    err = err ? err : learn_all(room, row, n);
    for (int i = 0; !err && i < n; i++)
        err = record(&row[i], room == row[i].s);
    return err ? err : after(room, row, n);
}

int device_steps(struct session *room, struct session *const *s, int n, const int32_t *ids)
{
    struct row one = {.s = s[0]}, *row = room ? MEM_NEW(struct row, (size_t)n) : &one;
    if (!row)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++)
        row[i].s = s[i];
    int err = run(room ? room : s[0], row, n, ids);
    for (int i = 0; i < n; i++)
        if (row[i].x)
            take_back(&row[i]);
    if (room)
        mem_free(row);
    return err;
}

int device_step(struct session *s, int32_t id)
{
    if (device_joins(s))
        return device_steps(NULL, &s, 1, &id);
    int err = device_home(s);
    return err ? err : STEP_ELSEWHERE;
}
