/* palette.h - colour maps: perceptually uniform, safe for colour-blind readers, exact at the
 * 256 entries of their tables (palettes.list) and linear in between. */
#pragma once

#include <stdbool.h>

#include "render/canvas.h"

/* The names for --cmap: maps of rising lightness, blues, which falls from a pale grey, then
 * diverging maps.  The middle of bluered and redblue is white. */
#define PALETTE_NAMES "viridis, cividis, magma, inferno, plasma, blues, bluered, redblue, vik"

/* Return the colour of v, clamped to [0, 1]; map NULL = "viridis". NaN is light grey. */
struct rgb palette_at(const char *map, double v);
uint32_t palette_argb(const char *map, double v);
/* Returns the colour of v, premultiplied with an opacity in [0, 1]. */
uint32_t palette_argb_at(const char *map, double v, double opacity);
/* Computes the colours of 0 .. 1 in PALETTE_STEPS equal steps.  They equal palette_argb to half a
 * step. */
enum { PALETTE_STEPS = 4096 };
void palette_table(const char *map, uint32_t out[PALETTE_STEPS + 1]);
int palette_known(const char *map);
bool palette_diverging(const char *map); /* lightest in the middle: for signed numbers */

struct rgb rgb_of(uint32_t colour); /* 0xRRGGBB */
uint32_t rgb_argb(struct rgb c);    /* an opaque pixel of an image */

/* Returns distinct line colours (Okabe and Ito 2008), i = 0, 1, ... */
struct rgb palette_line(int i);
