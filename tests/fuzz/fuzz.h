/* fuzz.h - shared by the fuzz targets: MUST() and files in memory. */
#ifndef KVF_TESTS_FUZZ_H
#define KVF_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Ends the run if the claim is false. assert() would have no effect in release builds. */
#define MUST(claim)                                                                                \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim);                    \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Makes a file in memory that can be opened by name; returns the descriptor to close. */
static inline int memory_file(const void *data, size_t n, char path[64])
{
    int fd = memfd_create("fuzz", 0);
    MUST(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
