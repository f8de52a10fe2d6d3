/* options.c - "--method NAME:key=value,...": the parts and numbers of a row and their
 * ranges.  What a budget makes of them: resolve.c. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "engine/method/parts.h"
#include "engine/method/state.h"

static const char *const pool_names[] = {"max", "avg", NULL};
static const char *const group_names[] = {"mean", "max", "sum", "none", NULL};
static const char *const across_names[] = {"mean", "max", NULL};
static const char *const support_names[] = {"all", "candidates", NULL};
static const char *const order_names[] = {"before", "after", NULL};
static const char *const position_names[] = {"original", "cache", NULL};
static const char *const tie_names[] = {"newer", "older", NULL};
static const char *const compare_names[] = {"ge", "gt", NULL};

/* One key.  A word sets an int to its place in the list of names. */
struct option {
    const char *key;
    unsigned use; /* USES_* of any part; 0: every row that evicts for its budget */
    const char *const *names;
    bool real;
    double min, max;
    size_t at;
    unsigned also; /* USES_* that make it count although nothing is scored */
};

#define AT(field) offsetof(struct method_params, field)
static const struct option options[] = {
    {"sinks", 0, NULL, false, 0, 1 << 24, AT(sinks), USES_SPANS},
    {"recent", 0, NULL, false, 0, 1 << 24, AT(recent), USES_SPANS},
    {"every", 0, NULL, false, 1, 1 << 24, AT(every), 0},
    {"order", 0, order_names, false, 0, 0, AT(order), 0},
    {"slack", 0, NULL, false, 0, 1 << 24, AT(slack), 0},
    {"chunk", 0, NULL, false, 0, 1 << 24, AT(chunk), 0},
    {"positions", 0, position_names, false, 0, 0, AT(positions), 0},
    {"tie", 0, tie_names, false, 0, 0, AT(tie), 0},
    {"window", USES_WINDOW, NULL, false, 1, 4096, AT(window), 0},
    {"pool", USES_POOL, NULL, false, 1, 1023, AT(pool), 0},
    {"pool_kind", USES_POOL, pool_names, false, 0, 0, AT(pool_kind), 0},
    {"group", USES_GROUP, group_names, false, 0, 0, AT(group), 0},
    {"across", USES_ACROSS, across_names, false, 0, 0, AT(across), 0},
    {"support", USES_ACROSS, support_names, false, 0, 0, AT(support), 0},
    {"offset", USES_RETENTION, NULL, false, 0, 3, AT(offset), 0},
    {"lookahead", USES_RETENTION, NULL, false, 1, 65536, AT(lookahead), 0},
    {"local", USES_LOCAL, NULL, false, 1, 1 << 24, AT(local), 0},
    {"compare", USES_TAU, compare_names, false, 0, 0, AT(compare), 0},
    {"horizon", USES_EXPECTED, NULL, false, 1, 65536, AT(horizon), 0},
    {"page", USES_PAGE, NULL, false, 1, 4096, AT(page), 0},
    {"dense", USES_PAGE, NULL, false, 0, 4096, AT(dense), 0},
    {"history", USES_HISTORY, NULL, true, 0, 1, AT(history), 0},
    {"lambda", USES_LAMBDA, NULL, true, 0, 1, AT(lambda), 0},
    {"gamma", USES_GAMMA, NULL, true, 0, 1e9, AT(gamma), 0},
    {"floor", USES_FLOOR, NULL, true, 0, 1, AT(floor), 0},
    {"beta", USES_BETA, NULL, true, 1, 1e9, AT(beta), 0},
    {"tau", USES_TAU, NULL, true, 0, 1, AT(tau), 0},
    {"fraction", USES_FRACTION, NULL, true, 0, 1, AT(fraction), 0},
    {"epsilon", USES_EXPECTED, NULL, true, 0, 1e9, AT(epsilon), 0},
    {"sparsity", USES_SPARSITY, NULL, true, 0, 1, AT(sparsity), 0},
    {"seed", USES_SEED, NULL, true, 0, 9007199254740992.0, AT(seed), 0}, /* kept as int64 */
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
    unsigned shared = m->allocation->uses;
    if (m->trigger->rounds) /* every head drops a fraction, whatever the others hold */
        shared &= ~(unsigned)USES_FLOOR;
    return (m->score ? m->score->uses : 0) | shared | m->admission->uses | m->trigger->uses
           | m->read->uses;
}

static bool counts(const struct method *m, const struct option *o)
{
    if (o->use)
        return o->use & uses_of(m);
    return m->score || o->also & uses_of(m);
}

bool method_option_info(const struct method *m, const struct method_params *p, int i,
                        struct option_info *ret)
{
    struct option_info info = {0};
    info.key = method_option(p, i, &info.word, &info.number);
    if (!info.key)
        return false;
    const struct option *o = &options[i];
    info.counts = counts(m, o);
    info.words = o->names;
    info.whole = !o->names && (!o->real || o->use == USES_SEED);
    info.min = o->min;
    info.max = o->max;
    *ret = info;
    return true;
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
    char list[400] = "score, allocation, read, variant, budget";
    size_t n = strlen(list);
    for (int i = 0; i < N_OPTIONS && n < sizeof list - 32; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, ", %s", options[i].key);
    return kvf_fail(d, KVF_E_ARG, "--method: unknown option '%s'; options are %s", key, list);
}

static int find_option(const struct method *m, const char *key, const struct option **ret,
                       struct kvf_diag *d)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!same_key(key, options[i].key))
            continue;
        if (!counts(m, &options[i]))
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
    bool out = whole ? n < (int64_t)o->min || n > (int64_t)o->max : x < o->min || x > o->max;
    if (out || (strcmp(o->key, "pool") == 0 && n % 2 == 0))
        return bad_value(key, value, d); /* an even pool has no middle */
    if (o->use == USES_SEED)
        p->seed = n;
    else if (o->real)
        *(double *)(void *)((char *)p + o->at) = x;
    else
        *int_at(p, o) = (int)n;
    return KVF_OK;
}

/* Numbers that a new score or allocation needs and the row does not have. */
static void fill_defaults(struct method *m)
{
    if (m->score && m->score->uses & USES_WINDOW && m->window == 0)
        m->window = 32;
    if (m->score && m->score->uses & USES_EXPECTED && m->horizon == 0)
        m->horizon = 512;
    if (m->allocation->uses & USES_BETA && m->beta < 1)
        m->beta = 20;
    if (m->page == 0)
        m->page = m->read->shared ? 64 : 16;
    if (m->lookahead == 0)
        m->lookahead = 1;
}

static int no_part(const char *key, const char *value, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG, "--method: no %s '%s'; docs/reference/methods.md lists the parts",
                    key, value);
}

static int set_score(struct method *m, const char *value, struct kvf_diag *d)
{
    for (int i = 0; score_table[i]; i++)
        if (strcmp(score_table[i]->name, value) == 0) {
            if (!m->score)
                return kvf_fail(d, KVF_E_ARG, "--method %s: score would change nothing", m->name);
            m->score = score_table[i];
            m->reason = KVF_REASON_BUDGET;
            return KVF_OK;
        }
    return no_part("score", value, d);
}

/* One of the keys that come before all others: parts, variant, budget.  *ret: whether
 * it was one. */
static int set_part(struct method *m, const char *key, const char *value, const char **ret_code,
                    int *ret_budget, bool *ret, struct kvf_diag *d)
{
    int64_t n;
    *ret = true;
    if (strcmp(key, "score") == 0)
        return set_score(m, value, d);
    if (strcmp(key, "allocation") == 0) {
        for (int i = 0; allocation_table[i]; i++)
            if (strcmp(allocation_table[i]->name, value) == 0)
                return m->allocation = allocation_table[i], KVF_OK;
        return no_part(key, value, d);
    }
    if (strcmp(key, "read") == 0) {
        for (int i = 0; read_table[i]; i++)
            if (strcmp(read_table[i]->name, value) == 0)
                return m->read = read_table[i], KVF_OK;
        return no_part(key, value, d);
    }
    if (strcmp(key, "budget") == 0) {
        if (!opt_int(value, &n) || n < 1 || n > 1 << 24)
            return bad_value(key, value, d);
        return *ret_budget = (int)n, KVF_OK;
    }
    if (strcmp(key, "variant") == 0) {
        if (strcmp(value, "paper") != 0 && strcmp(value, "code") != 0)
            return bad_value(key, value, d);
        *ret_code = value[0] == 'c' ? (m->code ? m->code : "") : NULL;
        return KVF_OK;
    }
    *ret = false;
    return KVF_OK;
}

/* All options of text; parts: only those of set_part, else only the others. */
static int take_options(struct method *m, struct method_params *p, const char *text, bool parts,
                        const char **ret_code, struct kvf_diag *d)
{
    char key[64], value[64];
    int more;
    while ((more = opt_pair(&text, key, value, sizeof key)) == 1) {
        const char *code = NULL;
        struct method trial = *m;
        int budget = p->budget;
        bool part;
        int err = set_part(&trial, key, value, &code, &budget, &part, d);
        if (!err && !part && !parts)
            err = set_option(m, p, key, value, d);
        if (err)
            return err;
        if (part && parts) {
            *m = trial;
            p->budget = budget;
            if (strcmp(key, "variant") == 0)
                *ret_code = code;
        }
    }
    if (more < 0)
        return kvf_fail(d, KVF_E_ARG, "--method %s: write options as key=value,key=value", m->name);
    return KVF_OK;
}

int method_options_parse(struct method *m, const char *text, int budget,
                         struct method_params *ret_params, struct kvf_diag *d)
{
    struct method_params p = {.budget = budget};
    const char *code = NULL;
    int err = take_options(m, &p, text, true, &code, d);
    if (err)
        return err;
    fill_defaults(m);
    p = (struct method_params){
        .budget = p.budget,
        .sinks = -1,
        .recent = -1,
        .window = -1,
        .every = -1,
        .local = -1,
        .pool = m->pool,
        .pool_kind = m->pool_kind,
        .group = m->group,
        .across = m->across,
        .support = m->support,
        .chunk = m->chunk,
        .positions = m->positions,
        .offset = m->offset,
        .lookahead = m->lookahead,
        .horizon = m->horizon,
        .page = m->page,
        .dense = m->dense,
        .history = m->history,
        .lambda = m->lambda,
        .gamma = m->gamma,
        .floor = m->floor,
        .beta = m->beta,
        .tau = m->tau,
        .fraction = m->fraction,
        .sparsity = m->sparsity,
    };
    if (code)
        err = take_options(m, &p, code, false, NULL, d);
    if (!err)
        err = take_options(m, &p, text, false, NULL, d);
    if (!err)
        err = method_resolve(m, &p, d);
    if (!err)
        *ret_params = p;
    return err;
}
