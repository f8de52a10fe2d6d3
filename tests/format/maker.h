/* maker.h - makes trace files with correct checksums and arbitrary contents. */
#ifndef KVF_TESTS_MAKER_H
#define KVF_TESTS_MAKER_H

#include "libtrace/crc32c.h"
#include "libtrace/layout.h"
#include "tests/format/opened.h"

enum { SALT = 0x1234, ROOM = 1 << 20, KV = 2, QUERY = 3 };

struct maker {
    unsigned char p[ROOM];
    size_t n;
    uint64_t seq, link;
    struct record rec[4096];
    size_t n_rec;
};

/* Appends r unchanged, except that its place, number, salt and checksum are set. */
static inline struct record *put(struct maker *m, struct record r, const void *payload, size_t n)
{
    r.seq = m->seq++;
    r.salt = SALT;
    r.offset = m->n;
    r.link = m->link;
    r.payload_crc = payload_crc(&r, payload, n);
    r.hash = record_header_write(m->p + m->n, &r);
    m->link = r.hash;
    memcpy(m->p + m->n + RECORD_HEADER, payload, n);
    m->n += RECORD_HEADER + padded(n);
    m->rec[m->n_rec] = r;
    return &m->rec[m->n_rec++];
}

static inline struct record column(uint32_t n, uint64_t raw, uint64_t stored, uint32_t codec)
{
    return (struct record){.type = REC_COLUMN,
                           .layer = 0,
                           .n_heads = 1,
                           .n = n,
                           .raw_len = raw,
                           .stored_len = stored,
                           .codec = codec};
}

/* Writes the run header and the schema after the unchanged file header. */
static inline void start_records(struct maker *m, const void *schema, size_t n)
{
    m->n = FILE_HEADER;
    m->n_rec = m->seq = 0;
    m->link = hash64(m->p, FILE_HEADER);
    put(m, (struct record){.type = REC_META, .flags = REC_CRITICAL, .raw_len = 2, .stored_len = 2},
        "{}", 2);
    put(m,
        (struct record){.type = REC_SCHEMA, .flags = REC_CRITICAL, .raw_len = n, .stored_len = n},
        schema, n);
}

static inline void start_with(struct maker *m, const void *schema, size_t n)
{
    memset(m, 0, sizeof *m);
    file_header_write(m->p, &(struct hash128){.low = SALT});
    start_records(m, schema, n);
}

/* One layer with 2 KV and 3 query heads, one u32 column of all KV heads. */
static inline size_t plain_schema(unsigned char *s)
{
    memset(s, 0, 8 + 4 + COLUMN_ENTRY);
    put_le(s, 1, 4);
    put_le(s + 4, KV, 2);
    put_le(s + 6, QUERY, 2);
    put_le(s + 8, 1, 4);
    strcpy((char *)s + 12, "x");
    s[12 + 48] = KVF_U32;
    s[12 + 49] = KVF_SPACE_KV;
    return 8 + 4 + COLUMN_ENTRY;
}

static inline struct maker *start(void)
{
    struct maker *m = malloc(sizeof *m);
    unsigned char s[128];
    start_with(m, s, plain_schema(s));
    return m;
}

static inline void commit(struct maker *m, uint32_t epoch, uint32_t steps)
{
    unsigned char p[8];
    put_le(p, epoch, 4);
    put_le(p + 4, steps, 4);
    put(m,
        (struct record){.type = REC_COMMIT,
                        .flags = REC_CRITICAL,
                        .epoch = epoch,
                        .raw_len = 8,
                        .stored_len = 8},
        p, 8);
}

/* Writes the digest of the contents into the footer, if they can be read. */
static inline void tell_digest(struct maker *m, struct footer *f)
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    char text[33];
    unsigned long long high, low;
    if (kvf_open(as_file(m->p, m->n), KVF_OPEN_TAIL, &t, NULL) == KVF_OK
        && kvf_digest(t, text, NULL) == KVF_OK && sscanf(text, "%16llx%16llx", &high, &low) == 2) {
        f->digest = (struct hash128){low, high};
        footer_write(m->p + m->n - FOOTER, f);
    }
}

/* Writes the index of these records, in this order, and a matching footer. */
static inline void finish(struct maker *m, const struct record *list, size_t n)
{
    unsigned char *p = malloc(n * INDEX_ENTRY + 1), end[FOOTER];
    struct footer f = {.index_offset = m->n, .n_records = n, .salt = SALT, .clean = true};
    for (size_t i = 0; i < n; i++)
        index_entry_write(p + i * INDEX_ENTRY, &list[i]);
    put(m,
        (struct record){
            .type = REC_INDEX, .raw_len = n * INDEX_ENTRY, .stored_len = n * INDEX_ENTRY},
        p, n * INDEX_ENTRY);
    f.last = m->link;
    footer_write(end, &f);
    memcpy(m->p + m->n, end, FOOTER);
    m->n += FOOTER;
    tell_digest(m, &f);
    free(p);
}

static inline int open_it(const struct maker *m, enum kvf_open_mode mode, struct kvf_trace **t)
{
    struct kvf_diag d = {""};
    int err = kvf_open(as_file(m->p, m->n), mode, t, &d);
    cr_expect(err == KVF_OK || d.text[0] != 0, "no sentence");
    return err;
}

/* Numbers as stored in a file, and in memory. */
static const unsigned char stored_four[16] = {10, 0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0, 13};
static const uint32_t four[4] = {10, 11, 12, 13};

static inline struct record column_of_four(void)
{
    return column(4, sizeof four, sizeof four, CODEC_RAW);
}

static inline void expect_four(struct kvf_trace *t)
{
    uint32_t got[4] = {0};
    cr_expect(zero(int, kvf_read(t, 0, 0, 0, 0, 4, got, NULL)));
    cr_expect(zero(int, memcmp(got, four, sizeof four)));
}

#endif
