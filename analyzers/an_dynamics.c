/* an_dynamics.c - whether the queries of a head follow a stable process (DBTrimKV, Assumption A.1
 * and Figure 8).  For each head the vectors of several runs are reduced to their principal
 * components r_t; per prompt r_(t+1) = A r_t + b + e is fitted. */
#include <math.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/dynamics.h"
#include "base/mem.h"
#include "base/room.h"
#include "base/stats.h"

static const char *const step_words[] = {"answer", "prompt", "all", NULL};
static const char *const split_words[] = {"time", "rollouts", NULL};
enum { ROPE_AUTO, ROPE_PRE, ROPE_POST };
static const char *const rope_words[] = {"auto", "pre", "post", NULL};
struct options {
    int64_t components, seed;
    int steps, split, rope;
    double train;
};

enum { MOST_RUNS = 256, N_TAIL = 25 }; /* |w| > 0, 0.25, ..., 6 */
static const double TAIL_STEP = 0.25;

/* Integer columns; -1: not defined for the row. */
enum { LAYER, HEAD_INDEX, PROMPT, ROLLOUT, SURROGATE, INDEX, COUNT, N, N_WHOLE };
static const char *const whole_names[N_WHOLE] = {"layer",     "head_index", "prompt", "rollout",
                                                 "surrogate", "index",      "count",  "n"};

struct row {
    const char *head, *quantity;
    int64_t whole[N_WHOLE];
    double x, value; /* NaN: the row has no x */
};

struct data {
    struct head_list heads;
    struct row *row;
    int64_t rows;
    size_t room;
    int head;      /* that rows are of */
    int surrogate; /* 1: of shuffled vectors */
    int64_t undefined;
    int err;
};

/* How large whitened innovations are. */
struct tail {
    int64_t n, over[N_TAIL];
    struct sum square, fourth;
};

static struct row *put(struct data *x, const char *quantity, int64_t index, double value)
{
    static struct row unused;
    if (!x->err && !mem_room(&x->row, (size_t)x->rows, &x->room, 1024, sizeof *x->row))
        x->err = KVF_E_NOMEM;
    if (x->err)
        return &unused;
    int h = x->head;
    x->row[x->rows] = (struct row){
        x->heads.name[h],
        quantity,
        {x->heads.layer[h], x->heads.index[h], -1, -1, x->surrogate, index, -1, -1},
        NAN,
        value};
    x->undefined += isnan(value);
    return &x->row[x->rows++];
}

static void put_of(struct data *x, int prompt, const char *quantity, int64_t index, double value,
                   int64_t n)
{
    struct row *r = put(x, quantity, index, value);
    r->whole[PROMPT] = prompt;
    r->whole[N] = n;
}

/* The results of the fit of one prompt. */
static void put_fit(struct data *x, int prompt, const struct var1 *v)
{
    for (int k = 0; k < v->m; k++) {
        put_of(x, prompt, "eigenvalue.real", k, v->real[k], -1);
        put_of(x, prompt, "eigenvalue.imaginary", k, v->imaginary[k], -1);
        put_of(x, prompt, "eigenvalue.modulus", k, hypot(v->real[k], v->imaginary[k]), -1);
    }
    put_of(x, prompt, "spectral_radius", 0, v->radius, -1);
    put_of(x, prompt, "r2.train", 0, v->r2_train, v->n_train);
    put_of(x, prompt, "r2.test", 0, v->r2_test, v->n_test);
    for (int k = 0; k < v->m && !x->surrogate; k++) {
        put_of(x, prompt, "mean", k, v->mean[k], -1);
        put_of(x, prompt, "sigma", k, v->sigma[k], -1);
    }
}

/* 1, 2, 3, 4, 6, 8, 12, ... */
static int64_t next_point(int64_t n)
{
    if (n < 2)
        return n + 1;
    return (n & (n - 1)) == 0 ? n + n / 2 : n / 3 * 4;
}

/* The mean of the first component over the first n steps: of each run, and of the runs that
 * have so many. */
static int put_running_means(struct data *x, const struct dynamics *dy, int prompt)
{
    int first = dy->begin[prompt], runs = dy->begin[prompt + 1] - first;
    struct sum *sum = MEM_NEW(struct sum, (size_t)runs);
    int64_t at = 0, most = 0;
    if (!sum)
        return KVF_E_NOMEM;
    for (int k = 0; k < runs; k++)
        most = dy->piece[first + k].n > most ? dy->piece[first + k].n : most;
    for (int64_t n = 1; n <= most; n = next_point(n)) {
        struct sum all = {0};
        int there = 0;
        for (int k = 0; k < runs; k++) {
            const struct var1_piece *p = &dy->piece[first + k];
            if (p->n < n)
                continue;
            for (int64_t s = at; s < n; s++)
                sum_add(&sum[k], p->x[s * dy->m]);
            struct row *r = put(x, "running_mean", 0, sum_get(&sum[k]) / (double)n);
            r->whole[PROMPT] = prompt;
            r->whole[ROLLOUT] = dy->order[first + k];
            r->x = (double)n;
            sum_add(&all, sum_get(&sum[k]) / (double)n);
            there++;
        }
        struct row *r = put(x, "running_mean", 0, sum_get(&all) / there);
        r->whole[PROMPT] = prompt;
        r->whole[N] = there;
        r->x = (double)n;
        at = n;
    }
    mem_free(sum);
    return KVF_OK;
}

static void add_innovation(void *ctx, double w)
{
    struct tail *t = ctx;
    t->n++;
    sum_add(&t->square, w * w);
    sum_add(&t->fourth, w * w * w * w);
    for (int k = 0; k < N_TAIL && fabs(w) > TAIL_STEP * k; k++)
        t->over[k]++;
}

static void put_tail(struct data *x, const char *quantity, const char *kurtosis,
                     const struct tail *t)
{
    double square = sum_get(&t->square);
    for (int k = 0; k < N_TAIL; k++) {
        struct row *r = put(x, quantity, k, t->n ? (double)t->over[k] / (double)t->n : NAN);
        r->x = TAIL_STEP * k;
        r->whole[COUNT] = t->over[k];
        r->whole[N] = t->n;
    }
    put(x, kurtosis, 0, square > 0 ? (double)t->n * sum_get(&t->fourth) / (square * square) : NAN)
        ->whole[N] = t->n;
}

/* Laws of variance 1 to compare with: P(|Z| > x), and of density e^(-sqrt 2 |x|) / sqrt 2. */
static void put_references(struct data *x)
{
    for (int k = 0; k < N_TAIL; k++)
        put(x, "tail.gaussian", k, erfc(TAIL_STEP * k / sqrt(2)))->x = TAIL_STEP * k;
    for (int k = 0; k < N_TAIL; k++)
        put(x, "tail.exponential", k, exp(-sqrt(2) * TAIL_STEP * k))->x = TAIL_STEP * k;
}

static void put_median(struct data *x, const char *quantity, double *v, int n)
{
    put_of(x, -1, quantity, 0, n ? stats_quantile(v, (size_t)n, .5) : NAN, n);
}

/* The fits of all prompts of a head, and their joint results. */
static int take_fits(struct data *x, const struct dynamics *dy)
{
    struct tail train = {0}, test = {0};
    size_t n = (size_t)dy->n_prompts;
    double *radius = MEM_NEW(double, n), *r2 = MEM_NEW(double, n);
    int n_radius = 0, n_r2 = 0, stable = 0, err = radius && r2 ? KVF_OK : KVF_E_NOMEM;
    for (int p = 0; !err && p < dy->n_prompts; p++) {
        const struct var1_piece *piece = &dy->piece[dy->begin[p]];
        int n_pieces = dy->begin[p + 1] - dy->begin[p];
        struct var1 v;
        err = var1_fit(piece, n_pieces, dy->m, &v);
        if (err)
            break;
        put_fit(x, p, &v);
        var1_innovations(piece, n_pieces, &v, false, add_innovation, &train);
        var1_innovations(piece, n_pieces, &v, true, add_innovation, &test);
        stable += v.radius < 1;
        if (!isnan(v.radius))
            radius[n_radius++] = v.radius;
        if (!isnan(v.r2_test))
            r2[n_r2++] = v.r2_test;
        if (!x->surrogate)
            err = put_running_means(x, dy, p);
    }
    if (!err) {
        struct row *r = put(x, "stable", 0, n_radius ? (double)stable / n_radius : NAN);
        r->whole[COUNT] = stable;
        r->whole[N] = n_radius;
        put_median(x, "spectral_radius", radius, n_radius);
        put_median(x, "r2.test", r2, n_r2);
        put_tail(x, "tail.train", "kurtosis.train", &train);
        put_tail(x, "tail.test", "kurtosis.test", &test);
    }
    mem_free_all(radius, r2);
    return err ? err : x->err;
}

static int take_head(struct data *x, struct dynamics *dy, int h, struct kvf_diag *d)
{
    int err = dynamics_head(dy, &x->heads.head[h], d);
    x->head = h;
    x->surrogate = 0;
    if (err)
        return err;
    put_of(x, -1, "components", 0, dy->m, dy->train_steps);
    for (int k = 0; k < dy->m; k++)
        put_of(x, -1, "explained", k, dy->share[k], dy->train_steps);
    put_references(x);
    err = dy->m ? take_fits(x, dy) : x->err;
    if (err || !dy->m)
        return err;
    x->surrogate = 1;
    dynamics_shuffle(dy);
    return take_fits(x, dy);
}

/* ---- the table */

static void put_whole(struct table *t, const struct data *x, int from, int to, int64_t *v)
{
    for (int c = from; c <= to; c++) {
        for (int64_t r = 0; r < x->rows; r++)
            v[r] = x->row[r].whole[c];
        table_dense_int(t, whole_names[c], "", v);
    }
}

static int put_columns(const struct data *x, struct table *t)
{
    size_t n = (size_t)x->rows;
    int64_t *v = MEM_NEW(int64_t, n);
    const char **text = MEM_NEW(const char *, n);
    double *real = MEM_NEW(double, n);
    int err = v && text && real ? KVF_OK : KVF_E_NOMEM;
    for (size_t r = 0; !err && r < n; r++)
        text[r] = x->row[r].head;
    if (!err) {
        table_dense_str(t, "head", "", text);
        put_whole(t, x, LAYER, SURROGATE, v);
        for (size_t r = 0; r < n; r++)
            text[r] = x->row[r].quantity;
        table_dense_str(t, "quantity", "", text);
        put_whole(t, x, INDEX, INDEX, v);
        for (size_t r = 0; r < n; r++)
            real[r] = x->row[r].x;
        table_dense_real(t, "x", "", real);
        for (size_t r = 0; r < n; r++)
            real[r] = x->row[r].value;
        table_dense_real(t, "value", "", real);
        put_whole(t, x, COUNT, N, v);
    }
    mem_free_all(v, (void *)text, real);
    return err;
}

static int build(const struct data *x, const struct dynamics *dy, const char *steps,
                 struct table *t, struct kvf_diag *d)
{
    int err = put_provenance(t, dy->run[0].t, d);
    if (!err)
        err = put_sampled(t, dy->run[0].t, "queries", d);
    if (err)
        return err;
    table_meta_num(t, "runs", dy->n);
    table_meta_num(t, "prompts", dy->n_prompts);
    table_meta_str(t, "rope", dy->opt.post ? "post" : "pre");
    table_meta_str(t, "steps", steps);
    table_meta_num(t, "vectors", (double)dy->steps);
    table_meta_num(t, "vectors_train", (double)dy->train_steps);
    table_meta_str(t, "split", dy->opt.split == SPLIT_TIME ? "time" : "rollouts");
    table_meta_num(t, "train", dy->opt.train);
    table_meta_num(t, "components", dy->opt.components);
    table_meta_num(t, "seed", (double)dy->opt.seed);
    table_meta_num(t, "undefined", (double)x->undefined);
    err = put_columns(x, t);
    return err ? err : table_err(t);
}

/* ---- options */

static int choose_rope(struct kvf_trace *t, const struct analyzer_args *args,
                       struct dynamics_options *o, struct head_list *heads, struct kvf_diag *d)
{
    int rope = ((const struct options *)args->options)->rope;
    o->post = rope == ROPE_POST;
    int err = dynamics_heads(t, o->post, args, heads, d);
    if (rope != ROPE_AUTO || err != KVF_E_NOTFOUND)
        return err;
    o->post = true;
    err = dynamics_heads(t, true, args, heads, NULL);
    return err == KVF_E_NOTFOUND ? dynamics_heads(t, false, args, heads, d) : err;
}

static int parse(const struct analyzer_args *args, struct dynamics_options *ret, struct kvf_diag *d)
{
    const struct options *o = args->options;
    if (!(o->train > 0) || !(o->train < 1))
        return kvf_fail(d, KVF_E_ARG, "--train needs a part between 0 and 1, not %g", o->train);
    *ret = (struct dynamics_options){.steps = (enum dynamics_steps)o->steps,
                                     .split = (enum dynamics_split)o->split,
                                     .train = o->train,
                                     .components = (int)o->components,
                                     .seed = (uint64_t)o->seed};
    return KVF_OK;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct data x = {0};
    struct dynamics dy = {0};
    struct dynamics_options o;
    struct table *out = NULL;
    int err = parse(args, &o, d);
    if (!err)
        err = choose_rope(traces[0], args, &o, &x.heads, d);
    if (!err)
        err = dynamics_open(traces, n_traces, args, &o, &dy, d);
    for (int h = 0; !err && h < x.heads.n; h++) {
        err = take_head(&x, &dy, h, d);
        analyzer_tell(args, h + 1, x.heads.n);
    }
    if (err)
        goto done;
    out = table_create("dynamics", x.rows);
    err = out ? build(&x, &dy, step_words[o.steps], out, d) : KVF_E_NOMEM;

done:
    dynamics_close(&dy);
    heads_free(&x.heads);
    mem_free(x.row);
    return table_deliver(out, err, ret_table);
}

/* ---- for people */

/* The value of a head's quantity over all prompts. */
static double find(const struct table *t, int64_t first, int64_t end, const char *quantity,
                   int64_t surrogate, int64_t index)
{
    int name = table_find(t, "quantity"), prompt = table_find(t, "prompt");
    int which = table_find(t, "surrogate"), k = table_find(t, "index");
    for (int64_t r = first; r < end; r++)
        if (table_int(t, prompt, r) < 0 && table_int(t, which, r) == surrogate
            && table_int(t, k, r) == index && strcmp(table_str(t, name, r), quantity) == 0)
            return table_row_real(t, r, "value");
    return NAN;
}

static void describe_head(const struct table *t, int64_t first, int64_t end, struct buf *out)
{
    double explained = 0, m = find(t, first, end, "components", 0, 0);
    for (int k = 0; k < (int)m; k++)
        explained += find(t, first, end, "explained", 0, k);
    buf_printf(out, "%s: %.0f components explain %.1f %% of the variance\n",
               table_row_str(t, first, "head"), m, m > 0 ? 100 * explained : 0);
    if (m > 0) {
        buf_printf(out, "  stable prompts %.1f %%, median spectral radius %.3f (shuffled %.3f)\n",
                   100 * find(t, first, end, "stable", 0, 0),
                   find(t, first, end, "spectral_radius", 0, 0),
                   find(t, first, end, "spectral_radius", 1, 0));
        buf_printf(out, "  median test R2 %.3f (shuffled %.3f)\n",
                   find(t, first, end, "r2.test", 0, 0), find(t, first, end, "r2.test", 1, 0));
        buf_printf(out,
                   "  innovations: kurtosis %.2f, test set %.2f (Gaussian 3, exponential 6); P(|w| "
                   "> 3) = %.2g (Gaussian %.2g, exponential %.2g)\n",
                   find(t, first, end, "kurtosis.train", 0, 0),
                   find(t, first, end, "kurtosis.test", 0, 0),
                   find(t, first, end, "tail.train", 0, 12), erfc(3 / sqrt(2)), exp(-3 * sqrt(2)));
    }
}

static void describe(const struct table *t, struct buf *out)
{
    int head = table_find(t, "head");
    int64_t rows = table_rows(t);
    buf_printf(out, "queries of %s runs of %s prompts, %s RoPE, %s: %s vectors, %s for training\n",
               table_meta(t, "runs"), table_meta(t, "prompts"),
               strcmp(table_meta(t, "rope"), "post") == 0 ? "after" : "before",
               table_meta(t, "steps"), table_meta(t, "vectors"), table_meta(t, "vectors_train"));
    for (int64_t r = 0, end; r < rows; r = end) {
        for (end = r; end < rows && strcmp(table_str(t, head, end), table_str(t, head, r)) == 0;)
            end++;
        describe_head(t, r, end, out);
    }
    if (table_meta_real(t, "undefined", 0) > 0)
        buf_printf(out, "%s values are undefined: too few steps, or no test steps\n",
                   table_meta(t, "undefined"));
}

const struct analyzer an_dynamics = {
    .name = "dynamics",
    .summary = "test whether the queries of a head are a stationary process",
    .example = "kvfate attention --as dynamics a.kvf b.kvf -o dynamics.tsv",
    OPTIONS({OPT_INT, 0, "components", offsetof(struct options, components), "M",
             "principal components", "8", .min = 1, .max = VAR1_MOST},
            {OPT_WORD, 0, "steps", offsetof(struct options, steps), "WHICH", "queries of this part",
             "answer", .words = step_words},
            {OPT_WORD, 0, "split", offsetof(struct options, split), "BY",
             "test set: the end of every run (time), or complete rollouts", "time",
             .words = split_words},
            {OPT_REAL, 0, "train", offsetof(struct options, train), "F",
             "part that is for training", "0.75"},
            {OPT_WORD, 0, "rope", offsetof(struct options, rope), "STAGE",
             "vectors before or after RoPE; auto: as recorded, pre first", "auto",
             .words = rope_words},
            {OPT_INT, 0, "seed", offsetof(struct options, seed), "S", "of the shuffled surrogate",
             "0", .max = 9e15}),
    COLUMNS({"query.*", KVF_SPACE_RUN, KVF_AXIS_STEP, COLUMN_ALWAYS, NULL},
            {"tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_ASKED, "of two runs or more"},
            {"tokens.id", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_ASKED, "of two runs or more"}),
    .max_traces = MOST_RUNS,
    .run = run,
    .describe = describe,
};
