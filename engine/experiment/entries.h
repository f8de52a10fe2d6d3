/* entries.h - which entries of a prompt `--entries` means. */
#ifndef KVF_ENGINE_ENTRIES_H
#define KVF_ENGINE_ENTRIES_H

#include <stdint.h>

#include <kvf/err.h>

/* What a filter is read against. */
struct entries_prompt {
    int tokens;        /* P */
    int sinks, recent; /* of the classes; random leaves the sinks out, too */
    uint64_t seed;
};

/* Finds the positions, rising, that a filter names in a prompt: "span=A:B,..." (half open; A alone
 * is one entry; an end left out is that of the prompt), "class=sink|recent|middle",
 * "random:N".  Free *ret_pos with mem_free.  KVF_E_ARG with a sentence for filters that
 * are none, name nothing or leave the prompt. */
int entries_parse(const char *filter, const struct entries_prompt *p, int32_t **ret_pos, int *ret_n,
                  struct kvf_diag *d);

#endif
