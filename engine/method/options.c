/* options.c - parses "--method NAME:key=value,...": parts, parameters and their ranges.  resolve.c
 * derives parameters from the budget. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "engine/method/parts.h"
#include "engine/method/state.h"

static const char *const pool_names[] = {"max", "avg", NULL};
static const char *const group_names[] = {"mean", "max", "sum", "none", "max-logits", NULL};
static const char *const fold_names[] = {"max", "average", "sum", NULL};
static const char *const across_names[] = {"mean", "max", NULL};
static const char *const support_names[] = {"all", "candidates", NULL};
static const char *const order_names[] = {"before", "after", NULL};
static const char *const position_names[] = {"original", "cache", NULL};
static const char *const tie_names[] = {"newer", "older", NULL};
static const char *const compare_names[] = {"ge", "gt", NULL};
static const char *const slot_names[] = {"time", "score", NULL};
static const char *const divide_names[] = {"none", "queries", NULL};
static const char *const protect_forms[] = {"none", "prompt", "system", "sinks:N", "spans", NULL};
static const char *const of_names[] = {"prompt", "seen", NULL};
static const char *const cut_names[] = {"always", "prompt", "turn", NULL};

/* Entries of the table: an integer, a real number, or a word of a list. */
#define OPTION(field, type, ...)                                                                   \
    .key = #field, .kind = type, .offset = offsetof(struct method_params, field), __VA_ARGS__
#define WHOLE(field, least, most) OPTION(field, OPTION_WHOLE, .min = least, .max = most)
#define REAL(field, least, most) OPTION(field, OPTION_REAL, .min = least, .max = most)
#define WORD(field, list) OPTION(field, OPTION_WORD, .words = list)
enum { MOST = BUDGET_MOST };

const struct method_option method_options[] = {
    {WHOLE(sinks, 0, MOST), .also = USES_SPANS, .help = "first positions kept"},
    {WHOLE(recent, 0, MOST), .also = USES_SPANS, .help = "newest positions kept"},
    {OPTION(protect, OPTION_TEXT, .words = protect_forms), .also = USES_SPANS | USES_LOCAL,
     .tacit = true, .late = true,
     .help = "tokens that are never evicted; join several by +; spans:NAME protects the spans with "
             "this name"},
    {WHOLE(every, 1, MOST), .help = "tokens between cuts"},
    {WORD(order, order_names), .help = "cut before the newcomer, or after its query"},
    {WHOLE(slack, 0, MOST), .help = "entries above the share that are tolerated"},
    {WHOLE(chunk, 0, MOST), .help = "tokens of the prompt between cuts; 0 = no cuts"},
    {WORD(positions, position_names),
     .help = "rotation by original position, or by rank in the cache"},
    {WORD(tie, tie_names), .help = "which of equal scores is kept"},
    {WHOLE(stride, 0, MOST), .tacit = true,
     .help = "cuts after the prompt are one token after a multiple of it; 0 = when they are due"},
    {WHOLE(window, 1, 4096), .uses = USES_WINDOW,
     .help = "number of queries that give the evidence"},
    {WHOLE(pool, 1, 1023), .uses = USES_POOL,
     .help = "width of pooling over neighbours in time; odd, 1 = no pooling"},
    {WORD(pool_kind, pool_names), .uses = USES_POOL,
     .help = "how pooling reduces; avg divides by the width at the edges too"},
    {WORD(group, group_names), .uses = USES_GROUP,
     .help = "reduction over the query heads that read one KV head"},
    {WORD(divide, divide_names), .uses = USES_DIVIDE, .tacit = true,
     .help = "received attention is divided by the number of queries that saw the entry, or not"},
    {WORD(across, across_names), .uses = USES_ACROSS,
     .help = "reduction over the queries of the window"},
    {WORD(support, support_names), .uses = USES_ACROSS,
     .help = "entries over which the weights of a row sum to 1: all visible entries, or the "
             "unprotected entries"},
    {WHOLE(offset, 0, 3), .uses = USES_RETENTION, .help = "exponent of the newest entry's beta"},
    {WHOLE(lookahead, 1, 65536), .uses = USES_RETENTION,
     .help = "N: coming queries over which retention is summed, T - t of DBTrimKV's Eq. 9"},
    {WHOLE(local, 1, MOST), .uses = USES_LOCAL,
     .help = "newest entries that admission does not change (W)"},
    {WORD(compare, compare_names), .uses = USES_TAU, .help = "admitted when g >= tau, or g > tau"},
    {WHOLE(horizon, 1, 65536), .uses = USES_EXPECTED,
     .help = "positions ahead over which queries are expected"},
    {WHOLE(page, 1, 4096), .uses = USES_PAGE, .help = "entries of a page that is read or not"},
    {WHOLE(dense, 0, 4096), .uses = USES_PAGE, .help = "first layers that read everything"},
    {WHOLE(reads, 1, MOST), .uses = USES_READS, .tacit = true, .late = true,
     .help = "cached entries that a query reads"},
    {WHOLE(channels, 0, 1024), .uses = USES_CHANNELS, .tacit = true, .late = true,
     .help = "channels of a page that are compared; 0 = D p / max(1, B / (2 reads))"},
    {REAL(history, 0, 1), .uses = USES_HISTORY,
     .help = "weight alpha of the score remembered from the last cut; 0 = not used"},
    {WORD(fold, fold_names), .uses = USES_HISTORY, .tacit = true,
     .help = "how the remembered score F and that of this cut S become one: max(a F, S), "
             "a F + (1 - a) S, or a F + S"},
    {WORD(slots, slot_names), .uses = USES_SLOTS, .tacit = true,
     .help =
         "order of the entries in which pooling finds neighbours and the redundancy of keys the "
         "last similar one"},
    {REAL(lambda, 0, 1), .uses = USES_LAMBDA,
     .help = "weight of the importance against the redundancy of keys"},
    {REAL(gamma, 0, 1e9), .uses = USES_GAMMA, .help = "weight of the variance over the window"},
    {REAL(floor, 0, 1), .uses = USES_FLOOR,
     .help = "fraction of its even part that a head keeps whatever scores other heads have"},
    {REAL(beta, 1, 1e9), .uses = USES_BETA | USES_HEADKV,
     .help = "steepness of the pyramid; for a table of HeadKV its beta"},
    {REAL(temp, 0.01, 10), .uses = USES_HEADKV, .tacit = true,
     .help = "exponent of the scores in a table of HeadKV"},
    {REAL(tau, 0, 1), .uses = USES_TAU, .help = "threshold of the write gate"},
    {REAL(fraction, 0, 1), .uses = USES_FRACTION,
     .help = "share of a head's candidates that one round drops"},
    {REAL(epsilon, 0, 1e9), .uses = USES_EXPECTED, .help = "added to the expected attention"},
    {REAL(sparsity, 0, 1), .uses = USES_SPARSITY, .help = "share of heads that stream"},
    {OPTION(seed, OPTION_LARGE, .min = 0, .max = 9007199254740992.0), .uses = USES_SEED,
     .help = "of the random choice"},
    {WORD(of, of_names), .also = USES_PAGE, .tacit = true, .late = true,
     .help = "tokens that a budget in % is a fraction of: the prompt, or all that were fed so far"},
    {WORD(cut, cut_names), .tacit = true, .late = true,
     .help = "when entries are evicted: after the prompt and at every later token, only after the "
             "prompt, or only after each turn of a chat"},
    {.key = NULL},
};
enum { N_OPTIONS = sizeof method_options / sizeof *method_options - 1 };

double method_option_value(const struct method_option *o, const struct method_params *p)
{
    const void *at = (const char *)p + o->offset;
    switch (o->kind) {
    case OPTION_LARGE:
        return (double)*(const int64_t *)at;
    case OPTION_REAL:
        return *(const double *)at;
    case OPTION_TEXT:
        return *(const char *)at != 0;
    default:
        return *(const int *)at;
    }
}

const char *method_option_word(const struct method_option *o, const struct method_params *p)
{
    const char *text = (const char *)p + o->offset;
    if (o->kind == OPTION_TEXT)
        return *text ? text : o->words[0];
    return o->words ? o->words[(int)method_option_value(o, p)] : NULL;
}

static unsigned uses_of(const struct method *m)
{
    unsigned shared = m->allocation->uses;
    if (m->trigger->rounds) /* every head drops a fraction, independently of other heads */
        shared &= ~(unsigned)USES_FLOOR;
    unsigned reads = m->read->uses;
    if (m->score && !m->read->all) /* `group` belongs to the score */
        reads = (reads & ~(unsigned)USES_GROUP) | USES_READS;
    return (m->score ? m->score->uses : 0) | shared | m->admission->uses | m->trigger->uses | reads;
}

bool method_option_counts(const struct method_option *o, const struct method *m)
{
    if (o->uses)
        return o->uses & uses_of(m);
    return m->score || o->also & uses_of(m);
}

static int bad_value(const char *key, const char *value, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG, "method: '%s' is not a value for %s", value, key);
}

static int no_part(const char *key, const char *value, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG, "method: no %s '%s'; docs/reference/methods.md lists the parts",
                    key, value);
}

/* A preset while its options are applied. */
struct edit {
    struct method m;
    struct budget budget;
    bool budgeted;    /* the text has the key `budget` */
    const char *code; /* the options of variant=code; NULL: variant=paper */
};

static int set_score(struct edit *e, const char *value, struct kvf_diag *d)
{
    for (int i = 0; score_table[i]; i++) {
        if (strcmp(score_table[i]->name, value) != 0)
            continue;
        if (!e->m.score)
            return kvf_fail(d, KVF_E_ARG, "method %s: score would have no effect", e->m.name);
        e->m.score = score_table[i];
        e->m.reason = KVF_REASON_BUDGET;
        return KVF_OK;
    }
    return no_part("score", value, d);
}

static int set_allocation(struct edit *e, const char *value, struct kvf_diag *d)
{
    for (int i = 0; allocation_table[i]; i++) {
        if (strcmp(allocation_table[i]->name, value) != 0)
            continue;
        e->m.allocation = allocation_table[i];
        return KVF_OK;
    }
    return no_part("allocation", value, d);
}

static int set_read(struct edit *e, const char *value, struct kvf_diag *d)
{
    for (int i = 0; read_table[i]; i++) {
        if (strcmp(read_table[i]->name, value) != 0)
            continue;
        e->m.read = read_table[i];
        return KVF_OK;
    }
    return no_part("read", value, d);
}

static int set_variant(struct edit *e, const char *value, struct kvf_diag *d)
{
    bool code = strcmp(value, "code") == 0;
    if (!code && strcmp(value, "paper") != 0)
        return bad_value("variant", value, d);
    e->code = code ? e->m.code : NULL;
    return KVF_OK;
}

static int set_budget(struct edit *e, const char *value, struct kvf_diag *d)
{
    if (!budget_parse(value, &e->budget))
        return kvf_fail(d, KVF_E_ARG, "method: '%s' is not a value for budget: %s", value,
                        budget_advice(value));
    e->budgeted = true;
    return KVF_OK;
}

/* Keys that are not parameters of a preset.  They are applied before all options. */
static const struct part_key {
    const char *key;
    int (*set)(struct edit *e, const char *value, struct kvf_diag *d);
} part_keys[] = {
    {"score", set_score},     {"allocation", set_allocation}, {"read", set_read},
    {"variant", set_variant}, {"budget", set_budget},
};
enum { N_PART_KEYS = sizeof part_keys / sizeof *part_keys };

const char *method_part_key(int i)
{
    return i < N_PART_KEYS ? part_keys[i].key : NULL;
}

static const struct part_key *find_part_key(const char *key)
{
    for (int i = 0; i < N_PART_KEYS; i++)
        if (strcmp(key, part_keys[i].key) == 0)
            return &part_keys[i];
    return NULL;
}

bool method_same_key(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '-' && *b == '_'))
            return false;
    return *a == *b;
}

static int unknown_option(const char *key, struct kvf_diag *d)
{
    const char *known[N_PART_KEYS + N_OPTIONS + 1] = {NULL};
    char list[400] = "";
    size_t n = 0;
    for (int i = 0; i < N_PART_KEYS; i++)
        known[i] = part_keys[i].key;
    for (int i = 0; i < N_OPTIONS; i++)
        known[N_PART_KEYS + i] = method_options[i].key;
    for (int i = 0; known[i] && n < sizeof list - 32; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", known[i]);
    const char *near = opt_near(known, key);
    return kvf_fail(d, KVF_E_ARG, "method: unknown option '%s'%s%s%s; options are %s", key,
                    near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", list);
}

static int find_option(const struct method *m, const char *key, const struct method_option **ret,
                       struct kvf_diag *d)
{
    for (const struct method_option *o = method_options; o->key; o++) {
        if (!method_same_key(key, o->key))
            continue;
        if (!method_option_counts(o, m))
            return kvf_fail(d, KVF_E_ARG, "method %s: %s would have no effect", m->name, key);
        *ret = o;
        return KVF_OK;
    }
    return unknown_option(key, d);
}

static int set_word(const struct method_option *o, int *at, const char *value, struct kvf_diag *d)
{
    for (int i = 0; o->words[i]; i++) {
        if (strcmp(value, o->words[i]) != 0)
            continue;
        *at = i;
        return KVF_OK;
    }
    return bad_value(o->key, value, d);
}

/* Sets the protected tokens, which are never evicted.  "none" protects no tokens. */
static int set_protect(const struct method_option *o, struct method_params *p, const char *value,
                       struct kvf_diag *d)
{
    bool none = strcmp(value, o->words[0]) == 0;
    if (!none && (strlen(value) >= sizeof p->protect || !protect_valid(value)))
        return kvf_fail(d, KVF_E_ARG,
                        "method: '%s' is not a value for protect; write prompt, system, sinks:N, "
                        "spans or spans:NAME, joined by +",
                        value);
    snprintf(p->protect, sizeof p->protect, "%s", none ? "" : value);
    p->n_protected = none ? 0 : -1;
    return KVF_OK;
}

/* Sets one parameter. */
static int set_option(const struct method *m, struct method_params *p, const char *key,
                      const char *value, struct kvf_diag *d)
{
    const struct method_option *o = NULL;
    int64_t n = 0;
    double x = 0;
    int err = find_option(m, key, &o, d);
    if (err)
        return err;
    void *at = (char *)p + o->offset;
    if (o->kind == OPTION_WORD)
        return set_word(o, at, value, d);
    if (o->kind == OPTION_TEXT)
        return set_protect(o, p, value, d);
    bool whole = o->kind != OPTION_REAL;
    if (whole ? !opt_int(value, &n) : !opt_real(value, &x))
        return bad_value(key, value, d);
    bool out = whole ? n < (int64_t)o->min || n > (int64_t)o->max : x < o->min || x > o->max;
    if (out || (at == &p->pool && n % 2 == 0)) /* the middle of an even pool is undefined */
        return bad_value(key, value, d);
    if (o->kind == OPTION_REAL)
        *(double *)at = x;
    else if (o->kind == OPTION_LARGE)
        *(int64_t *)at = n;
    else
        *(int *)at = (int)n;
    return KVF_OK;
}

/* Sets parameters that the parts need and the preset lacks. */
static void fill_defaults(struct method *m)
{
    struct method_params *p = &m->params;
    if (p->pool == 0)
        p->pool = 1;
    if (m->score && m->score->uses & USES_WINDOW && p->window == 0)
        p->window = 32;
    if (m->score && m->score->uses & USES_EXPECTED && p->horizon == 0)
        p->horizon = 512;
    if (m->allocation->uses & USES_BETA && p->beta < 1)
        p->beta = 20;
    if (m->allocation->uses & USES_HEADKV)
        p->beta = 0; /* the form of the table decides (head_budgets.h) */
    if (p->page == 0 && !m->read->entries)
        p->page = m->read->shared ? 64 : 16;
    if (p->lookahead == 0)
        p->lookahead = 1;
}

/* Applies the pairs of `text`: keys of parts if p is NULL, else all other keys, to p. */
static int take_pairs(struct edit *e, struct method_params *p, const char *text, struct kvf_diag *d)
{
    char key[64], value[64];
    int more = opt_pair(&text, key, value, sizeof key);
    for (; more == 1; more = opt_pair(&text, key, value, sizeof key)) {
        const struct part_key *part = find_part_key(key);
        int err = KVF_OK;
        if (part && !p)
            err = part->set(e, value, d);
        else if (!part && p)
            err = set_option(&e->m, p, key, value, d);
        if (err)
            return err;
    }
    if (more < 0)
        return kvf_fail(d, KVF_E_ARG, "method %s: write options as key=value,key=value", e->m.name);
    return KVF_OK;
}

/* Sets the entries of a fraction, or a placeholder if the prompt is not known.  chunk, cut and `of`
 * are set. */
static void set_entries(struct method_params *p, const struct budget *b,
                        const struct budget_prompt *prompt)
{
    int tokens = prompt->tokens, first = tokens;
    p->budget = b->entries;
    p->part = b->part;
    if (!b->part)
        return;
    if (p->of == BUDGET_OF_SEEN && p->cut == CUT_TURN && prompt->turn)
        first = prompt->turn;
    if (p->of == BUDGET_OF_SEEN && p->chunk && p->chunk < first)
        first = p->chunk;
    p->open = tokens == 0;
    p->budget = p->open ? BUDGET_MOST : budget_entries(b->part, first);
}

int method_options_parse(struct method *m, const char *text, const struct budget *budget,
                         const struct budget_prompt *prompt, struct method_params *ret_params,
                         struct kvf_diag *d)
{
    struct edit e = {.m = *m, .budget = *budget};
    int err = take_pairs(&e, NULL, text, d);
    if (err)
        return err;
    fill_defaults(&e.m);
    struct method_params p = e.m.params;
    p.sinks = p.recent = p.window = p.every = p.local = p.reads = METHOD_DERIVED;
    if (e.code) {
        err = take_pairs(&e, &p, e.code, d);
        if (err)
            return err;
    }
    err = take_pairs(&e, &p, text, d);
    if (err)
        return err;
    set_entries(&p, &e.budget, prompt);
    err = method_resolve(&e.m, &p, d);
    if (!err && e.budgeted && p.budget == 0)
        err = kvf_fail(d, KVF_E_ARG, "method %s: budget would have no effect", e.m.name);
    if (err)
        return err;
    *m = e.m;
    *ret_params = p;
    return KVF_OK;
}
