/* jinja_value.c - values, texts and the arena of a template. */
#include "engine/model/jinja_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { CHUNK = 1 << 16, ALIGN = 16 };

struct jinja_chunk {
    struct jinja_chunk *next;
    size_t used, cap;
    _Alignas(ALIGN) char data[];
};

void jinja_free(struct jinja *j)
{
    while (j->chunks) {
        struct jinja_chunk *next = j->chunks->next;
        mem_free(j->chunks);
        j->chunks = next;
    }
}

struct jinja_value jinja_error(struct jinja *j, int err, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!j->err && j->line > 0)
        j->err = kvf_fail(j->d, err, "line %d of the chat template: %s", j->line, text);
    else if (!j->err) /* an error before the template is parsed */
        j->err = kvf_fail(j->d, err, "%s", text);
    return (struct jinja_value){JINJA_UNDEFINED, {.text = NULL}};
}

bool jinja_work(struct jinja *j, size_t n)
{
    if (j->err)
        return false;
    if (n > j->work_left) {
        j->work_left = 0;
        jinja_error(j, KVF_E_LIMIT, "rendering takes more steps than a template may");
        return false;
    }
    j->work_left -= n;
    return true;
}

static struct jinja_chunk *add_chunk(struct jinja *j, size_t bytes)
{
    size_t cap = bytes > CHUNK ? bytes : CHUNK;
    if (bytes > j->memory_left || cap > j->memory_left) {
        jinja_error(j, KVF_E_LIMIT, "rendering takes more memory than a template may");
        return NULL;
    }
    struct jinja_chunk *c = mem_alloc(1, sizeof *c + cap);
    if (!c) {
        jinja_error(j, KVF_E_NOMEM, "out of memory");
        return NULL;
    }
    j->memory_left -= cap;
    c->cap = cap;
    c->next = j->chunks;
    j->chunks = c;
    return c;
}

void *jinja_alloc(struct jinja *j, size_t n, size_t size)
{
    size_t bytes;
    if (!mem_mul(n, size, &bytes) || !mem_add(bytes, ALIGN - 1, &bytes))
        bytes = SIZE_MAX;
    bytes = bytes / ALIGN * ALIGN;
    if (!jinja_work(j, 1 + bytes / 64))
        return NULL;
    struct jinja_chunk *c = j->chunks;
    if (!c || bytes > c->cap - c->used)
        c = add_chunk(j, bytes);
    if (!c)
        return NULL;
    void *p = c->data + c->used;
    c->used += bytes;
    return p;
}

static const struct jinja_text empty = {"", 0, NULL, 0};

static const struct jinja_text *new_text(struct jinja *j, const char *s, size_t n,
                                         const struct jinja_mark *mark, int n_marks)
{
    struct jinja_text *t = jinja_alloc(j, 1, sizeof *t);
    if (!t)
        return &empty;
    *t = (struct jinja_text){s, n, mark, n_marks};
    return t;
}

const struct jinja_text *jinja_text(struct jinja *j, const char *s, size_t n)
{
    return new_text(j, s, n, NULL, 0);
}

void jinja_put(struct jinja *j, struct jinja_out *out, const struct jinja_text *t)
{
    if (t->n > out->cap - out->n) {
        size_t cap = 2 * out->cap > out->n + t->n ? 2 * out->cap : out->n + t->n + 64;
        char *s = jinja_alloc(j, cap, 1);
        if (!s)
            return;
        if (out->n)
            memcpy(s, out->s, out->n);
        out->s = s;
        out->cap = cap;
    }
    if (t->n_marks > out->cap_marks - out->n_marks) {
        int cap = 2 * out->cap_marks + t->n_marks + 4;
        struct jinja_mark *mark = jinja_alloc(j, (size_t)cap, sizeof *mark);
        if (!mark)
            return;
        if (out->n_marks)
            memcpy(mark, out->mark, (size_t)out->n_marks * sizeof *mark);
        out->mark = mark;
        out->cap_marks = cap;
    }
    if (!jinja_work(j, 1 + t->n / 64))
        return;
    for (int i = 0; i < t->n_marks; i++) {
        const struct jinja_mark *m = &t->mark[i];
        out->mark[out->n_marks++] = (struct jinja_mark){out->n + m->from, out->n + m->to,
                                                        m->message};
    }
    if (t->n)
        memcpy(out->s + out->n, t->s, t->n);
    out->n += t->n;
}

const struct jinja_text *jinja_taken(struct jinja *j, const struct jinja_out *out)
{
    return new_text(j, out->n ? out->s : "", out->n, out->mark, out->n_marks);
}

const struct jinja_text *jinja_join(struct jinja *j, const struct jinja_text *const *part, int n)
{
    struct jinja_out out = {0};
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += part[i]->n;
    out.s = jinja_alloc(j, bytes, 1);
    out.cap = out.s ? bytes : 0;
    for (int i = 0; !j->err && i < n; i++)
        jinja_put(j, &out, part[i]);
    return jinja_taken(j, &out);
}

const struct jinja_text *jinja_cut(struct jinja *j, const struct jinja_text *t, size_t from,
                                   size_t to)
{
    struct jinja_mark *mark = t->n_marks ? jinja_alloc(j, (size_t)t->n_marks, sizeof *mark) : NULL;
    int n = 0;
    for (int i = 0; mark && i < t->n_marks; i++) {
        size_t a = t->mark[i].from > from ? t->mark[i].from : from;
        size_t b = t->mark[i].to < to ? t->mark[i].to : to;
        if (a < b)
            mark[n++] = (struct jinja_mark){a - from, b - from, t->mark[i].message};
    }
    return new_text(j, t->s + from, to - from, mark, n);
}

bool jinja_is(const struct jinja_text *t, const char *s)
{
    return strlen(s) == t->n && memcmp(t->s, s, t->n) == 0;
}

bool jinja_same(const struct jinja_text *a, const struct jinja_text *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->s, b->s, a->n) == 0);
}

size_t jinja_char(const char *s, size_t n)
{
    uint32_t cp;
    size_t len = utf8_decode(s, n, &cp);
    return len ? len : 1;
}

int64_t jinja_chars(struct jinja *j, const struct jinja_text *t)
{
    int64_t chars = 0;
    jinja_work(j, t->n / 16);
    for (size_t i = 0; i < t->n; i += jinja_char(t->s + i, t->n - i))
        chars++;
    return chars;
}

struct jinja_value jinja_undefined(struct jinja *j, const char *name, size_t n)
{
    return (struct jinja_value){JINJA_UNDEFINED, {.text = jinja_text(j, name, n)}};
}

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){JINJA_NONE, {.i = 0}};
}

struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){JINJA_BOOL, {.b = b}};
}

struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){JINJA_INT, {.i = i}};
}

struct jinja_value jinja_of_text(const struct jinja_text *t)
{
    return (struct jinja_value){JINJA_TEXT, {.text = t}};
}

struct jinja_value jinja_str(struct jinja *j, const char *s)
{
    return jinja_of_text(jinja_text(j, s, strlen(s)));
}

struct jinja_value jinja_list(struct jinja *j, int n)
{
    struct jinja_list *list = jinja_alloc(j, 1, sizeof *list);
    struct jinja_value *item = jinja_alloc(j, (size_t)n, sizeof *item);
    if (!list || !item)
        return jinja_error(j, KVF_E_NOMEM, "out of memory");
    *list = (struct jinja_list){item, n};
    return (struct jinja_value){JINJA_LIST, {.list = list}};
}

struct jinja_value jinja_dict(struct jinja *j)
{
    struct jinja_dict *dict = jinja_alloc(j, 1, sizeof *dict);
    if (!dict)
        return jinja_error(j, KVF_E_NOMEM, "out of memory");
    return (struct jinja_value){JINJA_DICT, {.dict = dict}};
}

struct jinja_value *jinja_find(const struct jinja_dict *dict, const struct jinja_text *key)
{
    for (struct jinja_entry *e = dict->first; e; e = e->next)
        if (jinja_same(e->key, key))
            return &e->value;
    return NULL;
}

void jinja_set(struct jinja *j, struct jinja_dict *dict, const struct jinja_text *key,
               struct jinja_value v)
{
    if (!jinja_work(j, 1 + (size_t)dict->n))
        return;
    struct jinja_value *old = jinja_find(dict, key);
    struct jinja_entry *e = old ? NULL : jinja_alloc(j, 1, sizeof *e);
    if (old)
        *old = v;
    if (!e)
        return;
    *e = (struct jinja_entry){key, v, NULL};
    if (dict->last)
        dict->last->next = e;
    else
        dict->first = e;
    dict->last = e;
    dict->n++;
}

bool jinja_number(const struct jinja_value *v, double *ret)
{
    switch (v->type) {
    case JINJA_BOOL:
        *ret = v->u.b;
        return true;
    case JINJA_INT:
        *ret = (double)v->u.i;
        return true;
    case JINJA_FLOAT:
        *ret = v->u.f;
        return true;
    default:
        return false;
    }
}

bool jinja_true(const struct jinja_value *v)
{
    double x;
    if (jinja_number(v, &x))
        return x != 0;
    switch (v->type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_TEXT:
        return v->u.text->n > 0;
    case JINJA_LIST:
        return v->u.list->n > 0;
    case JINJA_DICT:
        return v->u.dict->n > 0;
    default:
        return true;
    }
}

const char *jinja_type_name(const struct jinja_value *v)
{
    static const char *const name[] = {[JINJA_UNDEFINED] = "an undefined value",
                                       [JINJA_NONE] = "none",
                                       [JINJA_BOOL] = "true or false",
                                       [JINJA_INT] = "a number",
                                       [JINJA_FLOAT] = "a number",
                                       [JINJA_TEXT] = "a text",
                                       [JINJA_LIST] = "a list",
                                       [JINJA_DICT] = "a dictionary",
                                       [JINJA_NAMESPACE] = "a namespace",
                                       [JINJA_LOOP] = "a loop",
                                       [JINJA_FUNCTION] = "a function",
                                       [JINJA_MACRO] = "a macro"};
    return name[v->type];
}

static bool same_lists(struct jinja *j, const struct jinja_list *a, const struct jinja_list *b)
{
    bool same = a->n == b->n && j->depth < JINJA_MAX_DEPTH;
    if (!same && a->n == b->n)
        jinja_error(j, KVF_E_LIMIT, "lists are nested too deep");
    j->depth++;
    for (int i = 0; same && !j->err && i < a->n; i++)
        same = jinja_equal(j, &a->item[i], &b->item[i]);
    j->depth--;
    return same;
}

bool jinja_equal(struct jinja *j, const struct jinja_value *a, const struct jinja_value *b)
{
    double x, y;
    if (!jinja_work(j, 1))
        return false;
    if (a->type == JINJA_INT && b->type == JINJA_INT)
        return a->u.i == b->u.i;
    if (jinja_number(a, &x) && jinja_number(b, &y))
        return x == y;
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_TEXT:
        jinja_work(j, a->u.text->n / 64);
        return jinja_same(a->u.text, b->u.text);
    case JINJA_LIST:
        return same_lists(j, a->u.list, b->u.list);
    case JINJA_DICT:
        if (a->u.dict != b->u.dict && (a->u.dict->n || b->u.dict->n))
            jinja_error(j, KVF_E_FORMAT, "dictionaries are not compared here");
        return true;
    default:
        return a->u.dict == b->u.dict;
    }
}

int jinja_order(struct jinja *j, const struct jinja_value *a, const struct jinja_value *b)
{
    double x, y;
    if (a->type == JINJA_INT && b->type == JINJA_INT)
        return (a->u.i > b->u.i) - (a->u.i < b->u.i);
    if (jinja_number(a, &x) && jinja_number(b, &y))
        return (x > y) - (x < y);
    if (a->type == JINJA_TEXT && b->type == JINJA_TEXT) {
        size_t n = a->u.text->n < b->u.text->n ? a->u.text->n : b->u.text->n;
        int c = memcmp(a->u.text->s, b->u.text->s, n);
        jinja_work(j, n / 64);
        return c ? c : (a->u.text->n > b->u.text->n) - (a->u.text->n < b->u.text->n);
    }
    jinja_error(j, KVF_E_FORMAT, "%s and %s have no order", jinja_type_name(a), jinja_type_name(b));
    return 0;
}

static const struct jinja_list *characters(struct jinja *j, const struct jinja_text *t)
{
    struct jinja_value list = jinja_list(j, (int)jinja_chars(j, t));
    size_t at = 0;
    for (int k = 0; !j->err && k < list.u.list->n; k++) {
        size_t len = jinja_char(t->s + at, t->n - at);
        list.u.list->item[k] = jinja_of_text(jinja_cut(j, t, at, at + len));
        at += len;
    }
    return j->err ? NULL : list.u.list;
}

const struct jinja_list *jinja_items(struct jinja *j, const struct jinja_value *v)
{
    static const struct jinja_list none = {NULL, 0};
    const struct jinja_list *got = NULL;
    struct jinja_value keys;
    int k = 0;
    switch (v->type) {
    case JINJA_UNDEFINED:
        return &none;
    case JINJA_LIST:
        return v->u.list;
    case JINJA_TEXT:
        got = v->u.text->n < 1 << 24 ? characters(j, v->u.text) : NULL;
        break;
    case JINJA_DICT:
        keys = jinja_list(j, v->u.dict->n);
        for (const struct jinja_entry *e = v->u.dict->first; !j->err && e; e = e->next)
            keys.u.list->item[k++] = jinja_of_text(e->key);
        got = j->err ? NULL : keys.u.list;
        break;
    default:
        break;
    }
    if (!got)
        jinja_error(j, KVF_E_FORMAT, "%s has no items to go through", jinja_type_name(v));
    return got ? got : &none;
}

/* Writes a number as Python's repr does: the fewest digits that read back equal, with an exponent
 * below 1e-4 and from 1e16 on.  v is finite. */
static size_t put_float(double v, char *out, size_t cap)
{
    int digits = 0, exponent = 0;
    for (; digits <= 16; digits++) {
        snprintf(out, cap, "%.*e", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    exponent = (int)strtol(strchr(out, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16)
        snprintf(out, cap, "%.*f", digits > exponent ? digits - exponent : 1, v);
    return strlen(out);
}

static const struct jinja_text *printed_number(struct jinja *j, const struct jinja_value *v)
{
    enum { LONGEST = 48 };
    char *s = jinja_alloc(j, LONGEST, 1);
    if (!s)
        return &empty;
    if (v->type == JINJA_INT)
        return jinja_text(j, s, (size_t)snprintf(s, LONGEST, "%lld", (long long)v->u.i));
    if (!isfinite(v->u.f)) {
        jinja_error(j, KVF_E_FORMAT, "it prints a number that is not finite");
        return &empty;
    }
    return jinja_text(j, s, put_float(v->u.f, s, LONGEST));
}

const struct jinja_text *jinja_printed(struct jinja *j, const struct jinja_value *v)
{
    switch (v->type) {
    case JINJA_UNDEFINED:
        return &empty;
    case JINJA_NONE:
        return jinja_text(j, "None", 4);
    case JINJA_BOOL:
        return v->u.b ? jinja_text(j, "True", 4) : jinja_text(j, "False", 5);
    case JINJA_INT:
    case JINJA_FLOAT:
        return printed_number(j, v);
    case JINJA_TEXT:
        return v->u.text;
    default:
        jinja_error(j, KVF_E_FORMAT, "it prints %s, which is not done here", jinja_type_name(v));
        return &empty;
    }
}
