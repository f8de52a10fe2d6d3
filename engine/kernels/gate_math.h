/* gate_math.h - the formulas of gate networks: activations and output functions, and their
 * derivatives.  One definition for C and for CUDA. */
#pragma once

#include <math.h>

#include "engine/kernels/formula.h"

/* Epsilon of the norms of a network's inputs, as in the published code of WG-KV.  It does not
 * follow the model's norms. */
#define GATE_NORM_EPS 1e-6f

enum gate_activation { GATE_ACT_NONE, GATE_ACT_SILU, GATE_ACT_GELU, GATE_ACT_RELU };
/* The output function of a network: the logit z itself, log sigmoid(z) or sigmoid(z). */
enum gate_output { GATE_OUT_LOGIT, GATE_OUT_LOG_SIGMOID, GATE_OUT_SIGMOID };

FORMULA_FN float gate_activate(enum gate_activation a, float x)
{
    if (a == GATE_ACT_SILU)
        return x / (1.0f + expf(-x));
    if (a == GATE_ACT_GELU) /* x Phi(x), the exact form */
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    if (a == GATE_ACT_RELU)
        return x > 0 ? x : 0.0f;
    return x;
}

/* Returns the derivative of gate_activate() at x. */
FORMULA_FN float gate_activate_slope(enum gate_activation a, float x)
{
    if (a == GATE_ACT_SILU) {
        float s = 1.0f / (1.0f + expf(-x));
        return s * (1.0f + x * (1.0f - s));
    }
    if (a == GATE_ACT_GELU) /* Phi(x) + x phi(x) */
        return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
    if (a == GATE_ACT_RELU)
        return x > 0 ? 1.0f : 0.0f;
    return 1.0f;
}

/* log sigmoid(z) = min(z, 0) - log(1 + exp(-|z|)), which is exact to f32 near 0. */
FORMULA_FN float gate_output(enum gate_output out, float z)
{
    if (out == GATE_OUT_LOG_SIGMOID)
        return (z < 0 ? z : 0.0f) - log1pf(expf(-fabsf(z)));
    return out == GATE_OUT_SIGMOID ? 1.0f / (1.0f + expf(-z)) : z;
}

/* Returns the derivative of gate_output() at z. */
FORMULA_FN float gate_output_slope(enum gate_output out, float z)
{
    float g = 1.0f / (1.0f + expf(-z));
    if (out == GATE_OUT_LOG_SIGMOID)
        return 1.0f / (1.0f + expf(z));
    return out == GATE_OUT_SIGMOID ? g * (1.0f - g) : 1.0f;
}
