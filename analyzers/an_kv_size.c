/* an_kv_size.c - how large the cache of each head is: at the end, when the prompt is done, in
 * the mean over steps, and at its peak; against the length of the text. */
#include <math.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/common.h"
#include "analyzers/heads_par.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"

enum { OPT_WINDOW };
static const struct analyzer_option options[] = {
    {"window", "W", "in", "in, out (less the method's local window), or less the N newest"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_kv_size;

enum { AT_END, AT_PREFILL, AT_MEAN, AT_ANSWER, AT_PEAK, N_MOMENTS };
static const char *const moment_names[N_MOMENTS] = {"end", "prefill", "mean", "answer", "peak"};

struct size {
    int64_t step, steps, entries, length, capacity;
};

struct data {
    struct kvf_trace *t;
    struct head_list heads;
    int evict, role;
    int64_t T, P, a, b; /* steps; those of the prompt; tokens [a, b) */
    int64_t window;     /* entries of smaller age do not count */
    int64_t *held;      /* [T] of all heads */
    struct size *size;  /* [heads + 1][N_MOMENTS] */
    /* the same for all heads */
    int32_t *first;               /* [T + 1] entries that step t is the first to see */
    int64_t born_all, born_later; /* sums of the tokens born by each query, and by those after P */
    int threads;
};

struct work {          /* of one thread */
    uint32_t *scratch; /* [T] */
    int32_t *gone;     /* [T + 1] entries that step t is the first not to see */
    int64_t *now;      /* [T] held of the head at hand */
    int64_t *held;     /* [T] of all heads that it had */
};

struct crew {
    struct data *x;
    struct work *work;
    int n;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tokens of [a, b) among the first n. */
static int64_t born(const struct data *x, int64_t n)
{
    return larger(0, smaller(n, x->b) - x->a);
}

/* Entries of the first n tokens that the query n, or nobody any more if there is none, would
 * still see. */
static int64_t left_after(const struct data *x, const uint32_t *step, int64_t n)
{
    int64_t k = 0, end = smaller(x->b, n - larger(x->window, 1) + 1);
    for (int64_t i = x->a; i < end; i++)
        k += step[i] > (uint32_t)n;
    return k;
}

/* Sum over the queries t of [from, T) of the tokens born by then. */
static int64_t born_sum(const struct data *x, int64_t from)
{
    int64_t n = 0;
    for (int64_t i = x->a; i < x->b; i++)
        n += x->T - larger(from, i);
    return n;
}

/* Sum over the queries t of [from, T) of what they see. */
static int64_t held_sum(const struct data *x, const uint32_t *step, int64_t from)
{
    int64_t sum = 0;
    uint32_t T = (uint32_t)x->T;
    for (int64_t i = x->a; i < x->b; i++) {
        int32_t end = (int32_t)(step[i] < T ? step[i] : T);
        int32_t first = (int32_t)larger(from, i + x->window), n = end - first;
        sum += n > 0 ? n : 0;
    }
    return sum;
}

/* The largest of held[t], the first where several are. */
static struct size peak_of(const struct data *x, const int64_t *held, int64_t heads)
{
    int64_t top = 0;
    for (int64_t t = 1; t < x->T; t++)
        top = held[t] > held[top] ? t : top;
    return (struct size){top, x->T > 0, x->T ? held[top] : 0, heads * born(x, top + 1),
                         heads * (x->b - x->a)};
}

/* Makes now what each query of a head sees, and adds it to those of all heads. */
static void count_held(const struct data *x, const uint32_t *step, struct work *w)
{
    int64_t now = 0;
    uint32_t T = (uint32_t)x->T;
    memset(w->gone, 0, ((size_t)T + 1) * sizeof *w->gone);
    for (int64_t i = x->a; i < x->b; i++) {
        uint32_t from = (uint32_t)smaller(i + x->window, x->T), end = step[i] < T ? step[i] : T;
        w->gone[end > from ? end : from]++;
    }
    for (uint32_t t = 0; t < T; t++) {
        now += x->first[t] - w->gone[t];
        w->now[t] = now;
        w->held[t] += now;
    }
}

static int measure_head(void *ctx, struct kvf_trace *t, int item, int h, int thread,
                        struct kvf_diag *d)
{
    const struct crew *c = ctx;
    const struct data *x = c->x;
    struct work *w = &c->work[thread];
    struct size *s = x->size + h * N_MOMENTS;
    int64_t n = x->b - x->a, T = x->T, P = x->P;
    const uint32_t *step = w->scratch;
    (void)item;
    int err = T ? view_evict(t, x->evict, &x->heads.head[h], (uint32_t)T, w->scratch, &step, d)
                : KVF_OK;
    if (err)
        return err;
    s[AT_END] = (struct size){T, 1, left_after(x, step, T), n, n};
    s[AT_PREFILL] = (struct size){P, 1, left_after(x, step, P), born(x, P), n};
    s[AT_MEAN] = (struct size){0, T, held_sum(x, step, 0), x->born_all, T * n};
    s[AT_ANSWER] = (struct size){P, T - P, held_sum(x, step, P), x->born_later, (T - P) * n};
    count_held(x, step, w);
    s[AT_PEAK] = peak_of(x, w->now, 1);
    return KVF_OK;
}

static void add_heads(struct data *x)
{
    struct size *all = x->size + x->heads.n * N_MOMENTS;
    for (int h = 0; h < x->heads.n; h++) {
        const struct size *s = x->size + h * N_MOMENTS;
        for (int m = 0; m < AT_PEAK; m++) {
            all[m].step = s[m].step;
            all[m].steps = s[m].steps;
            all[m].entries += s[m].entries;
            all[m].length += s[m].length;
            all[m].capacity += s[m].capacity;
        }
    }
    all[AT_PEAK] = peak_of(x, x->held, x->heads.n);
}

static int alloc_crew(struct crew *c)
{
    size_t T = (size_t)c->x->T;
    c->work = MEM_NEW(struct work, (size_t)c->n);
    for (int i = 0; c->work && i < c->n; i++) {
        struct work *w = &c->work[i];
        *w = (struct work){MEM_NEW(uint32_t, T), MEM_NEW(int32_t, T + 1), MEM_NEW(int64_t, T),
                           MEM_NEW(int64_t, T)};
        if (!w->scratch || !w->gone || !w->now || !w->held)
            return KVF_E_NOMEM;
    }
    return c->work ? KVF_OK : KVF_E_NOMEM;
}

static void free_crew(struct crew *c)
{
    for (int i = 0; c->work && i < c->n; i++) {
        mem_free(c->work[i].scratch);
        mem_free(c->work[i].gone);
        mem_free(c->work[i].now);
        mem_free(c->work[i].held);
    }
    mem_free(c->work);
}

static int measure(struct data *x, struct kvf_diag *d)
{
    struct heads_par *par = NULL;
    struct crew c = {.x = x};
    x->born_all = born_sum(x, 0);
    x->born_later = born_sum(x, x->P);
    for (int64_t i = x->a; i < x->b; i++)
        x->first[smaller(i + x->window, x->T)]++;
    int err = heads_par_create(x->t, x->threads, x->T * x->heads.n, &par);
    if (!err) {
        c.n = heads_par_threads(par);
        err = alloc_crew(&c);
    }
    if (!err)
        err = heads_par_run(par, &x->heads, 1, measure_head, &c, d);
    for (int i = 0; !err && i < c.n; i++)
        for (int64_t t = 0; t < x->T; t++)
            x->held[t] += c.work[i].held[t];
    if (!err)
        add_heads(x);
    free_crew(&c);
    heads_par_destroy(par);
    return err;
}

/* ---- the table */

enum { STEP, STEPS, ENTRIES, LENGTH, CAPACITY, N_COUNTS };

static int put_columns(const struct data *x, struct table *out, int64_t *count, double *ratio)
{
    static const char *const names[N_COUNTS] = {"step", "steps", "entries", "length", "capacity"};
    static const char *const units[N_COUNTS] = {"step", "step", "entries", "entries", "entries"};
    int64_t rows = (int64_t)(x->heads.n + 1) * N_MOMENTS;
    for (int64_t r = 0; r < rows; r++) {
        const struct size *s = &x->size[r];
        const int64_t v[N_COUNTS] = {s->step, s->steps, s->entries, s->length, s->capacity};
        for (int c = 0; c < N_COUNTS; c++)
            count[c * rows + r] = v[c];
        ratio[r] = s->capacity ? (double)s->entries / (double)s->capacity : NAN;
        ratio[rows + r] = s->length ? (double)s->entries / (double)s->length : NAN;
    }
    put_provenance(out, x->t);
    put_tokens(out, x->a, x->b, x->T);
    table_meta_num(out, "window", (double)x->window);
    table_meta_num(out, "prompt", (double)x->P);
    int err = put_heads_all(out, &x->heads);
    table_cycle_str(out, "at", "", moment_names, N_MOMENTS);
    for (int c = 0; c < N_COUNTS; c++)
        table_dense_int(out, names[c], units[c], count + c * rows);
    table_dense_real(out, "size", "", ratio);
    table_dense_real(out, "ratio", "", ratio + rows);
    return err ? err : table_err(out);
}

static int build(const struct data *x, struct table **ret)
{
    size_t rows = ((size_t)x->heads.n + 1) * N_MOMENTS;
    struct table *out = table_create("kv-size", (int64_t)rows);
    int64_t *count = MEM_NEW(int64_t, N_COUNTS * rows);
    double *ratio = MEM_NEW(double, 2 * rows);
    int err = out && count && ratio ? put_columns(x, out, count, ratio) : KVF_E_NOMEM;
    mem_free(count);
    mem_free(ratio);
    if (err)
        table_destroy(out);
    else
        *ret = out;
    return err;
}

/* ---- what is asked for */

/* The method's `local` of the run header, or 0. */
static int64_t local_window(const struct kvf_trace *t)
{
    struct json *root = NULL;
    const char *text = kvf_meta(t);
    if (json_parse(text, strlen(text), &root, NULL) != KVF_OK)
        return 0;
    int64_t local = json_int(json_get(json_get(root, "method"), "local"), 0);
    json_free(root);
    return local;
}

static int choose_window(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    const char *text = option_text(&an_kv_size, args, OPT_WINDOW);
    if (strcmp(text, "in") == 0)
        return KVF_OK;
    if (strcmp(text, "out") == 0) {
        x->window = local_window(x->t);
        if (x->window < 1 || x->window > KVF_MAX_STEPS)
            return kvf_fail(d, KVF_E_NOTFOUND,
                            "the run header has no local window of its method; "
                            "say how many of the newest entries to leave out: --window N");
        return KVF_OK;
    }
    if (!opt_int(text, &x->window) || x->window < 0 || x->window > KVF_MAX_STEPS)
        return kvf_fail(d, KVF_E_ARG,
                        "--window is in, out or a number of the newest entries, not "
                        "'%s'",
                        text);
    return KVF_OK;
}

static int count_prompt(struct data *x, struct kvf_diag *d)
{
    double *role = MEM_NEW(double, (size_t)x->T);
    int err = !role  ? KVF_E_NOMEM
              : x->T ? kvf_read_f64(x->t, x->role, 0, 0, 0, (uint32_t)x->T, role, d)
                     : KVF_OK;
    while (!err && x->P < x->T && role[x->P] == KVF_ROLE_PROMPT)
        x->P++;
    mem_free(role);
    return err;
}

static int prepare(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    int err = choose_window(x, args, d);
    if (!err)
        err = tokens_select(x->t, args, &x->a, &x->b, d);
    if (!err)
        err = column_need(x->t, "evict_step", "evict", &x->evict, d);
    if (!err)
        err = column_need(x->t, "tokens.role", "lean", &x->role, d);
    return err ? err : heads_select(x->t, KVF_SPACE_KV, args->heads, &x->heads, d);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct data x = {.t = traces[0], .T = kvf_n_steps(traces[0]), .threads = args->threads};
    (void)n_traces;
    int err = prepare(&x, args, d);
    if (err)
        return err;
    x.first = MEM_NEW(int32_t, (size_t)x.T + 1);
    x.held = MEM_NEW(int64_t, (size_t)x.T);
    x.size = MEM_NEW(struct size, ((size_t)x.heads.n + 1) * N_MOMENTS);
    err = x.first && x.held && x.size ? count_prompt(&x, d) : KVF_E_NOMEM;
    if (!err)
        err = measure(&x, d);
    if (!err)
        err = build(&x, ret_table);
    mem_free(x.first);
    mem_free(x.held);
    mem_free(x.size);
    heads_free(&x.heads);
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    int entries = table_find(t, "entries"), steps = table_find(t, "steps");
    int size = table_find(t, "size"), ratio = table_find(t, "ratio");
    int64_t heads = table_rows(t) / N_MOMENTS - 1, all = heads * N_MOMENTS, low = 0, high = 0;
    buf_printf(out, "%s tokens, %s of them of the prompt; %lld heads; the %s newest left out\n",
               table_meta(t, "T"), table_meta(t, "prompt"), (long long)heads,
               table_meta(t, "window"));
    buf_printf(out, "  %-8s %12s %8s %8s\n", "", "entries/head", "of all", "of born");
    for (int m = 0; m < N_MOMENTS; m++) {
        double n = (double)heads * (double)table_int(t, steps, all + m);
        buf_printf(out, "  %-8s %12.2f %8.4f %8.4f\n", moment_names[m],
                   n > 0 ? table_real(t, entries, all + m) / n : NAN, table_real(t, size, all + m),
                   table_real(t, ratio, all + m));
    }
    for (int64_t h = 0; h < heads; h++) {
        int64_t r = h * N_MOMENTS;
        low = table_int(t, entries, r) < table_int(t, entries, low) ? r : low;
        high = table_int(t, entries, r) > table_int(t, entries, high) ? r : high;
    }
    buf_printf(out, "at the end: least %s %lld, most %s %lld entries\n",
               table_str(t, table_find(t, "head"), low), (long long)table_int(t, entries, low),
               table_str(t, table_find(t, "head"), high), (long long)table_int(t, entries, high));
}

static const char *const keys[] = {"head", "layer", "index", "at", NULL};
static const struct analyzer_measure measures[] = {
    {"size", "entries", "capacity"},
    {"ratio", "entries", "length"},
    {NULL, NULL, NULL},
};
static const struct analyzer_pool pool = {keys, measures};

const struct analyzer an_kv_size = {
    .name = "kv-size",
    .summary = "how large the cache of each head is",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};
