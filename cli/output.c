#include <string.h>

#include "base/table_io.h"
#include "cli/output.h"
#include "cli/preview.h"

static bool on_screen(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

static int write_path(const struct output *o, const struct table *t, const struct figure *f,
                      struct kvf_diag *d)
{
    if (on_screen(o->path))
        return table_write(t, TABLE_TSV, "-", d);
    if (f && figure_can_write(o->path))
        return figure_write(f, t, &o->look->style, o->path, d);
    return table_write(t, table_format_of(o->path), o->path, d);
}

int output_table(const struct output *o, const struct table *t, struct kvf_diag *d)
{
    const char *name = o->figure ? o->figure : table_name(t);
    const struct figure *f = o->look ? figure_find(name) : NULL;
    bool drawn = o->look && preview_wanted(o->look, f, o->path);
    int err = o->look ? preview_check(o->look, f, d) : KVF_OK;
    if (!err && o->path && !(drawn && on_screen(o->path)))
        err = write_path(o, t, f, d);
    if (!err && o->json)
        err = table_write(t, TABLE_JSON, "-", d);
    return err || !drawn || o->json ? err : preview(o->look, f, t, d);
}

bool output_summary(const struct output *o)
{
    return !o->json && !on_screen(o->path) && !(o->look && o->look->preview);
}
