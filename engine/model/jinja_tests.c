/* jinja_tests.c - tests, the right operands of `is`. */
#include "engine/model/jinja_words.h"

/* A test that depends only on the type. */
#define TYPE(name) (1u << JINJA_##name)
static const struct {
    const char *name;
    unsigned types; /* TYPE()s that pass it */
} type_tests[] = {
    {"defined", ~TYPE(UNDEFINED)},
    {"undefined", TYPE(UNDEFINED)},
    {"none", TYPE(NONE)},
    {"string", TYPE(TEXT)},
    {"mapping", TYPE(DICT)},
    {"iterable", TYPE(TEXT) | TYPE(LIST) | TYPE(DICT) | TYPE(UNDEFINED) | TYPE(LOOP)},
    {"sequence", TYPE(TEXT) | TYPE(LIST) | TYPE(DICT) | TYPE(UNDEFINED)},
    {"number", TYPE(INT) | TYPE(FLOAT) | TYPE(BOOL)},
    {"integer", TYPE(INT)},
    {"float", TYPE(FLOAT)},
    {"boolean", TYPE(BOOL)},
    {"callable", TYPE(FUNCTION) | TYPE(MACRO) | TYPE(UNDEFINED)}, /* undefined as in jinja2 */
};

/* A test for the order of two values. */
enum { LESS = 1, SAME = 2, GREATER = 4 };
static const struct {
    const char *name;
    int pass; /* orders that pass it */
} order_tests[] = {
    {"lt", LESS},    {"lessthan", LESS},       {"le", LESS | SAME},
    {"gt", GREATER}, {"greaterthan", GREATER}, {"ge", GREATER | SAME},
};

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

/* Evaluates the tests that need the values. */
static bool test_values(struct jinja *j, const struct jinja_text *name,
                        const struct jinja_value *of, const struct jinja_args *args)
{
    if (jinja_is(name, "true") || jinja_is(name, "false"))
        return of->type == JINJA_BOOL && of->u.b == jinja_is(name, "true");
    if (jinja_is(name, "equalto") || jinja_is(name, "eq") || jinja_is(name, "sameas"))
        return jinja_equal(j, of, need(j, args));
    if (jinja_is(name, "ne"))
        return !jinja_equal(j, of, need(j, args));
    if (jinja_is(name, "in"))
        return jinja_contains(j, need(j, args), of);
    if (jinja_is(name, "odd") || jinja_is(name, "even"))
        return remains(j, of, 2, jinja_is(name, "odd"));
    if (jinja_is(name, "divisibleby"))
        return need(j, args)->type == JINJA_INT && remains(j, of, need(j, args)->u.i, 0);
    jinja_error(j, KVF_E_FORMAT, "the test '%.*s' is not known here",
                (int)(name->n < 40 ? name->n : 40), name->s);
    return false;
}

bool jinja_test(struct jinja *j, const struct jinja_text *name, const struct jinja_value *of,
                const struct jinja_args *args)
{
    for (size_t i = 0; i < sizeof type_tests / sizeof *type_tests; i++)
        if (jinja_is(name, type_tests[i].name))
            return type_tests[i].types >> of->type & 1;
    for (size_t i = 0; i < sizeof order_tests / sizeof *order_tests; i++)
        if (jinja_is(name, order_tests[i].name)) {
            int order = jinja_order(j, of, need(j, args));
            return order_tests[i].pass & (order ? LESS << 2 * (order > 0) : SAME);
        }
    return test_values(j, name, of, args);
}
