/* options.c - "--method NAME:key=value,...": the numbers of a row, their ranges,
 * and what a budget makes of them. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "engine/method/state.h"

static const char *const pool_names[] = {"max", "avg", NULL};
static const char *const group_names[] = {"mean", "max", "sum", NULL};
static const char *const across_names[] = {"mean", "max", NULL};
static const char *const support_names[] = {"all", "candidates", NULL};

/* One key.  A word sets an int to its place in the list of names. */
struct option {
    const char *key;
    unsigned use; /* 0: every row that evicts */
    const char *const *names;
    bool real;
    double min, max;
    size_t at;
};

#define AT(field) offsetof(struct method_params, field)
static const struct option options[] = {
    {"sinks", 0, NULL, false, 0, 1 << 24, AT(sinks)},
    {"recent", 0, NULL, false, 0, 1 << 24, AT(recent)},
    {"every", 0, NULL, false, 1, 1 << 24, AT(every)},
    {"window", USES_WINDOW, NULL, false, 1, 4096, AT(window)},
    {"pool", USES_POOL, NULL, false, 1, 1023, AT(pool)},
    {"pool_kind", USES_POOL, pool_names, false, 0, 0, AT(pool_kind)},
    {"group", USES_GROUP, group_names, false, 0, 0, AT(group)},
    {"across", USES_ACROSS, across_names, false, 0, 0, AT(across)},
    {"support", USES_ACROSS, support_names, false, 0, 0, AT(support)},
    {"history", USES_HISTORY, NULL, true, 0, 1, AT(history)},
    {"lambda", USES_LAMBDA, NULL, true, 0, 1, AT(lambda)},
    {"gamma", USES_GAMMA, NULL, true, 0, 1e9, AT(gamma)},
    {"floor", USES_FLOOR, NULL, true, 0, 1, AT(floor)},
    {"beta", USES_BETA, NULL, true, 1, 1e9, AT(beta)},
    {"seed", USES_SEED, NULL, true, 0, 9007199254740992.0, AT(seed)}, /* stored as int64 */
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static int *int_at(struct method_params *p, const struct option *o)
{
    return (int *)(void *)((char *)p + o->at);
}

static double number_of(const struct method_params *p, const struct option *o)
{
    const char *at = (const char *)p + o->at;
    if (o->use == USES_SEED)
        return (double)p->seed;
    return o->real ? *(const double *)(const void *)at : *(const int *)(const void *)at;
}

const char *method_option(const struct method_params *p, int i, const char **ret_word,
                          double *ret_number)
{
    if (i >= N_OPTIONS)
        return NULL;
    *ret_number = number_of(p, &options[i]);
    *ret_word = options[i].names ? options[i].names[(int)*ret_number] : NULL;
    return options[i].key;
}

static unsigned uses_of(const struct method *m)
{
    return m->score->uses | m->allocation->uses;
}

/* "pool-kind" and "pool_kind" are the same key. */
static bool same_key(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '-' && *b == '_'))
            return false;
    return *a == *b;
}

static int unknown_option(const char *key, struct kvf_diag *d)
{
    char list[256] = "";
    size_t n = 0;
    for (int i = 0; i < N_OPTIONS && n < sizeof list - 32; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", options[i].key);
    return kvf_fail(d, KVF_E_ARG, "--method: unknown option '%s'; options are %s", key, list);
}

static int find_option(const struct method *m, const char *key, const struct option **ret,
                       struct kvf_diag *d)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!same_key(key, options[i].key))
            continue;
        if (!m->score || (options[i].use & ~uses_of(m)))
            return kvf_fail(d, KVF_E_ARG, "--method %s: %s would change nothing", m->name, key);
        *ret = &options[i];
        return KVF_OK;
    }
    return unknown_option(key, d);
}

static int bad_value(const char *key, const char *value, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG, "--method: '%s' is not a value for %s", value, key);
}

static int set_word(struct method_params *p, const struct option *o, const char *value,
                    struct kvf_diag *d)
{
    for (int i = 0; o->names[i]; i++)
        if (strcmp(value, o->names[i]) == 0)
            return *int_at(p, o) = i, KVF_OK;
    return bad_value(o->key, value, d);
}

/* Sets one number of the row. */
static int set_option(const struct method *m, struct method_params *p, const char *key,
                      const char *value, struct kvf_diag *d)
{
    const struct option *o = NULL;
    int64_t n = 0;
    double x = 0;
    int err = find_option(m, key, &o, d);
    if (err)
        return err;
    if (o->names)
        return set_word(p, o, value, d);
    bool whole = !o->real || o->use == USES_SEED;
    if (whole ? !opt_int(value, &n) : !opt_real(value, &x))
        return bad_value(key, value, d);
    if (whole)
        x = (double)n;
    if (x < o->min || x > o->max || (o->use == USES_POOL && n % 2 == 0))
        return bad_value(key, value, d); /* an even pool has no middle */
    if (o->use == USES_SEED)
        p->seed = n;
    else if (o->real)
        *(double *)(void *)((char *)p + o->at) = x;
    else
        *int_at(p, o) = (int)n;
    return KVF_OK;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Published numbers shrink with the budget: at most B / 4, at least 1. */
static int shrink(int published, int B)
{
    return least(published, B / 4 > 1 ? B / 4 : 1);
}

/* Before it gives way to sinks and every. */
static int derived_recent(const struct method *m, const struct method_params *p)
{
    int B = p->budget;
    return m->recent == RECENT_REST ? B - p->sinks
         : m->recent == RECENT_HALF ? B / 2
         : m->recent == RECENT_WINDOW ? p->window : m->recent > 0 ? shrink(m->recent, B) : 0;
}

/* By how much sinks, recent entries (or the newcomer alone) and the room for
 * `every` tokens exceed the budget. */
static int64_t excess(const struct method_params *p)
{
    return (int64_t)p->sinks + (p->recent > 1 ? p->recent : 1) + p->every - 1 - p->budget;
}

/* Fills what was not given, and checks that the budget can hold. */
static int resolve(const struct method *m, struct method_params *p, struct kvf_diag *d)
{
    int B = p->budget;
    if (!m->score) {
        p->sinks = p->recent = p->window = 0;
        p->every = 1;
        return KVF_OK;
    }
    if (p->window < 0)
        p->window = m->window ? shrink(m->window, B) : 0;
    if (p->sinks < 0)
        p->sinks = m->sinks ? least(m->sinks, B / 4) : 0;
    bool every_given = p->every >= 0, recent_given = p->recent >= 0;
    if (!every_given)
        p->every = m->every == EVERY_HALF ? (B > 1 ? B / 2 : 1)
                   : m->every             ? shrink(m->every, B)
                                          : 1;
    if (!recent_given)
        p->recent = derived_recent(m, p);
    if (!recent_given && excess(p) > 0) /* what is derived gives way */
        p->recent = p->recent > excess(p) ? p->recent - (int)excess(p) : 0;
    if (!every_given && excess(p) > 0)
        p->every = p->every > excess(p) ? p->every - (int)excess(p) : 1;
    if (excess(p) > 0)
        return kvf_fail(d, KVF_E_ARG, "--method: %d sinks, %d recent entries and cuts every %d do "
                        "not fit into --budget %d", p->sinks, p->recent, p->every, B);
    return KVF_OK;
}

int method_options_parse(const struct method *m, const char *text, int budget,
                         struct method_params *ret_params, struct kvf_diag *d)
{
    char key[64], value[64];
    struct method_params p = {
        .budget = m->score ? budget : 0, .sinks = -1, .recent = -1, .window = -1, .every = -1,
        .pool = m->pool, .pool_kind = m->pool_kind, .group = m->group, .across = m->across,
        .support = m->support, .history = m->history, .lambda = m->lambda, .gamma = m->gamma,
        .floor = m->floor, .beta = m->beta,
    };
    int more;
    while ((more = opt_pair(&text, key, value, sizeof key)) == 1) {
        int err = set_option(m, &p, key, value, d);
        if (err)
            return err;
    }
    if (more < 0)
        return kvf_fail(d, KVF_E_ARG, "--method %s: write options as key=value,key=value", m->name);
    int err = resolve(m, &p, d);
    if (!err)
        *ret_params = p;
    return err;
}
