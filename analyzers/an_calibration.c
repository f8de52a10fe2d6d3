/* an_calibration.c - whether retention gates are calibrated.  It compares the probability beta^n
 * that a gate gave an entry at birth with the fate of the entry at age n, and how well the gates
 * rank the entries of a head whenever one must be evicted (rank_quality.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/calibration_table.h"
#include "analyzers/lives.h"
#include "base/mem.h"

enum { EVER_AGAIN, AT_AGE, NO_EXIT, N_EVENTS };
enum { MAX_HORIZONS = CALIBRATION_PAIRS / N_EVENTS, MOST_BINS = 1000, MOST_ROWS = 10000000 };
static const char *const event_names[N_EVENTS] = {"ever-again", "at-age", "no-exit"};

static const char *const groups[] = {"any", "each", NULL};
struct options {
    const char *criterion, *event, *horizon;
    int group;
    int64_t bins, budget, follow_up;
    int64_t near; /* no option: 0, or as of_length sets it */
};

enum { COL_EVICT, COL_BETA, COL_LAST, COL_AT, COL_FIRST, N_COLUMNS };

struct plan {
    const int *column; /* of the frame */
    bool each, event[N_EVENTS];
    int64_t horizon[MAX_HORIZONS];
    int n_horizons;
    int bins, budget;
    int64_t T, a, b;         /* steps; tokens [a, b) */
    int64_t follow_up, near; /* later queries that ever-again asks for; births that are near */
};

struct scratch { /* of one thread */
    double *v;   /* [T] */
};

/* Columns of all chosen heads, [heads][T]. */
struct data {
    float *log_beta;
    int32_t *last, *first;    /* ages; last -1: never; first INT32_MAX: selected by all queries */
    uint32_t *at;             /* bit k: selected at age 2^k */
    struct item *item, *pool; /* [heads][b - a] sorted within each head; the same, sorted */
};

struct item {
    float log_beta;
    uint32_t at; /* head * T + token */
};

struct state {
    struct plan plan;
    struct data data;
    struct calibration_found *found; /* NULL once the table owns it */
};

/* ---- options */

static bool power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static int choose_events(const char *list, struct plan *p, struct kvf_diag *d)
{
    bool all = strcmp(list, "all") == 0;
    for (int e = 0; e < N_EVENTS; e++)
        p->event[e] = all;
    for (const char *s = list; !all && *s;) {
        size_t n = strcspn(s, ",");
        int e = 0;
        while (e < N_EVENTS && (strlen(event_names[e]) != n || memcmp(s, event_names[e], n) != 0))
            e++;
        if (e == N_EVENTS)
            return kvf_fail(d, KVF_E_ARG,
                            "--event is ever-again, at-age, no-exit, a list of them, "
                            "or all, not '%s'",
                            list);
        p->event[e] = true;
        s += n + (s[n] == ',');
    }
    if (!*list)
        return kvf_fail(d, KVF_E_ARG, "--event: name an event");
    for (int k = 0; k < p->n_horizons; k++) {
        if (p->event[AT_AGE] && !all && !power_of_two(p->horizon[k]))
            return kvf_fail(d, KVF_E_ARG,
                            "--event at-age is recorded at ages that are powers of "
                            "two, not at %lld",
                            (long long)p->horizon[k]);
    }
    return KVF_OK;
}

static int choose_horizons(const char *list, struct plan *p, struct kvf_diag *d)
{
    for (int64_t n = 1; !list && (n == 1 || n < p->T) && p->n_horizons < MAX_HORIZONS; n *= 4)
        p->horizon[p->n_horizons++] = n;
    for (const char *s = list ? list : ""; *s;) {
        char *end;
        long long n = strtoll(s, &end, 10);
        if (end == s || (*end && *end != ',') || n < 0 || n > INT32_MAX
            || p->n_horizons == MAX_HORIZONS)
            return kvf_fail(d, KVF_E_ARG,
                            "--horizon: '%s' is not a list of up to %d ages from 0 "
                            "to %d",
                            list, MAX_HORIZONS, INT32_MAX);
        for (int k = 0; k < p->n_horizons; k++)
            if (p->horizon[k] == n)
                return kvf_fail(d, KVF_E_ARG, "--horizon: %lld is given twice", n);
        p->horizon[p->n_horizons++] = n;
        s = end + (*end == ',');
    }
    return p->n_horizons ? KVF_OK : kvf_fail(d, KVF_E_ARG, "--horizon: name an age");
}

static int choose_columns(struct frame *f, const char *criterion, struct kvf_diag *d)
{
#define X(name) #name,
    static const char *const names[] = {KVF_CRITERIA_MAP(X)};
#undef X
    static const char *const family[] = {"last_selected", "selected_at", "first_unselected"};
    struct lacks l = {.n = 0};
    int c = 0;
    while (c < KVF_N_CRITERIA && strcmp(names[c], criterion) != 0)
        c++;
    if (c == KVF_N_CRITERIA)
        return kvf_fail(d, KVF_E_ARG,
                        "--criterion is one of top64 ... top512, mass.90 ... mass.99,"
                        " not '%s'",
                        criterion);
    int err = columns_find(f->t, "log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, &l, &f->column[COL_BETA],
                           d);
    for (int k = 0; !err && k < 3; k++) {
        char name[KVF_NAME_MAX];
        snprintf(name, sizeof name, "%s.%s", family[k], criterion);
        err = columns_find(f->t, name, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, &l,
                           &f->column[COL_LAST + k], d);
    }
    return columns_refuse(&l, NULL, err, d);
}

static void of_length(void *asked, int64_t T)
{
    struct options *o = asked;
    o->follow_up = lives_grace(o->follow_up, T);
    o->near = lives_grace(-1, T);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = &((struct state *)f->state)->plan;
    const struct options *o = f->options;
    *p = (struct plan){.column = f->column,
                       .each = o->group == 1,
                       .bins = (int)o->bins,
                       .budget = (int)o->budget,
                       .follow_up = lives_grace(o->follow_up, f->T),
                       .near = o->near ? o->near : lives_grace(-1, f->T),
                       .T = f->T,
                       .a = f->a,
                       .b = f->b};
    f->space = p->each ? KVF_SPACE_QUERY : KVF_SPACE_KV;
    int err = choose_horizons(o->horizon, p, d);
    err = err ? err : choose_events(o->event, p, d);
    if (!err && o->follow_up >= 0 && !p->event[EVER_AGAIN])
        err = kvf_fail(d, KVF_E_ARG, "--follow-up has an effect only with --event ever-again");
    return err ? err : choose_columns(f, o->criterion, d);
}

/* ---- the columns */

/* The gates of one KV head. No entry may be missing or evicted. */
static int read_gates(struct kvf_trace *t, const struct plan *p, int layer, int kv, float *out,
                      double *v, struct kvf_diag *d)
{
    const struct head h = {layer, kv, ""};
    int err = read_evict(t, p->column[COL_EVICT], &h, (uint32_t)p->T, v, d);
    for (int64_t i = 0; !err && i < p->T; i++)
        if (!(v[i] >= (double)p->T)) /* cut after the last query: all queries saw it */
            return kvf_fail(d, KVF_E_NOTFOUND,
                            "entry %lld of L%dK%d was evicted at step %.0f; "
                            "calibration needs a run that keeps all, also those outside --tokens, "
                            "because queries cannot select what was evicted: --method trimkv with "
                            "a --budget of all tokens",
                            (long long)i, layer, kv, v[i]);
    if (!err)
        err = kvf_read_f64(t, p->column[COL_BETA], layer, kv, 0, (uint32_t)p->T, v, d);
    for (int64_t i = 0; !err && i < p->T; i++) {
        if (!(v[i] <= 0)) /* true for NaN */
            return kvf_fail(d, KVF_E_FORMAT,
                            "log_beta of entry %lld of L%dK%d is %g, which is not "
                            "the logarithm of a retention",
                            (long long)i, layer, kv, v[i]);
        out[i] = (float)v[i] + 0.0f;
    }
    return err;
}

/* Adds a query head: the event of its KV head is that of any of its group. */
static int read_query(struct kvf_trace *t, const struct plan *p, const struct data *x, int layer,
                      int g, int64_t base, double *v, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int c = COL_LAST; !err && c < N_COLUMNS; c++) {
        err = kvf_read_f64(t, p->column[c], layer, g, 0, (uint32_t)p->T, v, d);
        for (int64_t i = 0; !err && i < p->T; i++) {
            int64_t k = base + i;
            int32_t never = c == COL_FIRST ? INT32_MAX : -1; /* later than any age, or earlier */
            int32_t age = v[i] >= 0 && v[i] < INT32_MAX ? (int32_t)v[i] : never;
            int32_t *most = c == COL_FIRST ? &x->first[k] : &x->last[k];
            if (!(v[i] >= (c == COL_AT ? 0 : -1) && v[i] <= UINT32_MAX))
                return kvf_fail(d, KVF_E_FORMAT, "L%dH%d has no %s of entry %lld", layer, g,
                                kvf_column(t, p->column[c])->name, (long long)i);
            if (c == COL_AT)
                x->at[k] |= (uint32_t)(int64_t)v[i];
            else
                *most = age > *most ? age : *most;
        }
    }
    return err;
}

static int by_beta(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->log_beta != y->log_beta)
        return x->log_beta < y->log_beta ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static void thread(struct frame *f, void *scratch)
{
    ((struct scratch *)scratch)->v = FRAME_NEW(f, double, (size_t)f->T);
}

static int head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct plan *p = &((const struct state *)f->state)->plan;
    const struct data *x = &((const struct state *)f->state)->data;
    double *v = ((struct scratch *)y->scratch)->v;
    int l = y->head->layer, index = y->head->index, H = kvf_n_heads(y->t, l, KVF_SPACE_KV);
    int share = H ? kvf_n_heads(y->t, l, KVF_SPACE_QUERY) / H : 0;
    int kv = p->each && share ? index / share : index;
    int64_t base = y->h * p->T, m = p->b - p->a;
    if (share < 1 || kv >= H)
        return kvf_fail(d, KVF_E_FORMAT, "layer %d has fewer query heads than KV heads", l);
    int err = read_gates(y->t, p, l, kv, x->log_beta + base, v, d);
    for (int64_t i = 0; i < p->T; i++)
        x->last[base + i] = x->first[base + i] = -1;
    for (int g = 0; !err && g < (p->each ? 1 : share); g++)
        err = read_query(y->t, p, x, l, p->each ? index : kv * share + g, base, v, d);
    struct item *item = x->item + y->h * m;
    for (int64_t i = 0; !err && i < m; i++)
        item[i] = (struct item){x->log_beta[base + p->a + i], (uint32_t)(base + p->a + i)};
    if (!err && m)
        qsort(item, (size_t)m, sizeof *item, by_beta);
    return err;
}

/* ---- predictions against events */

static bool happened(const struct data *x, int event, int64_t n, uint32_t at)
{
    if (event == AT_AGE) {
        for (int k = 0; k < 32; k++)
            if ((int64_t)1 << k == n)
                return x->at[at] >> k & 1;
        return false;
    }
    return event == EVER_AGAIN ? x->last[at] >= n : x->first[at] > n;
}

/* True if the text after token i is long enough. */
static bool followed(const struct plan *p, int event, int64_t n, int64_t i)
{
    return i + n + (event == EVER_AGAIN ? p->follow_up : 0) < p->T;
}

struct pairs { /* of a token with the event and one without, of one head; wins: as in judge */
    int64_t n, wins;
};
/* Adds the pairs of tokens born less than p->near steps apart, of the head at x[base]. */
static void add_near(const struct plan *p, const struct data *x, int64_t base, int event,
                     int64_t horizon, struct pairs *out)
{
    for (int64_t i = p->a; i < p->b && followed(p, event, horizon, i); i++) {
        bool yes = happened(x, event, horizon, (uint32_t)(base + i));
        float mine = x->log_beta[base + i];
        for (int64_t j = i - p->near + 1 > p->a ? i - p->near + 1 : p->a; j < i; j++) {
            float other = x->log_beta[base + j];
            if (happened(x, event, horizon, (uint32_t)(base + j)) == yes)
                continue;
            out->n++;
            out->wins += horizon == 0 || mine == other ? 1 : 2 * ((mine > other) == yes);
        }
    }
}

/* AUROC of the birth step only, early before late: of tokens of all heads at hand, by position. */
static double early_auroc(const struct plan *p, const int64_t *yes, const int64_t *no)
{
    int64_t wins = 0, all_yes = 0, no_later = 0;
    for (int64_t i = p->b - 1; i >= p->a; i--) {
        wins += yes[i] * (2 * no_later + no[i]);
        no_later += no[i];
        all_yes += yes[i];
    }
    return all_yes && no_later ? (double)wins / 2 / (double)all_yes / (double)no_later : NAN;
}

struct room {                      /* of judge */
    struct calibration_tally *bin; /* [bins] */
    int64_t *yes, *no;             /* [T] tokens born there with and without the event */
};

/* bin: [n_bins + 1], the total last. */
static struct calibration_score total_score(const struct calibration_cell *bin, int n_bins,
                                            int64_t wins)
{
    struct sum ece = {0, 0};
    int64_t n = bin[n_bins].n, yes = bin[n_bins].yes, no = n - yes;
    for (int k = 0; k < n_bins; k++)
        if (bin[k].n)
            sum_add(&ece, (double)bin[k].n
                              * fabs((double)bin[k].yes / (double)bin[k].n - bin[k].predicted));
    return (struct calibration_score){
        .auroc = no && yes ? (double)wins / 2 / (double)no / (double)yes : NAN,
        .ece = n ? sum_get(&ece) / (double)n : NAN};
}

/* Bins and total of n items in rising log beta, of one head or all, into c[0] .. c[bins]
 * and *score.  wins: twice the pairs of an event and no event in which the event has
 * the larger beta, ties once. */
static void judge(const struct plan *p, const struct data *x, const struct item *item, int64_t n,
                  int event, int64_t horizon, const struct room *room, struct calibration_cell *c,
                  struct calibration_score *score)
{
    struct calibration_tally *bin = room->bin;
    struct calibration_tally total = {0};
    int64_t wins = 0, no_below = 0, yes_tied = 0, no_tied = 0;
    float key = 1;
    memset(bin, 0, (size_t)p->bins * sizeof *bin);
    memset(room->yes, 0, (size_t)p->T * sizeof *room->yes);
    memset(room->no, 0, (size_t)p->T * sizeof *room->no);
    for (int64_t k = 0; k < n; k++) {
        float lb = horizon ? item[k].log_beta : 0;
        int64_t born = (int64_t)(item[k].at % (uint64_t)p->T);
        if (!followed(p, event, horizon, born))
            continue;
        bool yes = happened(x, event, horizon, item[k].at);
        double predicted = horizon ? exp((double)horizon * (double)lb) : 1;
        int at = (int)(predicted * p->bins);
        if (lb != key) {
            wins += yes_tied * (2 * no_below + no_tied);
            no_below += no_tied;
            yes_tied = no_tied = 0;
            key = lb;
        }
        yes_tied += yes;
        no_tied += !yes;
        (yes ? room->yes : room->no)[born]++;
        calibration_count(&bin[at < p->bins ? at : p->bins - 1], predicted, yes);
        calibration_count(&total, predicted, yes);
    }
    wins += yes_tied * (2 * no_below + no_tied);
    for (int k = 0; k < p->bins; k++)
        calibration_put(&c[k], &bin[k]);
    calibration_put(&c[p->bins], &total);
    *score = total_score(c, p->bins, wins);
    score->early = early_auroc(p, room->yes, room->no);
}

/* ---- the table */

static struct calibration_score rank_score(const struct rank_quality *q, int score)
{
    const struct rank_mean *m = &q->of[score];
    return (struct calibration_score){
        q->evictions, m->n_auroc,
        m->n_tau,     m->n_auroc ? sum_get(&m->auroc) / (double)m->n_auroc : NAN,
        NAN,          m->n_tau ? sum_get(&m->tau) / (double)m->n_tau : NAN};
}

/* Events by horizons at which they are defined. */
static struct calibration_found shape_of(const struct plan *p, int n_heads)
{
    struct calibration_found x = {.n_blocks = n_heads + 1, .bins = p->bins};
    for (int e = 0; e < N_EVENTS; e++)
        for (int k = 0; p->event[e] && k < p->n_horizons; k++)
            if (e != AT_AGE || power_of_two(p->horizon[k]))
                x.pair[x.n_pairs++] = (struct calibration_pair){event_names[e], p->horizon[k]};
    return x;
}

/* Block b: a head, or all of them. */
static void put_block(const struct plan *p, const struct data *x, const struct item *item,
                      int64_t n, const struct rank_quality *q, const struct room *room,
                      const struct pairs *near, struct calibration_found *found, int b)
{
    int pairs = found->n_pairs;
    struct calibration_score *score = found->score + b * (int64_t)(pairs + N_RANK_SCORES);
    struct calibration_cell *cell = found->cell + b * (int64_t)pairs * (p->bins + 1);
    for (int e = 0, k = 0; e < N_EVENTS; e++)
        for (; k < pairs && found->pair[k].event == event_names[e]; k++, cell += p->bins + 1)
            judge(p, x, item, n, e, found->pair[k].horizon, room, cell, &score[k]);
    for (int k = 0; k < pairs; k++)
        score[k].near = near[k].n ? (double)near[k].wins / 2 / (double)near[k].n : NAN;
    for (int k = 0; k < N_RANK_SCORES; k++)
        score[pairs + k] = rank_score(q, k);
}

/* Pairs of a head for each event and horizon; they are also added to the sums over all heads. */
static void find_near(const struct plan *p, const struct data *x, int64_t base,
                      const struct calibration_found *found, struct pairs *mine, struct pairs *all)
{
    for (int e = 0, k = 0; e < N_EVENTS; e++)
        for (; k < found->n_pairs && found->pair[k].event == event_names[e]; k++) {
            mine[k] = (struct pairs){0, 0};
            add_near(p, x, base, e, found->pair[k].horizon, &mine[k]);
            all[k].n += mine[k].n;
            all[k].wins += mine[k].wins;
        }
}

static int fill(const struct head_list *heads, const struct plan *p, const struct data *x,
                struct calibration_found *found)
{
    struct rank_quality all = {0};
    struct pairs near[CALIBRATION_PAIRS], near_all[CALIBRATION_PAIRS] = {{0, 0}};
    struct room room = {MEM_NEW(struct calibration_tally, (size_t)p->bins),
                        MEM_NEW(int64_t, (size_t)p->T), MEM_NEW(int64_t, (size_t)p->T)};
    int64_t m = p->b - p->a;
    int err = room.bin && room.yes && room.no ? KVF_OK : KVF_E_NOMEM;
    for (int h = 0; !err && h < heads->n; h++) {
        const struct head *y = &heads->head[h];
        struct rank_quality mine = {0};
        struct rank_head in = {x->log_beta + h * p->T, x->last + h * p->T, p->T, y->layer,
                               y->index};
        err = rank_quality_add(&in, p->budget, p->a, p->b, &mine, &all);
        find_near(p, x, h * p->T, found, near, near_all);
        if (!err)
            put_block(p, x, x->item + h * m, m, &mine, &room, near, found, h);
    }
    if (!err)
        put_block(p, x, x->pool, m * heads->n, &all, &room, near_all, found, heads->n);
    mem_free_all(room.bin, room.yes, room.no);
    return err;
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    struct state *x = f->state;
    size_t n = (size_t)f->heads.n * (size_t)(f->b - f->a);
    const struct calibration_found shape = shape_of(&x->plan, f->heads.n);
    (void)d;
    if (n) {
        memcpy(x->data.pool, x->data.item, n * sizeof *x->data.pool);
        qsort(x->data.pool, n, sizeof *x->data.pool, by_beta);
    }
    int err = calibration_found_create(&shape, &x->found);
    return err || !f->T ? err : fill(&f->heads, &x->plan, &x->data, x->found);
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    struct state *x = f->state;
    struct calibration_found *found = x->found;
    (void)d;
    put_tokens(out, f->a, f->b, f->T);
    table_meta_str(out, "criterion", ((const struct options *)f->options)->criterion);
    table_meta_str(out, "group", x->plan.each ? "each query head" : "any query head of the group");
    table_meta_num(out, "rank_budget", x->plan.budget);
    table_meta_num(out, "follow_up", (double)x->plan.follow_up);
    table_meta_num(out, "near", (double)x->plan.near);
    x->found = NULL;
    return calibration_columns(out, &f->heads, found);
}

static void close(struct frame *f)
{
    calibration_found_destroy(((struct state *)f->state)->found);
}

/* Before anything is read: bins times horizons times heads can be any number. */
static int check_rows(const struct plan *p, int n_heads, struct kvf_diag *d)
{
    const struct calibration_found shape = shape_of(p, n_heads);
    int64_t rows = shape.n_blocks * calibration_rows(&shape);
    if ((uint64_t)n_heads * (uint64_t)p->T > UINT32_MAX)
        return kvf_fail(d, KVF_E_LIMIT, "too many entries for one table; choose heads with --head");
    if (rows <= MOST_ROWS)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "%d bins for each of %d pairs of an event and a horizon in %d "
                    "heads make %lld rows, more than %d: ask for fewer bins, horizons or heads "
                    "(--head)",
                    p->bins, shape.n_pairs, n_heads, (long long)rows, MOST_ROWS);
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    const struct plan *p = &((struct state *)f->state)->plan;
    struct data *x = &((struct state *)f->state)->data;
    const struct calibration_found shape = shape_of(p, f->heads.n);
    size_t n = (size_t)f->heads.n * (size_t)p->T, m = (size_t)f->heads.n * (size_t)(p->b - p->a);
    f->n_rows = p->T ? shape.n_blocks * calibration_rows(&shape) : 0;
    x->log_beta = FRAME_NEW(f, float, n);
    x->last = FRAME_NEW(f, int32_t, n);
    x->first = FRAME_NEW(f, int32_t, n);
    x->at = FRAME_NEW(f, uint32_t, n);
    x->item = FRAME_NEW(f, struct item, m);
    x->pool = FRAME_NEW(f, struct item, m);
    return check_rows(p, f->heads.n, d);
}

const struct analyzer an_calibration = {
    .name = "calibration",
    .summary = "calibration of retention gates against the later use of tokens",
    .example = "kvfate retention --as calibration run.kvf -o calibration.png",
    OPTIONS({OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
             "top64 ... top512, mass.90 ... mass.99", "top64"},
            {OPT_WORD, 0, "group", offsetof(struct options, group), "G",
             "events: of a KV head, the events of any of its query heads; or of each query head",
             "any", .words = groups},
            {OPT_STR, 0, "event", offsetof(struct options, event), "LIST",
             "ever-again, at-age, no-exit, a list, or all", "all"},
            {OPT_STR, 0, "horizon", offsetof(struct options, horizon), "LIST",
             "at most 16 ages, each once", .absent = "1, 4, 16, ... below T"},
            {OPT_INT, 0, "bins", offsetof(struct options, bins), "N",
             "bins of the predicted probability, of equal width", "10", .min = 1, .max = MOST_BINS},
            {OPT_INT, 0, "budget", offsetof(struct options, budget), "B",
             "entries cached where the ranking is judged", "64", .min = 1, .max = RANK_MOST_BUDGET},
            {OPT_INT, 0, "follow-up", offsetof(struct options, follow_up), "W",
             "ever-again: only tokens with W queries or more after the horizon", "-1",
             .absent = "64, or T / 4 if less", .max = INT32_MAX}),
    COLUMNS([COL_EVICT] = COLUMN_EVICT_STEP,
            [COL_BETA] = {"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "always"},
            [COL_LAST] = {"last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,
                          "always, of --criterion"},
            [COL_AT] = {"selected_at.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,
                        "always, of --criterion"},
            [COL_FIRST] = {"first_unselected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,
                           "always, of --criterion"}),
    HEADS(FRAME_USUAL(struct state, struct scratch), .finish = finish, .close = close),
    .describe = calibration_describe,
    .of_length = of_length,
    POOL(KEYS("head", "layer", "index", "kind", "event", "score", "horizon", "bin"),
         {"observed", "yes", "n"}, {"predicted", NULL, "n"}, {"brier", NULL, "n"}, {"auroc"},
         {"tau"}, {"auroc_early"}, {"auroc_near"}),
};
