/* ffn.c - activation(W_gate n) * W_up n of many rows, as the integers that the next product reads.
 *
 * A task multiplies all rows by a few channels of gate and up. It then computes and quantises the
 * activations of these channels while their sums are in the CPU's caches. */
#include <string.h>

#include "engine/decode/session_state.h"

/* Channels of a task. Half of a tile is for gate, half for up. */
enum { GATED = TILE_PANELS / 2 * PANEL };
_Static_assert(GATED % QBLOCK == 0, "a task makes whole blocks");

struct job {
    struct session *s;
    const struct layer_weights *w;
    int T, n_tasks;
};

static swiglu_fn activation(const struct session *s)
{
    return s->e->config.family->gelu ? s->e->kernels.geglu : s->e->kernels.swiglu;
}

/* Copies the blocks of short rows into longer rows, from block `at` on, with the sums that the
 * product reads: per block, or per half of a block (halves). */
static void place_blocks(const struct qrows *to, size_t at, const struct qrows *from, size_t rows,
                         bool halves)
{
    size_t all = (size_t)to->K / QBLOCK, n = (size_t)from->K / QBLOCK, i = 0;
    size_t bytes = qrows_bytes(to);
    for (size_t t = 0; t < rows; t++, at += all)
        for (size_t b = at; b < at + n; b++, i++) {
            /* Copies of a fixed size need no call and no string instruction. */
            memcpy(to->q + b * bytes, from->q + i * bytes, QBLOCK);
            if (bytes > QBLOCK)
                memcpy(to->q + b * bytes + QBLOCK, from->q + i * bytes + QBLOCK, QBLOCK);
            to->scale[b] = from->scale[i];
            if (halves)
                memcpy(to->half + 2 * b, from->half + 2 * i, 2 * sizeof *to->half);
            else
                memcpy(to->sum + b, from->sum + i, sizeof *to->sum);
        }
}

/* Computes and quantises activations, ROWS rows at a time. gate: T rows of n sums of gate, followed
 * by those of up. */
static void place_activations(const struct job *j, int c0, int n, const float *gate)
{
    enum { ROWS = 16, BLOCKS = ROWS * GATED / QBLOCK };
    struct session *s = j->s;
    const float *up = gate + (size_t)j->T * (size_t)n;
    _Alignas(64) float made[ROWS * GATED], scale[BLOCKS], sum[BLOCKS], half[2 * BLOCKS];
    _Alignas(64) int8_t bytes[ROWS * GATED * 2];
    struct qrows rows = s->matmul.activated;
    rows.q = bytes, rows.scale = scale, rows.sum = sum, rows.half = half, rows.K = n;
    size_t all = (size_t)s->matmul.activated.K / QBLOCK;
    for (int t = 0; t < j->T; t += ROWS) {
        int many = j->T - t < ROWS ? j->T - t : ROWS;
        size_t from = (size_t)t * (size_t)n;
        activation(s)(made, gate + from, up + from, many * n);
        s->e->kernels.quant_rows(&rows, made, many, n);
        place_blocks(&s->matmul.activated, (size_t)t * all + (size_t)(c0 / QBLOCK), &rows,
                     (size_t)many, j->w->matrix[T_DOWN].n_fine == 2);
    }
}

/* Computes channels [c0, c0 + n). */
static void gated_channels(const struct job *j, int c0, int n, float *tile)
{
    struct session *s = j->s;
    const struct packed *w = &j->w->matrix[T_GATE_UP];
    const struct packed of_gate = packed_part(w, c0 / PANEL, n / PANEL),
                        of_up = packed_part(w, (s->e->config.d_ffn + c0) / PANEL, n / PANEL);
    float *up = tile + (size_t)j->T * (size_t)n;
    multiply_rows(s, tile, (size_t)n, NULL, 0, j->T, &of_gate, 0, of_gate.n_panels);
    multiply_rows(s, up, (size_t)n, NULL, 0, j->T, &of_up, 0, of_up.n_panels);
    place_activations(j, c0, n, tile);
}

static void gated_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    int c0 = spread_task(s->e->pool, task, j->n_tasks) * GATED, left = s->e->config.d_ffn - c0;
    if (left > 0)
        gated_channels(j, c0, left < GATED ? left : GATED,
                       s->matmul.tile + (size_t)thread * s->matmul.ld_tile);
}

/* Makes the quantised activations the input of the next product. */
static void make_integers(struct session *s, int T, const struct layer_weights *w)
{
    int d = s->e->config.d_ffn, n_tasks = spread_tasks(s->e->pool, (d + GATED - 1) / GATED);
    struct job j = {s, w, T, n_tasks};
    const struct qrows read = s->matmul.input;
    s->matmul.activated.K = d;
    s->matmul.activated.lowest = w->matrix[T_DOWN].lowest;
    par_run(s->e->pool, n_tasks, gated_task, &j);
    s->matmul.input = s->matmul.activated;
    s->matmul.activated = read;
}

bool activate_as_integers(struct layer_run *r, const struct matmul_input *in)
{
    const struct layer_weights *w = &r->s->e->weights->layer[r->layer];
    const struct packed *gate_up = &w->matrix[T_GATE_UP], *down = &w->matrix[T_DOWN];
    if (!packed_quantised(gate_up) || !packed_quantised(down)
        || r->s->e->config.d_ffn % QBLOCK != 0)
        return false;
    prepare_rows(r->s, in, r->T, gate_up);
    make_integers(r->s, r->T, w);
    return true;
}
