/* backend.h - what a session computes with: the processor, or a device behind the same table.
 *
 * The parts of a forward pass that are dear are here, coarse: a branch of a layer at a time.  What
 * is left to the session is the same for every backend: rotations, gates, the cache with its
 * entries and their order, methods, probes.  docs/reference/device.md says where memory lives.
 *
 * Buffers named below are those of struct session (session_state.h).  A function leaves in the
 * memory of the host what it is said to leave there, and keeps elsewhere what only the backend
 * reads: x, att and the weights. */
#ifndef KVF_ENGINE_BACKEND_H
#define KVF_ENGINE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/err.h>

struct layer_run;
struct engine;
struct session;
struct session_options;

/* Runs step i of a block, and the steps behind it that it has one kernel for.  Returns how many
 * steps ran, or an error. */
typedef int (*step_fn)(struct layer_run *r, int i);

enum { RUN_LAYERWISE = 1 }; /* of step and chunk */

struct backend {
    const char *name;      /* "cpu" */
    bool host_memory;      /* it computes in the host's memory, as the CPU does; false: a device */
    const char *precision; /* of what is multiplied, where the engine is not exact */
    int rows;              /* tokens of a prompt that run together where nobody says how many */
    /* What sessions share: the weights, as e->device.  KVF_OK or an error with a sentence.  close
     * accepts an engine that was not opened to its end. */
    int (*open)(struct engine *e, struct kvf_diag *d);
    void (*close)(struct engine *e);
    /* What a session needs beside its buffers, as s->mirror, once these are there. */
    int (*begin)(struct session *s, const struct session_options *opt, struct kvf_diag *d);
    void (*end)(struct session *s);

    /* x = the embeddings of T tokens. */
    void (*embed)(struct session *s, const int32_t *ids, int T);
    /* The functions of the steps of a block, by enum block_op. */
    const step_fn *steps;
    /* All of the above for T tokens of a prompt, whose entries are in the cache then, without the
     * host in between.  KVF_OK, an error, or STEP_ELSEWHERE: these tokens need the functions above.
     * NULL: they always do. */
    int (*prefill)(struct session *s, const int32_t *ids, int T);
    /* Rows first to T - 1 of normed, on the host: x behind the last norm.  KVF_OK or an error. */
    int (*final_norm)(struct session *s, int first, int T);
    /* logits, on the host: those of row 0 of normed, not capped. */
    void (*lm_head)(struct session *s);
    /* Of n rows of normed, on the host: seg_lse, the log-sum-exp of their logits by segments of the
     * vocabulary, and target_logit, that of the words ids (nll.c); false: the processor is to.
     * NULL: it always is. */
    bool (*likelihood)(struct session *s, const float *normed, const int32_t *ids, int n);
    /* A whole step of a session, as session_step, without the host in between.  KVF_OK, an error,
     * or STEP_ELSEWHERE: this step needs the functions above.  NULL: every step does. */
    int (*decode_step)(struct session *s, int32_t id);
    /* The same for n sessions at once, each of which `joins`: their rows run in the room, a session
     * of as many tokens to a chunk, so that each weight is read once for all of them.  Each does
     * exactly what its step does.  KVF_OK, or an error after which they are to be destroyed.  Both
     * NULL: the functions above serve. */
    bool (*can_batch)(const struct session *s);
    int (*decode_batch)(struct session *room, struct session *const *s, int n, const int32_t *ids);
    /* logits of the last step, which have stayed elsewhere where the token was drawn there. */
    void (*logits)(const struct session *s); /* NULL: they are there */
    /* What steps remember elsewhere comes to the method and stays right until the next step. KVF_OK
     * or an error. */
    int (*sync_evidence)(struct session *s);
    /* What went wrong in the functions that return nothing, with a sentence in said of the engine;
     * KVF_OK otherwise. */
    int (*check)(struct session *s);
};

extern const struct backend backend_cpu;
extern const struct backend backend_cuda; /* in a library of its own, with the kernels */

#endif
