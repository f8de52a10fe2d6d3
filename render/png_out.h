/* png_out.h - PNG files; png_out.c is the only file that includes png.h. */
#ifndef KVF_RENDER_PNG_OUT_H
#define KVF_RENDER_PNG_OUT_H

#include "base/buf.h"

/* w x h pixels 0x..RRGGBB, rows `stride` pixels apart; per_metre: resolution;
 * title and comment: into text chunks; threads: at most, 0 for the number of cores.  No dates:
 * equal pixels give equal bytes.  KVF_OK or KVF_E_NOMEM. */
int png_encode(const uint32_t *rgb, int w, int h, int stride, double per_metre, const char *title,
               const char *comment, int threads, struct buf *out);

#endif
