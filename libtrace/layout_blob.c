/* layout_blob.c - what stands before the elements of a blob. */
#include <string.h>

#include "libtrace/layout.h"

/* The hash lets it be believed without the elements, over which the checksum of the record goes
 * too. */
enum { DTYPE_AT = 48, RANK_AT = 49, ZERO_AT = 50, SHAPE_AT = 56, HASH_AT = 72 };

size_t kvf_blob_size(const struct kvf_blob *b)
{
    size_t n = kvf_dtype_size((enum kvf_dtype)b->dtype);
    if (b->rank < 1 || b->rank > KVF_MAX_RANK)
        return 0;
    for (int i = 0; i < b->rank; i++) {
        if (b->shape[i] > KVF_MAX_BLOB)
            return 0;
        n *= b->shape[i];
        if (n > KVF_MAX_BLOB)
            return 0;
    }
    return n;
}

bool trace_has_head(int n_layers, const uint16_t *n_kv, const uint16_t *n_query, int layer,
                    int head)
{
    if (layer >= n_layers)
        return layer == 0 && head == 0;
    return head == 0 || head < n_kv[layer] || head < n_query[layer];
}

void blob_header_write(unsigned char out[BLOB_HEADER], const struct kvf_blob *b)
{
    memset(out, 0, BLOB_HEADER);
    memcpy(out, b->name, strnlen(b->name, KVF_NAME_MAX - 1));
    out[DTYPE_AT] = b->dtype;
    out[RANK_AT] = b->rank;
    for (int i = 0; i < b->rank; i++)
        put_le(out + SHAPE_AT + 4 * i, b->shape[i], 4);
    put_le(out + HASH_AT, hash64(out, HASH_AT), 8);
}

bool blob_header_read(const unsigned char in[BLOB_HEADER], const struct record *r,
                      struct kvf_blob *ret)
{
    struct kvf_blob b = {
        .dtype = in[DTYPE_AT],
        .rank = in[RANK_AT],
        .layer = r->layer,
        .head = r->head0,
        .t0 = r->t0,
    };
    unsigned char again[BLOB_HEADER];
    memcpy(b.name, in, KVF_NAME_MAX);
    for (int i = 0; i < KVF_MAX_RANK; i++)
        b.shape[i] = (uint32_t)get_le(in + SHAPE_AT + 4 * i, 4);
    if (!b.name[0] || !memchr(b.name, 0, KVF_NAME_MAX) || kvf_blob_size(&b) != r->raw_len)
        return false;
    blob_header_write(again, &b); /* also zeros where zeros belong */
    if (memcmp(again, in, BLOB_HEADER) != 0)
        return false;
    *ret = b;
    return true;
}
