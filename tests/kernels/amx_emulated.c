/* amx_emulated.c - compiles engine/kernels/x86/matmul_amx.c with emulated tiles. The vector
 * instructions run on the CPU, which must have AVX-512. */
#include "tests/kernels/tiles_emulated.h"

#include "tests/kernels/amx_emulated.h"

#define matmul_q_amx matmul_q_amx_emulated
#include "engine/kernels/x86/matmul_amx.c"

long emulated_products(void)
{
    long n = emulated.products;
    emulated.products = 0;
    return n;
}

const char *emulated_wrong(void)
{
    return emulated.configured ? "tiles were not given back" : emulated.wrong;
}
