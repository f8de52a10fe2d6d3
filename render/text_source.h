/* text_source.h - reads the text of a table of tokens paragraph by paragraph, for text_flow.c.
 *
 * Every byte is mapped to its rows.  Characters that would affect the layout are shown as \uNNNN:
 * direction controls, separators and other characters without a glyph.  The marks of column
 * `joined` for line breaks, tabs and ill-formed bytes are kept.  \uNNNN and \xNN are isolated, so
 * that they read from left to right in any line. */
#pragma once

#include "base/buf.h"
#include "base/table.h"
#include "render/canvas_text.h"

/* A unit of text: a token, or the tokens that share a character.  Bytes up to `end` of the
 * paragraph come from the rows [row0, row1). */
struct text_unit {
    size_t end;
    int64_t row0, row1;
    bool space; /* only spaces: drawn as dots */
};

/* The reader and its current paragraph. */
struct text_source {
    const struct table *t;
    int joined, text;  /* columns */
    int64_t row, last; /* remaining rows */
    size_t skip;       /* bytes of the row's text already read */
    bool ended;        /* the paragraph is complete */
    enum text_direction dir;
    struct buf bytes; /* of the current paragraph */
    struct text_unit *unit;
    size_t n, room; /* units */
    int err;
};

/* Starts the text of the rows [row0, row1). The table has the columns text and joined; without
 * joined, tokens share no character. */
void text_source_init(struct text_source *s, const struct table *t, int64_t row0, int64_t row1);
void text_source_finish(struct text_source *s);

/* Reads to the end of the paragraph, or until some thousand bytes are read.  Returns false at the
 * end of the text or after an error in s->err. */
bool text_source_fill(struct text_source *s);

/* Removes n bytes from the front, the bytes of lines that were used. */
void text_source_drop(struct text_source *s, size_t n);

/* Returns the unit of byte `at`. */
const struct text_unit *text_source_at(const struct text_source *s, size_t at);
