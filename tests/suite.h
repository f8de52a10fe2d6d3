/* suite.h - the headers that nearly every test in C includes, and a seeded random generator. */
#ifndef KVF_TESTS_SUITE_H
#define KVF_TESTS_SUITE_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvf/err.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/scoped.h"

/* Asserts that a call returns KVF_OK. The call gets a struct kvf_diag by the name d, whose sentence
 * is printed on failure: succeeds(kvf_open(path, mode, &t, &d)). */
#define succeeds(call)                                                                             \
    do {                                                                                           \
        struct kvf_diag d = {""};                                                                  \
        int status_ = (call);                                                                      \
        cr_assert(zero(int, status_), "%s", d.text);                                               \
    } while (0)

static inline struct rng rng_seeded(uint64_t seed)
{
    struct rng r;
    rng_init(&r, seed);
    return r;
}

#endif
