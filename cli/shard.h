/* shard.h - one part of a list of work that is divided between several runs of the program (--shard
 * I/N). */
#ifndef KVF_CLI_SHARD_H
#define KVF_CLI_SHARD_H

#include <stdint.h>

#include <kvf/err.h>

/* Part `part` of `parts`, counted from 1. */
struct shard {
    int64_t part, parts; /* 1 <= part <= parts */
};

/* Parses "I/N"; NULL gives 1/1. Returns KVF_OK, or KVF_E_ARG with a sentence. */
int shard_parse(const char *text, struct shard *ret, struct kvf_diag *d);

#endif
