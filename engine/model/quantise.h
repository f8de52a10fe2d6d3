/* quantise.h - rows of floats as a GGUF file stores them, by the published quantisers. */
#ifndef KVF_ENGINE_QUANTISE_H
#define KVF_ENGINE_QUANTISE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/kernels/packed.h"

/* Whether weight_quantise knows a type: F32, F16, Q8_0, Q4_1 and Q4_K. */
bool weight_can_quantise(enum weight_type type);

/* Writes n elements, whole blocks of the type, to out (weight_bytes(type, n)).  F16 rounds to
 * nearest even; Q8_0 takes d = max|x| / 127 and Q4_1 d = (max - min) / 15, m = min of each block of
 * 32, levels rounded with the d that is not yet rounded to f16, as the reference quantisers of ggml
 * do; Q4_K is quantise_k.c.  Values that f16 cannot hold become infinite: the caller looks for
 * them. */
void weight_quantise(void *out, const float *x, enum weight_type type, size_t n);

/* A block of Q4_K: 256 values to 144 bytes. */
void weight_quantise_q4_k(void *out, const float *x);

#endif
