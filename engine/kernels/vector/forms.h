/* forms.h - dispatches products by the form of packed bytes, so that the form is a compile-time
 * constant. */
#pragma once

#include "engine/kernels/packed.h"

#ifdef ONE_FORM
/* With a check of each access, a compiler takes minutes for products of all forms. */
#define WITH_FORM(rows, w, ...) rows(__VA_ARGS__, packed_bits((w)->kind), (w)->n_fine)
#else
/* Calls rows(..., bits, fine) with constants for the form of w. 6-bit kinds have n_fine 2. */
#define WITH_FORM(rows, w, ...)                                                                    \
    do {                                                                                           \
        if ((w)->kind == PACK_Q6)                                                                  \
            rows(__VA_ARGS__, 6, 2);                                                               \
        else if ((w)->kind == PACK_Q4)                                                             \
            WITH_FINE(rows, w, 4, __VA_ARGS__);                                                    \
        else if ((w)->kind == PACK_Q5)                                                             \
            WITH_FINE(rows, w, 5, __VA_ARGS__);                                                    \
        else                                                                                       \
            WITH_FINE(rows, w, 8, __VA_ARGS__);                                                    \
    } while (0)

#define WITH_FINE(rows, w, bits, ...)                                                              \
    do {                                                                                           \
        if ((w)->n_fine == 0)                                                                      \
            rows(__VA_ARGS__, bits, 0);                                                            \
        else if ((w)->n_fine == 1)                                                                 \
            rows(__VA_ARGS__, bits, 1);                                                            \
        else                                                                                       \
            rows(__VA_ARGS__, bits, 2);                                                            \
    } while (0)
#endif
