/* reader.h - the inside of an open trace; private to libtrace. */
#ifndef KVF_LIBTRACE_READER_H
#define KVF_LIBTRACE_READER_H

#include "libtrace/layout.h"

enum { CACHED_CHUNKS = 8 };

struct cached {
    size_t entry; /* index of the record; SIZE_MAX: free */
    uint64_t used;
    unsigned char *data; /* owned, raw_len bytes */
};

struct kvf_trace {
    int fd;
    char *path;
    uint64_t size;
    uint32_t salt;
    int clean;
    char *meta;
    struct kvf_column *column;
    int n_columns, n_layers;
    uint16_t *n_kv, *n_query;
    uint32_t epoch, n_steps;
    struct record *rec; /* sorted by record_compare */
    size_t n_rec, cap_rec;
    struct cached cache[CACHED_CHUNKS];
    uint64_t clock;
    char **note; /* owned texts "key\0json" */
    int n_notes;
    char *text;  /* bytes of all tokens, loaded when first asked for */
    uint32_t *text_end;
    uint32_t n_text;
    uint64_t bad_records, lost_bytes, first_bad;
};

/* Reads and checks the stored payload of a record; the caller frees it. */
int trace_payload(const struct kvf_trace *t, const struct record *r, unsigned char **ret,
                  struct kvf_diag *d);
int trace_pread(int fd, void *buf, size_t n, uint64_t offset); /* KVF_OK or KVF_E_IO */

#endif
