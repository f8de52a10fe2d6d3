/* an_block_exit.c - the probability that a token drops out of the selected set within b steps
 * (DBTrimKV, Theorem 3.3 and Assumption A.2): the exit probability epsilon of a block, the least of
 * all blocks of age, the geometric envelope (1 - epsilon)^-1 beta^n with beta = (1 - epsilon)^(1/b)
 * that the theorem draws from it, and by how much survival exceeds this. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/life.h"
#include "base/stats.h"

struct options {
    struct life_options life;
    const char *blocks;
};

struct state {
    struct life life;
    int64_t block[LIFE_MOST_PARTS];
};

struct room { /* of a thread, [T + 2] each */
    double *S, *G;
    int64_t *entered, *stayed;
};

struct share { /* of exits */
    double value, low, high;
};

struct row {
    struct life_row of;
    int64_t block, at_risk, exits, least_age, excess_age;
    struct share epsilon, beta, least;
    double amplitude, least_beta, excess;
};

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct state *x = f->state;
    const struct options *o = f->options;
    int n = 0, err = life_choose(f, &o->life, &x->life, d);
    if (!err)
        err = life_event_columns(f, &x->life, d);
    if (!err)
        err = numbers_parse("block", o->blocks, true, LIFE_MOST_PARTS, x->block, &n, d);
    if (!err && (n == 0 || x->block[0] == 0))
        err = kvf_fail(d, KVF_E_ARG, "--block: a block has one step or more, not '%s'", o->blocks);
    for (int k = 1; !err && k < n; k++)
        x->life.plan[k] = x->life.plan[0];
    x->life.n_parts = n;
    return err;
}

static void rows_of(const struct frame *f, int item, int h, const void *counts, void *room);

/* Edges 0, b, 2 b, ... of each block length. */
static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct state *x = f->state;
    (void)d;
    for (int k = 0; k < x->life.n_parts; k++) {
        int64_t b = x->block[k], n = f->T ? (f->T - 1) / b + 1 : 0;
        int64_t *edge = FRAME_NEW(f, int64_t, (size_t)n);
        if (!edge)
            return KVF_E_NOMEM;
        for (int64_t i = 0; i < n; i++)
            edge[i] = i * b;
        x->life.plan[k].edge = edge;
        x->life.plan[k].n_edges = (int)n;
    }
    x->life.counts = &life_lives;
    x->life.tells_event = true;
    x->life.rows_of = rows_of;
    x->life.room = sizeof(struct room);
    return life_prepare(f, f->T ? x->life.of.n_criteria * x->life.n_parts : 0, 1);
}

static void thread(struct frame *f, void *scratch)
{
    size_t n = (size_t)f->T + 2;
    struct room *r = life_room(f, scratch);
    if (r)
        *r = (struct room){FRAME_NEW(f, double, n), FRAME_NEW(f, double, n),
                           FRAME_NEW(f, int64_t, n), FRAME_NEW(f, int64_t, n)};
}

static struct share share_of(int64_t exits, int64_t at_risk)
{
    struct share s = {NAN, NAN, NAN};
    if (at_risk) {
        s.value = (double)exits / (double)at_risk;
        stats_wilson(exits, at_risk, &s.low, &s.high);
    }
    return s;
}

static double beta_of(double epsilon, int64_t block)
{
    return pow(1 - epsilon, 1 / (double)block);
}

/* Blocks with an end that enough tokens could show; the smallest among blocks that enough tokens
 * enter. */
static void put_blocks(const struct room *w, const struct lives_plan *p, int64_t end,
                       int64_t at_least, struct row *r)
{
    for (int k = 1; k < p->n_edges && p->edge[k] <= end; k++) {
        int64_t n = w->entered[k], exits = n - w->stayed[k];
        r->at_risk += n;
        r->exits += exits;
        struct share s = share_of(exits, n);
        if (n < at_least || s.value >= r->least.value)
            continue;
        r->least = s;
        r->least_age = p->edge[k - 1];
    }
    r->epsilon = share_of(r->exits, r->at_risk);
}

/* The most by which survival since age 0 is above the envelope. */
static void put_excess(const struct room *w, int64_t end, struct row *r)
{
    for (int64_t n = 1; n <= end && w->S[1] > 0; n++) {
        double over = w->S[n + 1] / w->S[1] - r->amplitude * pow(r->beta.value, (double)n);
        if (isnan(r->excess) ? !isnan(over) : over > r->excess) {
            r->excess = over;
            r->excess_age = n;
        }
    }
}

static void rows_of(const struct frame *f, int item, int h, const void *counts, void *room)
{
    const struct state *y = f->state;
    const struct life *life = &y->life;
    const struct lives_plan *p = life_plan(f, item);
    const struct lives *x = counts;
    const struct room *w = room;
    struct row *r = life_rows_at(f, item, h);
    for (int g = 0; g < life->of.groups.n; g++, r++) {
        int64_t at = g * (p->T + 1), end = lives_end(p, g, p->T, life->at_least);
        *r = (struct row){.of = life_row_of(f, item, h, g),
                          .block = y->block[item % life->n_parts],
                          .least_age = -1,
                          .excess_age = -1,
                          .least = {INFINITY, NAN, NAN},
                          .excess = NAN};
        product_limit(x->died + at, x->censored + at, p->T + 1, w->S, w->G);
        lives_steps(p, x, g, w->entered, w->stayed);
        put_blocks(w, p, end, life->at_least, r);
        if (r->least_age < 0)
            r->least.value = NAN;
        r->beta = (struct share){beta_of(r->epsilon.value, r->block),
                                 beta_of(r->epsilon.high, r->block),
                                 beta_of(r->epsilon.low, r->block)};
        r->amplitude = 1 / (1 - r->epsilon.value);
        r->least_beta = beta_of(r->least.value, r->block);
        put_excess(w, end, r);
    }
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    LIFE_ROW_MEMBERS,
    {"block", "step", TABLE_INT, AT(block)},
    {"at_risk", "", TABLE_INT, AT(at_risk)},
    {"exits", "", TABLE_INT, AT(exits)},
    {"epsilon", "", TABLE_REAL, AT(epsilon.value)},
    {"low", "", TABLE_REAL, AT(epsilon.low)},
    {"high", "", TABLE_REAL, AT(epsilon.high)},
    {"beta", "", TABLE_REAL, AT(beta.value)},
    {"beta_low", "", TABLE_REAL, AT(beta.low)},
    {"beta_high", "", TABLE_REAL, AT(beta.high)},
    {"amplitude", "", TABLE_REAL, AT(amplitude)},
    {"least", "", TABLE_REAL, AT(least.value)},
    {"least_low", "", TABLE_REAL, AT(least.low)},
    {"least_high", "", TABLE_REAL, AT(least.high)},
    {"least_age", "step", TABLE_INT, AT(least_age)},
    {"least_beta", "", TABLE_REAL, AT(least_beta)},
    {"excess", "", TABLE_REAL, AT(excess)},
    {"excess_age", "step", TABLE_INT, AT(excess_age)},
};

static void describe(const struct table *t, struct buf *out)
{
    if (table_rows(t) == 0)
        buf_str(out, "no tokens\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (!life_row_is_all(t, r))
            continue;
        buf_printf(out,
                   "%-8s block %-4lld exit %.5f (%.5f to %.5f), beta %.5f; least %.5f at age %lld; "
                   "survival above the envelope by %.3f at %lld\n",
                   table_row_str(t, r, "criterion"), (long long)table_row_int(t, r, "block"),
                   table_row_real(t, r, "epsilon"), table_row_real(t, r, "low"),
                   table_row_real(t, r, "high"), table_row_real(t, r, "beta"),
                   table_row_real(t, r, "least"), (long long)table_row_int(t, r, "least_age"),
                   table_row_real(t, r, "excess"), (long long)table_row_int(t, r, "excess_age"));
    }
}

const struct analyzer an_block_exit = {
    .name = "block-exit",
    .summary = "probability that a selected token is not selected any more after at most b steps",
    .example = "kvfate survival --as block-exit run.kvf --criterion top256",
    OPTIONS({OPT_GROUP, .offset = 0, .group = life_event_options},
            {OPT_STR, 0, "block", offsetof(struct options, blocks), "LIST",
             "lengths of blocks, rising", "1,16,64"}),
    COLUMNS(LIFE_EVENT_COLUMNS),
    HEADS(LIFE_ANALYSIS(struct state, life_put_metadata)),
    .of_length = life_of_length,
    .describe = describe,
    POOL(KEYS(LIFE_KEYS, "block"), {"epsilon", "exits", "at_risk"}, {"least"}, {"excess"}),
};
