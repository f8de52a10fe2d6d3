/* jinja_filters.c - filters by name. */
#include "engine/model/jinja_words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A filter.  how: distinguishes filters that share a function; 0 for others. */
typedef struct jinja_value filter_fn(struct jinja *j, const struct jinja_value *of,
                                     const struct jinja_args *args, int how);
enum { FIRST, LAST, BY_ATTRIBUTE = 1, REJECT = 2 };

#define UNUSED __attribute__((unused))
#define FILTER(name)                                                                               \
    static struct jinja_value f_##name(struct jinja *j UNUSED, const struct jinja_value *of,       \
                                       const struct jinja_args *args UNUSED, int how UNUSED)

FILTER(trim)
{
    const struct jinja_text *chars = jinja_arg_text(j, args, 0, "chars", NULL);
    return jinja_of_text(jinja_strip(j, jinja_printed(j, of), chars, 0));
}

FILTER(length)
{
    switch (of->type) {
    case JINJA_UNDEFINED:
        return jinja_int(0);
    case JINJA_TEXT:
        return jinja_int(jinja_chars(j, of->u.text));
    case JINJA_LIST:
        return jinja_int(of->u.list->n);
    case JINJA_DICT:
        return jinja_int(of->u.dict->n);
    default:
        return jinja_error(j, KVF_E_FORMAT, "%s has no length", jinja_type_name(of));
    }
}

/* how: a case of jinja_case(). */
FILTER(case)
{
    return jinja_of_text(jinja_case(j, jinja_printed(j, of), (char)how));
}

FILTER(default)
{
    const struct jinja_value *otherwise = jinja_arg(args, 0, "default_value");
    const struct jinja_value *also = jinja_arg(args, 1, "boolean");
    bool missing = of->type == JINJA_UNDEFINED || (also && jinja_true(also) && !jinja_true(of));
    if (!missing)
        return *of;
    return otherwise ? *otherwise : jinja_str(j, "");
}

FILTER(join)
{
    const struct jinja_text *between = jinja_arg_text(j, args, 0, "d", jinja_text(j, "", 0));
    if (jinja_arg(args, 1, "attribute"))
        return jinja_error(j, KVF_E_FORMAT, "join with an attribute is not done here");
    return jinja_joined(j, between, jinja_items(j, of));
}

FILTER(end)
{
    const struct jinja_list *list = jinja_items(j, of);
    if (list->n)
        return list->item[how == LAST ? list->n - 1 : 0];
    return how == LAST ? jinja_undefined(j, "last", 4) : jinja_undefined(j, "first", 5);
}

FILTER(list)
{
    const struct jinja_list *list = jinja_items(j, of);
    struct jinja_value copy = jinja_list(j, list->n);
    if (!j->err && list->n)
        memcpy(copy.u.list->item, list->item, (size_t)list->n * sizeof *list->item);
    return copy;
}

FILTER(string)
{
    return jinja_of_text(jinja_printed(j, of));
}

FILTER(int)
{
    double x;
    if (of->type == JINJA_INT)
        return *of;
    if (jinja_number(of, &x) && fabs(x) < 9e15)
        return jinja_int((int64_t)x);
    if (of->type != JINJA_TEXT || of->u.text->n == 0 || of->u.text->n > 18)
        return jinja_error(j, KVF_E_FORMAT, "%s is made a number", jinja_type_name(of));
    int64_t v = 0;
    for (size_t i = 0; i < of->u.text->n; i++) {
        if (of->u.text->s[i] < '0' || of->u.text->s[i] > '9')
            return jinja_error(j, KVF_E_FORMAT, "a text that is no number is made one");
        v = v * 10 + (of->u.text->s[i] - '0');
    }
    return jinja_int(v);
}

FILTER(abs)
{
    if (of->type == JINJA_FLOAT)
        return (struct jinja_value){JINJA_FLOAT, {.f = fabs(of->u.f)}};
    if (of->type != JINJA_INT || of->u.i == INT64_MIN)
        return jinja_error(j, KVF_E_FORMAT, "abs of %s", jinja_type_name(of));
    return jinja_int(of->u.i < 0 ? -of->u.i : of->u.i);
}

FILTER(tojson)
{
    const struct jinja_value *indent = jinja_arg(args, 1, "indent");
    const struct jinja_value *ascii = jinja_arg(args, 1, "ensure_ascii");
    if (args->n > 0 || args->n_named > (indent != NULL) + (ascii != NULL)
        || (ascii && jinja_true(ascii)))
        return jinja_error(j, KVF_E_FORMAT, "tojson takes only indent and ensure_ascii=False here");
    return jinja_tojson(j, of, indent && indent->type == JINJA_INT ? indent->u.i : -1);
}

FILTER(replace)
{
    const struct jinja_text *none = jinja_text(j, "", 0);
    const struct jinja_value *count = jinja_arg(args, 2, "count");
    return jinja_of_text(jinja_replace(j, jinja_printed(j, of),
                                       jinja_arg_text(j, args, 0, "old", none),
                                       jinja_arg_text(j, args, 1, "new", none),
                                       count && count->type == JINJA_INT ? count->u.i : -1));
}

FILTER(items)
{
    struct jinja_value ret = jinja_none();
    if (of->type == JINJA_UNDEFINED)
        return jinja_list(j, 0);
    if (of->type != JINJA_DICT)
        return jinja_error(j, KVF_E_FORMAT, "items of %s", jinja_type_name(of));
    jinja_dict_method(j, of->u.dict, jinja_text(j, "items", 5), args, &ret);
    return ret;
}

/* Returns pairs of key and value, sorted by key without regard to case. */
FILTER(dictsort)
{
    if (args->n > 0 || args->n_named > 0)
        return jinja_error(j, KVF_E_FORMAT, "dictsort takes no arguments here");
    struct jinja_value ret = f_items(j, of, args, 0);
    for (int i = 1; !j->err && i < ret.u.list->n; i++) {
        struct jinja_value *item = ret.u.list->item, x = item[i];
        struct jinja_value key = jinja_of_text(jinja_case(j, x.u.list->item[0].u.text, 'l'));
        int k = i;
        for (; k > 0 && !j->err; k--) {
            const struct jinja_text *t = item[k - 1].u.list->item[0].u.text;
            struct jinja_value before = jinja_of_text(jinja_case(j, t, 'l'));
            if (jinja_order(j, &before, &key) <= 0)
                break;
            item[k] = item[k - 1];
        }
        item[k] = x;
    }
    return ret;
}

FILTER(reverse)
{
    const struct jinja_value part[3] = {jinja_none(), jinja_none(), jinja_int(-1)};
    return jinja_slice(j, of, part);
}

/* Indents all lines except the first and empty ones by a number of spaces. */
FILTER(indent)
{
    static const char blanks[] = "                                ";
    const struct jinja_value *width = jinja_arg(args, 0, "width");
    const struct jinja_text *t = jinja_printed(j, of);
    int64_t n = width && width->type == JINJA_INT ? width->u.i : 4;
    struct jinja_out out = {0};
    if (args->n > 1 || args->n_named > (args->n == 0 && width) || n < 0 || n > 32)
        return jinja_error(j, KVF_E_FORMAT, "indent supports only a width of 0 to 32 here");
    const struct jinja_text pad = {blanks, (size_t)n, NULL, 0};
    for (size_t from = 0; !j->err && from < t->n;) {
        const char *feed = memchr(t->s + from, '\n', t->n - from);
        size_t to = feed ? (size_t)(feed - t->s) + 1 : t->n;
        if (from > 0 && t->s[from] != '\n')
            jinja_put(j, &out, &pad);
        jinja_put(j, &out, jinja_cut(j, t, from, to));
        from = to;
    }
    return jinja_of_text(jinja_taken(j, &out));
}

/* Returns the items that pass a test, or with REJECT the items that fail it. With BY_ATTRIBUTE, the
 * first argument names an attribute of the items to test. */
FILTER(choose)
{
    const struct jinja_list *list = jinja_items(j, of);
    struct jinja_args rest = {.n = 0};
    const struct jinja_text *attribute = NULL, *test = NULL;
    int skip = how & BY_ATTRIBUTE;
    if (skip)
        attribute = jinja_arg_text(j, args, 0, "", jinja_text(j, "", 0));
    if (args->n > skip)
        test = jinja_arg_text(j, args, skip, "", NULL);
    for (int i = skip + 1; i < args->n; i++)
        rest.v[rest.n++] = args->v[i];
    struct jinja_value ret = jinja_list(j, list->n);
    int n = 0;
    for (int i = 0; !j->err && i < list->n; i++) {
        struct jinja_value v = attribute ? jinja_member(j, &list->item[i], attribute)
                                         : list->item[i];
        bool good = test ? jinja_test(j, test, &v, &rest) : jinja_true(&v);
        if (good != !!(how & REJECT))
            ret.u.list->item[n++] = list->item[i];
    }
    if (!j->err)
        ret.u.list->n = n;
    return ret;
}

FILTER(map)
{
    const struct jinja_list *list = jinja_items(j, of);
    const struct jinja_text *attribute = jinja_arg_text(j, args, JINJA_MAX_ARGS, "attribute", NULL);
    const struct jinja_text *name = jinja_arg_text(j, args, 0, "", NULL);
    struct jinja_args rest = {.n = 0};
    for (int i = 1; i < args->n; i++)
        rest.v[rest.n++] = args->v[i];
    if ((attribute != NULL) == (name != NULL))
        return jinja_error(j, KVF_E_FORMAT, "map takes an attribute or the name of a filter");
    struct jinja_value ret = jinja_list(j, list->n);
    for (int i = 0; !j->err && i < list->n; i++)
        ret.u.list->item[i] = attribute ? jinja_member(j, &list->item[i], attribute)
                                        : jinja_filter(j, name, &list->item[i], &rest);
    return ret;
}

static const struct {
    const char *name;
    filter_fn *run;
    int how;
} filters[] = {
    {"trim", f_trim},
    {"length", f_length},
    {"count", f_length},
    {"upper", f_case, 'u'},
    {"lower", f_case, 'l'},
    {"capitalize", f_case, 'c'},
    {"default", f_default},
    {"d", f_default},
    {"join", f_join},
    {"first", f_end, FIRST},
    {"last", f_end, LAST},
    {"list", f_list},
    {"string", f_string},
    {"int", f_int},
    {"abs", f_abs},
    {"tojson", f_tojson},
    {"replace", f_replace},
    {"items", f_items},
    {"dictsort", f_dictsort},
    {"reverse", f_reverse},
    {"safe", f_string},
    {"indent", f_indent},
    {"select", f_choose},
    {"selectattr", f_choose, BY_ATTRIBUTE},
    {"reject", f_choose, REJECT},
    {"map", f_map},
    {"rejectattr", f_choose, BY_ATTRIBUTE | REJECT},
};

struct jinja_value jinja_filter(struct jinja *j, const struct jinja_text *name,
                                const struct jinja_value *of, const struct jinja_args *args)
{
    if (!jinja_work(j, 1) || ++j->depth > JINJA_MAX_DEPTH)
        return jinja_error(j, KVF_E_LIMIT, "filters are nested too deep");
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (jinja_is(name, filters[i].name)) {
            struct jinja_value v = filters[i].run(j, of, args, filters[i].how);
            j->depth--;
            return v;
        }
    return jinja_error(j, KVF_E_FORMAT, "the filter '%.*s' is not known here",
                       (int)(name->n < 40 ? name->n : 40), name->s);
}
