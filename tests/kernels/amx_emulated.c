/* amx_emulated.c - the products of engine/kernels/x86/matmul_amx.c, its very source, with emulated
 * tiles; the vectors are those of the machine, which has AVX-512. */
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
