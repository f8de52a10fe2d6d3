/* copying.h - values of traces on their way into another; private to libtrace. */
#pragma once

#include <kvf/copy.h>

#include "libtrace/reader.h"
#include "libtrace/writer.h"

/* Ranges of indices, joined and rising. */
struct ranges {
    struct range {
        uint32_t from, to;
    } * list; /* [n] owned */
    size_t n, cap;
};

/* A trace that is made of others, which have one schema. */
struct copying {
    struct kvf_writer *w; /* NULL: not begun, or closed */
    int n_columns;
    struct kvf_column *column; /* [n_columns] of the new trace */
    int *column_of;            /* [n_columns] the same in the sources */
    int n_layers;
    uint16_t *n_kv, *n_query; /* [n_layers] */
    int *layer_of;            /* [n_layers] in the sources */
    int *group;               /* [n_layers] query heads of a KV head */
    size_t *first;            /* [n_layers] of its KV heads in kv_of */
    uint16_t *kv_of;          /* KV heads of layer 0, then of layer 1, ..., in the sources; NULL:
                                 they are all there */
    unsigned char *block;     /* of CHUNK_RAW bytes */
    struct ranges mine, next;
    /* Counts the missing values for a repair.  NULL: that is no matter. */
    struct kvf_repaired *repaired;
    bool had_texts;
    kvf_say_fn say;
    void *ctx;
};

/* A source: its indices from .. to - 1 become those from `at` on. */
struct taken {
    struct kvf_trace *t;
    uint32_t from, to, at;
};

/* Columns, layers and heads of the new trace; heads: as in struct kvf_piece; later: subtracted from
 * the token numbers in names.  copying_finish frees all memory, also after an error. */
int copying_plan(struct copying *c, const struct kvf_trace *t, const unsigned char *heads,
                 int64_t later, struct kvf_diag *d);
/* Omits the columns without values in the source, and counts their values as missing. */
int copying_leave_empty(struct copying *c, const struct taken *s);
/* Begins the file; run: a trace of the run. */
int copying_begin(struct copying *c, const struct kvf_trace *run, const struct kvf_copy_request *q,
                  struct kvf_diag *d);
/* All values and texts of a source. */
int copying_fill(struct copying *c, const struct taken *s, struct kvf_diag *d);
/* The notes but one (NULL: all). */
int copying_notes(struct copying *c, const struct kvf_trace *t, const char *but);
/* All blobs. */
int copying_blobs(struct copying *c, struct kvf_trace *t, struct kvf_diag *d);
int copying_commit(struct copying *c, uint32_t n_steps);
/* Closes the file and fills *ret; or gives err back, of the writer with its sentence. */
int copying_close(struct copying *c, int err, struct kvf_copied *ret, struct kvf_diag *d);
/* The kinds of kvf_copy: of a trace or a piece of it, of parts, and of a damaged trace. */
int copying_trace(const struct kvf_copy_request *q, struct kvf_copied *ret, struct kvf_diag *d);
int copying_join(const struct kvf_copy_request *q, struct kvf_copied *ret, struct kvf_diag *d);
int copying_repair(const struct kvf_copy_request *q, struct kvf_copied *ret, struct kvf_diag *d);
/* Abandons a file that was not closed; accepts a zeroed one. */
void copying_finish(struct copying *c);

/* All indices of a closed trace, or all steps of an unfinished one. */
struct taken taken_all(struct kvf_trace *t);
/* The key of the note in which a trace names its source ("": no such note), and the key for a piece
 * of it: "part", "part.2", ... */
struct note_keys {
    char now[24], next[24];
};
struct note_keys note_keys_of(const struct kvf_trace *t, const char *name);
/* The JSON of such a note. */
struct part_text {
    char json[128];
};
struct part_text part_text(const struct kvf_part *p);
/* Where the sentence for a failed write is: err of the writer, which is closed then. */
int copying_wrote(struct copying *c, int err, struct kvf_diag *d);
/* Whether the values of a column of this name count steps from the beginning of the run. */
bool holds_steps(const struct kvf_column *c);

/* The number of heads of a layer of the new trace, and the head of the source for one of them. */
int copying_heads(const struct copying *c, int layer, int space);
int copying_head_of(const struct copying *c, int layer, int space, int head);
