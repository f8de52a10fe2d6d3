/* fuzz_head_table.c - a table of budgets per head: opened, and budgets computed for a cache of its
 * shape. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/method/head_budgets.h"
#include "fuzz.h"

enum { HEADS_MOST = 1 << 12 }; /* of tables whose budgets are computed */

static void check_values(const struct head_table *t)
{
    size_t n = (size_t)t->n_layers * (size_t)t->n_heads;
    double sum = 0;
    MUST(n >= 1 && n <= HEAD_TABLE_HEADS);
    n *= t->form == HEAD_TABLE_PRUNED ? HEAD_TABLE_RATIOS : 1;
    for (size_t i = 0; i < n; i++) {
        MUST(isfinite(t->value[i]) && t->value[i] >= 0);
        sum += t->value[i];
    }
    MUST(sum > 0 || t->form == HEAD_TABLE_PRUNED);
}

/* Budgets of every head that is accepted have places for protected entries. */
static void check_budgets(const struct head_table *t, const struct method_params *p)
{
    struct method_shape shape = {t->n_layers, t->n_heads, t->n_heads, 2};
    struct kvf_diag d = {""};
    int heads = t->n_layers * t->n_heads;
    int err = head_budgets_check(t, p, &shape, shape.n_kv_heads, &d);
    MUST(err == KVF_OK || (err == KVF_E_ARG && d.text[0]));
    int *budget = MEM_NEW(int, (size_t)heads);
    MUST(budget);
    for (int64_t n = 1; !err && n < 1 << 20; n = 3 * n + 1) {
        head_budgets(t, p, &shape, n, budget);
        for (int i = 0; i < heads; i++)
            MUST(budget[i] >= p->sinks + 1 && budget[i] <= HEAD_TABLE_BUDGET);
    }
    mem_free(budget);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    struct kvf_diag d = {""};
    struct head_table *t = NULL;
    int fd = memory_file(data, n, path);
    int err = head_table_open(path, &t, &d);
    MUST((err == KVF_OK) == (t != NULL));
    MUST(!err || err == KVF_E_NOMEM || (d.text[0] && strstr(d.text, path)));
    if (t) {
        const struct method_params p[] = {{.budget = 21, .every = 1},
                                          {.budget = 64, .every = 1, .sinks = 4, .recent = 16},
                                          {.budget = 9, .every = 1, .beta = 1.1, .temp = 2}};
        MUST(strlen(t->hash) == CHECKSUM_DIGITS);
        check_values(t);
        for (size_t i = 0; t->n_layers * t->n_heads <= HEADS_MOST && i < sizeof p / sizeof *p; i++)
            check_budgets(t, &p[i]);
    }
    head_table_close(t);
    close(fd);
    return 0;
}
