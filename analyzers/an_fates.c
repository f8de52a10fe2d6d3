/* an_fates.c - what became of each token over time: at some steps t, the share of KV heads that
 * hold its entry, i <= t < evict_step, and the share that let it go and missed it by then,
 * t >= max(evict_step, the least shadow.first_hit of the query heads that read the KV head).  An
 * entry counts as missed if in one of these query heads at least the share `often` of the queries
 * after it left, evict_step <= t < T, had it among their largest weights (shadow.ghost_hits). */
#include <math.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/frame.h"
#include "analyzers/token_text.h"

enum { EVICT, FIRST, HITS, ROLE }; /* columns */
struct options {
    int64_t points;
    const char *from;
    double often;
};
static const struct opt options[] = {
    {OPT_INT, 0, "points", offsetof(struct options, points), "N", "steps that the table has", "48",
     .min = 2, .max = 4096},
    {OPT_STR, 0, "from", offsetof(struct options, from), "STEP", "the first of them",
     .absent = "shortly before the end of the prompt"},
    {OPT_REAL, 0, "often", offsetof(struct options, often), "SHARE",
     "missed: by at least so many of the queries after it left", "0.5", .min = 0, .max = 1},
    {.type = OPT_END},
};

struct data {
    int64_t n, points, *step; /* tokens; [points] steps, rising */
    int32_t *held, *missed;   /* [points][n] heads; first those that begin and end there */
    uint32_t *evict;          /* [T] of the head at hand */
    double *first, *hits;     /* [T] of the query head at hand */
    double *least, *role;     /* [T] */
    bool shadow;              /* the trace tells what was missed */
    struct token_text text;
};

/* The number of steps of the table before `step`. */
static int64_t before(const struct data *x, double step)
{
    int64_t low = 0, high = x->points;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if ((double)x->step[mid] < step)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The query at which the entry was first missed, of each token; INFINITY: it was not, or not by
 * enough of those after it left. */
static int read_misses(struct frame *f, const struct head *h, const uint32_t *evict,
                       struct kvf_diag *d)
{
    struct data *x = f->state;
    double often = ((const struct options *)f->options)->often;
    int per = kvf_n_heads(f->t, h->layer, KVF_SPACE_QUERY)
              / kvf_n_heads(f->t, h->layer, KVF_SPACE_KV);
    int err = KVF_OK;
    for (int64_t i = 0; i < f->T; i++)
        x->least[i] = INFINITY;
    for (int g = h->index * per; !err && x->shadow && g < (h->index + 1) * per; g++) {
        uint32_t n = (uint32_t)f->T;
        err = kvf_read_f64(f->t, f->column[FIRST], h->layer, g, 0, n, x->first, d);
        if (!err)
            err = kvf_read_f64(f->t, f->column[HITS], h->layer, g, 0, n, x->hits, d);
        for (int64_t i = 0; !err && i < f->T; i++)
            if (x->hits[i] > 0 && x->hits[i] >= often * (double)(f->T - (int64_t)evict[i]))
                x->least[i] = fmin(x->least[i], x->first[i]);
    }
    return err;
}

static int add_head(struct frame *f, const struct head *h, struct kvf_diag *d)
{
    struct data *x = f->state;
    const uint32_t *view;
    int err = view_evict(f->t, f->column[EVICT], h, (uint32_t)f->T, x->evict, &view, d);
    if (!err && view != x->evict)
        memcpy(x->evict, view, (size_t)f->T * sizeof *view);
    const uint32_t *evict = x->evict;
    if (!err)
        err = read_misses(f, h, evict, d);
    for (int64_t k = 0; !err && k < x->n; k++) {
        int64_t i = f->a + k, born = before(x, (double)i);
        double left = evict[i] == KVF_ALIVE ? INFINITY : fmax((double)evict[i], (double)i);
        int64_t gone = before(x, left), miss = before(x, fmax(left, x->least[i]));
        if (born < x->points)
            x->held[born * x->n + k]++;
        if (gone < x->points)
            x->held[gone * x->n + k]--;
        if (miss < x->points)
            x->missed[miss * x->n + k]++;
    }
    return err;
}

static void choose_steps(const struct frame *f, int64_t from)
{
    struct data *x = f->state;
    for (int64_t k = 0; k < x->points; k++)
        x->step[k] = from + (f->T - 1 - from) * k / (x->points > 1 ? x->points - 1 : 1);
}

/* The first step: an eighth of the answer's before the end of the prompt. */
static int first_step(const struct frame *f, int64_t *ret, struct kvf_diag *d)
{
    const struct options *o = f->options;
    int64_t prompt = prompt_tokens(f->t), from = 0;
    if (prompt > 0 && prompt < f->T)
        from = prompt - 1 - (f->T - prompt) / 8;
    if (o->from && (!opt_int(o->from, &from) || from < 0 || from >= f->T))
        return kvf_fail(d, KVF_E_ARG, "--from needs a step of the trace, 0 to %lld, not '%.40s'",
                        (long long)f->T - 1, o->from);
    *ret = from > 0 ? from : 0;
    return KVF_OK;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    const struct options *o = f->options;
    int64_t from = 0;
    x->n = f->b - f->a;
    int err = x->n ? first_step(f, &from, d) : KVF_OK;
    x->points = f->T - from < o->points ? f->T - from : o->points;
    f->items = 0;
    f->n_rows = x->n * x->points;
    x->step = FRAME_NEW(f, int64_t, (size_t)x->points);
    x->held = FRAME_NEW(f, int32_t, (size_t)f->n_rows);
    x->missed = FRAME_NEW(f, int32_t, (size_t)f->n_rows);
    x->evict = FRAME_NEW(f, uint32_t, (size_t)f->T);
    x->shadow = f->column[FIRST] >= 0 && f->column[HITS] >= 0;
    x->first = FRAME_NEW(f, double, (size_t)f->T);
    x->hits = FRAME_NEW(f, double, (size_t)f->T);
    x->least = FRAME_NEW(f, double, (size_t)f->T);
    x->role = FRAME_NEW(f, double, (size_t)f->T);
    if (!err && x->step)
        choose_steps(f, from);
    return err;
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    int err = KVF_OK;
    for (int h = 0; !err && x->n && h < f->heads.n; h++)
        err = add_head(f, &f->heads.head[h], d);
    for (int64_t r = x->n; !err && r < f->n_rows; r++) {
        x->held[r] += x->held[r - x->n];
        x->missed[r] += x->missed[r - x->n];
    }
    if (!err && x->n && f->column[ROLE] >= 0)
        err = kvf_read_f64(f->t, f->column[ROLE], 0, 0, 0, (uint32_t)f->T, x->role, d);
    return err ? err : token_text_read(f->t, f->a, x->n, &x->text);
}

/* Shares of the heads; NaN before a token is born, and of what the trace does not tell. */
static void put_shares(struct frame *f, struct table *out, const char *name, const int32_t *count,
                       bool known)
{
    const struct data *x = f->state;
    double *share = FRAME_NEW(f, double, (size_t)f->n_rows);
    for (int64_t r = 0; share && r < f->n_rows; r++)
        share[r] = known && f->a + r % x->n <= x->step[r / x->n] ? (double)count[r] / f->heads.n
                                                                 : NAN;
    if (share)
        table_dense_real(out, name, "", share);
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct data *x = f->state;
    const char **role = FRAME_NEW(f, const char *, (size_t)x->n);
    (void)d;
    if (!role)
        return KVF_E_NOMEM;
    for (int64_t k = 0; k < x->n; k++)
        role[k] = f->column[ROLE] < 0 ? "" : role_name(x->role[f->a + k]);
    put_tokens(out, f->a, f->b, f->T);
    table_meta_num(out, "heads", f->heads.n);
    table_meta_num(out, "points", (double)x->points);
    table_meta_num(out, "often", ((const struct options *)f->options)->often);
    table_block_int(out, "step", "", x->step, x->points);
    table_affine(out, "token", "", f->a, 1, x->n);
    table_cycle_str(out, "text", "", x->text.text, x->n);
    table_cycle_str(out, "joined", "", x->text.joined, x->n);
    table_cycle_str(out, "role", "", role, x->n);
    put_shares(f, out, "held", x->held, true);
    put_shares(f, out, "missed", x->missed, x->shadow);
    return KVF_OK;
}

static void close(struct frame *f)
{
    token_text_finish(&((struct data *)f->state)->text);
}

static void describe(const struct table *t, struct buf *out)
{
    int held = table_find(t, "held"), missed = table_find(t, "missed");
    int64_t points = table_meta_int(t, "points", 1), n = table_rows(t) / (points > 0 ? points : 1);
    double kept = 0, regretted = 0;
    for (int64_t r = table_rows(t) - n; r < table_rows(t); r++) {
        kept += table_real(t, held, r);
        regretted += table_real(t, missed, r);
    }
    if (n == 0) {
        buf_str(out, "no tokens\n");
        return;
    }
    buf_printf(out, "%lld tokens in %s heads; at the end %.1f %% of the entries are held",
               (long long)n, table_meta(t, "heads"), 100 * kept / (double)n);
    if (!isnan(regretted))
        buf_printf(out, ", %.1f %% are gone and were missed since", 100 * regretted / (double)n);
    buf_char(out, '\n');
}

static const struct column_use columns[] = {
    [EVICT] = COLUMN_EVICT_STEP,
    [FIRST] = {"shadow.first_hit", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_HELPS, "missed"},
    [HITS] = {"shadow.ghost_hits", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_HELPS, "missed"},
    [ROLE] = {"tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_CAN_LACK, "role"},
    {.name = NULL},
};

static const struct head_analysis heads = {
    .space = KVF_SPACE_KV,
    .state_size = sizeof(struct data),
    .prepare = prepare,
    .finish = finish,
    .rows = rows,
    .close = close,
};

const struct analyzer an_fates = {
    .name = "fates",
    .summary = "what became of each token over time: held, gone, missed",
    .example = "kvfate fates run.kvf -o fates.png",
    .options = options,
    .columns = columns,
    .max_traces = 1,
    .heads = &heads,
    .describe = describe,
};
