/* jinja_functions.c - functions that every template can call. */
#include "engine/model/jinja_run.h"

#include <stdio.h>
#include <string.h>

#include "engine/model/jinja_words.h"

enum { MOST_RANGE = 100000 };

const struct jinja_value *jinja_lookup(struct jinja *j, const struct jinja_text *name)
{
    for (const struct jinja_frame *f = j->frame; f; f = f->around)
        for (const struct jinja_variable *v = f->first; v && jinja_work(j, 1); v = v->next)
            if (jinja_same(v->name, name))
                return &v->value;
    return NULL;
}

void jinja_assign(struct jinja *j, const struct jinja_text *name, struct jinja_value value)
{
    struct jinja_variable *v = j->frame->first;
    while (v && jinja_work(j, 1) && !jinja_same(v->name, name))
        v = v->next;
    if (j->err)
        return;
    if (!v) {
        v = jinja_alloc(j, 1, sizeof *v);
        if (!v)
            return;
        v->name = name;
        v->next = j->frame->first;
        j->frame->first = v;
    }
    v->value = value;
}

static struct jinja_value raised(struct jinja *j, const struct jinja_args *args)
{
    const struct jinja_text *t = args->n ? jinja_printed(j, &args->v[0]) : jinja_text(j, "", 0);
    return jinja_error(j, KVF_E_FORMAT, "it rejects these messages: %.*s",
                       (int)(t->n < 200 ? t->n : 200), t->s);
}

static struct jinja_value named_values(struct jinja *j, const struct jinja_args *args,
                                       enum jinja_type type)
{
    struct jinja_value ret = jinja_dict(j);
    if (args->n)
        return jinja_error(j, KVF_E_FORMAT, "namespace and dict take only named values here");
    for (int i = 0; !j->err && i < args->n_named; i++)
        jinja_set(j, ret.u.dict, args->name[i], args->named[i]);
    if (!j->err)
        ret.type = type;
    return ret;
}

static struct jinja_value range_of(struct jinja *j, const struct jinja_args *args)
{
    int64_t v[3] = {0, 0, 1};
    for (int i = 0; i < args->n && i < 3; i++) {
        if (args->v[i].type != JINJA_INT || args->v[i].u.i > INT32_MAX
            || args->v[i].u.i < -INT32_MAX)
            return jinja_error(j, KVF_E_FORMAT, "range needs a number that is not too large");
        v[i] = args->v[i].u.i;
    }
    if (args->n == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (args->n < 1 || args->n > 3 || v[2] == 0)
        return jinja_error(j, KVF_E_FORMAT, "range takes one to three numbers, and no step of 0");
    int64_t span = v[2] > 0 ? v[1] - v[0] : v[0] - v[1], step = v[2] > 0 ? v[2] : -v[2];
    int64_t n = span > 0 ? (span + step - 1) / step : 0;
    if (n > MOST_RANGE)
        return jinja_error(j, KVF_E_LIMIT, "range of more than %d numbers", MOST_RANGE);
    struct jinja_value list = jinja_list(j, (int)n);
    for (int64_t i = 0; !j->err && i < n; i++)
        list.u.list->item[i] = jinja_int(v[0] + i * v[2]);
    return list;
}

/* Formats the caller's date with the codes of C's strftime that name a day in English. */
static struct jinja_value date_of(struct jinja *j, const struct jinja_args *args)
{
    static const char *const month[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};
    static const char *const day[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
    static const int shift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4}; /* Sakamoto's method */
    int y, m, d;
    const struct jinja_text *form = jinja_arg_text(j, args, 0, "format", jinja_text(j, "", 0));
    char *out = jinja_alloc(j, 16 * form->n + 16, 1);
    if (!out || sscanf(j->date, "%d-%d-%d", &y, &m, &d) != 3)
        return jinja_error(j, KVF_E_FORMAT, "the date is not one");
    int from = m < 3 ? y - 1 : y;
    const char *weekday = day[(from + from / 4 - from / 100 + from / 400 + shift[m - 1] + d) % 7];
    size_t n = 0;
    for (size_t i = 0; i < form->n; i++) {
        char c = form->s[i], code = c == '%' && i + 1 < form->n ? form->s[++i] : 0;
        char *at = out + n;
        switch (code) {
        case 0:
            out[n] = c;
            n++;
            break;
        case 'Y':
            n += (size_t)snprintf(at, 16, "%04d", y);
            break;
        case 'm':
        case 'd':
            n += (size_t)snprintf(at, 16, "%02d", code == 'm' ? m : d);
            break;
        case 'B':
        case 'b':
            n += (size_t)snprintf(at, 16, code == 'b' ? "%.3s" : "%s", month[m - 1]);
            break;
        case 'A':
        case 'a':
            n += (size_t)snprintf(at, 16, code == 'a' ? "%.3s" : "%s", weekday);
            break;
        default:
            return jinja_error(j, KVF_E_FORMAT, "strftime_now with %%%c, which is no day", code);
        }
    }
    return jinja_of_text(jinja_text(j, out, n));
}

struct jinja_value jinja_call(struct jinja *j, int64_t function, const struct jinja_args *args)
{
    switch (function) {
    case JINJA_RAISE:
        return raised(j, args);
    case JINJA_NAMESPACE_OF:
        return named_values(j, args, JINJA_NAMESPACE);
    case JINJA_DICT_OF:
        return named_values(j, args, JINJA_DICT);
    case JINJA_RANGE:
        return range_of(j, args);
    default:
        return date_of(j, args);
    }
}
