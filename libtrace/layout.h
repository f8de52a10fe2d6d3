/* layout.h - the bytes of a trace (docs/reference/format.md); private to libtrace. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kvf/trace.h>

#include "libtrace/hash.h"

enum {
    KVF_MAJOR = 1,
    KVF_MINOR = 0,
    FEATURE_CHAINED = 1, /* bit 0 of the incompatible features: set in format 1.0 */
    FILE_HEADER = 64,
    RECORD_HEADER = 88,
    RECORD_HEADER_0 = 80, /* in files of format 0.1 */
    FOOTER = 64,
    INDEX_ENTRY = 56,
    INDEX_ENTRY_0 = 48, /* in files of format 0.1 */
    COLUMN_ENTRY = 68,
    BLOB_HEADER = 80,      /* before the elements of a blob: its description, with its own hash */
    CHUNK_RAW = 512 << 10, /* most raw bytes that the writer puts in a chunk */
    CHUNK_RAW_LIMIT = 16 << 20, /* most that a reader accepts */
};
/* True if values have the same bytes in memory and in the file. */
#define LITTLE_ENDIAN_HERE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#define TAIL_SUFFIX ".tail"

enum record_type {
    REC_META = 1,
    REC_SCHEMA,
    REC_TOKENS,
    REC_COLUMN,
    REC_NOTE,
    REC_COMMIT,
    REC_CHECKPOINT,
    REC_INDEX,
    REC_INTERVALS,
    REC_BLOB,
    REC_KNOWN = REC_BLOB /* the greatest that this reader knows */
};
enum { REC_CRITICAL = 1 }; /* flags: a reader that does not know the type must reject the file */

enum codec { CODEC_RAW = 0, CODEC_CONSTANT = 1, CODEC_SHUFFLE_ZSTD = 2 };

struct file_header {
    bool chained; /* format 1.0; else 0.1, which has no run id, no links and no digest */
    uint32_t salt;
    struct hash128 id; /* of the run */
    uint64_t hash;     /* of the bytes of the header: the link of the first record */
};

struct record { /* a trace has many: there is no padding between the members */
    uint8_t type, flags;
    uint16_t layer, head0, n_heads;
    uint64_t seq, stored_len, raw_len, offset; /* offset: of the header in the file */
    uint64_t link, hash; /* of the header before this one, and of this one; 0 in format 0.1 */
    uint32_t column, t0, n, codec, payload_crc, salt, epoch;
};

/* True if it has values of a column. */
static inline bool is_chunk(const struct record *r)
{
    return r->type == REC_COLUMN || r->type == REC_INTERVALS;
}

struct footer {
    uint64_t index_offset, n_records;
    uint64_t last; /* hash of the header of the INDEX record; its seq in format 0.1 */
    uint32_t salt;
    bool clean;
    struct hash128 digest; /* digest.h; zero in format 0.1 */
};

/* The lowest n bytes of a number, the lowest first.  Where memory has that order a constant n makes
 * them one store or load, which a compiler does not make of the loop: an index has many. */
static inline void put_le(unsigned char *p, uint64_t v, int n)
{
    if (LITTLE_ENDIAN_HERE) {
        memcpy(p, &v, (size_t)n);
        return;
    }
    for (int i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static inline uint64_t get_le(const unsigned char *p, int n)
{
    uint64_t v = 0;
    if (LITTLE_ENDIAN_HERE) {
        memcpy(&v, p, (size_t)n);
        return v;
    }
    for (int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

void swap_elements(void *out, const void *in, size_t n, size_t width); /* for copy_le */
/* n elements of so many bytes from memory into the order of the file, or back; out and in may be
 * the same. */
static inline void copy_le(void *out, const void *in, size_t n, size_t width)
{
    if (!LITTLE_ENDIAN_HERE && width > 1)
        swap_elements(out, in, n, width);
    else if (n && out != in)
        memcpy(out, in, n * width);
}

static inline size_t header_size(bool chained)
{
    return chained ? RECORD_HEADER : RECORD_HEADER_0;
}

static inline size_t entry_size(bool chained)
{
    return chained ? INDEX_ENTRY : INDEX_ENTRY_0;
}

/* Files are written only in format 1.0 and read in 0.1 too.  The salt is the low half of a half:
 * the lowest 32 bits of the run id. */
void file_header_write(unsigned char out[FILE_HEADER], const struct hash128 *id);
/* KVF_OK, KVF_E_FORMAT (not a trace), KVF_E_CORRUPT (damaged), KVF_E_VERSION. */
int file_header_read(const unsigned char in[FILE_HEADER], struct file_header *ret);

/* Returns the hash of the header. */
uint64_t record_header_write(unsigned char out[RECORD_HEADER], const struct record *r);
/* False when it is no record of this file at this offset.  in: header_size(chained) bytes. */
bool record_header_read(const unsigned char *in, uint64_t offset, uint32_t salt, bool chained,
                        struct record *ret);
/* True if a record of any run may begin here; returns its format and salt. */
bool record_header_guess(const unsigned char *in, uint32_t *ret_salt, bool *ret_chained);
/* Checksum of a payload, bound to its place. */
uint32_t payload_crc(const struct record *r, const void *payload, size_t n);

void footer_write(unsigned char out[FOOTER], const struct footer *f);
bool footer_read(const unsigned char in[FOOTER], uint32_t salt, struct footer *ret);

void index_entry_write(unsigned char out[INDEX_ENTRY], const struct record *r);
/* in: entry_size(chained) bytes, which may overlap *ret.  Inline, as every entry of a trace
 * is read when it is opened. */
static inline void index_entry_read(const unsigned char *in, bool chained, struct record *ret)
{
    *ret = (struct record){
        .column = (uint32_t)get_le(in, 4),
        .layer = (uint16_t)get_le(in + 4, 2),
        .head0 = (uint16_t)get_le(in + 6, 2),
        .t0 = (uint32_t)get_le(in + 8, 4),
        .epoch = (uint32_t)get_le(in + 12, 4),
        .n = (uint32_t)get_le(in + 16, 4),
        .n_heads = (uint16_t)get_le(in + 20, 2),
        .type = in[22],
        .codec = in[23],
        .offset = get_le(in + 24, 8),
        .stored_len = get_le(in + 32, 8),
        .raw_len = get_le(in + 40, 8),
        .hash = chained ? get_le(in + 48, 8) : 0,
    };
}
/* Order of the index: type, column, layer, epoch, head0, t0, offset. */
int record_compare(const void *a, const void *b);
/* The fields of an index entry of a record. */
bool record_same(const struct record *a, const struct record *b);

/* True if a column meets the requirements of KVF_COL_INTERVALS. */
bool trace_interval_column(const struct kvf_column *c);
/* Whether n intervals rise, with at least one step between them, all from the token's own step on
 * and before `steps`. */
bool trace_list_rises(const struct kvf_interval *list, uint32_t n, uint32_t token, uint32_t steps);
/* The same for a list in the layout of the file. */
bool trace_stored_list_rises(const unsigned char *list, uint32_t n, uint32_t token, uint32_t steps);

/* Whether a block may be of this layer and head: of the first where there is none. */
bool trace_has_head(int n_layers, const uint16_t *n_kv, const uint16_t *n_query, int layer,
                    int head);
/* The beginning of the payload of a BLOB record; layer, head and t0 are in the record's header. */
void blob_header_write(unsigned char out[BLOB_HEADER], const struct kvf_blob *b);
/* False where it is damaged or no blob can be so. */
bool blob_header_read(const unsigned char in[BLOB_HEADER], const struct record *r,
                      struct kvf_blob *ret);

static inline uint64_t padded(uint64_t n)
{
    return (n + 7) & ~(uint64_t)7;
}

/* Codecs (codec.c).  Encoded bytes of `raw` into out (capacity codec_bound(n)):
 * returns the length and sets *ret_codec; 0: no memory.  width: element size; n > 0 is a multiple.
 * codec: working memory of codec_create() (NULL: no memory), kept from chunk to
 * chunk; earlier use changes no byte. */
void *codec_create(void);
void codec_destroy(void *codec); /* accepts NULL */
size_t codec_bound(size_t n);
size_t codec_encode(void *codec, const void *raw, size_t n, int width, void *out, void *scratch,
                    uint32_t *ret_codec);
/* The same at another level than ZSTD_LEVEL, at which codec_encode works. */
size_t codec_encode_at(int level, void *codec, const void *raw, size_t n, int width, void *out,
                       void *scratch, uint32_t *ret_codec);
/* A run is written and analysed at the pace of the processor, and `kvfate trace compact` makes
 * files small: level 1 takes a seventh less room and twice the time of both. */
enum { ZSTD_LEVEL = -20, ZSTD_SPARSE = 1, ZSTD_SMALLEST = 19 };
/* Working memory of decoding, kept from chunk to chunk (NULL: no memory). */
void *decoder_create(void);
void decoder_destroy(void *decoder); /* accepts NULL */
/* Exactly raw_len bytes into out, or KVF_E_CORRUPT, KVF_E_VERSION (unknown codec).
 * decoder NULL: one for this call. */
int codec_decode(void *decoder, const void *in, size_t n, uint32_t codec, int width, void *out,
                 size_t raw_len, void *scratch);
