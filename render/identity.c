/* identity.c - the looks of methods, token classes and head types. */
#include "render/identity.h"

#include <string.h>

#include "render/line_colours.h"
#include "render/palette.h"

/* The looks of methods.  Black and grey are reserved for axes, chance levels and evicted
 * entries. */
static const struct method {
    const char *name;
    uint32_t colour;
    enum mark mark;
} methods[] = {
    /* position or chance */
    {"full", 0x7b1fe0, MARK_DISC},
    {"window", 0x7b1fe0, MARK_SQUARE},
    {"local", 0x7b1fe0, MARK_TRIANGLE},
    {"duo", 0x7b1fe0, MARK_DIAMOND},
    {"random", 0x7b1fe0, MARK_CROSS},
    /* received attention */
    {"h2o", 0xe69f00, MARK_DISC},
    {"scissorhands", 0xe69f00, MARK_SQUARE},
    {"tova", 0xe69f00, MARK_TRIANGLE},
    {"morphkv", 0xe69f00, MARK_DIAMOND},
    /* attention of a window of queries */
    {"snapkv", 0x0072b2, MARK_DISC},
    {"pyramidkv", 0x0072b2, MARK_TRIANGLE},
    {"cake", 0x0072b2, MARK_SQUARE},
    {"snapkv-global", 0x0072b2, MARK_DIAMOND},
    {"adakv", 0x56b4e9, MARK_DISC},
    {"ada-pyramidkv", 0x56b4e9, MARK_TRIANGLE},
    {"expected-attention", 0x56b4e9, MARK_SQUARE},
    /* keys */
    {"keydiff", 0x009e73, MARK_DISC},
    {"knorm", 0x009e73, MARK_TRIANGLE},
    {"rkv", 0x009e73, MARK_SQUARE},
    {"gkv", 0x009e73, MARK_DIAMOND},
    /* learned gates */
    {"trimkv", 0xd55e00, MARK_DISC},
    {"dbtrimkv", 0x9c1f3d, MARK_SQUARE},
    {"locret", 0xd55e00, MARK_TRIANGLE},
    {"wgkv", 0xf4976c, MARK_DIAMOND},
    {"wgkv-snapkv", 0xf4976c, MARK_DOWN},
    {"wgkv-quest", 0xf4976c, MARK_RING},
    /* methods that read only some entries */
    {"quest", 0xcc79a7, MARK_DISC},
    {"seer", 0xcc79a7, MARK_SQUARE},
    {"seer-oracle", 0xcc79a7, MARK_TRIANGLE},
    /* oracles and plans */
    {"mass-greedy", 0x6e3c14, MARK_RING},
    {"next-topk", 0x6e3c14, MARK_FRAME},
    {"plan", 0x6e3c14, MARK_CROSS},
};

struct identity identity_of_method(const char *name, int i)
{
    static const enum mark marks[] = {MARK_DISC, MARK_SQUARE, MARK_TRIANGLE, MARK_DIAMOND,
                                      MARK_RING};
    static const double dashes[] = {0, 1.6, 0.8};
    enum { HUES = 6 }; /* hues of palette_line without black and grey */
    size_t n = strcspn(name, ":, ");
    for (size_t k = 0; k < sizeof methods / sizeof *methods; k++)
        if (strncmp(methods[k].name, name, n) == 0 && !methods[k].name[n])
            return (struct identity){rgb_of(methods[k].colour), methods[k].mark,
                                     name[n] == ':' ? 1.2 : 0};
    return (struct identity){palette_line(i % HUES), marks[i % 5], dashes[i / HUES % 3]};
}

struct identity identity_of_run(const char *name, int i)
{
    for (const char *part = name; part; part = strpbrk(part, "-_./")) {
        part += part > name; /* skip the separator */
        for (size_t k = 0; k < sizeof methods / sizeof *methods; k++)
            if (strcmp(methods[k].name, part) == 0)
                return identity_of_method(part, i);
    }
    return identity_of_method("", i);
}

static const struct class
{
    const char *name;
    uint32_t colour;
} classes[] = {
    {"all", 0x1f1f1f},         {"prompt", 0x0072b2},   {"answer", 0xd55e00},
    {"special", 0x5a46aa},     {"role", 0x8c1446},     {"think", 0x1e5a5a},
    {"wait", 0x6e3c14},        {"word", 0x0072b2},     {"function", 0x56b4e9},
    {"punctuation", 0xd55e00}, {"operator", 0xe69f00}, {"symbol", 0x787d1e},
    {"number", 0xcc79a7},      {"latex", 0x009e73},    {"whitespace", 0x969696},
    {"vision", 0x14826e},      {"unknown", 0xb4b4b4},
};

struct rgb identity_of_class(const char *name, int i)
{
    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++)
        if (strcmp(classes[k].name, name) == 0)
            return rgb_of(classes[k].colour);
    return palette_line(i % 8);
}

int identity_find_kind(const char *name)
{
    enum { N = sizeof kind_colours / sizeof *kind_colours };
    _Static_assert((int)N == (int)KINDS_OF_HEADS, "a colour for each kind");
    int k = N - 1;
    while (k >= 0 && strcmp(kind_colours[k].name, name) != 0)
        k--;
    return k;
}

struct kind_identity identity_of_kind(int kind)
{
    const struct kind_colour *k = &kind_colours[kind];
    struct kind_identity x = {.name = k->name, .fill = rgb_of(k->colour)};
    memcpy(x.sign, k->sign, sizeof x.sign);
    return x;
}
