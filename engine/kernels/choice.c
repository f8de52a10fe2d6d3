/* choice.c - the C reference of the kernels that select entries. */
#include "engine/kernels/kernels_ref.h"

#define CHOICE(name) name##_ref
#include "engine/kernels/choice_rows.h"

int next_low_ref(const float *score, const int32_t *pos, int i, int n, int32_t from, int32_t to,
                 float bar)
{
    for (; i < n; i++)
        if (!(score[i] > bar) && (!pos || (pos[i] >= from && pos[i] < to)))
            return i;
    return n;
}
