/* reader.h - the inside of an open trace; private to libtrace. */
#pragma once

#include "libtrace/layout.h"

/* Decoded chunks are kept: 8, and one more each time one must be decoded again, for example if many
 * columns, with all heads in each chunk, are read head by head. */
enum { CACHED_CHUNKS = 8, MOST_CACHED_CHUNKS = 256, CACHE_GROWS_TO = 48 << 20 /* bytes */ };

struct cached {
    size_t entry; /* index of the record; SIZE_MAX: free */
    uint64_t used;
    unsigned char *data; /* owned, of cap bytes */
    size_t cap;
};

/* The state of a record. */
enum seen {
    SEEN_DECODED = 1,
    SEEN_CHECKED = 2, /* and its payload is in the map */
};

struct token {
    uint32_t index, at, len; /* of the token; place in the text */
};

struct kvf_trace {
    int fd;
    const unsigned char *map; /* [size] the file, where it is mapped; else NULL */
    bool shared;              /* all but buffers and texts is of another reader */
    char *path;
    uint64_t size;
    struct file_header header;
    struct kvf_trace *tail; /* owned: the newest state of one that was not closed; NULL: none */
    char *tail_aside;       /* owned: why that which is there cannot be read; NULL: it can */
    bool header_lost;
    struct hash128 digest; /* by the footer */
    int clean;
    char *meta;
    struct kvf_column *column;
    int n_columns, n_layers;
    uint16_t *n_kv, *n_query;
    uint32_t epoch, n_steps;
    struct record *rec; /* sorted by record_compare */
    size_t n_rec, cap_rec;
    struct cached cache[MOST_CACHED_CHUNKS];
    int n_cached;
    unsigned char *seen; /* [n_rec] enum seen, once one was read */
    struct scratch {
        unsigned char *data; /* owned, of cap bytes */
        size_t cap;
    } stored, shuffled, raw; /* for decoding, and for values in several chunks */
    void *decoder;           /* of the codec */
    uint64_t clock;
    char **note; /* owned texts "key\0json" */
    int n_notes;
    bool tokens_loaded; /* texts are read when first asked for */
    int tokens_err;     /* why some texts of the records are missing */
    char *text;         /* bytes of all tokens */
    uint32_t text_len;
    struct token *token; /* [n_tokens] rising index */
    uint32_t n_tokens;
    uint64_t bad_records, lost_bytes, first_bad;
    uint64_t breaks, first_break; /* places where a record does not follow its predecessor */
    uint64_t commit_at;           /* offset of the newest commit */
    struct watch {
        kvf_watch_fn fn; /* NULL: not called */
        void *ctx;
        uint64_t done, of; /* bytes decoded, of so many that there are */
    } watch;
    uint64_t torn_bytes;   /* after the last record of a trace that was not closed */
    bool bad_index;        /* there is one, but it contradicts the records */
    struct record *listed; /* [n_listed] the records of that index, sorted */
    size_t n_listed;
};

static inline size_t trace_header_size(const struct kvf_trace *t)
{
    return header_size(t->header.chained);
}

/* The state that every reader has for itself: empty; and frees it. */
void trace_no_buffers(struct kvf_trace *t);
void trace_free_buffers(struct kvf_trace *t);

/* Opens a trace as kvf_open does, without its tail. */
int trace_open(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
               struct kvf_diag *d);
/* Maps the file, unless the trace was not closed and may still be cut. */
int trace_map(struct kvf_trace *t, struct kvf_diag *d);
/* The name of the unfinished trace of path: mem_free; NULL when memory is out. */
char *trace_unfinished(const char *path);
/* Opens the file, or its unfinished one if it does not exist, without reading. */
int trace_open_file(const char *path, struct kvf_trace **ret_trace, struct kvf_diag *d);
/* Finds the records: by the index if trust_index, else by their headers; t->rec
 * is in the order of the file or of record_compare. */
int trace_scan(struct kvf_trace *t, enum kvf_open_mode mode, bool trust_index, struct kvf_diag *d);
/* Run header, schema, commits, notes; sorts t->rec and drops damaged records. */
int trace_load(struct kvf_trace *t, struct kvf_diag *d);
int trace_load_schema(struct kvf_trace *t, struct kvf_diag *d);
bool trace_fits_schema(const struct kvf_trace *t, const struct record *r);
void trace_sort(struct kvf_trace *t); /* t->rec by record_compare */
/* KVF_E_LIMIT with a sentence where all columns and blobs of the file together decode to more than
 * 1 GiB, and to more than 4096 bytes for each byte of the file. */
int trace_check_raw(const struct kvf_trace *t, struct kvf_diag *d);
/* kvf_check_size and trace_check_raw, of the tail too: the copied bytes. */
int trace_check_source(const struct kvf_trace *t, struct kvf_diag *d);
/* So many bytes were decoded: calls the watcher. */
void trace_decoded(struct kvf_trace *t, uint64_t bytes);
/* Whether the values of the column are all in the tail: snapshots are, where there is one. */
bool trace_in_tail(const struct kvf_trace *t, int column);
void trace_note_damage(struct kvf_trace *t, uint64_t at);

/* Reads and checks a record, header and payload, into p[trace_header_size(t) + stored_len]. */
int trace_record(const struct kvf_trace *t, const struct record *r, unsigned char *p,
                 struct kvf_diag *d);
/* The same, in the map or else in t->stored: borrowed until the next call. */
int trace_bytes(struct kvf_trace *t, const struct record *r, const unsigned char **ret,
                struct kvf_diag *d);
/* Whether the record was checked in the map before; it is from now on, if `now`. */
bool trace_checked(struct kvf_trace *t, const struct record *r, bool now);
/* Records of one column, layer and epoch begin at or after this one in the sorted list. */
size_t trace_lower_bound(const struct kvf_trace *t, const struct record *key);
/* The common properties of the records of these values: KVF_E_ARG with a sentence where there is no
 * such column, layer or head, or it has no intervals though asked for, or the reverse. */
int trace_key(const struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
              bool intervals, struct record *key, struct kvf_diag *d);
/* Of which type the records of a column are. */
static inline uint8_t trace_type_of(const struct kvf_column *c)
{
    return c->flags & KVF_COL_INTERVALS ? REC_INTERVALS : REC_COLUMN;
}
static inline bool trace_same_group(const struct record *r, const struct record *key)
{
    return r->type == key->type && r->column == key->column && r->layer == key->layer
           && r->epoch == key->epoch;
}
int trace_not_there(const struct kvf_trace *t, const struct record *key, int head, uint32_t index,
                    struct kvf_diag *d);
/* n bytes of scratch memory with undefined contents; untouched when there is no memory. */
int trace_room(size_t n, struct scratch *s);
int trace_room_for(size_t n, unsigned char **p, size_t *cap);

/* Whether the decoded lists of an INTERVALS record can be: they rise, and the newest epoch speaks
 * of no step that the trace does not have. */
bool trace_lists_fit(const struct kvf_trace *t, const struct record *r, const unsigned char *raw);

/* The stored payload of a record, read and checked; the caller frees it. */
int trace_payload(const struct kvf_trace *t, const struct record *r, unsigned char **ret,
                  struct kvf_diag *d);
/* Decoded values of the chunk t->rec[entry], in the order of the file, from the cache or from the
 * file; borrowed until the next call. */
int trace_chunk(struct kvf_trace *t, size_t entry, const unsigned char **ret, struct kvf_diag *d);
/* The description of the blob r, without reading its elements. */
int trace_blob(const struct kvf_trace *t, const struct record *r, struct kvf_blob *ret,
               struct kvf_diag *d);
/* Its header and its elements in the order of the file, borrowed until the next call. */
int trace_blob_view(struct kvf_trace *t, const struct record *r, const unsigned char **ret_header,
                    const void **ret, struct kvf_diag *d);
/* A type that this reader does not know. */
static inline bool trace_unknown(const struct record *r)
{
    return r->type < REC_META || r->type > REC_KNOWN;
}
/* Whether the records are all of types that the digest is defined for here. */
bool trace_all_known(const struct kvf_trace *t);
/* Reads the texts of all tokens, also of the tail, as kvf_token does when it is first asked, which
 * treats unreadable texts as not stored.  KVF_OK; KVF_E_NOMEM, KVF_E_LIMIT, KVF_E_IO,
 * KVF_E_CORRUPT, KVF_E_VERSION: some cannot be read. */
int trace_load_texts(struct kvf_trace *t);
/* True if the payload of a TOKENS record has as many texts as its header declares. */
bool trace_texts_fit(const struct record *r, const unsigned char *payload);

/* The digest (digest.h): the newest epoch that t->rec[] commits; the content of the record
 * t->rec[i]; notes and the number of steps, once the trace is loaded. */
uint32_t trace_newest_epoch(const struct kvf_trace *t);
int trace_digest_record(struct kvf_trace *t, size_t i, uint32_t epoch, struct hash128 *sum,
                        struct kvf_diag *d);
int trace_digest_rest(const struct kvf_trace *t, struct hash128 *sum);

int trace_pread(int fd, void *buf, size_t n, uint64_t offset); /* KVF_OK or KVF_E_IO */
