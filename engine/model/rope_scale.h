/* rope_scale.h - RoPE scaling for texts longer than the training length of a model.
 *
 * theta_j is the angle per position of pair j of d rotary dimensions, and L is the model's
 * context:
 *
 *   linear:F  theta_j / F (position interpolation, Chen et al. 2023)
 *   ntk:F     theta_j F^(-2 j / (d - 2)): the base grows by F^(d / (d - 2)), so that the slowest
 *             pair is divided by F and the fastest does not change (NTK-aware scaling)
 *   yarn:F    theta_j ((1 - r_j) + r_j / F) with the ramp r_j = (j - low) / (high - low), clamped
 *             to 0 .. 1, from the pair with 32 rotations in L tokens (low, rounded down) to the
 *             pair with one (high, rounded up); cosines and sines times 1 + 0.1 ln F
 *             (Peng et al. 2023)
 *
 * The results equal those of llama.cpp and the transformers library. Sliding-window layers with
 * their own angles keep them. The context becomes F L.
 */
#pragma once

#include <stdbool.h>

#include <kvf/err.h>

enum rope_scale_kind { ROPE_SCALE_NONE, ROPE_SCALE_LINEAR, ROPE_SCALE_NTK, ROPE_SCALE_YARN };

/* A kind of scaling and its factor. */
struct rope_scale {
    enum rope_scale_kind kind;
    double factor; /* 1 .. 1024 */
};

struct model_config;

/* Parses "linear:4", "ntk:2.5" or "yarn:4". Returns KVF_OK, or KVF_E_ARG with a sentence. */
int rope_scale_parse(const char *text, struct rope_scale *ret, struct kvf_diag *d);
/* Writes the text that rope_scale_parse() reads. */
void rope_scale_text(const struct rope_scale *scale, char out[32]);
/* Scales the angles and the context of a loaded model. Returns KVF_OK, or KVF_E_ARG with a
 * sentence if its file scales them already. */
int rope_scale_apply(const struct rope_scale *scale, struct model_config *m, struct kvf_diag *d);
