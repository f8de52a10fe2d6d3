/* jinja_tests.c - tests, the right operands of `is`. */
#include "engine/model/jinja_words.h"

enum test {
    T_DEFINED,
    T_UNDEFINED,
    T_NONE,
    T_STRING,
    T_MAPPING,
    T_ITERABLE,
    T_SEQUENCE,
    T_NUMBER,
    T_INTEGER,
    T_FLOAT,
    T_BOOLEAN,
    T_TRUE,
    T_FALSE,
    T_CALLABLE,
    T_EQUAL,
    T_UNEQUAL,
    T_IN,
    T_LESS,
    T_LESS_EQUAL,
    T_GREATER,
    T_GREATER_EQUAL,
    T_ODD,
    T_EVEN,
    T_DIVISIBLE
};

static const struct {
    const char *name;
    enum test test;
} tests[] = {
    {"defined", T_DEFINED},
    {"undefined", T_UNDEFINED},
    {"none", T_NONE},
    {"string", T_STRING},
    {"mapping", T_MAPPING},
    {"iterable", T_ITERABLE},
    {"sequence", T_SEQUENCE},
    {"number", T_NUMBER},
    {"integer", T_INTEGER},
    {"float", T_FLOAT},
    {"boolean", T_BOOLEAN},
    {"true", T_TRUE},
    {"false", T_FALSE},
    {"callable", T_CALLABLE},
    {"equalto", T_EQUAL},
    {"eq", T_EQUAL},
    {"sameas", T_EQUAL},
    {"ne", T_UNEQUAL},
    {"in", T_IN},
    {"lt", T_LESS},
    {"lessthan", T_LESS},
    {"le", T_LESS_EQUAL},
    {"gt", T_GREATER},
    {"greaterthan", T_GREATER},
    {"ge", T_GREATER_EQUAL},
    {"odd", T_ODD},
    {"even", T_EVEN},
    {"divisibleby", T_DIVISIBLE},
};

static int find(const struct jinja_text *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (jinja_is(name, tests[i].name))
            return (int)tests[i].test;
    return -1;
}

static const struct jinja_value *need(struct jinja *j, const struct jinja_args *args)
{
    static const struct jinja_value none = {JINJA_NONE, {.i = 0}};
    if (args->n != 1)
        jinja_error(j, KVF_E_FORMAT, "a test needs one argument");
    return args->n == 1 ? &args->v[0] : &none;
}

static bool remains(struct jinja *j, const struct jinja_value *of, int64_t by, int64_t what)
{
    if (of->type != JINJA_INT || by == 0) {
        jinja_error(j, KVF_E_FORMAT, "%s is divided", jinja_type_name(of));
        return false;
    }
    return by == -1 ? what == 0 : (of->u.i % by + by) % by == what;
}

/* Evaluates the tests that only depend on the type. */
static bool is_of_type(int test, const struct jinja_value *of)
{
    bool many = of->type == JINJA_TEXT || of->type == JINJA_LIST || of->type == JINJA_DICT
                || of->type == JINJA_UNDEFINED;
    switch (test) {
    case T_DEFINED:
        return of->type != JINJA_UNDEFINED;
    case T_UNDEFINED:
        return of->type == JINJA_UNDEFINED;
    case T_NONE:
        return of->type == JINJA_NONE;
    case T_STRING:
        return of->type == JINJA_TEXT;
    case T_MAPPING:
        return of->type == JINJA_DICT;
    case T_ITERABLE:
        return many || of->type == JINJA_LOOP;
    case T_SEQUENCE:
        return many;
    case T_NUMBER:
        return of->type == JINJA_INT || of->type == JINJA_FLOAT || of->type == JINJA_BOOL;
    case T_INTEGER:
        return of->type == JINJA_INT;
    case T_FLOAT:
        return of->type == JINJA_FLOAT;
    case T_BOOLEAN:
        return of->type == JINJA_BOOL;
    case T_TRUE:
        return of->type == JINJA_BOOL && of->u.b;
    case T_FALSE:
        return of->type == JINJA_BOOL && !of->u.b;
    default: /* callable; in jinja2 undefined values are callable, too */
        return of->type == JINJA_FUNCTION || of->type == JINJA_MACRO || of->type == JINJA_UNDEFINED;
    }
}

bool jinja_test(struct jinja *j, const struct jinja_text *name, const struct jinja_value *of,
                const struct jinja_args *args)
{
    int test = find(name);
    switch (test) {
    case -1:
        jinja_error(j, KVF_E_FORMAT, "the test '%.*s' is not known here",
                    (int)(name->n < 40 ? name->n : 40), name->s);
        return false;
    case T_EQUAL:
        return jinja_equal(j, of, need(j, args));
    case T_UNEQUAL:
        return !jinja_equal(j, of, need(j, args));
    case T_IN:
        return jinja_contains(j, need(j, args), of);
    case T_LESS:
        return jinja_order(j, of, need(j, args)) < 0;
    case T_LESS_EQUAL:
        return jinja_order(j, of, need(j, args)) <= 0;
    case T_GREATER:
        return jinja_order(j, of, need(j, args)) > 0;
    case T_GREATER_EQUAL:
        return jinja_order(j, of, need(j, args)) >= 0;
    case T_ODD:
        return remains(j, of, 2, 1);
    case T_EVEN:
        return remains(j, of, 2, 0);
    case T_DIVISIBLE:
        return need(j, args)->type == JINJA_INT && remains(j, of, need(j, args)->u.i, 0);
    default:
        return is_of_type(test, of);
    }
}
