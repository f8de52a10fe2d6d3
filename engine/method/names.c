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

/* Returns KVF_E_ARG with the sentence for an unknown name. */
static int unknown_name(const char *name, struct kvf_diag *d)
{
    enum { MOST = 64 };
    const char *known[MOST + 1] = {NULL};
    for (int i = 0; i < MOST && method_presets[i].name; i++)
        known[i] = method_presets[i].name;
    const char *near = opt_near(known, name);
    if (strchr(name, ','))
        return kvf_fail(d, KVF_E_ARG,
                        "'%s' names several methods and a run has one; 'kvfate eval --methods' or "
                        "'kvfate quickstart --methods' compares several",
                        name);
    return kvf_fail(d, KVF_E_ARG, "no method '%s'%s%s%s; 'kvfate methods' lists them", name,
                    near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

int method_expand(const char *text, struct buf *out, const struct method **ret, struct kvf_diag *d)
{
    char name[64];
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
