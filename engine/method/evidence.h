/* evidence.h - what a method remembers of each entry, by slot; private to
 * engine/method/. */
#ifndef KVF_ENGINE_EVIDENCE_H
#define KVF_ENGINE_EVIDENCE_H

#include "engine/method/method_state.h"
#include "engine/method/pages.h"

enum {
    EVIDENCE_ARRAYS = 9, /* of evidence_arrays */
    EVIDENCE_LEFT = 128, /* slots that rows may still have to lose */
};

/* How far a row of the ring has followed its head: n weights, in the order of slots after so many
 * had left (ranks.c). */
struct row_ranks {
    int n_left, n;
};

struct evidence {
    unsigned kinds; /* EVIDENCE_* */
    struct method_shape shape;
    int window, cap;             /* rows that matter; slots */
    int ring;                    /* rows kept: one more, which left the window last */
    double *sum;                 /* [L * G][cap]            EVIDENCE_SUM */
    float *rows;                 /* [L * G][ring][cap]      EVIDENCE_WINDOW */
    int *n_rows;                 /* [L * G] rows ever taken EVIDENCE_WINDOW */
    int32_t *row_t;              /* [L * G][ring] the query of each row */
    int *row_n;                  /* [L * G][ring] entries it saw */
    float *row_lse;              /* [L * G][ring] log-sum-exp of its logits */
    struct row_ranks *row_ranks; /* [L * G][ring] */
    int32_t *left;   /* [L * H][EVIDENCE_LEFT] the newest slots whose ranks closed, in turn */
    int *n_left;     /* [L * H] how many ever */
    int *all_know;   /* [L * H] so many of them at least no row has still to lose */
    int32_t *born;   /* [L * H][cap] position of the entry: rows of earlier queries hold
                        whatever was there before */
    double *recent;  /* [L * H][cap] sums over the window (window.c) */
    int *recent_at;  /* [L * H] rows taken when they were made; -1: never */
    int64_t *spread; /* [L * G][2][cap] in whole units: sums of the weights, of their
                        squares; with recent_at    EVIDENCE_SPREAD */
    float *keys;     /* [L * H][cap][head_dim]  EVIDENCE_KEYS */
    double *anchor;  /* [L * H][head_dim]       EVIDENCE_ANCHOR */
    unsigned char *counted; /* [L * H][cap] the key of the slot is in the anchor */
    int *n_counted;         /* [L * H] none is from this slot on */
    float *norms;           /* [L * H][cap]            EVIDENCE_NORMS */
    float *history;         /* [L * H][cap]            EVIDENCE_HISTORY */
    double *note;           /* [L * H][cap]            EVIDENCE_NOTE */
    float *gate;            /* [L * H][cap]            EVIDENCE_GATE */
    float *values;          /* [L * H][cap] lengths    EVIDENCE_VALUES */
    struct pages pages;     /* EVIDENCE_PAGES, EVIDENCE_BLOCKS */
    /* of query heads, not of entries */
    int64_t *n_queries;  /* [L]               EVIDENCE_MOMENTS */
    double *query_sum;   /* [L * G][D] */
    double *query_outer; /* [L * G][D][D], the lower triangle */
    double *twin_sum;    /* [L * G][cap] by position  EVIDENCE_TWIN */
    float *twin_row;     /* [L * G][cap] by position */
};

/* Bytes of an entry as multiples of g w, g, D, D / p, d / p and 1: g query heads, w rows of the
 * window, D channels, p entries in a page, d numbers in the vector of a block gate. */
struct evidence_terms {
    double gw, g, D, D_p, d_p, one;
};
struct evidence_terms evidence_terms_of(unsigned kinds);

/* method_state_bytes of these kinds. */
double evidence_bytes(unsigned kinds, const struct method_params *p,
                      const struct method_shape *shape, int gate_dim);
int evidence_init(struct evidence *e, unsigned kinds, const struct method_params *p,
                  const struct method_shape *shape, const struct gates *gates);
void evidence_finish(struct evidence *e);
/* Room for so many entries a head; what is known of those there are stays.  KVF_OK, or KVF_E_NOMEM,
 * and nothing has changed. */
int evidence_reserve(struct evidence *e, int slots);
void evidence_appended(struct evidence *e, const struct cache *c, int layer, int head, int slot,
                       float gate, const float *k_pre);
void evidence_take(struct evidence *e, const struct kernels *k, const struct attn_row *row);
/* Rows ever taken of a query head. */
int evidence_taken(const struct evidence *e, int layer, int query_head);
/* The anchor of a head that holds n entries now. */
const double *evidence_sync_anchor(const struct evidence *e, int layer, int head, int n);
void evidence_ask_bytes(const void *p, size_t bytes); /* soon */
/* Asks for the memory that a score of a KV head reads of the slots [from, to), before it does;
 * `sums`: of the rows of a window those alone that enter and leave its sums. */
void evidence_ask(const struct evidence *e, int layer, int head, int from, int to, bool sums);
/* Asks for what is known of the rows that enter and leave the sums of a KV head. */
void evidence_ask_turn(const struct evidence *e, int layer, int head);
/* For the sums over the window of a KV head, by slot: they follow their entries, and a
 * newcomer's is 0.  *ret_at is whoever fills them to keep. */
double *evidence_recent(const struct evidence *e, int layer, int head, int **ret_at);
/* The same for the sums of a query head's weights and (*ret_square) of their squares. */
int64_t *evidence_spread(const struct evidence *e, int layer, int query_head, int64_t **ret_square);
/* Arrays by slot of a KV head; rows of a window and what belongs to keys are apart.  Returns how
 * many; ret: [EVIDENCE_ARRAYS]. */
struct evidence_array {
    unsigned char *first;
    size_t size, ld; /* bytes of an element, from row to row */
    int rows;
};
int evidence_arrays(const struct evidence *e, int layer, int head, struct evidence_array *ret);
/* As evidence_move, of what belongs to keys alone. */
void evidence_move_key(struct evidence *e, int layer, int head, int from, int to);

static inline float *evidence_ring_row(const struct evidence *e, size_t query, int row)
{
    return e->rows + (query * (size_t)e->ring + (size_t)row) * (size_t)e->cap;
}

/* ranks.c.  A row of the ring, or all of them, of the query heads of a KV head close their ranks:
 * to be called before a row is looked at.  For one caller per head at a time. */
void evidence_close_row(const struct evidence *e, size_t head, int row);
void evidence_close_rows(const struct evidence *e, size_t head);
/* The entry of slot `from` of a KV head now lies in slot `to`. */
void evidence_move(struct evidence *e, int layer, int head, int from, int to);
/* Of the n entries of a KV head those of the slots with keep != 0 stay and close ranks in
 * slot order. */
void evidence_keep(struct evidence *e, int layer, int head, const unsigned char *keep, int n);

/* evidence_query.c: what is kept per query head. */
int evidence_query_init(struct evidence *e);
void evidence_query_finish(struct evidence *e);
void evidence_take_queries(struct evidence *e, int layer, int first_head, int n_heads,
                           const float *q, size_t ld, int n); /* n rows of queries */
void evidence_take_twin(struct evidence *e, const struct attn_row *row);

#endif
