/* output.c - writes or draws the table of a measurement. */
#include <string.h>

#include "base/files.h"
#include "cli/output.h"
#include "cli/preview.h"
#include "cli/watcher.h"

static bool on_screen(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

int output_write(const struct table *t, enum table_format f, const char *path, struct kvf_diag *d)
{
    struct watcher w = watcher_count("write", "rows");
    struct progress_callback watch = {on_screen(path) && !stdout_is_file() ? NULL : watcher_update,
                                      &w};
    int err = table_write_watched(t, f, path, &watch, d);
    watcher_end(&w);
    return err;
}

int output_check(const char *path, const char *table, struct kvf_diag *d)
{
    if (!path || on_screen(path) || table_format_of(path) != TABLE_FORMAT_NONE)
        return KVF_OK;
    if (!figure_can_write(path))
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: the name must end in .tsv, .csv, .json, .npz, .sqlite, .png, "
                        ".svg or .pdf",
                        path);
    if (!figure_of_table(table))
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: this table has no figure; write it as .tsv, .csv, "
                        ".json, .npz or .sqlite",
                        path);
    return KVF_OK;
}

static int write_path(const struct output *o, const struct table *t, const struct figure *f,
                      struct kvf_diag *d)
{
    if (on_screen(o->path))
        return output_write(t, TABLE_TSV, "-", d);
    if (f && figure_can_write(o->path))
        return figure_options_write(o->look, f, t, o->path, d);
    return output_write(t, table_format_of(o->path), o->path, d);
}

int output_table(const struct output *o, const struct table *t, struct kvf_diag *d)
{
    const struct figure *f = NULL;
    if (o->look)
        f = o->figure ? figure_find(o->figure) : figure_of_table(table_name(t));
    bool drawn = o->look && preview_wanted(o->look, f, o->path);
    int err = o->look ? preview_check(o->look, f, d) : KVF_OK;
    if (!err && o->path && !(drawn && on_screen(o->path)))
        err = write_path(o, t, f, d);
    if (!err && o->json)
        err = output_write(t, TABLE_JSON, "-", d);
    if (!err && drawn && !o->json)
        return preview_draw(o->look, f, t, d);
    bool figure = o->path && figure_can_write(o->path);
    return err || figure || !o->look ? err : figure_options_idle(o->look, f, t, d);
}

bool output_summary(const struct output *o)
{
    return !o->json && !on_screen(o->path) && !(o->look && o->look->preview);
}
