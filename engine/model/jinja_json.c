/* jinja_json.c - the filter tojson of the transformers library: json.dumps with
 * ensure_ascii=False, ", " and ": " between parts, and line feeds if an indent is given. */
#include "engine/model/jinja_words.h"

#include <stdio.h>

struct writer {
    struct jinja *j;
    struct jinja_out out;
    int64_t indent;
    int depth;
};

static void put(struct writer *w, const char *s, size_t n)
{
    const struct jinja_text t = {s, n, NULL, 0};
    jinja_put(w->j, &w->out, &t);
}

static void put_text(struct writer *w, const struct jinja_text *t)
{
    static const char plain[] = "\"\\\n\r\t\b\f", shown[] = "\"\\nrtbf";
    size_t from = 0;
    put(w, "\"", 1);
    for (size_t i = 0; i <= t->n; i++) {
        unsigned char c = i < t->n ? (unsigned char)t->s[i] : 0;
        if (i < t->n && c >= ' ' && c != '"' && c != '\\')
            continue;
        if (i > from)
            jinja_put(w->j, &w->out, jinja_cut(w->j, t, from, i));
        from = i + 1;
        if (i == t->n)
            break;
        char code[8];
        int n = snprintf(code, sizeof code, "\\u%04x", c);
        for (int k = 0; plain[k]; k++)
            if ((unsigned char)plain[k] == c)
                n = snprintf(code, sizeof code, "\\%c", shown[k]);
        put(w, code, (size_t)n);
    }
    put(w, "\"", 1);
}

static void new_line(struct writer *w)
{
    if (w->indent < 0)
        return;
    put(w, "\n", 1);
    for (int64_t i = 0; i < w->indent * w->depth && !w->j->err; i++)
        put(w, " ", 1);
}

static void put_value(struct writer *w, const struct jinja_value *v);

static void separate(struct writer *w, int at)
{
    if (at > 0)
        put(w, ", ", w->indent < 0 ? 2 : 1);
    new_line(w);
}

static void put_list(struct writer *w, const struct jinja_list *list)
{
    put(w, "[", 1);
    w->depth++;
    for (int i = 0; !w->j->err && i < list->n; i++) {
        separate(w, i);
        put_value(w, &list->item[i]);
    }
    w->depth--;
    if (list->n)
        new_line(w);
    put(w, "]", 1);
}

static void put_dict(struct writer *w, const struct jinja_dict *dict)
{
    int i = 0;
    put(w, "{", 1);
    w->depth++;
    for (const struct jinja_entry *e = dict->first; !w->j->err && e; e = e->next, i++) {
        separate(w, i);
        put_text(w, e->key);
        put(w, ": ", 2);
        put_value(w, &e->value);
    }
    w->depth--;
    if (dict->n)
        new_line(w);
    put(w, "}", 1);
}

static void put_value(struct writer *w, const struct jinja_value *v)
{
    if (w->depth > JINJA_MAX_DEPTH) {
        jinja_error(w->j, KVF_E_LIMIT, "a value to be written as JSON is nested too deep");
        return;
    }
    switch (v->type) {
    case JINJA_NONE:
        put(w, "null", 4);
        break;
    case JINJA_BOOL:
        put(w, v->u.b ? "true" : "false", v->u.b ? 4 : 5);
        break;
    case JINJA_INT:
    case JINJA_FLOAT:
        jinja_put(w->j, &w->out, jinja_printed(w->j, v));
        break;
    case JINJA_TEXT:
        put_text(w, v->u.text);
        break;
    case JINJA_LIST:
        put_list(w, v->u.list);
        break;
    case JINJA_DICT:
        put_dict(w, v->u.dict);
        break;
    default:
        jinja_error(w->j, KVF_E_FORMAT, "%s cannot be written as JSON", jinja_type_name(v));
    }
}

struct jinja_value jinja_tojson(struct jinja *j, const struct jinja_value *v, int64_t indent)
{
    struct writer w = {.j = j, .indent = indent};
    if (indent > 64)
        return jinja_error(j, KVF_E_LIMIT, "an indent is too large");
    put_value(&w, v);
    return jinja_of_text(jinja_taken(j, &w.out));
}
