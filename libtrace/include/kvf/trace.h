/* trace.h - the kvfate trace (.kvf): append-only writer, indexed reader.
 *
 * A trace is a run header (JSON, metadata only), a schema of columns, and chunks of columns.  One
 * value belongs to (column, layer, head, index), where index is a token position or a query step,
 * both counted from 0.  Columns that keep changing until the run ends (ages, masses) are written as
 * snapshots: each carries an epoch, and the highest committed epoch wins.  docs/reference/format.md
 * is the normative description of the bytes.
 *
 * Writing: kvf_writer_open with all columns, then kvf_write_chunk for the data, kvf_writer_commit
 * to make a snapshot count, kvf_writer_close.  After an error of memory or file the writer is
 * latched: later calls return the same error, and the file stays readable up to its last complete
 * record.  Wrong arguments (KVF_E_ARG, KVF_E_LIMIT) have no effect.  Reading: kvf_open, look at
 * kvf_meta / kvf_columns, kvf_read.
 *
 * Equal calls in equal order give equal bytes.  The library never prints, exits or reads the
 * environment.
 *
 * Threads: kvf_write_*, kvf_writer_commit, _note, _sync, _bytes and _open_tail may be called for
 * one writer from several threads at once, and values are then encoded in parallel.  Records are in
 * the order in which they reach the file, and the records of one call need not be adjacent.  Equal
 * bytes, and resuming, require a fixed order of calls; the digest does not depend on the order.  A
 * commit counts the data of calls that returned before it.  A call that still writes a snapshot at
 * that time fails with KVF_E_ARG.  Close or abandon a writer only when no other call is in
 * progress.  Only one thread at a time may use a reader; kvf_share makes a reader for another
 * thread.
 *
 * Memory: writing does not allocate for a kind and size that was written before, except for the
 * list of records, which doubles when it is full.  Reading the same data again does not allocate;
 * kvf_open, kvf_digest and the first kvf_token do. */
#ifndef KVF_TRACE_H
#define KVF_TRACE_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvf/err.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The last two are only elements of blobs: IEEE 754 binary16, and the upper half of an f32. */
enum kvf_dtype {
    KVF_U8 = 1,
    KVF_U16,
    KVF_U32,
    KVF_I32,
    KVF_F32,
    KVF_F64,
    KVF_U64,
    KVF_F16,
    KVF_BF16
};

/* The heads of a column: no heads (RUN: one value per token or step), the KV heads, or the query
 * heads of each layer. */
enum kvf_space { KVF_SPACE_RUN = 0, KVF_SPACE_KV = 1, KVF_SPACE_QUERY = 2 };
/* The index of a column: token positions or query steps. */
enum kvf_axis { KVF_AXIS_TOKEN = 0, KVF_AXIS_STEP = 1 };

/* Flags of a column. */
enum {
    KVF_COL_SNAPSHOT = 1u << 0,  /* rewritten every epoch: the newest committed one wins */
    KVF_COL_AGE = 1u << 1,       /* an age in steps, unsigned; all ones = never */
    KVF_COL_INTERVALS = 1u << 2, /* for each token a list of intervals of steps: u32, a snapshot */
};

/* Limits of a trace. */
enum {
    KVF_NAME_MAX = 48, /* bytes of a column name with its terminator */
    KVF_MAX_LAYERS = 4096,
    KVF_MAX_HEADS = 4096,
    KVF_MAX_STEPS = 1 << 24,
    KVF_MAX_COLUMNS = 4096,
    KVF_MAX_KEY = 255,         /* bytes of the key of a note */
    KVF_MAX_RECORDS = 1 << 24, /* of a file */
    KVF_MAX_META = 16 << 20,   /* bytes of the run header, and of a note's JSON */
    KVF_MAX_INTERVALS = 65535, /* of one token */
    KVF_MAX_RANK = 4,          /* dimensions of a blob */
    KVF_MAX_BLOB = 16 << 20,   /* bytes of its elements */
};

/* The declaration of a column. */
struct kvf_column {
    char name[KVF_NAME_MAX]; /* "last_selected.top64" */
    uint8_t dtype;           /* enum kvf_dtype */
    uint8_t space;           /* enum kvf_space */
    uint8_t axis;            /* enum kvf_axis */
    uint8_t flags;           /* KVF_COL_* */
    char unit[16];           /* "step", "nat", "" */
};

/* Steps from first to last, both of them included. */
struct kvf_interval {
    uint32_t first, last;
};

/* The description of a blob: a block of numbers as they were in the run, such as the queries, keys,
 * values or attention of a head.  A larger one is written in pieces, each with its first token. */
struct kvf_blob {
    char name[KVF_NAME_MAX];      /* "k" */
    uint8_t dtype;                /* enum kvf_dtype */
    uint8_t rank;                 /* 1 .. KVF_MAX_RANK */
    uint16_t layer, head;         /* 0 if it belongs to no layer or head */
    uint32_t t0;                  /* first token or step */
    uint32_t shape[KVF_MAX_RANK]; /* row-major, each at least 1; 0 from `rank` on */
};

/* Geometry of the run; layers may differ in head counts (arrays of n_layers). */
struct kvf_shape {
    int n_layers;
    const uint16_t *n_kv_heads;
    const uint16_t *n_query_heads;
};

/* ---- writing ---------------------------------------------------------- */

struct kvf_writer;

/* The treatment of an existing trace of the same name.  Until the new trace is closed it is at
 * "PATH.unfinished", and the existing one does not change. */
enum kvf_existing {
    KVF_REFUSE = 0,    /* an error if a closed or an unfinished trace exists */
    KVF_OVERWRITE = 1, /* closing the new trace replaces the existing one */
    /* Continues the unfinished trace; an error if a closed one exists, too.  The caller repeats all
     * calls from the first one.  Their data is compared with the file, and must be equal up to its
     * last commit.  It is written from the first difference, or from the end of the file. */
    KVF_RESUME = 2,
    KVF_RESUME_OVERWRITE = 3 /* as KVF_RESUME, and closing the trace replaces the closed one */
};

/* Options of a writer.  A zeroed struct has the defaults. */
struct kvf_writer_options {
    enum kvf_existing existing;
    /* the file is invisible until it is closed, is removed if it is abandoned, and has no tail */
    bool only_whole;
    const int32_t *prompt; /* [n_prompt] token ids of the prompt; borrowed for the call */
    size_t n_prompt;
    /* a trace of the same run, which gives the run id unless it has format 0.1; NULL: the id is
     * computed from the run header and the prompt */
    const struct kvf_trace *run;
    bool smallest; /* takes more time for fewer bytes */
    /* values are stored unencoded: the file is larger, but a mapped trace returns them without a
     * copy */
    bool plain;
};

/* Begins a trace and writes the file header, the run header and the schema.  meta_json: the
 * canonical run header, a JSON object, at most 16 MiB; with the ids of the prompt it makes the
 * identity of the run, which is part of every record.  columns: borrowed for the call; the index in
 * this array is the column number in later calls.  Names outside <kvf/schema.h>
 * must begin with "x-" (KVF_E_ARG).  options: NULL for the defaults.  Returns KVF_OK, KVF_E_IO (an
 * existing file, or see errno), KVF_E_ARG, KVF_E_LIMIT or KVF_E_NOMEM.  For an unfinished trace it
 * also returns the errors of kvf_open, and KVF_E_FORMAT if that trace is of another run.  On
 * failure *ret_writer and existing files are unchanged. */
int kvf_writer_open(const char *path, const char *meta_json, const struct kvf_shape *shape,
                    const struct kvf_column *columns, int n_columns,
                    const struct kvf_writer_options *options, struct kvf_writer **ret_writer,
                    struct kvf_diag *d);

/* Writes values [n_heads][n] (head-major) of heads head0 .. head0+n_heads-1 of a layer for indices
 * t0 .. t0+n-1.  RUN columns use layer = head0 = 0, n_heads = 1.  epoch: 0 for columns without
 * KVF_COL_SNAPSHOT, otherwise one more than that of the
 * last commit.  A value is written once (per epoch):
 * readers may take either of two.  Large chunks are split into parts of at most 512 KiB of raw
 * data: between heads, so that all of a head can be read separately, and along the index if one
 * head is larger.  data is borrowed. */
int kvf_write_chunk(struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                    uint32_t t0, uint32_t n, uint32_t epoch, const void *data);

/* Writes the intervals of tokens t0 .. t0+n-1 of a column with KVF_COL_INTERVALS: the steps in
 * which a condition is true for an entry that may return, such as being seen.  end [n_heads][n]
 * (head-major) counts the intervals up to and including this token and head, so it never decreases.
 * interval [end[last]] contains them in that order.  The intervals of one token increase, with a
 * gap of at least one step between two of them.  They begin at the token's own step or later, and
 * the commit must count their last step.  Heads, indices and epoch are as in kvf_write_chunk; both
 * arrays are borrowed.  Returns KVF_E_ARG for other intervals, and KVF_E_LIMIT for more than
 * KVF_MAX_INTERVALS of one token. */
int kvf_write_intervals(struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                        uint32_t t0, uint32_t n, uint32_t epoch, const uint32_t *end,
                        const struct kvf_interval *interval);

/* Writes the text of tokens t0 .. t0+n-1: bytes is their concatenation, and end[k] the offset just
 * after token t0+k (increasing; end[n-1] = number of bytes). */
int kvf_write_token_bytes(struct kvf_writer *w, uint32_t t0, uint32_t n, const uint32_t *end,
                          const char *bytes);

/* Appends a block of numbers of kvf_blob_size(b) bytes.  packed: encoded if that makes it smaller;
 * otherwise it is stored unencoded, and kvf_blob_view does not copy.  layer: a layer of the shape;
 * head: one of the layer's KV or query heads.  Names outside <kvf/schema.h> begin with "x-".
 * Returns KVF_E_ARG if b is not valid, and KVF_E_LIMIT if it exceeds KVF_MAX_BLOB. */
int kvf_write_blob(struct kvf_writer *w, const struct kvf_blob *b, bool packed, const void *data);
/* Returns the bytes of the elements; 0 if b is not valid or exceeds KVF_MAX_BLOB. */
size_t kvf_blob_size(const struct kvf_blob *b);

/* Declares that the run has n_steps steps so far and that all chunks of this
 * epoch are written.  Epochs increase by one from 1.  Also a checkpoint. */
int kvf_writer_commit(struct kvf_writer *w, uint32_t epoch, uint32_t n_steps);

/* Adds JSON metadata that is known only late, such as generated text, of at most KVF_MAX_META
 * bytes.  Timings are not allowed.  key: a name such as "result", of 1 to KVF_MAX_KEY bytes.
 * Returns KVF_OK, KVF_E_ARG, KVF_E_LIMIT or the error of the writer. */
int kvf_writer_note(struct kvf_writer *w, const char *key, const char *json);

/* Waits until all written data is on disk. */
int kvf_writer_sync(struct kvf_writer *w);

/* Begins a tail: a trace of the same run and columns in a second file (PATH.tail), for the newest
 * state of a run that continues.  It takes data that the trace itself lacks: later values of
 * streams, and every snapshot column completely, with the epoch 1 and a commit.  kvf_writer_close
 * replaces the previous tail in one step; closing w removes it.  kvf_open of the trace, while it is
 * unfinished, shows both as one.  A state can thus be stored at any time without effect on the
 * bytes of the closed trace.  Call kvf_writer_sync(w) before the tail is closed. *ret_tail is NULL,
 * and the result KVF_OK, while w continues an unfinished trace (KVF_RESUME or KVF_RESUME_OVERWRITE)
 * without new data: that trace and its tail then have a newer state.  Results as kvf_writer_open;
 * KVF_E_ARG: w is written with only_whole. */
int kvf_writer_open_tail(const struct kvf_writer *w, struct kvf_writer **ret_tail,
                         struct kvf_diag *d);

uint64_t kvf_writer_bytes(const struct kvf_writer *w); /* written so far */

/* Writes index and footer with the CLEAN flag, syncs, brings the file to its name and frees w.
 * Accepts NULL.  Returns the first error of the session; then the trace stays unfinished. */
int kvf_writer_close(struct kvf_writer *w, struct kvf_diag *d);

/* Closes and frees without a footer, as a crash would; the file stays at "PATH.unfinished",
 * readable up to its last commit.  Accepts NULL. */
void kvf_writer_abandon(struct kvf_writer *w);
/* As kvf_writer_abandon, for a trace without records: its file is removed, unless it is an
 * unfinished trace that was to be continued.  Accepts NULL. */
void kvf_writer_drop(struct kvf_writer *w);

/* ---- reading ---------------------------------------------------------- */

struct kvf_trace;

enum kvf_open_mode {
    /* default: opens the last complete snapshot of a trace that was not closed.  Damage before it,
     * or in the run header, schema, commits and notes of a closed trace, is an error.  Damaged
     * values are an error when they are read. */
    KVF_OPEN_TAIL = 0,
    KVF_OPEN_STRICT = 1, /* closed properly, and every record header matches the index */
    KVF_OPEN_SALVAGE = 2 /* skip damaged records, keep the rest; needs run header and schema */
};

/* Opens a trace, or PATH.unfinished if PATH does not exist; never modifies the file.  Returns
 * KVF_OK, KVF_E_IO, KVF_E_FORMAT (not a trace), KVF_E_VERSION, KVF_E_CORRUPT, KVF_E_LIMIT or
 * KVF_E_NOMEM. */
int kvf_open(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
             struct kvf_diag *d);
/* Opens a trace as kvf_open does, and maps the file of a closed trace into memory.  On
 * little-endian machines, kvf_view of values that were stored unencoded (option `plain`) and
 * kvf_blob_view of blobs that were not packed then point into the file, and their data stays valid
 * until kvf_close.  The checksum of a record is compared at its first use.  A mapped file must not
 * be changed or truncated in place: reading the missing part ends the process (SIGBUS).  This
 * library does neither to a closed trace, and a trace that is replaced keeps its file while that is
 * mapped.  A trace that was not closed is read without mapping, because a writer that continues it
 * may truncate it.  Returns as kvf_open, and KVF_E_IO if the file cannot be mapped. */
int kvf_open_mapped(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
                    struct kvf_diag *d);
void kvf_close(struct kvf_trace *t); /* accepts NULL */

/* Makes another reader of an open trace, for another thread.  It borrows the file, run header,
 * schema and records, and has its own buffers.  Close it before t; while it is open, t may be read
 * but not closed.  Returns KVF_OK or KVF_E_NOMEM. */
int kvf_share(const struct kvf_trace *t, struct kvf_trace **ret_trace);

/* Returns the name of the file as given, or with ".unfinished" if that file was opened. */
const char *kvf_path(const struct kvf_trace *t);
const char *kvf_meta(const struct kvf_trace *t); /* the run header */
/* Returns the format of the file, "1.0" or "0.1". */
const char *kvf_format(const struct kvf_trace *t);
/* Sets ret to the identity of the run: 32 hexadecimal digits and a zero byte.  Returns
 * KVF_E_NOTFOUND for a trace of format 0.1, which lacks it. */
int kvf_run_id(const struct kvf_trace *t, char ret[33]);
/* Sets ret to the digest of the content of the trace: 32 hexadecimal digits and a zero byte.  Equal
 * contents have equal digests, independent of chunks and encodings.  kvf_digest reads every value
 * and computes the digest; kvf_stored_digest returns the digest that the writer stored in the file.
 * Returns KVF_E_NOTFOUND if the trace was not closed or, for the stored one, has format 0.1;
 * KVF_E_VERSION if it has records of unknown types; otherwise as kvf_read. */
int kvf_digest(struct kvf_trace *t, char ret[33], struct kvf_diag *d);
int kvf_stored_digest(const struct kvf_trace *t, char ret[33]);

const char *kvf_note(const struct kvf_trace *t,
                     const char *key); /* NULL if missing; the last one counts */
int kvf_n_layers(const struct kvf_trace *t);
int kvf_n_heads(const struct kvf_trace *t, int layer, enum kvf_space space); /* RUN: 1 */
uint32_t kvf_n_steps(const struct kvf_trace *t); /* of the newest committed epoch */
uint32_t kvf_epoch(const struct kvf_trace *t);   /* newest committed; 0 without a commit */
int kvf_is_clean(const struct kvf_trace *t);     /* closed properly */
/* Returns a sentence if the trace was not closed and has a tail that cannot be read, for example
 * because it is damaged or not permitted.  The values of the tail are then missing.  Otherwise
 * returns NULL. */
const char *kvf_tail_aside(const struct kvf_trace *t);
int kvf_n_columns(const struct kvf_trace *t);
const struct kvf_column *kvf_column(const struct kvf_trace *t, int column);
int kvf_find(const struct kvf_trace *t, const char *name); /* -1 if missing */
size_t kvf_dtype_size(enum kvf_dtype dtype);

/* Returns the size of the file, and of the tail that is read with it, at the time of opening.  A
 * trace declares its steps and heads in a few bytes.  Before allocating by these numbers, compare
 * them with this size, or call kvf_check_size. */
uint64_t kvf_bytes(const struct kvf_trace *t);
/* Returns KVF_E_LIMIT with a sentence if a trace declares more than 131072 steps or heads, and more
 * than its file has bytes.  A real run has an id and a text for each token. */
int kvf_check_size(const struct kvf_trace *t, struct kvf_diag *d);
/* Returns the number of values of a column within the steps of the trace, in the newest committed
 * epoch, from the headers of records.  A value in several records is counted several times.  Reads
 * no value. */
uint64_t kvf_held(const struct kvf_trace *t, int column);
/* Returns the number of intervals of a column with KVF_COL_INTERVALS, for which kvf_held counts the
 * lists; 0 for other columns. */
uint64_t kvf_held_intervals(const struct kvf_trace *t, int column);

/* Receives progress during long operations: `done` of the `of` bytes that the file decodes to were
 * decoded.  Both may grow, because data that is read twice counts twice. */
typedef void (*kvf_watch_fn)(void *ctx, uint64_t done, uint64_t of);
/* From now on fn receives the bytes decoded from t, in this thread; fn NULL ends this. */
void kvf_watch(struct kvf_trace *t, kvf_watch_fn fn, void *ctx);

/* Reads values [t0, t0+n) of one head into out (n elements of the column's own
 * dtype).  Returns KVF_OK, KVF_E_NOTFOUND if a part of the range was never written or is lost
 * (missing values are never zero-filled), or KVF_E_CORRUPT on a bad checksum. */
int kvf_read(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
             void *out, struct kvf_diag *d);

/* Sets *ret to the values that kvf_read copies, borrowed until the next call that reads from t.
 * Values within one chunk are not copied.  They are aligned to their type. */
int kvf_view(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
             const void **ret, struct kvf_diag *d);

/* Read values as kvf_read does and convert them.  Integers are exact (u64 up to 2^53), and "never"
 * of KVF_COL_AGE becomes -1.  For i32, values out of range (KVF_ALIVE, NaN) become -1, too. */
int kvf_read_f64(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
                 double *out, struct kvf_diag *d);
int kvf_read_i32(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
                 int32_t *out, struct kvf_diag *d);

/* Reads the intervals of tokens [t0, t0+n) of one head of a column with KVF_COL_INTERVALS, for
 * which the functions above return KVF_E_ARG.  Sets end [n] to the number of intervals up to and
 * including each token, and *ret [end[n-1]] to all of them, borrowed until the next call that reads
 * from t.  Their order and their steps have been checked.  Returns as kvf_read, and KVF_E_LIMIT if
 * there are more than 2^24: request fewer tokens. */
int kvf_read_intervals(struct kvf_trace *t, int column, int layer, int head, uint32_t t0,
                       uint32_t n, uint32_t *end, const struct kvf_interval **ret,
                       struct kvf_diag *d);

/* Blobs 0 ..  n-1, in the order of layer, head, first token, and then of writing.  Intervals of an
 * unfinished trace count as far as they were written. */
int kvf_n_blobs(const struct kvf_trace *t);
/* Reads the description of a blob, but not its elements.  Returns KVF_OK, KVF_E_ARG, KVF_E_IO or
 * KVF_E_CORRUPT. */
int kvf_blob(struct kvf_trace *t, int blob, struct kvf_blob *ret, struct kvf_diag *d);
/* Sets *ret to the kvf_blob_size bytes of a blob, borrowed until the next call that reads from t.
 * Blobs that were not packed are not copied.  The bytes are aligned to their type.  Returns as
 * kvf_blob, KVF_E_VERSION (unknown codec) or KVF_E_NOMEM. */
int kvf_blob_view(struct kvf_trace *t, int blob, const void **ret, struct kvf_diag *d);

/* Reads the texts of the tokens, after which kvf_token allocates no memory.  Returns KVF_OK, also
 * if texts are damaged or not stored; KVF_E_NOMEM; or KVF_E_LIMIT for 4 GiB of texts. */
int kvf_texts(struct kvf_trace *t);
/* Returns the text of token i, borrowed until kvf_close, and sets *len.  Returns NULL if the text
 * is not stored or damaged, or unless kvf_texts was called, if memory is exhausted. */
const char *kvf_token(struct kvf_trace *t, uint32_t i, size_t *len);

struct kvf_check {    /* results of a check */
    uint64_t records; /* good records */
    uint64_t bad;     /* places with a wrong checksum or impossible content */
    uint64_t bytes;   /* size of the file */
    uint64_t lost;    /* bytes at the bad places that form no record */
    uint64_t torn;    /* bytes of an incomplete tail: a trace that was not closed
                         may end in half a record, which is no damage */
    uint64_t breaks;  /* places where a record does not follow its predecessor: after damage, and
                         where records were exchanged, moved, repeated or left out */
    uint64_t payload_bytes, raw_bytes; /* stored and decoded size of the columns */
    int clean;
};

/* Walks every record of the file and compares the index with them.  full: also checksum and decode
 * the columns.  KVF_OK if all complete records are intact: ret->clean is true if the trace was
 * closed, else d has "unfinished" and the torn bytes.  KVF_E_CORRUPT with d naming the first
 * damage; *ret is filled in both cases.  Other errors as kvf_open. */
int kvf_verify(const char *path, int full, struct kvf_check *ret, struct kvf_diag *d);
/* As kvf_verify, with progress: watch is as in kvf_watch, or NULL. */
int kvf_verify_watched(const char *path, int full, kvf_watch_fn watch, void *ctx,
                       struct kvf_check *ret, struct kvf_diag *d);
/* Checks the tail of a trace that was not closed, which has its newest state, as kvf_verify does.
 * Returns KVF_E_NOTFOUND if there is no tail, or if the trace needs no tail.  Returns KVF_OK with a
 * sentence in d if the tail is intact but is not read with the trace, because it is of another run
 * or not newer. */
int kvf_verify_tail(const char *path, int full, struct kvf_check *ret, struct kvf_diag *d);

enum { KVF_MAX_FINDINGS = 20 };
/* Receives a finding as one line. */
typedef void (*kvf_finding_fn)(void *ctx, const char *line);

/* Checks the content of an open trace: every column has each of its values once, within the steps,
 * and columns of <kvf/schema.h> have their shapes.  With `values`, all values of these columns must
 * be possible.  Calls `say` with a sentence for each finding, for a column only for the first of
 * its kind, at most KVF_MAX_FINDINGS times.  Returns KVF_OK, also with findings, and *ret_n is the
 * number of calls; or KVF_E_NOMEM.  kvf_verify finds damaged values. */
int kvf_judge(struct kvf_trace *t, int values, kvf_finding_fn say, void *ctx, int *ret_n);

#ifdef __cplusplus
}
#endif
#endif
