/* writer.h - the inside of a writer; private to libtrace. */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "libtrace/digest.h"
#include "libtrace/writer_file.h"

/* Working memory of one thread. */
struct encoder {
    struct encoder *next;   /* of the free ones */
    unsigned char *raw;     /* [cap_raw] a payload before it is encoded, as in the file */
    unsigned char *packed;  /* [cap_packed] and after it */
    unsigned char *scratch; /* [cap_scratch] */
    size_t cap_raw, cap_packed, cap_scratch;
    void *codec;
};

/* A record's payload: two pieces, the first of at most BLOB_HEADER bytes. */
struct payload {
    const void *first, *data;
    size_t n_first, n;
};

/* The lock guards all members except the ones set at opening.
 * Values are summed up and encoded outside of it. */
struct kvf_writer {
    pthread_mutex_t lock;
    struct encoder *idle; /* list */
    struct writer_file file;
    int fd; /* of the file */
    char *path;
    char *meta;      /* the run header */
    int32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    uint64_t end, seq; /* bytes written; next record number */
    struct hash128 id; /* of the run */
    struct content {
        struct hash128 kept;     /* of all but snapshot columns, notes and number of steps */
        struct hash128 pending;  /* of the snapshot that is being written */
        struct hash128 snapshot; /* of the last one that was committed */
        uint32_t n_steps;
        struct noted {
            uint64_t key;
            struct hash128 part;
        } * note; /* [n_notes] the last of each key */
        size_t n_notes;
    } content;     /* digest.h */
    uint64_t link; /* hash of the header of the last record, or of the file */
    uint32_t epoch;
    uint32_t needs; /* steps that the next commit counts at least: intervals speak of them */
    int err;        /* first error, kept */
    int saved_errno;
    struct kvf_column *column;
    int n_columns;
    int n_layers;
    uint16_t *n_kv, *n_query; /* [n_layers] */
    struct record *index;
    size_t n_index, cap_index;
    int level;                    /* of compression */
    int sparse_first, sparse_end; /* columns of writer_sparse() */
    bool plain;                   /* values are not encoded */
};

/* kvf_writer_open, for columns of any names: a copy has the source's. */
int writer_open(const char *path, const char *meta_json, const struct kvf_shape *shape,
                const struct kvf_column *columns, int n_columns,
                const struct kvf_writer_options *options, struct kvf_writer **ret_writer,
                struct kvf_diag *d);
/* kvf_write_blob, for a blob of any name: a copy has the source's. */
int writer_blob(struct kvf_writer *w, const struct kvf_blob *b, bool packed, const void *data);
/* Appends bytes, and zeros up to a multiple of 8, or leaves the file unchanged: a torn record is
 * cut off again. */
int writer_write(struct kvf_writer *w, const void *a, size_t na, const void *b, size_t nb);
/* Appends a record and adds its content to the digest of its epoch. */
int writer_put(struct kvf_writer *w, struct record *r, struct payload p, struct hash128 holds);
/* The same, with p.data encoded as elements of so many bytes. */
int writer_put_coded(struct kvf_writer *w, const struct encoder *e, struct record *r, int width,
                     struct payload p, struct hash128 holds);
/* True if it continues an unfinished trace and has no new data. */
bool writer_replays(const struct kvf_writer *w);
/* The error that the writer kept, else err. */
int writer_refuse(struct kvf_writer *w, int err);

/* Working memory with room to encode CHUNK_RAW bytes, until it is given back.  epoch: that of a
 * snapshot, which must be the next one (KVF_E_ARG), or 0.  The error that the writer kept. */
int writer_take(struct kvf_writer *w, uint32_t epoch, struct encoder **ret);
void writer_give(struct kvf_writer *w, struct encoder *e);
/* More room: raw bytes in e->raw, and to encode as many as `coded`. */
int writer_room(struct kvf_writer *w, struct encoder *e, size_t raw, size_t coded);
/* The next commit counts at least so many steps. */
void writer_need(struct kvf_writer *w, uint32_t n_steps);
void writer_free_encoders(struct kvf_writer *w);

/* Checks heads and indices against a column, with intervals or without, and that the epoch is 0
 * unless it is a snapshot column. */
bool writer_has_place(const struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                      uint32_t t0, uint32_t n, uint32_t epoch, bool intervals);
/* The digest of the data written and committed so far. */
struct hash128 writer_digest(const struct kvf_writer *w);

/* The name of the tail, next to the unfinished trace, after links of the trace's name.  Anything
 * else than a file there, such as a planted link, is removed, and never written through. */
int writer_tail_name(const struct kvf_writer *w, struct buf *ret);
/* Removes a temporary tail of a killed process; and the tail, unless `keep`. */
void writer_tail_begin(const struct kvf_writer *w, bool keep);
/* Removes the tail, if there is one. */
void writer_tail_remove(const struct kvf_writer *w);
