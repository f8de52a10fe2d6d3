/* layout.c - encodes and decodes the headers of records (layout.h). */
#include <string.h>

#include "libtrace/crc32c.h"
#include "libtrace/layout.h"

static const unsigned char magic[8] = {0x89, 'K', 'V', 'F', '\r', '\n', 0x1a, '\n'};
static const unsigned char end_magic[8] = {'K', 'V', 'F', 'E', 'N', 'D', '\r', '\n'};
#define SYNC 0x52465ac5u

static void swap(unsigned char *out, const unsigned char *in, size_t width)
{
    unsigned char v[8];
    memcpy(v, in, width);
    for (size_t k = 0; k < width; k++)
        out[k] = v[width - 1 - k];
}

void swap_elements(void *out, const void *in, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        swap((unsigned char *)out + i * width, (const unsigned char *)in + i * width, width);
}

void file_header_write(unsigned char out[FILE_HEADER], const struct hash128 *id)
{
    memset(out, 0, FILE_HEADER);
    memcpy(out, magic, 8);
    put_le(out + 8, KVF_MAJOR, 2);
    put_le(out + 10, KVF_MINOR, 2);
    put_le(out + 12, FILE_HEADER, 4);
    put_le(out + 16, FEATURE_CHAINED, 4); /* 16, 20, 24: incompat, ro_compat, compat features */
    put_le(out + 28, id->low, 4);
    put_le(out + 32, id->low, 8);
    put_le(out + 40, id->high, 8);
    put_le(out + 60, crc32c(0, out, 60), 4);
}

int file_header_read(const unsigned char in[FILE_HEADER], struct file_header *ret)
{
    if (memcmp(in, magic, 8) != 0)
        return KVF_E_FORMAT;
    if (get_le(in + 60, 4) != crc32c(0, in, 60))
        return KVF_E_CORRUPT;
    uint64_t features = get_le(in + 16, 4);
    if (get_le(in + 8, 2) != KVF_MAJOR || features & ~(uint64_t)FEATURE_CHAINED)
        return KVF_E_VERSION;
    struct file_header h = {.chained = features != 0, .salt = (uint32_t)get_le(in + 28, 4)};
    h.hash = hash64(in, FILE_HEADER);
    if (h.chained) {
        h.id = (struct hash128){get_le(in + 32, 8), get_le(in + 40, 8)};
        if (h.salt != (uint32_t)h.id.low)
            return KVF_E_CORRUPT;
    }
    *ret = h;
    return KVF_OK;
}

uint64_t record_header_write(unsigned char out[RECORD_HEADER], const struct record *r)
{
    put_le(out, SYNC, 4);
    put_le(out + 4, RECORD_HEADER, 2);
    out[6] = r->type;
    out[7] = r->flags;
    put_le(out + 8, r->seq, 8);
    put_le(out + 16, r->stored_len, 8);
    put_le(out + 24, r->raw_len, 8);
    put_le(out + 32, r->column, 4);
    put_le(out + 36, r->layer, 2);
    put_le(out + 38, r->head0, 2);
    put_le(out + 40, r->t0, 4);
    put_le(out + 44, r->n, 4);
    put_le(out + 48, r->codec, 4);
    put_le(out + 52, r->payload_crc, 4);
    put_le(out + 56, r->salt, 4);
    put_le(out + 60, r->epoch, 4);
    put_le(out + 64, r->n_heads, 2);
    put_le(out + 66, 0, 2);
    put_le(out + 68, r->offset, 8);
    put_le(out + 76, r->link, 8);
    put_le(out + 84, crc32c(0, out, 84), 4);
    return hash64(out, RECORD_HEADER);
}

bool record_header_guess(const unsigned char *in, uint32_t *ret_salt, bool *ret_chained)
{
    uint64_t size = get_le(in + 4, 2);
    if (get_le(in, 4) != SYNC || (size != RECORD_HEADER && size != RECORD_HEADER_0))
        return false;
    *ret_chained = size == RECORD_HEADER;
    *ret_salt = (uint32_t)get_le(in + 56, 4);
    return true;
}

bool record_header_read(const unsigned char *in, uint64_t offset, uint32_t salt, bool chained,
                        struct record *ret)
{
    size_t size = header_size(chained), summed = size - 4;
    if (get_le(in, 4) != SYNC || get_le(in + 4, 2) != size
        || get_le(in + summed, 4) != crc32c(0, in, summed) || get_le(in + 56, 4) != salt
        || get_le(in + 68, 8) != offset)
        return false;
    *ret = (struct record){
        .type = in[6],
        .flags = in[7],
        .seq = get_le(in + 8, 8),
        .stored_len = get_le(in + 16, 8),
        .raw_len = get_le(in + 24, 8),
        .column = (uint32_t)get_le(in + 32, 4),
        .layer = (uint16_t)get_le(in + 36, 2),
        .head0 = (uint16_t)get_le(in + 38, 2),
        .t0 = (uint32_t)get_le(in + 40, 4),
        .n = (uint32_t)get_le(in + 44, 4),
        .codec = (uint32_t)get_le(in + 48, 4),
        .payload_crc = (uint32_t)get_le(in + 52, 4),
        .salt = salt,
        .epoch = (uint32_t)get_le(in + 60, 4),
        .n_heads = (uint16_t)get_le(in + 64, 2),
        .offset = offset,
        .link = chained ? get_le(in + 76, 8) : 0,
        .hash = chained ? hash64(in, size) : 0,
    };
    return true;
}

uint32_t payload_crc(const struct record *r, const void *payload, size_t n)
{
    unsigned char place[20];
    put_le(place, r->salt, 4);
    put_le(place + 4, r->seq, 8);
    put_le(place + 12, r->offset, 8);
    return crc32c(crc32c(0, place, sizeof place), payload, n);
}

void footer_write(unsigned char out[FOOTER], const struct footer *f)
{
    memset(out, 0, FOOTER);
    memcpy(out, end_magic, 8);
    put_le(out + 8, f->index_offset, 8);
    put_le(out + 16, f->n_records, 8);
    put_le(out + 24, f->last, 8);
    put_le(out + 32, f->clean, 4);
    put_le(out + 36, f->salt, 4);
    put_le(out + 40, f->digest.low, 8);
    put_le(out + 48, f->digest.high, 8);
    put_le(out + 60, crc32c(0, out, 60), 4);
}

bool footer_read(const unsigned char in[FOOTER], uint32_t salt, struct footer *ret)
{
    if (memcmp(in, end_magic, 8) != 0 || get_le(in + 60, 4) != crc32c(0, in, 60)
        || get_le(in + 36, 4) != salt)
        return false;
    *ret = (struct footer){get_le(in + 8, 8),       get_le(in + 16, 8),
                           get_le(in + 24, 8),      salt,
                           get_le(in + 32, 4) == 1, {get_le(in + 40, 8), get_le(in + 48, 8)}};
    return true;
}

void index_entry_write(unsigned char out[INDEX_ENTRY], const struct record *r)
{
    put_le(out, r->column, 4);
    put_le(out + 4, r->layer, 2);
    put_le(out + 6, r->head0, 2);
    put_le(out + 8, r->t0, 4);
    put_le(out + 12, r->epoch, 4);
    put_le(out + 16, r->n, 4);
    put_le(out + 20, r->n_heads, 2);
    out[22] = r->type;
    out[23] = (unsigned char)r->codec;
    put_le(out + 24, r->offset, 8);
    put_le(out + 32, r->stored_len, 8);
    put_le(out + 40, r->raw_len, 8);
    put_le(out + 48, r->hash, 8);
}

int record_compare(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    if (x->type != y->type)
        return x->type < y->type ? -1 : 1;
    if (x->column != y->column)
        return x->column < y->column ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    if (x->head0 != y->head0)
        return x->head0 < y->head0 ? -1 : 1;
    if (x->t0 != y->t0)
        return x->t0 < y->t0 ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

bool record_same(const struct record *a, const struct record *b)
{
    return record_compare(a, b) == 0 && a->stored_len == b->stored_len && a->raw_len == b->raw_len
           && a->n == b->n && a->n_heads == b->n_heads && a->codec == b->codec
           && a->hash == b->hash;
}

bool trace_interval_column(const struct kvf_column *c)
{
    return c->flags & KVF_COL_SNAPSHOT && !(c->flags & KVF_COL_AGE) && c->dtype == KVF_U32
           && c->axis == KVF_AXIS_TOKEN;
}

/* *least: where the next interval may begin. */
static bool rises(struct kvf_interval next, uint32_t steps, uint32_t *least)
{
    if (next.first < *least || next.last < next.first || next.last >= steps)
        return false;
    *least = next.last + 2; /* steps is at most KVF_MAX_STEPS */
    return true;
}

bool trace_list_rises(const struct kvf_interval *list, uint32_t n, uint32_t token, uint32_t steps)
{
    for (uint32_t k = 0; k < n; k++)
        if (!rises(list[k], steps, &token))
            return false;
    return true;
}

bool trace_stored_list_rises(const unsigned char *list, uint32_t n, uint32_t token, uint32_t steps)
{
    for (uint32_t k = 0; k < n; k++, list += sizeof(struct kvf_interval)) {
        struct kvf_interval next;
        copy_le(&next, list, 2, sizeof next.first);
        if (!rises(next, steps, &token))
            return false;
    }
    return true;
}

size_t kvf_dtype_size(enum kvf_dtype dtype)
{
    switch (dtype) {
    case KVF_U8:
        return 1;
    case KVF_U16:
    case KVF_F16:
    case KVF_BF16:
        return 2;
    case KVF_U32:
    case KVF_I32:
    case KVF_F32:
        return 4;
    case KVF_F64:
    case KVF_U64:
        return 8;
    }
    return 0;
}

/* ---- the header before the elements of a blob. */

/* The hash covers only the header, so that it can be checked without the elements.  The checksum of
 * the record covers both. */
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
