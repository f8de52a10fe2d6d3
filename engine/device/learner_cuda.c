/* learner_cuda.c - selects the training operations of a backend, in programs with CUDA kernels. */
#include "engine/train/learner.h"

const struct ops *learner_of(const struct backend *b)
{
    return b == &backend_cuda ? &ops_cuda : &ops_cpu;
}
