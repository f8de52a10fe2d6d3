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
 * the order in which they reach the file, and the records of one call need not be neighbours: who
 * wants equal bytes, or to resume, calls in one order, but the digest is the same in any.  A commit
 * counts the data of calls that returned before it; one that still writes a snapshot then gets
 * KVF_E_ARG.  A writer is closed, and abandoned, when no other call is at work.  A reader is of one
 * thread at a time; kvf_share makes a reader for another thread.
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

/* Which heads a column has: none (one value per token or step), the KV heads,
 * or the query heads of each layer. */
enum kvf_space { KVF_SPACE_RUN = 0, KVF_SPACE_KV = 1, KVF_SPACE_QUERY = 2 };
enum kvf_axis { KVF_AXIS_TOKEN = 0, KVF_AXIS_STEP = 1 };

enum {
    KVF_COL_SNAPSHOT = 1u << 0,  /* rewritten every epoch: the newest committed one wins */
    KVF_COL_AGE = 1u << 1,       /* an age in steps, unsigned; all ones = never */
    KVF_COL_INTERVALS = 1u << 2, /* for each token a list of intervals of steps: u32, a snapshot */
};

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
    uint16_t layer, head;         /* 0 where it is of none */
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

/* The treatment of an existing trace of the same name.  Until the new one is closed it is at
 * "PATH.unfinished", and the older one stays as it is. */
enum kvf_existing {
    KVF_REFUSE = 0,    /* the new one is rejected; also if there is an unfinished one */
    KVF_OVERWRITE = 1, /* closing the new one replaces it */
    KVF_RESUME = 2,    /* continues the unfinished one: the caller repeats the same calls from the
                          first on.  Their data is compared with the file, which must be equal up
                          to its last commit, and written from the first difference or from its
                          end on; rejected if there is a closed one, too */
    KVF_RESUME_OVERWRITE = 3 /* the same, and closing it replaces the closed one */
};

/* Options of a writer.  Zeroed: nothing. */
struct kvf_writer_options {
    enum kvf_existing existing;
    bool only_whole; /* the file is invisible before it is closed, and removed when it is abandoned;
                        it has no tail */
    const int32_t *prompt; /* [n_prompt] token ids of the prompt; borrowed for the call */
    size_t n_prompt;
    const struct kvf_trace *run; /* a trace of the same run, which has its id, unless that is of
                                    format 0.1; NULL: the id is made of run header and prompt */
    bool smallest;               /* takes more time for fewer bytes */
    bool plain; /* values are stored as they are: larger, but a mapped trace gives them out without
                   a copy */
};

/* Begins a trace and writes the file header, the run header and the schema.  meta_json: the
 * canonical run header, a JSON object, at most 16 MiB; with the ids of the prompt it makes the
 * identity of the run, which is part of every record.  columns: borrowed for the call; the index in
 * this array is the column number in later calls.  Names that are not of <kvf/schema.h> begin with
 * "x-"; others are refused (KVF_E_ARG).  options: NULL for none.  KVF_OK, KVF_E_IO (an existing
 * file, or see errno), KVF_E_ARG, KVF_E_LIMIT, KVF_E_NOMEM; for an unfinished trace the errors of
 * kvf_open, and KVF_E_FORMAT if it is of another run.  On failure *ret_writer is untouched, and
 * existing files are unchanged. */
int kvf_writer_open(const char *path, const char *meta_json, const struct kvf_shape *shape,
                    const struct kvf_column *columns, int n_columns,
                    const struct kvf_writer_options *options, struct kvf_writer **ret_writer,
                    struct kvf_diag *d);

/* Values [n_heads][n] (head-major) of heads head0 ..  head0+n_heads-1 of a layer for indices t0 ..
 * t0+n-1.  RUN columns use layer = head0 = 0, n_heads = 1.  epoch: 0 for columns without
 * KVF_COL_SNAPSHOT, else one more than the last commit's.  A value is written once (per epoch):
 * readers may take either of two.  Large chunks are split into parts of at most 512 KiB of raw
 * data: between heads, so that all of a head can be read separately, and along the index if one
 * head is larger.  data is borrowed. */
int kvf_write_chunk(struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                    uint32_t t0, uint32_t n, uint32_t epoch, const void *data);

/* The intervals of tokens t0 ..  t0+n-1, of a column with KVF_COL_INTERVALS: the steps in which a
 * condition is true for an entry that may return, such as being seen.  end [n_heads][n]
 * (head-major) counts the intervals up to and including this token and head, so that it never
 * falls; interval [end[last]] holds them in that order.  The intervals of one token rise, with at
 * least one step between two of them.  They begin at the token's own step or later, and the commit
 * must count their last step.  Heads, indices and epoch as in kvf_write_chunk; both arrays are
 * borrowed.  KVF_E_ARG: it is not so; KVF_E_LIMIT: more than KVF_MAX_INTERVALS of one token. */
int kvf_write_intervals(struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                        uint32_t t0, uint32_t n, uint32_t epoch, const uint32_t *end,
                        const struct kvf_interval *interval);

/* Text of tokens t0 .. t0+n-1: bytes holds them joined, end[k] is the offset
 * just after token t0+k (rising; end[n-1] = number of bytes). */
int kvf_write_token_bytes(struct kvf_writer *w, uint32_t t0, uint32_t n, const uint32_t *end,
                          const char *bytes);

/* Appends a block of numbers, of kvf_blob_size(b) bytes.  packed: encoded where that makes it
 * smaller; else it is stored as it is, and kvf_blob_view does not copy.  layer: of the
 * shape; head: one of the layer's KV or query heads.  Names that are not of <kvf/schema.h> begin
 * with "x-".  KVF_E_ARG: b cannot be; KVF_E_LIMIT: it is larger than KVF_MAX_BLOB. */
int kvf_write_blob(struct kvf_writer *w, const struct kvf_blob *b, bool packed, const void *data);
/* Bytes of the elements; 0 where b cannot be, or has more than KVF_MAX_BLOB. */
size_t kvf_blob_size(const struct kvf_blob *b);

/* Declares that the run has n_steps steps so far and that all chunks of this
 * epoch are written.  Epochs rise by one from 1.  Also a checkpoint. */
int kvf_writer_commit(struct kvf_writer *w, uint32_t epoch, uint32_t n_steps);

/* Extra JSON metadata, known only late (text generated, timings are not
 * allowed), at most KVF_MAX_META bytes.  key: a name such as "result", of 1 to KVF_MAX_KEY bytes.
 * KVF_E_ARG, KVF_E_LIMIT. */
int kvf_writer_note(struct kvf_writer *w, const char *key, const char *json);

/* Waits until all that was written is on the disk. */
int kvf_writer_sync(struct kvf_writer *w);

/* Begins a tail: a trace of the same run and columns in a second file (PATH.tail), for the newest
 * state of a run that continues.  It takes data that the trace itself lacks: later values of
 * streams, and every snapshot column completely, with the epoch 1 and a commit.  kvf_writer_close
 * replaces the previous tail in one step; closing w removes it.  kvf_open of the trace, while it is
 * unfinished, shows both as one.  So a state can be kept at any time without effect on the bytes of
 * the closed trace.  Call kvf_writer_sync(w) before the tail is closed. *ret_tail is NULL, and the
 * result KVF_OK, while w continues an unfinished trace (KVF_RESUME or KVF_RESUME_OVERWRITE) without
 * new data: that trace and its tail then have a newer state.  Results as kvf_writer_open;
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
/* The same for a trace without records: its file is removed, unless it is an
 * unfinished one that was to be gone on with.  Accepts NULL. */
void kvf_writer_drop(struct kvf_writer *w);

/* ---- reading ---------------------------------------------------------- */

struct kvf_trace;

enum kvf_open_mode {
    KVF_OPEN_TAIL = 0,   /* default: of a trace that was not closed, the last complete snapshot;
                            damage before it, or in a closed trace's run header, schema, commits
                            and notes, is an error; damaged values are an error when read */
    KVF_OPEN_STRICT = 1, /* closed properly, and every record header matches the index */
    KVF_OPEN_SALVAGE = 2 /* skip damaged records, keep the rest; needs run header and schema */
};

/* Opens a trace, or PATH.unfinished if PATH does not exist; never modifies
 * the file.  KVF_OK, KVF_E_IO, KVF_E_FORMAT (not
 * a trace), KVF_E_VERSION, KVF_E_CORRUPT, KVF_E_LIMIT, KVF_E_NOMEM. */
int kvf_open(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
             struct kvf_diag *d);
/* The same, and the file of a trace that was closed is mapped into memory: kvf_view of values that
 * were stored as they are (option `plain`) and kvf_blob_view of blobs that were not packed then
 * point into the file, on machines that are little-endian, and their data stays valid until
 * kvf_close.  The checksum of a record is compared when it is first asked for.  A mapped file must
 * not be changed or shortened in its place: reading the missing part ends the process (SIGBUS).
 * This library does neither to a closed trace, and one that is replaced keeps its file as long as
 * that is mapped.  A trace that was not closed is read as by kvf_open, since a writer that
 * continues it may cut it.  As kvf_open, and KVF_E_IO where the file cannot be mapped. */
int kvf_open_mapped(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
                    struct kvf_diag *d);
void kvf_close(struct kvf_trace *t); /* accepts NULL */

/* One more reader of an open trace, for another thread: the same file, run header, schema and
 * records, which are borrowed, with its own buffers.  Close it before t; as long as it is open,
 * t may be read but not closed.  KVF_OK or KVF_E_NOMEM. */
int kvf_share(const struct kvf_trace *t, struct kvf_trace **ret_trace);

/* The name of the file: as it was given, or with ".unfinished" where that was opened. */
const char *kvf_path(const struct kvf_trace *t);
const char *kvf_meta(const struct kvf_trace *t); /* the run header */
/* The format of the file: "1.0", or "0.1". */
const char *kvf_format(const struct kvf_trace *t);
/* The identity of the run: 32 hexadecimal digits and a zero byte.  KVF_E_NOTFOUND in a trace of
 * format 0.1, which lacks it. */
int kvf_run_id(const struct kvf_trace *t, char ret[33]);
/* The digest of the content of the trace: 32 hexadecimal digits and a zero byte.  Equal contents
 * have equal digests, however they are cut into chunks and encoded.  kvf_digest computes it from
 * every value, which reads them all; kvf_stored_digest returns the digest that the writer stored in
 * the file.  KVF_E_NOTFOUND: the trace was not closed or, for the stored one, is of format 0.1;
 * KVF_E_VERSION: it has records of types that this version does not know; others as kvf_read. */
int kvf_digest(struct kvf_trace *t, char ret[33], struct kvf_diag *d);
int kvf_stored_digest(const struct kvf_trace *t, char ret[33]);

const char *kvf_note(const struct kvf_trace *t, const char *key); /* NULL: none; last wins */
int kvf_n_layers(const struct kvf_trace *t);
int kvf_n_heads(const struct kvf_trace *t, int layer, enum kvf_space space); /* RUN: 1 */
uint32_t kvf_n_steps(const struct kvf_trace *t); /* of the newest committed epoch */
uint32_t kvf_epoch(const struct kvf_trace *t);   /* newest committed; 0: none */
int kvf_is_clean(const struct kvf_trace *t);     /* closed properly */
/* Why the tail of a trace that was not closed, which is there, cannot be read, as one that nobody
 * may read or that is damaged: a sentence.  What it held is not shown then.  NULL: it is not so. */
const char *kvf_tail_aside(const struct kvf_trace *t);
int kvf_n_columns(const struct kvf_trace *t);
const struct kvf_column *kvf_column(const struct kvf_trace *t, int column);
int kvf_find(const struct kvf_trace *t, const char *name); /* -1: none */
size_t kvf_dtype_size(enum kvf_dtype dtype);

/* The size of the file, and of the tail that is read with it, when they were opened.  A trace
 * declares its steps and heads in a few bytes; who allocates by them compares them with this first,
 * or calls kvf_check_size. */
uint64_t kvf_bytes(const struct kvf_trace *t);
/* KVF_E_LIMIT with a sentence where a trace declares more steps, or more heads, than its file has
 * bytes, beyond 131072: of a run it has an identifier and a text for each token. */
int kvf_check_size(const struct kvf_trace *t, struct kvf_diag *d);
/* The number of values of a column within the steps of the trace, of the newest committed epoch, by
 * the headers of records.  A value in several records is counted by each.  No value is read. */
uint64_t kvf_held(const struct kvf_trace *t, int column);
/* The same of the intervals of a column with KVF_COL_INTERVALS, for which kvf_held counts lists; 0
 * for other columns. */
uint64_t kvf_held_intervals(const struct kvf_trace *t, int column);

/* Called from time to time while something takes long: of `of` bytes that the file decodes to,
 * `done` were decoded.  Both may grow: data that is read twice counts twice. */
typedef void (*kvf_watch_fn)(void *ctx, uint64_t done, uint64_t of);
/* From now on fn is called with the bytes decoded from t, by this thread; NULL: nobody does. */
void kvf_watch(struct kvf_trace *t, kvf_watch_fn fn, void *ctx);

/* Reads values [t0, t0+n) of one head into out (n elements of the column's own
 * dtype).  KVF_E_NOTFOUND when part of the range was never written or is lost
 * (missing is never zero-filled), KVF_E_CORRUPT on a bad checksum. */
int kvf_read(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
             void *out, struct kvf_diag *d);

/* The same values, borrowed until the next call that reads from t: not copied if they are in one
 * chunk.  Aligned to their type. */
int kvf_view(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
             const void **ret, struct kvf_diag *d);

/* As kvf_read, widened: integers exactly (u64 up to 2^53); KVF_COL_AGE's "never"
 * becomes -1.  As i32, values that do not fit (KVF_ALIVE, NaN) become -1 too. */
int kvf_read_f64(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
                 double *out, struct kvf_diag *d);
int kvf_read_i32(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
                 int32_t *out, struct kvf_diag *d);

/* The intervals of tokens [t0, t0+n) of one head, of a column with KVF_COL_INTERVALS, for which the
 * functions above return KVF_E_ARG: end [n] becomes their number up to and with each token's, and
 * *ret [end[n-1]] all of them, borrowed until the next call that reads from t.  Their order and
 * their steps have been checked.  Results as kvf_read; KVF_E_LIMIT: they are more than 2^24, and
 * fewer tokens are to be asked for. */
int kvf_read_intervals(struct kvf_trace *t, int column, int layer, int head, uint32_t t0,
                       uint32_t n, uint32_t *end, const struct kvf_interval **ret,
                       struct kvf_diag *d);

/* Blobs 0 ..  n-1, in the order of layer, head, first token, and then of writing.  Blobs of an
 * unfinished trace count as far as they were written; those of its tail file follow and may repeat
 * rows. */
int kvf_n_blobs(const struct kvf_trace *t);
/* The description of a blob; its elements are not read.  KVF_OK, KVF_E_ARG, KVF_E_IO,
 * KVF_E_CORRUPT.
 * */
int kvf_blob(struct kvf_trace *t, int blob, struct kvf_blob *ret, struct kvf_diag *d);
/* Its kvf_blob_size bytes, borrowed until the next call that reads from t; not copied where they
 * were not packed.  Aligned to their type.  As kvf_blob, KVF_E_VERSION (unknown codec),
 * KVF_E_NOMEM. */
int kvf_blob_view(struct kvf_trace *t, int blob, const void **ret, struct kvf_diag *d);

/* Reads the texts of the tokens, so that kvf_token needs no memory any more.  KVF_OK also if texts
 * are damaged or not stored; KVF_E_NOMEM, KVF_E_LIMIT (they have 4 GiB). */
int kvf_texts(struct kvf_trace *t);
/* The text of token i, borrowed until kvf_close; sets *len.  NULL: not stored,
 * or damaged; or memory was out, unless kvf_texts was called. */
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
/* The same; watch: see kvf_watch, NULL: nobody. */
int kvf_verify_watched(const char *path, int full, kvf_watch_fn watch, void *ctx,
                       struct kvf_check *ret, struct kvf_diag *d);
/* The same for the tail of a trace that was not closed, which has its newest state.
 * KVF_E_NOTFOUND: there is none, or the trace needs none.  KVF_OK with a sentence in d: it is
 * intact, but is not read with the trace, because it is of another run or not newer. */
int kvf_verify_tail(const char *path, int full, struct kvf_check *ret, struct kvf_diag *d);

enum { KVF_MAX_FINDINGS = 20 };
typedef void (*kvf_finding_fn)(void *ctx, const char *line);

/* Judges the content of an open trace: whether every column has each of its values once, within the
 * steps; whether columns of <kvf/schema.h> are of its shapes; and with values, whether all their
 * values can be.  say: called with a sentence for each finding, of a column for the first of its
 * kind, at most KVF_MAX_FINDINGS times.  KVF_OK with any findings, and *ret_n is the number of
 * calls of `say`; KVF_E_NOMEM.  kvf_verify finds damaged values. */
int kvf_judge(struct kvf_trace *t, int values, kvf_finding_fn say, void *ctx, int *ret_n);

#ifdef __cplusplus
}
#endif
#endif
