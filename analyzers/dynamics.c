/* dynamics.c - principal components and vector autoregression of queries (dynamics.h). */
#include "analyzers/dynamics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/heads.h"
#include "analyzers/lapack.h"
#include "base/mem.h"
#include "base/rng.h"
#include "libtrace/run_header.h"

enum { BLOCK = 2048, MOST_DIM = 1024 };
static const double SPAN = 1e-12; /* of the largest variance: a smaller component is rounding */

static const char *stage(bool post)
{
    return post ? "post" : "pre";
}

/* Column of number j of the vectors of a head; -1: none. */
static int column_of(const struct kvf_trace *t, bool post, int layer, int head, int j)
{
    char name[KVF_NAME_MAX];
    snprintf(name, sizeof name, "query.%s.L%dH%d.d%02d", stage(post), layer, head, j);
    int c = kvf_find(t, name);
    return c >= 0 && kvf_column(t, c)->space == KVF_SPACE_RUN
                   && kvf_column(t, c)->axis == KVF_AXIS_STEP
               ? c
               : -1;
}

int dynamics_heads(struct kvf_trace *t, bool post, const struct analyzer_args *args,
                   struct head_list *ret, struct kvf_diag *d)
{
    int err = heads_select(t, KVF_SPACE_QUERY, args->heads, ret, d), n = 0;
    if (err)
        return err;
    for (int h = 0; h < ret->n; h++) {
        struct head at = ret->head[h];
        if (column_of(t, post, at.layer, at.index, 0) < 0)
            continue;
        ret->head[n] = at;
        ret->name[n] = ret->head[n].name;
        ret->layer[n] = at.layer;
        ret->index[n++] = at.index;
    }
    ret->n = n;
    if (n)
        return KVF_OK;
    heads_free(ret);
    return kvf_fail(d, KVF_E_NOTFOUND,
                    "%s has no vectors query.%s.LxHy.d00%s; record them with 'kvfate run "
                    "--watch-queries HEADS', or give kvfate import columns of these names",
                    kvf_path(t), stage(post), args->heads ? " of the heads chosen" : "");
}

/* How many tokens from the first on have the role of a prompt, or of the question after it. */
static int prompt_length(struct kvf_trace *t, int64_t *ret, struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(t);
    int column, err = column_need(t, "tokens.role", &column, d);
    double *role = err ? NULL : MEM_NEW(double, T);
    if (!err && !role)
        err = KVF_E_NOMEM;
    if (!err && T)
        err = kvf_read_f64(t, column, 0, 0, 0, T, role, d);
    *ret = 0;
    while (!err && *ret < T && (KVF_IN_PROMPT(role[*ret]) || role[*ret] == KVF_ROLE_QUESTION))
        ++*ret;
    mem_free(role);
    return err;
}

/* Whether two runs begin with the same n tokens. */
static int same_tokens(struct kvf_trace *a, struct kvf_trace *b, int64_t n, bool *ret,
                       struct kvf_diag *d)
{
    int ca, cb, err = column_need(a, "tokens.id", &ca, d);
    int32_t *x = MEM_NEW(int32_t, 2 * (size_t)n), *y = x + n;
    if (!err)
        err = column_need(b, "tokens.id", &cb, d);
    if (!err && !x)
        err = KVF_E_NOMEM;
    if (!err && n)
        err = kvf_read_i32(a, ca, 0, 0, 0, (uint32_t)n, x, d);
    if (!err && n)
        err = kvf_read_i32(b, cb, 0, 0, 0, (uint32_t)n, y, d);
    *ret = !err && memcmp(x, y, (size_t)n * sizeof *x) == 0;
    mem_free(x);
    return err;
}

/* The prompt of each run: a number in the order of their first runs. */
static int find_prompts(struct dynamics *x, const int64_t *length, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < x->n; i++) {
        bool same = false;
        int k = 0;
        for (; !err && !same && k < i; k++)
            if (length[k] == length[i])
                err = same_tokens(x->run[k].t, x->run[i].t, length[i], &same, d);
        x->run[i].prompt = same ? x->run[k - 1].prompt : x->n_prompts++;
    }
    return err;
}

/* Pieces by prompt, in each the runs as given. */
static void order_pieces(struct dynamics *x)
{
    int at = 0;
    for (int p = 0; p < x->n_prompts; p++) {
        x->begin[p] = at;
        for (int i = 0; i < x->n; i++)
            if (x->run[i].prompt == p)
                x->order[at++] = i;
    }
    x->begin[x->n_prompts] = at;
}

/* The steps of piece k that the options select. */
static int take_steps(struct dynamics *x, int k, const int64_t *length,
                      const struct analyzer_args *args, struct kvf_diag *d)
{
    struct rollout *r = &x->run[x->order[k]];
    int64_t a, b, prompt = length[x->order[k]];
    int err = tokens_select(r->t, args, &a, &b, d);
    if (err)
        return err;
    if (x->opt.steps == STEPS_ANSWER && a < prompt)
        a = prompt;
    if (x->opt.steps == STEPS_PROMPT && b > prompt)
        b = prompt;
    r->first = a;
    x->piece[k].n = b > a ? b - a : 0;
    x->steps += x->piece[k].n;
    return KVF_OK;
}

static void split(struct dynamics *x)
{
    for (int p = 0; p < x->n_prompts; p++) {
        int runs = x->begin[p + 1] - x->begin[p], train = (int)floor(x->opt.train * runs);
        for (int k = x->begin[p]; k < x->begin[p + 1]; k++) {
            struct var1_piece *q = &x->piece[k];
            q->train = (int64_t)floor(x->opt.train * (double)q->n);
            if (x->opt.split == SPLIT_ROLLOUTS)
                q->train = k - x->begin[p] < (train ? train : 1) ? q->n : 0;
            x->train_steps += q->train;
        }
    }
}

/* KVF_E_ARG with a sentence if trace i has the hash of another model than the first trace. */
static int check_model(struct kvf_trace *const *traces, int i, struct kvf_diag *d)
{
    struct json *x = NULL, *y = NULL;
    int err = run_header(traces[0], &x, d);
    if (!err)
        err = run_header(traces[i], &y, d);
    const char *p = json_str(json_get(json_get(x, "model"), "hash"), NULL);
    const char *q = json_str(json_get(json_get(y, "model"), "hash"), NULL);
    if (!err && p && q && strcmp(p, q) != 0)
        err = kvf_fail(d, KVF_E_ARG, "trace %d is of another model than the first", i + 1);
    json_free(x);
    json_free(y);
    return err;
}

static int allocate(struct dynamics *x)
{
    size_t n = (size_t)x->n;
    x->run = MEM_NEW(struct rollout, n);
    x->piece = MEM_NEW(struct var1_piece, n);
    x->order = MEM_NEW(int, n);
    x->begin = MEM_NEW(int, n + 1);
    bool whole = x->run && x->piece && x->order && x->begin;
    for (size_t i = 0; whole && i < n; i++) {
        x->run[i].column = MEM_NEW(int, MOST_DIM);
        whole = x->run[i].column != NULL;
    }
    return whole ? KVF_OK : KVF_E_NOMEM;
}

int dynamics_open(struct kvf_trace *const *traces, int n, const struct analyzer_args *args,
                  const struct dynamics_options *opt, struct dynamics *ret, struct kvf_diag *d)
{
    struct dynamics *x = ret;
    *x = (struct dynamics){.opt = *opt, .n = n};
    int64_t *length = MEM_NEW(int64_t, (size_t)n);
    int err = length ? allocate(x) : KVF_E_NOMEM;
    if (!err)
        err = lapack_open(d);
    for (int i = 0; !err && i < n; i++) {
        x->run[i].t = traces[i];
        err = check_model(traces, i, d);
        if (!err)
            err = prompt_length(traces[i], &length[i], d);
    }
    if (!err)
        err = find_prompts(x, length, d);
    if (!err)
        order_pieces(x);
    for (int k = 0; !err && k < n; k++)
        err = take_steps(x, k, length, args, d);
    mem_free(length);
    if (err)
        return err;
    split(x);
    x->x = MEM_NEW(double, (size_t)x->steps *(size_t)opt->components);
    return x->x ? KVF_OK : KVF_E_NOMEM;
}

void dynamics_close(struct dynamics *x)
{
    for (int i = 0; x->run && i < x->n; i++)
        mem_free(x->run[i].column);
    mem_free_all(x->run, x->piece, x->order, x->begin, x->x);
}

static int find_columns(struct dynamics *x, const struct head *head, struct kvf_diag *d)
{
    const char *when = stage(x->opt.post);
    for (x->dim = 0; x->dim < MOST_DIM; x->dim++)
        if (column_of(x->run[0].t, x->opt.post, head->layer, head->index, x->dim) < 0)
            break;
    for (int i = 0; i < x->n; i++) {
        for (int j = 0; j < x->dim; j++) {
            int c = column_of(x->run[i].t, x->opt.post, head->layer, head->index, j);
            if (c < 0)
                return kvf_fail(d, KVF_E_NOTFOUND,
                                "trace %d lacks query.%s.%s.d%02d; record it with 'kvfate run "
                                "--watch-queries %s@%s', or give kvfate import this column",
                                i + 1, when, head->name, j, head->name, when);
            x->run[i].column[j] = c;
        }
    }
    return KVF_OK;
}

/* A pass over vectors: visit(x, piece, step in it, vector). */
typedef void (*visit_fn)(struct dynamics *x, void *ctx, int k, int64_t step, const double *v);

static int each_vector(struct dynamics *x, bool train, visit_fn visit, void *ctx,
                       struct kvf_diag *d)
{
    size_t dim = (size_t)x->dim;
    double *block = MEM_NEW(double, (dim * BLOCK)), *v = MEM_NEW(double, dim);
    int err = block && v ? KVF_OK : KVF_E_NOMEM;
    for (int k = 0; !err && k < x->n; k++) {
        const struct rollout *r = &x->run[x->order[k]];
        int64_t end = train ? x->piece[k].train : x->piece[k].n;
        for (int64_t s = 0; !err && s < end; s += BLOCK) {
            int64_t m = end - s < BLOCK ? end - s : BLOCK;
            for (size_t j = 0; !err && j < dim; j++)
                err = kvf_read_f64(r->t, r->column[j], 0, 0, (uint32_t)(r->first + s), (uint32_t)m,
                                   block + j * BLOCK, d);
            for (int64_t i = 0; !err && i < m; i++) {
                for (size_t j = 0; j < dim; j++) {
                    v[j] = block[j * BLOCK + (size_t)i];
                    if (!isfinite(v[j]))
                        err = kvf_fail(d, KVF_E_FORMAT,
                                       "trace %d: a query vector of step %lld has a value that is "
                                       "not a number",
                                       x->order[k] + 1, (long long)(r->first + s + i));
                }
                visit(x, ctx, k, s + i, v);
            }
        }
    }
    mem_free_all(block, v);
    return err;
}

struct pca {
    double *mean, *cov, *value; /* [dim], [dim][dim] then the components as rows, [dim] */
    double *centred;            /* [dim] */
};

static void add_mean(struct dynamics *x, void *ctx, int k, int64_t step, const double *v)
{
    struct pca *p = ctx;
    (void)k, (void)step;
    for (int j = 0; j < x->dim; j++)
        p->mean[j] += v[j];
}

static void centre(const struct dynamics *x, struct pca *p, const double *v)
{
    for (int j = 0; j < x->dim; j++)
        p->centred[j] = v[j] - p->mean[j];
}

static void add_cov(struct dynamics *x, void *ctx, int k, int64_t step, const double *v)
{
    struct pca *p = ctx;
    size_t dim = (size_t)x->dim;
    (void)k, (void)step;
    centre(x, p, v);
    for (size_t i = 0; i < dim; i++)
        for (size_t j = 0; j <= i; j++)
            p->cov[i * dim + j] += p->centred[i] * p->centred[j];
}

static void project(struct dynamics *x, void *ctx, int k, int64_t step, const double *v)
{
    struct pca *p = ctx;
    centre(x, p, v);
    for (int c = 0; c < x->m; c++) {
        double s = 0;
        for (int j = 0; j < x->dim; j++)
            s += p->cov[c * x->dim + j] * p->centred[j];
        x->piece[k].x[step * x->m + c] = s;
    }
}

/* Components with a variance above rounding, at most as many as asked for. */
static int solve_pca(struct dynamics *x, struct pca *p)
{
    size_t dim = (size_t)x->dim;
    double total = 0;
    for (size_t i = 0; i < dim; i++) {
        total += p->cov[i * dim + i];
        for (size_t j = 0; j < i; j++)
            p->cov[j * dim + i] = p->cov[i * dim + j];
    }
    int err = lapack_symmetric(p->cov, x->dim, p->value);
    x->m = 0;
    while (!err && x->m < x->opt.components && x->m < x->dim && p->value[x->m] > 0
           && p->value[x->m] > SPAN * p->value[0]) {
        x->share[x->m] = p->value[x->m] / total;
        x->m++;
    }
    return err < 0 ? err : KVF_OK;
}

/* The pieces are consecutive, with one value for each component. */
static void place_pieces(struct dynamics *x)
{
    int64_t at = 0;
    for (int k = 0; k < x->n; k++) {
        x->piece[k].x = x->x + at * x->m;
        at += x->piece[k].n;
    }
}

int dynamics_head(struct dynamics *x, const struct head *head, struct kvf_diag *d)
{
    int err = find_columns(x, head, d);
    size_t dim = (size_t)x->dim;
    struct pca p = {MEM_NEW(double, dim), MEM_NEW(double, (dim * dim)), MEM_NEW(double, dim),
                    MEM_NEW(double, dim)};
    if (!err && (!p.mean || !p.cov || !p.value || !p.centred))
        err = KVF_E_NOMEM;
    if (!err)
        err = each_vector(x, true, add_mean, &p, d);
    for (size_t j = 0; !err && x->train_steps && j < dim; j++)
        p.mean[j] /= (double)x->train_steps;
    if (!err)
        err = each_vector(x, true, add_cov, &p, d);
    if (!err)
        err = solve_pca(x, &p);
    if (!err)
        place_pieces(x);
    if (!err && x->m)
        err = each_vector(x, false, project, &p, d);
    mem_free_all(p.mean, p.cov, p.value, p.centred);
    return err;
}

void dynamics_shuffle(struct dynamics *x)
{
    for (int k = 0; k < x->n; k++) {
        struct rng rng;
        double *v = x->piece[k].x;
        rng_init(&rng, rng_hash(x->opt.seed, (uint64_t)x->order[k], 0, 0));
        for (int64_t i = x->piece[k].n - 1; i > 0; i--) {
            int64_t j = (int64_t)rng_below(&rng, (uint64_t)i + 1);
            for (int c = 0; c < x->m; c++) {
                double t = v[i * x->m + c];
                v[i * x->m + c] = v[j * x->m + c];
                v[j * x->m + c] = t;
            }
        }
    }
}
