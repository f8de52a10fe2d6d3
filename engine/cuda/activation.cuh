/* activation.cuh - activation functions of the feed-forward layers. */
#ifndef KVF_ENGINE_CUDA_ACTIVATION_CUH
#define KVF_ENGINE_CUDA_ACTIVATION_CUH

#include "engine/cuda/device.cuh"

DEVICE float silu(float g)
{
    return g / (1.0f + expf(-g));
}

DEVICE float gelu_of(float g)
{
    float u = 0.7978845608f * (g + 0.044715f * g * g * g);
    return 0.5f * g * (1.0f + tanhf(u));
}

DEVICE float activation(float gate, bool gelu)
{
    return gelu ? gelu_of(gate) : silu(gate);
}

#endif
