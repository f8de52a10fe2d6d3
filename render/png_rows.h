/* png_rows.h - compresses the rows of an image as pieces of one zlib stream on several threads.
 *
 * Every row is filtered by "up" (PNG specification 9.2). The number of rows in a piece depends only
 * on the width.  A piece ends at a byte (Z_SYNC_FLUSH), so the concatenated pieces are one stream
 * (RFC 1950, 1951) with the same bytes for any number of threads.  Pieces do not share a
 * dictionary, which costs less than half a percent of size. */
#pragma once

#include "base/buf.h"

/* An image and its compressed pieces. */
struct png_rows {
    const uint32_t *rgb; /* borrowed; 0x..RRGGBB */
    int w, h, stride;    /* pixels; w, h >= 1 */
    int n;               /* pieces */
    /* [n], owned; the first begins with the stream header, the last ends with the checksum */
    struct buf *piece;
};

/* Compresses w x h pixels, each 1 .. 20,000. threads: maximum, 0 for the number of cores.  Returns
 * KVF_OK or KVF_E_NOMEM; the caller calls png_rows_finish in either case. */
int png_rows_make(struct png_rows *r, const uint32_t *rgb, int w, int h, int stride, int threads);
void png_rows_finish(struct png_rows *r);
