/* paths.h - scratch files, as a fixture for tests that make traces from traces. */
#ifndef KVF_TESTS_PATHS_H
#define KVF_TESTS_PATHS_H

#include <string.h>
#include <unistd.h>

#include "tests/format/tiny.h"

static char in[256], out[256], other[256], third[256];

static inline void names(void)
{
    strcpy(in, scratch_path("in"));
    strcpy(out, scratch_path("out"));
    strcpy(other, scratch_path("other"));
    strcpy(third, scratch_path("third"));
}

static inline void remove_all(void)
{
    unlink(in);
    unlink(out);
    unlink(other);
    unlink(third);
}

#endif
