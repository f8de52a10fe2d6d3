/* writer.h - the inside of a writer; private to libtrace. */
#ifndef KVF_LIBTRACE_WRITER_H
#define KVF_LIBTRACE_WRITER_H

#include "base/buf.h"
#include "libtrace/digest.h"
#include "libtrace/writer_file.h"

struct kvf_writer {
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
    unsigned char *raw, *packed, *scratch; /* of one chunk */
    void *codec;
    int level; /* of compression */
};

/* kvf_writer_open, for columns of any names: those of a copy are as in its source. */
int writer_open(const char *path, const char *meta_json, const struct kvf_shape *shape,
                const struct kvf_column *columns, int n_columns,
                const struct kvf_writer_options *options, struct kvf_writer **ret_writer,
                struct kvf_diag *d);
/* Appends a record whose payload is two pieces, the first of at most BLOB_HEADER bytes. */
int writer_append(struct kvf_writer *w, struct record *r, const void *first, size_t n_first,
                  const void *rest, size_t n);
/* Whether heads and indices are those of a column, with intervals or without, and the epoch is the
 * one that comes. */
bool writer_has_place(const struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                      uint32_t t0, uint32_t n, uint32_t epoch, bool intervals);
/* Encodes r->raw_len bytes of w->raw, at most CHUNK_RAW, and appends the record. */
int writer_append_chunk(struct kvf_writer *w, struct record *r, int width);
/* The digest of what was written and committed so far. */
struct hash128 writer_digest(const struct kvf_writer *w);

/* The name of the tail, beside the unfinished trace, where links of the trace's name lead.  What is
 * no file there, as a planted link, is removed: nobody has asked to write to what it leads to. */
int writer_tail_name(const struct kvf_writer *w, struct buf *ret);
/* Removes what a killed process left of a tail that it was writing; and the tail, unless `keep`. */
void writer_tail_begin(const struct kvf_writer *w, bool keep);
/* Removes the tail, if there is one. */
void writer_tail_remove(const struct kvf_writer *w);

#endif
