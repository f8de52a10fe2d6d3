/* quality.c - distillation losses on the CPU, by tiles of positions and slices of the
 * vocabulary. */
#include "engine/train/quality.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { SLICE = 1024, PAD = 16 }; /* PAD avoids rows of logits in the same set of the CPU cache */

static int slice_rows(const struct output_matrix *m, int b)
{
    int left = m->vocab - b * m->slice;
    return left < m->slice ? left : m->slice;
}

static int build_slice(const float *w, struct output_matrix *m, int b, float *turned)
{
    int n = slice_rows(m, b);
    const float *from = w + (size_t)b * (size_t)m->slice * (size_t)m->d;
    for (int v = 0; v < n; v++)
        for (int c = 0; c < m->d; c++)
            turned[(size_t)c * (size_t)n + (size_t)v] = from[(size_t)v * (size_t)m->d + (size_t)c];
    struct pack_source src = {turned, WEIGHT_F32, m->d};
    return packed_build(&src, 1, n, PACK_EXACT, &m->back[b]);
}

int output_matrix_build(const float *w, int vocab, int d, struct output_matrix *ret)
{
    *ret = (struct output_matrix){.vocab = vocab, .d = d, .slice = SLICE};
    ret->n_back = (vocab - 1) / SLICE + 1;
    size_t cells;
    float *turned = mem_mul(SLICE, (size_t)d, &cells) ? MEM_NEW(float, cells) : NULL;
    ret->back = MEM_NEW(struct packed, (size_t)ret->n_back);
    struct pack_source src = {w, WEIGHT_F32, vocab};
    int err = KVF_E_NOMEM;
    if (!turned || !ret->back)
        goto fail;
    err = packed_build(&src, 1, d, PACK_EXACT, &ret->logits);
    if (err)
        goto fail;
    for (int b = 0; b < ret->n_back; b++) {
        err = build_slice(w, ret, b, turned);
        if (err)
            goto fail;
    }
    mem_free(turned);
    return KVF_OK;

fail:
    mem_free(turned);
    output_matrix_finish(ret);
    return err;
}

/* Packs W [V, d] and the transposes of its slices. Layout: data[panel][k][16]. */
void output_matrix_fill(const float *w, struct output_matrix *m)
{
    float *to = (float *)(void *)m->logits.data;
    size_t d = (size_t)m->d, slice = (size_t)m->slice;
    for (size_t v = 0; v < (size_t)m->vocab; v++) {
        struct packed *b = &m->back[v / slice];
        float *back = (float *)(void *)b->data;
        for (size_t c = 0; c < d; c++) {
            float x = w[v * d + c];
            to[(v / PANEL * d + c) * PANEL + v % PANEL] = x;
            back[(c / PANEL * (size_t)b->K + v % slice) * PANEL + c % PANEL] = x;
        }
    }
}

void output_matrix_finish(struct output_matrix *m)
{
    packed_finish(&m->logits);
    for (int b = 0; b < m->n_back && m->back; b++)
        packed_finish(&m->back[b]);
    mem_free(m->back);
    memset(m, 0, sizeof *m);
}

/* A loss computation with its buffers. */
struct job {
    const struct quality *q;
    int64_t positions;
    bool kl;
    int n_rows;           /* rows in the tile */
    int at[QUALITY_ROWS]; /* position of each row */
    struct quality_row row[QUALITY_ROWS];
    size_t ld, ld_back, ld_slice; /* floats between rows of logits, of partial and of d_logits */
    float *hidden;        /* [2][ROWS][d] rows of the student, then n_rows rows of the teacher */
    float *logits;        /* [2 * n_rows][ld] in the order of hidden */
    struct kl_part *part; /* [n_back][ROWS] */
    float *partial;       /* [n_back][ROWS][ld_back] contribution of each slice to d_student */
    float *d_logits;      /* [threads][ROWS][ld_slice] */
    float *d_student;
    int first_row; /* first row of the MSE task */
    double mse[QUALITY_ROWS];
};

static void *take(size_t *used, size_t bytes, char *base)
{
    char *at = base ? base + *used : NULL;
    *used += (bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    return at;
}

/* Assigns the buffers in base. Returns their size in bytes; base may be NULL. */
static size_t lay_out(struct job *b, const struct quality *q, int n_threads, void *base)
{
    const struct output_matrix *m = q->out;
    size_t used = 0, slices = (size_t)m->n_back, rows = QUALITY_ROWS;
    b->ld = (size_t)m->logits.n_panels * PANEL + PAD;
    b->ld_back = (size_t)m->back[0].n_panels * PANEL;
    b->ld_slice = (size_t)m->slice + PAD;
    b->hidden = take(&used, 2 * rows * (size_t)m->d * sizeof(float), base);
    b->logits = take(&used, 2 * rows * b->ld * sizeof(float), base);
    b->part = take(&used, slices * rows * sizeof *b->part, base);
    b->partial = take(&used, slices * rows * b->ld_back * sizeof(float), base);
    b->d_logits = take(&used, (size_t)n_threads * rows * b->ld_slice * sizeof(float), base);
    return used;
}

size_t quality_scratch(const struct quality *q, int n_threads)
{
    struct job b;
    return lay_out(&b, q, n_threads, NULL);
}

float quality_colder(const struct quality *q)
{
    return q->temperature > 0 ? (float)(1 / q->temperature) : 1.0f;
}

/* Returns the cap for logits that are divided by the temperature. */
static float cap_of(const struct quality *q)
{
    return q->cap * quality_colder(q);
}

/* Computes logits of one slice of the vocabulary and their part of the sums while they are in the
 * CPU cache. */
static void slice_logits(void *ctx, int slice, int thread)
{
    struct job *b = ctx;
    const struct output_matrix *m = b->q->out;
    int n = slice_rows(m, slice);
    size_t from = (size_t)slice * (size_t)m->slice, teacher = (size_t)b->n_rows * b->ld;
    (void)thread;
    const struct output_matrix *of[] = {m, b->q->teacher_out ? b->q->teacher_out : m};
    for (int i = 0; i < (b->kl ? 2 : 1); i++) {
        size_t at = i ? (size_t)b->n_rows : 0;
        b->q->kernels->matmul_f(b->logits + at * b->ld, b->ld, b->hidden + at * (size_t)m->d,
                                (size_t)m->d, b->n_rows, &of[i]->logits, (int)(from / PANEL),
                                (n - 1) / PANEL + 1);
    }
    for (int r = 0; b->q->cap > 0 && r < (b->kl ? 2 : 1) * b->n_rows; r++)
        b->q->kernels->soft_cap(b->logits + (size_t)r * b->ld + from, n, cap_of(b->q));
    for (int r = 0; r < b->n_rows; r++) {
        const float *s = b->logits + (size_t)r * b->ld + from;
        struct kl_part *part = &b->part[(size_t)slice * QUALITY_ROWS + (size_t)r];
        b->q->kernels->kl_part(part, s, b->kl ? s + teacher : NULL, n);
    }
}

/* Combines the sums of the slices of a row. */
static struct kl_part join_parts(const struct job *b, int row)
{
    int n = b->q->out->n_back;
    const struct kl_part *p = b->part + row;
    struct kl_part all = {.top_s = p->top_s, .top_t = p->top_t};
    for (int i = 1; i < n; i++) {
        all.top_s = fmaxf(all.top_s, p[(size_t)i * QUALITY_ROWS].top_s);
        all.top_t = fmaxf(all.top_t, p[(size_t)i * QUALITY_ROWS].top_t);
    }
    for (int i = 0; i < n; i++, p += QUALITY_ROWS) {
        double ds = (double)p->top_s - (double)all.top_s, es = exp(ds);
        all.sum_s += es * p->sum_s;
        if (!b->kl)
            continue;
        double dt = (double)p->top_t - (double)all.top_t, et = exp(dt);
        all.sum_t += et * p->sum_t;
        all.cross_s += es * (p->cross_s + p->sum_s * (ds - dt));
        all.cross_t += et * (p->cross_t + p->sum_t * (dt - ds));
    }
    return all;
}

/* Replaces -ln p by -min(r A, clip(r) A) / A. Its derivative by -ln p is r, or 0 if r is
 * clipped. */
static void follow_policy(const struct quality *q, struct quality_row *r)
{
    double ratio = exp(-r->term[QUALITY_NTP] - (double)r->sampled);
    double bound = r->share > 0 ? 1 + q->range : 1 - q->range;
    bool held = r->share > 0 ? ratio > bound : ratio < bound;
    r->term[QUALITY_NTP] = held ? -bound : -ratio;
    r->slope = held ? 0 : r->share * ratio;
}

/* Computes the terms of a row and the factors of the gradient by the student's logits:
 *
 *     fwkl: p_s - p_t     ntp: p_s - [token]     rvkl: p_s (ln p_s - ln p_t - rvkl)
 *
 * where ln p = d - ln sum, d = logit - maximum. */
void quality_finish(const struct quality *q, bool kl, const struct kl_part *p, float logit,
                    struct quality_row *r)
{
    const double *w = q->weight;
    double lse = log(p->sum_s), shift = 0, self = w[QUALITY_FWKL] + w[QUALITY_NTP];
    r->term[QUALITY_NTP] = lse + (double)p->top_s - (double)logit;
    r->slope = r->share;
    if (q->sampled)
        follow_policy(q, r);
    const double part_of = r->slope;
    r->coef = (struct kl_coef){.top_s = p->top_s, .top_t = p->top_t};
    if (kl) {
        shift = lse - log(p->sum_t);
        /* A divergence is at least 0; rounding can make it smaller. */
        r->term[QUALITY_FWKL] = fmax(0, p->cross_t / p->sum_t + shift);
        r->term[QUALITY_RVKL] = fmax(0, p->cross_s / p->sum_s - shift);
        self -= w[QUALITY_RVKL] * r->term[QUALITY_RVKL];
        r->coef.reverse = (float)(w[QUALITY_RVKL] * part_of / p->sum_s);
        r->coef.forward = (float)(w[QUALITY_FWKL] * part_of / p->sum_t);
        r->coef.shift = (float)shift;
    }
    r->coef.self = (float)(self * part_of / p->sum_s);
}

static void finish_row(void *ctx, int row, int thread)
{
    struct job *b = ctx;
    struct kl_part p = join_parts(b, row);
    int next = b->q->ids[b->at[row] + 1];
    (void)thread;
    quality_finish(b->q, b->kl, &p, b->logits[(size_t)row * b->ld + (size_t)next], &b->row[row]);
}

/* Computes the gradient by one slice of the logits and its contribution to the gradient by the
 * hidden states. */
static void slice_back(void *ctx, int slice, int thread)
{
    struct job *b = ctx;
    const struct output_matrix *m = b->q->out;
    int n = slice_rows(m, slice), from = slice * m->slice;
    float *d = b->d_logits + (size_t)thread * QUALITY_ROWS * b->ld_slice;
    for (int r = 0; r < b->n_rows; r++) {
        const float *s = b->logits + (size_t)r * b->ld + (size_t)from;
        const float *t = s + (size_t)b->n_rows * b->ld;
        float *row = d + (size_t)r * b->ld_slice;
        int next = b->q->ids[b->at[r] + 1] - from;
        b->q->kernels->kl_back(row, s, b->kl ? t : NULL, n, &b->row[r].coef);
        if (next >= 0 && next < n)
            row[next] -= (float)(b->q->weight[QUALITY_NTP] * b->row[r].slope);
        for (int v = 0; b->q->cap > 0 && v < n; v++)
            row[v] *= 1 - s[v] / cap_of(b->q) * (s[v] / cap_of(b->q));
    }
    if (b->q->d_matrix)
        b->q->kernels->tile_mul(
            &(struct tile_product){.c = b->q->d_matrix + (size_t)from * (size_t)m->d,
                                   .ld_c = (size_t)m->d,
                                   .a = d,
                                   .a_row = 1,
                                   .a_col = b->ld_slice,
                                   .b = b->hidden,
                                   .ld_b = (size_t)m->d,
                                   .m = n,
                                   .n = m->d,
                                   .k = b->n_rows,
                                   .add = true});
    float *to = b->partial + (size_t)slice * QUALITY_ROWS * b->ld_back;
    b->q->kernels->matmul_f(to, b->ld_back, d, b->ld_slice, b->n_rows, &m->back[slice], 0,
                            m->back[slice].n_panels);
}

static void scale(float *x, size_t n, float by)
{
    for (size_t i = 0; by != 1.0f && i < n; i++)
        x[i] *= by;
}

static void add_partials(void *ctx, int row, int thread)
{
    struct job *b = ctx;
    int d = b->q->out->d;
    float *sum = b->partial + (size_t)row * b->ld_back;
    (void)thread;
    for (int i = 1; i < b->q->out->n_back; i++)
        b->q->kernels->add(sum, sum + (size_t)i * QUALITY_ROWS * b->ld_back, d);
    scale(sum, (size_t)d, quality_colder(b->q));
    b->q->kernels->add(b->d_student + (size_t)b->at[row] * (size_t)d, sum, d);
}

bool quality_counts(const struct quality *q, int i)
{
    return i + 1 < q->T && q->first[i + 1] == q->first[i] && (!q->share || q->share[i] != 0);
}

static void put_row(struct job *b, int at)
{
    const float *share = b->q->share;
    b->at[b->n_rows] = at;
    b->row[b->n_rows].sampled = b->q->sampled ? b->q->sampled[at] : 0;
    b->row[b->n_rows++].share = share ? (double)share[at] : 1 / (double)b->positions;
}

/* Gathers the next positions that count, from *at on. */
static void gather(struct job *b, int *at)
{
    const struct quality *q = b->q;
    size_t d = (size_t)q->out->d;
    b->n_rows = 0;
    for (; *at < q->T && b->n_rows < QUALITY_ROWS; ++*at)
        if (quality_counts(q, *at))
            put_row(b, *at);
    for (int r = 0; r < b->n_rows; r++) {
        size_t from = (size_t)b->at[r] * d;
        memcpy(b->hidden + (size_t)r * d, q->student + from, d * sizeof(float));
        if (b->kl)
            memcpy(b->hidden + (size_t)(b->n_rows + r) * d, q->teacher + from, d * sizeof(float));
    }
    scale(b->hidden, (size_t)b->n_rows * (b->kl ? 2 : 1) * d, quality_colder(q));
}

static void logit_terms(struct job *b, double term[QUALITY_TERMS], struct par *pool)
{
    for (int at = 0; gather(b, &at), b->n_rows > 0;) {
        par_run(pool, b->q->out->n_back, slice_logits, b);
        par_run(pool, b->n_rows, finish_row, b);
        par_run(pool, b->q->out->n_back, slice_back, b);
        par_run(pool, b->n_rows, add_partials, b);
        for (int r = 0; r < b->n_rows; r++)
            for (int t = 0; t < QUALITY_MSE; t++)
                term[t] += b->row[r].term[t] * b->row[r].share;
        if (b->q->watch)
            b->q->watch(b->q->watch_ctx, (uint64_t)at, (uint64_t)b->q->T);
    }
}

/* Sets the row of d_student to the gradient of the MSE term. */
static void mse_row(void *ctx, int task, int thread)
{
    struct job *b = ctx;
    const struct quality *q = b->q;
    int d = q->out->d;
    size_t at = (size_t)(b->first_row + task) * (size_t)d;
    double scale = 2 * q->weight[QUALITY_MSE] / ((double)q->T * d), sum = 0;
    float *out = b->d_student + at;
    (void)thread;
    if (q->weight[QUALITY_MSE] == 0) {
        memset(out, 0, (size_t)d * sizeof *out);
        return;
    }
    for (int c = 0; c < d; c++) {
        double diff = (double)q->student[at + (size_t)c] - (double)q->teacher[at + (size_t)c];
        sum += diff * diff;
        out[c] = (float)(scale * diff);
    }
    b->mse[task] = sum;
}

static double mse_term(struct job *b, struct par *pool)
{
    const struct quality *q = b->q;
    double sum = 0;
    for (b->first_row = 0; b->first_row < q->T; b->first_row += QUALITY_ROWS) {
        int n = q->T - b->first_row < QUALITY_ROWS ? q->T - b->first_row : QUALITY_ROWS;
        par_run(pool, n, mse_row, b);
        for (int r = 0; r < n; r++)
            sum += b->mse[r];
    }
    return sum / ((double)q->T * q->out->d);
}

void quality_loss(const struct quality *q, float *d_student, struct quality_result *ret,
                  struct par *pool, void *scratch)
{
    struct job b = {.q = q, .d_student = d_student};
    const double *w = q->weight;
    double term[QUALITY_TERMS] = {0};
    lay_out(&b, q, par_threads(pool), scratch);
    b.kl = w[QUALITY_FWKL] != 0 || w[QUALITY_RVKL] != 0;
    for (int i = 0; i < q->T; i++)
        b.positions += quality_counts(q, i);
    term[QUALITY_MSE] = mse_term(&b, pool);
    if (b.kl || w[QUALITY_NTP] != 0)
        logit_terms(&b, term, pool);
    for (int t = 0; t < QUALITY_TERMS; t++)
        ret->term[t] = w[t] != 0 ? term[t] : (double)NAN;
    ret->positions = b.positions;
}
