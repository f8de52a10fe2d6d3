#include "cli/draw_layout.h"

#include <stdio.h>
#include <string.h>

#include "cli/files.h"
#include "cli/saved_table.h"

enum { PATH_BYTES = 4096, NAME_BYTES = 64 };

/* Divides "TABLE@FIGURE:KEY=VALUE,..." behind the last '@' that a figure's name follows. */
static void divide(const char *text, char path[PATH_BYTES], const struct figure **f,
                   const char **option)
{
    const char *at = strrchr(text, '@');
    char name[NAME_BYTES];
    size_t n = at ? strcspn(at + 1, ":") : 0;
    snprintf(name, sizeof name, "%.*s", (int)(n < NAME_BYTES ? n : 0), at ? at + 1 : "");
    *f = figure_find(name);
    *option = *f && at[1 + n] && at[2 + n] ? at + 2 + n : NULL;
    snprintf(path, PATH_BYTES, "%.*s", *f ? (int)(at - text) : PATH_BYTES - 1, text);
}

static int open_panel(const char *text, const char *out, struct layout_panel *p, struct table **t,
                      struct kvf_diag *d)
{
    char path[PATH_BYTES];
    divide(text, path, &p->f, &p->option);
    if (file_same(path, out))
        return kvf_fail(d, KVF_E_ARG, "-o %.200s would overwrite a table", out);
    int err = saved_table_open(path, t, d);
    if (err)
        return err;
    if (!p->f)
        p->f = figure_of_table(table_name(*t));
    if (!p->f || strcmp(p->f->table, table_name(*t)) != 0)
        return kvf_fail(d, KVF_E_ARG, "%.200s: %s of table '%.80s'; 'kvfate figures' lists them",
                        path, p->f ? "not a figure" : "there is no figure", table_name(*t));
    p->t = *t;
    return KVF_OK;
}

int draw_layout_write(const struct draw_layout *x, const struct figure_style *s, const char *path,
                      struct kvf_diag *d)
{
    struct layout_panel panel[LAYOUT_PANELS] = {{.f = NULL}};
    struct table *table[LAYOUT_PANELS] = {NULL};
    const struct layout l = {x->mosaic, panel, x->n, x->letters};
    int err = KVF_OK;
    figure_prepare();
    for (int k = 0; !err && k < x->n; k++)
        err = open_panel(x->panel[k], path, &panel[k], &table[k], d);
    if (!err)
        err = layout_write(&l, s, path, d);
    for (int k = 0; k < x->n; k++)
        table_destroy(table[k]);
    return err;
}
