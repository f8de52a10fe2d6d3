#include <math.h>

#include <kvf/schema.h>

#include "base/mem.h"
#include "studies/part_state.h"

int part_read(const struct part *p, int head, double *const evict[2], struct kvf_diag *d)
{
    const struct head *h = &p->heads.head[head];
    for (int s = 0; s < 2; s++) {
        int err = read_evict(p->t[s], p->column[s][PART_STEP], h, (uint32_t)p->T, evict[s], d);
        if (err)
            return err;
        for (int64_t i = 0; i < p->T; i++) {
            double e = evict[s][i];
            evict[s][i] = !p->end && e >= (double)p->T ? INFINITY : fmax(e, (double)i);
        }
    }
    return KVF_OK;
}

int64_t part_step(const struct part *p, int64_t i, double a, double b)
{
    double first = fmax(fmin(a, b), (double)i);
    return a == b || first > (double)p->T ? -1 : (int64_t)first;
}

/* covered: [T + 1] zeroes, becomes how many more entries differ from a step on. */
static void count_head(const struct part *p, double *const evict[2], int64_t *covered,
                       struct part_stat *s)
{
    s->first = -1;
    for (int64_t i = 0; i < p->T; i++) {
        double a = evict[0][i], b = evict[1][i];
        int64_t from = part_step(p, i, a, b), to = (int64_t)fmin(fmax(a, b), (double)p->T);
        if (from < 0)
            continue;
        s->differ++;
        s->only[0] += isinf(b);
        s->only[1] += isinf(a);
        s->earlier[0] += a < b && !isinf(b);
        s->earlier[1] += b < a && !isinf(a);
        if (s->first < 0 || from < s->first)
            s->first = from;
        covered[from]++;
        covered[to]--;
    }
    for (int64_t t = 0, now = 0; t < p->T; t++) {
        now += covered[t];
        s->equal_steps += now == 0;
    }
}

static int compare_heads(struct part *p, struct kvf_diag *d)
{
    size_t T = (size_t)p->T;
    double *evict[2] = {MEM_NEW(double, T), MEM_NEW(double, T)};
    int64_t *covered = MEM_NEW(int64_t, T + 1);
    int err = KVF_E_NOMEM;
    if (!evict[0] || !evict[1] || !covered)
        goto done;
    for (int h = 0; h < p->heads.n; h++) {
        err = part_read(p, h, evict, d);
        if (err)
            goto done;
        for (int64_t t = 0; t <= p->T; t++)
            covered[t] = 0;
        count_head(p, evict, covered, &p->stat[h]);
        if (p->stat[h].first >= 0 && (p->first < 0 || p->stat[h].first < p->first))
            p->first = p->stat[h].first;
    }
    err = KVF_OK;

done:
    mem_free(evict[0]);
    mem_free(evict[1]);
    mem_free(covered);
    return err;
}

static int compare_tokens(struct part *p, struct kvf_diag *d)
{
    if (p->id[0] < 0 || p->id[1] < 0)
        return KVF_OK;
    for (int s = 0; s < 2; s++) {
        p->id_value[s] = MEM_NEW(double, (size_t)p->T);
        if (!p->id_value[s])
            return KVF_E_NOMEM;
        int err = kvf_read_f64(p->t[s], p->id[s], 0, 0, 0, (uint32_t)p->T, p->id_value[s], d);
        if (err)
            return err;
    }
    for (int64_t i = 0; i < p->T; i++) {
        if (p->id_value[0][i] == p->id_value[1][i])
            continue;
        p->tokens_differ++;
        if (p->token_first < 0)
            p->token_first = i;
    }
    return KVF_OK;
}

static int check_shape(struct part *p, bool common, struct kvf_diag *d)
{
    struct kvf_trace *a = p->t[0], *b = p->t[1];
    uint32_t T[2] = {kvf_n_steps(a), kvf_n_steps(b)};
    if (kvf_n_layers(a) != kvf_n_layers(b))
        return kvf_fail(d, KVF_E_ARG, "the runs cannot be compared: %d layers and %d layers",
                        kvf_n_layers(a), kvf_n_layers(b));
    for (int l = 0; l < kvf_n_layers(a); l++)
        if (kvf_n_heads(a, l, p->space) != kvf_n_heads(b, l, p->space))
            return kvf_fail(d, KVF_E_ARG,
                            "the runs cannot be compared: %d and %d %s heads in "
                            "layer %d",
                            kvf_n_heads(a, l, p->space), kvf_n_heads(b, l, p->space),
                            p->space == KVF_SPACE_KV ? "KV" : "query", l);
    if (T[0] != T[1] && !common)
        return kvf_fail(d, KVF_E_ARG,
                        "the runs cannot be compared: %u tokens and %u tokens; "
                        "--common compares the steps that both have",
                        T[0], T[1]);
    p->T = T[0] < T[1] ? T[0] : T[1];
    p->end = T[0] == T[1];
    return KVF_OK;
}

static int find_columns(struct part *p, struct kvf_diag *d)
{
    static const char *const names[PART_COLUMNS] = {"evict_step", "evict_reason", "evict_score",
                                                    "evict_margin"};
    const struct kvf_column *col[2];
    for (int s = 0; s < 2; s++) {
        int column;
        int err = column_need(p->t[s], names[PART_STEP], &column, d);
        if (err)
            return err;
        col[s] = kvf_column(p->t[s], column);
        if (col[s]->space == KVF_SPACE_RUN || col[s]->axis != KVF_AXIS_TOKEN)
            return kvf_fail(d, KVF_E_FORMAT,
                            "evict_step must hold a value for each head and "
                            "token");
        p->id[s] = kvf_find(p->t[s], "tokens.id");
        for (int c = 0; c < PART_COLUMNS; c++) {
            int k = kvf_find(p->t[s], names[c]);
            const struct kvf_column *x = kvf_column(p->t[s], k);
            bool fits = x && x->space == col[s]->space && x->axis == col[s]->axis;
            p->column[s][c] = fits ? k : -1;
        }
    }
    if (col[0]->space != col[1]->space)
        return kvf_fail(d, KVF_E_ARG,
                        "the runs cannot be compared: one evicts per KV head, the "
                        "other per query head");
    p->space = (enum kvf_space)col[0]->space;
    return KVF_OK;
}

int part_compare(struct kvf_trace *a, struct kvf_trace *b, const struct part_args *args,
                 struct part **ret_part, struct kvf_diag *d)
{
    struct part *p = MEM_NEW(struct part, 1);
    if (!p)
        return KVF_E_NOMEM;
    p->t[0] = a;
    p->t[1] = b;
    p->first = p->token_first = -1;
    int err = find_columns(p, d);
    if (err)
        goto fail;
    err = check_shape(p, args->common, d);
    if (err)
        goto fail;
    err = heads_select(a, p->space, args->heads, &p->heads, d);
    if (err)
        goto fail;
    p->stat = MEM_NEW(struct part_stat, (size_t)p->heads.n);
    if (!p->stat) {
        err = KVF_E_NOMEM;
        goto fail;
    }
    err = compare_tokens(p, d);
    if (err)
        goto fail;
    err = compare_heads(p, d);
    if (err)
        goto fail;
    *ret_part = p;
    return KVF_OK;

fail:
    part_free(p);
    return err;
}

void part_free(struct part *p)
{
    if (!p)
        return;
    heads_free(&p->heads);
    mem_free(p->stat);
    mem_free(p->id_value[0]);
    mem_free(p->id_value[1]);
    mem_free(p);
}
