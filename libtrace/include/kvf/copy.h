/* copy.h - traces made of traces: of a whole one, of a piece of one, of pieces that are joined
 * again, and of what is left of a damaged one.
 *
 * What is made is a trace of the same run, with its run id.  It is written as any other: it stands
 * at its name once it is whole, and an older one stays until then.  Values go through memory
 * chunk by chunk.  A piece says in its note "part" what it is a piece of. */
#ifndef KVF_COPY_H
#define KVF_COPY_H

#include <kvf/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is taken of a trace.  Zeroed: all of it.
 *
 * Tokens and steps are numbered from 0 again, and so are steps that are values (evict_step,
 * shadow.first_hit) and token numbers in names (received.LxHy.i); ages stay.  Values that
 * changed until the run ended say what was so at its end, which may be behind the piece's last
 * step.  Query heads go with their KV head.  Layers without a head that is kept are left out, and
 * so are columns whose name tells a layer, head or token that is not kept. */
struct kvf_piece {
    uint32_t from, to;          /* tokens and steps from .. to - 1; to = 0: to the end */
    const unsigned char *heads; /* [KV heads of layer 0, then of layer 1, ...] not 0: kept;
                                   NULL: all */
};

struct kvf_copy_options {
    bool overwrite;     /* replaces a trace that is there */
    bool smallest;      /* takes more time for fewer bytes */
    kvf_watch_fn watch; /* of kvf_repair, as kvf_watch says: the others watch what they are given */
    void *watch_ctx;
};

/* What was made. */
struct kvf_copied {
    uint32_t n_steps;
    uint64_t bytes;    /* of the file */
    int columns_left;  /* columns that were left out */
    uint64_t left_out; /* blobs, and records of later releases, which a piece lacks */
};

/* Writes t, or a piece of it, to path.  t was closed; superseded snapshots are left behind.  A
 * whole copy has the digest of t.  What declares more than its file can hold (kvf_check_size), or
 * decodes to more than 1 GiB and 4096 bytes for each of its bytes, is refused with KVF_E_LIMIT.
 * piece, o: NULL: nothing special. KVF_OK, KVF_E_ARG (nothing is taken, heads that cannot be, or
 * some tokens of a trace whose columns hold intervals of steps), KVF_E_NOTFOUND (t was not closed),
 * KVF_E_CORRUPT (t is not what its writer wrote), KVF_E_VERSION (t has records of a later release,
 * and is to be whole), and what kvf_writer_open and kvf_read give. */
int kvf_copy(struct kvf_trace *t, const struct kvf_piece *piece, const char *path,
             const struct kvf_copy_options *o, struct kvf_copied *ret, struct kvf_diag *d);
/* Whether n pieces may be copied one after the other, which decodes a chunk for each piece that has
 * some of it: KVF_E_LIMIT with a sentence where that is more than 8 GiB in all, and more than 4096
 * bytes for each byte of the file.  A trace that decodes to 48 MiB is decoded once. */
int kvf_check_pieces(const struct kvf_trace *t, const struct kvf_piece *piece, int n,
                     struct kvf_diag *d);

/* What a piece is a piece of: tokens and steps from .. to - 1 of `of`. */
struct kvf_part {
    uint32_t from, to, of;
    char whole[33]; /* the digest of the trace that it was taken from; "": not known */
};
/* KVF_E_NOTFOUND: t is no piece of another trace. */
int kvf_part(const struct kvf_trace *t, struct kvf_part *ret);

/* Joins pieces that follow each other, given in their order.  All pieces of a trace without blobs
 * give a trace with its digest.
 * KVF_E_ARG with a sentence: they are of different runs, do not follow each other, or are no
 * pieces; else as kvf_copy. */
int kvf_join(struct kvf_trace *const *part, int n, const char *path,
             const struct kvf_copy_options *o, struct kvf_copied *ret, struct kvf_diag *d);

/* What became of a damaged or unfinished trace. */
struct kvf_repaired {
    struct kvf_copied made;
    bool intact;    /* nothing is lost: the new trace has the content of the old one */
    bool closed;    /* the old one was closed */
    bool tail;      /* its newest state came from the file beside it */
    bool bad_index; /* its index did not match the records, of which none is lost for that */
    bool no_commit; /* it had none: the number of steps is that of the values that are there */
    uint64_t places, first_place; /* damaged places, and the first: a byte of the file */
    uint64_t lost_bytes;          /* that form no record */
    uint64_t torn_bytes;          /* at the end of one that was not closed */
    uint64_t breaks, first_break; /* where the chain of checksums is broken */
    uint64_t values, missing;     /* values within the steps: that are kept, that are not there */
    uint64_t texts_missing;
};
/* Called with a sentence for each column and layer that lacks values. */
typedef void (*kvf_say_fn)(void *ctx, const char *line);

/* Writes what can be kept of the trace, and of the tail beside it, to `out`.  Unless nothing is
 * lost the new trace has a note "repaired" that says what is.  Columns of which nothing is left are
 * left out; of others the values that are lost are not there.  Values behind the last commit are
 * left out.
 * KVF_OK whatever was lost; KVF_E_CORRUPT where run header or schema are, or nothing is left. */
int kvf_repair(const char *path, const char *out, const struct kvf_copy_options *o, kvf_say_fn say,
               void *ctx, struct kvf_repaired *ret, struct kvf_diag *d);

#ifdef __cplusplus
}
#endif
#endif
