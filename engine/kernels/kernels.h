/* kernels.h - the table of compute kernels and how it is filled.
 *
 * Sizes: T rows (tokens), K input channels, N output channels, D head
 * dimension, S slots.  Matrices are row-major.  Kernels never allocate, never
 * log and never fail: sizes are validated when the model is loaded.
 *
 * Contract that the whole engine leans on: THE RESULT OF A ROW DEPENDS ON THAT
 * ROW ALONE.  Row t of matmul, attn_qk, attn_av gives the same bits whether it
 * is computed in a batch of 1 or of 512, at any tile position, on any thread.
 * Each output is summed in one fixed order.  Hence chunk size and thread count
 * change nothing.
 *
 * Weights are packed once at load (packed.h).  The reference (flags = 0) is
 * the definition; SIMD variants agree within the rounding stated in the tests. */
#ifndef KVF_ENGINE_KERNELS_H
#define KVF_ENGINE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kv_page.h"
#include "engine/kernels/packed.h"

/* Instruction sets; x86-64 and aarch64 have their own bits. */
enum {                            /* the others imply AVX2, and AMX AVX-512 */
       CPU_X86_AVX2 = 1u << 0,    /* AVX2 + FMA + F16C */
       CPU_X86_AVX512 = 1u << 1,  /* F + BW + DQ + VL + VNNI */
       CPU_X86_AVXVNNI = 1u << 2, /* products of bytes in 256 bits; the bits of AVX2 */
       CPU_X86_AMX = 1u << 3,     /* products of bytes by tiles; the bits of AVX-512 */
};
enum {
    CPU_ARM_NEON = 1u << 0, /* every aarch64; the bits of AVX2 */
    CPU_ARM_DOT = 1u << 1,  /* products of bytes by its dot products; the same bits */
};

/* attn_qk, attn_av and kv_store read and write halves of pages (kv_page.h). */
#define DECL_RMSNORM(name)                                                                         \
    void name(float *out, const float *x, const float *w, int T, int C, float eps)
#define DECL_QUANT_ROWS(name) void name(struct qrows *out, const float *x, int T, int K)
#define DECL_MATMUL_Q(name)                                                                        \
    void name(float *out, size_t ld_out, const struct qrows *x, int T, const struct packed *w,     \
              int panel0, int n_panels)
#define DECL_QUANT_WORDS(name) void name(struct wrows *out, const float *x, int T, int K)
#define DECL_MATMUL_WORDS(name)                                                                    \
    void name(float *out, size_t ld_out, const struct wrows *x, int T, const struct packed *w,     \
              int panel0, int n_panels)
#define DECL_MATMUL_F(name)                                                                        \
    void name(float *out, size_t ld_out, const float *x, size_t ld_x, int T,                       \
              const struct packed *w, int panel0, int n_panels)
#define DECL_ROPE(name) void name(float *x, const float *cos_sin, int n_heads, int D, int n_rot)
#define DECL_SWIGLU(name) void name(float *out, const float *gate, const float *up, int n)
#define DECL_SOFT_CAP(name) void name(float *x, int n, float cap)
#define DECL_ADD(name) void name(float *x, const float *y, int n)
#define DECL_ATTN_QK(name)                                                                         \
    void name(float *scores, size_t ld_s, const float *q, size_t ld_q, int T, int D,               \
              const struct kv_keys *k, float scale)
/* Queries as pages of whole numbers want them, row after row of kv_channels(type, D) numbers (0
 * behind the last).  i16: int16_t of at most KV_I16_MOST, times scale[t].  q8_0: int8_t of at most
 * KV_Q8_MOST; block b of row t, at t * kv_blocks(D) + b, has a scale and the sum of its numbers. */
struct kv_queries {
    enum kv_type type;
    void *q;
    float *scale;
    int32_t *sum;
};
#define DECL_ATTN_QUERIES(name)                                                                    \
    void name(const struct kv_queries *out, const float *q, size_t ld_q, int T, int D)
#define DECL_ATTN_SCORES(name)                                                                     \
    void name(float *scores, size_t ld_s, const struct kv_queries *q, int T, int D,                \
              const struct kv_keys *k, float scale)
#define DECL_ATTN_AV(name)                                                                         \
    void name(float *out, size_t ld_out, const float *p, size_t ld_p, int T,                       \
              const struct kv_values *v)
/* Of products of whole numbers: KV_I16_MOST^2 * INT_CHANNELS and (INT_WEIGHT + 1) * KV_I16_MOST *
 * PAGE_SLOTS are below 2^31. */
enum { INT_CHANNELS = 128, INT_WEIGHT = 8191 };
/* Keys of a page.  next: the keys that are read after them, or NULL; who reads them once waits for
 * memory otherwise. */
struct kv_keys {
    const void *page;
    enum kv_type type;
    const void *next;
};
/* Values of a page that attn_av adds up: the first n_slots, and of them the channels [d0, d1) of D.
 * Of part of the channels d0 and d1 are multiples of KV_BLOCK, or d1 is D.  next: as of keys. */
struct kv_values {
    const void *page;
    enum kv_type type;
    int D, d0, d1, n_slots;
    const void *next;
};
/* Rows of an attention over pages of whole numbers so far, page after page: values times weights,
 * and the weights' own sum in ATTN_LANES parts, both of the weights 2^(score log2(e) - top).  A row
 * begins with zeros and ATTN_LEAST and ends with out / sum (attn_mean). */
enum { ATTN_LANES = 16 };
#define ATTN_LEAST -1e30f /* lower scores count as this one */
struct attn_sums {
    float *out; /* [T][ld] */
    size_t ld;
    float *sum; /* [T][ATTN_LANES] */
    float *top; /* [T] */
};
/* Goes on with a page: row t sees v->n_slots + t * grow of its slots, where that is below 1 none
 * and above PAGE_SLOTS all, but for those whose scores are -INFINITY or no number. */
#define DECL_ATTN_ADD(name)                                                                        \
    void name(const struct attn_sums *to, const float *scores, size_t ld_s, int T, int grow,       \
              const struct kv_values *v)
/* c[i * ld_c + j] = sum_k a[i * a_row + k * a_col] * b[k * ld_b + j], i < m, j < n: a
 * may be read transposed.  add: the sum starts with c instead of 0. */
struct tile_product {
    float *c;
    size_t ld_c;
    const float *a;
    size_t a_row, a_col;
    const float *b;
    size_t ld_b;
    int m, n, k;
    bool add;
};
#define DECL_TILE_MUL(name) void name(const struct tile_product *p)
#define DECL_ADD_AGED(name) void name(float *y, const float *x, int n, int age)
#define DECL_EXP_AGED(name) void name(float *w, const float *g, int n, int age)
#define DECL_EXP_ROW(name) float name(float *s, int n, float shift)
#define DECL_MAX_ROW(name) float name(const float *s, int n)
#define DECL_MUL(name) void name(float *x, const float *y, int n)
#define DECL_SOFTMAX_GRAD(name) void name(float *d, const float *p, int n, float mean)
#define DECL_SOFTMAX(name) float name(float *s, int n, float *entropy)
#define DECL_LOG_SUM_EXP(name) float name(const float *s, int n)
#define DECL_KV_STORE(name)                                                                        \
    void name(void *kpage, void *vpage, enum kv_type type, int slot, const float *k,               \
              const float *v, int D)
#define DECL_MASS_ADD(name) void name(double *sum, float *max, const float *p, int n)
#define DECL_SWIGLU_BACK(name)                                                                     \
    void name(float *d_gate, float *d_up, const float *gate, const float *up, const float *d_out,  \
              int n)
#define DECL_RMSNORM_BACK(name)                                                                    \
    void name(float *dx, const float *x, const float *w, const float *dy, int T, int C, float eps)
/* A selected set of a row: i is in it when p[i] > threshold, or p[i] == threshold
 * and i >= first_tie.  first_tie is 0 when all entries of that weight are in; the
 * whole row is {0, 0, n}. */
struct row_cut {
    float threshold;
    int first_tie;
    int count; /* members */
};

static inline int row_cut_has(const struct row_cut *c, float p, int i)
{
    return p > c->threshold || (p == c->threshold && i >= c->first_tie);
}

/* Masses are counted in whole units of 2^-50: integer sums are exact, so they do
 * not depend on the order of summation and every variant decides alike. */
#define MASS_UNIT 0x1p-50
#define DECL_ROW_CUTS(name)                                                                        \
    void name(const float *p, int n, const int *top_k, int n_top, const double *tau, int n_tau,    \
              struct row_cut *out, void *scratch)
#define DECL_MARK(name)                                                                            \
    void name(void *last, int width, const float *p, int n, const struct row_cut *cut, uint32_t t)
/* Rows of weights of queries that follow one another: row r, at p + r * ld, has n + r entries, and
 * 0 behind them up to the end of the last row. */
struct weight_rows {
    const float *p;
    size_t ld;
    int n, n_rows;
};
#define DECL_MASS_ADD_ROWS(name) void name(double *sum, float *max, const struct weight_rows *rows)
#define DECL_MARK_ROWS(name)                                                                       \
    void name(void *const *last, int width, const struct weight_rows *rows,                        \
              const struct row_cut *cut, int n_cuts, uint32_t t)

/* Sums over a stretch of one row of logits, the student's s and the teacher's t:
 * top = max, ds = s - top_s, dt = t - top_t. */
struct kl_part {
    float top_s, top_t;
    double sum_s, sum_t;     /* sum of exp(ds), of exp(dt) */
    double cross_s, cross_t; /* sum of exp(ds) (ds - dt), of exp(dt) (dt - ds) */
};

/* ds and dt as above, with the maxima of the whole row. */
struct kl_coef {
    float top_s, top_t;
    float self, reverse, shift, forward;
};
#define DECL_CAPACITY_SUMS(name) void name(float *sums, const float *lb, int n)
#define DECL_CAPACITY_BACK(name) void name(float *d_lb, const float *lb, const float *d_sums, int n)
#define DECL_KL_PART(name) void name(struct kl_part *out, const float *s, const float *t, int n)
#define DECL_KL_BACK(name)                                                                         \
    void name(float *out, const float *s, const float *t, int n, const struct kl_coef *c)
/* Rows of a window (engine/method/window.c), by slot.  The row of query t says nothing of
 * entries with pos > t: it counts as 0 there, whatever it holds.  Every variant gives the
 * same bits. */
struct window_pair { /* a query that enters the window and one that leaves it */
    const float *in, *out;
    int32_t t_in, t_out; /* INT32_MIN: none; its row is any n readable floats */
};

/* Sums that n_pairs pairs change.  What is read next lies so many elements behind each row and
 * behind the sums: hints, which no address can spoil. */
struct window_slide {
    double *sum;
    float *out; /* NULL, or scale times the sums */
    const struct window_pair *pair;
    const int32_t *pos;
    int n_pairs, n;
    double magic, scale;
    size_t next_row, next_sum;
};

/* Rows of a window of several query heads that lie evenly, and what each weight is multiplied
 * with.  Row r of head g lies g * ld_head + r * ld floats on.  Those of age first .. end-1 count,
 * row `newest` being of age 0. */
struct window_shares {
    const float *weight;
    size_t ld_head, ld, next; /* next: as next_row above; 0: nothing is asked for */
    const float *scale;       /* [n_heads * ring][2], the first of two counts */
    const int32_t *t;         /* [n_heads * ring] the queries; NULL: they saw everything */
    int n_heads, ring, newest, first, end;
    bool max; /* over the heads, not the sum */
};

enum take { TAKE_FIRST, TAKE_SUM, TAKE_MAX };

#define SPREAD_UNIT 0x1p-51
#define DECL_SLIDE(name) void name(const struct window_slide *x)
#define DECL_SLIDE_SPREAD(name)                                                                    \
    void name(int64_t *restrict sum, int64_t *restrict square,                                     \
              const struct window_pair *restrict p, const int32_t *restrict pos, int n,            \
              size_t next_row, size_t next_sum)
#define DECL_SPREAD(name)                                                                          \
    void name(float *restrict v, const int64_t *restrict sum, const int64_t *restrict square,      \
              int n, int rows, double gamma)
#define DECL_SUM_BETWEEN(name)                                                                     \
    double name(const float *restrict a, const int32_t *restrict pos, int n, int32_t from,         \
                int32_t to)
#define DECL_TAKE_SHARE(name)                                                                      \
    void name(float *restrict row, const float *restrict a, const int32_t *restrict pos, int n,    \
              int32_t t, float scale, enum take how)
#define DECL_MOST_SHARES(name)                                                                     \
    void name(float *restrict out, const struct window_shares *x, const int32_t *restrict pos,     \
              int n)
#define DECL_POOL_MAX(name) void name(float *restrict out, const float *restrict x, int n, int half)
#define DECL_NEXT_LOW(name)                                                                        \
    int name(const float *score, const int32_t *pos, int i, int n, int32_t from, int32_t to,       \
             float bar)
#define DECL_REDUCE_SUMS(name)                                                                     \
    void name(float *restrict out, const double *restrict sum, size_t ld, int n_rows, int n,       \
              bool max, double divisor)
#define DECL_SUM_ROWS(name)                                                                        \
    void name(float *restrict out, const float *restrict row, size_t ld, int n_rows,               \
              const int32_t *restrict pos, int32_t t, int n, double magic, double scale)

typedef DECL_RMSNORM((*rmsnorm_fn));
typedef DECL_QUANT_ROWS((*quant_rows_fn));
typedef DECL_MATMUL_Q((*matmul_q_fn));
typedef DECL_MATMUL_F((*matmul_f_fn));
typedef DECL_QUANT_WORDS((*quant_words_fn));
typedef DECL_MATMUL_WORDS((*matmul_words_fn));
typedef DECL_ROPE((*rope_fn));
typedef DECL_SWIGLU((*swiglu_fn));
typedef DECL_SOFT_CAP((*soft_cap_fn));
typedef DECL_ADD((*add_fn));
typedef DECL_ATTN_QK((*attn_qk_fn));
typedef DECL_ATTN_QUERIES((*attn_queries_fn));
typedef DECL_ATTN_SCORES((*attn_scores_fn));
typedef DECL_ATTN_AV((*attn_av_fn));
typedef DECL_ATTN_ADD((*attn_add_fn));
typedef DECL_TILE_MUL((*tile_mul_fn));
typedef DECL_ADD_AGED((*add_aged_fn));
typedef DECL_EXP_AGED((*exp_aged_fn));
typedef DECL_EXP_ROW((*exp_row_fn));
typedef DECL_MAX_ROW((*max_row_fn));
typedef DECL_MUL((*mul_fn));
typedef DECL_SOFTMAX_GRAD((*softmax_grad_fn));
typedef DECL_SOFTMAX((*softmax_fn));
typedef DECL_LOG_SUM_EXP((*log_sum_exp_fn));
typedef DECL_KV_STORE((*kv_store_fn));
typedef DECL_MASS_ADD((*mass_add_fn));
typedef DECL_ROW_CUTS((*row_cuts_fn));
typedef DECL_MARK((*mark_fn));
typedef DECL_MASS_ADD_ROWS((*mass_add_rows_fn));
typedef DECL_MARK_ROWS((*mark_rows_fn));
typedef DECL_SLIDE((*slide_fn));
typedef DECL_SLIDE_SPREAD((*slide_spread_fn));
typedef DECL_SPREAD((*spread_fn));
typedef DECL_SUM_BETWEEN((*sum_between_fn));
typedef DECL_TAKE_SHARE((*take_share_fn));
typedef DECL_MOST_SHARES((*most_shares_fn));
typedef DECL_POOL_MAX((*pool_max_fn));
typedef DECL_NEXT_LOW((*next_low_fn));
typedef DECL_REDUCE_SUMS((*reduce_sums_fn));
typedef DECL_SUM_ROWS((*sum_rows_fn));
typedef DECL_SWIGLU_BACK((*swiglu_back_fn));
typedef DECL_RMSNORM_BACK((*rmsnorm_back_fn));
typedef DECL_CAPACITY_SUMS((*capacity_sums_fn));
typedef DECL_CAPACITY_BACK((*capacity_back_fn));
typedef DECL_KL_PART((*kl_part_fn));
typedef DECL_KL_BACK((*kl_back_fn));

struct kernels {
    /* out[t,c] = x[t,c] * w[c] / sqrt(mean_c(x[t,:]^2) + eps); out may be x. */
    rmsnorm_fn rmsnorm;

    /* Symmetric 16 bits per block of 32 channels: scale = max|x| / 32512,
     * q = round-half-even(x * (32512 / max|x|)) (0 for an all-zero block),
     * lo = q as a signed byte, hi = (q - lo) / 256, sum = scale * sum of q.
     * Where hi is alone, q becomes 256 hi, and so lo 0.  K is a multiple of 32. */
    quant_rows_fn quant_rows;
    /* 16 bits per block of 64 channels of a row, any K (packed.h): scale = |x| / 32762, where |x|
     * is the root of the sum of squares of the block in double, q = round-half-even(x / scale)
     * by a product with 1 / scale.  Of blocks that are 0, too small or no numbers q is 0. */
    quant_words_fn quant_words;

    /* out[t, 16*p + r] = sum_k x[t,k] * w[16*p + r, k] for the 16-row panels
     * p = panel0 .. panel0+n_panels-1.  ld_out: floats between rows of out, at
     * least 16 * (panel0 + n_panels); padding outputs (rows >= w->N) are
     * written as 0.  matmul_q: packed kinds Q4, Q8.  matmul_f: F32, F16, BF16.
     * matmul_words: I16, sums of blocks in order, each acc = fma(d * s_x, sum, acc). */
    matmul_q_fn matmul_q;
    matmul_f_fn matmul_f;
    matmul_words_fn matmul_words;

    /* Rotates pairs (2j, 2j+1), j < n_rot/2, of each head of one token:
     * x: [n_heads, D].  cos_sin: [n_rot/2][2] = cos, sin of position * theta_j.
     * (The "llama" layout of GGUF: interleaved pairs.) */
    rope_fn rope;

    swiglu_fn swiglu;     /* out = gate / (1 + exp(-gate)) * up; out may be gate */
    swiglu_fn geglu;      /* out = g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) / 2 * up, g = gate;
                             out may be gate */
    soft_cap_fn soft_cap; /* x = cap tanh(x / cap), cap > 0 */
    add_fn add;           /* x += y */

    /* scores[t * ld_s + s] = scale * sum_d q[t*ld_q + d] * K[d][s] for all
     * PAGE_SLOTS slots of the page (unused slots give unspecified finite or
     * non-finite values; the caller never reads them).  Of pages of whole numbers,
     * too, floats are multiplied. */
    attn_qk_fn attn_qk;

    /* The same for pages of i16 and q8_0, with whole numbers (kv_page.h): every variant gives the
     * same bits.  attn_queries makes whole numbers of queries as a page does of keys, with scales
     * in f32; scores += of each INT_CHANNELS channels in turn, of q8_0 each KV_BLOCK and fused,
     * (sum q K) * scale of the key * (scale of the query * scale).  Sums stay below 2^31. */
    attn_queries_fn attn_queries;
    attn_scores_fn attn_scores;

    /* out[t*ld_out + d] += sum_{s < n_slots} p[t*ld_p + s] * V[s][d], slots in
     * rising order, d0 <= d < d1.  Of an i16 page: p times the scale of its value becomes
     * a whole number of at most INT_WEIGHT, with one scale for the row, as entries have
     * one; the sum of whole numbers times that scale is added at once (fused).  Every
     * variant gives the same bits. */
    attn_av_fn attn_av;
    attn_add_fn attn_add; /* of i16 and q8_0 */

    /* Training.  The product of two small dense matrices, k in rising order, each step
     * one fused multiply-add: the same bits in every variant.  c overlaps neither. */
    tile_mul_fn tile_mul;

    add_aged_fn add_aged; /* y[j] += (age - j) x[j], fused */
    exp_aged_fn exp_aged; /* w[j] = exp((age - j) g[j]); g <= 0 and age >= n - 1 */

    /* s = exp(s - shift), at most moderate; returns the sum.  n <= 64: no more may be
     * added up in float. */
    exp_row_fn exp_row;

    max_row_fn max_row;           /* n >= 1 */
    mul_fn mul;                   /* x *= y */
    softmax_grad_fn softmax_grad; /* d = p (d - mean) */

    /* In place: s = p = exp(d) / sum, d = s - max; returns the log-sum-exp.  n >= 1.
     * entropy, unless NULL, becomes -sum p ln p, which is ln(sum) - sum exp(d) d / sum:
     * one more product per weight and no logarithm.  Both terms are >= 0, so nothing
     * cancels: a relative error of exp or of a sum enters once, and what a variant
     * gives is within 1e-6 * (1 + entropy) of the exact value.  Asking for it changes
     * no other bit. */
    softmax_fn softmax;

    log_sum_exp_fn log_sum_exp; /* the same bits as softmax returns; s stays */

    /* Writes key and value of one entry into its slot. k, v: [D]. */
    kv_store_fn kv_store;

    /* sum[i] += p[i]; max[i] = max(max[i], p[i]), unless max is NULL. */
    mass_add_fn mass_add;

    /* Selected sets of one row of weights 0 <= p <= 1, entries in order of time,
     * largest first, among equal weights the larger position first.
     * out[0..n_top): the K largest, all when n <= K.  out[n_top..): the smallest
     * set whose mass reaches tau times that of the row, where an entry counts
     * p / MASS_UNIT rounded to an integer (half to even), the sum of the row
     * stays below 8 (2^53 units: exact as a double) and mass >= tau * row decides
     * in double; all when the row has no mass.  1 <= K and 0 < tau <= 1, both
     * rising; n >= 1.  Every variant gives the same bits.
     * scratch: row_cuts_scratch(n) bytes, 64-byte aligned. */
    row_cuts_fn row_cuts;

    /* last[i] = t for the members i of the cut of the row p.  last: uint16_t for
     * width 2, uint32_t for width 4. */
    mark_fn mark;

    /* What mass_add and mark do with one row after the other, to the same bits.  Row r is that of
     * step t + r, its cuts are cut[r * n_cuts ..], of which the c-th is noted in last[c].  max is
     * not NULL. */
    mass_add_rows_fn mass_add_rows;
    mark_rows_fn mark_rows;

    /* sum[i] += the units of what enters - those of what leaves; units of 2^(k - 52) for
     * magic = 1.5 * 2^k, where no sum exceeds 2^k. */
    slide_fn slide;
    /* As slide, for the sum of weights 0 <= a < sqrt(2) and of their squares, in whole
     * SPREAD_UNITs, rounded half to even.  next_row, next_sum: as of a window_slide. */
    slide_spread_fn slide_spread;
    /* v[i] += mean + gamma times the unbiased variance (0 for one row) of `rows` weights
     * with these sums. */
    spread_fn spread;
    /* The sum of a[i] with from <= pos[i] < to: 16 partial sums of every 16th, then in
     * pairs of halves. */
    sum_between_fn sum_between;
    /* row[i] = (or +=, or max=) a[i] * scale. */
    take_share_fn take_share;

    /* out[i] = the largest of itself and of what each query gave: the scaled weights of its heads
     * added up in their order, or the largest.  pos is not read where everything was seen. */
    most_shares_fn most_shares;
    /* out[i] = the largest of x[i - half .. i + half], half <= i < n - half. */
    pool_max_fn pool_max;

    /* The first slot from i on, below n, with !(score > bar), as NaN is, and from <= pos < to
     * unless pos is NULL; n: none. */
    next_low_fn next_low;
    /* out[i] = (the sum in order, or the largest, of n_rows >= 1 sums[g * ld + i]) / divisor;
     * the same bits in every variant.  Asks for as many sums behind these. */
    reduce_sums_fn reduce_sums;
    /* out[i] = scale times what `slide` makes, from 0, of the n_rows rows of query t, which
     * lie ld floats apart. */
    sum_rows_fn sum_rows;

    /* Derivatives of swiglu by its inputs, from that by its output (set); d_gate may be
     * d_out. */
    swiglu_back_fn swiglu_back;

    /* dx += the derivative of rmsnorm by x, from dy, that by its output.  x, dy, dx: [T, C]. */
    rmsnorm_back_fn rmsnorm_back;

    /* sums[i] = sum over j <= i of exp((i - j) lb[j]), for the n tokens of one document;
     * lb finite, <= 0.  Summed in double; terms below exp(-88) may count as 0. */
    capacity_sums_fn capacity_sums;
    /* d_lb[j] = sum over i >= j of d_sums[i] (i - j) exp((i - j) lb[j]).  d_lb may be d_sums. */
    capacity_back_fn capacity_back;

    /* t NULL: only top_s and sum_s are set, the rest is 0.  n >= 1. */
    kl_part_fn kl_part;
    /* out[i] = exp(ds) (self + reverse (ds - dt - shift)) - forward exp(dt); t is read when
     * reverse or forward is not 0. */
    kl_back_fn kl_back;
};

size_t row_cuts_scratch(int n);

/* Fill every slot for the given CPU_* flags: the C reference first, then each
 * instruction set in rising order, each overriding what it implements. */
void kernels_init(struct kernels *k, unsigned cpu_flags);

/* Reads a mask of CPU_* flags in hexadecimal, with or without 0x.  Whether it is one. */
bool cpu_mask_parse(const char *text, unsigned *ret_mask);

/* Flags of the running CPU, limited by KVFATE_CPU_MASK (hex) when it is set:
 * the one place where the engine reads the environment.  A mask that is no number limits nothing.
 */
unsigned cpu_flags_detect(void);

#endif
