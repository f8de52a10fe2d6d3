/* headset.c - parses head sets such as L0-5K*,15.2 (headset.h). */
#include "base/headset.h"

#include <ctype.h>
#include <stdlib.h>

enum { MOST = 1 << 20 };

/* "3", "3-5" or "*" */
static bool take_range(const char **s, struct headset_range *r)
{
    char *end;
    if (**s == '*') {
        *r = (struct headset_range){0, HEADSET_ALL};
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

static int heads_of(const struct headset_shape *m, int layer)
{
    return m->heads ? m->heads[layer] : m->n_heads;
}

static const char *kind_of(const struct headset_shape *m)
{
    const char *const of_letter = m->kind == 'K' ? "KV " : "query ";
    return m->kind ? of_letter : "";
}

static const char *example_of(const struct headset_shape *m)
{
    return m->kind == 'H' ? "L0-5H*, L3H1 or 3.1" : "L0-5K*, L3K1 or 3.1";
}

int headset_fit(const char *option, const char *set, const struct headset_shape *m,
                struct headset_item *item, struct kvf_diag *d)
{
    bool all_layers = item->layer.hi == HEADSET_ALL, all_heads = item->head.hi == HEADSET_ALL;
    if (m->kind && item->kind != '.' && item->kind != m->kind)
        return kvf_fail(d, KVF_E_ARG, "%s: '%s' names %s heads; name %sheads, such as %s", option,
                        set, item->kind == 'K' ? "KV" : "query", kind_of(m), example_of(m));
    if (!all_layers && item->layer.hi >= m->n_layers)
        return kvf_fail(d, KVF_E_ARG, "%s: '%s' names layer %d: %s has layers 0 to %d", option, set,
                        item->layer.hi, m->owner, m->n_layers - 1);
    if (all_layers)
        item->layer.hi = m->n_layers - 1;
    if (all_heads)
        item->head.hi = m->n_heads - 1;
    /* a `*` for the layers means those that have the heads */
    for (int l = item->layer.lo; l <= item->layer.hi && !all_heads; l++) {
        int n = all_layers ? m->n_heads : heads_of(m, l);
        if (item->head.hi >= n)
            return kvf_fail(d, KVF_E_ARG,
                            "%s: '%s' names head %d: layer %d of %s has %sheads 0 to %d", option,
                            set, item->head.hi, l, m->owner, kind_of(m), n - 1);
    }
    return KVF_OK;
}

int headset_mark(const char *option, const char *set, const struct headset_shape *m,
                 unsigned char *take, struct kvf_diag *d)
{
    bool marked = false;
    for (const char *s = set; *s;) {
        struct headset_item item;
        if (!headset_next(&s, &item))
            return kvf_fail(d, KVF_E_ARG, "%s: '%s' is not a set of %sheads such as %s", option,
                            set, kind_of(m), example_of(m));
        int err = headset_fit(option, set, m, &item, d);
        if (err)
            return err;
        for (int l = item.layer.lo; l <= item.layer.hi; l++)
            for (int h = item.head.lo; h <= item.head.hi && h < heads_of(m, l); h++, marked = true)
                take[l * m->n_heads + h] = 1;
    }
    return marked ? KVF_OK
                  : kvf_fail(d, KVF_E_ARG, "%s: '%s' names no %shead of %s", option, set,
                             kind_of(m), m->owner);
}
