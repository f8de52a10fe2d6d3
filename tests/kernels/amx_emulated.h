/* amx_emulated.h - products of bytes with emulated tiles.  One thread. */
#ifndef KVF_TESTS_AMX_EMULATED_H
#define KVF_TESTS_AMX_EMULATED_H

#include "engine/kernels/kernels.h"

DECL_MATMUL_Q(matmul_q_amx_emulated);

/* Products of tiles since the last call. */
long emulated_products(void);

/* What a processor would have refused; NULL: nothing. */
const char *emulated_wrong(void);

#endif
