/* head_budgets.c - reads the budget of each head from the run header (head_budgets.h). */
#include "analyzers/head_budgets.h"

#include <stdio.h>
#include <string.h>

#include "base/headset.h"
#include "base/mem.h"
#include "libtrace/run_header.h"

/* Sets the budgets of the heads with take[i] != 0 (NULL: all) to those of a method.  Returns false
 * if it has a list of another length than n. */
static bool read_method(const struct json *method, const unsigned char *take, int n, int64_t *ret)
{
    const struct json *list = json_get(json_get(method, "head_budgets"), "entries");
    const char *allocation = json_str(json_get(method, "allocation"), "uniform");
    int64_t budget = json_int(json_get(method, "budget"), 0);
    int64_t one = budget == 0 || strcmp(allocation, "uniform") == 0 ? budget : -1;
    const struct json *x = json_first(list);
    if (list && json_len(list) != n)
        return false;
    for (int i = 0; i < n; i++, x = json_next(x))
        if (!take || take[i])
            ret[i] = list ? json_int(x, -1) : one;
    return true;
}

/* Returns "head_budgets" of the first method of the run that has a table of heads, or NULL. */
static const struct json *table_of(const struct json *root)
{
    const struct json *x = json_get(json_get(root, "method"), "head_budgets");
    const struct json *o = json_first(json_get(root, "overrides"));
    for (; !x && o; o = json_next(o))
        x = json_get(o, "head_budgets");
    return x;
}

/* Reads the budgets of L layers with H heads.  *ret_known: the header describes these heads. */
static int read_budgets(const struct json *root, int L, int H, int64_t *ret, bool *ret_known)
{
    unsigned char *take = MEM_NEW(unsigned char, (size_t)L *(size_t)H);
    const struct headset_shape shape = {"the trace", L, H, .kind = 0};
    struct kvf_diag unused;
    *ret_known = take && read_method(json_get(root, "method"), NULL, L * H, ret);
    const struct json *o = json_first(json_get(root, "overrides"));
    for (; *ret_known && o; o = json_next(o)) {
        memset(take, 0, (size_t)L * (size_t)H);
        *ret_known = headset_mark("", json_str(json_get(o, "heads"), ""), &shape, take, &unused)
                         == KVF_OK
                     && read_method(o, take, L * H, ret);
    }
    mem_free(take);
    return take ? KVF_OK : KVF_E_NOMEM;
}

/* Adds the column.  budget: [L * H] */
static int put_column(struct table *out, const int64_t *budget, int H, const struct head_list *l,
                      bool with_all)
{
    int64_t *block = MEM_NEW(int64_t, (size_t)l->n + 1), all = 0;
    if (!block)
        return KVF_E_NOMEM;
    bool sums = true;
    for (int i = 0; i < l->n; i++) {
        block[i] = budget[l->head[i].layer * H + l->head[i].index];
        if (sums)
            all = block[i] < 1 ? block[i] : all + block[i];
        sums = sums && block[i] > 0;
    }
    block[l->n] = all;
    table_block_int(out, HEAD_BUDGET, "entries", block, l->n + with_all);
    mem_free(block);
    return table_err(out);
}

int put_head_budgets(struct table *out, const struct kvf_trace *t, const struct head_list *l,
                     bool with_all, struct kvf_diag *d)
{
    struct json *root = NULL;
    int L = kvf_n_layers(t), H = L ? kvf_n_heads(t, 0, KVF_SPACE_KV) : 0;
    int err = run_header(t, &root, d);
    if (err)
        return err;
    const struct json *table = table_of(root);
    for (int layer = 1; layer < L; layer++)
        table = kvf_n_heads(t, layer, KVF_SPACE_KV) == H ? table : NULL;
    bool known = false;
    int64_t *budget = table && l->n ? MEM_NEW(int64_t, (size_t)L * (size_t)H) : NULL;
    if (table && l->n)
        err = budget ? read_budgets(root, L, H, budget, &known) : KVF_E_NOMEM;
    if (!err && known) {
        char text[64];
        snprintf(text, sizeof text, "%.20s %.20s", json_str(json_get(table, "form"), "?"),
                 json_str(json_get(table, "hash"), "?"));
        table_meta_str(out, "head_budgets", text);
        err = put_column(out, budget, H, l, with_all);
    }
    mem_free(budget);
    json_free(root);
    return err;
}
