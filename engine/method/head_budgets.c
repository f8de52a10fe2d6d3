/* head_budgets.c - computes and checks the budget of each head (head_budgets.h). */
#include "engine/method/head_budgets.h"

#include <math.h>

#include "base/mem.h"

/* Returns the places that a head needs for protected entries, and for the tokens until the next
 * eviction. */
static int needed(const struct method_params *p)
{
    return p->sinks + (p->recent > 1 ? p->recent : 1) + p->every - 1;
}

/* Returns the largest integer q with q b <= a, for a >= 0 and b > 0.  floor(a / b) may be one more,
 * because the quotient is rounded. */
static double times(double a, double b)
{
    return rint((a - fmod(a, b)) / b);
}

/* Sets HeadKV's budgets: capacity = round(x (C // beta) L H + C - C // beta), C = B - recent, and
 * the recent entries.  x: the head's score ^ temp, divided by the sum over all heads. */
static void set_headkv(const struct head_table *t, const struct method_params *p, int *ret)
{
    int n = t->n_layers * t->n_heads;
    double C = p->budget - p->recent, temp = p->temp > 0 ? p->temp : HEADKV_TEMP;
    double part = times(C, p->beta > 0 ? p->beta : HEADKV_BETA), sum = 0, powers = 0;
    for (int i = 0; i < n; i++)
        sum += t->value[i];
    for (int i = 0; i < n; i++)
        powers += pow(t->value[i] / sum, temp);
    for (int i = 0; i < n; i++) {
        double x = pow(t->value[i] / sum, temp) / powers;
        double all = rint(x * (part * n) + (C - part)) + p->recent;
        ret[i] = all < HEAD_TABLE_BUDGET ? (int)all : HEAD_TABLE_BUDGET;
    }
}

/* Sets LU-KV's budgets of one layer.  pruned: [H].  Budgets are rounded down, and the places that
 * are left go to the largest remainders, the lower head first. */
static void set_pruned(const double *pruned, const struct method_params *p, int H, int64_t n,
                       int *ret)
{
    double sum = 0;
    int64_t left;
    for (int h = 0; h < H; h++)
        sum += (double)((1.0f - (float)pruned[h]) * (float)n);
    left = (int64_t)rint(sum);
    left = left > H ? left : H;
    for (int h = 0; h < H; h++) {
        ret[h] = (int)((1.0f - (float)pruned[h]) * (float)n);
        left -= ret[h];
    }
    for (int given = 0; given < H && left > 0; given++, left--) {
        int best = -1;
        float most = -1;
        for (int h = 0; h < H; h++) {
            float ideal = (1.0f - (float)pruned[h]) * (float)n, rest = ideal - floorf(ideal);
            if (ret[h] == (int)ideal && rest > most) { /* not yet raised */
                best = h;
                most = rest;
            }
        }
        ret[best]++;
    }
    for (int h = 0; h < H; h++) {
        ret[h] = ret[h] < n ? ret[h] : (int)n;
        ret[h] = ret[h] > needed(p) ? ret[h] : needed(p);
    }
}

/* Returns the index of the compression ratio 1 - B / n in the curves of LU-KV. */
static int ratio_index(int budget, int64_t n)
{
    int i = (int)rint((1 - (double)budget / (double)n) * 100) - 1;
    if (i < 0)
        return 0;
    return i < HEAD_TABLE_RATIOS ? i : HEAD_TABLE_RATIOS - 1;
}

static double budget_of(const struct head_table *t, const struct method_params *p, int layer,
                        int head)
{
    bool named = layer < t->n_layers && head < t->n_heads;
    double x = named ? t->value[(size_t)layer * (size_t)t->n_heads + (size_t)head] : 0;
    if (t->form == HEAD_TABLE_KEPT)
        return x > 0 ? HEAD_TABLE_BUDGET : p->budget;
    return t->form == HEAD_TABLE_FRACTIONS ? rint(x * p->budget) : x;
}

void head_budgets(const struct head_table *t, const struct method_params *p,
                  const struct method_shape *shape, int64_t n, int *ret)
{
    int L = shape->n_layers, H = shape->n_kv_heads;
    const double *curves = t->value;
    bool cut = t->form == HEAD_TABLE_PRUNED && n > p->budget;
    if (t->form == HEAD_TABLE_SCORES) {
        set_headkv(t, p, ret);
        return;
    }
    if (cut)
        curves += (size_t)ratio_index(p->budget, n) * (size_t)L * (size_t)H;
    for (int l = 0; l < L && cut; l++)
        set_pruned(curves + (size_t)l * (size_t)H, p, H, n, ret + (size_t)l * (size_t)H);
    for (int i = 0; i < L * H && !cut; i++) {
        double x = t->form == HEAD_TABLE_PRUNED ? p->budget : budget_of(t, p, i / H, i % H);
        ret[i] = x < HEAD_TABLE_BUDGET ? (int)x : HEAD_TABLE_BUDGET;
    }
}

static int check_shape(const struct head_table *t, const struct method_shape *shape, int n_kv_heads,
                       struct kvf_diag *d)
{
    int L = shape->n_layers, H = shape->n_kv_heads;
    bool kv = t->form == HEAD_TABLE_KEPT || t->form == HEAD_TABLE_PRUNED;
    if (kv && H != n_kv_heads)
        return kvf_fail(d, KVF_E_ARG,
                        "--head-budgets %s: %s has a number per KV head, and with group=none each "
                        "query head has a cache; leave group=none out",
                        t->path, head_table_form_name(t->form));
    if (t->form == HEAD_TABLE_KEPT && (t->n_layers > L || t->n_heads > H))
        return kvf_fail(d, KVF_E_ARG,
                        "--head-budgets %s names heads up to layer %d and head %d, and the model "
                        "has %d layers of %d KV heads: it is for another model",
                        t->path, t->n_layers - 1, t->n_heads - 1, L, H);
    if (t->form == HEAD_TABLE_KEPT || (t->n_layers == L && t->n_heads == H))
        return KVF_OK;
    bool by_query = t->n_layers == L && t->n_heads == shape->n_heads;
    return kvf_fail(d, KVF_E_ARG,
                    "--head-budgets %s has %d layers of %d heads, and the cache has %d layers of "
                    "%d heads%s",
                    t->path, t->n_layers, t->n_heads, L, H,
                    by_query ? "; a table of query heads needs group=none in the method"
                             : ": the table is for another model");
}

static int check_params(const struct head_table *t, const struct method_params *p,
                        struct kvf_diag *d)
{
    int64_t n = (int64_t)t->n_layers * t->n_heads;
    double sum = 0;
    if (t->form != HEAD_TABLE_SCORES && (p->beta > 0 || p->temp > 0))
        return kvf_fail(d, KVF_E_ARG,
                        "--head-budgets %s: beta and temp belong to scores of HeadKV, and this is "
                        "a table of the form %s; leave them out",
                        t->path, head_table_form_name(t->form));
    if (t->form == HEAD_TABLE_PRUNED && p->chunk)
        return kvf_fail(d, KVF_E_ARG,
                        "--head-budgets %s: curves of LU-KV give budgets for the complete prompt; "
                        "leave chunk out",
                        t->path);
    for (int64_t i = 0; i < n && t->form == HEAD_TABLE_ENTRIES; i++)
        sum += t->value[i];
    double mean = floor(sum / (double)n);
    if (t->form != HEAD_TABLE_ENTRIES || p->open || mean == p->budget)
        return KVF_OK;
    if (p->part) {
        char part[BUDGET_TEXT];
        budget_text(&(struct budget){.part = p->part}, part);
        return kvf_fail(d, KVF_E_ARG,
                        "--head-budgets %s states %.0f entries per head on average, rounded down, "
                        "and the budget of %s is %d entries here; give the budget %.0f",
                        t->path, mean, part, p->budget, mean);
    }
    return kvf_fail(d, KVF_E_ARG,
                    "--head-budgets %s states %.0f entries per head on average, rounded down, "
                    "and the budget is %d; give the budget %.0f",
                    t->path, mean, p->budget, mean);
}

int head_budgets_check(const struct head_table *t, const struct method_params *p,
                       const struct method_shape *shape, int n_kv_heads, struct kvf_diag *d)
{
    int H = shape->n_kv_heads, n = shape->n_layers * H;
    int err = check_shape(t, shape, n_kv_heads, d);
    if (!err)
        err = check_params(t, p, d);
    if (err || p->open) /* the entries and the numbers that follow from them are not known */
        return err;
    int *budget = MEM_NEW(int, (size_t)n);
    if (!budget)
        return KVF_E_NOMEM;
    head_budgets(t, p, shape, 0, budget);
    for (int i = 0; !err && i < n; i++)
        if (budget[i] < needed(p))
            err = kvf_fail(d, KVF_E_ARG,
                           "--head-budgets %s: layer %d, head %d gets %d entries, and %d sinks, %d "
                           "recent entries and cuts every %d need %d; give smaller numbers of them",
                           t->path, i / H, i % H, budget[i], p->sinks, p->recent, p->every,
                           needed(p));
    mem_free(budget);
    return err;
}
