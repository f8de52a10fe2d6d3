/* an_fates.c - the fate of each token over time.  At some steps t: the fraction of KV heads
 * that cache its entry, i <= t < evict_step, and the fraction that evicted it although it was
 * needed, t >= evict_step.  An evicted entry was needed if one of the query heads that read the KV
 * head would have given it at least a fraction `needed` of the attention of each later query, on
 * average: shadow.ghost_mass >= needed (T - evict_step).  The threshold does not depend on the
 * cache method or on its budget. */
#include <math.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/answer.h"
#include "analyzers/frame.h"
#include "analyzers/token_text.h"

enum { EVICT, MASS, ROLE }; /* columns */
struct options {
    int64_t points;
    const char *from;
    double needed;      /* 0: 1 / T */
    const char *needle; /* span with the answer; NULL: no columns of the answer */
};

struct data {
    int64_t n, points, *step; /* tokens; [points] steps, rising */
    int32_t *held, *needed;   /* [points][n] heads; first the tokens that begin and end there */
    uint32_t *evict;          /* [T] of the head at hand */
    double *mass, *most;      /* [T] of the query head at hand; largest of the KV head */
    double *role;             /* [T] */
    double lost;              /* sum of the attention that evicted entries would have had */
    int query_heads;
    int64_t first;    /* step of the first eviction; T: none */
    double threshold; /* the fraction of attention from which an entry was needed */
    bool shadow;      /* the trace has the lost attention */
    struct token_text text;
    struct answer answer; /* with --needle */
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

/* The attention that later queries would have given to each evicted entry, summed over these
 * queries: of the query head of the KV head that gives it most. */
static int read_mass(struct frame *f, const struct head *h, struct kvf_diag *d)
{
    struct data *x = f->state;
    int per = kvf_n_heads(f->t, h->layer, KVF_SPACE_QUERY)
              / kvf_n_heads(f->t, h->layer, KVF_SPACE_KV);
    int err = KVF_OK;
    memset(x->most, 0, (size_t)f->T * sizeof *x->most);
    for (int g = h->index * per; !err && x->shadow && g < (h->index + 1) * per; g++) {
        err = kvf_read_f64(f->t, f->column[MASS], h->layer, g, 0, (uint32_t)f->T, x->mass, d);
        for (int64_t i = 0; !err && i < f->T; i++)
            x->most[i] = fmax(x->most[i], x->mass[i]);
        for (int64_t i = f->a; !err && i < f->b; i++)
            x->lost += x->mass[i] > 0 ? x->mass[i] : 0;
        x->query_heads++;
    }
    return err;
}

static int add_head(struct frame *f, const struct head *h, struct kvf_diag *d)
{
    struct data *x = f->state;
    const uint32_t *evict;
    int err = view_evict(f->t, f->column[EVICT], h, (uint32_t)f->T, x->evict, &evict, d);
    if (!err)
        err = read_mass(f, h, d);
    for (int64_t i = 0; !err && i < f->T; i++)
        x->first = evict[i] < x->first ? evict[i] : x->first;
    for (int64_t k = 0; !err && k < x->n; k++) {
        int64_t i = f->a + k, born = before(x, (double)i);
        double left = evict[i] == KVF_ALIVE ? INFINITY : fmax((double)evict[i], (double)i);
        int64_t gone = before(x, left);
        if (born < x->points)
            x->held[born * x->n + k]++;
        if (gone == x->points)
            continue;
        x->held[gone * x->n + k]--;
        x->needed[gone * x->n + k] += x->most[i] >= x->threshold * ((double)f->T - left);
    }
    return err;
}

static void choose_steps(const struct frame *f, int64_t from)
{
    struct data *x = f->state;
    for (int64_t k = 0; k < x->points; k++)
        x->step[k] = from + (f->T - 1 - from) * k / (x->points > 1 ? x->points - 1 : 1);
}

/* The first step: an eighth of the answer's before the end of the prompt. With --needle it is the
 * first step of the answer. */
static int first_step(const struct frame *f, int64_t *ret, struct kvf_diag *d)
{
    const struct options *o = f->options;
    int64_t prompt, from = 0;
    int err = o->needle ? answer_start(f->t, &prompt, d) : prompt_tokens(f->t, &prompt, d);
    if (err)
        return err;
    if (o->needle && (prompt <= 0 || prompt >= f->T))
        return kvf_fail(d, KVF_E_ARG, "--needle: the trace has no step after its prompt");
    if (o->needle)
        from = prompt;
    else if (prompt > 0 && prompt < f->T)
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
    x->needed = FRAME_NEW(f, int32_t, (size_t)f->n_rows);
    x->evict = FRAME_NEW(f, uint32_t, (size_t)f->T);
    x->first = f->T;
    x->shadow = f->column[MASS] >= 0;
    x->threshold = o->needed > 0 ? o->needed : 1 / fmax(1, (double)f->T);
    x->mass = FRAME_NEW(f, double, (size_t)f->T);
    x->most = FRAME_NEW(f, double, (size_t)f->T);
    x->role = FRAME_NEW(f, double, (size_t)f->T);
    if (!err && x->step)
        choose_steps(f, from);
    if (!err && o->needle)
        err = answer_read(f->t, o->needle, f->T, &x->answer, d);
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
        x->needed[r] += x->needed[r - x->n];
    }
    if (!err && x->n && f->column[ROLE] >= 0)
        err = kvf_read_f64(f->t, f->column[ROLE], 0, 0, 0, (uint32_t)f->T, x->role, d);
    return err ? err : token_text_read(f->t, f->a, x->n, &x->text);
}

/* Shares of the heads; NaN before a token is born, and for values that the trace lacks. */
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

/* The mean fraction of attention that queries from the first eviction on would give to evicted
 * entries; NaN where the trace lacks it. */
static double lost_attention(const struct frame *f)
{
    const struct data *x = f->state;
    double queries = (double)(f->T - x->first) * x->query_heads;
    if (!x->shadow)
        return NAN;
    return queries > 0 ? x->lost / queries : 0;
}

/* Writes the columns of --needle: the tokens of the needle, the answer, the right answer, and
 * whether the answer is right (1 or 0; -1: unknown). */
static void put_answer(struct frame *f, struct table *out)
{
    const struct data *x = f->state;
    const char *const text[] = {x->answer.text.len ? x->answer.text.data : ""};
    const char *const expected[] = {x->answer.judged ? x->answer.expected.data : ""};
    int64_t *needle = FRAME_NEW(f, int64_t, (size_t)x->n);
    if (!needle)
        return;
    for (int64_t k = 0; k < x->n; k++)
        needle[k] = x->answer.needle[f->a + k];
    table_cycle_int(out, "needle", "", needle, x->n);
    table_cycle_str(out, "answer", "", text, 1);
    table_cycle_str(out, "expected", "", expected, 1);
    table_affine(out, "right", "", x->answer.judged ? x->answer.right : -1, 0, 0);
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
    if (f->heads.n == 1)
        table_meta_str(out, "head", f->heads.head[0].name);
    table_meta_num(out, "points", (double)x->points);
    table_meta_num(out, "needed", x->threshold);
    table_meta_num(out, "first_eviction", x->first < f->T ? (double)x->first : -1);
    table_meta_num(out, "lost_attention", lost_attention(f));
    table_block_int(out, "step", "", x->step, x->points);
    table_affine(out, "token", "", f->a, 1, x->n);
    table_cycle_str(out, "text", "", x->text.text, x->n);
    table_cycle_str(out, "joined", "", x->text.joined, x->n);
    table_cycle_str(out, "role", "", role, x->n);
    put_shares(f, out, "held", x->held, true);
    put_shares(f, out, "needed", x->needed, x->shadow);
    if (((const struct options *)f->options)->needle)
        put_answer(f, out);
    return KVF_OK;
}

static void close(struct frame *f)
{
    struct data *x = f->state;
    token_text_finish(&x->text);
    answer_finish(&x->answer);
}

static void describe(const struct table *t, struct buf *out)
{
    int held = table_find(t, "held"), needed = table_find(t, "needed");
    int64_t points = table_meta_int(t, "points", 1), n = table_rows(t) / (points > 0 ? points : 1);
    double kept = 0, lost = 0;
    for (int64_t r = table_rows(t) - n; r < table_rows(t); r++) {
        kept += table_real(t, held, r);
        lost += table_real(t, needed, r);
    }
    if (n == 0) {
        buf_str(out, "no tokens\n");
        return;
    }
    int64_t heads = table_meta_int(t, "heads", 0);
    buf_printf(out, "%lld token%s in %lld head%s; at the end %.1f %% of the entries are cached\n",
               (long long)n, n == 1 ? "" : "s", (long long)heads, heads == 1 ? "" : "s",
               100 * kept / (double)n);
    if (table_meta_int(t, "first_eviction", 0) < 0)
        buf_str(out, "no entry was evicted\n");
    else if (!isnan(lost))
        buf_printf(
            out,
            "%.1f %% are evicted and were needed: later queries would give them at least %.3g %% "
            "of their attention, on average\n"
            "lost attention: %.1f %% on average, from step %s, the first eviction\n",
            100 * lost / (double)n, 100 * table_meta_real(t, "needed", NAN),
            100 * table_meta_real(t, "lost_attention", NAN), table_meta(t, "first_eviction"));
}

const struct analyzer an_fates = {
    .name = "fates",
    .summary = "the history of each token: cached, evicted, needed after eviction",
    .example = "kvfate fates run.kvf -o fates.png",
    OPTIONS(
        {OPT_INT, 0, "points", offsetof(struct options, points), "N", "steps that the table has",
         "48", .min = 2, .max = 4096},
        {OPT_STR, 0, "from", offsetof(struct options, from), "STEP", "the first of them",
         .absent = "shortly before the end of the prompt"},
        {OPT_REAL, 0, "needed", offsetof(struct options, needed), "FRACTION",
         "needed: would get at least this fraction of the attention of later queries, on average",
         .absent = "1 / T, uniform attention", .min = 1e-9, .max = 1},
        {OPT_STR, 0, "needle", offsetof(struct options, needle), "NAME",
         "span of the prompt with the answer, or a phrase of the prompt that the answer must "
         "contain (none: it is not judged); adds the model's answer",
         .absent = "no answer"}),
    COLUMNS([EVICT] = COLUMN_EVICT_STEP,
            [MASS] = {"shadow.ghost_mass", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_HELPS, "needed"},
            [ROLE] = {"tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_CAN_LACK, "role"}),
    HEADS(.space = KVF_SPACE_KV, .state_size = sizeof(struct data), .prepare = prepare,
          .finish = finish, .rows = rows, .close = close),
    .describe = describe,
};
