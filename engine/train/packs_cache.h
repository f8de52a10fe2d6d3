/* packs_cache.h - packs in memory and in their cache file.
 *
 * The file, little-endian: magic[8], u32 version, u32 T, u32 vocabulary, u32 0, u64 packs,
 * u64 tokens, key[16], XXH3-128 of the payload [16]; payload: u32 n[packs], i32 ids[tokens],
 * i32 first[tokens].  Everything is checked before it is used. */
#ifndef KVF_ENGINE_PACKS_CACHE_H
#define KVF_ENGINE_PACKS_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

enum { PACKS_HASH_AT = 56, PACKS_HEADER = 72 };

struct packs {
    int32_t *n;           /* [count] 2 .. T */
    int64_t *at;          /* [count + 1] where a pack's tokens begin */
    int32_t *ids, *first; /* [tokens] */
    int count;
    int64_t tokens;
    int32_t **gone; /* [count] [per * n] recorded evictions; NULL: none are */
    size_t per;     /* of a token: layers times KV heads */
    int32_t *order; /* [count] of the epoch asked for last */
    uint64_t seed;
    int64_t epoch; /* -1: none yet */
};

struct packs_key {
    unsigned char hash[16]; /* of the texts, the tokenizer and the settings */
    int length, vocab;
};

/* KVF_OK, or KVF_E_NOTFOUND for anything that is no good cache of this key: *p is zeroed. */
int packs_cache_read(const char *path, const struct packs_key *key, struct packs *p);
/* Replaces the file.  A failure is not reported: the cache is then made again by the next run. */
void packs_cache_write(const char *path, const struct packs_key *key, const struct packs *p);
/* XXH3-128 of a file's payload, as bytes. */
void packs_cache_hash(const struct packs *p, unsigned char out[16]);
/* Fills `at` from n; KVF_E_NOMEM. */
int packs_index(struct packs *p);
void packs_finish(struct packs *p);

#endif
