/* corpus_rows.c - a hash table of the rows of a corpus (corpus_rows.h). */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "studies/corpus_rows.h"

enum { LEAST_ROWS = 256 };

int64_t *rows_sum(const struct rows *r, size_t row)
{
    return r->sum + row * r->stride;
}

static int grow_slots(struct rows *r, size_t n_slots)
{
    uint32_t *slot = MEM_NEW(uint32_t, n_slots);
    if (!slot)
        return KVF_E_NOMEM;
    mem_free(r->slot);
    r->slot = slot;
    r->n_slots = n_slots;
    for (size_t i = 0; i < r->n; i++) {
        size_t at = r->row[i].hash & (n_slots - 1);
        while (slot[at])
            at = (at + 1) & (n_slots - 1);
        slot[at] = (uint32_t)i + 1;
    }
    return KVF_OK;
}

static int grow(struct rows *r)
{
    size_t cap = r->cap ? 2 * r->cap : LEAST_ROWS, words;
    if (cap > UINT32_MAX / 4 || !mem_mul(cap, r->stride, &words))
        return KVF_E_LIMIT;
    struct row *row = mem_grow(r->row, r->n, cap, sizeof *row);
    if (row)
        r->row = row;
    int64_t *sum = mem_grow(r->sum, r->n * r->stride, words, sizeof *sum);
    if (sum)
        r->sum = sum;
    if (!row || !sum)
        return KVF_E_NOMEM;
    r->cap = cap;
    return grow_slots(r, 2 * cap);
}

static bool is_key(const struct rows *r, const struct row *x, const char *key, size_t len,
                   uint64_t hash)
{
    return x->hash == hash && x->key_len == len && memcmp(r->key.data + x->key_at, key, len) == 0;
}

bool rows_has(const struct rows *r, size_t row)
{
    return r->row[row].round == r->round;
}

static void found(struct rows *r, size_t row, size_t *ret_row)
{
    struct row *x = &r->row[row];
    r->fresh = x->round != r->round;
    if (r->fresh)
        memset(rows_sum(r, row), 0, r->stride * sizeof *r->sum);
    x->round = r->round;
    r->next = row + 1;
    *ret_row = row;
}

static int make_row(struct rows *r, size_t at, const char *key, size_t len, uint64_t hash,
                    size_t *ret_row)
{
    size_t key_at = r->key.len;
    buf_add(&r->key, key, len);
    if (r->key.err)
        return r->key.err;
    r->row[r->n] = (struct row){
        .key_at = key_at, .key_len = (uint32_t)len, .hash = hash, .round = r->round - 1};
    r->slot[at] = (uint32_t)r->n + 1;
    found(r, r->n++, ret_row);
    return KVF_OK;
}

int rows_put(struct rows *r, const char *key, size_t len, size_t *ret_row)
{
    const struct row *guess = r->next < r->n ? &r->row[r->next] : NULL;
    if (guess && guess->key_len == len && memcmp(r->key.data + guess->key_at, key, len) == 0) {
        found(r, r->next, ret_row);
        return KVF_OK;
    }
    uint64_t hash = rng_hash_bytes(0, key, len);
    if (len >= UINT32_MAX)
        return KVF_E_LIMIT;
    if (r->n == r->cap) {
        int err = grow(r);
        if (err)
            return err;
    }
    size_t at = hash & (r->n_slots - 1);
    for (; r->slot[at]; at = (at + 1) & (r->n_slots - 1))
        if (is_key(r, &r->row[r->slot[at] - 1], key, len, hash)) {
            found(r, r->slot[at] - 1, ret_row);
            return KVF_OK;
        }
    return make_row(r, at, key, len, hash, ret_row);
}

void rows_next_round(struct rows *r)
{
    r->round++;
    r->next = 0;
}

void rows_finish(struct rows *r)
{
    for (size_t i = 0; i < r->n; i++) {
        mem_free_all(r->row[i].replicate, r->row[i].few);
    }
    buf_finish(&r->key);
    mem_free_all(r->row, r->sum, r->slot);
    *r = (struct rows){.stride = r->stride};
}
