#include "engine/train/learner.h"

const struct ops *learner_of(const struct backend *b)
{
    return b == &backend_cuda ? &ops_cuda : &ops_cpu;
}
