/* an_hazard.c - the risk that a selection at age a is a token's last: hazard by bins of age, and
 * the Kaplan-Meier estimate of survival.  Both censor a token at the age from which its text is too
 * short to decide.
 *
 * lives.h defines deaths and censoring, base/product_limit.h the estimate of survival.  Rows end
 * with the last age that --at-least tokens could show. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/life.h"

enum { MAX_BINS = 256 };
struct options {
    struct life_options life;
    const char *bins;
};

struct state {
    struct life life;
    int64_t T;
    int64_t edge[MAX_BINS + 2], last_high; /* bins [edge[k], edge[k + 1]), the last to last_high */
    int n_bins;
};

struct row {
    struct life_row of;
    int64_t low, high, at_risk, events, censored, exposure;
    double hazard, actuarial, survival, survival_low, survival_high;
};

struct estimate {  /* of a thread, [T + 2] cells each */
    double *S, *G; /* base/product_limit.h */
    int64_t *risk; /* at risk */
};

/* ---- options */

/* -1 is the bin of tokens that not even the query of their birth selected. */
static int choose_bins(const char *list, struct state *p, struct kvf_diag *d)
{
    int n = 0, err = KVF_OK;
    p->edge[0] = -1;
    p->last_high = -1;
    if (list)
        err = numbers_parse("bins", list, true, MAX_BINS, p->edge + 1, &n, d);
    for (int64_t x = 0; !list && (x == 0 || x < p->T); x = x ? 2 * x : 1) {
        p->edge[++n] = x;
        p->last_high = x ? 2 * x : 1;
    }
    p->n_bins = n + 1;
    return err;
}

static void rows_of(const struct frame *f, int item, int h, const void *counts, void *room);

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct state *p = f->state;
    const struct options *o = f->options;
    p->T = f->T;
    int err = life_choose(f, &o->life, &p->life, d);
    if (!err)
        selection_recorded(f, o->life.selection.criterion, &p->life.of);
    if (!err)
        err = life_event_columns(f, &p->life, d);
    return err ? err : choose_bins(o->bins, p, d);
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct state *p = f->state;
    (void)d;
    p->life.counts = &life_lives;
    p->life.rows_of = rows_of;
    p->life.room = sizeof(struct estimate);
    return life_prepare(f, p->T ? p->life.of.n_criteria : 0, p->n_bins);
}

/* ---- estimates */

static void put_survival(const struct estimate *e, int64_t cell, struct row *r)
{
    r->survival = e->S[cell];
    product_limit_interval(e->S[cell], e->G[cell], cell ? e->risk[cell - 1] : 0, &r->survival_low,
                           &r->survival_high);
}

/* The counts of a bin from the age of cell k to that of cell stop - 1; estimates
 * where the bin begins at an age that enough tokens could show. */
static void put_bin(const int64_t *died, const struct estimate *e, int64_t k, int64_t stop,
                    bool enough, struct row *r)
{
    r->at_risk = e->risk[k];
    for (int64_t x = k; x < stop; x++) {
        r->exposure += e->risk[x];
        r->events += died[x];
    }
    r->censored = r->at_risk - e->risk[stop] - r->events;
    if (!enough)
        return;
    /* A censored token counts as one half. */
    double half = (double)r->at_risk - (double)r->censored / 2;
    put_survival(e, k, r);
    if (r->exposure)
        r->hazard = (double)r->events / (double)r->exposure;
    if (r->at_risk)
        r->actuarial = (double)r->events / half;
}

/* Rows of a head, or of all of them (h = f->heads.n). */
static void rows_of(const struct frame *f, int item, int h, const void *counts, void *room)
{
    const struct state *p = f->state;
    const struct lives *c = counts;
    struct estimate *e = room;
    struct row *r = life_rows_at(f, item, h);
    for (int g = 0; g < p->life.of.groups.n; g++) {
        const int64_t *died = c->died + g * (p->T + 1), *cut = c->censored + g * (p->T + 1);
        int64_t end = lives_end(life_plan(f, item), g, p->T, p->life.at_least);
        product_limit(died, cut, p->T + 1, e->S, e->G);
        e->risk[p->T + 1] = 0;
        for (int64_t k = p->T; k >= 0; k--)
            e->risk[k] = e->risk[k + 1] + died[k] + cut[k];
        for (int k = 0; k < p->n_bins; k++, r++) {
            int64_t low = p->edge[k], high = k + 1 < p->n_bins ? p->edge[k + 1] : p->last_high;
            if (k == 0)
                high = 0;
            *r = (struct row){.of = life_row_of(f, item, h, g),
                              .low = low,
                              .high = high,
                              .hazard = NAN,
                              .actuarial = NAN,
                              .survival = NAN,
                              .survival_low = NAN,
                              .survival_high = NAN};
            int64_t stop = high < 0 || high > p->T ? p->T + 1 : high + 1;
            if (low < p->T)
                put_bin(died, e, low + 1, stop, low <= end, r);
        }
    }
}

static void thread(struct frame *f, void *scratch)
{
    size_t n = (size_t)f->T + 2;
    struct estimate *e = life_room(f, scratch);
    if (e)
        *e = (struct estimate){FRAME_NEW(f, double, n), FRAME_NEW(f, double, n),
                               FRAME_NEW(f, int64_t, n)};
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    LIFE_ROW_MEMBERS,
    {"low", "step", TABLE_INT, AT(low)},
    {"high", "step", TABLE_INT, AT(high)},
    {"at_risk", "", TABLE_INT, AT(at_risk)},
    {"events", "", TABLE_INT, AT(events)},
    {"censored", "", TABLE_INT, AT(censored)},
    {"exposure", "step", TABLE_INT, AT(exposure)},
    {"hazard", "1/step", TABLE_REAL, AT(hazard)},
    {"actuarial", "", TABLE_REAL, AT(actuarial)},
    {"survival", "", TABLE_REAL, AT(survival)},
    {"survival_low", "", TABLE_REAL, AT(survival_low)},
    {"survival_high", "", TABLE_REAL, AT(survival_high)},
};

static void describe(const struct table *t, struct buf *out)
{
    const char *current = "";
    if (table_rows(t) == 0)
        buf_str(out, "no tokens\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *name = table_row_str(t, r, "criterion");
        int64_t low = table_row_int(t, r, "low");
        int64_t risk = table_row_int(t, r, "at_risk");
        if (!life_row_is_all(t, r))
            continue;
        if (strcmp(current, name) != 0)
            buf_printf(out, "%s: risk per step %s, by age\n", name,
                       strcmp(name, "held") == 0 ? "of being evicted"
                                                 : "that a selection is the last");
        current = name;
        if (low >= 0 && risk)
            buf_printf(out, "  from %-6lld %8.5f  (%lld at risk, survival %.4f)\n", (long long)low,
                       table_row_real(t, r, "hazard"), (long long)risk,
                       table_row_real(t, r, "survival"));
    }
}

const struct analyzer an_hazard = {
    .name = "hazard",
    .summary = "hazard: probability that a selection at a given age is the last one",
    .example = "kvfate survival --as hazard run.kvf --criterion top64",
    OPTIONS(LIFE_OPTION_CRITERION(CRITERION_LIST, "all"),
            {OPT_STR, 0, "bins", offsetof(struct options, bins), "LIST", "ages at which bins begin",
             .absent = "0, 1, 2, 4, 8, ..."},
            LIFE_OPTION_GRACE, LIFE_OPTION_AT_LEAST("omit ages that fewer tokens could reach"),
            LIFE_OPTION_SPACE, LIFE_OPTION_GROUPS),
    COLUMNS(COLUMN_SELECTED,
            {"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--criterion held"}),
    HEADS(LIFE_ANALYSIS(struct state, life_put_metadata)),
    .of_length = life_of_length,
    .describe = describe,
    POOL(KEYS(LIFE_KEYS, "low", "high"), {"hazard", "events", "exposure"},
         {"survival", "events", "exposure", .product = true, .bins = true}),
};
