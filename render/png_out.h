/* png_out.h - writes PNG files; only png_out.c includes png.h. */
#pragma once

#include "base/buf.h"

/* Encodes w x h pixels 0x..RRGGBB, rows `stride` pixels apart, as a PNG file appended to out.
 * per_metre: resolution.  title and comment become text chunks.  threads: maximum, 0 for the number
 * of cores.  There are no dates: equal pixels give equal bytes.  Returns KVF_OK or KVF_E_NOMEM. */
int png_encode(const uint32_t *rgb, int w, int h, int stride, double per_metre, const char *title,
               const char *comment, int threads, struct buf *out);
