/* an_decay.c - whether the use of tokens decays geometrically: the geometric law, the discrete
 * Weibull law and a power law (decay_law.h) of the lives of tokens that reach an age, side by
 * side, and the observed fraction (product_limit.h) at about ten ages per decade. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/decay_law.h"
#include "analyzers/life.h"
#include "base/product_limit.h"
#include "base/stats.h"

enum { GEOMETRIC, WEIBULL, POWER, N_LAWS, MAX_AGES = 128 };
static const char *const law_names[N_LAWS] = {"geometric", "weibull", "power"};

struct options {
    struct life_options life;
    int64_t from;
};

struct state {
    struct life life;
    int64_t from, age[MAX_AGES]; /* ages of the observed fraction, rising, from `from` on */
    int n_ages;
};

struct room { /* of a thread, [T + 2] each */
    int64_t *died, *left;
    double *log_b[N_LAWS];
    double *alive, *variance; /* observed fraction after m steps, and Greenwood's G */
};

struct row {
    struct life_row of;
    const char *law;
    int64_t age, tokens, events, best;
    double distance, scale, value, low, high, log_likelihood, aic, gain, gain_low, gain_high, p;
};

static void rows_of(const struct frame *f, int item, int h, const void *counts, void *room);

enum { FROM = 8 }; /* the default of --from */

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct state *x = f->state;
    const struct options *o = f->options;
    x->from = o->from;
    int err = life_choose(f, &o->life, &x->life, d);
    /* A corpus may have texts that are shorter than the default age: put_metadata() notes it. */
    if (!err && f->b > f->a && o->from != FROM && o->from >= f->T - f->a)
        err = kvf_fail(d, KVF_E_NOTFOUND,
                       "%s: no token reaches age %lld (--from); the oldest reaches age %lld",
                       kvf_path(f->t), (long long)o->from, (long long)(f->T - 1 - f->a));
    return err ? err : life_event_columns(f, &x->life, d);
}

static void choose_ages(struct state *x, int64_t T)
{
    int64_t before = -1;
    for (double age = 1; age < (double)T && x->n_ages < MAX_AGES; age *= 1.2589254117941673) {
        int64_t n = llround(age);
        if (n >= x->from && n < T && n != before)
            x->age[x->n_ages++] = n;
        before = n;
    }
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct life *x = f->state;
    (void)d;
    x->counts = &life_lives;
    x->tells_event = true;
    x->rows_of = rows_of;
    x->room = sizeof(struct room);
    choose_ages(f->state, f->T);
    return life_prepare(f, f->T ? x->of.n_criteria : 0,
                        N_LAWS + ((struct state *)f->state)->n_ages);
}

static void thread(struct frame *f, void *scratch)
{
    const struct state *x = f->state;
    size_t n = (size_t)f->T + 2;
    struct room *r = life_room(f, scratch);
    if (!r)
        return;
    r->died = FRAME_NEW(f, int64_t, n);
    r->left = FRAME_NEW(f, int64_t, n);
    r->alive = FRAME_NEW(f, double, n);
    r->variance = FRAME_NEW(f, double, n);
    for (int k = 0; k < N_LAWS; k++) {
        r->log_b[k] = FRAME_NEW(f, double, n);
        for (size_t m = 0; r->log_b[k] && m < n; m++)
            r->log_b[k][m] = log(k == POWER ? log1p((double)m / (double)(x->from + 1)) : (double)m);
    }
}

/* The lives that reach the age `from`, in steps from there on, up to age `end`, at which those are
 * cut short that go on. */
static struct decay_data lives_from(const struct lives *x, int64_t at, int64_t T, int64_t from,
                                    int64_t end, const struct room *w)
{
    int64_t n = end > from ? end - from : 0;
    memset(w->died, 0, (size_t)(n + 1) * sizeof *w->died);
    memset(w->left, 0, (size_t)(n + 1) * sizeof *w->left);
    for (int64_t k = from + 1; n && k <= T; k++) { /* died at age k - 1; censored at k */
        if (k - 1 < end)
            w->died[k - 1 - from] += x->died[at + k];
        else
            w->left[n] += x->died[at + k];
        w->left[k < end ? k - from : n] += x->censored[at + k];
    }
    return (struct decay_data){n, w->died, w->left};
}

/* By how much the law is more likely than the geometric one: nats per token, with the interval of a
 * mean over tokens.  Returns the share of the normal distribution beyond it (Vuong 1989). */
static double put_gain(const struct decay_data *x, const struct room *w,
                       const struct decay_fit *law, int which, const struct decay_fit *base,
                       struct row *r)
{
    double n = 0, sum = 0, squares = 0;
    for (int64_t m = 0; m <= x->n; m++) {
        const double died = m < x->n ? (double)x->died[m] : 0, left = (double)x->left[m];
        double by = died > 0 ? decay_law_died(law, w->log_b[which], m)
                                   - decay_law_died(base, w->log_b[GEOMETRIC], m)
                             : 0;
        double so = left > 0 ? decay_law_left(law, w->log_b[which], m)
                                   - decay_law_left(base, w->log_b[GEOMETRIC], m)
                             : 0;
        n += died + left;
        sum += died * by + left * so;
        squares += died * by * by + left * so * so;
    }
    double error = sqrt(fmax(squares / n - sum / n * (sum / n), 0) / n);
    r->gain = sum / n;
    r->gain_low = r->gain - STATS_Z975 * error;
    r->gain_high = r->gain + STATS_Z975 * error;
    return erfc(fabs(r->gain) / error / sqrt(2));
}

static void put_law(const struct decay_fit *fit, int which, struct row *r)
{
    bool weibull = which == WEIBULL;
    double log_value = log(weibull ? fit->shape : fit->lambda);
    double error = weibull ? fit->shape_error : fit->lambda_error;
    r->scale = fit->lambda;
    r->value = exp(log_value);
    r->low = exp(log_value - STATS_Z975 * error);
    r->high = exp(log_value + STATS_Z975 * error);
    if (which == GEOMETRIC) { /* the share that lives on for a step */
        double low = exp(-r->high);
        r->value = exp(-r->value);
        r->high = exp(-r->low);
        r->low = low;
    }
    r->log_likelihood = fit->log_likelihood;
    r->aic = 2 * (weibull ? 2 : 1) - 2 * fit->log_likelihood;
}

/* Returns the largest distance of a law from the observed fraction, which is known after 0 to x->n
 * steps. */
static double distance_of(const struct decay_data *x, const struct room *w,
                          const struct decay_fit *law, int which)
{
    double most = 0;
    for (int64_t m = 0; m <= x->n; m++)
        if (isfinite(w->alive[m]))
            most = fmax(most, fabs(exp(decay_law_left(law, w->log_b[which], m)) - w->alive[m]));
    return most;
}

/* Fills a row of the observed fraction of tokens still in use at an age, with its interval. */
static void put_observed(const struct state *y, const struct decay_data *x, const struct room *w,
                         int64_t age, struct row *r)
{
    int64_t m = age - y->from, risk = 0;
    r->law = "observed";
    r->age = age;
    if (m > x->n || !r->tokens)
        return;
    r->value = w->alive[m];
    for (int64_t k = m; k <= x->n; k++)
        risk += x->died[k] + x->left[k];
    if (m > 0)
        product_limit_interval(w->alive[m], w->variance[m], risk, &r->low, &r->high);
}

static void put_laws(const struct decay_data *x, const struct room *w, struct row *r)
{
    struct decay_fit fit[N_LAWS];
    int best = -1;
    for (int k = 0; k < N_LAWS; k++) {
        fit[k] = decay_law_fit(x, w->log_b[k], k == WEIBULL);
        if (!fit[k].known)
            continue;
        put_law(&fit[k], k, &r[k]);
        r[k].distance = distance_of(x, w, &fit[k], k);
        best = best < 0 || r[k].aic < r[best].aic ? k : best;
        if (k == GEOMETRIC || !fit[GEOMETRIC].known)
            continue;
        r[k].p = put_gain(x, w, &fit[k], k, &fit[GEOMETRIC], &r[k]);
        if (k == WEIBULL) /* of which geometric is a case: twice the gain has chi-square of 1 */
            r[k].p = erfc(sqrt(fmax(fit[k].log_likelihood - fit[GEOMETRIC].log_likelihood, 0)));
    }
    if (best >= 0)
        r[best].best = 1;
}

static void rows_of(const struct frame *f, int item, int h, const void *counts, void *room)
{
    const struct state *y = f->state;
    const struct lives_plan *p = life_plan(f, item);
    struct row *r = life_rows_at(f, item, h);
    const struct room *w = room;
    for (int g = 0; g < y->life.of.groups.n; g++, r += y->life.rows_per_class) {
        int64_t at = g * (p->T + 1), end = lives_end(p, g, p->T, y->life.at_least), events = 0;
        struct decay_data data = lives_from(counts, at, p->T, y->from, end, room);
        int64_t tokens = data.n ? data.left[data.n] : 0;
        for (int64_t m = 0; m < data.n; m++) {
            events += data.died[m];
            tokens += data.died[m] + data.left[m];
        }
        product_limit(data.died, data.left + 1, data.n, w->alive, w->variance);
        for (int k = 0; k < y->life.rows_per_class; k++) {
            r[k] = (struct row){.of = life_row_of(f, item, h, g),
                                .law = law_names[k < N_LAWS ? k : 0],
                                .age = y->from,
                                .tokens = tokens,
                                .events = events,
                                .distance = NAN,
                                .scale = NAN,
                                .value = NAN,
                                .low = NAN,
                                .high = NAN,
                                .log_likelihood = NAN,
                                .aic = NAN,
                                .gain = NAN,
                                .gain_low = NAN,
                                .gain_high = NAN,
                                .p = NAN};
            if (k >= N_LAWS)
                put_observed(y, &data, w, y->age[k - N_LAWS], &r[k]);
        }
        if (tokens)
            put_laws(&data, room, r);
    }
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    LIFE_ROW_MEMBERS,
    {"law", "", TABLE_STR, AT(law)},
    {"age", "step", TABLE_INT, AT(age)},
    {"tokens", "", TABLE_INT, AT(tokens)},
    {"events", "", TABLE_INT, AT(events)},
    {"scale", "", TABLE_REAL, AT(scale)},
    {"value", "", TABLE_REAL, AT(value)},
    {"low", "", TABLE_REAL, AT(low)},
    {"high", "", TABLE_REAL, AT(high)},
    {"log_likelihood", "nat", TABLE_REAL, AT(log_likelihood)},
    {"aic", "", TABLE_REAL, AT(aic)},
    {"best", "", TABLE_INT, AT(best)},
    {"gain", "nat", TABLE_REAL, AT(gain)},
    {"gain_low", "nat", TABLE_REAL, AT(gain_low)},
    {"gain_high", "nat", TABLE_REAL, AT(gain_high)},
    {"p", "", TABLE_REAL, AT(p)},
    {"distance", "", TABLE_REAL, AT(distance)},
};

static int put_metadata(struct frame *f, struct table *out, struct kvf_diag *d)
{
    int64_t from = ((const struct state *)f->state)->from;
    int err = life_put_metadata(f, out, d);
    char text[96];
    table_meta_num(out, "from", (double)from);
    snprintf(text, sizeof text, "no token reaches age %lld (--from): nothing can be fitted",
             (long long)from);
    if (f->b > f->a && from >= f->T - f->a)
        table_meta_str(out, "note", text);
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    static const char *const what[] = {"beta", "shape", "exponent"};
    if (table_rows(t) == 0)
        buf_str(out, "no tokens\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *law = table_row_str(t, r, "law");
        int k = 0;
        while (k < N_LAWS - 1 && strcmp(law, law_names[k]) != 0)
            k++;
        if (!life_row_is_all(t, r) || strcmp(law, "observed") == 0)
            continue;
        buf_printf(out, "%-8s %-9s %s %.5f (%.5f to %.5f), AIC %.1f",
                   table_row_str(t, r, "criterion"), law, what[k], table_row_real(t, r, "value"),
                   table_row_real(t, r, "low"), table_row_real(t, r, "high"),
                   table_row_real(t, r, "aic"));
        if (k)
            buf_printf(out, ", gain %+.5f (%+.5f to %+.5f) nats a token",
                       table_row_real(t, r, "gain"), table_row_real(t, r, "gain_low"),
                       table_row_real(t, r, "gain_high"));
        buf_printf(out, ", within %.3f of the observed fraction%s\n",
                   table_row_real(t, r, "distance"),
                   table_row_int(t, r, "best") ? ", the best" : "");
    }
}

const struct analyzer an_decay = {
    .name = "decay",
    .summary = "fit laws to the decay of token use: geometric, power law or others",
    .example = "kvfate survival --as decay run.kvf",
    OPTIONS({OPT_GROUP, .offset = 0, .group = life_event_options},
            {OPT_INT, 0, "from", offsetof(struct options, from), "A",
             "age from which lives are judged", "8", .max = INT32_MAX}),
    COLUMNS(LIFE_EVENT_COLUMNS),
    HEADS(LIFE_ANALYSIS(struct state, put_metadata)),
    .of_length = life_of_length,
    .describe = describe,
    POOL(KEYS(LIFE_KEYS, "law", "age"), {"gain"}, {"value"}, {"distance"}),
};
