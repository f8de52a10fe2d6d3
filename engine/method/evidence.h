/* evidence.h - the data that a method stores per cached entry, by slot; private to
 * engine/method/. */
#ifndef KVF_ENGINE_EVIDENCE_H
#define KVF_ENGINE_EVIDENCE_H

#include "engine/method/method_state.h"
#include "engine/method/pages.h"

enum {
    EVIDENCE_ARRAYS = 9, /* maximum of evidence_arrays() */
    EVIDENCE_LEFT = 128, /* evicted slots per head that rows may not have removed yet */
};

/* The state of one row of the ring: it has n weights, in the order of slots after the first n_left
 * evictions of its head.  Later evictions are applied when the row is read (ranks.c). */
struct row_ranks {
    int n_left, n;
};

struct evidence {
    unsigned kinds; /* EVIDENCE_* */
    struct method_shape shape;
    int window, cap;             /* rows of the window; slots per head */
    int ring;                    /* stored rows: window + 1, with the row before the window */
    double *sum;                 /* [L * G][cap]            EVIDENCE_SUM */
    float *rows;                 /* [L * G][ring][cap]      EVIDENCE_WINDOW */
    int *n_rows;                 /* [L * G] rows received so far  EVIDENCE_WINDOW */
    int32_t *row_t;              /* [L * G][ring] position of each row's query */
    int *row_n;                  /* [L * G][ring] entries that the query saw */
    float *row_lse;              /* [L * G][ring] log-sum-exp of its logits */
    struct row_ranks *row_ranks; /* [L * G][ring] */
    int32_t *left;   /* [L * H][EVIDENCE_LEFT] ring of the newest slots that were removed */
    int *n_left;     /* [L * H] slots removed so far */
    int *all_know;   /* [L * H] at least this many of them are removed from all rows */
    int32_t *born;   /* [L * H][cap] position of the entry; in rows of earlier queries its slot
                        has the weight of an older entry */
    double *recent;  /* [L * H][cap] sums over the window (window.c) */
    int *recent_at;  /* [L * H] n_rows when the sums were updated; -1: never */
    int64_t *spread; /* [L * G][2][cap] sums of the weights and of their squares, in whole
                        units; recent_at applies    EVIDENCE_SPREAD */
    float *keys;     /* [L * H][cap][head_dim]  EVIDENCE_KEYS */
    double *anchor;  /* [L * H][head_dim]       EVIDENCE_ANCHOR */
    unsigned char *counted; /* [L * H][cap] 1: the key of the slot is in the anchor */
    int *n_counted;         /* [L * H] slots from this one on are not in the anchor */
    float *norms;           /* [L * H][cap]            EVIDENCE_NORMS */
    float *history;         /* [L * H][cap]            EVIDENCE_HISTORY */
    double *note;           /* [L * H][cap]            EVIDENCE_NOTE */
    float *gate;            /* [L * H][cap]            EVIDENCE_GATE */
    float *values;          /* [L * H][cap] L2 norms   EVIDENCE_VALUES */
    struct pages pages;     /* EVIDENCE_PAGES, EVIDENCE_BLOCKS */
    /* per query head, not per entry */
    int64_t *n_queries;  /* [L]               EVIDENCE_MOMENTS */
    double *query_sum;   /* [L * G][D] */
    double *query_outer; /* [L * G][D][D], the lower triangle */
    double *full_sum;    /* [L * G][cap] by position  EVIDENCE_FULL */
    float *full_row;     /* [L * G][cap] by position */
};

/* Bytes per entry as multiples of g w, g, D, D / p, d / p and 1.  g: query heads, w: rows of the
 * window, D: channels, p: entries in a page, d: length of a block gate's vectors. */
struct evidence_terms {
    double gw, g, D, D_p, d_p, one;
};
struct evidence_terms evidence_terms_of(unsigned kinds);

/* Returns method_state_bytes() of these kinds of evidence. */
double evidence_bytes(unsigned kinds, const struct method_params *p,
                      const struct method_shape *shape, int gate_dim);
/* Initialises the evidence without slots.  KVF_OK or KVF_E_NOMEM. */
int evidence_init(struct evidence *e, unsigned kinds, const struct method_params *p,
                  const struct method_shape *shape, const struct gates *gates);
void evidence_finish(struct evidence *e);
/* Reserves `slots` entries per head and keeps the data of existing entries.  KVF_OK, or KVF_E_NOMEM
 * (the evidence is unchanged). */
int evidence_reserve(struct evidence *e, int slots);
void evidence_appended(struct evidence *e, const struct cache *c, int layer, int head, int slot,
                       float gate, const float *k_pre);
/* Adds one attention row to the sums and to the ring. */
void evidence_take(struct evidence *e, const struct kernels *k, const struct attn_row *row);
/* Returns how many rows of a query head were received so far. */
int evidence_taken(const struct evidence *e, int layer, int query_head);
/* Updates and returns the anchor of a head with n entries. */
const double *evidence_sync_anchor(const struct evidence *e, int layer, int head, int n);
/* Prefetches `bytes` bytes at p. */
void evidence_ask_bytes(const void *p, size_t bytes);
/* Prefetches the evidence that a score of a KV head reads for slots [from, to).  sums: of the
 * window's rows only those that are added to or subtracted from its sums. */
void evidence_ask(const struct evidence *e, int layer, int head, int from, int to, bool sums);
/* Prefetches the descriptions of the rows that are added to or subtracted from the sums of a KV
 * head. */
void evidence_ask_turn(const struct evidence *e, int layer, int head);
/* Returns the array for a KV head's sums over the window, by slot.  The sums move with their
 * entries, and the sum of a new entry is 0.  The caller that fills them also sets **ret_at
 * (recent_at). */
double *evidence_recent(const struct evidence *e, int layer, int head, int **ret_at);
/* Returns the array for the sums of a query head's weights, and in *ret_square the array for the
 * sums of their squares. */
int64_t *evidence_spread(const struct evidence *e, int layer, int query_head, int64_t **ret_square);
/* Lists the arrays by slot of a KV head, without the window's rows and the data of keys and pages.
 * Returns their number.  ret: [EVIDENCE_ARRAYS]. */
struct evidence_array {
    unsigned char *first;
    size_t size, ld; /* bytes of an element, from row to row */
    int rows;
};
int evidence_arrays(const struct evidence *e, int layer, int head, struct evidence_array *ret);
/* Moves the data of keys and pages of one entry, as evidence_move() does for all data. */
void evidence_move_key(struct evidence *e, int layer, int head, int from, int to);

/* Returns the weights of one row of the ring, [cap]. */
static inline float *evidence_ring_row(const struct evidence *e, size_t query, int row)
{
    return e->rows + (query * (size_t)e->ring + (size_t)row) * (size_t)e->cap;
}

/* ranks.c.  Removes the weights of evicted entries from one row, or from all rows, of the query
 * heads of a KV head.  Call it before reading a row.  One caller per head at a time. */
void evidence_close_row(const struct evidence *e, size_t head, int row);
void evidence_close_rows(const struct evidence *e, size_t head);
/* Moves the evidence of a KV head's entry from slot `from` to slot `to`. */
void evidence_move(struct evidence *e, int layer, int head, int from, int to);
/* Keeps the evidence of the slots with keep[slot] != 0 among the n of a KV head, and compacts it in
 * slot order. */
void evidence_keep(struct evidence *e, int layer, int head, const unsigned char *keep, int n);

/* evidence_query.c: the data per query head. */
int evidence_query_init(struct evidence *e);
void evidence_query_finish(struct evidence *e);
void evidence_take_queries(struct evidence *e, int layer, int first_head, int n_heads,
                           const float *q, size_t ld, int n); /* n rows of queries */
void evidence_take_full(struct evidence *e, const struct attn_row *row);

#endif
