#include <string.h>

#include "base/table_io.h"
#include "cli/output.h"

static bool on_screen(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

static int write_path(const struct output *o, const struct table *t, struct kvf_diag *d)
{
    if (on_screen(o->path))
        return table_write(t, TABLE_TSV, "-", d);
    if (o->style && figure_can_write(o->path))
        return figure_write(figure_find(table_name(t)), t, o->style, o->path, d);
    return table_write(t, table_format_of(o->path), o->path, d);
}

int output_table(const struct output *o, const struct table *t, struct kvf_diag *d)
{
    int err = o->path ? write_path(o, t, d) : KVF_OK;
    return err || !o->json ? err : table_write(t, TABLE_JSON, "-", d);
}

bool output_summary(const struct output *o)
{
    return !o->json && !on_screen(o->path);
}
