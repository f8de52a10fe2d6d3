/* packs_cache.c - reads, checks and writes the cache file of packs. */
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/file_bytes.h"
#include "base/mem.h"
#include "base/replace.h"
#include "engine/train/packs_cache.h"

enum { VERSION = 1 };
static const char magic[8] = {'\x89', 'K', 'V', 'F', 'i', 'd', 's', '\n'};

static void put_hash(XXH128_hash_t h, unsigned char out[16])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, h);
    memcpy(out, c.digest, 16);
}

void packs_cache_hash(const struct packs *p, unsigned char out[16])
{
    XXH3_state_t *x = XXH3_createState();
    memset(out, 0, 16);
    if (!x)
        return; /* the file is then invalid and will be rebuilt */
    XXH3_128bits_reset(x);
    XXH3_128bits_update(x, p->n, sizeof *p->n * (size_t)p->count);
    XXH3_128bits_update(x, p->ids, sizeof *p->ids * (size_t)p->tokens);
    XXH3_128bits_update(x, p->first, sizeof *p->first * (size_t)p->tokens);
    put_hash(XXH3_128bits_digest(x), out);
    XXH3_freeState(x);
}

static void put_header(struct buf *b, const struct packs_key *key, const struct packs *p)
{
    unsigned char hash[16];
    packs_cache_hash(p, hash);
    buf_add(b, magic, sizeof magic);
    buf_le32(b, VERSION);
    buf_le32(b, (uint32_t)key->length);
    buf_le32(b, (uint32_t)key->vocab);
    buf_le32(b, 0);
    buf_le64(b, (uint64_t)p->count);
    buf_le64(b, (uint64_t)p->tokens);
    buf_add(b, key->hash, 16);
    buf_add(b, hash, 16);
}

void packs_cache_write(const char *path, const struct packs_key *key, const struct packs *p)
{
    struct buf b = {0};
    struct replace r;
    put_header(&b, key, p);
    if (!b.err && replace_open(&r, path, NULL) == KVF_OK) {
        replace_write(&r, b.data, b.len);
        replace_write(&r, p->n, sizeof *p->n * (size_t)p->count);
        replace_write(&r, p->ids, sizeof *p->ids * (size_t)p->tokens);
        replace_write(&r, p->first, sizeof *p->first * (size_t)p->tokens);
        replace_finish(&r, NULL);
    }
    buf_finish(&b);
}

int packs_index(struct packs *p)
{
    p->at = MEM_NEW(int64_t, (size_t)p->count + 1);
    p->order = MEM_NEW(int32_t, (size_t)p->count);
    p->epoch = -1;
    if (!p->at || !p->order)
        return KVF_E_NOMEM;
    for (int i = 0; i < p->count; i++)
        p->at[i + 1] = p->at[i] + p->n[i];
    return KVF_OK;
}

void packs_finish(struct packs *p)
{
    mem_free(p->n);
    mem_free(p->at);
    mem_free(p->ids);
    mem_free(p->first);
    mem_free(p->order);
    for (int i = 0; p->evicted_at && i < p->count; i++)
        mem_free(p->evicted_at[i]);
    mem_free(p->evicted_at);
    *p = (struct packs){.epoch = -1};
}

/* Returns true if lengths add up, ids are in the vocabulary and documents have 2 tokens or more. */
static bool is_sound(const struct packs *p, const struct packs_key *key)
{
    int64_t at = 0;
    for (int i = 0; i < p->count; i++) {
        int32_t n = p->n[i];
        if (n < 2 || n > key->length || n > p->tokens - at)
            return false;
        const int32_t *ids = p->ids + at, *first = p->first + at;
        for (int32_t t = 0; t < n; t++) {
            bool start = first[t] == t, on = t > 0 && first[t] == first[t - 1];
            if (ids[t] < 0 || ids[t] >= key->vocab || !(start || on))
                return false;
            if (start && (t + 1 == n || first[t + 1] != t))
                return false;
        }
        at += n;
    }
    return at == p->tokens;
}

static uint64_t get_le(const unsigned char *s, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)s[i] << (8 * i);
    return v;
}

/* Copies the payload of a file with a valid header. */
static int copy(const unsigned char *s, struct packs *p)
{
    size_t count = (size_t)p->count, tokens = (size_t)p->tokens;
    p->n = MEM_NEW(int32_t, count);
    p->ids = MEM_NEW(int32_t, tokens);
    p->first = MEM_NEW(int32_t, tokens);
    if (!p->n || !p->ids || !p->first)
        return KVF_E_NOMEM;
    memcpy(p->n, s, count * 4);
    memcpy(p->ids, s + count * 4, tokens * 4);
    memcpy(p->first, s + count * 4 + tokens * 4, tokens * 4);
    return KVF_OK;
}

static int parse(const unsigned char *s, size_t size, const struct packs_key *key, struct packs *p)
{
    unsigned char hash[16];
    if (memcmp(s, magic, sizeof magic) != 0 || get_le(s + 8, 4) != VERSION
        || get_le(s + 12, 4) != (uint64_t)key->length || get_le(s + 16, 4) != (uint64_t)key->vocab
        || get_le(s + 20, 4) != 0 || memcmp(s + 40, key->hash, 16) != 0)
        return KVF_E_NOTFOUND;
    uint64_t count = get_le(s + 24, 8), tokens = get_le(s + 32, 8);
    uint64_t rest = (size - PACKS_HEADER) / 4;
    if (count < 1 || count > INT32_MAX || tokens > rest / 2 || count != rest - 2 * tokens
        || (size - PACKS_HEADER) % 4)
        return KVF_E_NOTFOUND;
    p->count = (int)count;
    p->tokens = (int64_t)tokens;
    put_hash(XXH3_128bits(s + PACKS_HEADER, size - PACKS_HEADER), hash);
    if (memcmp(hash, s + PACKS_HASH_AT, 16) != 0 || copy(s + PACKS_HEADER, p) != KVF_OK
        || !is_sound(p, key))
        return KVF_E_NOTFOUND;
    return packs_index(p);
}

int packs_cache_read(const char *path, const struct packs_key *key, struct packs *p)
{
    struct stat s;
    int err = KVF_E_NOTFOUND, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *p = (struct packs){.epoch = -1};
    if (fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size >= PACKS_HEADER) {
        unsigned char *bytes = NULL;
        if (file_bytes(fd, (size_t)s.st_size, &bytes) == KVF_OK)
            err = parse(bytes, (size_t)s.st_size, key, p);
        mem_free(bytes);
    }
    if (fd >= 0)
        close(fd);
    if (err)
        packs_finish(p);
    return err ? KVF_E_NOTFOUND : KVF_OK;
}
