/* rope.h - private to engine/model: the RoPE angles of a model. */
#pragma once

#include "engine/model/config.h"

/* Sets theta, rope_attn_factor, turns_scaled and n_ctx_orig of a config with known sizes, base and
 * windows:
 *     theta_j = base^(-2 j / rope_dim) / factor_j
 * The factors are the tensors rope_freqs, or rope_factors_short and rope_factors_long, or one
 * factor for all (linear scaling), or those of YaRN, which may raise n_ctx. Returns KVF_OK, or
 * KVF_E_FORMAT with a sentence.
 */
int rope_read(const struct gguf *g, struct model_config *m, struct kvf_diag *d);

/* Parameters of YaRN: the training length, and the factor of the longer context. Pairs with at
 * least `fast` rotations in the training length keep their angle. Pairs with at most `slow`
 * rotations are divided by the complete factor. */
struct rope_yarn {
    double original, factor, fast, slow;
    bool exact_bounds; /* the bounds of the ramp are not rounded to integers */
};

/* Scales the plain and the long angles, and their gain (rope_scale.h has the equations). */
void rope_yarn(struct model_config *m, const struct rope_yarn *y);
