/* blocks.h - the block formats of quantised rows in GGUF files. Private to the kernels.
 *
 * In every format 32 consecutive channels i of a row are
 *     w_i = (d s_h) q_i - (e n_h),    h = i / 16,
 * evaluated in f32 and in this order, which is the order of the published formulas. d and e are f16
 * numbers of the file, s and n small integers, and q has at most 8 bits. Formats with one scale for
 * 32 channels repeat it. e and n are 0 in formats without an offset. n is -1 where the format adds
 * the offset. */
#pragma once

#include "engine/kernels/packed.h"

/* Decoded numbers and scales of 32 consecutive channels, as in the equation above. */
struct span {
    int8_t q[QBLOCK];
    uint16_t d, e;
    int8_t s[2], n[2];
};

/* A block format of GGUF: its sizes, its decoder and the packed kind that it becomes. */
struct block_format {
    enum weight_type type;
    const char *name;
    int block, bytes; /* channels and bytes of a block; bytes 0: not supported */
    /* Only quantised formats set the members below. */
    void (*decode)(const uint8_t *block, int span, struct span *out); /* channels from 32 span */
    int lowest;            /* q >= lowest: 0, or minus a power of two in formats with e = 0 */
    int d_at;              /* byte offset of d in a block */
    enum packed_kind kind; /* has as many bits as q - lowest; 6-bit kinds have n_fine 2 */
    int n_fine;            /* number of (s, n) pairs in 32 channels; 0: s is always 1 */
};

/* Returns the format of a GGUF type, or NULL if the type is unknown. */
const struct block_format *block_format(unsigned type);
/* Returns the i-th format that has a name, or NULL after the last one. */
const struct block_format *block_format_at(size_t i);
