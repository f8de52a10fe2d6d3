/* headset.c - parses head sets such as L0-5K*,15.2 (headset.h). */
#include "base/headset.h"

#include <ctype.h>
#include <stdlib.h>

enum { MOST = 1 << 20 };

/* Parses "3", "3-5" or "*". */
static bool take_range(const char **s, struct headset_range *r)
{
    char *end;
    if (**s == '*') {
        *r = (struct headset_range){0, MOST};
        ++*s;
        return true;
    }
    if (!isdigit((unsigned char)**s))
        return false;
    long lo = strtol(*s, &end, 10), hi = lo;
    if (*end == '-' && isdigit((unsigned char)end[1]))
        hi = strtol(end + 1, &end, 10);
    if (lo > MOST || hi > MOST || hi < lo)
        return false;
    *r = (struct headset_range){(int)lo, (int)hi};
    *s = end;
    return true;
}

bool headset_next(const char **s, struct headset_item *ret)
{
    bool letter = **s == 'L';
    *s += letter;
    if (!take_range(s, &ret->layer))
        return false;
    ret->kind = **s;
    if (letter ? ret->kind != 'K' && ret->kind != 'H' : ret->kind != '.')
        return false;
    ++*s;
    if (!take_range(s, &ret->head) || (**s != ',' && **s))
        return false;
    *s += **s == ',';
    return true;
}

int headset_mark(const char *set, char wrong, int n_layers, int n_heads, unsigned char *take)
{
    int marked = 0;
    while (*set) {
        struct headset_item item;
        if (!headset_next(&set, &item) || item.kind == wrong)
            return -1;
        for (int l = item.layer.lo; l <= item.layer.hi && l < n_layers; l++)
            for (int h = item.head.lo; h <= item.head.hi && h < n_heads; h++, marked++)
                take[l * n_heads + h] = 1;
    }
    return marked;
}
