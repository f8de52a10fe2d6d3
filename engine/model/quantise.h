/* quantise.h - quantizes rows of floats to the types of a GGUF file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "engine/kernels/packed.h"

/* Writes n elements, complete blocks of the type (F32, F16, Q8_0, Q4_1 or Q4_K), to out
 * (weight_bytes(type, n) bytes). F16 rounds to nearest even. Q8_0 uses d = max|x| / 127 and Q4_1
 * uses d = (max - min) / 15, m = min, per block of 32. Levels are rounded with d before it is
 * rounded to f16, as in the reference quantizers of ggml. Q4_K is in quantise_k.c. Values outside
 * the range of f16 become infinite; the caller must check for them. */
void weight_quantise(void *out, const float *x, enum weight_type type, size_t n);

/* Quantizes a block of Q4_K: 256 values to 144 bytes. */
void weight_quantise_q4_k(void *out, const float *x);
