/* external.h - scores that another program computes: the messages between score_external.c and a
 * caller of the library.
 *
 * All numbers of a message are 32 bits wide, in the byte order of the machine.
 *
 * A request asks for the scores of the entries of one KV head.  In a method that chooses one set of
 * entries per layer, it is about all KV heads of the layer.  Its parts follow one another:
 *   header      int32 [EXTERNAL_HEADER]  enum external_field
 *   positions   int32 [n]                of the entries, rising; all parts below use this order
 *   candidates  int32 [n]                1: the entry may be evicted; 0: it is protected
 *   queries     int32 [n_rows]           positions of the last queries, rising
 *   keys        f32 [n_kv][n][head_dim]  as they are cached
 *   values      f32 [n_kv][n][head_dim]
 *   attention   f32 [n_rows][n_queries][n]  attention weights of these queries
 * Keys, values and attention are only present if the struct external asks for them.
 *
 * An answer is int32 n, then f32 [n]: a score per entry.  A larger score is worth more. */
#ifndef KVF_ENGINE_EXTERNAL_H
#define KVF_ENGINE_EXTERNAL_H

#include <stddef.h>
#include <stdint.h>

enum external_field {
    EXTERNAL_LAYER,
    EXTERNAL_HEAD,     /* KV head; 0 if the request is about all heads of the layer */
    EXTERNAL_STEP,     /* tokens fed so far, which is the position of the next query */
    EXTERNAL_ENTRIES,  /* n */
    EXTERNAL_KV_HEADS, /* n_kv: 1, or all of the layer */
    EXTERNAL_HEAD_DIM, /* head_dim */
    EXTERNAL_QUERIES,  /* n_queries: query heads that read the KV heads */
    EXTERNAL_ROWS,     /* n_rows: at most the option `window` */
    EXTERNAL_HEADER
};

enum { /* parts that a request has; bits */
       EXTERNAL_KEYS = 1u << 0,
       EXTERNAL_VALUES = 1u << 1,
       EXTERNAL_ATTENTION = 1u << 2,
};

/* The other program.  Requests come one at a time, ordered by step, layer and head. */
struct external {
    unsigned parts; /* EXTERNAL_KEYS, ... */
    /* Sends a request of n bytes and receives the n_scores scores.  KVF_OK or an error; the callee
     * keeps the sentence of the error. */
    int (*ask)(void *ctx, const void *request, size_t n, float *ret_score, int n_scores);
    void *ctx;
    int err; /* the first error: later requests are not sent.  KVF_OK */
};

#endif
