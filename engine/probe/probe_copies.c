/* probe_copies.c - per query: the position of its largest weight, and its weight on the preceding
 * token, on earlier copies of its token, and on the tokens that directly follow these copies.
 *
 * With x_i the token at position i and A the weights of query t (0 for entries that it does not
 * see):
 *     copy.top       = argmax_j A[j]; of equal weights the larger position
 *     copy.previous  = A[t - 1]
 *     copy.duplicate = sum of A[j] over j < t with x_j = x_t
 *     copy.follower  = sum of A[j + 1] over the same j (Olsson et al. 2022: prefix matching)
 * copy.top and the tokens give the retrieval score of Wu et al. (2024). */
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum { TOP, PREVIOUS, DUPLICATE, FOLLOWER, N_COLUMNS };

#define COLUMN(name, dtype) .column = {name, dtype, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""}
static const struct probe_array arrays[N_COLUMNS] = {
    [TOP] = {COLUMN("copy.top", PROBE_STEPS), .start = PROBE_ONES},
    [PREVIOUS] = {COLUMN("copy.previous", KVF_F32)},
    [DUPLICATE] = {COLUMN("copy.duplicate", KVF_F32)},
    [FOLLOWER] = {COLUMN("copy.follower", KVF_F32)},
};

/* Tokens of the run. */
struct state {
    int32_t *id;     /* [cap] */
    int32_t *before; /* [cap] position of the last earlier copy of the token; -1: none */
};

static int open_state(struct probe_state *s)
{
    size_t cap = (size_t)s->cfg->cap;
    struct state *own = s->own = MEM_NEW(struct state, 1);
    if (!own)
        return KVF_E_NOMEM;
    own->id = MEM_NEW(int32_t, cap);
    own->before = MEM_NEW(int32_t, cap);
    return own->id && own->before ? KVF_OK : KVF_E_NOMEM;
}

static void close_state(struct probe_state *s)
{
    struct state *own = s->own;
    mem_free_all(own->id, own->before, own);
}

static void copy(struct probe_state *s, const struct probe_state *from, int32_t n)
{
    struct state *to = s->own;
    const struct state *source = from->own;
    probe_copy_rows(s, to->id, from, source->id, 1, sizeof *to->id, n);
    probe_copy_rows(s, to->before, from, source->before, 1, sizeof *to->before, n);
}

/* Tokens of a prompt can be announced again after a cut, so the copies are found by a search. */
static void on_token(struct probe_state *s, int32_t t, int32_t id)
{
    struct state *own = s->own;
    int32_t j = t - 1;
    while (j >= 0 && own->id[j] != id)
        j--;
    own->id[t] = id;
    own->before[t] = j;
}

/* Returns the weight of the entry at a position, 0 if the query does not see it. */
static float weight_of(const struct probe_row *row, int32_t pos)
{
    int at = pos < 0 ? -1 : probe_find(row, pos);
    return at < 0 ? 0 : row->p[at];
}

static uint32_t top_of(const struct probe_state *s, const struct probe_row *row)
{
    float most = s->cfg->kernels->max_row(row->p, row->n);
    int i = row->n - 1;
    while (i > 0 && row->p[i] < most)
        i--;
    return (uint32_t)(row->pos ? row->pos[i] : i);
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const struct state *own = s->own;
    float *real[N_COLUMNS] = {NULL};
    double duplicate = 0, follower = 0;
    for (int c = PREVIOUS; c < N_COLUMNS; c++)
        real[c] = probe_cells(s, c, row->layer, row->head);
    for (int32_t j = own->before[row->t]; j >= 0; j = own->before[j]) {
        duplicate += (double)weight_of(row, j);
        follower += (double)weight_of(row, j + 1);
    }
    if (row->n)
        probe_put_step(s, probe_cells(s, TOP, row->layer, row->head), (size_t)row->t,
                       top_of(s, row));
    real[PREVIOUS][row->t] = weight_of(row, row->t - 1);
    real[DUPLICATE][row->t] = (float)duplicate;
    real[FOLLOWER][row->t] = (float)follower;
}

const struct probe probe_copies = {
    .name = "copies",
    .summary = "per query: the largest weight, and the weights on copies of its token",
    .wants = PROBE_ROWS,
    .by_name = true,
    PROBE_ARRAYS(arrays),
    .open = open_state,
    .close = close_state,
    .copy = copy,
    .token = on_token,
    .row = on_row,
};
