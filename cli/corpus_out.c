#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/table_io.h"
#include "cli/corpus_out.h"
#include "render/figure.h"

static bool to_stdout(const char *out)
{
    return strcmp(out, "-") == 0;
}

int corpus_out_check(const struct analyzer *a, const char *out, struct kvf_diag *d)
{
    if (!out || to_stdout(out) || table_format_of(out) != TABLE_FORMAT_NONE)
        return KVF_OK;
    if (!figure_can_write(out))
        return kvf_fail(d, KVF_E_ARG, "-o %s: the name must end in .tsv, .csv, .json, .npz, .png, "
                        ".svg or .pdf", out);
    if (!figure_find(a->name))
        return kvf_fail(d, KVF_E_ARG, "-o %s: %s has no figure; write it as .tsv, .csv, .json or "
                        ".npz", out, a->name);
    return KVF_OK;
}

int corpus_out(struct corpus *c, const char *out, bool json, struct kvf_diag *d)
{
    const struct figure_style style = {.vmin = NAN, .vmax = NAN};
    struct table *t = NULL;
    struct buf b = {0};
    bool screen = json || (out && to_stdout(out));
    int err = corpus_table(c, &t, d);
    if (!err && screen)
        err = table_write(t, json ? TABLE_JSON : TABLE_TSV, "-", d);
    else if (!err && out && figure_can_write(out))
        err = figure_write(figure_find(corpus_analyzer(c)->name), t, &style, out, d);
    else if (!err && out)
        err = table_write(t, table_format_of(out), out, d);
    if (!err && !screen) {
        corpus_describe(c, t, &b);
        err = b.err;
        if (!err)
            fwrite(b.data, 1, b.len, stdout);
    }
    buf_finish(&b);
    table_destroy(t);
    return err;
}
