/* packed.h - weight matrices, repacked once at load for the matmul kernels.
 *
 * Rows of the matrix (output channels) are grouped into panels of 16, padded with zero rows. Within
 * a panel, input channels advance in blocks of 32.
 *
 * Quantised kinds are affine and unsigned: w = d * u + m, in two forms. If m is a fixed power of
 * two (-2 to -128) times d for the full matrix, m is not stored, because the product is exact.
 *
 * Plain form: one f16 d, and one f16 m unless it follows from d, per (row, block of 32). It
 * represents these file types without loss:
 *     Q4_1: u = q (0..15), d, m as stored       Q4_0: u = q, m = -8 d
 *     Q5_1: u = q (0..31), d, m as stored       Q5_0: u = q, m = -16 d
 *     Q8_0: u = q + 128,   m = -128 d           IQ4_NL: u = value + 128, m = -128 d
 * Fine form: scales are products of two numbers, d = d' s and m = m' n, exact in f32. d' and m' are
 * f16 per super-block of 256 channels. s and n are signed bytes per 32 channels (n_fine 1) or per
 * 16 channels (n_fine 2):
 *     Q4_K, Q5_K: n_fine 1   IQ4_XS: n_fine 1, u = value + 128, m' = -128 d', n = s
 *     Q2_K: n_fine 2         Q3_K, Q6_K: n_fine 2, u = q + 4, q + 32, m' = -4 d', -32 d', n = s
 * Sources of different forms are packed in the finer form, with d' and m' for each 32 channels.
 *
 * Then sum_k w x = d s_x sum(u q_x) + m s_x sum(q_x) for activations x = s_x q_x, q_x = 256 hi +
 * lo. This is an exact integer dot product, unsigned by signed bytes: |sum(u q_x)| <= 32 * 255 *
 * 32639 < 2^31.
 *
 * Bits per weight here (and in the file), for matrices packed from one type:
 *     Q4_0, Q4_1      4.5, 5  (4.5, 5)     Q4_K        4.625  (4.5)
 *     Q5_0, Q5_1      5.5, 6  (5.5, 6)     Q5_K        5.625  (5.5)
 *     Q8_0            8.5     (8.5)        Q6_K        6.5625 (6.5625)
 *     IQ4_NL          8.5     (4.5)        Q2_K, Q3_K  5.125, 4.5625 (2.625, 3.4375)
 *     F16, BF16, F32  16, 16, 32           IQ4_XS      8.3125 (4.25)
 *
 * Layout of one (panel, block) of a quantised matrix of B bits, 64 B bytes, 64-byte aligned:
 *     8 groups g of [16 rows][4 channels 4g..4g+3], byte [row*4 + c]. Q8 has 64 bytes per group.
 *     Other kinds store the low nibbles of groups 2i and 2i + 1 in the low and high halves of 64
 *     bytes. Then follow 64 bytes for each bit above the fourth: the bytes of a place have the
 *     high bits of all 8 groups in order, from the lowest bit of the first byte on.
 * Scales: scale[panel][block / super][2][16] f16, 16 d, then 16 m. The fine form adds
 * fine[panel][block][n_fine][2][16] int8, 16 s, then 16 n. Without m, only [16] d and [16] s. Float
 * kinds: data[panel][k][16] of f32, f16 or bf16.
 *
 * Words (I16): float weights as 16-bit integers, w = d u, with one bf16 d per (row, block of 64).
 * They are multiplied with 16-bit activations x = s_x q_x in blocks of 64 (struct wrows):
 *     sum_k w x = d s_x sum(u q_x),
 * 16.25 bits per weight. If K is not a multiple of 64, the last block is padded with zeros.
 *     data[panel][block][32 pairs][16 rows][2 channels] int16      2048 bytes of a block
 *     scale[panel][block][16] bf16
 * Every sum of products of a block, of all channels or some, in any order, fits in 32 bits. By
 * Cauchy and Schwarz |sum(u q)| <= |u| |q|, where |.| is the root of the sum of squares, and
 *     |q| <= 32767:  s_x is |x| / 32762 up to a relative error of 1e-7, so |x / s_x| < 32762.1, and
 *                    rounding each of 64 numbers by at most 1/2 adds at most sqrt(64) / 2 = 4;
 *     |u| <= 65535:  d is at least |w| / 65530, in the same way, and rounded up to bf16;
 *     65535 * 32767 = 2147385345 < 2^31.
 * Each number fits in 16 bits: |q_k| <= |q| <= 32767, and d is also at least max|w| / 32766. The
 * error of a weight is at most d / 2, of an activation at most s_x / 2. Blocks with |.| below
 * WORDS_TINY count as 0. A block with an infinity or NaN has the scale NaN, and so is every sum
 * that includes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kvf/err.h>

enum { PANEL = 16, QBLOCK = 32, WBLOCK = 64 };

/* Kinds of packed matrices: quantised kinds first, in rising order of bits. */
enum packed_kind { PACK_Q4, PACK_Q5, PACK_Q6, PACK_Q8, PACK_F32, PACK_F16, PACK_BF16, PACK_I16 };

/* A packed matrix; the layout is above. */
struct packed {
    enum packed_kind kind;
    int N, K;        /* rows (outputs) and columns (inputs) of the matrix */
    int n_panels;    /* ceil(N / 16) */
    int n_blocks;    /* K / 32 for quantised kinds, K / 64 rounded up for I16, else 0 */
    uint8_t *data;   /* owned */
    uint16_t *scale; /* owned; f16, bf16 for I16; NULL for float kinds */
    int8_t *fine;    /* owned; NULL if n_fine is 0 */
    int n_fine;      /* 0: plain form; 1, 2: (s, n) pairs per block */
    int super;       /* blocks that share d and m: 1, or 8 in the fine form */
    int lowest;      /* if not 0, m = lowest d and m is not stored */
    size_t bytes;    /* total of data, scale and fine */
    bool lent;       /* a pack_room owns the three arrays */
};

/* Source element types: values of GGUF's type field. */
enum weight_type {
    WEIGHT_F32 = 0,
    WEIGHT_F16 = 1,
    WEIGHT_Q4_0 = 2,
    WEIGHT_Q4_1 = 3,
    WEIGHT_Q5_0 = 6,
    WEIGHT_Q5_1 = 7,
    WEIGHT_Q8_0 = 8,
    WEIGHT_Q2_K = 10,
    WEIGHT_Q3_K = 11,
    WEIGHT_Q4_K = 12,
    WEIGHT_Q5_K = 13,
    WEIGHT_Q6_K = 14,
    WEIGHT_IQ4_NL = 20,
    WEIGHT_IQ4_XS = 23,
    WEIGHT_BF16 = 30
};

/* Returns the bytes of n consecutive elements of a type; 0 if the type is not supported or n is not
 * a multiple of its block. */
size_t weight_bytes(enum weight_type type, size_t n);
/* Returns the elements per block: 256 for Q2_K to Q6_K and IQ4_XS, 32 for other quantised types, 1
 * for floats; 0 if the type is not supported. */
int weight_block(unsigned type);
/* Returns the name of a type, for example "Q4_1", or "unknown". */
const char *weight_type_name(unsigned type);
/* Sets the i-th type that has a name; returns false after the last one. weight_block() of a type
 * without support is 0. */
bool weight_type_at(size_t i, enum weight_type *ret);
/* Writes the names of all supported types, for example "F32, F16 and Q8_0", to out[cap], always
 * terminated. */
void weight_types_read(char *out, size_t cap);

/* Dequantises n elements (full blocks) at src to f32, with the same bits as the published formula
 * of the type evaluated in f32. */
void weight_dequant(float *out, const void *src, enum weight_type type, size_t n);

/* One source matrix [n_rows, K] of a packed matrix. Several sources can be joined (QKV, gate and
 * up); all share K. */
struct pack_source {
    const void *data;
    enum weight_type type;
    int n_rows;
};

/* Returns true if the matrix has a quantised kind with scales per 32 channels. */
static inline bool packed_quantised(const struct packed *w)
{
    return w->kind <= PACK_Q8;
}

/* Returns the bits per weight of a quantised kind: 4, 5, 6 or 8. */
static inline int packed_bits(enum packed_kind kind)
{
    return kind == PACK_Q8 ? 8 : 4 + (int)kind;
}

/* How sources are packed.
 *
 *   - PACK_AS_STORED: quantised sources become the smallest quantised kind that represents all of
 *     them. F16 and BF16 keep 16 bits. Floats joined with quantised or other float types become
 *     F32. So does a source with scales larger than in real models (32 d or 128 d above the
 *     largest f16 number).
 *   - PACK_EXACT: always F32.
 *   - PACK_WORDS: as PACK_AS_STORED, but F16, BF16 and F32 become I16. */
enum pack_how { PACK_AS_STORED, PACK_EXACT, PACK_WORDS };

/* Packs the sources, stacked by rows. Returns KVF_OK or KVF_E_NOMEM; on failure *ret is zeroed. */
int packed_build(const struct pack_source *src, int n_src, int K, enum pack_how how,
                 struct packed *ret);
/* Returns the bytes that packed_build needs for the sources. Data may be NULL; then no scale of
 * that source counts as too large for f16. */
size_t packed_bytes(const struct pack_source *src, int n_src, int K, enum pack_how how);
/* Returns the panels [p0, p0 + n) as a matrix that borrows from w. */
struct packed packed_part(const struct packed *w, int p0, int n);
/* Frees the arrays of p; accepts a zeroed struct. */
void packed_finish(struct packed *p);

/* Activations quantised for matmul_q: x = scale * q, q = 256 hi + lo. 16 bits are stored as two
 * signed bytes, so that int8 dot products can be used. 8-bit rows have one byte, q = hi. They cost
 * 3e-3 nats per token on a model of 135M weights (docs/reference/parity.md). For 8-bit rows, m =
 * lowest d saves a float product:
 *     sum_k w x = d s_x (sum(u q_x) + lowest sum(q_x)),
 * an exact integer below 2^24. Hence such rows are made for matrices with one value of `lowest`. */
struct qrows {
    int8_t *q;    /* [T][K/32][2][32]: hi, then lo; 8-bit rows: [T][K/32][32] */
    float *scale; /* [T][K/32] */
    /* sum: [T][K/32] scale * sum of q over the block. half: [T][K/32][2] the sums over channels
     * 0..15 and 16..31. If qrows_low(), low and half_low: lowest * sum of q. */
    union {
        float *sum;
        int32_t *low;
    };
    union {
        float *half;
        int32_t *half_low;
    };
    int K;
    bool hi_alone; /* 8 bits; quant_rows reads it and `lowest` */
    int lowest;    /* `lowest` of the matrix */
};
/* Returns the rows from t on, borrowed from q. */
struct qrows qrows_from(const struct qrows *q, size_t t);
/* Returns the bytes of q per row and block. */
static inline size_t qrows_bytes(const struct qrows *q)
{
    return q->hi_alone ? QBLOCK : 2 * QBLOCK;
}
/* Returns true if the sums are integers (low, half_low). */
static inline bool qrows_low(const struct qrows *q)
{
    return q->hi_alone && q->lowest;
}

/* Sets the sums of block b from the sums of q over its halves. Its scale must be set. */
static inline void qrows_sums(struct qrows *q, size_t b, int sum0, int sum1)
{
    if (qrows_low(q)) {
        q->low[b] = q->lowest * (sum0 + sum1);
        q->half_low[2 * b] = q->lowest * sum0;
        q->half_low[2 * b + 1] = q->lowest * sum1;
        return;
    }
    q->sum[b] = q->scale[b] * (float)(sum0 + sum1);
    q->half[2 * b] = q->scale[b] * (float)sum0;
    q->half[2 * b + 1] = q->scale[b] * (float)sum1;
}

/* Largest |q| for 16 and 8 bits. Blocks with max |x| below QROWS_TINY count as 0. */
#define QROWS_MAX 32512.0f
#define QROWS_MAX_8 127.0f
#define QROWS_TINY 1e-30f

/* Activations as 16-bit integers for matmul_words: x = scale * q, see "Words" above. */
struct wrows {
    int16_t *q;   /* [T][blocks][64], zeros after channel K */
    float *scale; /* [T][blocks] */
    int K;
};
/* Returns the blocks of 64 channels of a row of K channels. */
static inline size_t words_blocks(int K)
{
    return ((size_t)K + WBLOCK - 1) / WBLOCK;
}
/* Returns the rows from t on, borrowed from q. */
struct wrows wrows_from(const struct wrows *q, size_t t);

#define WORDS_NORM_X 32762.0
#define WORDS_NORM_W 65530.0
#define WORDS_MOST_W 32766.0f
#define WORDS_TINY 1e-30

/* Converts an f16 number to f32. */
float half_to_float(uint16_t h);
/* Rounds to nearest even. */
uint16_t float_to_half(float f);
/* Converts a bf16 number. */
static inline float brain_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
