/* columns.h - the columns that analyses read: required and optional ones, and the source of each
 * column.
 *
 * Every analyzer has a list of struct column_use.  The frame (frame.h) finds the columns that are
 * always read.  An option chooses more.  The analyzer asks for them with columns_find, and
 * columns_refuse then names all missing ones in one sentence.  docs/reference/columns.md is made
 * from the same lists. */
#pragma once

#include <stdbool.h>

#include <kvf/trace.h>

#include "base/buf.h"
#include "base/table.h"

enum column_need {
    COLUMN_ALWAYS,   /* a trace without it is rejected */
    COLUMN_CAN_LACK, /* without it `note` is blank or left out, and the table's metadata name it */
    COLUMN_HELPS,    /* the same, without a note: many traces lack it */
    COLUMN_ASKED,    /* an option or another column decides: `note` gives the condition */
};

struct column_use {
    const char *name; /* as in <kvf/schema.h>; a part may be `*`.  NULL ends a list */
    enum kvf_space space;
    enum kvf_axis axis;
    enum column_need need;
    const char *note; /* NULL for COLUMN_ALWAYS */
};
/* The columns of a struct analyzer. */
#define COLUMNS(...)                                                                               \
    .columns = (const struct column_use[])                                                         \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .name = NULL                                                                           \
        }                                                                                          \
    }
#define COLUMN_EVICT_STEP                                                                          \
    {                                                                                              \
        "evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ALWAYS, NULL                            \
    }
#define COLUMN_SELECTED                                                                            \
    {                                                                                              \
        "last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,                          \
            "of the criteria of --criterion; --criterion held asks for evict_step"                 \
    }

/* Who supplies a column: flags of `kvfate run`, and the source for `kvfate trace import`; NULL: it
 * takes the column itself.  Never NULL: columns of one's own have no flag. */
struct column_supply {
    const char *name; /* may end in '*': all that begin so */
    const char *flag, *import;
};
const struct column_supply *column_supply(const char *name);
/* The i-th of all; name NULL beyond the last. */
const struct column_supply *column_supply_at(int i);

/* Columns that a trace lacks.  Zeroed: none. */
struct lacks {
    struct buf text;
    const struct kvf_trace *t;        /* that lacks the first column */
    bool captured;                    /* the trace was recorded by the Python package's capture */
    const struct column_supply *last; /* of the last one */
    int n;
};
void lacks_add(struct lacks *l, const struct kvf_trace *t, const char *name);
/* "a, b (kvfate run --probes evict, or kvfate import), ...", borrowed; NULL: no memory.  For a
 * captured trace the text names the option of capture, if there is one. */
const char *lacks_text(struct lacks *l);
/* Puts the text into the metadata as `missing`, where there are any. */
void lacks_note(struct lacks *l, struct table *out);
void lacks_free(struct lacks *l);

/* Finds a column; one that the trace lacks is -1 and added to l.  KVF_E_FORMAT where it has
 * another space or axis. */
int columns_find(const struct kvf_trace *t, const char *name, enum kvf_space space,
                 enum kvf_axis axis, struct lacks *l, int *ret, struct kvf_diag *d);
/* KVF_E_NOTFOUND with a sentence that names all of l, and `else_`, the remedy (may be NULL); KVF_OK
 * if it is empty.  An earlier error, err, has priority.  Frees l. */
int columns_refuse(struct lacks *l, const char *else_, int err, struct kvf_diag *d);

/* Finds the number of one column; KVF_E_NOTFOUND with such a sentence. */
int column_need(const struct kvf_trace *t, const char *name, int *ret_column, struct kvf_diag *d);
