#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "render/axis.h"
#include "render/figure.h"
#include "render/options.h"

/* The place of value in "a|b|c", or -1. */
static int place(const char *allowed, const char *value)
{
    size_t n = strlen(value);
    int i = 0;
    for (const char *s = allowed;; s++, i++) {
        size_t len = strcspn(s, "|");
        if (len == n && memcmp(s, value, n) == 0)
            return i;
        s += len;
        if (!*s)
            return -1;
    }
}

int option_index(const struct option_key *k)
{
    return place(k->allowed, k->value);
}

static int refuse(const char *figure, const struct option_key *key, int n, const char *name,
                  const char *value, struct kvf_diag *d)
{
    struct buf known = {0};
    for (int i = 0; i < n; i++)
        buf_printf(&known, "%s%s=%s", i ? ", " : "", key[i].name,
                   !key[i].allowed   ? "NUMBER"
                   : *key[i].allowed ? key[i].allowed
                                     : "TEXT");
    int err = kvf_fail(d, KVF_E_ARG, "--style: %s knows %s, not '%s=%s'", figure,
                       known.data ? known.data : "nothing", name, value);
    buf_finish(&known);
    return err;
}

static bool take(struct option_key *k, const char *value)
{
    double v;
    if (!k->allowed) {
        if (!opt_real(value, &v) || !(v >= k->least && v <= k->most))
            return false;
        k->number = v;
    } else if (!*value || (*k->allowed && place(k->allowed, value) < 0)) {
        return false;
    }
    snprintf(k->value, sizeof k->value, "%s", value);
    return true;
}

int options_read(const char *figure, const char *option, struct option_key *key, int n,
                 struct kvf_diag *d)
{
    char name[OPTION_BYTES], value[OPTION_BYTES];
    int more = 0;
    while (option && (more = opt_pair(&option, name, value, OPTION_BYTES)) == 1) {
        int i = 0;
        while (i < n && strcmp(key[i].name, name) != 0)
            i++;
        if (i == n || !take(&key[i], value))
            return refuse(figure, key, n, name, value, d);
    }
    return more ? kvf_fail(d, KVF_E_ARG, "--style needs key=value pairs") : KVF_OK;
}

int canvas_room(const struct canvas *c, const char *figure, double w, double h, struct kvf_diag *d)
{
    if (canvas_width(c) >= w - 1e-9 && canvas_height(c) >= h - 1e-9)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "--size: figure %s needs at least %.0f x %.0f mm here", figure,
                    ceil(fmax(w, FIGURE_LEAST_WIDTH) - 1e-9),
                    ceil(fmax(h, FIGURE_LEAST_HEIGHT) - 1e-9));
}

const char *cell_text(const struct table *t, int col, int64_t row, char out[24])
{
    if (table_col_type(t, col) == TABLE_STR)
        return table_str(t, col, row);
    tick_text(table_real(t, col, row), out);
    return out;
}

int numeric_column(const struct table *t, const char *name)
{
    int col = table_find(t, name);
    return col >= 0 && table_col_type(t, col) != TABLE_STR ? col : -1;
}
