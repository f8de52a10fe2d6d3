/* saliency_table.c - makes the tables of `kvfate ablate --as saliency`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "engine/experiment/saliency.h"

void saliency_finish(struct saliency *s)
{
    mem_free(s->value);
    mem_free(s->head);
    s->value = NULL;
    s->head = NULL;
}

void saliency_select(struct saliency *s, const unsigned char *take)
{
    size_t T = (size_t)s->T;
    int n = 0;
    for (int k = 0; k < s->n; k++) {
        if (!take[s->head[k]])
            continue;
        memmove(s->value + (size_t)n * T, s->value + (size_t)k * T, T * sizeof *s->value);
        s->head[n++] = s->head[k];
    }
    s->n = n;
}

/* Adds the columns head, layer and index, with a block of rows per head. */
static int add_heads(struct table *t, const struct saliency *s)
{
    int n = s->n;
    char(*text)[32] = mem_alloc((size_t)n, sizeof *text);
    const char **name = MEM_NEW(const char *, (size_t)n);
    int64_t *layer = MEM_NEW(int64_t, (size_t)n), *index = MEM_NEW(int64_t, (size_t)n);
    int err = KVF_E_NOMEM;
    if (!text || !name || !layer || !index)
        goto done;
    for (int i = 0; i < n; i++) {
        layer[i] = s->head[i] / s->H;
        index[i] = s->head[i] % s->H;
        snprintf(text[i], sizeof text[i], "L%dK%d", (int)layer[i], (int)index[i]);
        name[i] = text[i];
    }
    table_block_str(t, "head", "", name, n);
    table_block_int(t, "layer", "", layer, n);
    table_block_int(t, "index", "", index, n);
    err = KVF_OK;

done:
    mem_free(text);
    mem_free(name);
    mem_free(layer);
    mem_free(index);
    return err;
}

struct place {
    float size; /* |saliency| */
    int at;
};

/* Sorts by decreasing size; ties by decreasing position. */
static int by_size(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size) - (x->size > y->size) : y->at - x->at;
}

/* Sets rank [n][T] to the rank of |saliency| within the head, 1 = largest. */
static int rank_all(const struct saliency *s, int64_t *rank)
{
    struct place *p = MEM_NEW(struct place, (size_t)s->T);
    if (!p)
        return KVF_E_NOMEM;
    for (int head = 0; head < s->n; head++) {
        size_t at = (size_t)head * (size_t)s->T;
        for (int i = 0; i < s->T; i++)
            p[i] = (struct place){fabsf(s->value[at + (size_t)i]), i};
        qsort(p, (size_t)s->T, sizeof *p, by_size);
        for (int i = 0; i < s->T; i++)
            rank[at + (size_t)p[i].at] = i + 1;
    }
    mem_free(p);
    return KVF_OK;
}

/* Returns the number of predicting queries that see entry i outside the window. */
static int queries_of(const struct saliency *s, int i)
{
    int first = i + s->window > s->from ? i + s->window : s->from, last = s->T - 1;
    return first < last ? last - first : 0;
}

/* Copies saliencies to v as doubles, and to `each` divided by the number of queries that the
 * weight affects (NaN for 0). Both are [n][T]. */
static void fill_values(const struct saliency *s, double *v, double *each)
{
    size_t n = (size_t)s->n * (size_t)s->T;
    for (size_t k = 0; k < n; k++) {
        int queries = queries_of(s, (int)(k % (size_t)s->T));
        v[k] = (double)s->value[k];
        each[k] = queries ? v[k] / queries : NAN;
    }
}

/* Adds the column evict_step; -1 for entries that are not evicted, as in the table of evictions. */
static void add_evictions(struct table *t, const double *step, size_t n, int64_t *whole)
{
    for (size_t k = 0; k < n; k++)
        whole[k] = isfinite(step[k]) ? (int64_t)step[k] : -1;
    table_dense_int(t, "evict_step", "step", whole);
}

struct table *saliency_table(const struct saliency *s, const struct saliency_run *run)
{
    size_t n = (size_t)s->n * (size_t)s->T;
    struct table *t = table_create("saliency", (int64_t)n);
    double *real = mem_alloc(n, 2 * sizeof *real);
    int64_t *whole = MEM_NEW(int64_t, n);
    int err = t && real && whole ? rank_all(s, whole) : KVF_E_NOMEM;
    if (err)
        goto done;
    err = add_heads(t, s);
    if (err)
        goto done;
    fill_values(s, real, real + n);
    table_affine(t, "token", "", 0, 1, s->T);
    table_affine(t, "birth", "step", 0, 1, s->T);
    table_dense_real(t, "saliency", "nat", real);
    table_dense_int(t, "abs_rank", "", whole);
    table_dense_real(t, "per_query", "nat", real + n);
    if (run->log_beta)
        table_dense_real(t, "log_beta", "", run->log_beta);
    if (run->evict_step)
        add_evictions(t, run->evict_step, n, whole);

done:
    mem_free(real);
    mem_free(whole);
    return table_made(t, err);
}

/* Sums over one head, and its largest entry. */
struct head {
    /* size: sum of |saliency|; positive: fraction of size with positive saliency */
    double sum, size, positive;
    int top;
};

static struct head head_of(const struct saliency *s, int head)
{
    const float *v = s->value + (size_t)head * (size_t)s->T;
    struct sum sum = {0, 0}, size = {0, 0}, up = {0, 0};
    int top = 0;
    for (int i = 0; i < s->T; i++) {
        double x = (double)v[i];
        sum_add(&sum, x);
        sum_add(&size, fabs(x));
        sum_add(&up, x > 0 ? x : 0);
        top = fabsf(v[i]) >= fabsf(v[top]) ? i : top;
    }
    double all = sum_get(&size);
    return (struct head){sum_get(&sum), all, all > 0 ? sum_get(&up) / all : NAN, top};
}

static void add_rhos(struct table *t, const char *pre, const char *name,
                     const struct saliency_rho *r, int n, double *v)
{
    char key[64];
    const char *const end[] = {"", "_low", "_high"};
    for (int c = 0; r && c < 3; c++) {
        for (int i = 0; i < n; i++)
            v[i] = (const double[]){r[i].rho, r[i].low, r[i].high}[c];
        snprintf(key, sizeof key, "%s_%s%s", pre, name, end[c]);
        table_dense_real(t, key, "", v);
    }
}

struct table *saliency_table_heads(const struct saliency *s, const struct saliency_rho *beta,
                                   const struct saliency_rho *evict)
{
    int n = s->n;
    struct table *t = table_create("saliency-heads", n);
    double *v = mem_alloc((size_t)n, 3 * sizeof *v);
    int64_t *top = MEM_NEW(int64_t, (size_t)n);
    int err = t && v && top ? add_heads(t, s) : KVF_E_NOMEM;
    if (err)
        goto done;
    for (int i = 0; i < n; i++) {
        struct head h = head_of(s, i);
        v[i] = h.sum;
        v[n + i] = h.size;
        v[2 * n + i] = h.positive;
        top[i] = h.top;
    }
    table_dense_real(t, "sum", "nat", v);
    table_dense_real(t, "abs_sum", "nat", v + n);
    table_dense_real(t, "positive", "", v + 2 * (size_t)n);
    table_dense_int(t, "top_token", "", top);
    for (int side = 0; side < SALIENCY_SIDES; side++) {
        const char *pre = side == SALIENCY_SIZE ? "abs_rho" : "rho";
        add_rhos(t, pre, "log_beta", beta ? beta + side * n : NULL, n, v);
        add_rhos(t, pre, "evict_step", evict ? evict + side * n : NULL, n, v);
    }

done:
    mem_free(v);
    mem_free(top);
    return table_made(t, err);
}
