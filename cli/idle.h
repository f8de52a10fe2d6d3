/* idle.h - options that were given although the others leave them without effect. */
#ifndef KVF_CLI_IDLE_H
#define KVF_CLI_IDLE_H

#include <stdbool.h>
#include <stddef.h>

#include <kvf/err.h>

struct idle {
    bool given;
    const char *option; /* "--samples" */
    const char *why;    /* "without --reward" */
};

/* KVF_E_ARG with a sentence for the first of n that is given. */
int idle_check(const struct idle *list, size_t n, struct kvf_diag *d);
#define IDLE_CHECK(list, d) idle_check(list, sizeof(list) / sizeof *(list), d)

#endif
