/* dequant.c - dequantises numbers of a GGUF type; test_blocks.py compares them with its own.
 *
 * usage: dequant TYPE <BLOCKS >FLOATS */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/kernels/packed.h"
#include "tests/scoped.h"

int main(int argc, char **argv)
{
    unsigned type = argc == 2 ? (unsigned)atoi(argv[1]) : 0;
    size_t n = (size_t)weight_block(type), bytes = n ? weight_bytes((enum weight_type)type, n) : 0;
    OWNED(mem_free) unsigned char *block = mem_alloc(bytes + 1, 1);
    OWNED(mem_free) float *value = MEM_NEW(float, n + 1);
    int status = bytes && block && value ? EXIT_SUCCESS : EXIT_FAILURE;
    while (!status && fread(block, bytes, 1, stdin) == 1) {
        weight_dequant(value, block, (enum weight_type)type, n);
        if (fwrite(value, sizeof *value, n, stdout) != n)
            status = EXIT_FAILURE;
    }
    return status;
}
