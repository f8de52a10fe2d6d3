/* claims_register.c - a register of claims from JSON. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "studies/claims.h"

const char *const claim_verdict_names[CLAIM_VERDICTS] = {
    "supported", "contradicted",        "undecided",       "unspecific",
    "unguarded", "not comparable here", "untestable here", "not run"};
const char *const claim_than_names[3] = {">", "<", "between"};

static const char *const reduce_names[] = {"one",    "mean",  "median",   "least", "largest",
                                           "spread", "share", "spearman", NULL};
static const char *const interval_names[] = {"columns", "t",    "bca", "permutation",
                                             "wilson",  "none", NULL};
static const char *const than_names[] = {">", "<", "between", NULL};
static const char *const known_keys[] = {
    "id",      "paper",   "where",      "claim",   "untestable", "table",   "run",   "rows",
    "minus",   "value",   "less",       "with",    "unit",       "reduce",  "than",  "at",
    "at_than", "null",    "interval",   "scale",   "note",       "fixed",   "heads", "cluster",
    "needs",   "least_n", "null_check", "control", "within",     "no_null", NULL};
static const char *const side_keys[] = {"table", "run", "rows", NULL};

static int find(const char *const *list, const char *s)
{
    for (int i = 0; list[i]; i++)
        if (strcmp(list[i], s) == 0)
            return i;
    return -1;
}

/* Names become parts of file names. */
static bool plain(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
    return n > 0 && n <= 64 && !s[n] && s[0] != '.';
}

static int bad(const struct claim *c, struct kvf_diag *d, const char *what)
{
    return kvf_fail(d, KVF_E_FORMAT, "claim \"%.64s\": %s", c->id, what);
}

static int check_keys(const struct json *object, const char *const *allowed, const struct claim *c,
                      struct kvf_diag *d)
{
    for (const struct json *m = json_first(object); m; m = json_next(m))
        if (find(allowed, json_key(m)) < 0)
            return kvf_fail(d, KVF_E_FORMAT, "claim \"%.64s\": no key is called \"%.64s\"", c->id,
                            json_key(m));
    return KVF_OK;
}

static bool cell_allowed(const struct json *v)
{
    return json_str(v, NULL) || isfinite(json_num(v, NAN));
}

static int take_side(const struct json *object, const struct claim_side *otherwise,
                     struct claim_side *s, const struct claim *c, struct kvf_diag *d)
{
    s->table = json_str(json_get(object, "table"), otherwise->table);
    s->run = json_str(json_get(object, "run"), otherwise->run);
    s->rows = json_get(object, "rows");
    if (!s->rows)
        s->rows = otherwise->rows;
    if (!s->table || !plain(s->table) || (*s->run && !plain(s->run)))
        return bad(c, d, "\"table\" and \"run\" are letters, digits, '-', '_' and '.'");
    if (s->rows && !json_is_object(s->rows))
        return bad(c, d, "\"rows\" is no object");
    for (const struct json *m = json_first(s->rows); m; m = json_next(m)) {
        bool fits = json_is_array(m) ? json_len(m) > 0 : cell_allowed(m);
        for (const struct json *v = json_is_array(m) ? json_first(m) : NULL; v; v = json_next(v))
            fits = fits && cell_allowed(v);
        if (!fits)
            return bad(c, d, "what \"rows\" asks for is a text, a number or several of them");
    }
    return KVF_OK;
}

static int take_unit(const struct json *v, struct claim *c, struct kvf_diag *d)
{
    bool several = json_is_array(v);
    for (const struct json *k = several ? json_first(v) : v; k; k = several ? json_next(k) : NULL) {
        if (c->n_unit == CLAIM_MOST_KEYS || !json_str(k, NULL))
            return bad(c, d, "\"unit\" is the name of a column, or up to 8 of them");
        c->unit[c->n_unit++] = json_str(k, NULL);
    }
    return KVF_OK;
}

/* Another side, and other rows to be subtracted, for a judgement that is otherwise the same. */
static int take_other(const struct json *o, const char *key, const struct claim *c,
                      struct claim_other *ret, struct kvf_diag *d)
{
    static const char *const keys[] = {"table", "run", "rows", "minus", NULL};
    const struct json *v = json_get(o, key), *minus = json_get(v, "minus");
    if (!v)
        return KVF_OK;
    if (!json_is_object(v) || (minus && !(c->paired && json_is_object(minus))))
        return bad(c, d, "\"null_check\" and \"control\" are objects, and their \"minus\" too");
    int err = check_keys(v, keys, c, d);
    if (!err && minus)
        err = check_keys(minus, side_keys, c, d);
    if (!err)
        err = take_side(v, &c->of, &ret->of, c, d);
    if (!err && c->paired)
        err = take_side(minus, &c->minus, &ret->minus, c, d);
    ret->there = !err;
    return err;
}

static bool is_date(const char *s)
{
    static const char shape[] = "0000-00-00";
    bool fits = strlen(s) == sizeof shape - 1;
    for (size_t i = 0; fits && shape[i]; i++)
        fits = shape[i] == '0' ? s[i] >= '0' && s[i] <= '9' : s[i] == shape[i];
    return fits;
}

static int check_needs(const struct claim *c, struct kvf_diag *d)
{
    char op;
    double v;
    bool of_T;
    for (const struct json *m = json_first(c->needs); m; m = json_next(m))
        if (!json_str(m, NULL) || !claims_number(json_str(m, ""), &op, &v, &of_T) || of_T)
            return bad(c, d, "\"needs\" asks for numbers, such as \">= 4096\"");
    return KVF_OK;
}

/* Signs of five units cannot reach p = 0.05: 2 / 2^5 is more; BCa and Wilson need more to cover. */
static int64_t default_least_n(const struct claim *c)
{
    static const int64_t least[] = {6, 4, 10, 6, 10, 1};
    return least[c->interval];
}

static bool made_of_heads(const struct claim *c)
{
    for (int k = 0; k < c->n_unit; k++)
        if (strcmp(c->unit[k], "head") == 0 || strcmp(c->unit[k], "layer") == 0)
            return true;
    return false;
}

/* What guards a claim against chance, dependence and data that support anything. */
static int take_guards(const struct json *o, struct claim *c, struct kvf_diag *d)
{
    const struct json *least = json_get(o, "least_n"), *cluster = json_get(o, "cluster");
    double n = json_num(least, NAN);
    c->heads = json_str(json_get(o, "heads"), NULL);
    c->cluster = json_str(cluster, NULL);
    c->needs = json_get(o, "needs");
    c->least_n = default_least_n(c);
    if (least && !(n >= 1 && n <= CLAIM_MOST_UNITS && floor(n) == n))
        return bad(c, d, "\"least_n\" is a whole number above 0");
    if (least)
        c->least_n = (int64_t)n;
    if (cluster && (!c->cluster || c->n_unit == 0))
        return bad(c, d, "\"cluster\" is a column, for claims that have a \"unit\"");
    if (cluster && (c->reduce == CLAIM_SHARE || c->reduce == CLAIM_SPREAD))
        return bad(c, d, "a share or a spread of units is not one of the means of clusters");
    if (made_of_heads(c) && (!c->heads || !*c->heads))
        return bad(c, d,
                   "its units are heads or layers: \"heads\" says in words which others are meant");
    if (c->needs && !json_is_object(c->needs))
        return bad(c, d, "\"needs\" is no object");
    c->no_null = json_str(json_get(o, "no_null"), NULL);
    if (json_get(o, "no_null") && (!c->no_null || !*c->no_null || json_get(o, "null_check")))
        return bad(c, d, "\"no_null\" is the reason why there is no \"null_check\", as a text");
    int err = check_needs(c, d);
    if (!err)
        err = take_other(o, "null_check", c, &c->null_check, d);
    return err ? err : take_other(o, "control", c, &c->control, d);
}

static int take_null(const struct json *v, struct claim *c, struct kvf_diag *d)
{
    bool both = c->than == CLAIM_BETWEEN;
    c->null = json_num(both ? json_at(v, 0) : v, NAN);
    c->null_high = both ? json_num(json_at(v, 1), NAN) : NAN;
    if (!isfinite(c->null) || (both && !(c->null_high > c->null && json_len(v) == 2)))
        return bad(c, d, "\"null\" is a number, or [low, high] with \"between\"");
    return KVF_OK;
}

static int choose(const struct json *object, const char *key, const char *const *names,
                  int otherwise, const struct claim *c, int *ret, struct kvf_diag *d)
{
    const struct json *v = json_get(object, key);
    *ret = v ? find(names, json_str(v, "")) : otherwise;
    if (*ret < 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "claim \"%.64s\": \"%s\" has a value that is none of its "
                        "names",
                        c->id, key);
    return KVF_OK;
}

/* What goes together. */
static int check_parts(const struct claim *c, struct kvf_diag *d)
{
    bool sign = c->than != CLAIM_BETWEEN, one = c->reduce == CLAIM_ONE;
    bool share = c->reduce == CLAIM_SHARE || c->within == CLAIM_SHARE;
    bool spearman = c->reduce == CLAIM_SPEARMAN || c->within == CLAIM_SPEARMAN;
    if (!c->value)
        return bad(c, d, "there is no \"value\"");
    if (c->within == CLAIM_ONE || (c->within != CLAIM_MEAN && c->n_unit == 0))
        return bad(c, d, "\"within\" says how several rows of a \"unit\" become its value");
    if (spearman != (c->with != NULL))
        return bad(c, d, "\"with\" belongs to \"spearman\"");
    if (share != isfinite(c->at))
        return bad(c, d, "\"at\" is a number and belongs to \"share\"");
    if (c->interval == CLAIM_COLUMNS && !one)
        return bad(c, d, "intervals of \"columns\" are those of one row");
    if (one && c->interval != CLAIM_COLUMNS && c->interval != CLAIM_NONE)
        return bad(c, d, "one row is not resampled: the interval is \"columns\" or \"none\"");
    if (c->interval == CLAIM_T && c->reduce != CLAIM_MEAN)
        return bad(c, d, "\"t\" is the interval of a mean");
    if (c->interval == CLAIM_WILSON && c->reduce != CLAIM_SHARE)
        return bad(c, d, "\"wilson\" is the interval of a share");
    if (c->interval == CLAIM_PERMUTATION
        && !(sign && (c->reduce == CLAIM_MEAN || c->reduce == CLAIM_SPEARMAN)))
        return bad(c, d, "\"permutation\" is for the direction of a mean or of \"spearman\"");
    if (c->paired && !one && c->n_unit == 0)
        return bad(c, d, "\"minus\" needs the \"unit\" that pairs the rows");
    if (c->paired && c->reduce == CLAIM_SPEARMAN)
        return bad(c, d, "\"spearman\" has no \"minus\"");
    return KVF_OK;
}

static int take_statistic(const struct json *o, struct claim *c, struct kvf_diag *d)
{
    int within, reduce, than, at_than, interval;
    const struct claim_side none = {NULL, "", NULL};
    int err = take_side(o, &none, &c->of, c, d);
    if (err)
        return err;
    const struct json *minus = json_get(o, "minus");
    c->paired = minus != NULL;
    if (minus) {
        err = json_is_object(minus) ? check_keys(minus, side_keys, c, d)
                                    : bad(c, d, "\"minus\" is no object");
        if (err)
            return err;
        err = take_side(minus, &c->of, &c->minus, c, d);
        if (err)
            return err;
    }
    c->value = json_str(json_get(o, "value"), NULL);
    c->less = json_str(json_get(o, "less"), NULL);
    c->with = json_str(json_get(o, "with"), NULL);
    c->at = json_num(json_get(o, "at"), NAN);
    err = take_unit(json_get(o, "unit"), c, d);
    if (err)
        return err;
    err = choose(o, "within", reduce_names, CLAIM_MEAN, c, &within, d);
    if (err)
        return err;
    err = choose(o, "reduce", reduce_names, CLAIM_ONE, c, &reduce, d);
    if (err)
        return err;
    err = choose(o, "than", than_names, -1, c, &than, d);
    if (err)
        return err;
    err = choose(o, "at_than", than_names, than, c, &at_than, d);
    if (err)
        return err;
    err = choose(o, "interval", interval_names, CLAIM_COLUMNS, c, &interval, d);
    if (err)
        return err;
    c->within = (enum claim_reduce)within;
    c->reduce = (enum claim_reduce)reduce;
    c->than = (enum claim_than)than;
    c->at_than = (enum claim_than)at_than;
    c->interval = (enum claim_interval)interval;
    err = take_null(json_get(o, "null"), c, d);
    if (err)
        return err;
    if (isfinite(c->at) && c->at_than == CLAIM_BETWEEN)
        return bad(c, d, "\"at_than\" is > or <");
    return check_parts(c, d);
}

static int take_claim(const struct json *o, struct claims *all, struct kvf_diag *d)
{
    struct claim *c = &all->claim[all->n];
    *c = (struct claim){
        .id = json_str(json_get(o, "id"), ""), .at = NAN, .null = NAN, .null_high = NAN};
    if (!json_is_object(o) || !plain(c->id))
        return kvf_fail(d, KVF_E_FORMAT,
                        "claim %d has no \"id\" of letters, digits, '-', '_' "
                        "and '.'",
                        all->n + 1);
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->claim[i].id, c->id) == 0)
            return bad(c, d, "the id is there twice");
    int err = check_keys(o, known_keys, c, d);
    if (err)
        return err;
    c->paper = json_str(json_get(o, "paper"), NULL);
    c->where = json_str(json_get(o, "where"), NULL);
    c->text = json_str(json_get(o, "claim"), NULL);
    c->untestable = json_str(json_get(o, "untestable"), NULL);
    c->fixed = json_str(json_get(o, "fixed"), "");
    if (json_get(o, "fixed") && !is_date(c->fixed))
        return bad(c, d, "\"fixed\" is a date, such as \"2026-01-31\"");
    if (!c->paper || !c->where || !c->text)
        return bad(c, d, "\"paper\", \"where\" and \"claim\" are texts that it needs");
    if (json_get(o, "untestable") && (!c->untestable || !*c->untestable))
        return bad(c, d, "\"untestable\" is the reason, as a text");
    if (c->untestable && json_get(o, "table"))
        return bad(c, d, "it is untestable and has a table");
    err = c->untestable ? KVF_OK : take_statistic(o, c, d);
    if (!err && !c->untestable)
        err = take_guards(o, c, d);
    if (err)
        return err;
    all->n++;
    return KVF_OK;
}

int claims_parse(const char *text, size_t n, struct claims *ret, struct kvf_diag *d)
{
    struct claims x = {0};
    int err = json_parse(text, n, &x.root, d);
    if (err)
        return err;
    const struct json *list = json_get(x.root, "claim");
    if (!json_is_array(list) || json_len(list) == 0) {
        err = kvf_fail(d, KVF_E_FORMAT, "no register of claims: {\"claim\": [...]}");
        goto fail;
    }
    if (json_len(list) > CLAIM_MOST) {
        err = kvf_fail(d, KVF_E_LIMIT, "more than %d claims", CLAIM_MOST);
        goto fail;
    }
    x.claim = MEM_NEW(struct claim, (size_t)json_len(list));
    if (!x.claim) {
        err = KVF_E_NOMEM;
        goto fail;
    }
    for (const struct json *o = json_first(list); o; o = json_next(o)) {
        err = take_claim(o, &x, d);
        if (err)
            goto fail;
    }
    *ret = x;
    return KVF_OK;

fail:
    claims_free(&x);
    return err;
}

void claims_free(struct claims *c)
{
    json_free(c->root);
    mem_free(c->claim);
    *c = (struct claims){0};
}
