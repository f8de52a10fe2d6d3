/* jinja_expression.c - parses expressions of a template into trees.
 *
 * Operators have the precedence of jinja2, from lowest to highest: or, and, not, comparisons, +
 * and -, ~, other arithmetic, **, signs, and the suffixes of a value: attributes, items, calls,
 * filters and tests.
 */
#include "engine/model/jinja_node.h"

#include <string.h>

enum {
    LEVEL_OR = 1,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_JOIN,
    LEVEL_PRODUCT,
    LEVEL_POWER,
    LEVEL_SIGN
};

static struct jinja_node *parse_level(struct jinja_parser *p, int level);
static struct jinja_node *parse_sign(struct jinja_parser *p, bool filters);

struct jinja_node *jinja_new(struct jinja_parser *p, enum jinja_kind kind)
{
    struct jinja_node *n = jinja_alloc(p->j, 1, sizeof *n);
    if (n) {
        n->kind = kind;
        n->line = p->now.line;
        n->depth = 1;
    }
    return n;
}

void jinja_step(struct jinja_parser *p)
{
    p->now = p->next;
    p->next = jinja_lex(&p->lexer);
    if (!p->j->err)
        p->j->line = p->now.line;
}

bool jinja_deeper(struct jinja_parser *p)
{
    if (!p->j->err && ++p->depth > JINJA_MAX_DEPTH)
        jinja_error(p->j, KVF_E_LIMIT, "it is nested too deep");
    return !p->j->err;
}

bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
    return p->now.type == JINJA_T_NAME && jinja_is(p->now.text, name);
}

bool jinja_at_op(const struct jinja_parser *p, int op)
{
    return p->now.type == JINJA_T_OP && p->now.op == op;
}

bool jinja_take_op(struct jinja_parser *p, int op)
{
    if (!jinja_at_op(p, op))
        return false;
    jinja_step(p);
    return true;
}

struct jinja_node *jinja_unexpected(struct jinja_parser *p, const char *wanted)
{
    p->j->line = p->now.line;
    if (p->now.type == JINJA_T_NAME)
        jinja_error(p->j, KVF_E_FORMAT, "it has '%.*s' where %s is expected",
                    (int)(p->now.text->n < 40 ? p->now.text->n : 40), p->now.text->s, wanted);
    else
        jinja_error(p->j, KVF_E_FORMAT, "%s is expected", wanted);
    return NULL;
}

void jinja_expect_op(struct jinja_parser *p, int op)
{
    char wanted[] = "'?'";
    wanted[1] = (char)op;
    if (!jinja_take_op(p, op))
        jinja_unexpected(p, wanted);
}

/* Sets the depth of n to one more than that of its parts. Returns NULL with an error for chains
 * that would be evaluated too deep. */
static struct jinja_node *with_depth(struct jinja_parser *p, struct jinja_node *n)
{
    const struct jinja_node *part[] = {n->a, n->b, n->c, n->d};
    for (int i = 0; i < 4; i++)
        if (part[i] && part[i]->depth >= n->depth)
            n->depth = part[i]->depth + 1;
    for (const struct jinja_node *x = n->list; x; x = x->next)
        if (x->depth >= n->depth)
            n->depth = x->depth + 1;
    if (n->depth > JINJA_MAX_DEPTH)
        jinja_error(p->j, KVF_E_LIMIT, "an expression is too long");
    return p->j->err ? NULL : n;
}

/* Returns a node with operands a and b; either is NULL after an error. */
static struct jinja_node *new_node(struct jinja_parser *p, enum jinja_kind kind,
                                   struct jinja_node *a, struct jinja_node *b)
{
    struct jinja_node *n = p->j->err ? NULL : jinja_new(p, kind);
    if (!n)
        return NULL;
    n->a = a;
    n->b = b;
    return with_depth(p, n);
}

/* Parses one argument of a call, or an item of a list. */
static struct jinja_node *parse_arg(struct jinja_parser *p, bool named)
{
    const struct jinja_text *name = NULL;
    if (named && p->now.type == JINJA_T_NAME && p->next.type == JINJA_T_OP && p->next.op == '=') {
        name = p->now.text;
        jinja_step(p);
        jinja_step(p);
    }
    struct jinja_node *arg = new_node(p, JINJA_ARG, jinja_expression(p, true), NULL);
    if (arg)
        arg->text = name;
    return arg;
}

/* Parses items up to and including the closing sign. */
static struct jinja_node *parse_args(struct jinja_parser *p, int close, bool named)
{
    struct jinja_node *first = NULL, **last = &first;
    while (!p->j->err && !jinja_take_op(p, close)) {
        if (first)
            jinja_expect_op(p, ',');
        if (first && jinja_take_op(p, close))
            break;
        *last = parse_arg(p, named);
        if (*last)
            last = &(*last)->next;
    }
    return p->j->err ? NULL : first;
}

static struct jinja_node *parse_dict(struct jinja_parser *p)
{
    struct jinja_node *dict = jinja_new(p, JINJA_MAKE_DICT), **last = dict ? &dict->list : NULL;
    while (!p->j->err && !jinja_take_op(p, '}')) {
        if (dict->list)
            jinja_expect_op(p, ',');
        if (dict->list && jinja_take_op(p, '}'))
            break;
        struct jinja_node *key = jinja_expression(p, true);
        jinja_expect_op(p, ':');
        *last = new_node(p, JINJA_ARG, key, p->j->err ? NULL : jinja_expression(p, true));
        if (*last)
            last = &(*last)->next;
    }
    return p->j->err ? NULL : with_depth(p, dict);
}

/* Parses ( ... ): an expression, or a tuple, which becomes a list. */
static struct jinja_node *parse_parens(struct jinja_parser *p)
{
    if (jinja_take_op(p, ')'))
        return jinja_new(p, JINJA_MAKE_LIST);
    struct jinja_node *e = jinja_expressions(p, true);
    jinja_expect_op(p, ')');
    return p->j->err ? NULL : e;
}

static struct jinja_node *constant(struct jinja_parser *p, struct jinja_value v)
{
    struct jinja_node *n = jinja_new(p, JINJA_CONST);
    if (n)
        n->value = v;
    jinja_step(p);
    return n;
}

static struct jinja_node *parse_name(struct jinja_parser *p)
{
    static const char *const reserved[] = {"if", "else", "elif", "in", "is", "and", "or", "not"};
    const struct jinja_text *t = p->now.text;
    if (jinja_is(t, "true") || jinja_is(t, "True"))
        return constant(p, jinja_bool(true));
    if (jinja_is(t, "false") || jinja_is(t, "False"))
        return constant(p, jinja_bool(false));
    if (jinja_is(t, "none") || jinja_is(t, "None"))
        return constant(p, jinja_none());
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (jinja_is(t, reserved[i]))
            return jinja_unexpected(p, "a value");
    struct jinja_node *n = jinja_new(p, JINJA_NAME);
    if (n)
        n->text = t;
    jinja_step(p);
    return n;
}

/* Parses consecutive strings, which are joined. */
static struct jinja_node *parse_string(struct jinja_parser *p)
{
    const struct jinja_text *part[2] = {p->now.text, NULL};
    while (p->next.type == JINJA_T_STRING && !p->j->err) {
        jinja_step(p);
        part[1] = p->now.text;
        part[0] = jinja_join(p->j, part, 2);
    }
    return constant(p, jinja_of_text(part[0]));
}

static struct jinja_node *parse_primary(struct jinja_parser *p)
{
    struct jinja_node *list;
    switch (p->now.type) {
    case JINJA_T_NAME:
        return parse_name(p);
    case JINJA_T_STRING:
        return parse_string(p);
    case JINJA_T_INT:
        return constant(p, jinja_int(p->now.number));
    case JINJA_T_FLOAT:
        return constant(p, (struct jinja_value){JINJA_FLOAT, {.f = p->now.real}});
    default:
        break;
    }
    if (jinja_take_op(p, '('))
        return parse_parens(p);
    if (jinja_take_op(p, '{'))
        return parse_dict(p);
    if (!jinja_take_op(p, '['))
        return jinja_unexpected(p, "a value");
    list = jinja_new(p, JINJA_MAKE_LIST);
    if (list)
        list->list = parse_args(p, ']', false);
    return p->j->err ? NULL : with_depth(p, list);
}

static struct jinja_node *parse_attribute(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n;
    if (p->now.type == JINJA_T_INT)
        return new_node(p, JINJA_ITEM, of, constant(p, jinja_int(p->now.number)));
    if (p->now.type != JINJA_T_NAME)
        return jinja_unexpected(p, "a name");
    n = new_node(p, JINJA_ATTR, of, NULL);
    if (n)
        n->text = p->now.text;
    jinja_step(p);
    return n;
}

/* Parses an index or a slice after '['. */
static struct jinja_node *parse_subscript(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *part[3] = {NULL, NULL, NULL};
    int k = 0;
    while (!p->j->err && !jinja_at_op(p, ']') && k < 3) {
        if (!jinja_at_op(p, ':'))
            part[k] = jinja_expression(p, true);
        if (!jinja_take_op(p, ':'))
            break;
        k++;
    }
    if (jinja_at_op(p, ','))
        return jinja_unexpected(p, "one index");
    jinja_expect_op(p, ']');
    if (k == 0)
        return part[0] ? new_node(p, JINJA_ITEM, of, part[0]) : jinja_unexpected(p, "an index");
    struct jinja_node *n = new_node(p, JINJA_SLICE, of, part[0]);
    if (!n)
        return NULL;
    n->c = part[1];
    n->d = part[2];
    return with_depth(p, n);
}

static struct jinja_node *parse_call(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n = new_node(p, JINJA_CALL, of, NULL);
    if (!n)
        return NULL;
    n->list = parse_args(p, ')', true);
    return p->j->err ? NULL : with_depth(p, n);
}

static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *e)
{
    while (e && !p->j->err) {
        if (jinja_take_op(p, '.'))
            e = parse_attribute(p, e);
        else if (jinja_take_op(p, '['))
            e = parse_subscript(p, e);
        else if (jinja_take_op(p, '('))
            e = parse_call(p, e);
        else
            break;
    }
    return e;
}

static struct jinja_node *parse_filter(struct jinja_parser *p, struct jinja_node *of)
{
    if (p->now.type != JINJA_T_NAME)
        return jinja_unexpected(p, "the name of a filter");
    struct jinja_node *n = jinja_new(p, JINJA_FILTER);
    if (!n)
        return NULL;
    n->a = of;
    n->text = p->now.text;
    jinja_step(p);
    if (jinja_take_op(p, '('))
        n->list = parse_args(p, ')', true);
    return p->j->err ? NULL : with_depth(p, n);
}

/* Returns true if the present token begins the single argument that a test can have without
 * parentheses. */
static bool begins_argument(const struct jinja_parser *p)
{
    if (p->now.type == JINJA_T_NAME)
        return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and")
               && !jinja_at_name(p, "if") && !jinja_at_name(p, "is") && !jinja_at_name(p, "not")
               && !jinja_at_name(p, "in");
    return p->now.type == JINJA_T_STRING || p->now.type == JINJA_T_INT
           || p->now.type == JINJA_T_FLOAT || jinja_at_op(p, '[') || jinja_at_op(p, '{');
}

static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *of)
{
    bool negated = jinja_at_name(p, "not");
    if (negated)
        jinja_step(p);
    if (p->now.type != JINJA_T_NAME)
        return jinja_unexpected(p, "the name of a test");
    struct jinja_node *n = jinja_new(p, JINJA_TEST);
    if (!n)
        return NULL;
    n->a = of;
    n->text = p->now.text;
    jinja_step(p);
    if (jinja_take_op(p, '('))
        n->list = parse_args(p, ')', true);
    else if (begins_argument(p))
        n->list = new_node(p, JINJA_ARG, parse_postfix(p, parse_primary(p)), NULL);
    n = p->j->err ? NULL : with_depth(p, n);
    return negated && n ? new_node(p, JINJA_NOT, n, NULL) : n;
}

struct jinja_node *jinja_filters(struct jinja_parser *p, struct jinja_node *e)
{
    while (!p->j->err) {
        if (jinja_take_op(p, '|')) {
            e = parse_filter(p, e);
        } else if (e && jinja_at_name(p, "is")) {
            jinja_step(p);
            e = parse_test(p, e);
        } else if (e && jinja_take_op(p, '(')) {
            e = parse_call(p, e);
        } else {
            break;
        }
    }
    return p->j->err ? NULL : e;
}

/* Parses a value with its signs and suffixes. */
static struct jinja_node *parse_sign(struct jinja_parser *p, bool filters)
{
    struct jinja_node *e = NULL;
    if (!jinja_deeper(p))
        return NULL;
    if (jinja_take_op(p, '-'))
        e = new_node(p, JINJA_MINUS, parse_sign(p, false), NULL);
    else if (jinja_take_op(p, '+'))
        e = new_node(p, JINJA_PLUS, parse_sign(p, false), NULL);
    else
        e = parse_primary(p);
    e = parse_postfix(p, e);
    if (filters && e)
        e = jinja_filters(p, e);
    p->depth--;
    return p->j->err ? NULL : e;
}

/* Returns the level of the binary operator at the present token; 0 if there is none. */
static int operator_level(const struct jinja_parser *p)
{
    if (jinja_at_name(p, "or"))
        return LEVEL_OR;
    if (jinja_at_name(p, "and"))
        return LEVEL_AND;
    if (p->now.type != JINJA_T_OP)
        return 0;
    switch (p->now.op) {
    case '+':
    case '-':
        return LEVEL_SUM;
    case '~':
        return LEVEL_JOIN;
    case '*':
    case '/':
    case '%':
    case JINJA_OP('/', '/'):
        return LEVEL_PRODUCT;
    case JINJA_OP('*', '*'):
        return LEVEL_POWER;
    default:
        return 0;
    }
}

/* Consumes a comparison operator and returns it; 0 if there is none. */
static int take_comparison(struct jinja_parser *p)
{
    static const int ops[] = {
        '<', '>', JINJA_OP('=', '='), JINJA_OP('!', '='), JINJA_OP('<', '='), JINJA_OP('>', '=')};
    bool negated = jinja_at_name(p, "not") && p->next.type == JINJA_T_NAME
                   && jinja_is(p->next.text, "in");
    if (negated)
        jinja_step(p);
    if (jinja_at_name(p, "in")) {
        jinja_step(p);
        return negated ? 'n' : 'i';
    }
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jinja_take_op(p, ops[i]))
            return ops[i];
    return 0;
}

static struct jinja_node *parse_comparisons(struct jinja_parser *p)
{
    struct jinja_node *e = parse_level(p, LEVEL_SUM), *n = NULL, **last = NULL;
    for (int op = p->j->err ? 0 : take_comparison(p); op; op = take_comparison(p)) {
        if (!n) {
            n = new_node(p, JINJA_COMPARE, e, NULL);
            last = n ? &n->list : NULL;
        }
        struct jinja_node *right = new_node(p, JINJA_ARG, parse_level(p, LEVEL_SUM), NULL);
        if (!n || !right)
            return NULL;
        right->op = op;
        *last = right;
        last = &right->next;
    }
    return n ? with_depth(p, n) : e;
}

static struct jinja_node *parse_not(struct jinja_parser *p)
{
    struct jinja_node *e = NULL;
    if (!jinja_at_name(p, "not"))
        return parse_comparisons(p);
    if (!jinja_deeper(p))
        return NULL;
    jinja_step(p);
    e = new_node(p, JINJA_NOT, parse_not(p), NULL);
    p->depth--;
    return e;
}

/* Parses operators of this level and higher ones. */
static struct jinja_node *parse_level(struct jinja_parser *p, int level)
{
    if (level == LEVEL_NOT)
        return parse_not(p);
    if (level == LEVEL_SIGN)
        return parse_sign(p, true);
    struct jinja_node *e = parse_level(p, level + 1);
    while (!p->j->err && operator_level(p) == level) {
        int op = p->now.type == JINJA_T_NAME ? p->now.text->s[0] : p->now.op;
        jinja_step(p);
        e = new_node(p, JINJA_BINARY, e, parse_level(p, level + 1));
        if (e)
            e->op = op;
    }
    return p->j->err ? NULL : e;
}

struct jinja_node *jinja_expression(struct jinja_parser *p, bool choose)
{
    if (!jinja_deeper(p))
        return NULL;
    struct jinja_node *e = parse_level(p, LEVEL_OR);
    while (choose && !p->j->err && jinja_at_name(p, "if")) {
        jinja_step(p);
        struct jinja_node *n = new_node(p, JINJA_CHOOSE, parse_level(p, LEVEL_OR), e);
        if (n && jinja_at_name(p, "else")) {
            jinja_step(p);
            n->c = jinja_expression(p, true);
        }
        e = n && !p->j->err ? with_depth(p, n) : NULL;
    }
    p->depth--;
    return p->j->err ? NULL : e;
}

struct jinja_node *jinja_expressions(struct jinja_parser *p, bool choose)
{
    struct jinja_node *e = jinja_expression(p, choose);
    if (!e || !jinja_at_op(p, ','))
        return e;
    struct jinja_node *list = jinja_new(p, JINJA_MAKE_LIST);
    struct jinja_node *arg = new_node(p, JINJA_ARG, e, NULL);
    if (!list || !arg)
        return NULL;
    list->list = arg;
    while (!p->j->err && jinja_take_op(p, ',')) {
        if (jinja_at_op(p, ')') || p->now.type == JINJA_T_BLOCK_END
            || p->now.type == JINJA_T_PRINT_END)
            break;
        arg->next = new_node(p, JINJA_ARG, jinja_expression(p, choose), NULL);
        if (arg->next)
            arg = arg->next;
    }
    return p->j->err ? NULL : with_depth(p, list);
}
