/* an_regret.c - attention mass that a method gave away at a step.  Of the weights that query t of a
 * query head puts on all entries, kept or evicted so far:
 *   kept_mass    share on the n entries that it still sees
 *   oracle_mass  share on the n largest
 *   regret       oracle_mass - kept_mass
 * Rows of a head `all` are means over the heads.  Means over steps begin with the first step at
 * which a head has lost attention: before it, kept_mass and oracle_mass are 1 because no entry was
 * evicted. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/frame.h"
#include "base/mem.h"
#include "base/stats.h"

enum { N_VALUES = 3 };

struct options {
    int64_t every; /* 0: not given */
    bool mean;
};

struct means {
    struct sum value[N_VALUES]; /* kept, oracle, regret */
    int64_t n;
};

struct plan {
    int64_t every, n; /* every how many steps; rows per head */
    bool mean;
    int64_t *loss; /* [heads] the first step with a loss, from f->a on; f->b - f->a: none */
    int64_t first; /* the least of them; 0 where no head has a loss */
    bool lossy;
    double *value[N_VALUES]; /* [(heads + 1) * n]; block `all` is the last */
    struct means *head;      /* [heads + 1] over all steps from the first on, shown or not */
    struct means *step;      /* [n] over the heads */
};

struct scratch { /* of one thread: [b - a] of the head at hand */
    double *kept, *oracle, *regret;
};

static void add(struct means *m, double kept, double oracle)
{
    sum_add(&m->value[0], kept);
    sum_add(&m->value[1], oracle);
    sum_add(&m->value[2], oracle - kept);
    m->n++;
}

static double mean_of(const struct means *m, int k)
{
    return m->n ? sum_get(&m->value[k]) / (double)m->n : NAN;
}

/* Rows of head h from its two columns of n steps, and its means. */
static void take_head(const struct plan *p, int h, int64_t n, double *kept, double *oracle,
                      double *regret)
{
    struct means *m = &p->head[h];
    for (int64_t k = 0; k < n; k++)
        regret[k] = oracle[k] - kept[k];
    for (int64_t r = 0; !p->mean && r < p->n; r++) {
        p->value[0][h * p->n + r] = kept[r * p->every];
        p->value[1][h * p->n + r] = oracle[r * p->every];
        p->value[2][h * p->n + r] = regret[r * p->every];
    }
    for (int64_t k = p->first; k < n; k++) { /* known: values that both columns have */
        bool known = !isnan(kept[k]) && !isnan(oracle[k]);
        kept[k] = known ? kept[k] : NAN;
        oracle[k] = known ? oracle[k] : NAN;
        regret[k] = known ? regret[k] : NAN;
    }
    m->n = sum_add_known(&m->value[0], kept + p->first, n - p->first);
    sum_add_known(&m->value[1], oracle + p->first, n - p->first);
    sum_add_known(&m->value[2], regret + p->first, n - p->first);
}

static void thread(struct frame *f, void *scratch)
{
    struct scratch *mine = scratch;
    size_t n = (size_t)(f->b - f->a);
    *mine = (struct scratch){FRAME_NEW(f, double, n), FRAME_NEW(f, double, n),
                             FRAME_NEW(f, double, n)};
}

/* Finds the first step at which a head has lost attention. */
static int find_loss(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    uint32_t a = (uint32_t)f->a, n = (uint32_t)(f->b - f->a);
    double *kept = ((struct scratch *)x->scratch)->kept;
    int64_t k = 0;
    int err = kvf_read_f64(x->t, f->column[0], x->head->layer, x->head->index, a, n, kept, d);
    while (!err && k < n && !(kept[k] < 1))
        k++;
    p->loss[x->h] = k;
    return err;
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    uint32_t a = (uint32_t)f->a, n = (uint32_t)(f->b - f->a);
    const struct scratch *mine = x->scratch;
    int l = x->head->layer, i = x->head->index;
    int err = kvf_read_f64(x->t, f->column[0], l, i, a, n, mine->kept, d);
    if (!err)
        err = kvf_read_f64(x->t, f->column[1], l, i, a, n, mine->oracle, d);
    if (!err)
        take_head(f->state, x->h, n, mine->kept, mine->oracle, mine->regret);
    return err;
}

/* Over the heads, in their order: at each step shown, and over all steps. */
static void add_heads(struct plan *p, int n_heads)
{
    for (int h = 0; h < n_heads; h++) {
        struct means *all = &p->head[n_heads];
        for (int k = 0; k < N_VALUES; k++)
            sum_merge(&all->value[k], &p->head[h].value[k]);
        all->n += p->head[h].n;
        for (int64_t r = 0; !p->mean && r < p->n; r++) {
            double kept = p->value[0][h * p->n + r], oracle = p->value[1][h * p->n + r];
            if (!isnan(kept) && !isnan(oracle))
                add(&p->step[r], kept, oracle);
        }
    }
}

static void take_means(struct plan *p, int n_heads)
{
    for (int k = 0; k < N_VALUES; k++) {
        for (int h = 0; p->mean && p->n && h <= n_heads; h++)
            p->value[k][h] = mean_of(&p->head[h], k);
        for (int64_t r = 0; !p->mean && r < p->n; r++)
            p->value[k][n_heads * p->n + r] = mean_of(&p->step[r], k);
    }
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    int64_t n = f->b - f->a;
    p->first = n;
    for (int h = 0; h < f->heads.n; h++)
        p->first = p->loss[h] < p->first ? p->loss[h] : p->first;
    p->lossy = p->first < n;
    p->first = p->lossy ? p->first : 0;
    int err = frame_pass(f, f->items, head, d);
    add_heads(p, f->heads.n);
    take_means(p, f->heads.n);
    return err;
}

static void put_summary(struct table *out, const struct head_list *heads, const struct plan *p)
{
    static const char *const keys[N_VALUES] = {"mean_kept_mass", "mean_oracle_mass", "mean_regret"};
    int worst = -1;
    for (int h = 0; h < heads->n; h++)
        if (p->head[h].n && (worst < 0 || mean_of(&p->head[h], 2) > mean_of(&p->head[worst], 2)))
            worst = h;
    for (int k = 0; k < N_VALUES && worst >= 0; k++)
        table_meta_num(out, keys[k], mean_of(&p->head[heads->n], k));
    if (worst >= 0) {
        table_meta_str(out, "worst_head", heads->name[worst]);
        table_meta_num(out, "worst_regret", mean_of(&p->head[worst], 2));
    }
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    (void)d;
    const struct plan *p = f->state;
    int err = put_heads_all(out, &f->heads);
    put_tokens(out, f->a, f->b, f->T);
    if (!p->mean)
        table_meta_num(out, "every", (double)p->every);
    if (p->lossy)
        table_meta_num(out, "first_loss", (double)(f->a + p->first));
    put_summary(out, &f->heads, p);
    table_affine(out, "step", "step", p->mean ? -1 : f->a, p->mean ? 0 : p->every, p->n);
    table_dense_real(out, "kept_mass", "", p->value[0]);
    table_dense_real(out, "oracle_mass", "", p->value[1]);
    table_dense_real(out, "regret", "", p->value[2]);
    return err;
}

static void of_length(void *asked, int64_t T)
{
    struct options *o = asked;
    if (!o->mean)
        o->every = steps_every(o->every, T);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    int64_t T = f->b - f->a;
    const struct options *o = f->options;
    if (o->every && o->mean)
        return kvf_fail(d, KVF_E_ARG,
                        "--every and --mean exclude each other: a mean is over all "
                        "steps");
    p->mean = o->mean;
    p->every = steps_every(o->every, T);
    p->n = p->mean ? T > 0 : T / p->every + (T % p->every != 0);
    return KVF_OK;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    (void)d;
    f->items = f->b > f->a;
    f->n_rows = (f->heads.n + 1) * p->n;
    p->loss = FRAME_NEW(f, int64_t, (size_t)f->heads.n);
    p->head = FRAME_NEW(f, struct means, (size_t)f->heads.n + 1);
    p->step = FRAME_NEW(f, struct means, (size_t)p->n);
    for (int k = 0; k < N_VALUES; k++)
        p->value[k] = FRAME_NEW(f, double, (size_t)f->n_rows);
    return KVF_OK;
}

static void describe(const struct table *t, struct buf *out)
{
    if (!table_meta(t, "mean_regret")) {
        buf_printf(out, "no step with evicted entries to compare with\n");
        return;
    }
    const char *first = table_meta(t, "first_loss");
    if (!first) {
        buf_str(out, "no query lost attention: regret 0\n");
        return;
    }
    buf_printf(out, "no head lost attention before step %s\n", first);
    buf_printf(out,
               "mean over heads and the steps from there: kept %.4f of the attention mass, the "
               "best entries "
               "of that number %.4f: regret %.4f\n",
               table_meta_real(t, "mean_kept_mass", NAN),
               table_meta_real(t, "mean_oracle_mass", NAN), table_meta_real(t, "mean_regret", NAN));
    buf_printf(out, "worst head %s: regret %.4f\n", table_meta(t, "worst_head"),
               table_meta_real(t, "worst_regret", NAN));
}

const struct analyzer an_regret = {
    .name = "regret",
    .summary = "attention mass lost compared with the best set of the same size",
    .example = "kvfate missed --as regret run.kvf -o regret.png",
    OPTIONS({OPT_INT, 0, "every", offsetof(struct options, every), "N", "every N-th step",
             .absent = "at most 512 steps", .min = 1, .max = KVF_MAX_STEPS},
            {OPT_FLAG, 0, "mean", offsetof(struct options, mean), NULL,
             "one row per head: its mean over the steps from the first loss on"}),
    COLUMNS({"shadow.kept_mass", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ALWAYS, NULL},
            {"shadow.oracle_mass", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ALWAYS, NULL}),
    HEADS(.space = KVF_SPACE_QUERY, FRAME_TYPES(struct plan, struct scratch), .choose = choose,
          .prepare = prepare, .thread = thread, .head = find_loss, .finish = finish, .rows = rows),
    .describe = describe,
    .of_length = of_length,
    POOL(KEYS("head", "layer", "index", "step"), {"regret"}, {"kept_mass"}, {"oracle_mass"}),
};
