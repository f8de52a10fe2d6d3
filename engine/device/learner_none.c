/* learner_none.c - selects the CPU's training operations, in programs without CUDA kernels. */
#include "engine/train/learner.h"

const struct ops *learner_of(const struct backend *b)
{
    (void)b;
    return &ops_cpu;
}
