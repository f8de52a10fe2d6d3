/* jinja_eval.c - evaluates expressions. */
#include <string.h>

#include "engine/model/jinja_run.h"
#include "engine/model/jinja_words.h"

/* Evaluates the arguments of a call. Returns false after an error. */
static bool eval_args(struct jinja *j, const struct jinja_node *list, struct jinja_args *ret)
{
    ret->n = ret->n_named = 0;
    for (const struct jinja_node *a = list; a && !j->err; a = a->next) {
        if (ret->n == JINJA_MAX_ARGS || ret->n_named == JINJA_MAX_ARGS) {
            jinja_error(j, KVF_E_LIMIT, "a call has more than %d arguments", JINJA_MAX_ARGS);
        } else if (a->text) {
            ret->name[ret->n_named] = a->text;
            ret->named[ret->n_named++] = jinja_eval(j, a->a);
        } else {
            ret->v[ret->n++] = jinja_eval(j, a->a);
        }
    }
    return !j->err;
}

static struct jinja_value make_list(struct jinja *j, const struct jinja_node *e)
{
    int n = 0;
    for (const struct jinja_node *a = e->list; a; a = a->next)
        n++;
    struct jinja_value list = jinja_list(j, n);
    n = 0;
    for (const struct jinja_node *a = e->list; a && !j->err; a = a->next)
        list.u.list->item[n++] = jinja_eval(j, a->a);
    return list;
}

static struct jinja_value make_dict(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_value dict = jinja_dict(j);
    for (const struct jinja_node *a = e->list; a && !j->err; a = a->next) {
        struct jinja_value key = jinja_eval(j, a->a), v = jinja_eval(j, a->b);
        if (key.type != JINJA_TEXT)
            return jinja_error(j, KVF_E_FORMAT, "a key of a dictionary is %s",
                               jinja_type_name(&key));
        if (!j->err)
            jinja_set(j, dict.u.dict, key.u.text, v);
    }
    return dict;
}

static struct jinja_value eval_name(struct jinja *j, const struct jinja_node *e)
{
    const struct jinja_text *name = e->text;
    const struct jinja_value *v = jinja_lookup(j, name);
    if (jinja_is(name, "enable_thinking"))
        j->asked_think = true;
    return v ? *v : jinja_undefined(j, name->s, name->n);
}

static struct jinja_value eval_attr(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_value of = jinja_eval(j, e->a);
    if (j->err)
        return of;
    if (jinja_is_method(&of, e->text))
        return jinja_error(j, KVF_E_FORMAT, "the method '%.*s' is named but not called",
                           (int)e->text->n, e->text->s);
    return jinja_member(j, &of, e->text);
}

static struct jinja_value item_at(struct jinja *j, const struct jinja_value *of, int64_t at)
{
    int64_t n = of->type == JINJA_LIST ? of->u.list->n : jinja_chars(j, of->u.text);
    if (at < 0)
        at += n;
    if (at < 0 || at >= n)
        return jinja_undefined(j, "item", 4);
    if (of->type == JINJA_LIST)
        return of->u.list->item[at];
    const struct jinja_value part[3] = {jinja_int(at), jinja_int(at + 1), jinja_none()};
    return jinja_slice(j, of, part);
}

static struct jinja_value eval_item(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_value of = jinja_eval(j, e->a), key = jinja_eval(j, e->b);
    if (j->err)
        return of;
    if (key.type == JINJA_INT && (of.type == JINJA_LIST || of.type == JINJA_TEXT))
        return item_at(j, &of, key.u.i);
    if (key.type == JINJA_TEXT || of.type == JINJA_UNDEFINED)
        return jinja_member(j, &of, key.type == JINJA_TEXT ? key.u.text : jinja_text(j, "", 0));
    return jinja_undefined(j, "item", 4);
}

static struct jinja_value eval_slice(struct jinja *j, const struct jinja_node *e)
{
    const struct jinja_node *node[3] = {e->b, e->c, e->d};
    struct jinja_value of = jinja_eval(j, e->a), part[3];
    for (int k = 0; k < 3; k++)
        part[k] = node[k] ? jinja_eval(j, node[k]) : jinja_none();
    return j->err ? of : jinja_slice(j, &of, part);
}

/* Calls a method of a text or a dictionary, or returns an undefined value for a member of an
 * undefined value. */
static struct jinja_value call_method(struct jinja *j, const struct jinja_node *e,
                                      const struct jinja_args *args)
{
    struct jinja_value of = jinja_eval(j, e->a), ret = jinja_none();
    if (j->err)
        return of;
    if (of.type == JINJA_TEXT && jinja_text_method(j, of.u.text, e->text, args, &ret))
        return ret;
    if (of.type == JINJA_DICT && jinja_dict_method(j, of.u.dict, e->text, args, &ret))
        return ret;
    if (of.type == JINJA_UNDEFINED)
        return jinja_member(j, &of, e->text);
    return jinja_error(j, KVF_E_FORMAT, "%s has no method '%.*s' here", jinja_type_name(&of),
                       (int)(e->text->n < 40 ? e->text->n : 40), e->text->s);
}

static struct jinja_value eval_call(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_args args;
    if (!eval_args(j, e->list, &args))
        return jinja_none();
    if (e->a->kind == JINJA_ATTR)
        return call_method(j, e->a, &args);
    struct jinja_value f = jinja_eval(j, e->a);
    if (j->err)
        return f;
    if (f.type == JINJA_FUNCTION)
        return jinja_call(j, f.u.i, &args);
    if (f.type == JINJA_MACRO)
        return j->call_macro(j, f.u.macro, &args);
    const struct jinja_text *name = e->a->kind == JINJA_NAME ? e->a->text : NULL;
    if (name && jinja_is(name, "strftime_now"))
        return jinja_error(j, KVF_E_ARG,
                           "it asks for today's date; give one with --date YYYY-MM-DD");
    return jinja_error(j, KVF_E_FORMAT, "'%.*s' is called, and is %s", name ? (int)name->n : 5,
                       name ? name->s : "value", jinja_type_name(&f));
}

struct jinja_value jinja_eval_filters(struct jinja *j, const struct jinja_node *f,
                                      struct jinja_value of)
{
    struct jinja_args args;
    if (f->a)
        of = jinja_eval_filters(j, f->a, of);
    if (j->err || !eval_args(j, f->list, &args))
        return of;
    return jinja_filter(j, f->text, &of, &args);
}

static struct jinja_value eval_filter(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_args args;
    struct jinja_value of = jinja_eval(j, e->a);
    if (j->err || !eval_args(j, e->list, &args))
        return of;
    j->line = e->line;
    return jinja_filter(j, e->text, &of, &args);
}

static struct jinja_value eval_test(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_args args;
    struct jinja_value of = jinja_eval(j, e->a);
    if (j->err || !eval_args(j, e->list, &args))
        return of;
    j->line = e->line;
    return jinja_bool(jinja_test(j, e->text, &of, &args));
}

static struct jinja_value whole_sum(struct jinja *j, int op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = (op == '+' && __builtin_add_overflow(a, b, &r))
                || (op == '-' && __builtin_sub_overflow(a, b, &r))
                || (op == '*' && __builtin_mul_overflow(a, b, &r));
    bool divides = op == '%' || op == JINJA_OP('/', '/');
    if (over || (divides && (b == 0 || (b == -1 && a == INT64_MIN))))
        return jinja_error(j, KVF_E_FORMAT, "a number is too large, or is divided by 0");
    if (divides) {
        int64_t quotient = a / b, rest = a % b;
        bool down = rest != 0 && (rest < 0) != (b < 0);
        r = op == '%' ? rest + b * down : quotient - down;
    }
    return jinja_int(r);
}

static struct jinja_value power(struct jinja *j, int64_t a, int64_t b)
{
    int64_t r = 1;
    bool over = b < 0 || b > 64;
    for (int64_t i = 0; i < b && !over; i++)
        over = __builtin_mul_overflow(r, a, &r);
    if (over)
        return jinja_error(j, KVF_E_FORMAT, "it takes a power that is not done here");
    return jinja_int(r);
}

static struct jinja_value arithmetic(struct jinja *j, int op, const struct jinja_value *a,
                                     const struct jinja_value *b)
{
    double x, y;
    if (!jinja_number(a, &x) || !jinja_number(b, &y))
        return jinja_error(j, KVF_E_FORMAT, "%s and %s do not go together with this operator here",
                           jinja_type_name(a), jinja_type_name(b));
    bool whole = a->type != JINJA_FLOAT && b->type != JINJA_FLOAT && op != '/';
    int64_t m = a->type == JINJA_INT ? a->u.i : a->u.b, n = b->type == JINJA_INT ? b->u.i : b->u.b;
    if (whole)
        return op == JINJA_OP('*', '*') ? power(j, m, n) : whole_sum(j, op, m, n);
    struct jinja_value r = {JINJA_FLOAT, {.f = 0}};
    if (op == '+' || op == '-')
        r.u.f = op == '+' ? x + y : x - y;
    else if (op == '*')
        r.u.f = x * y;
    else if (op == '/' && y != 0)
        r.u.f = x / y;
    else
        return jinja_error(j, KVF_E_FORMAT,
                           "division by 0, and powers or remainders of numbers that are not "
                           "integers, are not supported here");
    return r;
}

static struct jinja_value join_lists(struct jinja *j, const struct jinja_list *a,
                                     const struct jinja_list *b)
{
    if (a->n > INT32_MAX / 2 || b->n > INT32_MAX / 2)
        return jinja_error(j, KVF_E_LIMIT, "a list is too long");
    struct jinja_value list = jinja_list(j, a->n + b->n);
    for (int i = 0; !j->err && i < a->n + b->n; i++)
        list.u.list->item[i] = i < a->n ? a->item[i] : b->item[i - a->n];
    return list;
}

static struct jinja_value repeated(struct jinja *j, const struct jinja_text *t, int64_t n)
{
    struct jinja_out out = {0};
    for (int64_t i = 0; i < n && !j->err; i++)
        jinja_put(j, &out, t);
    return jinja_of_text(jinja_taken(j, &out));
}

static struct jinja_value eval_binary(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_value a = jinja_eval(j, e->a), b;
    if (j->err || (e->op == 'a' && !jinja_true(&a)) || (e->op == 'o' && jinja_true(&a)))
        return a;
    b = jinja_eval(j, e->b);
    if (j->err || e->op == 'a' || e->op == 'o')
        return b;
    j->line = e->line;
    if (e->op == '~' || (e->op == '+' && a.type == JINJA_TEXT && b.type == JINJA_TEXT)) {
        const struct jinja_text *part[2] = {jinja_printed(j, &a), jinja_printed(j, &b)};
        return jinja_of_text(jinja_join(j, part, 2));
    }
    if (e->op == '+' && a.type == JINJA_LIST && b.type == JINJA_LIST)
        return join_lists(j, a.u.list, b.u.list);
    if (e->op == '*' && a.type == JINJA_TEXT && b.type == JINJA_INT)
        return repeated(j, a.u.text, b.u.i);
    return arithmetic(j, e->op, &a, &b);
}

static bool compare(struct jinja *j, int op, const struct jinja_value *a,
                    const struct jinja_value *b)
{
    switch (op) {
    case JINJA_OP('=', '='):
        return jinja_equal(j, a, b);
    case JINJA_OP('!', '='):
        return !jinja_equal(j, a, b);
    case '<':
        return jinja_order(j, a, b) < 0;
    case '>':
        return jinja_order(j, a, b) > 0;
    case JINJA_OP('<', '='):
        return jinja_order(j, a, b) <= 0;
    case JINJA_OP('>', '='):
        return jinja_order(j, a, b) >= 0;
    default:
        return jinja_contains(j, b, a) == (op == 'i');
    }
}

static struct jinja_value eval_compare(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_value a = jinja_eval(j, e->a);
    bool good = true;
    for (const struct jinja_node *x = e->list; x && good && !j->err; x = x->next) {
        struct jinja_value b = jinja_eval(j, x->a);
        j->line = e->line;
        good = !j->err && compare(j, x->op, &a, &b);
        a = b;
    }
    return jinja_bool(good);
}

static struct jinja_value eval_sign(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_value v = jinja_eval(j, e->a), zero = jinja_int(0);
    if (j->err)
        return v;
    if (v.type == JINJA_FLOAT) {
        v.u.f = e->kind == JINJA_MINUS ? -v.u.f : v.u.f;
        return v;
    }
    return arithmetic(j, e->kind == JINJA_MINUS ? '-' : '+', &zero, &v);
}

static struct jinja_value eval_choose(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_value v = jinja_eval(j, e->a);
    if (j->err)
        return v;
    if (jinja_true(&v))
        return jinja_eval(j, e->b);
    return e->c ? jinja_eval(j, e->c) : jinja_undefined(j, "else", 4);
}

static struct jinja_value eval_not(struct jinja *j, const struct jinja_node *e)
{
    struct jinja_value v = jinja_eval(j, e->a);
    return jinja_bool(!jinja_true(&v));
}

static struct jinja_value eval_const(struct jinja *j, const struct jinja_node *e)
{
    (void)j;
    return e->value;
}

/* Indexed by the kinds of expressions. */
static struct jinja_value (*const eval[])(struct jinja *j, const struct jinja_node *e) = {
    [JINJA_CONST] = eval_const,    [JINJA_NAME] = eval_name,     [JINJA_MAKE_LIST] = make_list,
    [JINJA_MAKE_DICT] = make_dict, [JINJA_ATTR] = eval_attr,     [JINJA_ITEM] = eval_item,
    [JINJA_SLICE] = eval_slice,    [JINJA_CALL] = eval_call,     [JINJA_FILTER] = eval_filter,
    [JINJA_TEST] = eval_test,      [JINJA_NOT] = eval_not,       [JINJA_MINUS] = eval_sign,
    [JINJA_PLUS] = eval_sign,      [JINJA_BINARY] = eval_binary, [JINJA_COMPARE] = eval_compare,
    [JINJA_CHOOSE] = eval_choose};

struct jinja_value jinja_eval(struct jinja *j, const struct jinja_node *e)
{
    j->line = j->err ? j->line : e->line;
    if (!jinja_work(j, 1))
        return jinja_none();
    if (j->depth >= JINJA_MAX_DEPTH * 2)
        return jinja_error(j, KVF_E_LIMIT, "it calls itself, or is nested, too deep");
    j->depth++;
    struct jinja_value v = eval[e->kind](j, e);
    j->depth--;
    return v;
}
