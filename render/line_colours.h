/* line_colours.h - line colours, shared by the figures and the report page (report/embed.py reads
 * this file). */
#pragma once

#include <stdint.h>

/* Colours that are safe for colour-blind readers (Okabe and Ito 2008), with black and grey. */
static const uint32_t line_colours[8] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7,
                                         0xe69f00, 0x56b4e9, 0x000000, 0x969696};

/* Colours of criteria, darker for larger selected sets.  A set of size up to `most` of its kind has
 * the colour. */
static const struct {
    const char *kind;
    long most;
    uint32_t colour;
} criterion_colours[] = {
    {"top", 64, 0x74bade},   {"top", 128, 0x3490c8},  {"top", 256, 0x0c5ca8},
    {"top", 512, 0x042c6c},  {"mass.", 90, 0xf4984c}, {"mass.", 95, 0xd4520c},
    {"mass.", 99, 0x802408},
};

/* Head types with the letter that distinguishes them in grey. */
static const struct kind_colour {
    const char *name;
    char sign[4];
    uint32_t colour;
} kind_colours[] = {
    {"sliding-window", "W", 0x0072b2}, {"several-windows", "V", 0x56b4e9},
    {"context-switch", "C", 0xcc79a7}, {"a-shape", "A", 0x009e73},
    {"sink", "S", 0xe69f00},           {"gist", "G", 0xd55e00},
    {"number", "N", 0xf0e442},         {"filler", "F", 0x4c4c4c},
    {"instruction", "I", 0x882255},    {"mixed", "", 0xdbdbdb},
    {"unknown", "?", 0xffffff},
};

static const uint32_t other_criterion_colour = 0x00825f;
