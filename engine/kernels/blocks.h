/* blocks.h - private to the kernels: the block formats in which GGUF files hold quantised rows.
 *
 * Whatever the format, 32 consecutive channels i of a row are
 *     w_i = (d s_h) q_i - (e n_h),    h = i / 16,
 * in f32 and in this order, which is the order of the published formulas: d and e are f16 of
 * the file, s and n small integers, q at most 8 bits.  Formats with one scale for 32 channels
 * repeat it; e and n are 0 in formats that have no offset, and n is -1 where m is added. */
#ifndef KVF_ENGINE_BLOCKS_H
#define KVF_ENGINE_BLOCKS_H

#include "engine/kernels/packed.h"

struct span {
    int8_t q[QBLOCK];
    uint16_t d, e;
    int8_t s[2], n[2];
};

struct block_format {
    enum weight_type type;
    const char *name;
    int block, bytes; /* channels and bytes of a block; bytes 0: named, but not read */
    /* The rest is of quantised formats alone. */
    void (*decode)(const uint8_t *block, int span, struct span *out); /* channels 32 span ... */
    int lowest;            /* q >= lowest: 0, or minus a power of two in formats with e = 0 */
    int d_at;              /* where d lies in a block */
    enum packed_kind kind; /* of as many bits as q - lowest has; of 6 bits n_fine is 2 */
    int n_fine;            /* different (s, n) in 32 channels; 0: s is 1 everywhere */
};

const struct block_format *block_format(unsigned type); /* NULL: unknown */
/* The i-th of all formats that have a name; NULL after the last. */
const struct block_format *block_format_at(size_t i);

#endif
