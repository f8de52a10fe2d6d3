/* an_occupancy.c - entries that each head holds at the query of a step:
 * #{i <= t : t < evict_step_i}, in all and by the role of the token, of all tokens
 * or of a range. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "analyzers/pools.h"
#include "base/mem.h"

enum { OPT_EVERY, N_CLASSES = 3, MOST_STEPS = 512 };
static const struct analyzer_option options[] = {
    {"every", "N", NULL, "every N-th step (default: at most 512 steps)"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_occupancy;
static const char *const class_names[N_CLASSES] = {"all", "prompt", "answer"};

struct plan {
    int64_t T, a, b; /* steps; tokens [a, b) */
    int64_t every, n; /* every how many steps; how many rows that makes */
};

/* held[class][k]: entries at step k * every, from births and evictions. */
static void count(const struct plan *p, const double *evict, const double *role, int64_t *diff,
                  double *held)
{
    int64_t T = p->T;
    for (int c = 0; c < N_CLASSES; c++) {
        int64_t now = 0;
        memset(diff, 0, (size_t)(T + 1) * sizeof *diff);
        for (int64_t i = p->a; i < p->b; i++) {
            bool in = c == 0 || (c == 1) == (role[i] == KVF_ROLE_PROMPT);
            int64_t end = evict[i] < (double)T ? (int64_t)evict[i] : T;
            diff[i] += in;
            diff[end] -= in;
        }
        for (int64_t t = 0; t < T; t++) {
            now += diff[t];
            if (t % p->every == 0)
                held[c * p->n + t / p->every] = (double)now;
        }
    }
}

static struct table *build(struct kvf_trace *t, const struct head_list *heads, const struct plan *p,
                           const double *held)
{
    int64_t rows = heads->n * N_CLASSES * p->n;
    struct table *out = table_create("occupancy", rows);
    int64_t *entries = MEM_NEW(int64_t, (size_t)rows);
    const char **class = MEM_NEW(const char *, (size_t)heads->n * N_CLASSES);
    if (out && entries && class) {
        for (int64_t i = 0; i < rows; i++)
            entries[i] = (int64_t)held[i];
        for (int64_t i = 0; i < heads->n * N_CLASSES; i++)
            class[i] = class_names[i % N_CLASSES];
        put_provenance(out, t);
        table_meta_num(out, "every", (double)p->every);
        put_tokens(out, p->a, p->b, p->T);
        table_affine(out, "step", "step", 0, p->every, p->n);
        put_heads(out, heads);
        table_block_str(out, "class", "", class, heads->n * N_CLASSES);
        table_dense_int(out, "entries", "entries", entries);
    } else {
        table_destroy(out);
        out = NULL;
    }
    mem_free(entries);
    mem_free((void *)class);
    return out;
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

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    struct head_list heads;
    int64_t T = kvf_n_steps(t);
    struct plan p = {.T = T};
    int evict, role;
    (void)n_traces;
    int err = choose_every(args, T, &p.every, d);
    if (!err)
        err = tokens_select(t, args, &p.a, &p.b, d);
    if (!err)
        err = column_need(t, "evict_step", "evict", &evict, d);
    if (!err)
        err = column_need(t, "tokens.role", "lean", &role, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_KV, args->heads, &heads, d);
    if (err)
        return err;
    p.n = (T + p.every - 1) / p.every;
    double *step = MEM_NEW(double, (size_t)T), *roles = MEM_NEW(double, (size_t)T);
    double *held = MEM_NEW(double, (size_t)(heads.n * N_CLASSES * p.n));
    int64_t *diff = MEM_NEW(int64_t, (size_t)T + 1);
    if (!step || !roles || !held || !diff)
        err = KVF_E_NOMEM;
    if (!err && T)
        err = kvf_read_f64(t, role, 0, 0, 0, (uint32_t)T, roles, d);
    for (int h = 0; !err && T && h < heads.n; h++) {
        err = read_evict(t, evict, &heads.head[h], (uint32_t)T, step, d);
        if (!err)
            count(&p, step, roles, diff, held + h * N_CLASSES * p.n);
    }
    struct table *out = err ? NULL : build(t, &heads, &p, held);
    if (!err)
        err = out ? table_err(out) : KVF_E_NOMEM;
    mem_free(step);
    mem_free(roles);
    mem_free(held);
    mem_free(diff);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
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

const struct analyzer an_occupancy = {
    .name = "occupancy",
    .summary = "entries held by each head over time",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool_occupancy,
};
