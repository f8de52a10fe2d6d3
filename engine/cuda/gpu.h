/* gpu.h - the kernels of a CUDA device, as the rest of the engine uses them.
 *
 * This header uses no type of CUDA, and no other folder includes a header of CUDA. A struct gpu is
 * one device with one stream. Every function below puts work on that stream and returns at once,
 * unless its comment mentions a wait. gpu_alloc returns pointers to device memory, which the
 * host never dereferences. All pointer arguments refer to device memory unless a comment mentions
 * host memory.
 *
 * The contract of kernels.h applies here too: THE RESULT OF A ROW DEPENDS ONLY ON THAT ROW. An
 * "exact" function sums in the order of the C reference (kernels_ref.c), one fused multiply-add per
 * step. Its result has the same bits, except for exp, which can differ in the last place. Other
 * functions are within 1e-5 of the reference, relative to the largest value of a row. gpu_gemm and
 * gpu_attend_prompt state their own bounds.
 *
 * The device keeps errors of launches. gpu_wait reports them once. */
#ifndef KVF_ENGINE_CUDA_GPU_H
#define KVF_ENGINE_CUDA_GPU_H

#include "engine/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu;

/* Returns the number of devices. 0: no device can be used, and d states the reason. */
int gpu_count(struct kvf_diag *d);
/* Sets the newest CUDA version that the driver supports and the version that built the kernels;
 * 13000 is 13.0. Driver 0: no driver. */
void gpu_versions(int *ret_driver, int *ret_built);

/* Properties of a device. */
struct gpu_facts {
    char name[256];
    size_t memory, free; /* bytes */
    int major, minor;    /* compute capability */
};
/* Reads the properties of a device. Returns KVF_OK, or KVF_E_ARG (no such device) or KVF_E_BACKEND
 * with a message. After KVF_E_BACKEND the device cannot be used and *ret_facts contains the known
 * properties. */
int gpu_look(int which, struct gpu_facts *ret_facts, struct kvf_diag *d);

/* Opens a device. Returns KVF_OK, an error of gpu_look or KVF_E_NOMEM, with a message. */
int gpu_open(int which, struct gpu **ret_gpu, struct kvf_diag *d);
void gpu_close(struct gpu *g); /* accepts NULL */
/* Waits until all work is done. Returns KVF_OK, or KVF_E_BACKEND with the error text of CUDA. */
int gpu_wait(struct gpu *g, struct kvf_diag *d);
long gpu_waits(const struct gpu *g); /* number of calls of gpu_wait */
/* Reports a failed allocation: KVF_E_NOMEM with the given message. If the device has failed, which
 * also makes allocations fail, it reports the error of gpu_wait instead. */
int gpu_no_room(struct gpu *g, struct kvf_diag *d, const char *fmt, ...) KVF_PRINTF(3, 4);

/* Allocates n * size bytes, aligned to at least 16; NULL if there is not enough memory. */
void *gpu_alloc(struct gpu *g, size_t n, size_t size);
void gpu_free(struct gpu *g, void *p);                                     /* accepts NULL */
void gpu_put(struct gpu *g, void *device, const void *host, size_t bytes); /* host to device */
/* device to host; waits */
void gpu_get(struct gpu *g, void *host, const void *device, size_t bytes);
void gpu_copy(struct gpu *g, void *to, const void *from, size_t bytes); /* within the device */
/* Sets device memory to 0. */
void gpu_zero(struct gpu *g, void *device, size_t bytes);
/* Copy n rows of `bytes` bytes at strides of ld_device and ld_host bytes; gpu_get_rows waits. */
void gpu_put_rows(struct gpu *g, void *device, size_t ld_device, const void *host, size_t ld_host,
                  size_t bytes, size_t n);
void gpu_get_rows(struct gpu *g, void *host, size_t ld_host, const void *device, size_t ld_device,
                  size_t bytes, size_t n);
/* Allocates pinned host memory, which the device can access directly; NULL if there is not enough.
 * Before gpu_wait, the caller must not change data that gpu_put and gpu_send read from it. Data
 * that gpu_fetch copies into it are valid only after gpu_wait. */
void *gpu_pin(struct gpu *g, size_t n, size_t size);
void gpu_unpin(struct gpu *g, void *p); /* accepts NULL */
void gpu_fetch(struct gpu *g, void *pinned, const void *device, size_t bytes);
void gpu_send(struct gpu *g, void *device, const void *pinned, size_t bytes); /* pinned to device */
/* Several short copies in one launch. The kernel reads pinned memory directly. Lengths are
 * multiples of 4 bytes. gpu_part adds a copy if there is space for it. */
enum { GPU_MAX_PARTS = 48 };
struct gpu_parts {
    int n;
    void *to[GPU_MAX_PARTS];
    const void *from[GPU_MAX_PARTS];
    size_t bytes[GPU_MAX_PARTS];
};
void gpu_part(struct gpu_parts *p, void *device, const void *pinned, size_t bytes);
void gpu_send_parts(struct gpu *g, const struct gpu_parts *p);
void gpu_fetch_rows(struct gpu *g, void *pinned, size_t ld_pinned, const void *device,
                    size_t ld_device, size_t bytes, size_t n);
/* Pins host memory, as gpu_pin does, until gpu_leave, which waits. If pinning fails, only speed is
 * lost: copies into this memory are then synchronous. */
void gpu_take(struct gpu *g, void *host, size_t bytes);
void gpu_leave(struct gpu *g, void *host);

/* Copy-backs: copies to host that overlap with later work on the stream.
 *
 * Copy-back i (begin, add, end) copies device data into pinned memory as soon as the work that was
 * on the stream at begin is done. gpu_parcel_wait waits only for copy-back i; false means that the
 * device failed and gpu_wait reports the reason. The source must not change until then. Copy-backs
 * run in the order in which they begin. Work after gpu_parcels_join(i) runs after copy-back i and
 * all earlier ones, so that gpu_wait waits for them, too. gpu_parcels_open must be called first and
 * can be called again; it returns false if there is not enough memory. */
enum { GPU_PARCELS = 4 };
bool gpu_parcels_open(struct gpu *g);
void gpu_copyback_begin(struct gpu *g, int i);
void gpu_parcel_add(struct gpu *g, void *pinned, const void *device, size_t bytes);
void gpu_parcel_end(struct gpu *g, int i);
bool gpu_parcel_wait(struct gpu *g, int i);
void gpu_parcels_join(struct gpu *g, int i);

/* A graph: work that is repeated in the same shape.
 *
 * Between begin and end, work is recorded in the graph instead of put on the stream: launches,
 * copies within the device, gpu_fetch and gpu_send. At the end the graph is launched. Work of the
 * same shape as the last time needs one call of the driver. Its arguments may differ; they are
 * updated first. Any other request in between stops the recording: all work is then put on the
 * stream directly, as it does when the shape is new. *graph is NULL at first. Only one graph can be
 * recorded at a time. */
struct gpu_graph;
void gpu_graph_begin(struct gpu *g, struct gpu_graph **graph);
void gpu_graph_end(struct gpu *g);
/* Assigns the following work of a recorded graph to branch i >= 0. Different branches are
 * independent and can run concurrently, after all work that preceded the first of them. Branch
 * numbers that are equal modulo GPU_BRANCHES are the same branch. -1: the following work runs after
 * all branches. Without a graph, work runs in order. */
enum { GPU_BRANCHES = 16 };
void gpu_branch(struct gpu *g, int i);
/* true: the following work is a side chain of its branch or of the trunk. It runs after the work
 * that preceded it there, and in order with other work of the same side chain. Only the end of the
 * graph waits for it. Equal branches have one side chain. false: the following work belongs to the
 * branch again. */
void gpu_low_priority(struct gpu *g, bool aside);
/* gpu_mark sets mark i after all work put on the stream so far, including branches and side chains.
 * It does not wait. gpu_marked waits for the newest mark i; data that gpu_fetch copied before it
 * are then valid. false: the device failed, and gpu_wait reports the reason. */
enum { GPU_MARKS = 2 };
void gpu_mark(struct gpu *g, int i);
bool gpu_marked(struct gpu *g, int i);
void gpu_graph_free(struct gpu *g, struct gpu_graph *graph); /* waits; accepts NULL */
/* Statistics of a graph. nodes: nodes of the last recording. built: graphs built. updated: nodes
 * with new arguments. replayed: graph launches. The other counters are runs that went to the stream
 * call by call: shapes, because the shape was new; refused, because the driver failed to build or
 * update the graph; broken, because another request intervened. Normally refused is 0 and `built`
 * does not exceed the number of different shapes. */
struct gpu_graph_facts {
    long nodes, built, updated, replayed, shapes, refused, broken;
};
struct gpu_graph_facts gpu_graph_look(const struct gpu_graph *graph); /* NULL: zeros */

/* A matrix [N][K] in the file's format: rows of complete blocks, one after another. */
struct gpu_matrix {
    const void *data;
    enum weight_type type; /* see gpu_reads */
    int N, K;
    size_t row_bytes;
};

/* Returns true if the kernels support the type: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K. */
bool gpu_reads(enum weight_type type);

/* x[t] = scale * row ids[t] of the table, dequantised. ids: [T] */
void gpu_embed(struct gpu *g, float *x, const struct gpu_matrix *table, const int32_t *ids, int T,
               float scale);
/* RMS norm as in kernels.h of n adjacent vectors of C channels (heads, or one full row) in each of
 * T rows. Rows of x and out are ld floats apart; out may be x. */
void gpu_rmsnorm(struct gpu *g, float *out, const float *x, size_t ld, const float *w, int T, int n,
                 int C, float eps);
/* Applies RoPE to the first n_rot channels of n_heads heads of T tokens, rows ld apart. cos_sin:
 * [T][n_rot/2][2], as in kernels.h for each token. */
void gpu_rope(struct gpu *g, float *x, size_t ld, const float *cos_sin, int T, int n_heads, int D,
              int n_rot);
/* out[t][i] = act(x[t][i]) * x[t][n + i], i < n; rows of x are ld apart, rows of out n. */
void gpu_gated(struct gpu *g, float *out, const float *x, size_t ld, int T, int n, bool gelu);
/* x += scale * y, with two roundings. */
void gpu_add(struct gpu *g, float *x, const float *y, size_t n, float scale);
/* x[t] += row for T rows of n, ld apart. */
void gpu_add_row(struct gpu *g, float *x, size_t ld, const float *row, int T, int n);
/* x = cap tanh(x / cap) */
void gpu_soft_cap(struct gpu *g, float *x, size_t n, float cap);

/* out[t][0..N) = W x[t]. gpu_product divides each row of W between lanes and is made for few rows
 * of x; it processes T in groups of 8. gpu_product_exact is exact. */
void gpu_product(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                 const struct gpu_matrix *w);
void gpu_product_exact(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                       const struct gpu_matrix *w);

/* The last operation of gpu_dense. gpu_dense is gpu_product with a preceding norm and a following
 * operation, in one launch if all parts of W have one type. The parts are stacked by rows. The bits
 * of a row do not depend on T. */
enum gpu_end {
    GPU_PUT,
    GPU_ADD,  /* out += scale * W x */
    GPU_GATED /* out[i] = act((W x)[i]) * (W x)[N/2 + i], i < N/2; requires gpu_dense_gates */
};
/* Arguments of gpu_dense: n parts of W, an optional norm, and the last operation with its scale or
 * activation. */
struct gpu_dense {
    struct gpu_matrix part[3];
    int n;
    /* [K] norm weights. NULL: x is used unchanged. Otherwise the input is rmsnorm(x, norm, eps),
     * with sums of squares in f32. */
    const float *norm;
    /* [T][K] receives the normed input. NULL, as without norm: not stored. */
    float *normed;
    float eps;
    enum gpu_end end;
    float scale;
    bool gelu; /* activation gelu; false: silu */
};
void gpu_dense(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
               const struct gpu_dense *how);
/* Returns true if gpu_dense supports GPU_GATED for these parts. */
bool gpu_dense_gates(const struct gpu_matrix *part, int n);

/* Matrix multiplication with cuBLAS, for the prefill, for n matrices of one K; their outputs are
 * adjacent in out. f32 weights: products and sums in f32. Other types: W and x rounded to bf16,
 * sums in f32, within 2^-8 of the sum of |W x|. Rows run in groups of GPU_GEMM_ROWS, padded with
 * zeros, so that a row does not depend on their number. Hence out must have space for T rounded up
 * to GPU_GEMM_ROWS; rows from T on are undefined. false: cuBLAS or memory for its tiles is missing,
 * and no work was done. */
enum { GPU_GEMM_ROWS = 512 };
bool gpu_gemm(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
              const struct gpu_matrix *part, int n);

/* Maximum head dimension of the attention kernels for inference and training. */
enum { GPU_MAX_CHANNELS = 256 };

/* The cached entries of one layer. Page p of head h is page table[h * ld_table + p] of the pool:
 * keys [D][PAGE_SLOTS], then values [PAGE_SLOTS][D], as in kernels.h. */
struct gpu_cache {
    void *pool;
    enum kv_type type;
    int heads, D;
    int most;             /* upper bound on the entries of a head, known to the host */
    const int32_t *table; /* [heads][ld_table] */
    const int32_t *n;     /* [heads] number of entries */
    /* [heads][ld_slot] as in cache.h. In attention, until may be NULL (no entry expires) and pos is
     * read only with log_beta. */
    int32_t *pos, *until;
    const int32_t *firm; /* [heads] leading slots with until INT32_MAX; NULL: unknown */
    int ld_table, ld_slot;
};

/* Stores entry t of each head, for T tokens, into slot first[h] + t with position pos0 + t. Keys
 * are at k + t * ld + h * D, values at v + t * ld + h * D. until: [T][heads]; NULL: no entry
 * expires. pos0 -1: positions are already set. */
void gpu_append(struct gpu *g, const struct gpu_cache *c, const float *k, const float *v, size_t ld,
                const int32_t *first, int T, int pos0, const int32_t *until);

/* Copies the pages with slots first[h] .. first[h] + T - 1 of each head unchanged into out
 * [heads][n_pages]. n_pages is at least the largest number of such pages of a head. */
void gpu_gather_pages(struct gpu *g, const struct gpu_cache *c, const int32_t *first, int T,
                      int n_pages, void *out);
/* Copies n adjacent pages into the pool: page i becomes page where[i]. Both arrays are in pinned
 * memory, which the device reads directly. They must not change before gpu_wait. */
void gpu_pages_in(struct gpu *g, void *pool, size_t page_bytes, const int32_t *where,
                  const void *pages, int n);

/* Sets until of the entries in slots firm[h] .. first[h] - 1 of each head from from
 * [heads][ld_slot], which is pinned host memory of gpu_pin. */
void gpu_put_until(struct gpu *g, const struct gpu_cache *c, const int32_t *from,
                   const int32_t *first);

/* Builds pages of a pool from entries of other pages. jobs: [n][1 + PAGE_SLOTS]: the target page,
 * then for each of its slots the source slot, counted through all pages. Page -1: no job. Slot -1:
 * no entry. No target page may be a source. */
void gpu_join_entries(struct gpu *g, void *pool, enum kv_type type, int D, const int32_t *jobs,
                      int n);

/* Ranks in the cache. Keys and queries are rotated by rank in heads that store unrotated keys. */
struct gpu_ranks {
    /* [heads][ld_slot] rank of the entry in each slot, 0 for the oldest. After the last entry: any
     * rank within cos_sin. */
    const int32_t *rank;
    const float *cos_sin; /* as for gpu_rope, per rank; NULL: no RoPE */
    int n_rot;
    float *pages; /* [heads][ld_table] f32 pages, two halves of D * PAGE_SLOTS each */
};
/* gpu_turn_keys copies the pages of a cache of unrotated keys to r->pages, with rotated keys and
 * unchanged values. gpu_turn_queries rotates T queries [T][ld] of n_heads heads in place. They are
 * the newest entries of their heads: query t has rank n[h] - (T - t). */
void gpu_turn_keys(struct gpu *g, const struct gpu_cache *c, const struct gpu_ranks *r);
void gpu_turn_queries(struct gpu *g, const struct gpu_cache *c, const struct gpu_ranks *r, float *q,
                      size_t ld, int n_heads, int T);

/* T tokens between the projections of a layer and its attention. */
struct gpu_new_entries {
    float *qkv;        /* [T][ld] n_heads queries, then keys and values of the cache's heads */
    const float *from; /* [T][ld] input; NULL: qkv is the input */
    size_t ld;
    int T, n_heads, n_rot;
    const float *q_norm, *k_norm; /* [D] norm weights; NULL: no norm */
    float eps;
    const float *cos_sin; /* [T] as for gpu_rope; NULL: no RoPE */
    float *unturned;      /* [T] out: normed queries and keys before RoPE, or NULL */
    size_t ld_unturned;
    const int32_t *slot;  /* [heads] slot of the first token; the others follow */
    const int32_t *until; /* [T][heads]; NULL: no entry expires */
};
/* Applies gpu_rmsnorm to each head of queries and keys (at most GPU_MAX_CHANNELS channels),
 * gpu_rope to both, and gpu_append with positions already set. It is one launch, with the same bits
 * in qkv and in the cache. Handles n sequences that differ only in pointers and lengths,
 * GPU_TOGETHER of them per launch. */
enum { GPU_TOGETHER = 8 };
void gpu_norm_rope_store(struct gpu *g, const struct gpu_cache *c, const struct gpu_new_entries *x,
                         int n);

/* T queries at positions pos0, pos0 + 1, ..., which are the newest T entries of every head. Query r
 * sees the slots below n[h] - (T - 1 - r) with until > pos0 + r. If pages are selected (page[h] > 0
 * entries each), chosen[g * ld_chosen + slot / page[h]] must also be nonzero. */
struct gpu_attention {
    struct gpu_cache cache;
    const float *q; /* [T][ld_q], heads adjacent */
    float *out;     /* [T][ld_out] */
    size_t ld_q, ld_out;
    int n_heads, T, pos0;
    const int32_t *now;          /* value added to pos0 for the query positions; NULL: 0 */
    float scale, cap;            /* cap 0: no soft cap */
    const float *sinks;          /* [n_heads] one more logit in each softmax; NULL: none */
    const float *log_beta;       /* [heads][ld_slot]: logits get + (t - pos) log_beta; or NULL */
    const int32_t *page;         /* [heads]; NULL: all pages are read */
    const unsigned char *chosen; /* [n_heads][ld_chosen] */
    int ld_chosen;
    /* Only gpu_rows uses these. Adjacent heads of several layers, layer_heads KV heads each.
     * Queries of consecutive layers are ld_layer floats apart. 0: one layer. */
    int layer_heads;
    size_t ld_layer;
};

/* Attention that does not store weights. gpu_attend_step has T = 1: the pages of a head are divided
 * between blocks, and each block serves all query heads of the head. A query that sees no entry
 * gets zeros.
 *
 * work: gpu_step_work(a) floats, zero before the first step. It can be reused for any number of
 * consecutive steps of the same heads with at most this cache.most. The same arguments give the
 * same bits. Sums depend on cache.most, which determines the division into blocks. n sequences, as
 * for gpu_norm_rope_store, need separate work arrays. One launch gives the bits of separate
 * launches.
 *
 * gpu_attend_prompt uses tensor cores if the cache is KV_F16 and D is a multiple of 16, up to 256.
 * Queries are then rounded to f16 and must be in its range. A logit changes by up to 2^-11 of its
 * sum of |scale q k|. Compared with the rounded queries' exact result, the output over n entries is
 * within 2^-9 + n 2^-27 of the sum of p |v|. */
void gpu_attend_prompt(struct gpu *g, const struct gpu_attention *a);
void gpu_attend_step(struct gpu *g, const struct gpu_attention *a, float *const *work, int n);
size_t gpu_step_work(const struct gpu_attention *a);

/* Attention that stores its weights for probes and methods; exact. p: [n_heads][T][ld], ld a
 * multiple of PAGE_SLOTS and at least `most`. After gpu_rows it has the weights of row r for the
 * slots below n - (T - 1 - r), then 0. lse, entropy, seen (number of visible entries):
 * [n_heads][T]; may be NULL. gpu_rows_values computes out from p. */
void gpu_rows(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld, float *lse,
              float *entropy, int32_t *seen);
/* gpu_rows for n <= GPU_TOGETHER sequences, as for gpu_norm_rope_store, in as many launches as for
 * one, with the same bits. */
struct gpu_seen_rows {
    struct gpu_attention a;
    float *p;
    size_t ld;
    float *lse, *entropy;
    int32_t *seen;
};
void gpu_rows_together(struct gpu *g, const struct gpu_seen_rows *rows, int n);
void gpu_rows_values(struct gpu *g, const struct gpu_attention *a, const float *p, size_t ld);
/* gpu_rows without a fixed order of sums. For several queries with a KV_F16 cache and D a multiple
 * of 16, up to 128, tensor cores compute the logits. Queries are then rounded to f16, as in
 * gpu_attend_prompt. The weights after slot n - (T - 1 - r) are undefined. */
void gpu_rows_approx(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld, float *lse,
                     float *entropy, int32_t *seen);

/* Selection of entries to evict. Candidates are the slots below n[h] of heads [first, first +
 * heads) with mark `from`. The k worst of them get mark `to`, and count[h] is their number in head
 * h. The order is: smaller score first; on ties the smaller position (or the larger,
 * with older); then the larger head. NaN counts as the smallest score. k is in device memory. At
 * most all candidates are marked. */
struct gpu_choice {
    const float *score;  /* [heads][ld] */
    const int32_t *pos;  /* [heads][ld] */
    unsigned char *mark; /* [heads][ld] */
    const int32_t *n;    /* [heads] */
    int32_t *count;      /* [heads] */
    int ld;
    unsigned char from, to;
    bool older;
    void *scratch; /* gpu_choice_bytes */
};
/* Each pool is heads_of_pool adjacent heads with its own k[pool]. */
size_t gpu_choice_bytes(int pools, int heads_of_pool); /* 0: no scratch is needed */
void gpu_choose(struct gpu *g, const struct gpu_choice *c, int pools, int heads_of_pool,
                const int64_t *k);

/* Processes n_rows rows of n logits, ld apart, which are the vocabulary entries from `first` on, in
 * segments of GPU_SEGMENT. lse[segment][r], segments ld_lse apart, is log_sum_exp of kernels.h.
 * target[r] is the logit of token ids[r] if the segments contain it. */
enum { GPU_SEGMENT = 256 };
void gpu_segments(struct gpu *g, const float *logits, size_t ld, int n, int n_rows, int first,
                  const int32_t *ids, float *lse, size_t ld_lse, float *target);

/* id[0] = the token that sampler_next draws from n logits; exact. id may be pinned. */
struct gpu_draw {
    double scale, top_p;  /* sampler_scale, (0, 1] */
    const double *chance; /* [1] sampler_chance; NULL: argmax */
    void *scratch;        /* gpu_draw_bytes(n) */
};
size_t gpu_draw_bytes(int n);
void gpu_draw(struct gpu *g, int32_t *id, const float *logits, int n, const struct gpu_draw *how);

#ifdef __cplusplus
}
#endif
#endif
