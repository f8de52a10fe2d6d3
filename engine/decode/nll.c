/* nll.c - computes -ln p of given next tokens without [T, vocab] logits.
 *
 * The vocabulary is divided into segments. A task computes one segment's logits for all rows and
 * reduces each row to a log-sum-exp. The results are combined in order. */
#include <math.h>

#include "base/mem.h"
#include "engine/decode/session_state.h"

struct job {
    struct session *s;
    const float *x;
    const int32_t *ids;
    int n;
};

int n_segments(const struct session *s)
{
    return (s->e->weights->head.n_panels * PANEL + VOCAB_SEGMENT - 1) / VOCAB_SEGMENT;
}

int nll_alloc(struct session *s)
{
    size_t C = (size_t)s->chunk, threads = (size_t)par_threads(s->e->pool);
    if (s->nll.segment)
        return KVF_OK;
    s->nll.segment = mem_alloc(threads * C, VOCAB_SEGMENT * sizeof(float));
    s->nll.lse = mem_alloc((size_t)n_segments(s), C * sizeof(float));
    s->nll.target_logit = mem_alloc(1, C * sizeof(float));
    return s->nll.segment && s->nll.lse && s->nll.target_logit ? KVF_OK : KVF_E_NOMEM;
}

void nll_free(struct session *s)
{
    mem_free(s->nll.segment);
    mem_free(s->nll.lse);
    mem_free(s->nll.target_logit);
}

void cap_logits(const struct session *s, float *row, int n)
{
    float cap = s->e->config.logit_cap;
    if (cap > 0)
        s->e->kernels.soft_cap(row, n, cap);
}

int segment_logits(struct session *s, const float *x, int n, int segment, int thread,
                   float **ret_logits)
{
    const struct packed *w = &s->e->weights->head;
    enum { PANELS = VOCAB_SEGMENT / PANEL };
    int p0 = segment * PANELS, left = w->n_panels - p0;
    struct packed part = packed_part(w, p0, left < PANELS ? left : PANELS);
    float *buf = s->nll.segment + (size_t)thread * (size_t)s->chunk * VOCAB_SEGMENT;
    multiply_rows(s, buf, VOCAB_SEGMENT, x, (size_t)w->K, n, &part, 0, part.n_panels);
    for (int t = 0; t < n; t++)
        cap_logits(s, buf + (size_t)t * VOCAB_SEGMENT, part.N);
    *ret_logits = buf;
    return part.N;
}

static void segment_task(void *ctx, int seg, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    float *buf;
    int N = segment_logits(s, j->x, j->n, seg, thread, &buf);
    for (int t = 0; t < j->n; t++) {
        float *row = buf + (size_t)t * VOCAB_SEGMENT;
        int id = j->ids[t] - seg * VOCAB_SEGMENT;
        if (id >= 0 && id < N)
            s->nll.target_logit[t] = row[id];
        s->nll.lse[(size_t)seg * (size_t)s->chunk + (size_t)t] = s->e->kernels.log_sum_exp(row, N);
    }
}

static void quantise_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    int t0 = task * ROWS_PER_TASK, n = j->n - t0 < ROWS_PER_TASK ? j->n - t0 : ROWS_PER_TASK;
    (void)thread;
    size_t d = (size_t)s->e->config.d_model;
    quantise_rows(s, j->x + (size_t)t0 * d, d, t0, n, &s->e->weights->head);
}

void segment_rows(struct session *s, const float *x, int n)
{
    const struct packed *w = &s->e->weights->head;
    struct job j = {s, x, NULL, n};
    set_input_format(s, w);
    if (w->n_blocks)
        par_run(s->e->pool, (n + ROWS_PER_TASK - 1) / ROWS_PER_TASK, quantise_task, &j);
}

bool records_nll(const struct session *s)
{
    return s->compare.compared || recorder_wants(s->observers.recorder) & PROBE_NLL;
}

static void report(struct session *s, int32_t t, float nll)
{
    if (s->compare.compared)
        recorder_full(s->compare.compared->observers.recorder, FULL_NLL, 0, t, nll);
    else
        recorder_nll(s->observers.recorder, t, nll);
}

/* Combines the segments of a row, in order. */
static float row_nll(const struct session *s, int row)
{
    double max = -INFINITY, sum = 0;
    int n_seg = n_segments(s);
    for (int g = 0; g < n_seg; g++)
        max = fmax(max, (double)s->nll.lse[(size_t)g * (size_t)s->chunk + (size_t)row]);
    for (int g = 0; g < n_seg; g++)
        sum += exp((double)s->nll.lse[(size_t)g * (size_t)s->chunk + (size_t)row] - max);
    return (float)(max + log(sum) - (double)s->nll.target_logit[row]);
}

void nll_rows(struct session *s, const float *normed, const int32_t *ids, int n, int32_t t0)
{
    struct job j = {s, normed, ids, n};
    const struct backend *b = s->e->backend;
    if (!b->likelihood || !b->likelihood(s, normed, ids, n)) {
        segment_rows(s, normed, n);
        par_run(s->e->pool, n_segments(s), segment_task, &j);
    }
    for (int t = 0; t < n; t++)
        report(s, t0 + t, row_nll(s, t));
}

void nll_from_segments(struct session *s, int32_t t, const float *lse)
{
    for (int g = 0; g < n_segments(s); g++)
        s->nll.lse[(size_t)g * (size_t)s->chunk] = lse[g];
    s->nll.target_logit[0] = lse[n_segments(s)];
    report(s, t, row_nll(s, 0));
}

void nll_next(struct session *s, int32_t id, int32_t t)
{
    int N = s->e->weights->head.N;
    if (s->compare.no_logits) {
        nll_rows(s, s->buf.normed, &id, 1, t);
        return;
    }
    if (s->e->backend->logits)
        s->e->backend->logits(s);
    for (int g = 0; g < n_segments(s); g++) { /* from existing logits, with the same bits */
        int first = g * VOCAB_SEGMENT, left = N - first;
        s->nll.lse[(size_t)g * (size_t)s->chunk] = s->e->kernels.log_sum_exp(
            s->buf.logits + first, left < VOCAB_SEGMENT ? left : VOCAB_SEGMENT);
    }
    s->nll.target_logit[0] = s->buf.logits[id];
    report(s, t, row_nll(s, 0));
}
