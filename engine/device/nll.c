/* nll.c - likelihood of the tokens of a prompt on a device. Logits exist for one tile of the
 * vocabulary at a time. Only their log-sum-exp by segments is copied to the host. */
#include "engine/device/device.h"

enum { TILE = 16 * VOCAB_SEGMENT }; /* logits of a row per tile */
_Static_assert((int)VOCAB_SEGMENT == (int)GPU_SEGMENT, "what a kernel sums together");

struct room {
    float *logits, *lse, *target; /* [rows][TILE], [segments][n], [n] */
    int32_t *ids;                 /* [n] */
};

static bool make_room(struct session *s, struct room *r, size_t n)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    r->logits = gpu_alloc(g, device_session_rows((int)n), TILE * sizeof *r->logits);
    r->lse = gpu_alloc(g, (size_t)n_segments(s), n * sizeof *r->lse);
    r->target = gpu_alloc(g, n, sizeof *r->target);
    r->ids = gpu_alloc(g, n, sizeof *r->ids);
    return r->logits && r->lse && r->target && r->ids;
}

static void run_tile(struct session *s, const struct room *r, const struct gpu_matrix *head,
                     int first, int n)
{
    struct device_session *m = s->device_state;
    size_t d = (size_t)s->e->config.d_model;
    struct gpu_matrix part = *head;
    part.data = (const char *)head->data + (size_t)first * head->row_bytes;
    part.N = head->N - first < TILE ? head->N - first : TILE;
    if (s->e->exact)
        gpu_product_exact(m->gpu, r->logits, TILE, m->buf.normed, d, n, &part);
    else if (!gpu_gemm(m->gpu, r->logits, TILE, m->buf.normed, d, n, &part, 1))
        gpu_product(m->gpu, r->logits, TILE, m->buf.normed, d, n, &part);
    if (s->e->config.logit_cap > 0)
        gpu_soft_cap(m->gpu, r->logits, (size_t)n * TILE, s->e->config.logit_cap);
    gpu_segments(m->gpu, r->logits, TILE, part.N, n, first, r->ids,
                 r->lse + (size_t)(first / VOCAB_SEGMENT) * (size_t)n, (size_t)n, r->target);
}

bool device_likelihood(struct session *s, const float *normed, const int32_t *ids, int n)
{
    struct device_session *m = s->device_state;
    const struct device_weights *w = s->e->device;
    struct room r = {NULL, NULL, NULL, NULL};
    size_t rows = (size_t)n, width = rows * sizeof(float);
    bool room = w->head.n == 1 && make_room(s, &r, rows);
    if (room) {
        gpu_put(m->gpu, m->buf.normed, normed,
                rows * (size_t)s->e->config.d_model * sizeof *normed);
        gpu_put(m->gpu, r.ids, ids, rows * sizeof *ids);
        for (int first = 0; first < w->head.part[0].N; first += TILE)
            run_tile(s, &r, &w->head.part[0], first, n);
        gpu_get_rows(m->gpu, s->nll.lse, (size_t)s->chunk * sizeof *s->nll.lse, r.lse, width, width,
                     (size_t)n_segments(s));
        gpu_get(m->gpu, s->nll.target_logit, r.target, width);
    }
    void *const all[] = {r.logits, r.lse, r.target, r.ids};
    for (int i = 0; i < 4; i++)
        gpu_free(m->gpu, all[i]);
    return room;
}
