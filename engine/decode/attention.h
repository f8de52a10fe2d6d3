/* attention.h - shared by attention of a chunk and attention of a single query; private to
 * engine/decode/. */
#ifndef KVF_ENGINE_ATTENTION_H
#define KVF_ENGINE_ATTENTION_H

#include "engine/decode/session_state.h"

/* Attention of T queries from position pos0 on, in one layer. */
struct attn_job {
    struct session *s;
    int layer, T, pos0;
    int heads_per_task; /* query heads per task, which share a KV head */
    bool watched;       /* an observer needs complete rows */
};

/* The queries [r0, r0 + R) of one head, and the entries that they can see. */
struct attn_block {
    int g, h, r0, R; /* query head; KV head of the cache */
    const struct cache_head *view;
    int n_last; /* slots that the last row sees */
    int page;   /* entries per page if queries read a choice of pages; 0: reads all */
    const unsigned char *chosen; /* [pages] */
    int thread;
};

/* Queries of one head, and their integer form for pages of integers. */
struct query_rows {
    const float *q;
    size_t ld;
    struct kv_queries ints; /* in the thread's scratch; unused for other pages */
};

/* Prepares at most PAGE_ROWS queries, which are not copied. */
struct query_rows query_rows(const struct session *s, const float *q, size_t ld, int rows,
                             int thread);
/* Computes the products of queries [r0, r0 + rows) with a page, times the model's scale. */
void scores_of(const struct session *s, float *out, size_t ld, const struct query_rows *q, int r0,
               int rows, const struct kv_keys *k);
/* Returns true if some row of the block does not see all entries. */
static inline bool hides_some(const struct attn_job *j, const struct attn_block *b)
{
    return b->page || b->view->first_expiry <= j->pos0 + b->r0 + b->R - 1;
}

/* Masks the scores of entries of a page that row r does not see. */
void hide_in_page(const struct attn_job *j, const struct attn_block *b, int r, int page,
                  float *scores);
/* Call these before the first page and after the last page, for channels [d0, d1) of rows. sink:
 * the sink of the first row's head, or NULL. The sink of the next row is `next` floats after it. */
void sums_begin(const struct attn_sums *to, int rows, int d0, int d1);
void sums_end(const struct attn_sums *to, int rows, int d0, int d1, const float *sink, int next);
/* Applies the softmax to row r of the block and notifies its observers (attention_rows.c). */
void finish_row(const struct attn_job *j, const struct attn_block *b, int r, float *row);
/* Returns the values of a page of a head with n entries. */
struct kv_values values_of(const struct session *s, const struct cache_head *view, int page, int n);

/* Returns true if attend_step gives the result of the tasks of a chunk: one query that reads all
 * entries as stored (attention_step.c). */
bool step_reads_all(const struct attn_job *j);
/* Runs attention of a single query. */
void attend_step(const struct attn_job *j);

#endif
