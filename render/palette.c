/* palette.c - looks up colours in the tables of the colour maps. */
#include <math.h>
#include <string.h>

#include "render/clamp.h"
#include "render/line_colours.h"
#include "render/palette.h"

#define COLOUR_MAP(name, ...) static const uint32_t name[256] = {__VA_ARGS__};
#include "render/palettes.list"

static const struct map {
    const char *name;
    const uint32_t *colour; /* [256] 0xRRGGBB */
    bool diverging, reversed;
} maps[] = {
    {"viridis", viridis, false, false}, {"cividis", cividis, false, false},
    {"magma", magma, false, false},     {"inferno", inferno, false, false},
    {"plasma", plasma, false, false},   {"blues", blues, false, false},
    {"bluered", bluered, true, false},  {"redblue", bluered, true, true},
    {"vik", vik, true, false},
};

/* Finds a map by name.  It compares the first letter before calling strcmp, because every pixel
 * needs it. */
static const struct map *map_of(const char *name)
{
    for (size_t i = 0; name && i < sizeof maps / sizeof *maps; i++)
        if (*name == *maps[i].name && strcmp(name, maps[i].name) == 0)
            return &maps[i];
    return name ? NULL : maps;
}

int palette_known(const char *map)
{
    return map_of(map) != NULL;
}

bool palette_diverging(const char *map)
{
    return palette_known(map) && map_of(map)->diverging;
}

struct rgb palette_at(const char *map, double v)
{
    const struct map *named = map_of(map), *m = named ? named : maps;
    if (isnan(v))
        return (struct rgb){0.85, 0.85, 0.85};
    v = clamp(v, 0, 1);
    v = 255 * (m->reversed ? 1 - v : v);
    int i = v >= 255 ? 254 : (int)v;
    double f = v - i, out[3];
    for (int k = 0; k < 3; k++) {
        double a = m->colour[i] >> (16 - 8 * k) & 255, b = m->colour[i + 1] >> (16 - 8 * k) & 255;
        out[k] = (a + f * (b - a)) / 255;
    }
    return (struct rgb){out[0], out[1], out[2]};
}

struct rgb rgb_of(uint32_t colour)
{
    return (struct rgb){(double)(colour >> 16 & 255) / 255, (double)(colour >> 8 & 255) / 255,
                        (double)(colour & 255) / 255};
}

uint32_t rgb_argb(struct rgb c)
{
    return 0xff000000u | (uint32_t)(c.r * 255 + 0.5) << 16 | (uint32_t)(c.g * 255 + 0.5) << 8
           | (uint32_t)(c.b * 255 + 0.5);
}

uint32_t palette_argb(const char *map, double v)
{
    return rgb_argb(palette_at(map, v));
}

void palette_table(const char *map, uint32_t out[PALETTE_STEPS + 1])
{
    for (int i = 0; i <= PALETTE_STEPS; i++)
        out[i] = palette_argb(map, (double)i / PALETTE_STEPS);
}

uint32_t palette_argb_at(const char *map, double v, double opacity)
{
    struct rgb c = palette_at(map, v);
    double f = 255 * clamp(opacity, 0, 1);
    return (uint32_t)(f + 0.5) << 24 | (uint32_t)(c.r * f + 0.5) << 16
           | (uint32_t)(c.g * f + 0.5) << 8 | (uint32_t)(c.b * f + 0.5);
}

struct rgb palette_line(int i)
{
    return rgb_of(line_colours[i % 8]);
}
