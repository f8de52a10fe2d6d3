/* shard.h - one part of a list of work that several runs of the program share (--shard I/N). */
#ifndef KVF_CLI_SHARD_H
#define KVF_CLI_SHARD_H

#include <stdint.h>

#include <kvf/err.h>

struct shard {
    int64_t part, parts; /* 1 <= part <= parts */
};

/* Reads "I/N"; NULL is 1/1.  KVF_OK, or KVF_E_ARG with a sentence. */
int shard_parse(const char *text, struct shard *ret, struct kvf_diag *d);

#endif
