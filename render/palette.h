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
/* Colours of 0 .. 1 in PALETTE_STEPS equal steps: as palette_argb to half a step. */
enum { PALETTE_STEPS = 4096 };
void palette_table(const char *map, uint32_t out[PALETTE_STEPS + 1]);
int palette_known(const char *map);

/* Distinct colours for lines (Okabe and Ito 2008), i = 0, 1, ... */
struct rgb palette_line(int i);

#endif
