/* draw_layout.c - parses the operands of `kvfate draw` and draws several tables on one page. */
#include "cli/draw_layout.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/figure_options.h"
#include "base/files.h"
#include "cli/saved_table.h"

enum { NAME_BYTES = 64 };

int draw_operand(const char *text, struct draw_operand *ret, struct kvf_diag *d)
{
    const char *at = access(text, F_OK) == 0 ? NULL : strrchr(text, '@'); /* a file may have one */
    char name[NAME_BYTES];
    size_t n = at ? strcspn(at + 1, ":") : 0;
    snprintf(name, sizeof name, "%.*s", (int)(n < NAME_BYTES ? n : 0), at ? at + 1 : "");
    ret->figure = figure_find(name);
    ret->option = ret->figure && at[1 + n] && at[2 + n] ? at + 2 + n : NULL;
    snprintf(ret->path, sizeof ret->path, "%.*s", ret->figure ? (int)(at - text) : DRAW_PATH - 1,
             text);
    if (!at || ret->figure)
        return KVF_OK;
    int err = figure_named("", name, NULL, &ret->figure, d);
    kvf_diag_prefix(d, "%.200s", text);
    return err;
}

static int open_panel(const char *text, const char *out, struct layout_panel *p, struct table **t,
                      struct kvf_diag *d)
{
    struct draw_operand x;
    int err = draw_operand(text, &x, d);
    if (err)
        return err;
    if (file_same(x.path, out))
        return kvf_fail(d, KVF_E_ARG, "-o %.200s would overwrite a table", out);
    err = saved_table_open(x.path, true, t, d);
    if (err)
        return err;
    p->f = x.figure;
    p->option = x.option;
    if (!p->f)
        p->f = figure_of_table(table_name(*t));
    if (!p->f || !figure_draws(p->f, table_name(*t)))
        return kvf_fail(d, KVF_E_ARG,
                        "%.200s: %s of table '%.80s'; 'kvfate list figures' lists them", x.path,
                        p->f ? "not a figure" : "there is no figure", table_name(*t));
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
