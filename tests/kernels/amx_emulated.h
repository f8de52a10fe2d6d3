/* amx_emulated.h - byte matrix multiplications with emulated tiles, for one thread. */
#ifndef KVF_TESTS_AMX_EMULATED_H
#define KVF_TESTS_AMX_EMULATED_H

#include "engine/kernels/kernels.h"

DECL_MATMUL_Q(matmul_q_amx_emulated);

/* Returns the number of tile products since the last call. */
long emulated_products(void);

/* Describes the first operation that a CPU would reject; NULL if there is no such operation. */
const char *emulated_wrong(void);

#endif
