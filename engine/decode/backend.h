/* backend.h - the table of functions that a session runs on: the CPU or a device.
 *
 * The table has the expensive parts of a forward pass in coarse units, one branch of a layer at a
 * time. The session does the rest for every backend: RoPE, gates, the cache with its entries and
 * their order, methods and probes. docs/reference/device.md describes where memory is allocated.
 *
 * Buffers named below are members of structs in session_state.h. A function leaves results in
 * host memory where its comment states it. Data that only the backend reads (x, att and the
 * weights) can be elsewhere. */
#ifndef KVF_ENGINE_BACKEND_H
#define KVF_ENGINE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/err.h>

struct layer_run;
struct engine;
struct session;
struct session_options;

/* Runs step i of a block, together with the following steps if one kernel does them. Returns the
 * number of steps that ran, or an error. */
typedef int (*step_fn)(struct layer_run *r, int i);

enum { RUN_LAYERWISE = 1 }; /* returned by decode_step and prefill */

/* A backend. */
struct backend {
    const char *name;      /* "cpu" */
    bool host_memory;      /* true: computes in host memory, as the CPU does; false: a device */
    const char *precision; /* precision of matrix multiplications if the engine is not exact */
    int rows;              /* default tokens of a prefill chunk */
    /* Loads the data that sessions share, the weights, as e->device. Returns KVF_OK or an error
     * with a message. close accepts an engine from a failed open. */
    int (*open)(struct engine *e, struct kvf_diag *d);
    void (*close)(struct engine *e);
    /* Creates the data of a session other than its buffers, as s->device_state. The buffers exist
     * already. Returns KVF_OK or an error with a message. */
    int (*begin)(struct session *s, const struct session_options *opt, struct kvf_diag *d);
    void (*end)(struct session *s);

    /* x = embeddings of T tokens. */
    void (*embed)(struct session *s, const int32_t *ids, int T);
    /* The functions of the steps of a block, by enum block_op. */
    const step_fn *steps;
    /* Runs all steps above for T tokens of a prompt without a host sync, and adds their entries to
     * the cache. Returns KVF_OK, an error, or RUN_LAYERWISE if these tokens need the functions
     * above. NULL: they always do. */
    int (*prefill)(struct session *s, const int32_t *ids, int T);
    /* Applies the final norm to x: rows first to T - 1 of normed, on the host. Returns KVF_OK or an
     * error. */
    int (*final_norm)(struct session *s, int first, int T);
    /* Computes logits of row 0 of normed, on the host, without the soft cap. */
    void (*lm_head)(struct session *s);
    /* Computes from n rows of `normed`, on the host: nll.lse, the log-sum-exp of their logits by
     * segments of the vocabulary, and nll.target_logit, the logits of the tokens ids (nll.c).
     * Returns false if the CPU must compute them. NULL: it always does. */
    bool (*likelihood)(struct session *s, const float *normed, const int32_t *ids, int n);
    /* Runs a decode step of a session, as session_step, without a host sync. Returns KVF_OK, an
     * error, or RUN_LAYERWISE if this step needs the functions above. NULL: every step does. */
    int (*decode_step)(struct session *s, int32_t id);
    /* Returns true if decode_batch can run the next step of this session. decode_batch runs a step
     * of n such sessions at once, so that each weight is read once for all of them. Their rows are
     * in the buffers of `shared`, a session with a chunk of at least n tokens. Each session gets
     * the result of its own decode_step. Returns KVF_OK, or an error, after which the sessions must
     * be destroyed. Both NULL: the functions above are used. */
    bool (*can_batch)(const struct session *s);
    int (*decode_batch)(struct session *shared, struct session *const *s, int n,
                        const int32_t *ids);
    /* Copies the logits of the last step to the host, if the token was sampled elsewhere. */
    void (*logits)(const struct session *s); /* NULL: they are on the host */
    /* Copies evidence that steps keep elsewhere to the method. It stays current until the next
     * step. Returns KVF_OK or an error. */
    int (*sync_evidence)(struct session *s);
    /* Returns the error of functions without a return value, with a message in e->said; else
     * KVF_OK. */
    int (*check)(struct session *s);
};

extern const struct backend backend_cpu;
extern const struct backend backend_cuda; /* in a library of its own, with the kernels */

#endif
