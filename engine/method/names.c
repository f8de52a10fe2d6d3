/* names.c - finds a preset by its name or by a name that the field uses for it. */
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "engine/method/state.h"

/* Returns the next letter or digit of a name in lower case, and 0 at its end. Hyphens, underscores,
 * dots and spaces do not count. */
static int next_letter(const char **at, const char *end)
{
    while (*at < end && strchr("-_. ", **at))
        ++*at;
    if (*at == end)
        return 0;
    int c = (unsigned char)*(*at)++;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static bool same_name(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const char *end_a = a + n_a, *end_b = b + n_b;
    for (;;) {
        int x = next_letter(&a, end_a), y = next_letter(&b, end_b);
        if (x != y || x == 0)
            return x == y;
    }
}

bool method_next_alias(const char **list, struct method_alias *ret)
{
    const char *at = *list;
    if (!at || !*at)
        return false;
    size_t n = strcspn(at, ";"), name = strcspn(at, ":;");
    *ret = (struct method_alias){at, name, at + name, n - name};
    if (n > name) {
        ret->options++;
        ret->n_options--;
    }
    at += n;
    *list = at + strspn(at, "; ");
    return true;
}

const struct method *method_find(const char *name, size_t n, struct method_alias *ret)
{
    *ret = (struct method_alias){name, n, "", 0};
    for (const struct method *m = method_presets; m->name; m++)
        if (same_name(m->name, strlen(m->name), name, n))
            return m;
    for (const struct method *m = method_presets; m->name; m++)
        for (const char *list = m->aliases; method_next_alias(&list, ret);)
            if (same_name(ret->name, ret->n_name, name, n))
                return m;
    return NULL;
}

enum { NAME = 64 };

/* Copies a known name to near if it is nearer to `name` than *best. */
static void come_nearer(const char *known, size_t n, const char *name, int *best, char near[NAME])
{
    char text[NAME];
    snprintf(text, sizeof text, "%.*s", (int)n, known);
    int far = opt_distance(name, text);
    if (far >= *best)
        return;
    *best = far;
    memcpy(near, text, sizeof text);
}

/* Sets near to the name or alias that `name` is likely meant to be, in which at most a third of the
 * letters differ, or else to the method that one of its words names; "" if there is none. */
static void near_name(const char *name, char near[NAME])
{
    int best = ((int)strlen(name) + 2) / 3 + 1;
    struct method_alias alias;
    near[0] = 0;
    for (const struct method *m = method_presets; m->name; m++) {
        come_nearer(m->name, strlen(m->name), name, &best, near);
        for (const char *list = m->aliases; method_next_alias(&list, &alias);)
            come_nearer(alias.name, alias.n_name, name, &best, near);
    }
    for (const char *at = name; !near[0] && *at;) {
        size_t n = strcspn(at, "-_. ");
        const struct method *m = n ? method_find(at, n, &alias) : NULL;
        if (m)
            snprintf(near, NAME, "%s", m->name);
        at += n + strspn(at + n, "-_. ");
    }
}

/* Returns KVF_E_ARG with the sentence for an unknown name. */
static int unknown_name(const char *name, struct kvf_diag *d)
{
    char near[NAME];
    near_name(name, near);
    if (strchr(name, ','))
        return kvf_fail(d, KVF_E_ARG,
                        "'%s' names several methods and a run has one; 'kvfate eval --methods' or "
                        "'kvfate quickstart --methods' compares several",
                        name);
    return kvf_fail(d, KVF_E_ARG, "no method '%s'%s%s%s; 'kvfate methods' lists them", name,
                    near[0] ? " (did you mean '" : "", near, near[0] ? "'?)" : "");
}

int method_expand(const char *text, struct buf *out, const struct method **ret, struct kvf_diag *d)
{
    char name[NAME];
    size_t n = strcspn(text, ":");
    struct method_alias alias;
    const struct method *m = method_find(text, n, &alias);
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name), text);
    if (n == 0 || n >= sizeof name || !m)
        return unknown_name(n == 0 || n >= sizeof name ? text : name, d);
    bool both = alias.n_options && text[n] && text[n + 1];
    buf_printf(out, "%s:%.*s%s%s", m->name, (int)alias.n_options, alias.options, both ? "," : "",
               text[n] ? text + n + 1 : "");
    *ret = m;
    return out->err;
}
