/* png_rows.h - the rows of an image as pieces of one zlib stream, made on several threads.
 *
 * Every row is filtered by "up" (PNG specification 9.2).  A piece holds a number of rows that
 * depends on the width alone and ends at a byte (Z_SYNC_FLUSH): the pieces put together are one
 * stream (RFC 1950, 1951), the same bytes for any number of threads.  That a piece knows
 * nothing of those before it costs less than half a percent of size. */
#ifndef KVF_RENDER_PNG_ROWS_H
#define KVF_RENDER_PNG_ROWS_H

#include "base/buf.h"

struct png_rows {
    const uint32_t *rgb; /* borrowed; 0x..RRGGBB */
    int w, h, stride;    /* pixels; w, h >= 1 */
    int n;               /* pieces */
    struct buf *piece;   /* [n], owned; the first has the stream's head, the last its sum */
};

/* w, h: 1 .. 20,000.  threads: at most, 0 for the number of cores.  KVF_OK or KVF_E_NOMEM;
 * png_rows_finish in either case. */
int png_rows_make(struct png_rows *r, const uint32_t *rgb, int w, int h, int stride, int threads);
void png_rows_finish(struct png_rows *r);

#endif
