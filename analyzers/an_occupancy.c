/* an_occupancy.c - entries that each head holds at the query of a step:
 * #{i <= t : t < evict_step_i}, in all and by the role or class of the token, of all tokens
 * or of a range. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/classes.h"
#include "analyzers/common.h"
#include "analyzers/heads_par.h"
#include "base/mem.h"

enum { OPT_EVERY, OPT_BY, OPT_CLASSES, MOST_STEPS = 512, MOST_GROUPS = CLASSES_MOST + 1 };
static const struct analyzer_option options[] = {
    {"every", "N", NULL, "every N-th step (default: at most 512 steps)"},
    {"by", "KIND", NULL, "role or class of the tokens (default: prompt and what comes after)"},
    CLASSES_OPTION,
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_occupancy;

enum by { BY_PART, BY_ROLE, BY_CLASS };

/* Group 0 is all tokens; every token is of one other, or of none (0). */
struct groups {
    struct classes *classes;
    uint8_t *of; /* [T] */
    int n;
    const char *name[MOST_GROUPS];
};

struct plan {
    int64_t T, a, b;  /* steps; tokens [a, b) */
    int64_t every, n; /* every how many steps; how many rows that makes */
    struct groups groups;
    int64_t *born; /* [groups][n] tokens up to step k * every */
    int column, threads;
};

/* Sums of x[t] over t <= k * every, for each k. */
static void sum_up(const struct plan *p, const int32_t *x, int64_t *out)
{
    int64_t sum = 0;
    for (int64_t k = 0, t = 0; k < p->n; k++) {
        for (; t <= k * p->every; t++)
            sum += x[t];
        out[k] = sum;
    }
}

/* Group 0 has all that the others have, and those of none. */
static void add_groups(const struct plan *p, int64_t *out)
{
    for (int c = 1; c < p->groups.n; c++)
        for (int64_t k = 0; k < p->n; k++)
            out[k] += out[c * p->n + k];
}

/* held[group][k]: entries at step k * every, from births and evictions. */
static void count(const struct plan *p, const uint32_t *evict, int32_t *gone, int64_t *held)
{
    int64_t T = p->T, stride = T + 1;
    memset(gone, 0, (size_t)(p->groups.n * stride) * sizeof *gone);
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t end = evict[i] < (uint32_t)T ? evict[i] : T;
        end = end < i ? i : end; /* of a damaged or foreign trace */
        gone[p->groups.of[i] * stride + end]++;
    }
    for (int c = 0; c < p->groups.n; c++)
        sum_up(p, gone + c * stride, held + c * p->n);
    add_groups(p, held);
    for (int64_t k = 0; k < p->groups.n * p->n; k++)
        held[k] = p->born[k] - held[k];
}

static void count_births(const struct plan *p, int32_t *born)
{
    int64_t stride = p->T + 1;
    memset(born, 0, (size_t)(p->groups.n * stride) * sizeof *born);
    for (int64_t i = p->a; i < p->b; i++)
        born[p->groups.of[i] * stride + i]++;
    for (int c = 0; c < p->groups.n; c++)
        sum_up(p, born + c * stride, p->born + c * p->n);
    add_groups(p, p->born);
}

static struct table *build(struct kvf_trace *t, const struct head_list *heads, const struct plan *p,
                           const int64_t *held)
{
    int64_t blocks = (int64_t)heads->n * p->groups.n;
    struct table *out = table_create("occupancy", blocks * p->n);
    const char **class = MEM_NEW(const char *, (size_t)blocks);
    if (out && class) {
        for (int64_t i = 0; i < blocks; i++)
            class[i] = p->groups.name[i % p->groups.n];
        put_provenance(out, t);
        table_meta_num(out, "every", (double)p->every);
        put_tokens(out, p->a, p->b, p->T);
        if (p->groups.classes)
            classes_note(p->groups.classes, out);
        table_affine(out, "step", "step", 0, p->every, p->n);
        put_heads(out, heads);
        table_block_str(out, "class", "", class, blocks);
        table_dense_int(out, "entries", "entries", held);
    } else {
        table_destroy(out);
        out = NULL;
    }
    mem_free((void *)class);
    return out;
}

/* ---- the groups */

static int group_roles(struct kvf_trace *t, int column, enum by by, struct plan *p,
                       struct kvf_diag *d)
{
    static const char *const names[] = {"all", "prompt", "answer", "think"};
    double *role = MEM_NEW(double, (size_t)p->T);
    int err = !role  ? KVF_E_NOMEM
              : p->T ? kvf_read_f64(t, column, 0, 0, 0, (uint32_t)p->T, role, d)
                     : KVF_OK;
    p->groups.n = by == BY_ROLE ? 4 : 3;
    memcpy(p->groups.name, names, sizeof names);
    for (int64_t i = 0; !err && i < p->T; i++) {
        int part = role[i] == KVF_ROLE_PROMPT ? 1 : 2;
        p->groups.of[i] = (uint8_t)(by == BY_ROLE && role[i] == KVF_ROLE_THINK ? 3 : part);
    }
    mem_free(role);
    return err;
}

/* A group for each class that a token of the range has, in the order of classes. */
static int group_classes(struct kvf_trace *t, const char *path, struct plan *p, struct kvf_diag *d)
{
    struct groups *g = &p->groups;
    uint8_t place[CLASSES_MOST] = {0};
    int err = classes_open(path, &g->classes, d);
    if (!err)
        err = classes_of_trace(g->classes, t, g->of, d);
    if (err)
        return err;
    for (int64_t i = p->a; i < p->b; i++)
        place[g->of[i]] = 1;
    g->name[0] = "all";
    g->n = 1;
    for (int c = 0; c < classes_count(g->classes); c++)
        if (place[c]) {
            g->name[g->n] = classes_name(g->classes, c);
            place[c] = (uint8_t)g->n++;
        }
    for (int64_t i = 0; i < p->T; i++)
        g->of[i] = place[g->of[i]];
    return KVF_OK;
}

static int choose_by(const struct analyzer_args *args, enum by *ret, struct kvf_diag *d)
{
    const char *text = option_text(&an_occupancy, args, OPT_BY);
    *ret = !text ? BY_PART : strcmp(text, "role") == 0 ? BY_ROLE : BY_CLASS;
    if (text && *ret == BY_CLASS && strcmp(text, "class") != 0)
        return kvf_fail(d, KVF_E_ARG, "--by is role or class, not '%s'", text);
    if (*ret != BY_CLASS && option_text(&an_occupancy, args, OPT_CLASSES))
        return kvf_fail(d, KVF_E_ARG, "--classes are of use with --by class");
    return KVF_OK;
}

static int choose_every(const struct analyzer_args *args, int64_t T, int64_t *ret,
                        struct kvf_diag *d)
{
    const char *text = option_text(&an_occupancy, args, OPT_EVERY);
    char *end = NULL;
    *ret = text ? strtoll(text, &end, 10) : (T + MOST_STEPS - 1) / MOST_STEPS;
    if (text && (*ret < 1 || *end))
        return kvf_fail(d, KVF_E_ARG, "--every needs a whole number of steps, not '%s'", text);
    if (*ret < 1)
        *ret = 1;
    return KVF_OK;
}

struct work {
    const struct plan *p;
    const struct head_list *heads;
    uint32_t *scratch; /* [threads][T] */
    int32_t *gone;     /* [threads][groups][T + 1] */
    int64_t *held;     /* [heads][groups][n] */
};

static int do_head(void *ctx, struct kvf_trace *t, int item, int h, int thread, struct kvf_diag *d)
{
    const struct work *w = ctx;
    const struct plan *p = w->p;
    const uint32_t *evict;
    (void)item;
    int err = view_evict(t, p->column, &w->heads->head[h], (uint32_t)p->T,
                         w->scratch + thread * p->T, &evict, d);
    if (!err)
        count(p, evict, w->gone + thread * p->groups.n * (p->T + 1),
              w->held + h * p->groups.n * p->n);
    return err;
}

static int alloc_work(struct work *w, struct plan *p, int threads)
{
    size_t T = (size_t)p->T, n = (size_t)threads, G = (size_t)p->groups.n;
    p->born = mem_alloc(G, (size_t)p->n * sizeof *p->born);
    w->scratch = mem_alloc(n, T * sizeof *w->scratch);
    w->gone = mem_alloc(n * G, (T + 1) * sizeof *w->gone);
    w->held = mem_alloc((size_t)w->heads->n * G, (size_t)p->n * sizeof *w->held);
    return p->born && w->scratch && w->gone && w->held ? KVF_OK : KVF_E_NOMEM;
}

static int measure(struct kvf_trace *t, const struct head_list *heads, struct plan *p,
                   struct table **ret, struct kvf_diag *d)
{
    struct heads_par *par = NULL;
    struct work w = {.p = p, .heads = heads};
    int err = heads_par_create(t, p->threads, p->T * heads->n, &par);
    if (!err)
        err = alloc_work(&w, p, heads_par_threads(par));
    if (!err && p->T) {
        count_births(p, w.gone);
        err = heads_par_run(par, heads, 1, do_head, &w, d);
    }
    struct table *out = err ? NULL : build(t, heads, p, w.held);
    if (!err)
        err = out ? table_err(out) : KVF_E_NOMEM;
    heads_par_destroy(par);
    mem_free(p->born);
    mem_free(w.scratch);
    mem_free(w.gone);
    mem_free(w.held);
    if (err)
        table_destroy(out);
    else
        *ret = out;
    return err;
}

static int prepare(struct kvf_trace *t, const struct analyzer_args *args, struct plan *p,
                   enum by *by, int *column, struct kvf_diag *d)
{
    int err = choose_every(args, p->T, &p->every, d);
    if (!err)
        err = choose_by(args, by, d);
    if (!err)
        err = tokens_select(t, args, &p->a, &p->b, d);
    if (!err)
        err = column_need(t, "evict_step", "evict", &column[0], d);
    if (!err)
        err = column_need(t, "tokens.role", "lean", &column[1], d);
    return err;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    struct head_list heads;
    struct plan p = {.T = kvf_n_steps(t), .threads = args->threads};
    struct table *out = NULL;
    enum by by;
    int column[2];
    (void)n_traces;
    int err = prepare(t, args, &p, &by, column, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_KV, args->heads, &heads, d);
    if (err)
        return err;
    p.n = (p.T + p.every - 1) / p.every;
    p.column = column[0];
    p.groups.of = MEM_NEW(uint8_t, (size_t)p.T);
    if (!p.groups.of)
        err = KVF_E_NOMEM;
    else if (by == BY_CLASS)
        err = group_classes(t, option_text(&an_occupancy, args, OPT_CLASSES), &p, d);
    else
        err = group_roles(t, column[1], by, &p, d);
    if (!err)
        err = measure(t, &heads, &p, &out, d);
    mem_free(p.groups.of);
    classes_close(p.groups.classes);
    heads_free(&heads);
    if (!err)
        *ret_table = out;
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    int cls = table_find(t, "class"), col = table_find(t, "entries");
    double peak = 0, last = 0;
    int64_t every = (int64_t)table_meta_real(t, "every", 1),
            T = (int64_t)table_meta_real(t, "T", 0);
    int64_t n = (T + every - 1) / every, heads = 0;
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (strcmp(table_str(t, cls, r), "all") != 0)
            continue;
        double v = table_real(t, col, r);
        peak = fmax(peak, v);
        if (r % n == n - 1) {
            last += v;
            heads++;
        }
    }
    buf_printf(out,
               "largest head: %.0f entries at its peak; at the last step shown a head holds %.1f "
               "on average, of %lld tokens\n",
               peak, heads ? last / (double)heads : 0.0, (long long)T);
}

static const char *const keys[] = {"step", "head", "layer", "index", "class", NULL};
static const struct analyzer_measure measures[] = {
    {"entries", NULL, NULL},
    {NULL, NULL, NULL},
};
static const struct analyzer_pool pool = {keys, measures};

const struct analyzer an_occupancy = {
    .name = "occupancy",
    .summary = "entries held by each head over time",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};
