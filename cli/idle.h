/* idle.h - rejects options without effect. */
#ifndef KVF_CLI_IDLE_H
#define KVF_CLI_IDLE_H

#include <stdbool.h>
#include <stddef.h>

#include <kvf/err.h>

/* An option that would have no effect. */
struct idle {
    bool given;
    const char *option; /* such as "--samples" */
    const char *why;    /* such as "without --reward" */
};

/* Returns KVF_E_ARG with a sentence for the first of n options that is given, otherwise KVF_OK. */
int idle_check(const struct idle *list, size_t n, struct kvf_diag *d);
#define IDLE_CHECK(list, d) idle_check(list, sizeof(list) / sizeof *(list), d)

#endif
