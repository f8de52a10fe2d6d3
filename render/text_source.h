/* text_source.h - the text of a table of tokens, paragraph by paragraph, for text_flow.c.
 *
 * Every byte knows the rows that it comes from.  What must not act is shown instead: controls
 * of direction, separators and other characters without a glyph as \uNNNN; the marks that the
 * column `joined` has for line breaks, tabs and ill-formed bytes stay as they are.  \uNNNN and
 * \xNN are isolated, so that they read from left to right in any line. */
#ifndef KVF_RENDER_TEXT_SOURCE_H
#define KVF_RENDER_TEXT_SOURCE_H

#include "base/buf.h"
#include "base/table.h"
#include "render/canvas_text.h"

/* Bytes up to `end` of the paragraph come from the rows [row0, row1): a token, or the tokens
 * that share a character. */
struct text_unit {
    size_t end;
    int64_t row0, row1;
    bool space; /* nothing but spaces: drawn as dots */
};

struct text_source {
    const struct table *t;
    int joined, text;  /* columns */
    int64_t row, last; /* rows yet to come */
    size_t skip;       /* bytes of the row's text that were taken */
    bool ended;        /* the paragraph is complete */
    enum text_direction dir;
    struct buf bytes; /* of the paragraph at hand */
    struct text_unit *unit;
    size_t n, room; /* units */
    int err;
};

/* Begins the text of the rows [row0, row1) of a table with the columns text and joined, or with
 * text alone, where tokens share no character. */
void text_source_init(struct text_source *s, const struct table *t, int64_t row0, int64_t row1);
void text_source_finish(struct text_source *s);

/* Reads on to the end of the paragraph, or until there are some thousand bytes.  False: no text
 * is left, or s->err. */
bool text_source_fill(struct text_source *s);

/* Drops n bytes from the front, those of the lines that were used. */
void text_source_drop(struct text_source *s, size_t n);

/* The unit that holds byte `at`. */
const struct text_unit *text_source_at(const struct text_source *s, size_t at);

#endif
