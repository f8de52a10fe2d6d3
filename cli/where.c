/* where.c - parses conditions on the facts of traces and evaluates them. */
#include "cli/where.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/opt.h"

enum { MOST_CONDITIONS = 32, MOST_KEY = 64, MOST_VALUE = 256 };

enum comparison { EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST };

/* A condition: a key, a comparison and a value. */
struct condition {
    /* key in the run header; an empty object means fact `fact` */
    char object[MOST_KEY], member[MOST_KEY];
    int fact;
    enum comparison how;
    char value[MOST_VALUE];
    double number; /* NaN if the value is not a number */
};

struct where {
    struct condition condition[MOST_CONDITIONS];
    int n;
};

/* ---- parsing */

/* Finds the comparison operator at s, and returns its length; 0 if there is none. */
static size_t comparison_at(const char *s, enum comparison *ret)
{
    static const struct {
        const char *sign;
        enum comparison how;
    } signs[] = {{"!=", UNEQUAL}, {"<=", AT_MOST}, {">=", AT_LEAST},
                 {"=", EQUAL},    {"<", LESS},     {">", MORE}};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (strncmp(s, signs[i].sign, strlen(signs[i].sign)) == 0) {
            *ret = signs[i].how;
            return strlen(signs[i].sign);
        }
    return 0;
}

static int no_such_key(const char *key, struct kvf_diag *d)
{
    const char *words[FACTS + 1] = {0}, *near;
    struct buf list = {0};
    for (int i = 0; i < FACTS; i++) {
        words[i] = fact_table[i].name;
        buf_printf(&list, "%s%s", i ? ", " : "", words[i]);
    }
    near = opt_near(words, key);
    kvf_fail(d, KVF_E_ARG,
             "--where: traces have no '%s'%s%s%s; they have %s, and OBJECT.MEMBER of the run "
             "header, as `kvfate trace info` shows it",
             key, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
             list.err ? "" : list.data);
    buf_finish(&list);
    return KVF_E_ARG;
}

static int parse_key(const char *key, struct condition *c, struct kvf_diag *d)
{
    const char *dot = strchr(key, '.');
    if (dot && dot > key) {
        memcpy(c->object, key, (size_t)(dot - key));
        memcpy(c->member, dot + 1, strlen(dot + 1) + 1);
        return KVF_OK;
    }
    for (c->fact = 0; c->fact < FACTS; c->fact++)
        if (strcmp(key, fact_table[c->fact].name) == 0)
            return KVF_OK;
    return no_such_key(key, d);
}

/* Parses a value, with or without quotes, and advances *at to its end. */
static int parse_value(const char **at, struct condition *c, struct kvf_diag *d)
{
    const char *s = *at, *from = s;
    bool quoted = *s == '"';
    size_t n = quoted ? strcspn(++from, "\"") : strcspn(s, " \t\n");
    if (quoted && from[n] != '"')
        return kvf_fail(d, KVF_E_ARG, "--where: a quote is not closed in '%s'", s);
    if (!quoted && n == 0)
        return kvf_fail(d, KVF_E_ARG, "--where: a condition has no value; an empty text is \"\"");
    if (n >= sizeof c->value)
        return kvf_fail(d, KVF_E_ARG, "--where: a value is longer than %d bytes", MOST_VALUE - 1);
    memcpy(c->value, from, n);
    c->value[n] = 0;
    int64_t whole = 0;
    c->number = NAN;
    if (!quoted && opt_int(c->value, &whole))
        c->number = (double)whole;
    else if (!quoted && !opt_real(c->value, &c->number))
        c->number = NAN;
    *at = from + n + quoted;
    return KVF_OK;
}

/* Checks that the comparison and the value suit the type of the fact. */
static int check(const struct condition *c, struct kvf_diag *d)
{
    bool order = c->how != EQUAL && c->how != UNEQUAL;
    bool text = fact_table[c->fact].type == FACT_TEXT;
    if (!c->object[0] && text && order)
        return kvf_fail(d, KVF_E_ARG,
                        "--where: %s is a text: compare it with = or !=", fact_table[c->fact].name);
    if (!c->object[0] && !text && isnan(c->number))
        return kvf_fail(d, KVF_E_ARG, "--where: %s is a number, not '%s'", fact_table[c->fact].name,
                        c->value);
    if (order && isnan(c->number))
        return kvf_fail(d, KVF_E_ARG,
                        "--where: '%s' is no number: compare it with = or !=", c->value);
    return KVF_OK;
}

static int parse_condition(const char **at, struct condition *c, struct kvf_diag *d)
{
    char key[MOST_KEY];
    size_t n = strcspn(*at, "=<>! \t\n\""), sign = comparison_at(*at + n, &c->how);
    if (n == 0 || sign == 0 || n >= sizeof key)
        return kvf_fail(d, KVF_E_ARG,
                        "--where: '%.60s' is not a condition: use KEY=VALUE, or one of != < <= > "
                        ">=, without blanks around it",
                        *at);
    memcpy(key, *at, n);
    key[n] = 0;
    *at += n + sign;
    int err = parse_key(key, c, d);
    if (!err)
        err = parse_value(at, c, d);
    return err ? err : check(c, d);
}

int where_parse(const char *text, struct where **ret, struct kvf_diag *d)
{
    struct where *w = MEM_NEW(struct where, 1);
    int err = w ? KVF_OK : KVF_E_NOMEM;
    for (const char *s = text + strspn(text, " \t\n"); !err && *s; s += strspn(s, " \t\n")) {
        if (w->n == MOST_CONDITIONS)
            err = kvf_fail(d, KVF_E_ARG, "--where: more than %d conditions", MOST_CONDITIONS);
        else
            err = parse_condition(&s, &w->condition[w->n++], d);
    }
    if (!err && w->n == 0)
        err = kvf_fail(d, KVF_E_ARG, "--where needs a condition, such as method=trimkv");
    if (err) {
        where_free(w);
        return err;
    }
    *ret = w;
    return KVF_OK;
}

void where_free(struct where *w)
{
    mem_free(w);
}

/* ---- evaluation */

static bool text_holds(const struct condition *c, const char *found)
{
    bool same = fnmatch(c->value, found, 0) == 0;
    return (c->how == EQUAL && same) || (c->how == UNEQUAL && !same);
}

static bool number_holds(const struct condition *c, double found)
{
    switch (c->how) {
    case EQUAL:
        return found == c->number;
    case UNEQUAL:
        return found != c->number;
    case LESS:
        return found < c->number;
    case AT_MOST:
        return found <= c->number;
    case MORE:
        return found > c->number;
    default:
        return found >= c->number;
    }
}

static bool fact_holds(const struct condition *c, const struct trace_facts *f)
{
    if (fact_table[c->fact].type == FACT_TEXT)
        return f->text[c->fact][0] && text_holds(c, f->text[c->fact]);
    if (fact_table[c->fact].type == FACT_REAL)
        return !isnan(f->real[c->fact]) && number_holds(c, f->real[c->fact]);
    return f->number[c->fact] >= 0 && number_holds(c, (double)f->number[c->fact]);
}

static bool member_holds(const struct condition *c, const struct trace_facts *f)
{
    const struct json *found = json_get(json_get(f->header, c->object), c->member);
    const char *text = json_str(found, NULL);
    double number = json_num(found, NAN);
    if (text)
        return text_holds(c, text);
    return !isnan(number) && !isnan(c->number) && number_holds(c, number);
}

bool where_holds(const struct where *w, const struct trace_facts *f)
{
    for (int i = 0; w && i < w->n; i++) {
        const struct condition *c = &w->condition[i];
        if (!(c->object[0] ? member_holds(c, f) : fact_holds(c, f)))
            return false;
    }
    return true;
}
