/* evidence.h - what a method remembers of each entry, by slot; private to
 * engine/method/. */
#ifndef KVF_ENGINE_EVIDENCE_H
#define KVF_ENGINE_EVIDENCE_H

#include "engine/method/method.h"

struct evidence {
    unsigned kinds;   /* EVIDENCE_* */
    struct method_shape shape;
    int window, cap;  /* rows of a ring; slots */
    double *sum;      /* [L * G][cap]            EVIDENCE_SUM */
    float *rows;      /* [L * G][window][cap]    EVIDENCE_WINDOW */
    int *n_rows;      /* [L * G] rows ever taken EVIDENCE_WINDOW */
    int32_t *row_t;   /* [L * G][window] the query of each row */
    int *row_n;       /* [L * G][window] entries it saw */
    float *keys;      /* [L * H][cap][head_dim]  EVIDENCE_KEYS */
    float *norms;     /* [L * H][cap]            EVIDENCE_NORMS */
    float *history;   /* [L * H][cap]            EVIDENCE_HISTORY */
};

int evidence_init(struct evidence *e, unsigned kinds, int window,
                  const struct method_shape *shape);
void evidence_finish(struct evidence *e);
int evidence_reserve(struct evidence *e, int slots); /* KVF_OK, KVF_E_NOMEM */
void evidence_appended(struct evidence *e, const struct cache *c, int layer, int head, int slot);
void evidence_take(struct evidence *e, const struct attn_row *row);
/* The entry of slot `from` of a KV head now lies in slot `to`. */
void evidence_move(struct evidence *e, int layer, int head, int from, int to);

#endif
