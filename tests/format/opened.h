/* opened.h - traces that a test in C opens: the small trace of tiny.h, and any path. */
#ifndef KVF_TESTS_FORMAT_OPENED_H
#define KVF_TESTS_FORMAT_OPENED_H

#include "tests/files.h"
#include "tests/format/tiny.h"

/* Opens a trace, which must be readable in this mode. */
static inline struct kvf_trace *opened(const char *path, enum kvf_open_mode mode)
{
    struct kvf_trace *t = NULL;
    succeeds(kvf_open(path, mode, &t, &d));
    return t;
}

#endif
