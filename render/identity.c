/* identity.c - the looks of methods, token classes and head types. */
#include "render/identity.h"

#include <math.h>
#include <string.h>

#include "render/line_colours.h"
#include "render/palette.h"

/* The methods with a hue of their own.  The hues differ for normal sight and for three kinds of
 * colour blindness.  Two methods with one mark also differ in grey (tests/figures/test_palette.c).
 * The reference, the full cache, is grey.  Black and light grey are reserved for axes, chance
 * levels and evicted entries. */
static const struct own_look {
    const char *name;
    uint32_t colour;
    enum mark mark;
} own[] = {
    {"full", 0x6a6a6a, MARK_RING},          {"window", 0x9b6dff, MARK_DIAMOND},
    {"h2o", 0xe69f00, MARK_DISC},           {"tova", 0x955400, MARK_DOWN},
    {"scissorhands", 0xb49644, MARK_CROSS}, {"morphkv", 0xebabbe, MARK_SQUARE},
    {"snapkv", 0x0072b2, MARK_DISC},        {"pyramidkv", 0x2d009f, MARK_SQUARE},
    {"adakv", 0x56b4e9, MARK_RING},         {"expected-attention", 0x005f65, MARK_CROSS},
    {"keydiff", 0x009e73, MARK_TRIANGLE},   {"knorm", 0x483a00, MARK_DISC},
    {"rkv", 0x3de074, MARK_DIAMOND},        {"gkv", 0x80bc78, MARK_FRAME},
    {"trimkv", 0xd55e00, MARK_SQUARE},      {"dbtrimkv", 0x9c1f3d, MARK_DIAMOND},
    {"wgkv", 0xf668b9, MARK_DOWN},          {"quest", 0xc60095, MARK_FRAME},
    {"duo", 0x630052, MARK_TRIANGLE},
};
enum { HUES = sizeof own / sizeof *own };

/* Other methods, with the method whose hue they have if it is not in the figure. */
static const struct {
    const char *name, *hue_of;
} others[] = {
    {"local", "window"},         {"random", "rkv"},
    {"streamingllm", "window"},  {"cake", "pyramidkv"},
    {"snapkv-global", "snapkv"}, {"locret", "trimkv"},
    {"ada-pyramidkv", "adakv"},  {"wgkv-snapkv", "wgkv"},
    {"wgkv-quest", "wgkv"},      {"rocketkv", "quest"},
    {"seer", "quest"},           {"seer-oracle", "duo"},
    {"mass-greedy", "knorm"},    {"next-topk", "scissorhands"},
    {"plan", "morphkv"},
};
enum { OTHERS = sizeof others / sizeof *others, DASHES = 4 };

/* Dashes in mm of the lines of one method, for example of several budgets. */
static const double dashes_of_method[DASHES] = {0, 1.6, 0.8, 2.8};
static const double dash_of_others = 1.2;

/* Returns the number of bytes of a method's name, without its options and budget. */
static size_t bare_name(const char *name)
{
    return strcspn(name, ":, ");
}

static bool is_name(const char *method, const char *name, size_t n)
{
    return strlen(method) == n && strncmp(method, name, n) == 0;
}

/* Returns the index of a method in `own`, or -1. */
static int find_own(const char *name, size_t n)
{
    int k = HUES - 1;
    while (k >= 0 && !is_name(own[k].name, name, n))
        k--;
    return k;
}

/* Returns the hue that a method has if it is free.  i: index for an unknown method. */
static int home_of(const char *name, size_t n, int i)
{
    for (int k = 0; k < OTHERS; k++)
        if (is_name(others[k].name, name, n))
            return find_own(others[k].hue_of, strlen(others[k].hue_of));
    static const char *const order[] = {"snapkv", "trimkv", "keydiff", "quest", "h2o", "adakv"};
    const char *hue = order[i % 6];
    return i < 6 ? find_own(hue, strlen(hue)) : i % HUES;
}

/* Returns the free hue that is nearest to a hue; the hue itself if none is free. */
static int nearest_free(int hue, const bool *used)
{
    struct rgb a = rgb_of(own[hue].colour);
    double best = INFINITY;
    int found = hue;
    for (int k = 0; k < HUES; k++) {
        struct rgb b = rgb_of(own[k].colour);
        double dr = a.r - b.r, dg = a.g - b.g, db = a.b - b.b, far = dr * dr + dg * dg + db * db;
        if (!used[k] && far < best) {
            best = far;
            found = k;
        }
    }
    return found;
}

/* Returns the first of the names before i with the same method, or -1. *ret_before: their number.
 */
static int same_method(const char *const *name, int i, int *ret_before)
{
    size_t n = bare_name(name[i]);
    int first = -1;
    *ret_before = 0;
    for (int k = i - 1; k >= 0; k--)
        if (n && bare_name(name[k]) == n && strncmp(name[k], name[i], n) == 0) {
            first = k;
            ++*ret_before;
        }
    return first;
}

void identity_of_methods(int n, const char *const *name, struct identity *ret)
{
    bool used[HUES] = {false};
    int before, unknown = 0;
    for (int i = 0; i < n; i++) {
        int k = find_own(name[i], bare_name(name[i]));
        if (k >= 0)
            used[k] = true;
    }
    for (int i = 0; i < n; i++) {
        int first = same_method(name, i, &before), k = find_own(name[i], bare_name(name[i]));
        if (first >= 0) {
            ret[i] = ret[first];
            ret[i].dash = dashes_of_method[(before + (ret[first].dash > 0)) % DASHES];
        } else if (k >= 0) {
            ret[i] = (struct identity){rgb_of(own[k].colour), own[k].mark, 0};
        } else {
            k = nearest_free(home_of(name[i], bare_name(name[i]), unknown++), used);
            used[k] = true;
            ret[i] = (struct identity){rgb_of(own[k].colour), own[k].mark, dash_of_others};
        }
    }
}

struct identity identity_of_run(const char *name, int i)
{
    struct identity x;
    const char *method = "";
    for (const char *part = name; part; part = strpbrk(part, "-_./")) {
        part += part > name; /* skip the separator */
        if (find_own(part, strlen(part)) >= 0) {
            method = part;
            break;
        }
        for (int k = 0; k < OTHERS; k++)
            if (strcmp(others[k].name, part) == 0)
                method = part;
    }
    if (*method) {
        identity_of_methods(1, &method, &x);
        return x;
    }
    int k = home_of("", 0, i);
    return (struct identity){rgb_of(own[k].colour), own[k].mark, 0};
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
