/* jinja_methods.c - methods of texts and dictionaries, and members of values. */
#include "engine/model/jinja_words.h"

#include <string.h>

const struct jinja_value *jinja_arg(const struct jinja_args *args, int at, const char *name)
{
    if (at < args->n)
        return &args->v[at];
    for (int i = 0; i < args->n_named; i++)
        if (jinja_is(args->name[i], name))
            return &args->named[i];
    return NULL;
}

const struct jinja_text *jinja_arg_text(struct jinja *j, const struct jinja_args *args, int at,
                                        const char *name, const struct jinja_text *otherwise)
{
    const struct jinja_value *v = jinja_arg(args, at, name);
    if (!v || (v->type == JINJA_NONE && !otherwise))
        return otherwise;
    if (v->type != JINJA_TEXT) {
        jinja_error(j, KVF_E_FORMAT, "an argument is %s where a text is expected",
                    jinja_type_name(v));
        return jinja_text(j, "", 0);
    }
    return v->u.text;
}

/* Returns a required text argument. */
static const struct jinja_text *need_text(struct jinja *j, const struct jinja_args *args, int at,
                                          const char *name)
{
    if (!jinja_arg(args, at, name))
        jinja_error(j, KVF_E_FORMAT, "an argument is missing");
    return jinja_arg_text(j, args, at, name, jinja_text(j, "", 0));
}

static int64_t arg_int(struct jinja *j, const struct jinja_args *args, int at, const char *name,
                       int64_t otherwise)
{
    const struct jinja_value *v = jinja_arg(args, at, name);
    if (v && v->type != JINJA_INT)
        jinja_error(j, KVF_E_FORMAT, "an argument is %s where a number is expected",
                    jinja_type_name(v));
    return v && v->type == JINJA_INT ? v->u.i : otherwise;
}

static bool begins(const struct jinja_text *t, const struct jinja_text *with)
{
    return with->n <= t->n && memcmp(t->s, with->s, with->n) == 0;
}

static bool ends(const struct jinja_text *t, const struct jinja_text *with)
{
    return with->n <= t->n && memcmp(t->s + t->n - with->n, with->s, with->n) == 0;
}

/* A method of a text.  how: distinguishes methods that share a function; 0 for others. */
typedef struct jinja_value method_fn(struct jinja *j, const struct jinja_text *of,
                                     const struct jinja_args *args, int how);
enum { AT_BEGIN, AT_END, LEFT = -1, BOTH, RIGHT };
#define UNUSED __attribute__((unused))
#define METHOD(name)                                                                               \
    static struct jinja_value m_##name(struct jinja *j, const struct jinja_text *of,               \
                                       const struct jinja_args *args UNUSED, int how UNUSED)

METHOD(strip)
{
    return jinja_of_text(jinja_strip(j, of, jinja_arg_text(j, args, 0, "", NULL), how));
}

METHOD(split)
{
    return (how == AT_BEGIN ? jinja_split : jinja_rsplit)(
        j, of, jinja_arg_text(j, args, 0, "sep", NULL), arg_int(j, args, 1, "maxsplit", -1));
}

METHOD(case)
{
    return jinja_of_text(jinja_case(j, of, (char)how));
}

METHOD(replace)
{
    return jinja_of_text(jinja_replace(j, of, need_text(j, args, 0, ""), need_text(j, args, 1, ""),
                                       arg_int(j, args, 2, "count", -1)));
}

/* Evaluates startswith or endswith with one text or a list of texts. */
METHOD(test)
{
    bool (*test)(const struct jinja_text *, const struct jinja_text *) = how ? ends : begins;
    const struct jinja_value *v = jinja_arg(args, 0, "");
    bool found = false;
    if (!v || v->type != JINJA_LIST || args->n > 1)
        return args->n > 1 ? jinja_error(j, KVF_E_FORMAT, "startswith and endswith take one text")
                           : jinja_bool(test(of, need_text(j, args, 0, "")));
    for (int i = 0; i < v->u.list->n; i++)
        found |= v->u.list->item[i].type == JINJA_TEXT && test(of, v->u.list->item[i].u.text);
    return jinja_bool(found);
}

METHOD(find)
{
    int64_t place = jinja_place(j, of, need_text(j, args, 0, ""), how), chars = 0;
    if (args->n > 1)
        return jinja_error(j, KVF_E_FORMAT, "find and rfind take one text here");
    for (int64_t i = 0; i < place; chars++)
        i += (int64_t)jinja_char(of->s + i, of->n - (size_t)i);
    return jinja_int(place < 0 ? -1 : chars);
}

METHOD(count)
{
    const struct jinja_text *what = need_text(j, args, 0, "");
    int64_t n = 0;
    if (what->n == 0)
        return jinja_error(j, KVF_E_FORMAT, "empty texts are counted");
    jinja_work(j, of->n / 16);
    for (size_t at = 0; at + what->n <= of->n; n++) {
        const char *p = memmem(of->s + at, of->n - at, what->s, what->n);
        if (!p)
            break;
        at = (size_t)(p - of->s) + what->n;
    }
    return jinja_int(n);
}

METHOD(remove)
{
    const struct jinja_text *part = need_text(j, args, 0, "");
    if (how == AT_END ? !ends(of, part) : !begins(of, part))
        return jinja_of_text(of);
    return jinja_of_text(how == AT_END ? jinja_cut(j, of, 0, of->n - part->n)
                                       : jinja_cut(j, of, part->n, of->n));
}

METHOD(splitlines)
{
    const struct jinja_text *feed = jinja_text(j, "\n", 1);
    for (size_t i = 0; i < of->n; i++)
        if ((of->s[i] != '\n' && of->s[i] < ' ' && of->s[i] != '\t') || (of->s[i] & 0x80))
            return jinja_error(j, KVF_E_FORMAT,
                               "splitlines is supported here only for ASCII lines");
    struct jinja_value list = jinja_split(j, of, feed, -1);
    if (!j->err && (of->n == 0 || of->s[of->n - 1] == '\n'))
        list.u.list->n--;
    return list;
}

METHOD(join)
{
    const struct jinja_value *v = jinja_arg(args, 0, "");
    const struct jinja_list *list = v ? jinja_items(j, v) : NULL;
    if (!list)
        return jinja_error(j, KVF_E_FORMAT, "an argument is missing");
    for (int i = 0; i < list->n; i++)
        if (list->item[i].type != JINJA_TEXT)
            return jinja_error(j, KVF_E_FORMAT, "join finds %s where a text is expected",
                               jinja_type_name(&list->item[i]));
    return jinja_joined(j, of, list);
}

static const struct {
    const char *name;
    method_fn *run;
    int how;
} methods[] = {
    {"strip", m_strip, BOTH},
    {"lstrip", m_strip, LEFT},
    {"rstrip", m_strip, RIGHT},
    {"split", m_split, AT_BEGIN},
    {"rsplit", m_split, AT_END},
    {"startswith", m_test, AT_BEGIN},
    {"endswith", m_test, AT_END},
    {"upper", m_case, 'u'},
    {"lower", m_case, 'l'},
    {"title", m_case, 't'},
    {"capitalize", m_case, 'c'},
    {"replace", m_replace},
    {"find", m_find, AT_BEGIN},
    {"rfind", m_find, AT_END},
    {"count", m_count},
    {"join", m_join},
    {"splitlines", m_splitlines},
    {"removeprefix", m_remove, AT_BEGIN},
    {"removesuffix", m_remove, AT_END},
};

/* Returns the place of a method in methods[], or -1. */
static int find_method(const struct jinja_text *name)
{
    for (int i = 0; i < (int)(sizeof methods / sizeof *methods); i++)
        if (jinja_is(name, methods[i].name))
            return i;
    return -1;
}

/* Methods of Python that are not supported here. */
static const char *const others[] = {
    "casefold",  "center",      "encode",  "expandtabs", "format",   "format_map",   "index",
    "isalnum",   "isalpha",     "isascii", "isdecimal",  "isdigit",  "isidentifier", "islower",
    "isnumeric", "isprintable", "isspace", "istitle",    "isupper",  "ljust",        "maketrans",
    "partition", "rindex",      "rjust",   "rpartition", "swapcase", "translate",    "zfill"};

static const char *const dict_methods[] = {"items", "keys", "values", "get"};
static const char *const other_dict_methods[] = {"clear",   "copy",       "fromkeys", "pop",
                                                 "popitem", "setdefault", "update"};

static int index_of(const char *const *list, int n, const struct jinja_text *name)
{
    for (int i = 0; i < n; i++)
        if (jinja_is(name, list[i]))
            return i;
    return -1;
}

#define INDEX_OF(list, name) index_of(list, (int)(sizeof(list) / sizeof *(list)), name)

bool jinja_is_method(const struct jinja_value *of, const struct jinja_text *name)
{
    if (of->type == JINJA_TEXT)
        return find_method(name) >= 0 || INDEX_OF(others, name) >= 0;
    return of->type == JINJA_DICT
           && (INDEX_OF(dict_methods, name) >= 0 || INDEX_OF(other_dict_methods, name) >= 0);
}

bool jinja_text_method(struct jinja *j, const struct jinja_text *of, const struct jinja_text *name,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    int m = find_method(name);
    if (m >= 0)
        *ret = methods[m].run(j, of, args, methods[m].how);
    return m >= 0;
}

bool jinja_dict_method(struct jinja *j, const struct jinja_dict *of, const struct jinja_text *name,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    int m = INDEX_OF(dict_methods, name), k = 0;
    if (m < 0)
        return false;
    if (m == 3) {
        const struct jinja_value *found = jinja_find(of, need_text(j, args, 0, "key"));
        const struct jinja_value *otherwise = jinja_arg(args, 1, "default");
        *ret = otherwise ? *otherwise : jinja_none();
        if (found)
            *ret = *found;
        return true;
    }
    *ret = jinja_list(j, of->n);
    for (const struct jinja_entry *e = of->first; !j->err && e; e = e->next, k++) {
        struct jinja_value key = jinja_of_text(e->key), pair;
        ret->u.list->item[k] = m == 1 ? key : e->value;
        if (m != 0)
            continue;
        pair = jinja_list(j, 2);
        if (j->err)
            break;
        pair.u.list->item[0] = key;
        pair.u.list->item[1] = e->value;
        ret->u.list->item[k] = pair;
    }
    return true;
}

static struct jinja_value loop_member(struct jinja *j, const struct jinja_loop *loop,
                                      const struct jinja_text *name)
{
    static const char *const numbers[] = {"index",     "index0", "length", "revindex",
                                          "revindex0", "depth",  "depth0"};
    static const char *const edges[] = {"first", "last"}, *const items[] = {"previtem", "nextitem"};
    int at = loop->at, n = loop->list->n;
    int k = INDEX_OF(numbers, name), edge = INDEX_OF(edges, name), i = INDEX_OF(items, name);
    const int number[] = {at + 1,     at, n, n - at,
                          n - at - 1, 1, /* depth of recursive loops, which are not supported */
                          0};
    if (k >= 0)
        return jinja_int(number[k]);
    if (edge >= 0)
        return jinja_bool(at == (edge ? n - 1 : 0));
    if (i < 0)
        return jinja_error(j, KVF_E_FORMAT, "loop.%.*s is not known here", (int)name->n, name->s);
    at += i ? 1 : -1;
    return at >= 0 && at < n ? loop->list->item[at] : jinja_undefined(j, name->s, name->n);
}

struct jinja_value jinja_member(struct jinja *j, const struct jinja_value *of,
                                const struct jinja_text *name)
{
    const struct jinja_value *found = NULL;
    if (of->type == JINJA_UNDEFINED) {
        const struct jinja_text *t = of->u.text;
        return jinja_error(j, KVF_E_FORMAT, "'%.*s' is undefined", t ? (int)t->n : 0,
                           t ? t->s : "");
    }
    if (of->type == JINJA_LOOP)
        return loop_member(j, of->u.loop, name);
    if (of->type == JINJA_DICT || of->type == JINJA_NAMESPACE) {
        jinja_work(j, (size_t)of->u.dict->n);
        found = jinja_find(of->u.dict, name);
    }
    return found ? *found : jinja_undefined(j, name->s, name->n);
}

bool jinja_contains(struct jinja *j, const struct jinja_value *in, const struct jinja_value *what)
{
    if (in->type == JINJA_TEXT && what->type == JINJA_TEXT)
        return jinja_place(j, in->u.text, what->u.text, false) >= 0;
    if (in->type == JINJA_TEXT) {
        jinja_error(j, KVF_E_FORMAT, "%s is looked for in a text", jinja_type_name(what));
        return false;
    }
    if (in->type == JINJA_DICT) {
        jinja_work(j, (size_t)in->u.dict->n);
        return what->type == JINJA_TEXT && jinja_find(in->u.dict, what->u.text);
    }
    const struct jinja_list *list = jinja_items(j, in);
    for (int i = 0; !j->err && i < list->n; i++)
        if (jinja_equal(j, &list->item[i], what))
            return true;
    return false;
}
