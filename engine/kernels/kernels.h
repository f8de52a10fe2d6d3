/* kernels.h - the table of compute kernels and the functions that fill it.
 *
 * Sizes: T rows (tokens), K input channels, N output channels, D head dimension, S slots. Matrices
 * are row-major. Kernels never allocate, never log and never fail. Sizes are validated when the
 * model is loaded.
 *
 * Contract of the engine: THE RESULT OF A ROW DEPENDS ONLY ON THAT ROW. Row t of matmul, attn_qk
 * and attn_av has the same bits in a batch of 1 or of 512, at any tile position and on any thread.
 * Each output is summed in one fixed order. Hence results do not depend on the chunk size or the
 * number of threads.
 *
 * Weights are packed once at load (packed.h). The C reference (flags = 0) is the definition. SIMD
 * variants agree with it within the rounding stated in the tests. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kv_page.h"
#include "engine/kernels/packed.h"

/* Instruction set flags. x86-64 and aarch64 use separate bit assignments. */
enum {                            /* every other flag implies AVX2; AMX implies AVX-512 */
       CPU_X86_AVX2 = 1u << 0,    /* AVX2 + FMA + F16C */
       CPU_X86_AVX512 = 1u << 1,  /* F + BW + DQ + VL + VNNI */
       CPU_X86_AVXVNNI = 1u << 2, /* 256-bit int8 products; same bits as AVX2 */
       CPU_X86_AMX = 1u << 3,     /* int8 products in tiles; same bits as AVX-512 */
};
enum {
    CPU_ARM_NEON = 1u << 0, /* every aarch64; same bits as AVX2 */
    CPU_ARM_DOT = 1u << 1,  /* int8 products with dot-product instructions; same bits */
};

/* attn_qk, attn_av and kv_store read and write half pages (kv_page.h). */
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
/* Queries quantised for pages of integers: rows of kv_channels(type, D) numbers, padded with 0.
 * i16: int16_t, |q| <= KV_I16_MOST, times scale[t]. q8_0: int8_t, |q| <= KV_Q8_MOST; scale and sum
 * of block b of row t are at t * kv_blocks(D) + b. */
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
/* Bounds for integer products: KV_I16_MOST^2 * INT_CHANNELS and (INT_WEIGHT + 1) * KV_I16_MOST *
 * PAGE_SLOTS are below 2^31. */
enum { INT_CHANNELS = 128, INT_WEIGHT = 8191 };
/* Keys of a page. next: keys of the page that is read afterwards, or NULL. Kernels prefetch it to
 * hide memory latency. */
struct kv_keys {
    const void *page;
    enum kv_type type;
    const void *next;
};
/* Values of a page that attn_av sums: the first n_slots slots and channels [d0, d1) of D. For a
 * subset of channels, d0 and d1 are multiples of KV_BLOCK, or d1 is D. next: as in struct kv_keys.
 */
struct kv_values {
    const void *page;
    enum kv_type type;
    int D, d0, d1, n_slots;
    const void *next;
};
/* Running attention sums over pages of integers, page by page. out is the sum of weights times
 * values. sum is the sum of the weights in ATTN_LANES partial sums. The weights are 2^(score
 * log2(e) - top). A row starts with zeros and top ATTN_LEAST, and ends with out / sum (attn_mean).
 */
enum { ATTN_LANES = 16 };
#define ATTN_LEAST -1e30f /* smaller scores are replaced by this value */
struct attn_sums {
    float *out; /* [T][ld] */
    size_t ld;
    float *sum; /* [T][ATTN_LANES] */
    float *top; /* [T] */
};
/* Adds a page: row t sees its first v->n_slots + t * grow slots, clamped to 0 .. PAGE_SLOTS. Slots
 * with a score of -INFINITY or NaN are skipped. */
#define DECL_ATTN_ADD(name)                                                                        \
    void name(const struct attn_sums *to, const float *scores, size_t ld_s, int T, int grow,       \
              const struct kv_values *v)
/* c[i * ld_c + j] = sum_k a[i * a_row + k * a_col] * b[k * ld_b + j], i < m, j < n. Strides allow a
 * transposed a. add: the sum starts with c instead of 0. */
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
/* A selected set of a row. Entry i belongs to it if p[i] > threshold, or if p[i] == threshold and i
 * >= first_tie. first_tie is 0 if all entries of that weight belong to it. {0, 0, n} selects the
 * full row. */
struct row_cut {
    float threshold;
    int first_tie;
    int count; /* number of members */
};

static inline int row_cut_has(const struct row_cut *c, float p, int i)
{
    return p > c->threshold || (p == c->threshold && i >= c->first_tie);
}

/* Masses are integers in units of 2^-50. Integer sums are exact and do not depend on the order of
 * summation, so every variant decides equally. */
#define MASS_UNIT 0x1p-50
#define DECL_ROW_CUTS(name)                                                                        \
    void name(const float *p, int n, const int *top_k, int n_top, const double *tau, int n_tau,    \
              struct row_cut *out, void *scratch)
#define DECL_MARK(name)                                                                            \
    void name(void *last, int width, const float *p, int n, const struct row_cut *cut, uint32_t t)
#define DECL_MEMBER_BITS(name)                                                                     \
    void name(uint64_t *bits, size_t ld, const float *p, int n, const struct row_cut *cut,         \
              int n_cuts)
#define DECL_COUNT_BELOW(name) int name(const float *p, int n, float bar)
/* Weight rows of consecutive queries. Row r, at p + r * ld, has n + r entries and is padded with 0
 * up to the length of the last row. */
struct weight_rows {
    const float *p;
    size_t ld;
    int n, n_rows;
};
#define DECL_MASS_ADD_ROWS(name) void name(double *sum, float *max, const struct weight_rows *rows)
#define DECL_MARK_ROWS(name)                                                                       \
    void name(void *const *last, int width, const struct weight_rows *rows,                        \
              const struct row_cut *cut, int n_cuts, uint32_t t)

/* Sums over a part of one row of logits, s of the student and t of the teacher, with top = max, ds
 * = s - top_s, dt = t - top_t. */
struct kl_part {
    float top_s, top_t;
    double sum_s, sum_t;     /* sum of exp(ds), of exp(dt) */
    double cross_s, cross_t; /* sum of exp(ds) (ds - dt), of exp(dt) (dt - ds) */
};

/* Coefficients of kl_back. ds and dt use the maxima of the full row. */
struct kl_coef {
    float top_s, top_t;
    float self, reverse, shift, forward;
};
#define DECL_CAPACITY_SUMS(name) void name(float *sums, const float *lb, int n)
#define DECL_CAPACITY_BACK(name) void name(float *d_lb, const float *lb, const float *d_sums, int n)
#define DECL_KL_PART(name) void name(struct kl_part *out, const float *s, const float *t, int n)
#define DECL_KL_BACK(name)                                                                         \
    void name(float *out, const float *s, const float *t, int n, const struct kl_coef *c)
/* Attention rows of an observation window (engine/method/window.c), indexed by slot. Entries with
 * pos > t count as 0 in the row of query t, whatever the row contains. Every variant gives the same
 * bits. */
struct window_pair { /* a query that enters the window and a query that drops out of it */
    const float *in, *out;
    int32_t t_in, t_out; /* INT32_MIN: no query; the row is any n readable floats */
};

/* Window sums and the n_pairs pairs that update them. next_row and next_sum are distances in
 * elements to the data that is read next, for prefetching only. */
struct window_slide {
    double *sum;
    float *out; /* receives scale times the sums; may be NULL */
    const struct window_pair *pair;
    const int32_t *pos;
    int n_pairs, n;
    double magic, scale;
    size_t next_row, next_sum;
};

/* Window rows of several query heads at equal strides, with the factor of each weight. Row r of
 * head g starts at g * ld_head + r * ld floats. Row `newest` has age 0. Rows of age first .. end -
 * 1 count. */
struct window_shares {
    const float *weight;
    size_t ld_head, ld, next; /* next: prefetch distance as next_row above; 0: no prefetch */
    const float *scale;       /* [n_heads * ring][2], only the first of two is used */
    const int32_t *t;         /* [n_heads * ring] the queries; NULL: they saw every entry */
    int n_heads, ring, newest, first, end;
    bool max; /* maximum over the heads instead of the sum */
};

/* How take_share combines scaled weights with a row: overwrite, add, or maximum. */
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

#define KERNEL(name, DECL) typedef DECL((*name##_fn));
#include "engine/kernels/kernels.list"
#undef KERNEL

/* The table of kernels. kernels_init() sets every member. */
struct kernels {
    /* out[t,c] = x[t,c] * w[c] / sqrt(mean_c(x[t,:]^2) + eps); out may be x. */
    rmsnorm_fn rmsnorm;

    /* Symmetric 16-bit quantisation per block of 32 channels: scale = max|x| / 32512,
     *   q = round-half-even(x * (32512 / max|x|)) (0 for an all-zero block),
     *   lo = q as a signed byte, hi = (q - lo) / 256, sum = scale * sum of q.
     * With hi_alone, q becomes 256 hi and lo is 0. K is a multiple of 32. */
    quant_rows_fn quant_rows;
    /* 16-bit quantisation per block of 64 channels of a row, any K (packed.h): scale = |x| / 32762,
     * q = round-half-even(x * (1 / scale)). |x| is the root of the block's sum of squares in
     * double. q is 0 in blocks that are 0, too small or contain NaN or infinity. */
    quant_words_fn quant_words;

    /* out[t, 16*p + r] = sum_k x[t,k] * w[16*p + r, k] for the 16-row panels p = panel0 ..
     * panel0+n_panels-1. ld_out: floats between rows of out, at least 16 * (panel0 + n_panels).
     * Padding outputs (rows >= w->N) are written as 0. matmul_q: quantised kinds. matmul_f: F32,
     * F16, BF16. matmul_words: I16, block sums in order, each acc = fma(d * s_x, sum, acc). */
    matmul_q_fn matmul_q;
    matmul_f_fn matmul_f;
    matmul_words_fn matmul_words;

    /* Rotates pairs (2j, 2j+1), j < n_rot/2, of each head of one token (the "llama" layout of GGUF:
     * interleaved pairs). x: [n_heads, D]. cos_sin: [n_rot/2][2] = cos, sin of position * theta_j.
     */
    rope_fn rope;

    swiglu_fn swiglu; /* out = gate / (1 + exp(-gate)) * up; out may be gate */
    /* out = g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) / 2 * up, g = gate; out may be gate. */
    swiglu_fn geglu;
    soft_cap_fn soft_cap; /* x = cap tanh(x / cap), cap > 0 */
    add_fn add;           /* x += y */

    /* scores[t * ld_s + s] = scale * sum_d q[t*ld_q + d] * K[d][s] for all PAGE_SLOTS slots of the
     * page. Unused slots give unspecified values, finite or not, which the caller never reads.
     * Pages of integers are multiplied as floats, too. */
    attn_qk_fn attn_qk;

    /* Scores with integer products for pages of i16 and q8_0 (kv_page.h). Every variant gives the
     * same bits. attn_queries quantises queries as a page quantises keys, with f32 scales.
     * attn_scores adds (sum q K) * scale of the key * (scale of the query * scale), for i16 per
     * INT_CHANNELS channels, for q8_0 per KV_BLOCK channels and fused. Sums stay below 2^31. */
    attn_queries_fn attn_queries;
    attn_scores_fn attn_scores;

    /* out[t*ld_out + d] += sum_{s < n_slots} p[t*ld_p + s] * V[s][d], slots in rising order, d0 <=
     * d < d1. For an i16 page, p times the scale of its value is rounded to an integer of at most
     * INT_WEIGHT with one scale per row. The integer sum times that scale is added at once (fused).
     * Every variant gives the same bits. */
    attn_av_fn attn_av;
    attn_add_fn attn_add; /* pages of i16 and q8_0 */

    /* Used by training. Multiplies two small dense matrices, k in rising order, one fused
     * multiply-add per step. Every variant gives the same bits. c must not overlap a or b. */
    tile_mul_fn tile_mul;

    add_aged_fn add_aged; /* y[j] += (age - j) x[j], fused */
    exp_aged_fn exp_aged; /* w[j] = exp((age - j) g[j]); g <= 0 and age >= n - 1 */

    /* s = exp(s - shift), for moderate s - shift; returns the sum. n <= 64, because the sum is in
     * float. */
    exp_row_fn exp_row;

    max_row_fn max_row;           /* n >= 1 */
    mul_fn mul;                   /* x *= y */
    softmax_grad_fn softmax_grad; /* d = p (d - mean) */

    /* In place: s = p = exp(d) / sum, d = s - max. Returns the log-sum-exp. n >= 1. If entropy is
     * not NULL, it becomes -sum p ln p = ln(sum) - sum exp(d) d / sum, which needs one product per
     * weight and no logarithm. Both terms are >= 0, so they do not cancel. Hence every variant is
     * within 1e-6 * (1 + entropy) of the exact value. A request for the entropy changes no other
     * bit. */
    softmax_fn softmax;

    log_sum_exp_fn log_sum_exp; /* same bits as the result of softmax; s is not changed */

    /* Writes key and value of one entry into its slot. k, v: [D]. */
    kv_store_fn kv_store;

    /* sum[i] += p[i]; max[i] = max(max[i], p[i]) unless max is NULL. */
    mass_add_fn mass_add;

    /* Selects sets of one row of weights 0 <= p <= 1, entries in order of time. Larger weights
     * precede, and equal weights are in falling order of position.
     *
     *   - out[0..n_top): the K largest entries; all if n <= K.
     *   - out[n_top..): the smallest set with mass >= tau times the mass of the row; all if the row
     *     has no mass.
     *
     * The mass of an entry is p / MASS_UNIT rounded half to even. The sum of a row must be below 8
     * (2^53 units, exact as a double). The comparison mass >= tau * row is in double.
     * 1 <= K and 0 < tau <= 1, both rising; n >= 1. Every variant gives the same bits. scratch:
     * row_cuts_scratch(n) bytes, 64-byte aligned. */
    row_cuts_fn row_cuts;

    /* last[i] = t for the members i of the cut of the row p. last: uint16_t for width 2, uint32_t
     * for width 4. */
    mark_fn mark;

    /* Bit i % 64 of bits[c * ld + i / 64] = entry i of the row p is a member of cut[c]. Writes
     * (n + 63) / 64 words per cut; bits from n on are 0. */
    member_bits_fn member_bits;

    count_below_fn count_below; /* number of weights p[i] < bar */

    /* Apply mass_add and mark to consecutive rows, with the same bits. Row r belongs to step t + r.
     * Its cuts are cut[r * n_cuts ..], and cut c is noted in last[c]. max must not be NULL. */
    mass_add_rows_fn mass_add_rows;
    mark_rows_fn mark_rows;

    /* sum[i] += (units of the entering weight) - (units of the leaving weight), for magic = 1.5 *
     * 2^k. The unit is 2^(k - 52), and no sum may exceed 2^k. */
    slide_fn slide;
    /* Slides the sum of weights 0 <= a < sqrt(2) and the sum of their squares, in integer
     * SPREAD_UNITs, rounded half to even. next_row, next_sum: as in window_slide. */
    slide_spread_fn slide_spread;
    /* v[i] += mean + gamma times the unbiased variance (0 for one row) of `rows` weights with these
     * sums. */
    spread_fn spread;
    /* Returns the sum of a[i] with from <= pos[i] < to: 16 strided partial sums, then pairwise
     * halves. */
    sum_between_fn sum_between;
    /* row[i] = (or +=, or max=) a[i] * scale. */
    take_share_fn take_share;

    /* out[i] = max of out[i] and the value of each query: the sum of the scaled weights of
     * its heads in order, or their maximum. pos is not read if every entry was seen. */
    most_shares_fn most_shares;
    /* out[i] = max of x[i - half .. i + half], half <= i < n - half. */
    pool_max_fn pool_max;

    /* Returns the first slot from i on, below n, with !(score > bar) (true for NaN) and, unless pos
     * is NULL, from <= pos < to. Returns n if there is no such slot. */
    next_low_fn next_low;
    /* out[i] = (sum in order, or maximum, of n_rows >= 1 sums[g * ld + i]) / divisor. Every variant
     * gives the same bits. Prefetches as many sums after these. */
    reduce_sums_fn reduce_sums;
    /* out[i] = scale times the sum that `slide` would make, starting with 0, of the n_rows rows of
     * query t at stride ld floats. */
    sum_rows_fn sum_rows;

    /* Gradients of swiglu with respect to its inputs (overwritten), from d_out. d_gate may be
     * d_out. */
    swiglu_back_fn swiglu_back;
    swiglu_back_fn geglu_back; /* those of geglu */

    /* dx += gradient of rmsnorm with respect to x, from the output gradient dy. x, dy, dx: [T,
     * C]. */
    rmsnorm_back_fn rmsnorm_back;

    /* sums[i] = sum over j <= i of exp((i - j) lb[j]) for the n tokens of one document; lb finite,
     * <= 0. Summed in double. Terms below exp(-88) may count as 0. */
    capacity_sums_fn capacity_sums;
    /* d_lb[j] = sum over i >= j of d_sums[i] (i - j) exp((i - j) lb[j]). d_lb may be d_sums. */
    capacity_back_fn capacity_back;

    /* With t NULL, only top_s and sum_s are set and the rest is 0. n >= 1. */
    kl_part_fn kl_part;
    /* out[i] = exp(ds) (self + reverse (ds - dt - shift)) - forward exp(dt). t is read only if
     * reverse or forward is not 0. */
    kl_back_fn kl_back;
};

/* Returns the bytes of scratch memory that row_cuts needs for n entries. */
size_t row_cuts_scratch(int n);

/* Fills the table for the given CPU_* flags: the C reference first, then each instruction set in
 * rising order, which overrides the kernels that it implements. */
void kernels_init(struct kernels *k, unsigned cpu_flags);

/* Parses a hexadecimal mask of CPU_* flags, with or without 0x. Returns false if the text is not
 * one. */
bool cpu_mask_parse(const char *text, unsigned *ret_mask);

/* Returns the flags of the running CPU, limited by KVFATE_CPU_MASK (hexadecimal) if it is set. No
 * other code of the engine reads the environment. An invalid mask is ignored. */
unsigned cpu_flags_detect(void);
