/* attention.h - what the attention of a chunk and that of one query share; private to
 * engine/decode/. */
#ifndef KVF_ENGINE_ATTENTION_H
#define KVF_ENGINE_ATTENTION_H

#include "engine/decode/session_state.h"

struct attn_job {
    struct session *s;
    int layer, T, pos0;
    int heads_per_task; /* query heads of a task, which share a KV head */
    bool watched;       /* somebody asks for whole rows */
};

/* The queries of one head in [r0, r0 + R), and what they may see. */
struct attn_block {
    int g, h, r0, R; /* query head; KV head of the cache */
    const struct cache_head *view;
    int n_last;                  /* slots that the last row sees */
    int page;                    /* entries per page that is read or not; 0: all are read */
    const unsigned char *chosen; /* [pages] */
    int thread;
};

/* Queries of one head, and what pages of whole numbers are multiplied with. */
struct query_rows {
    const float *q;
    size_t ld;
    struct kv_queries ints; /* in the scratch of the thread; not for other pages */
};

/* At most PAGE_ROWS queries, which stay where they are. */
struct query_rows query_rows(const struct session *s, const float *q, size_t ld, int rows,
                             int thread);
/* The products of queries [r0, r0 + rows) with a page, times the scale of the model. */
void scores_of(const struct session *s, float *out, size_t ld, const struct query_rows *q, int r0,
               int rows, const struct kv_keys *k);
/* Whether rows of the block do not see all that is there, and hides what row r does not see of a
 * page. */
static inline bool hides_some(const struct attn_job *j, const struct attn_block *b)
{
    return b->page || b->view->first_expiry <= j->pos0 + b->r0 + b->R - 1;
}

void hide_in_page(const struct attn_job *j, const struct attn_block *b, int r, int page,
                  float *scores);
/* Before the first page, and after the last: channels [d0, d1) of rows.  sink: of the first row's
 * head, or NULL; `next` floats on lies that of the next row. */
void sums_begin(const struct attn_sums *to, int rows, int d0, int d1);
void sums_end(const struct attn_sums *to, int rows, int d0, int d1, const float *sink, int next);
/* Softmax and watchers of row r of the block (attention_rows.c). */
void finish_row(const struct attn_job *j, const struct attn_block *b, int r, float *row);
/* The values of a page of a head with n entries. */
struct kv_values values_of(const struct session *s, const struct cache_head *view, int page, int n);

/* Whether attend_step gives what the tasks of a chunk would: one query that reads all entries as
 * they lie (attention_step.c). */
bool step_reads_all(const struct attn_job *j);
void attend_step(const struct attn_job *j);

#endif
