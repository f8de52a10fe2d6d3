/* copy.h - makes a trace from traces: from all of one, from a piece of one, from pieces that are
 * joined again, or from the rest of a damaged one.
 *
 * The new trace is of the same run and has its run id.  It is written like any other trace: it gets
 * its name when it is complete, and an older trace of that name stays until then.  Values go
 * through memory chunk by chunk.  The note "part" of a piece names the trace that it was cut from.
 */
#ifndef KVF_COPY_H
#define KVF_COPY_H

#include <kvf/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The part of a trace to copy.  Zeroed: all of it.
 *
 * Tokens and steps are numbered from 0 again, and so are steps that are values (evict_step,
 * shadow.first_hit) and token numbers in names (received.LxHy.i); ages stay.  Values that changed
 * until the run ended are of its end, which may be after the piece's last step.  Query heads go
 * with their KV head.  Layers without a head that is kept are left out, and so are columns named
 * after a layer, head or token that is not kept. */
struct kvf_piece {
    uint32_t from, to;          /* tokens and steps from .. to - 1; to = 0: to the end */
    const unsigned char *heads; /* [KV heads of layer 0, then of layer 1, ...] not 0: kept;
                                   NULL: all */
};

/* The new trace. */
struct kvf_copied {
    uint32_t n_steps;
    uint64_t bytes;    /* of the file */
    int columns_left;  /* columns that were left out */
    uint64_t left_out; /* blobs, and records of later releases, which a piece lacks */
};

/* The state of a damaged or unfinished trace, and the values that were lost. */
struct kvf_repaired {
    bool intact;    /* no value is lost: the new trace has the content of the old one */
    bool closed;    /* the old one was closed */
    bool tail;      /* its newest state came from its tail file */
    bool bad_index; /* its index did not match the records; no record is lost because of that */
    bool no_commit; /* it had no commit: the number of steps follows from the values */
    uint64_t places, first_place; /* damaged places, and the first: a byte of the file */
    uint64_t lost_bytes;          /* bytes that form no record */
    uint64_t torn_bytes;          /* at the end of a trace that was not closed */
    uint64_t breaks, first_break; /* places where the chain of checksums is broken */
    uint64_t values, missing;     /* values within the steps: kept, and missing */
    uint64_t texts_missing;
    uint64_t blobs_missing;
};
/* Called with a sentence for each column and layer that lacks values, and for each lost blob. */
typedef void (*kvf_say_fn)(void *ctx, const char *line);

/* One request for every kind of copy.  The source is one of `trace`, `part` and `damaged`. */
struct kvf_copy_request {
    struct kvf_trace *trace;       /* a closed trace */
    const struct kvf_piece *piece; /* the piece of `trace` to copy; NULL: all of it */

    struct kvf_trace *const *part; /* [n_parts] pieces that follow each other, to be joined */
    int n_parts;

    const char *damaged; /* path of a damaged or unfinished trace, to be repaired */
    kvf_say_fn say;      /* for `damaged`, required */
    void *say_ctx;
    struct kvf_repaired *ret_repaired; /* for `damaged`; NULL: not wanted */
    kvf_watch_fn watch;                /* for `damaged`; otherwise kvf_watch() of the sources */
    void *watch_ctx;

    const char *out; /* path of the new trace */
    bool overwrite;  /* replaces a trace of that name */
    bool smallest;   /* takes more time for fewer bytes */
};

/* Writes the new trace.  *ret and *ret_repaired are set if it succeeds.
 *
 * trace: Superseded snapshots are left out.  A complete copy has the digest of the source.  A trace
 * that declares more than its file can have (kvf_check_size), or that decodes to more than 1 GiB
 * and 4096 bytes for each of its bytes, is rejected with KVF_E_LIMIT.
 * part: All pieces of a trace without blobs give a trace with its digest.
 * damaged: Keeps every value of the trace and of its tail file that can be read, up to the last
 * commit.  Columns without any value are left out.  Unless `intact`, the new trace has a note
 * "repaired" with the losses.
 *
 * KVF_OK, also for a repair with losses.
 * KVF_E_ARG: the piece is empty, the heads are not possible, the trace has interval columns and the
 *   piece is a range of tokens; or the parts are of different runs, do not follow each other, or
 *   are no pieces.
 * KVF_E_NOTFOUND: a trace or part was not closed.
 * KVF_E_CORRUPT: a trace or part is not as its writer wrote it; or the run header or schema of a
 *   damaged one cannot be read, or it has no readable value.
 * KVF_E_VERSION: a trace with records of a later release cannot be copied completely.
 * Otherwise the errors of kvf_writer_open and kvf_read. */
int kvf_copy(const struct kvf_copy_request *q, struct kvf_copied *ret, struct kvf_diag *d);

/* Checks that n pieces may be copied in order, which decodes a chunk for each piece that has
 * some of it: KVF_E_LIMIT with a sentence where that is more than 8 GiB in all, and more than 4096
 * bytes for each byte of the file.  A trace that decodes to 48 MiB is decoded once. */
int kvf_check_pieces(const struct kvf_trace *t, const struct kvf_piece *piece, int n,
                     struct kvf_diag *d);

/* The source of a piece: tokens and steps from .. to - 1 of `of`. */
struct kvf_part {
    uint32_t from, to, of;
    char whole[33]; /* the digest of the trace that it was taken from; "": not known */
};
/* KVF_E_NOTFOUND: t is no piece of another trace. */
int kvf_part(const struct kvf_trace *t, struct kvf_part *ret);

#ifdef __cplusplus
}
#endif
#endif
