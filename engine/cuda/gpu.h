/* gpu.h - the kernels of a CUDA device, as the rest of the engine sees them.
 *
 * This header names no type of CUDA: no other folder includes one of its headers.  A struct gpu is
 * one device with one stream; every function below puts work on that stream and returns at once,
 * except those that say that they wait.  Pointers into the memory of the device are made by
 * gpu_alloc and never followed by the host; all that a function is given here lies there, unless
 * it is said to be the host's.
 *
 * The contract of kernels.h holds here too: THE RESULT OF A ROW DEPENDS ON THAT ROW ALONE.  Where a
 * function is called exact, it sums in the order of the C reference (kernels_ref.c), each step one
 * fused multiply-add: then its result has the same bits, but for exp, whose last place is the
 * device's own.  The others are within 1e-5 of it, relative to the largest value of a row, but for
 * gpu_gemm and gpu_attend_prompt, which say how close they are.
 *
 * Errors of launches are kept by the device and told by gpu_wait, once. */
#ifndef KVF_ENGINE_CUDA_GPU_H
#define KVF_ENGINE_CUDA_GPU_H

#include "engine/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu;

/* How many devices there are.  0: none can be reached, and d says why. */
int gpu_count(struct kvf_diag *d);
/* The newest CUDA that the driver knows, and the one that the kernels were built with: 13000 is
 * 13.0.  Driver 0: there is none. */
void gpu_versions(int *ret_driver, int *ret_built);

struct gpu_facts {
    char name[256];
    size_t memory, free; /* bytes */
    int major, minor;    /* compute capability */
};
/* What a device is.  KVF_OK; KVF_E_ARG (there is no such device) or KVF_E_BACKEND with a sentence:
 * it cannot be used, and *ret_facts holds what is known of it. */
int gpu_look(int which, struct gpu_facts *ret_facts, struct kvf_diag *d);

/* KVF_OK, or an error of gpu_look, or KVF_E_NOMEM, with a sentence. */
int gpu_open(int which, struct gpu **ret_gpu, struct kvf_diag *d);
void gpu_close(struct gpu *g); /* accepts NULL */
/* Waits until all is done.  KVF_OK, or KVF_E_BACKEND with the device's own words. */
int gpu_wait(struct gpu *g, struct kvf_diag *d);
long gpu_waits(const struct gpu *g); /* how often that has been */
/* Why there was no room: the sentence, with KVF_E_NOMEM; or that of gpu_wait, where the device has
 * failed, which gives nobody room either. */
int gpu_no_room(struct gpu *g, struct kvf_diag *d, const char *fmt, ...) KVF_PRINTF(3, 4);

/* n * size bytes, aligned to 16 at least; NULL: there is no room. */
void *gpu_alloc(struct gpu *g, size_t n, size_t size);
void gpu_free(struct gpu *g, void *p);                                     /* accepts NULL */
void gpu_put(struct gpu *g, void *device, const void *host, size_t bytes); /* host to device */
void gpu_get(struct gpu *g, void *host, const void *device, size_t bytes); /* and back; waits */
void gpu_copy(struct gpu *g, void *to, const void *from, size_t bytes);    /* within the device */
void gpu_zero(struct gpu *g, void *device, size_t bytes);
/* n rows of `bytes` bytes, whose beginnings lie ld_device and ld_host bytes apart; get waits. */
void gpu_put_rows(struct gpu *g, void *device, size_t ld_device, const void *host, size_t ld_host,
                  size_t bytes, size_t n);
void gpu_get_rows(struct gpu *g, void *host, size_t ld_host, const void *device, size_t ld_device,
                  size_t bytes, size_t n);
/* Memory of the host that the device reads and writes by itself; NULL: there is no room.  What
 * gpu_put and gpu_send take from it must not change, and what gpu_fetch brings into it is not
 * there, before gpu_wait. */
void *gpu_pin(struct gpu *g, size_t n, size_t size);
void gpu_unpin(struct gpu *g, void *p); /* accepts NULL */
void gpu_fetch(struct gpu *g, void *pinned, const void *device, size_t bytes);
void gpu_send(struct gpu *g, void *device, const void *pinned, size_t bytes); /* and there */
/* The same of several short parts in one launch, which reads pinned memory by itself: whole words
 * of 4 bytes.  gpu_part adds one where there is room for it. */
enum { GPU_MOST_PARTS = 48 };
struct gpu_parts {
    int n;
    void *to[GPU_MOST_PARTS];
    const void *from[GPU_MOST_PARTS];
    size_t bytes[GPU_MOST_PARTS];
};
void gpu_part(struct gpu_parts *p, void *device, const void *pinned, size_t bytes);
void gpu_send_parts(struct gpu *g, const struct gpu_parts *p);
void gpu_fetch_rows(struct gpu *g, void *pinned, size_t ld_pinned, const void *device,
                    size_t ld_device, size_t bytes, size_t n);
/* Makes memory of the host like that of gpu_pin until gpu_leave, which waits.  Where there is no
 * room for that nothing is lost but time: what is brought into it is waited for at once. */
void gpu_take(struct gpu *g, void *host, size_t bytes);
void gpu_leave(struct gpu *g, void *host);

/* Parcels: what comes home beside the work that was put on the stream after it.  Parcel i brings
 * what is added between begin and end into pinned memory, once all that was on the stream at begin
 * is done; it is there after gpu_parcel_wait, which waits for that alone (false: the device failed,
 * and gpu_wait says why).  What is added must stay as it is until then.  Parcels are sent in the
 * order in which they begin; what is put on the stream after gpu_parcels_join comes after parcel i
 * and all before it, so that gpu_wait waits for them, too.  gpu_parcels_open comes first, once or
 * more often; false: there is no room. */
enum { GPU_PARCELS = 4 };
bool gpu_parcels_open(struct gpu *g);
void gpu_copyback_begin(struct gpu *g, int i);
void gpu_parcel_add(struct gpu *g, void *pinned, const void *device, size_t bytes);
void gpu_parcel_end(struct gpu *g, int i);
bool gpu_parcel_wait(struct gpu *g, int i);
void gpu_parcels_join(struct gpu *g, int i);

/* A graph: work that comes again and again in the same shape.  What is put on the stream between
 * begin and end is written down in it instead, and at the end put there at once: launches, copies
 * within the device, what gpu_fetch brings and gpu_send takes there.  Work of the same shape as the
 * last time is one call of the driver; what it was given may differ, and is then told to the driver
 * before. Whatever else is asked for in between ends the writing: all goes on the stream by itself,
 * as it does where the shape is a new one.  *graph is NULL at first; one at a time. */
struct gpu_graph;
void gpu_graph_begin(struct gpu *g, struct gpu_graph **graph);
void gpu_graph_end(struct gpu *g);
/* What follows is of branch i, from 0 on, of a graph that is being written down: what different
 * branches do is independent, and may run side by side, behind all that came before the first of
 * them; two branches whose numbers agree modulo GPU_BRANCHES are one.  -1: what follows comes after
 * all of them.  Without a graph everything runs in its order. */
enum { GPU_BRANCHES = 16 };
void gpu_branch(struct gpu *g, int i);
/* true: what follows is aside of its branch, or of the trunk: it comes after what came before in
 * there, and in its order after what else is aside of the same one, but nothing else of the graph
 * waits for it; so no more than the end of the graph.  Two branches whose numbers are one have one
 * aside.  false: what follows is of the branch again. */
void gpu_low_priority(struct gpu *g, bool aside);
/* Mark i: all that was put on the stream before, branches and what is aside included; nothing waits
 * for it.  gpu_marked waits until the newest one of that number is reached: what gpu_fetch brought
 * until there has come.  false: the device failed, and gpu_wait says why. */
enum { GPU_MARKS = 2 };
void gpu_mark(struct gpu *g, int i);
bool gpu_marked(struct gpu *g, int i);
void gpu_graph_free(struct gpu *g, struct gpu_graph *graph); /* waits; accepts NULL */
/* Nodes of the last time; graphs that were built, nodes that were told anew, and how often all was
 * put on the stream at once.  How often it went there one by one: since the shape was a new one,
 * since the driver refused to build or to change a graph, and since something else came in between.
 * Where all goes well none is refused, and no more are built than shapes are met. */
struct gpu_graph_facts {
    long nodes, built, updated, replayed, shapes, refused, broken;
};
struct gpu_graph_facts gpu_graph_look(const struct gpu_graph *graph); /* NULL: zeros */

/* A matrix [N][K] in the form of its file: rows of whole blocks, one after the other. */
struct gpu_matrix {
    const void *data;
    enum weight_type type; /* see gpu_reads */
    int N, K;
    size_t row_bytes;
};

/* F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K: whether the kernels take the type. */
bool gpu_reads(enum weight_type type);

/* x[t] = scale * row ids[t] of the table, dequantised.  ids: [T] */
void gpu_embed(struct gpu *g, float *x, const struct gpu_matrix *table, const int32_t *ids, int T,
               float scale);
/* As in kernels.h, for n rows of C channels that adjoin (heads, or one row) in each of T rows that
 * are ld floats apart, in x as in out; out may be x. */
void gpu_rmsnorm(struct gpu *g, float *out, const float *x, size_t ld, const float *w, int T, int n,
                 int C, float eps);
/* Turns the first n_rot channels of n_heads heads of T tokens, rows ld apart; cos_sin is that of
 * kernels.h for each token, [T][n_rot/2][2]. */
void gpu_rope(struct gpu *g, float *x, size_t ld, const float *cos_sin, int T, int n_heads, int D,
              int n_rot);
/* out[t][i] = act(x[t][i]) * x[t][n + i], i < n; rows of x are ld apart, those of out n. */
void gpu_gated(struct gpu *g, float *out, const float *x, size_t ld, int T, int n, bool gelu);
/* x += scale * y, in two roundings. */
void gpu_add(struct gpu *g, float *x, const float *y, size_t n, float scale);
void gpu_add_row(struct gpu *g, float *x, size_t ld, const float *row, int T, int n);
void gpu_soft_cap(struct gpu *g, float *x, size_t n, float cap);

/* out[t][0..N) = W x[t].  gpu_product shares each row of W out among lanes and is made for few rows
 * of x: it takes T in parts of 8.  gpu_product_exact is exact. */
void gpu_product(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                 const struct gpu_matrix *w);
void gpu_product_exact(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                       const struct gpu_matrix *w);

/* gpu_product with what comes before and behind it, in one launch where all parts of W have one
 * type.  The parts lie one below the other.  A row has the same bits whatever T is. */
enum gpu_end {
    GPU_PUT,
    GPU_ADD,  /* out += scale * W x */
    GPU_GATED /* out[i] = act((W x)[i]) * (W x)[N/2 + i], i < N/2; where gpu_dense_gates */
};
struct gpu_dense {
    struct gpu_matrix part[3];
    int n;
    const float *norm; /* [K] NULL: x as it is; else the product reads rmsnorm(x, norm, eps), with
                          sums of squares in f32 */
    float *normed;     /* [T][K] where that is left, too; NULL, as without norm: nowhere */
    float eps;
    enum gpu_end end;
    float scale;
    bool gelu; /* the activation; false: silu */
};
void gpu_dense(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
               const struct gpu_dense *how);
bool gpu_dense_gates(const struct gpu_matrix *part, int n);

/* The same by cuBLAS, for prompts, and of n matrices of one K, whose rows adjoin in out.  f32
 * weights: products and sums in f32; any other type: W and x rounded to bf16, sums in f32, within
 * 2^-8 of the sum of |W x|.  Rows run GPU_GEMM_ROWS at a time, with zeros for those that are
 * missing, so that a row does not depend on how many there are: out has room for T rounded up to
 * whole GPU_GEMM_ROWS, and what is behind row T is noise.  false: there is no cuBLAS, or no room
 * for its tiles, and nothing was done. */
enum { GPU_GEMM_ROWS = 512 };
bool gpu_gemm(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
              const struct gpu_matrix *part, int n);

/* The kernels of attention, of decodes as of training, are made for heads of so many channels. */
enum { GPU_MOST_CHANNELS = 256 };

/* The entries of one layer.  Page p of head h is page table[h * ld_table + p] of the pool: keys
 * [D][PAGE_SLOTS], then values [PAGE_SLOTS][D], as in kernels.h. */
struct gpu_cache {
    void *pool;
    enum kv_type type;
    int heads, D;
    int most;             /* the host knows: no head has more entries */
    const int32_t *table; /* [heads][ld_table] */
    const int32_t *n;     /* [heads] entries */
    int32_t *pos, *until; /* [heads][ld_slot] as in cache.h; attention takes until NULL: all stay,
                             and reads pos only with log_beta */
    const int32_t *firm;  /* [heads] leading slots of which until is INT32_MAX; NULL: not known */
    int ld_table, ld_slot;
};

/* Stores entry t of each head, for T tokens: key row at k + t * ld + h * D, value at v + t * ld +
 * h * D, into slot first[h] + t, with position pos0 + t; until: [T][heads], NULL: it stays.  pos0
 * -1: positions are there already. */
void gpu_append(struct gpu *g, const struct gpu_cache *c, const float *k, const float *v, size_t ld,
                const int32_t *first, int T, int pos0, const int32_t *until);

/* Copies the pages that hold slots first[h] to first[h] + T - 1 of each head into out
 * [heads][n_pages], as they are; n_pages is at least as many as any head has of them. */
void gpu_gather_pages(struct gpu *g, const struct gpu_cache *c, const int32_t *first, int T,
                      int n_pages, void *out);
/* And back: page i of n that adjoin becomes page where[i] of the pool.  Both lie in pinned memory,
 * which the device reads by itself: they must not change before gpu_wait. */
void gpu_pages_in(struct gpu *g, void *pool, size_t page_bytes, const int32_t *where,
                  const void *pages, int n);

/* until of the entries before slot first[h] of each head: behind the firm[h] that stay it is that
 * in from [heads][ld_slot], which is the host's, from gpu_pin. */
void gpu_put_until(struct gpu *g, const struct gpu_cache *c, const int32_t *from,
                   const int32_t *first);

/* Puts pages of a pool together from entries of others, which are none of these: jobs
 * [n][1 + PAGE_SLOTS], a page, then for each of its slots the one that the entry has, counted
 * through all pages; page -1: nothing to do, slot -1: there is none. */
void gpu_join_entries(struct gpu *g, void *pool, enum kv_type type, int D, const int32_t *jobs,
                      int n);

/* Ranks in the cache, by which keys and queries are turned where entries keep no positions. */
struct gpu_ranks {
    const int32_t *rank;  /* [heads][ld_slot] of the entry in each slot, 0 for the oldest; behind
                             the last entry any rank that has angles */
    const float *cos_sin; /* as of gpu_rope, for each rank; NULL: nothing turns */
    int n_rot;
    float *pages; /* [heads][ld_table] of f32, two halves of D * PAGE_SLOTS each */
};
/* Copies the pages of a cache whose keys were never turned to r->pages, keys turned and values as
 * they are.  And turns T queries [T][ld] of n_heads, the newest entries of their heads, in place:
 * query t has rank n[h] - (T - t). */
void gpu_turn_keys(struct gpu *g, const struct gpu_cache *c, const struct gpu_ranks *r);
void gpu_turn_queries(struct gpu *g, const struct gpu_cache *c, const struct gpu_ranks *r, float *q,
                      size_t ld, int n_heads, int T);

/* T tokens between the projections of a layer and its attention. */
struct gpu_new_entries {
    float *qkv;        /* [T][ld] n_heads queries, then keys and values of the cache's heads */
    const float *from; /* [T][ld] where they are read; NULL: in qkv */
    size_t ld;
    int T, n_heads, n_rot;
    const float *q_norm, *k_norm; /* [D] weights of norms; NULL: none */
    float eps;
    const float *cos_sin; /* as of gpu_rope, [T]; NULL: nothing turns */
    float *unturned;      /* [T] queries and keys behind their norms; NULL: nobody asks */
    size_t ld_unturned;
    const int32_t *slot;  /* [heads] where the first of them goes; the others follow */
    const int32_t *until; /* [T][heads]; NULL: they stay */
};
/* gpu_rmsnorm of each head of queries and keys, of GPU_MOST_CHANNELS at most, gpu_rope of both and
 * gpu_append, where positions are already: in one launch, with the same bits, in qkv as in the
 * cache.  Of n sequences that differ in pointers and in lengths alone: GPU_TOGETHER of them in one
 * launch. */
enum { GPU_TOGETHER = 8 };
void gpu_norm_rope_store(struct gpu *g, const struct gpu_cache *c, const struct gpu_new_entries *x,
                         int n);

/* T queries at positions pos0, pos0 + 1, ..., which are the newest T entries of every head.  Query
 * r sees the slots below n[h] - (T - 1 - r) with until > pos0 + r and, where pages are chosen
 * (page[h] > 0 entries each), chosen[g * ld_chosen + slot / page[h]] != 0. */
struct gpu_attention {
    struct gpu_cache cache;
    const float *q; /* [T][ld_q], heads adjoin */
    float *out;     /* [T][ld_out] */
    size_t ld_q, ld_out;
    int n_heads, T, pos0;
    const int32_t *now;          /* + pos0 where queries are; NULL: nothing */
    float scale, cap;            /* cap 0: none */
    const float *sinks;          /* [n_heads] one more logit in each softmax; NULL: none */
    const float *log_beta;       /* [heads][ld_slot]: + (t - pos) log_beta; NULL: none */
    const int32_t *page;         /* [heads]; NULL: everything is read */
    const unsigned char *chosen; /* [n_heads][ld_chosen] */
    int ld_chosen;
    /* Of gpu_rows alone: heads of several layers that adjoin, each of so many query heads, whose
     * queries lie ld_layer floats behind those of the layer before; 0: of one. */
    int layer_heads;
    size_t ld_layer;
};

/* Attention with nothing kept of its rows.  A step is T = 1: the pages of a head are split among
 * blocks that each serve all its query heads.  A query that sees nothing gets zeros.
 * work: gpu_step_work(a) floats, zeros before the first step; it serves any number of steps, one
 * after the other, of the same heads and with at most this cache.most.  The same arguments give
 * the same bits; sums depend on cache.most, by which pages are dealt out.  Of n sequences as of
 * gpu_settle, each with work of its own: in one launch the bits that each has alone.
 *
 * A prompt whose cache is KV_F16 with D a multiple of 16, up to 256, is multiplied by tensor cores.
 * Queries are then rounded to f16, whose range they must be in: a logit moves by up to 2^-11 of its
 * sum of |scale q k|.  Of what the rounded queries give, the result of n entries is within
 * 2^-9 + n 2^-27 of the sum of p |v|. */
void gpu_attend_prompt(struct gpu *g, const struct gpu_attention *a);
void gpu_attend_step(struct gpu *g, const struct gpu_attention *a, float *const *work, int n);
size_t gpu_step_work(const struct gpu_attention *a);

/* Attention whose rows stay, for those who look at them; exact.  p: [n_heads][T][ld], ld a multiple
 * of PAGE_SLOTS, at least most: after gpu_rows the weights of row r for the slots below
 * n - (T - 1 - r), then 0.  lse, entropy, seen (how many entries): [n_heads][T]; may be NULL.
 * gpu_rows_values makes out of them. */
void gpu_rows(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld, float *lse,
              float *entropy, int32_t *seen);
/* The same of n <= GPU_TOGETHER sequences as of gpu_settle, in as many launches as of one, with the
 * bits that each has alone. */
struct gpu_seen_rows {
    struct gpu_attention a;
    float *p;
    size_t ld;
    float *lse, *entropy;
    int32_t *seen;
};
void gpu_rows_together(struct gpu *g, const struct gpu_seen_rows *rows, int n);
void gpu_rows_values(struct gpu *g, const struct gpu_attention *a, const float *p, size_t ld);
/* gpu_rows where the order of sums is free: of several queries, with a cache that is KV_F16 and D a
 * multiple of 16, up to 128, logits are multiplied by tensor cores, from queries that are rounded
 * to f16 as those of gpu_attend_prompt are.  Behind the slots below n - (T - 1 - r) there may be
 * anything. */
void gpu_rows_approx(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld, float *lse,
                     float *entropy, int32_t *seen);

/* Choosing.  Candidates are the slots below n[h] of heads [first, first + heads) whose mark is
 * `from`; the k worst of them (score least first; among equals the smaller position, or the larger
 * with older; then the larger head) get the mark `to`, and count[h] says how many of head h.  NaN
 * counts as the least score.  k is read from the device; at least as many are marked as there are
 * candidates, at most. */
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
/* pools: each of heads_of_pool heads that adjoin, with its own k[pool]. */
size_t gpu_choice_bytes(int pools, int heads_of_pool); /* 0: no scratch is needed */
void gpu_choose(struct gpu *g, const struct gpu_choice *c, int pools, int heads_of_pool,
                const int64_t *k);

/* Of n_rows rows of n logits ld apart, which are words `first` and on of the vocabulary, in
 * segments of GPU_SEGMENT: lse[segment][r], segments ld_lse apart, as log_sum_exp of kernels.h;
 * and, where word ids[r] is among them, target[r], its logit. */
enum { GPU_SEGMENT = 256 };
void gpu_segments(struct gpu *g, const float *logits, size_t ld, int n, int n_rows, int first,
                  const int32_t *ids, float *lse, size_t ld_lse, float *target);

/* id[0] = the token that sampler_next draws from n logits; exact.  id may be pinned, too. */
struct gpu_draw {
    double scale, top_p;  /* sampler_scale, (0, 1] */
    const double *chance; /* [1] sampler_chance; NULL: the largest logit is taken */
    void *scratch;        /* gpu_draw_bytes(n) */
};
size_t gpu_draw_bytes(int n);
void gpu_draw(struct gpu *g, int32_t *id, const float *logits, int n, const struct gpu_draw *how);

#ifdef __cplusplus
}
#endif
#endif
