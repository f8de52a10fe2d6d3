/* windows.c - reads the observation windows of a run (windows.h). */
#include "analyzers/windows.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/order.h"

int windows_open(const struct kvf_trace *t, int queries, struct windows *ret, struct kvf_diag *d)
{
    ret->T = kvf_n_steps(t);
    ret->end = ret->T / KVF_WINDOW_BLOCK * KVF_WINDOW_BLOCK;
    struct lacks l = {.n = 0};
    int err = columns_find(t, "evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, &l, &ret->evict, d);
    for (int w = 0; !err && w < KVF_WINDOWS; w++) {
        char name[KVF_NAME_MAX];
        snprintf(name, sizeof name, "window%s.%d", queries == KVF_WINDOW_QUERIES ? "" : "16", w);
        err = columns_find(t, name, KVF_SPACE_KV, KVF_AXIS_TOKEN, &l, &ret->column[w], d);
    }
    return columns_refuse(&l, NULL, err, d);
}

int64_t windows_from(const struct windows *w, int window)
{
    return w->end - (int64_t)(KVF_WINDOWS - window) * KVF_WINDOW_QUERIES;
}

int windows_shares(const char *option, const char *list, double most, double *out, int cap,
                   int *ret_n, struct kvf_diag *d)
{
    int n = 0, m = 0;
    for (const char *s = list; *s || s == list;) {
        char *end;
        double v = strtod(s, &end);
        bool last = *end == 0;
        if (end == s || !(v > 0 && v <= most) || n == cap || (!last && (*end != ',' || !end[1])))
            return kvf_fail(d, KVF_E_ARG,
                            "--%s: '%s' is not a list of up to %d numbers above 0 "
                            "and up to %g",
                            option, list, cap, most);
        out[n++] = v;
        s = end + !last;
    }
    qsort(out, (size_t)n, sizeof *out, order_double);
    for (int i = 0; i < n; i++)
        if (m == 0 || out[i] != out[m - 1])
            out[m++] = out[i];
    *ret_n = m;
    return KVF_OK;
}

int groups_create(const struct head_list *heads, enum kvf_space space, struct head_groups *ret)
{
    size_t most = 2 * (size_t)heads->n + 1;
    *ret = (struct head_groups){.n_heads = heads->n, .n = heads->n};
    ret->name = MEM_NEW(const char *, most);
    ret->text = mem_alloc((size_t)heads->n, sizeof *ret->text);
    ret->layer = MEM_NEW(int64_t, most);
    ret->index = MEM_NEW(int64_t, most);
    ret->layer_of = MEM_NEW(int, (size_t)heads->n);
    if (!ret->name || !ret->text || !ret->layer || !ret->index || !ret->layer_of) {
        head_groups_free(ret);
        return KVF_E_NOMEM;
    }
    for (int h = 0; h < heads->n; h++) {
        ret->name[h] = heads->name[h];
        ret->layer[h] = heads->layer[h];
        ret->index[h] = heads->index[h];
    }
    for (int h = 0; h < heads->n; h++) { /* layers rise */
        if (h == 0 || heads->layer[h] != heads->layer[h - 1]) {
            char *text = ret->text[ret->n - heads->n];
            snprintf(text, sizeof *ret->text, "L%d%c*", heads->head[h].layer,
                     space == KVF_SPACE_KV ? 'K' : 'H');
            ret->name[ret->n] = text;
            ret->layer[ret->n] = heads->layer[h];
            ret->index[ret->n++] = -1;
        }
        ret->layer_of[h] = ret->n - 1;
    }
    ret->name[ret->n] = "all";
    ret->layer[ret->n] = ret->index[ret->n] = -1;
    ret->n++;
    return KVF_OK;
}

void head_groups_free(struct head_groups *g)
{
    mem_free_all((void *)g->name, g->text, g->layer, g->index, g->layer_of);
    *g = (struct head_groups){0};
}

void put_groups(struct table *t, const struct head_groups *g)
{
    table_block_str(t, "head", "", g->name, g->n);
    table_block_int(t, "layer", "", g->layer, g->n);
    table_block_int(t, "index", "", g->index, g->n);
}
