#include "cli/side_by_side.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/table_stack.h"

enum { NAME = 64 };

static void short_names(char *const *path, int n, char (*name)[NAME], const char **ret)
{
    bool equal = false;
    for (int i = 0; i < n; i++) {
        const char *slash = strrchr(path[i], '/'), *base = slash ? slash + 1 : path[i];
        const char *dot = strrchr(base, '.');
        snprintf(name[i], NAME, "%.*s", dot && dot > base ? (int)(dot - base) : NAME - 1, base);
        ret[i] = name[i];
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            equal |= strcmp(name[i], name[j]) == 0;
    for (int i = 0; equal && i < n; i++)
        ret[i] = path[i];
}

int side_by_side(const struct analyzer *a, struct kvf_trace *const *trace, char *const *path, int n,
                 const struct analyzer_args *args, struct table **ret, struct kvf_diag *d)
{
    struct table *t[SIDE_BY_SIDE_MOST] = {NULL};
    char room[SIDE_BY_SIDE_MOST][NAME];
    const char *name[SIDE_BY_SIDE_MOST];
    int err = KVF_OK;
    for (int i = 0; !err && i < n; i++)
        err = a->run(trace + i, 1, args, &t[i], d);
    if (!err) {
        short_names(path, n, room, name);
        err = table_stack((const struct table *const *)t, name, n, "trace", ret, d);
    }
    for (int i = 0; i < n; i++)
        table_destroy(t[i]);
    return err;
}
