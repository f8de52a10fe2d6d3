/* evidence.h - what a method remembers of each entry, by slot; private to
 * engine/method/. */
#ifndef KVF_ENGINE_EVIDENCE_H
#define KVF_ENGINE_EVIDENCE_H

#include "engine/method/method.h"
#include "engine/method/pages.h"

struct evidence {
    unsigned kinds; /* EVIDENCE_* */
    struct method_shape shape;
    int window, cap;        /* rows that matter; slots */
    int ring;               /* rows kept: one more, which left the window last */
    double *sum;            /* [L * G][cap]            EVIDENCE_SUM */
    float *rows;            /* [L * G][ring][cap]      EVIDENCE_WINDOW */
    int *n_rows;            /* [L * G] rows ever taken EVIDENCE_WINDOW */
    int32_t *row_t;         /* [L * G][ring] the query of each row */
    int *row_n;             /* [L * G][ring] entries it saw */
    float *row_lse;         /* [L * G][ring] log-sum-exp of its logits */
    int32_t *born;          /* [L * H][cap] position of the entry: rows of earlier queries hold
                               whatever was there before */
    double *recent;         /* [L * H][cap] sums over the window (window.c) */
    int *recent_at;         /* [L * H] rows taken when they were made; -1: never */
    int64_t *spread;        /* [L * G][2][cap] in whole units: sums of the weights, of their
                               squares; with recent_at    EVIDENCE_SPREAD */
    float *keys;            /* [L * H][cap][head_dim]  EVIDENCE_KEYS */
    double *anchor;         /* [L * H][head_dim]       EVIDENCE_ANCHOR */
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
int evidence_reserve(struct evidence *e, int slots); /* KVF_OK, KVF_E_NOMEM */
void evidence_appended(struct evidence *e, const struct cache *c, int layer, int head, int slot,
                       float gate, const float *k_pre);
void evidence_take(struct evidence *e, const struct kernels *k, const struct attn_row *row);
/* Rows ever taken of a query head. */
int evidence_taken(const struct evidence *e, int layer, int query_head);
/* The anchor of a head that holds n entries now. */
const double *evidence_sync_anchor(const struct evidence *e, int layer, int head, int n);
/* For the sums over the window of a KV head, by slot: they follow their entries, and a
 * newcomer's is 0.  *ret_at is whoever fills them to keep. */
double *evidence_recent(const struct evidence *e, int layer, int head, int **ret_at);
/* The same for the sums of a query head's weights and (*ret_square) of their squares. */
int64_t *evidence_spread(const struct evidence *e, int layer, int query_head, int64_t **ret_square);
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
