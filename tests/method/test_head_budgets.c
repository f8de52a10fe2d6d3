/* test_head_budgets.c - budgets per head compared with results computed by hand, and evictions of
 * heads with different budgets. */
#include <math.h>

#include "bed.h"
#include "engine/method/head_budgets.h"

static struct head_table *table(enum head_table_form form, int L, int H, const double *value)
{
    struct head_table *t = MEM_NEW(struct head_table, 1);
    size_t n = (size_t)L * (size_t)H * (form == HEAD_TABLE_PRUNED ? HEAD_TABLE_RATIOS : 1);
    *t = (struct head_table){mem_strdup("t.json"), form, L, H, MEM_NEW(double, n), "0"};
    memcpy(t->value, value, n * sizeof *value);
    return t;
}

/* Compares budgets, and closes the table. */
static void expect_budgets(struct head_table *t, struct method_params p, int64_t n, const int *want)
{
    int got[64];
    const struct method_shape shape = {t->n_layers, t->n_heads, t->n_heads, 2};
    head_budgets(t, &p, &shape, n, got);
    for (int i = 0; i < t->n_layers * t->n_heads; i++)
        cr_expect(eq(int, got[i], want[i]), "head %d", i);
    head_table_close(t);
}

Test(head_budgets, entries_and_fractions)
{
    const double entries[] = {1, 40, 7}, parts[] = {0.25, 0.5, 1.25, 0.35};
    expect_budgets(table(HEAD_TABLE_ENTRIES, 3, 1, entries),
                   (struct method_params){.budget = 16, .every = 1}, 0, (int[]){1, 40, 7});
    /* 2.5 and 3.5 are rounded to even */
    expect_budgets(table(HEAD_TABLE_FRACTIONS, 2, 2, parts),
                   (struct method_params){.budget = 10, .every = 1}, 0, (int[]){2, 5, 12, 4});
}

Test(head_budgets, headkv)
{
    /* C = 100: C // 1.01 = 99, and 1 is fixed; C // 2 = 50; C // 10 = 10 */
    const double x[] = {4, 3, 2, 1};
    const struct {
        double beta;
        int want[4];
    } c[] = {{0, {159, 120, 80, 41}},
             {1.01, {159, 120, 80, 41}},
             {2, {130, 110, 90, 70}},
             {10, {106, 102, 98, 94}}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct method_params p = {.budget = 100, .every = 1, .beta = c[i].beta};
        expect_budgets(table(HEAD_TABLE_SCORES, 2, 2, x), p, 0, c[i].want);
        int later[4];
        for (int h = 0; h < 4; h++)
            later[h] = c[i].want[h] + 28; /* the window comes on top */
        p.budget = 128;
        p.recent = 28;
        expect_budgets(table(HEAD_TABLE_SCORES, 2, 2, x), p, 0, later);
    }
    /* temp = 2: squares 16, 9, 4, 1 of 30; 400 places of beta = 1 */
    expect_budgets(table(HEAD_TABLE_SCORES, 1, 4, x),
                   (struct method_params){.budget = 100, .every = 1, .beta = 1, .temp = 2}, 0,
                   (int[]){213, 120, 53, 13});
}

Test(head_budgets, quotient_that_rounds_up)
{
    /* 11 / 1.1 is 10 in double, but the double 1.1 is above 1.1, so that it fits 9 times: 2 places
     * are fixed and 18 are divided */
    const double x[] = {1, 0};
    expect_budgets(table(HEAD_TABLE_SCORES, 1, 2, x),
                   (struct method_params){.budget = 11, .every = 1, .beta = 1.1}, 0,
                   (int[]){20, 2});
}

Test(head_budgets, kept_heads_have_no_limit)
{
    const double x[] = {0, 1, 0, 1};
    int got[9];
    struct head_table *t = table(HEAD_TABLE_KEPT, 2, 2, x);
    const struct method_params p = {.budget = 12, .every = 1};
    const struct method_shape shape = {3, 3, 3,
                                       2}; /* the table names heads up to layer 1, head 1 */
    head_budgets(t, &p, &shape, 0, got);
    for (int i = 0; i < 9; i++)
        cr_expect(eq(int, got[i], i == 1 || i == 4 ? HEAD_TABLE_BUDGET : 12), "head %d", i);
    head_table_close(t);
}

Test(head_budgets, pruned)
{
    /* two layers of 3 and of 1 head repeated; the curves of ratio .50 and .51 */
    static double x[99 * 3];
    const double half[] = {.33, .72, .95}, more[] = {.999, .5, .5}, none[] = {0, 0, 0};
    for (int i = 0; i < 99 * 3; i++)
        x[i] = .9;
    memcpy(x + 49 * 3, half, sizeof half);
    memcpy(x + 50 * 3, more, sizeof more);
    memcpy(x + 98 * 3, none, sizeof none);
    struct method_params p = {.budget = 5, .every = 1};
    /* n = 10: 6.7, 2.8, 0.5 of 10 places; rounded down 6, 2, 0; .8 and .7 are raised, then .5 is
     * raised to the one place that a head needs */
    expect_budgets(table(HEAD_TABLE_PRUNED, 1, 3, x), p, 10, (int[]){7, 3, 1});
    p.sinks = 2; /* with the newcomer's: 3 places */
    expect_budgets(table(HEAD_TABLE_PRUNED, 1, 3, x), p, 10, (int[]){7, 3, 3});
    p.sinks = 0;
    /* n = 10, B = 5 of the next ratio: 49 of 100 is .51 */
    p.budget = 49;
    expect_budgets(table(HEAD_TABLE_PRUNED, 1, 3, x), p, 100, (int[]){1, 50, 50});
    /* a prompt that fits into the budget */
    expect_budgets(table(HEAD_TABLE_PRUNED, 1, 3, x), p, 49, (int[]){49, 49, 49});
    /* the last ratio is .99 */
    p.budget = 1;
    expect_budgets(table(HEAD_TABLE_PRUNED, 1, 3, x), p, 1000, (int[]){1000, 1000, 1000});
}

/* Returns the sentence of a rejection. */
static struct kvf_diag rejected(struct head_table *t, struct method_params p,
                                struct method_shape shape, int n_kv_heads)
{
    struct kvf_diag d = {""};
    cr_expect(eq(int, head_budgets_check(t, &p, &shape, n_kv_heads, &d), KVF_E_ARG));
    head_table_close(t);
    return d;
}

Test(head_budgets, rejections)
{
    static const double two[] = {6, 7, 8, 9}, one[] = {1, 0, 1, 0}, curves[99 * 4];
    const struct method_params p = {.budget = 7, .every = 1};
    const struct method_shape kv = {2, 4, 2, 2}, query = {2, 4, 4, 2}, other = {3, 4, 2, 2};
    struct method_params q = p;
    struct kvf_diag d = {""};
    struct head_table *t = table(HEAD_TABLE_ENTRIES, 2, 2, two);
    cr_expect(zero(int, head_budgets_check(t, &p, &kv, 2, &d)), "%s", d.text);
    q.budget = 8;
    d = rejected(t, q, kv, 2);
    cr_expect(strstr(d.text, "give the budget 7") != NULL, "%s", d.text);
    d = rejected(table(HEAD_TABLE_ENTRIES, 2, 2, two), p, other, 2);
    cr_expect(strstr(d.text, "2 layers of 2 heads, and the cache has 3 layers of 2") != NULL, "%s",
              d.text);
    d = rejected(table(HEAD_TABLE_SCORES, 1, 4, two), p, (struct method_shape){1, 4, 2, 2}, 2);
    cr_expect(strstr(d.text, "group=none") != NULL, "%s", d.text);
    q = p;
    q.sinks = 4;
    q.recent = 2;
    q.every = 2; /* 7 places, and the first head has 6 */
    d = rejected(table(HEAD_TABLE_ENTRIES, 2, 2, two), q, kv, 2);
    cr_expect(strstr(d.text, "layer 0, head 0 gets 6 entries") != NULL, "%s", d.text);
    q = p;
    q.beta = 2;
    d = rejected(table(HEAD_TABLE_ENTRIES, 2, 2, two), q, kv, 2);
    cr_expect(strstr(d.text, "beta and temp") != NULL, "%s", d.text);
    d = rejected(table(HEAD_TABLE_KEPT, 2, 2, one), p, query, 2);
    cr_expect(strstr(d.text, "leave group=none out") != NULL, "%s", d.text);
    d = rejected(table(HEAD_TABLE_KEPT, 2, 2, one), p, (struct method_shape){2, 4, 1, 2}, 1);
    cr_expect(strstr(d.text, "another model") != NULL, "%s", d.text);
    q = p;
    q.chunk = 16;
    d = rejected(table(HEAD_TABLE_PRUNED, 2, 2, curves), q, kv, 2);
    cr_expect(strstr(d.text, "leave chunk out") != NULL, "%s", d.text);
}

/* Feeds n entries to all heads: a prompt of `prompt` and then one by one.  Checks after each that
 * no head exceeds its budget, and that it equals its budget once as many entries have come. */
static void run_and_count(struct bed *b, const int *budget, int prompt, int n)
{
    for (int t = 0; t < n; t++) {
        if (t == prompt)
            cr_assert(
                zero(int, method_decide(b->m, b->cache, t, PHASE_PROMPT, NULL, NULL, NULL, NULL)));
        if (t >= prompt)
            cr_assert(
                zero(int, method_decide(b->m, b->cache, t, PHASE_BEFORE, NULL, NULL, NULL, NULL)));
        for (int at = 0; at < 2 * b->H; at++)
            bed_append(b, at / b->H, at % b->H, t, NAN, (float)((t * 7 + at) % 11), 1);
        for (int at = 0; at < 2 * b->H && t >= prompt; at++) {
            int have = cache_view(b->cache, at / b->H, at % b->H).n;
            int want = t + 1 < budget[at] ? t + 1 : budget[at];
            cr_expect(eq(int, have, want), "step %d, head %d", t, at);
        }
    }
}

Test(head_budgets, heads_hold_exactly_their_budgets)
{
    const int budget[] = {1, 5, 12, 30, 3, 9};
    double value[6];
    for (int i = 0; i < 6; i++)
        value[i] = budget[i];
    static const char *const methods[] = {"knorm:allocation=file", "keydiff:allocation=file",
                                          "window:allocation=file,sinks=0,recent=1",
                                          "random:allocation=file"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        for (int prompt = 1; prompt <= 16; prompt += 5) {
            struct bed b;
            struct head_table *t = table(HEAD_TABLE_ENTRIES, 2, 3, value);
            struct method_inputs in = {.head_table = t};
            bed_open_with(&b, methods[i], 10, 2, 3, &in);
            run_and_count(&b, budget, prompt, 40);
            bed_close(&b);
            head_table_close(t);
        }
}
