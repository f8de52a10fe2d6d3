/* evidence_query.c - the evidence per query head: moments of its queries before RoPE, and the
 * attention of a full-cache run by position. */
#include <string.h>

#include "base/mem.h"
#include "engine/method/evidence.h"

static size_t n_query(const struct evidence *e)
{
    return (size_t)e->shape.n_layers * (size_t)e->shape.n_heads;
}

int evidence_query_init(struct evidence *e)
{
    size_t D = (size_t)e->shape.head_dim;
    if (!(e->kinds & EVIDENCE_MOMENTS))
        return KVF_OK;
    e->n_queries = MEM_NEW(int64_t, (size_t)e->shape.n_layers);
    e->query_sum = MEM_NEW(double, n_query(e) * D);
    e->query_outer = MEM_NEW(double, n_query(e) * D * D);
    return e->n_queries && e->query_sum && e->query_outer ? KVF_OK : KVF_E_NOMEM;
}

void evidence_query_finish(struct evidence *e)
{
    mem_free(e->n_queries);
    mem_free(e->query_sum);
    mem_free(e->query_outer);
    mem_free(e->full_sum);
    mem_free(e->full_row);
}

/* sum += q, outer += q q^T (lower triangle) for one query head. */
static void take_head(struct evidence *e, int layer, int g, const float *q, size_t ld, int n)
{
    enum { MAX_DIM = 1024 };
    double x[MAX_DIM];
    size_t D = (size_t)e->shape.head_dim;
    size_t at = (size_t)layer * (size_t)e->shape.n_heads + (size_t)g;
    double *sum = e->query_sum + at * D, *outer = e->query_outer + at * D * D;
    for (int t = 0; t < n; t++) {
        const float *row = q + (size_t)t * ld + (size_t)g * D;
        for (size_t i = 0; i < D; i++)
            x[i] = (double)row[i];
        for (size_t i = 0; i < D; i++) {
            sum[i] += x[i];
            for (size_t j = 0; j <= i; j++)
                outer[i * D + j] += x[i] * x[j];
        }
    }
}

void evidence_take_queries(struct evidence *e, int layer, int first_head, int n_heads,
                           const float *q, size_t ld, int n)
{
    for (int g = first_head; g < first_head + n_heads; g++)
        take_head(e, layer, g, q, ld, n);
}

void evidence_take_full(struct evidence *e, const struct attn_row *row)
{
    size_t at = ((size_t)row->layer * (size_t)e->shape.n_heads + (size_t)row->head)
                * (size_t)e->cap;
    memcpy(e->full_row + at, row->p, (size_t)row->n * sizeof *row->p);
    for (int i = 0; i < row->n; i++)
        e->full_sum[at + (size_t)i] += (double)row->p[i];
}
