/* an_kv_size.c - how large the cache of each head is: at the end, when the prompt is done, in
 * the mean over steps and over those of the answer, and at its peak; against the length of the
 * text.  A question that was fed after the prompt belongs to neither the prompt nor the answer. */
#include <math.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/frame.h"
#include "analyzers/head_budgets.h"
#include "base/opt.h"
#include "libtrace/run_header.h"

struct options {
    const char *window;
};

enum { EVICT, ROLE }; /* columns */
enum { AT_END, AT_PREFILL, AT_MEAN, AT_ANSWER, AT_PEAK, N_MOMENTS };
static const char *const moment_names[N_MOMENTS] = {"end", "prefill", "mean", "answer", "peak"};

struct row {
    struct row_head of;
    const char *at;
    int64_t step, steps, entries, length, capacity;
    double size, ratio;
};

/* The entries that a row counts. */
struct size {
    int64_t step, steps, entries, length, capacity;
};

struct data {
    int64_t T, P, a, b; /* steps; entries of the prompt; tokens [a, b) */
    int64_t answer;     /* first step of the answer */
    int64_t window;     /* entries of smaller age do not count */
    /* the same for all heads */
    int32_t *first; /* [T + 1] entries that step t is the first to see */
    int64_t born_all,
        born_later; /* sums of the tokens born by each query, and by those of the answer */
};

struct scratch {     /* of one thread */
    uint32_t *evict; /* [T] */
    int32_t *gone;   /* [T + 1] entries that step t is the first not to see */
    int64_t *now;    /* [T] cached entries of the head at hand */
    int64_t *held;   /* [T] of all heads that it had */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The number of tokens of [a, b) below n. */
static int64_t born(const struct data *x, int64_t n)
{
    return larger(0, smaller(n, x->b) - x->a);
}

/* Entries of the first n tokens that query n still sees, or would see if it existed. */
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

/* The sum over the queries t of [from, T) of the entries that they see. */
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

/* The largest held[t], and the first t that has it. */
static struct size peak_of(const struct data *x, const int64_t *held, int64_t heads)
{
    int64_t top = 0;
    for (int64_t t = 1; t < x->T; t++)
        top = held[t] > held[top] ? t : top;
    return (struct size){top, x->T > 0, x->T ? held[top] : 0, heads * born(x, top + 1),
                         heads * (x->b - x->a)};
}

/* Computes the number of entries that each query of a head sees, and adds it to the sum of all
 * heads. */
static void count_held(const struct data *x, const uint32_t *step, const struct scratch *w)
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

static void put_row(const struct frame *f, int h, int moment, struct size s)
{
    struct row *r = (struct row *)f->row + h * N_MOMENTS + moment;
    *r = (struct row){frame_row_head(f, h),
                      moment_names[moment],
                      s.step,
                      s.steps,
                      s.entries,
                      s.length,
                      s.capacity,
                      NAN,
                      NAN};
    if (s.capacity)
        r->size = (double)s.entries / (double)s.capacity;
    if (s.length)
        r->ratio = (double)s.entries / (double)s.length;
}

static int head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct data *x = f->state;
    const struct scratch *w = y->scratch;
    int64_t n = x->b - x->a, T = x->T, P = x->P, A = x->answer;
    const uint32_t *step = w->evict;
    int err = T ? view_evict(y->t, f->column[EVICT], y->head, (uint32_t)T, w->evict, &step, d)
                : KVF_OK;
    if (err)
        return err;
    put_row(f, y->h, AT_END, (struct size){T, 1, left_after(x, step, T), n, n});
    put_row(f, y->h, AT_PREFILL, (struct size){P, 1, left_after(x, step, P), born(x, P), n});
    put_row(f, y->h, AT_MEAN, (struct size){0, T, held_sum(x, step, 0), x->born_all, T * n});
    put_row(f, y->h, AT_ANSWER,
            (struct size){A, T - A, held_sum(x, step, A), x->born_later, (T - A) * n});
    count_held(x, step, w);
    put_row(f, y->h, AT_PEAK, peak_of(x, w->now, 1));
    return KVF_OK;
}

/* Rows of all heads: sums over the heads, and the peak of the total. */
static int finish(struct frame *f, struct kvf_diag *d)
{
    const struct data *x = f->state;
    int64_t *held = ((struct scratch *)frame_scratch(f, 0))->held;
    (void)d;
    for (int i = 1; i < f->n_threads; i++)
        for (int64_t t = 0; t < x->T; t++)
            held[t] += ((struct scratch *)frame_scratch(f, i))->held[t];
    for (int m = 0; m < AT_PEAK; m++) {
        struct size all = {0};
        for (int h = 0; h < f->heads.n; h++) {
            const struct row *r = (struct row *)f->row + h * N_MOMENTS + m;
            all.step = r->step;
            all.steps = r->steps;
            all.entries += r->entries;
            all.length += r->length;
            all.capacity += r->capacity;
        }
        put_row(f, f->heads.n, m, all);
    }
    put_row(f, f->heads.n, AT_PEAK, peak_of(x, held, f->heads.n));
    return KVF_OK;
}

/* ---- options */

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    const struct options *o = f->options;
    *x = (struct data){.T = f->T, .a = f->a, .b = f->b};
    if (strcmp(o->window, "in") == 0)
        return KVF_OK;
    if (strcmp(o->window, "out") == 0) {
        int err = trace_number(f->t, "method", "local", 0, &x->window, d);
        if (err)
            return err;
        if (x->window < 1 || x->window > KVF_MAX_STEPS)
            return kvf_fail(d, KVF_E_NOTFOUND,
                            "the run header has no local window of its method; give the number of "
                            "newest entries to leave out: --window N");
        return KVF_OK;
    }
    if (!opt_int(o->window, &x->window) || x->window < 0 || x->window > KVF_MAX_STEPS)
        return kvf_fail(d, KVF_E_ARG,
                        "--window is in, out or a number of the newest entries, not "
                        "'%s'",
                        o->window);
    return KVF_OK;
}

static int count_prompt(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    double *role = FRAME_NEW(f, double, (size_t)x->T);
    if (!role || !x->T)
        return role ? KVF_OK : KVF_E_NOMEM;
    if (f->column[ROLE] < 0) {
        int err = prompt_tokens(f->t, &x->P, d);
        if (!err)
            err = answer_start(f->t, &x->answer, d);
        x->P = x->P < 0 || x->P > x->T ? 0 : x->P;
        x->answer = x->answer < x->P || x->answer > x->T ? x->P : x->answer;
        return err;
    }
    int err = kvf_read_f64(f->t, f->column[ROLE], 0, 0, 0, (uint32_t)x->T, role, d);
    while (!err && x->P < x->T && KVF_IN_PROMPT(role[x->P]))
        x->P++;
    x->answer = x->P;
    while (!err && x->answer < x->T && role[x->answer] == KVF_ROLE_QUESTION)
        x->answer++;
    return err;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    x->first = FRAME_NEW(f, int32_t, (size_t)x->T + 1);
    int err = x->first ? count_prompt(f, d) : KVF_E_NOMEM;
    if (err)
        return err;
    x->born_all = born_sum(x, 0);
    x->born_later = born_sum(x, x->answer);
    for (int64_t i = x->a; i < x->b; i++)
        x->first[smaller(i + x->window, x->T)]++;
    f->n_rows = (int64_t)(f->heads.n + 1) * N_MOMENTS;
    return KVF_OK;
}

static void thread(struct frame *f, void *scratch)
{
    size_t T = (size_t)f->T;
    *(struct scratch *)scratch = (struct scratch){
        FRAME_NEW(f, uint32_t, T), FRAME_NEW(f, int32_t, T + 1), FRAME_NEW(f, int64_t, T),
        FRAME_NEW(f, int64_t, T)};
}

/* ---- the table */

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct data *x = f->state;
    put_tokens(out, x->a, x->b, x->T);
    table_meta_num(out, "window", (double)x->window);
    table_meta_num(out, "prompt", (double)x->P);
    return put_head_budgets(out, f->t, &f->heads, true, d);
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    ROW_HEAD_MEMBERS(row, of),
    {"at", "", TABLE_STR, AT(at)},
    {"step", "step", TABLE_INT, AT(step)},
    {"steps", "step", TABLE_INT, AT(steps)},
    {"entries", "entries", TABLE_INT, AT(entries)},
    {"length", "entries", TABLE_INT, AT(length)},
    {"capacity", "entries", TABLE_INT, AT(capacity)},
    {"size", "", TABLE_REAL, AT(size)},
    {"ratio", "", TABLE_REAL, AT(ratio)},
};

/* An entry has one evict_step: entries evicted at the end of the prompt, and for the first entry of
 * the answer, have the same step. */
static void describe_prefill(const struct table *t, int64_t heads, struct buf *out)
{
    int64_t budget = table_meta_int(t, "budget", 0), row = heads * N_MOMENTS + AT_PREFILL;
    int64_t held = table_row_int(t, row, "entries");
    if (budget > 0 && held == heads * (budget - 1))
        buf_str(out,
                "  prefill is the cache of the next query: one entry of each head has made room "
                "for the new entry; a run with order=after shows the cache after the cut\n");
}

/* The sum and the range of the budgets of the heads that have one. */
static void describe_budgets(const struct table *t, int64_t heads, struct buf *out)
{
    int budget = table_find(t, HEAD_BUDGET);
    int64_t low = -1, high = -1, sum = 0;
    for (int64_t h = 0; h < heads; h++) {
        int64_t r = h * N_MOMENTS, x = table_int(t, budget, r);
        if (x < 1)
            continue;
        sum += x;
        low = low < 0 || x < table_int(t, budget, low) ? r : low;
        high = high < 0 || x > table_int(t, budget, high) ? r : high;
    }
    if (low >= 0)
        buf_printf(out, "budgets per head (%s): %lld in all, from %lld (%s) to %lld (%s)\n",
                   table_meta(t, "head_budgets"), (long long)sum,
                   (long long)table_int(t, budget, low), table_row_str(t, low, "head"),
                   (long long)table_int(t, budget, high), table_row_str(t, high, "head"));
}

static void describe(const struct table *t, struct buf *out)
{
    int entries = table_find(t, "entries"), steps = table_find(t, "steps");
    int size = table_find(t, "size"), ratio = table_find(t, "ratio");
    int64_t heads = table_rows(t) / N_MOMENTS - 1, all = heads * N_MOMENTS, low = 0, high = 0;
    const char *range = table_meta(t, "tokens");
    buf_printf(out, "%s tokens, %s of them of the prompt; ", table_meta(t, "T"),
               table_meta(t, "prompt"));
    if (range)
        buf_printf(out, "only tokens %s; ", range);
    buf_printf(out, "%lld head%s; the %s newest left out\n", (long long)heads,
               heads == 1 ? "" : "s", table_meta(t, "window"));
    buf_printf(out, "  %-8s %12s %8s %8s\n", "", "entries/head", "of all", "of born");
    for (int m = 0; m < N_MOMENTS; m++) {
        double n = (double)heads * (double)table_int(t, steps, all + m);
        buf_printf(out, "  %-8s %12.2f %8.4f %8.4f\n", moment_names[m],
                   n > 0 ? table_real(t, entries, all + m) / n : NAN, table_real(t, size, all + m),
                   table_real(t, ratio, all + m));
    }
    describe_prefill(t, heads, out);
    for (int64_t h = 0; h < heads; h++) {
        int64_t r = h * N_MOMENTS;
        low = table_int(t, entries, r) < table_int(t, entries, low) ? r : low;
        high = table_int(t, entries, r) > table_int(t, entries, high) ? r : high;
    }
    if (table_meta(t, "head_budgets"))
        describe_budgets(t, heads, out);
    buf_printf(out, "at the end: least %s %lld, most %s %lld entries\n",
               table_row_str(t, low, "head"), (long long)table_int(t, entries, low),
               table_row_str(t, high, "head"), (long long)table_int(t, entries, high));
}

const struct analyzer an_kv_size = {
    .name = "kv-size",
    .summary = "cache size of each head",
    .example = "kvfate size --as kv-size run.kvf -o sizes.tsv",
    OPTIONS({OPT_STR, 0, "window", offsetof(struct options, window), "W",
             "in, out (less the method's local window), or less the N newest", "in"}),
    COLUMNS(COLUMN_EVICT_STEP, {"tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_CAN_LACK,
                                "by default the prompt ends where the run header specifies; "
                                "without it there is no prompt"}),
    HEADS(.space = KVF_SPACE_KV, FRAME_USUAL(struct data, struct scratch),
          FRAME_RECORDS(struct row), .finish = finish),
    .describe = describe,
    POOL(KEYS("head", "layer", "index", "at"), {"size", "entries", "capacity"},
         {"ratio", "entries", "length"}),
};
