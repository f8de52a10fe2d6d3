/* chat_json.c - checks messages given as JSON and converts them to values of a template. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/chat_values.h"

/* ---- checks */

static const char *kind_name(char kind)
{
    static const struct {
        char kind;
        const char *name;
    } known[] = {{'{', "an object"}, {'[', "an array"}, {'"', "a text"},
                 {'n', "null"},      {'?', "absent"},   {0, "a number"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].kind == kind)
            return known[i].name;
    return "true or false";
}

/* Checks a part of a content.  A part of text needs a text, and media are rejected. */
static int check_part(const struct json_tape *t, uint32_t part, int message, int at,
                      struct kvf_diag *d)
{
    static const char *const media[] = {"image", "image_url",   "input_image", "audio",
                                        "video", "input_audio", "video_url",   "file"};
    uint32_t type = json_tape_get(t, part, "type");
    if (json_tape_kind(t, part) != '{' || json_tape_kind(t, type) != '"')
        return kvf_fail(d, KVF_E_FORMAT,
                        "message %d: part %d of \"content\" must be an object with a text \"type\"",
                        message, at);
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        if (json_tape_is(t, type, media[i]))
            return kvf_fail(d, KVF_E_FORMAT,
                            "message %d: part %d of \"content\" has the type \"%s\"; the decoder "
                            "reads text only",
                            message, at, media[i]);
    char kind = json_tape_kind(t, json_tape_get(t, part, "text"));
    if (json_tape_is(t, type, "text") && kind != '"')
        return kvf_fail(d, KVF_E_FORMAT,
                        "message %d: \"text\" of part %d of \"content\" is %s; it must be a text",
                        message, at, kind_name(kind));
    return KVF_OK;
}

static int check_message(const struct json_tape *t, uint32_t m, int message, struct kvf_diag *d)
{
    if (json_tape_kind(t, m) != '{')
        return kvf_fail(d, KVF_E_FORMAT,
                        "message %d is %s; it must be an object with \"role\" and \"content\"",
                        message, kind_name(json_tape_kind(t, m)));
    char role = json_tape_kind(t, json_tape_get(t, m, "role"));
    if (role != '"')
        return kvf_fail(d, KVF_E_FORMAT,
                        "message %d: \"role\" is %s; it must be a text, such as \"user\"", message,
                        kind_name(role));
    uint32_t content = json_tape_get(t, m, "content");
    char kind = json_tape_kind(t, content);
    if (!strchr("\"[n?", kind) || !kind)
        return kvf_fail(
            d, KVF_E_FORMAT,
            "message %d: \"content\" is %s; it must be a text, an array of parts or null", message,
            kind_name(kind));
    int err = KVF_OK, at = 1;
    if (kind == '[')
        for (uint32_t p = json_tape_first(t, content); !err && p; p = json_tape_next(t, p))
            err = check_part(t, p, message, at++, d);
    return err;
}

/* Checks that the object has no members besides "messages" and "tools". */
static int check_members(const struct json_tape *t, struct kvf_diag *d)
{
    uint32_t count = (json_tape_get(t, 1, "messages") != 0) + (json_tape_get(t, 1, "tools") != 0);
    struct buf scratch = {0};
    size_t n = 0;
    const char *key = NULL;
    if (json_tape_count(t, 1) == count)
        return KVF_OK;
    for (uint32_t v = json_tape_first(t, 1); v; v = json_tape_next(t, v)) {
        key = json_tape_key(t, v, &scratch, &n);
        if (v != json_tape_get(t, 1, "messages") && v != json_tape_get(t, 1, "tools"))
            break;
    }
    int err = kvf_fail(d, KVF_E_FORMAT,
                       "the member \"%.*s\" is not supported; an object has \"messages\" and "
                       "\"tools\"",
                       (int)(n < 60 ? n : 60), key ? key : "");
    buf_finish(&scratch);
    return err;
}

/* Sets *ret to a number as Python reads it: one without a fraction and an exponent is an integer.
 * Returns false if an integer needs more than 64 bits. */
static bool parse_number(const struct json_tape *t, uint32_t v, struct jinja_value *ret)
{
    char text[JSON_NUMBER + 1];
    size_t n;
    const char *s = json_tape_number(t, v, &n);
    memcpy(text, s, n);
    text[n] = 0;
    errno = 0;
    if (!strpbrk(text, ".eE")) {
        *ret = jinja_int(strtoll(text, NULL, 10));
        return errno == 0;
    }
    *ret = (struct jinja_value){JINJA_FLOAT, {.f = strtod(text, NULL)}};
    return true;
}

static int check_numbers(const struct json_tape *t, struct kvf_diag *d)
{
    struct jinja_value unused;
    for (uint32_t v = 1; v < t->n; v++) {
        size_t n;
        const char *s = json_tape_number(t, v, &n);
        if (n && !parse_number(t, v, &unused))
            return kvf_fail(d, KVF_E_FORMAT, "the number %.*s is out of range",
                            (int)(n < 60 ? n : 60), s);
    }
    return KVF_OK;
}

static int check(struct chat_json *c, bool others, struct kvf_diag *d)
{
    const struct json_tape *t = &c->tape;
    bool object = json_tape_kind(t, 1) == '{';
    c->messages = object ? json_tape_get(t, 1, "messages") : 1;
    c->tools = object ? json_tape_get(t, 1, "tools") : 0;
    uint32_t n = json_tape_kind(t, c->messages) == '[' ? json_tape_count(t, c->messages) : 0;
    if (n < 1 || n > CHAT_MESSAGES)
        return kvf_fail(d, KVF_E_FORMAT,
                        "expected a JSON array of 1 to %d messages {\"role\", \"content\"}, or an "
                        "object that has it as \"messages\"",
                        CHAT_MESSAGES);
    if (c->tools && json_tape_kind(t, c->tools) == 'n')
        c->tools = 0;
    if (c->tools && json_tape_kind(t, c->tools) != '[')
        return kvf_fail(d, KVF_E_FORMAT, "\"tools\" is %s; it must be an array of functions",
                        kind_name(json_tape_kind(t, c->tools)));
    int err = object && !others ? check_members(t, d) : KVF_OK;
    c->n = 0;
    for (uint32_t m = json_tape_first(t, c->messages); !err && m; m = json_tape_next(t, m))
        err = check_message(t, m, ++c->n, d);
    return err ? err : check_numbers(t, d);
}

int chat_json_open(const char *text, size_t n, bool others, struct chat_json *ret,
                   struct kvf_diag *d)
{
    *ret = (struct chat_json){.n = 0};
    int err = json_tape_open(text, n, JSON_MOST, &ret->tape, d);
    if (err)
        return err;
    err = json_tape_reject_nul(&ret->tape, d);
    if (!err)
        err = check(ret, others, d);
    if (err)
        chat_json_close(ret);
    return err;
}

void chat_json_close(struct chat_json *c)
{
    json_tape_finish(&c->tape);
    *c = (struct chat_json){.n = 0};
}

/* ---- values */

/* The position of a value in a conversation. It determines which texts are marked. */
enum marked { NOTHING, LIST, MESSAGE, PARTS, PART };

/* A list or dictionary on the stack of the conversion. */
struct level {
    struct jinja_value of; /* the list or dictionary that is being filled */
    enum marked marked;
    uint32_t next; /* next value of the tape */
    int at;        /* index in the list */
};

struct maker {
    struct jinja *j;
    const struct chat_json *c;
    struct buf scratch;
    struct level stack[JSON_DEEPEST];
    int depth, message; /* message: index of the present message, from 0; -1 if none */
};

struct jinja_value chat_marked(struct jinja *j, const char *s, size_t n, int message)
{
    struct jinja_mark *mark = jinja_alloc(j, 1, sizeof *mark);
    struct jinja_text *t = jinja_alloc(j, 1, sizeof *t);
    if (!mark || !t)
        return jinja_none();
    *mark = (struct jinja_mark){0, n, message};
    *t = (struct jinja_text){s, n, mark, n > 0};
    return jinja_of_text(t);
}

/* Returns a copy of a text of the tape in the arena. */
static const char *copied(struct maker *m, const char *s, size_t n)
{
    char *copy = jinja_alloc(m->j, n + 1, 1);
    if (copy && s)
        memcpy(copy, s, n);
    return copy ? copy : "";
}

static bool is_speech(enum marked in, const char *key)
{
    static const char *const speech[] = {"content", "reasoning_content", "reasoning", "thinking"};
    if (in == PART)
        return strcmp(key, "text") == 0 || strcmp(key, "thinking") == 0;
    for (size_t i = 0; in == MESSAGE && i < sizeof speech / sizeof *speech; i++)
        if (strcmp(key, speech[i]) == 0)
            return true;
    return false;
}

static struct jinja_value value_of(struct maker *m, uint32_t v, bool marked)
{
    const struct json_tape *t = &m->c->tape;
    size_t n = 0;
    char kind = json_tape_kind(t, v);
    if (kind == '[')
        return jinja_list(m->j, (int)json_tape_count(t, v));
    if (kind == '{')
        return jinja_dict(m->j);
    if (kind == 'n')
        return jinja_none();
    if (kind == 't' || kind == 'f')
        return jinja_bool(kind == 't');
    if (kind == 0) {
        struct jinja_value x = jinja_none();
        parse_number(t, v, &x);
        return x;
    }
    const char *s = json_tape_str(t, v, &m->scratch, &n);
    s = copied(m, s, n);
    return marked ? chat_marked(m->j, s, n, m->message) : jinja_of_text(jinja_text(m->j, s, n));
}

static void push(struct maker *m, struct jinja_value x, uint32_t v, enum marked marked)
{
    if (!m->j->err && m->depth < JSON_DEEPEST)
        m->stack[m->depth++] = (struct level){x, marked, json_tape_first(&m->c->tape, v), 0};
}

/* Adds the next value to the innermost list or dictionary. */
static void add_next(struct maker *m, struct level *l)
{
    const struct json_tape *t = &m->c->tape;
    uint32_t v = l->next;
    static const enum marked inside[] = {[LIST] = MESSAGE, [PARTS] = PART, [PART] = NOTHING};
    size_t n = 0;
    l->next = json_tape_next(t, v);
    m->message += l->marked == LIST;
    if (l->of.type == JINJA_LIST) {
        l->of.u.list->item[l->at] = value_of(m, v, false);
        push(m, l->of.u.list->item[l->at++], v, inside[l->marked]);
        return;
    }
    const char *key = json_tape_key(t, v, &m->scratch, &n);
    key = copied(m, key, n);
    bool speech = is_speech(l->marked, key);
    struct jinja_value x = value_of(m, v, speech);
    const struct jinja_text *name = jinja_text(m->j, key, n);
    jinja_set(m->j, l->of.u.dict, name, x);
    push(m, x, v, l->marked == MESSAGE && strcmp(key, "content") == 0 ? PARTS : NOTHING);
}

struct jinja_value chat_values(struct jinja *j, const struct chat_json *c, uint32_t array)
{
    struct maker m = {.j = j, .c = c, .message = -1};
    struct jinja_value list = value_of(&m, array, false);
    push(&m, list, array, array == c->messages ? LIST : NOTHING);
    while (m.depth > 0 && !j->err) {
        struct level *l = &m.stack[m.depth - 1];
        if (l->next)
            add_next(&m, l);
        else
            m.depth--;
    }
    buf_finish(&m.scratch);
    return list;
}
