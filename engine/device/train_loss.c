/* train_loss.c - the training losses on a device. Kernels compute sums; the host combines them with
 * the formulas of the CPU (capacity.h, quality.h). */
#include "engine/device/train.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* ---- capacity and sparsity of gates ---- */

/* Host buffers: the documents and a number of each of T tokens, and sums of rows. */
struct host_buffers {
    int32_t *first;
    double *weight, *sum;
    int64_t *count;
};

static bool open_here(const struct compute *c, const int32_t *first, int T, int rows,
                      struct host_buffers *ret)
{
    *ret = (struct host_buffers){MEM_NEW(int32_t, (size_t)T), MEM_NEW(double, (size_t)T),
                                 MEM_NEW(double, (size_t)rows), MEM_NEW(int64_t, (size_t)rows)};
    bool good = ret->first && ret->weight && ret->sum && ret->count;
    if (good)
        gpu_get(gpu_of(c), ret->first, first, (size_t)T * sizeof *first);
    else
        ((struct device *)c->device)->full = true;
    return good;
}

static void free_host_buffers(struct host_buffers *h)
{
    mem_free(h->first);
    mem_free(h->weight);
    mem_free(h->sum);
    mem_free(h->count);
}

double device_capacity(const struct compute *c, const struct capacity *s, double weight,
                       float *sums, float *d_log_beta)
{
    struct gpu *g = gpu_of(c);
    size_t T = (size_t)s->T, cells = (size_t)s->heads * T;
    int rows = s->global ? 1 : s->heads;
    double M = s->M * (s->global ? s->heads : 1), all = 0;
    int64_t active = 0;
    double *w = device_hold(c, HELD_WEIGHTS, T, sizeof *w);
    double *sum = device_hold(c, HELD_PARTS, (size_t)rows * 2, sizeof *sum);
    float *d = device_hold(c, HELD_DERIVATIVES, cells, sizeof *d);
    struct host_buffers h = {NULL};
    if (!w || !sum || !d || !open_here(c, s->first, s->T, rows, &h)) {
        free_host_buffers(&h);
        return NAN;
    }
    struct capacity plain = *s;
    plain.first = h.first;
    for (int i = 0; i < s->T; i++)
        h.weight[i] = capacity_weight(&plain, i);
    int64_t *count = (int64_t *)(void *)(sum + rows);
    gpu_put(g, w, h.weight, T * sizeof *w);
    gpu_capacity_sums(g, sums, s->log_beta, s->first, s->heads, s->T);
    gpu_capacity_terms(g, sum, count, sums, w, M, s->heads, s->T, s->global);
    gpu_get(g, h.sum, sum, (size_t)rows * sizeof *sum);
    gpu_get(g, h.count, count, (size_t)rows * sizeof *count);
    for (int i = 0; i < rows; i++) {
        all += h.sum[i];
        active += h.count[i];
    }
    double scale = capacity_scale(s, active);
    gpu_capacity_spread(g, d, sums, w, M, weight * scale, s->heads, s->T, s->global);
    gpu_capacity_back(g, d_log_beta, d, s->log_beta, s->first, s->heads, s->T);
    free_host_buffers(&h);
    return scale * all;
}

double device_sparsity(const struct compute *c, const struct sparsity *s, double weight, float *d_g)
{
    struct gpu *g = gpu_of(c);
    double all = 0, cells = (double)s->heads * s->T;
    double *o = device_hold(c, HELD_WEIGHTS, (size_t)s->T, sizeof *o);
    double *sum = device_hold(c, HELD_PARTS, (size_t)s->heads, sizeof *sum);
    struct host_buffers h = {NULL};
    if (!o || !sum || !open_here(c, s->first, s->T, s->heads, &h)) {
        free_host_buffers(&h);
        return NAN;
    }
    struct sparsity plain = *s;
    plain.first = h.first;
    sparsity_offsets(&plain, h.weight);
    gpu_put(g, o, h.weight, (size_t)s->T * sizeof *o);
    gpu_sparsity(g, sum, d_g, s->g, o, weight / cells, s->heads, s->T);
    gpu_get(g, h.sum, sum, (size_t)s->heads * sizeof *sum);
    for (int i = 0; i < s->heads; i++)
        all += h.sum[i];
    free_host_buffers(&h);
    return all / cells;
}

/* ---- predictions ---- */

enum { ROWS = 256 }; /* positions per tile of logits */

/* The positions of a tile on the host, in the order of the device. */
struct tile {
    int n;
    int32_t at[ROWS], token[ROWS];
    float ntp[ROWS], next[ROWS];
    struct quality_row row[ROWS];
    struct kl_part part[ROWS];
    struct kl_coef coef[ROWS];
};

/* Buffers on the device. */
struct areas {
    float *hidden, *logits, *d_hidden; /* [2][ROWS][d], [2][ROWS][V], [ROWS][d] */
    struct kl_part *part;              /* [ROWS], as the following arrays */
    struct kl_coef *coef;
    int32_t *at, *token;
    float *ntp, *next;
    double *square; /* [T] */
};

static void *take(size_t *used, size_t n, size_t size, char *base)
{
    char *at = base ? base + *used : NULL;
    *used += (n * size + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    return at;
}

static size_t lay_out(struct areas *a, const struct quality *q, void *base)
{
    size_t used = 0, d = (size_t)q->out->d, V = (size_t)q->out->vocab;
    a->hidden = take(&used, 2 * ROWS * d, sizeof *a->hidden, base);
    a->d_hidden = take(&used, ROWS * d, sizeof *a->d_hidden, base);
    a->logits = take(&used, 2 * ROWS * V, sizeof *a->logits, base);
    a->part = take(&used, ROWS, sizeof *a->part, base);
    a->coef = take(&used, ROWS, sizeof *a->coef, base);
    a->at = take(&used, ROWS, sizeof *a->at, base);
    a->token = take(&used, ROWS, sizeof *a->token, base);
    a->ntp = take(&used, ROWS, sizeof *a->ntp, base);
    a->next = take(&used, ROWS, sizeof *a->next, base);
    a->square = take(&used, (size_t)q->T, sizeof *a->square, base);
    return used;
}

size_t device_quality_scratch(const struct compute *c, const struct quality *q)
{
    struct areas a;
    (void)c;
    return lay_out(&a, q, NULL);
}

/* Gathers the next positions that count, from *at on. */
static void gather(struct tile *t, const struct quality *q, int64_t positions, int *at)
{
    for (t->n = 0; *at < q->T && t->n < ROWS; ++*at) {
        if (!quality_counts(q, *at))
            continue;
        double share = q->share ? (double)q->share[*at] : 1 / (double)positions;
        t->at[t->n] = *at;
        t->token[t->n] = q->ids[*at + 1];
        t->row[t->n++] = (struct quality_row){.share = share,
                                              .sampled = q->sampled ? q->sampled[*at] : 0};
    }
}

static struct gpu_multiply by_output(const struct gpu_matrix *w, bool across)
{
    return (struct gpu_multiply){.b = w->data,
                                 .b_type = w->type,
                                 .b_row = across ? (size_t)w->K : 1,
                                 .b_col = across ? 1 : (size_t)w->K,
                                 .n = across ? w->K : w->N,
                                 .k = across ? w->N : w->K,
                                 .a_col = 1};
}

/* Computes the logits of a tile, of the student or the teacher. */
static void make_logits(const struct compute *c, const struct quality *q, const struct tile *t,
                        const struct areas *a, bool teacher)
{
    const struct output_matrix *m = teacher && q->teacher_out ? q->teacher_out : q->out;
    size_t d = (size_t)m->d, V = (size_t)m->vocab, which = teacher ? ROWS : 0;
    struct gpu_multiply p = by_output(m->device, false);
    gpu_gather(gpu_of(c), a->hidden + which * d, teacher ? q->teacher : q->student, a->at, t->n,
               m->d, quality_colder(q));
    p.a = a->hidden + which * d;
    p.a_row = d;
    p.c = a->logits + which * V;
    p.ld_c = V;
    p.m = t->n;
    device_multiply(c, &p);
}

/* Copies the sums of the rows to the host, computes the coefficients of the gradient there, and
 * starts the gradient by logits. */
static void finish_rows(const struct compute *c, const struct quality *q, struct tile *t,
                        const struct areas *a, bool kl)
{
    struct gpu *g = gpu_of(c);
    size_t n = (size_t)t->n, V = (size_t)q->out->vocab;
    const float *teacher = kl ? a->logits + ROWS * V : NULL;
    gpu_put(g, a->token, t->token, n * sizeof *t->token);
    gpu_kl_parts(g, a->part, a->next, a->logits, teacher, V, a->token, t->n, q->out->vocab);
    gpu_get(g, t->part, a->part, n * sizeof *t->part);
    gpu_get(g, t->next, a->next, n * sizeof *t->next);
    for (int i = 0; i < t->n; i++) {
        quality_finish(q, kl, &t->part[i], t->next[i], &t->row[i]);
        t->coef[i] = t->row[i].coef;
        t->ntp[i] = (float)(q->weight[QUALITY_NTP] * t->row[i].slope);
    }
    gpu_put(g, a->ntp, t->ntp, n * sizeof *t->ntp);
    gpu_put(g, a->coef, t->coef, n * sizeof *t->coef);
    gpu_kl_back(g, a->logits, teacher, V, a->coef, a->token, a->ntp, t->n, q->out->vocab);
}

/* Computes the gradient by hidden states from that by logits, and that by the output matrix if it
 * is trained. */
static void tile_back(const struct compute *c, const struct quality *q, const struct tile *t,
                      const struct areas *a, float *d_student)
{
    size_t d = (size_t)q->out->d, V = (size_t)q->out->vocab;
    struct gpu_multiply p = by_output(q->out->device, true);
    p.a = a->logits;
    p.a_row = V;
    p.c = a->d_hidden;
    p.ld_c = d;
    p.m = t->n;
    device_multiply(c, &p);
    gpu_scatter_add(gpu_of(c), d_student, a->d_hidden, a->at, t->n, q->out->d, quality_colder(q));
    if (q->d_matrix)
        ops(c)->weight_grad(c, q->d_matrix, a->logits, V, q->out->vocab, a->hidden, d, q->out->d,
                            t->n);
}

static void logit_terms(const struct compute *c, const struct quality *q, int64_t positions,
                        bool kl, const struct areas *a, float *d_student, double *term)
{
    struct tile *t = MEM_NEW(struct tile, 1);
    if (!t) {
        ((struct device *)c->device)->full = true;
        return;
    }
    for (int at = 0; gather(t, q, positions, &at), t->n > 0;) {
        gpu_put(gpu_of(c), a->at, t->at, (size_t)t->n * sizeof *t->at);
        make_logits(c, q, t, a, false);
        if (kl)
            make_logits(c, q, t, a, true);
        finish_rows(c, q, t, a, kl);
        tile_back(c, q, t, a, d_student);
        for (int i = 0; i < t->n; i++)
            for (int k = 0; k < QUALITY_MSE; k++)
                term[k] += t->row[i].term[k] * t->row[i].share;
    }
    mem_free(t);
}

/* Sets d_student to the gradient of the MSE term, or to 0 without that term. Returns the term. */
static double mse_term(const struct compute *c, const struct quality *q, const struct areas *a,
                       float *d_student)
{
    size_t T = (size_t)q->T, d = (size_t)q->out->d;
    double cells = (double)q->T * q->out->d, sum = 0;
    double *square = MEM_NEW(double, T);
    if (!square || q->weight[QUALITY_MSE] == 0) {
        gpu_zero(gpu_of(c), d_student, T * d * sizeof *d_student);
        mem_free(square);
        return 0;
    }
    gpu_mse(gpu_of(c), a->square, d_student, q->student, q->teacher,
            2 * q->weight[QUALITY_MSE] / cells, q->T, q->out->d);
    gpu_get(gpu_of(c), square, a->square, T * sizeof *square);
    for (int i = 0; i < q->T; i++)
        sum += square[i];
    mem_free(square);
    return sum / cells;
}

void device_quality(const struct compute *c, const struct quality *q, float *d_student,
                    struct quality_result *ret, void *scratch)
{
    const double *w = q->weight;
    bool kl = w[QUALITY_FWKL] != 0 || w[QUALITY_RVKL] != 0;
    double term[QUALITY_TERMS] = {0};
    struct areas a;
    lay_out(&a, q, scratch);
    ret->positions = 0;
    for (int i = 0; i < q->T; i++)
        ret->positions += quality_counts(q, i);
    term[QUALITY_MSE] = mse_term(c, q, &a, d_student);
    if (kl || w[QUALITY_NTP] != 0)
        logit_terms(c, q, ret->positions, kl, &a, d_student, term);
    for (int t = 0; t < QUALITY_TERMS; t++)
        ret->term[t] = w[t] != 0 ? term[t] : (double)NAN;
}
