#include <math.h>
#include <string.h>

#include "render/palette.h"

/* Every eighth of the maps viridis and magma (Smith and van der Walt 2015);
 * linear in between. */
static const unsigned char viridis[9][3] = {
    {68, 1, 84}, {71, 44, 122}, {59, 81, 139}, {44, 113, 142}, {33, 144, 141}, {39, 173, 129},
    {92, 200, 99}, {170, 220, 50}, {253, 231, 37}};
static const unsigned char magma[9][3] = {
    {0, 0, 4}, {28, 16, 68}, {79, 18, 123}, {129, 37, 129}, {181, 54, 122}, {229, 80, 100},
    {251, 135, 97}, {254, 194, 135}, {252, 253, 191}};
/* Red below the middle, blue above it, for numbers with a sign (RdBu of Brewer 2003). */
static const unsigned char redblue[9][3] = {
    {103, 0, 31}, {178, 24, 43}, {214, 96, 77}, {244, 165, 130}, {247, 247, 247}, {146, 197, 222},
    {67, 147, 195}, {33, 102, 172}, {5, 48, 97}};

typedef const unsigned char (*anchors)[3];

static anchors map_of(const char *map)
{
    if (!map || strcmp(map, "viridis") == 0)
        return viridis;
    return strcmp(map, "magma") == 0 ? magma : strcmp(map, "redblue") == 0 ? redblue : NULL;
}

int palette_known(const char *map)
{
    return map_of(map) != NULL;
}

struct rgb palette_at(const char *map, double v)
{
    anchors m = palette_known(map) ? map_of(map) : viridis;
    if (isnan(v))
        return (struct rgb){0.85, 0.85, 0.85};
    v = v < 0 ? 0 : v > 1 ? 1 : v;
    int i = v >= 1 ? 7 : (int)(v * 8);
    double f = v * 8 - i, out[3];
    for (int k = 0; k < 3; k++)
        out[k] = (m[i][k] + f * (m[i + 1][k] - m[i][k])) / 255.0;
    return (struct rgb){out[0], out[1], out[2]};
}

uint32_t palette_argb(const char *map, double v)
{
    struct rgb c = palette_at(map, v);
    return 0xff000000u | (uint32_t)(c.r * 255 + 0.5) << 16 | (uint32_t)(c.g * 255 + 0.5) << 8
         | (uint32_t)(c.b * 255 + 0.5);
}

void palette_table(const char *map, uint32_t out[PALETTE_STEPS + 1])
{
    for (int i = 0; i <= PALETTE_STEPS; i++)
        out[i] = palette_argb(map, (double)i / PALETTE_STEPS);
}

uint32_t palette_argb_at(const char *map, double v, double opacity)
{
    struct rgb c = palette_at(map, v);
    double f = 255 * (opacity < 0 ? 0 : opacity > 1 ? 1 : opacity);
    return (uint32_t)(f + 0.5) << 24 | (uint32_t)(c.r * f + 0.5) << 16 |
           (uint32_t)(c.g * f + 0.5) << 8 | (uint32_t)(c.b * f + 0.5);
}

struct rgb palette_line(int i)
{
    static const unsigned char c[8][3] = {{0, 114, 178},   {213, 94, 0},   {0, 158, 115},
                                          {204, 121, 167}, {230, 159, 0},  {86, 180, 233},
                                          {0, 0, 0},       {150, 150, 150}};
    const unsigned char *p = c[i % 8];
    return (struct rgb){p[0] / 255.0, p[1] / 255.0, p[2] / 255.0};
}
