/* packs_cache.h - packs in memory and in their cache file.
 *
 * The file, little-endian: magic[8], u32 version, u32 T, u32 vocabulary, u32 0, u64 packs, u64
 * tokens, key[16], XXH3-128 of the payload [16]; payload: u32 n[packs], i32 ids[tokens], i32
 * first[tokens]. Everything is checked before use. */
#ifndef KVF_ENGINE_PACKS_CACHE_H
#define KVF_ENGINE_PACKS_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

enum { PACKS_HASH_AT = 56, PACKS_HEADER = 72 };

/* All packs of a training run. */
struct packs {
    int32_t *n;           /* [count] 2 .. T */
    int64_t *at;          /* [count + 1] start of each pack's tokens */
    int32_t *ids, *first; /* [tokens] */
    int count;
    int64_t tokens;
    int32_t **evicted_at; /* [count][per * n] recorded evictions; NULL: not recorded */
    size_t per;           /* numbers per token: layers times KV heads */
    int32_t *order;       /* [count] order of the last requested epoch */
    uint64_t seed;
    int64_t epoch; /* -1: no epoch yet */
};

/* The key of a cache file. */
struct packs_key {
    unsigned char hash[16]; /* of the texts, the tokenizer and the settings */
    int length, vocab;
};

/* Reads a cache file. Returns KVF_OK, or KVF_E_NOTFOUND with *p zeroed if there is no valid cache
 * of this key. */
int packs_cache_read(const char *path, const struct packs_key *key, struct packs *p);
/* Replaces the file. A failure is not reported; the next run then rebuilds the cache. */
void packs_cache_write(const char *path, const struct packs_key *key, const struct packs *p);
/* Computes the XXH3-128 of a file's payload. */
void packs_cache_hash(const struct packs *p, unsigned char out[16]);
/* Fills p->at from p->n. Returns KVF_OK or KVF_E_NOMEM. */
int packs_index(struct packs *p);
/* Frees the arrays of p. */
void packs_finish(struct packs *p);

#endif
