/* entries.h - parses the selection of prompt entries of --entries. */
#ifndef KVF_ENGINE_ENTRIES_H
#define KVF_ENGINE_ENTRIES_H

#include <stdint.h>

#include <kvf/err.h>

/* The prompt that a filter selects entries from. */
struct entries_prompt {
    int tokens;        /* P */
    int sinks, recent; /* for the classes; random:N excludes the sinks, too */
    uint64_t seed;
};

/* Finds the positions, in increasing order, that a filter selects: "span=A:B,..." (half open; a
 * number A is one entry; a missing bound is the start or end of the prompt),
 * "class=sink|recent|middle", or "random:N". Free *ret_pos with mem_free(). Returns KVF_OK, or
 * KVF_E_ARG with a sentence if the filter is malformed, selects no entry, or exceeds the prompt. */
int entries_parse(const char *filter, const struct entries_prompt *p, int32_t **ret_pos, int *ret_n,
                  struct kvf_diag *d);

#endif
