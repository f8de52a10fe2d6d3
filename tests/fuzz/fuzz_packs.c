/* fuzz_packs.c - a token cache file, as it is and with a corrected hash of its payload. */
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "engine/train/packs_cache.h"
#include "fuzz.h"

static void try_file(const uint8_t *data, size_t n)
{
    const struct packs_key key = {{0}, 8, 256};
    struct packs p;
    char path[64];
    int fd = memory_file(data, n, path);
    if (packs_cache_read(path, &key, &p) == KVF_OK) {
        MUST(p.count > 0 && p.at[p.count] == p.tokens);
        for (int64_t i = 0; i < p.tokens; i++)
            MUST(p.ids[i] >= 0 && p.ids[i] < 256 && p.first[i] >= 0 && p.first[i] < 8);
    } else {
        MUST(!p.n && !p.ids && !p.count);
    }
    packs_finish(&p);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    try_file(data, n);
    if (n < PACKS_HEADER)
        return 0;
    uint8_t *copy = MEM_NEW(uint8_t, n);
    XXH128_canonical_t c;
    MUST(copy);
    memcpy(copy, data, n);
    XXH128_canonicalFromHash(&c, XXH3_128bits(data + PACKS_HEADER, n - PACKS_HEADER));
    memcpy(copy + PACKS_HASH_AT, c.digest, 16);
    try_file(copy, n);
    mem_free(copy);
    return 0;
}
