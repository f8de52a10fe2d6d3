/* palette.h - colour maps: perceptually uniform, safe for colour-blind readers; viridis,
 * magma, and redblue around a middle. */
#ifndef KVF_RENDER_PALETTE_H
#define KVF_RENDER_PALETTE_H

#include "render/canvas.h"

/* Colour of v in [0, 1] (clamped); map NULL = "viridis".  NaN is light grey. */
struct rgb palette_at(const char *map, double v);
uint32_t palette_argb(const char *map, double v);
/* The same at an opacity in [0, 1], colours multiplied by it. */
uint32_t palette_argb_at(const char *map, double v, double opacity);
int palette_known(const char *map);

/* Distinct colours for lines (Okabe and Ito 2008), i = 0, 1, ... */
struct rgb palette_line(int i);

#endif
