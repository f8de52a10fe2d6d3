/* saved_table.c - reads saved tables and checks the order of their rows. */
#include "cli/saved_table.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/table_read.h"
#include "render/figure.h"

enum { MOST_LAYERS = 1 << 16 };

/* Returns true if a row > 0 belongs to another trace than the row before it. */
static bool other_trace(const struct table *t, int trace, int64_t row)
{
    if (trace < 0)
        return false;
    if (table_col_type(t, trace) == TABLE_STR)
        return strcmp(table_str(t, trace, row), table_str(t, trace, row - 1)) != 0;
    return table_int(t, trace, row) != table_int(t, trace, row - 1);
}

static int check_order(const struct table *t, const char *path, struct kvf_diag *d)
{
    int head = table_find(t, "head"), token = table_find(t, "token");
    int trace = table_find(t, "trace"), layer = table_find(t, "layer"),
        index = table_find(t, "index");
    int64_t run = 0, first = 0, above = -1;
    for (int64_t r = 0; r < table_rows(t); r++) {
        int64_t at = layer >= 0 ? table_int(t, layer, r) : 0;
        if (at > MOST_LAYERS || (index >= 0 && table_int(t, index, r) > MOST_LAYERS))
            return kvf_fail(d, KVF_E_ARG, "%s: row %" PRId64 " is of a layer or head above %d",
                            path, r + 1, MOST_LAYERS);
        if (head < 0 || token < 0 || at < 0) /* rows for all heads are the last ones */
            continue;
        bool other = r && other_trace(t, trace, r);
        above = other ? -1 : above;
        bool next = other || (r && strcmp(table_str(t, head, r), table_str(t, head, r - 1)) != 0);
        first = next && !first ? run : first;
        if (at < above || (next && run != first))
            return kvf_fail(d, KVF_E_ARG,
                            "%s: row %" PRId64 ": figures need all heads with the "
                            "same tokens, one head after another, in order of layer",
                            path, r + 1);
        run = next ? 1 : run + 1;
        above = at;
    }
    if (first && run != first)
        return kvf_fail(d, KVF_E_ARG, "%s: the last head has %" PRId64 " rows, others %" PRId64,
                        path, run, first);
    return KVF_OK;
}

int saved_table_open(const char *path, bool figure, struct table **ret, struct kvf_diag *d)
{
    struct table *t = NULL;
    size_t n = strlen(path);
    if (n > 4 && strcmp(path + n - 4, ".kvf") == 0)
        return kvf_fail(d, KVF_E_ARG,
                        "%.200s is a trace, not a table (.tsv, .csv or .json): analyses draw "
                        "traces, as 'kvfate eviction %.200s -o eviction.png' does",
                        path, path);
    int err = table_read(path, figure_reads_text, &t, d);
    if (!err && figure)
        err = check_order(t, path, d);
    if (err)
        table_destroy(t);
    else
        *ret = t;
    return err;
}
