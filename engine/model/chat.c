/* chat.c - renders chat templates and finds the roles of the rendered text. */

#include <string.h>

#include "base/mem.h"
#include "engine/model/chat_values.h"
#include "engine/model/jinja.h"

static const char template_key[] = "tokenizer.chat_template";

bool chat_has_template(const struct gguf *g)
{
    size_t len;
    return gguf_str(g, template_key, &len) != NULL;
}

const char *chat_role_name(enum chat_role role)
{
    static const char *const name[] = {[CHAT_MARKS] = "marks",
                                       [CHAT_SYSTEM] = "system",
                                       [CHAT_USER] = "user",
                                       [CHAT_ANSWER] = "answer",
                                       [CHAT_THOUGHT] = "think"};
    return name[role];
}

bool chat_may_think(const struct gguf *g)
{
    size_t len;
    const char *t = gguf_str(g, template_key, &len);
    return t && memmem(t, len, "<think>", 7);
}

void chat_text_free(struct chat_text *t)
{
    buf_finish(&t->text);
    mem_free(t->span);
    *t = (struct chat_text){.span = NULL};
}

/* The text of one token of the vocabulary. */
struct token_text {
    int64_t id;
    const char *s;
    size_t n;
};

static void on_token(void *ctx, int64_t i, const char *s, size_t len)
{
    struct token_text *t = ctx;
    if (i == t->id) {
        t->s = s;
        t->n = len;
    }
}

/* Sets bos_token or eos_token; it is undefined if the file has none, as in the transformers
 * library. */
static void set_token(struct jinja *j, struct jinja_dict *dict, const struct gguf *g,
                      const char *name, const char *key)
{
    struct token_text t = {.id = gguf_int(g, key, -1)};
    if (t.id >= 0)
        gguf_each_str(g, "tokenizer.ggml.tokens", on_token, &t);
    if (t.s)
        jinja_set(j, dict, jinja_text(j, name, strlen(name)),
                  jinja_of_text(jinja_text(j, t.s, t.n)));
}

static void set_str(struct jinja *j, struct jinja_dict *dict, const char *key, struct jinja_value v)
{
    jinja_set(j, dict, jinja_text(j, key, strlen(key)), v);
}

static struct jinja_value messages_of(struct jinja *j, const struct chat_request *r)
{
    if (r->json)
        return chat_values(j, r->json, r->json->messages);
    struct jinja_value list = jinja_list(j, r->n);
    for (int i = 0; i < r->n && !j->err; i++) {
        struct jinja_value m = jinja_dict(j);
        if (j->err)
            break;
        set_str(j, m.u.dict, "role", jinja_str(j, r->msg[i].role));
        set_str(j, m.u.dict, "content",
                chat_marked(j, r->msg[i].content, strlen(r->msg[i].content), i));
        list.u.list->item[i] = m;
    }
    return list;
}

static struct jinja_value variables(struct jinja *j, const struct gguf *g,
                                    const struct chat_request *r)
{
    struct jinja_value v = jinja_dict(j);
    if (j->err)
        return v;
    set_str(j, v.u.dict, "messages", messages_of(j, r));
    set_str(j, v.u.dict, "add_generation_prompt", jinja_bool(r->generation));
    set_str(j, v.u.dict, "tools",
            r->json && r->json->tools ? chat_values(j, r->json, r->json->tools) : jinja_none());
    set_str(j, v.u.dict, "documents", jinja_none());
    if (r->think != CHAT_THINK_AS_IS)
        set_str(j, v.u.dict, "enable_thinking", jinja_bool(r->think == CHAT_THINK));
    set_token(j, v.u.dict, g, "bos_token", "tokenizer.ggml.bos_token_id");
    set_token(j, v.u.dict, g, "eos_token", "tokenizer.ggml.eos_token_id");
    return v;
}

/* The search for spans, from the start of a prompt to its end. */
struct finder {
    const enum chat_role *role; /* role of each message */
    const struct jinja_text *t;
    struct chat_text *out;
    enum chat_role last; /* role of the preceding message */
    bool thinking;
};

static enum chat_role role_of(const char *role, size_t n)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } known[] = {{"system", CHAT_SYSTEM}, {"developer", CHAT_SYSTEM}, {"assistant", CHAT_ANSWER}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && memcmp(known[i].name, role, n) == 0)
            return known[i].role;
    return CHAT_USER;
}

static void add_span(struct finder *f, size_t from, size_t to, enum chat_role role, int message)
{
    struct chat_span *last = f->out->n_spans ? &f->out->span[f->out->n_spans - 1] : NULL;
    if (from == to)
        return;
    if (last && last->to == from && last->role == role && last->message == message)
        last->to = to;
    else
        f->out->span[f->out->n_spans++] = (struct chat_span){from, to, role, message};
}

/* Returns the end of the next <think> or </think> in [at, to); `to` if there is none. */
static size_t next_think(const struct finder *f, size_t at, size_t to, bool *found)
{
    const char *mark = f->thinking ? "</think>" : "<think>";
    const char *p = memmem(f->t->s + at, to - at, mark, strlen(mark));
    *found = p != NULL;
    if (!p)
        return to;
    return (size_t)(p - f->t->s) + (f->thinking ? strlen(mark) : 0);
}

/* Adds spans for bytes [from, to) that belong to the assistant, or that the template adds to its
 * text. */
static void add_answer(struct finder *f, size_t from, size_t to, enum chat_role role, int message)
{
    while (from < to) {
        bool found;
        size_t end = next_think(f, from, to, &found);
        if (f->thinking || role != CHAT_MARKS)
            add_span(f, from, end, f->thinking ? CHAT_THOUGHT : role, message);
        f->thinking ^= found;
        from = end;
    }
}

static int n_thinks(const struct jinja_text *t)
{
    int n = 0;
    for (size_t at = 0; at < t->n; n++) {
        const char *p = memmem(t->s + at, t->n - at, "think>", 6);
        if (!p)
            break;
        at = (size_t)(p - t->s) + 6;
    }
    return n;
}

/* Finds the spans. Marks are in order, and text between them belongs to the template. After a user
 * message the template may open and close a thought of the assistant. */
static int find_spans(struct finder *f)
{
    const struct jinja_text *t = f->t;
    size_t at = 0;
    int marks = t->n_marks, most = 2 * marks + 2;
    most += 2 * n_thinks(t);
    f->out->span = MEM_NEW(struct chat_span, (size_t)most);
    if (!f->out->span)
        return KVF_E_NOMEM;
    for (int i = 0; i <= marks; i++) {
        struct jinja_mark m = i < marks ? t->mark[i] : (struct jinja_mark){t->n, t->n, -1};
        if (f->last != CHAT_MARKS && f->last != CHAT_SYSTEM)
            add_answer(f, at, m.from, CHAT_MARKS, -1);
        if (i == marks)
            break;
        f->last = f->role[m.message];
        if (f->last == CHAT_ANSWER) {
            add_answer(f, m.from, m.to, f->last, m.message);
        } else {
            f->thinking = false;
            add_span(f, m.from, m.to, f->last, m.message);
        }
        at = m.to;
    }
    f->out->thinks = f->thinking;
    return KVF_OK;
}

/* Returns the roles of the messages of a request, in the arena of j; NULL after an error. */
static const enum chat_role *roles_of(struct jinja *j, const struct chat_request *r)
{
    int n = r->json ? r->json->n : r->n, i = 0;
    enum chat_role *role = jinja_alloc(j, (size_t)(n > 0 ? n : 1), sizeof *role);
    struct buf scratch = {0};
    if (role && r->json) {
        const struct json_tape *t = &r->json->tape;
        uint32_t m = json_tape_first(t, r->json->messages);
        for (; m && i < n; m = json_tape_next(t, m)) {
            size_t len;
            const char *s = json_tape_str(t, json_tape_get(t, m, "role"), &scratch, &len);
            role[i++] = s ? role_of(s, len) : CHAT_USER;
        }
    }
    for (; role && i < n; i++)
        role[i] = role_of(r->msg[i].role, strlen(r->msg[i].role));
    buf_finish(&scratch);
    return role;
}

static int copy_out(struct jinja *j, const struct chat_request *r, const struct jinja_text *t,
                    struct chat_text *ret)
{
    struct finder f = {.role = roles_of(j, r), .t = t, .out = ret, .last = CHAT_MARKS};
    if (!f.role)
        return KVF_E_NOMEM;
    buf_add(&ret->text, t->n ? t->s : "", t->n);
    int err = ret->text.err;
    return err ? err : find_spans(&f);
}

/* Returns true if the text is YYYY-MM-DD with a possible month and day. */
static bool is_date(const char *s)
{
    static const char form[] = "dddd-dd-dd";
    for (size_t i = 0; i < sizeof form; i++)
        if (form[i] == 'd' ? s[i] < '0' || s[i] > '9' : s[i] != form[i])
            return false;
    int month = (s[5] - '0') * 10 + s[6] - '0', day = (s[8] - '0') * 10 + s[9] - '0';
    return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

/* Appends advice for the user to the message in d. */
static void add_advice(const struct gguf *g, const struct chat_request *r, int err,
                       struct kvf_diag *d)
{
    struct kvf_diag was = d ? *d : (struct kvf_diag){""};
    const char *way = "; --raw uses the prompt unchanged";
    if (r->json)
        way =
            "; the template may need each \"content\" to be a text; you can also give the rendered "
            "text with -f FILE --raw";
    kvf_fail(d, err, "%s: %s%s", gguf_path(g), was.text, err == KVF_E_NOMEM ? "" : way);
}

static size_t bytes_of(const struct chat_request *r)
{
    size_t bytes = 0;
    if (r->json) /* a value uses about 200 bytes of the arena */
        return (size_t)r->json->tape.n * 16 + r->json->tape.n_text;
    for (int i = 0; i < r->n; i++)
        bytes += strlen(r->msg[i].content) + 256;
    return bytes;
}

int chat_render(const struct gguf *g, const struct chat_request *r, struct chat_text *ret,
                struct kvf_diag *d)
{
    size_t len = 0;
    const char *text = gguf_str(g, template_key, &len);
    struct jinja j;
    const struct jinja_text *out = NULL;
    *ret = (struct chat_text){.span = NULL};
    if (!text)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the model has no chat template; give the prompt with --raw",
                        gguf_path(g));
    if (r->date && !is_date(r->date))
        return kvf_fail(d, KVF_E_ARG, "'%.40s' is no date; write it as YYYY-MM-DD", r->date);
    jinja_init(&j, bytes_of(r) + len, r->date, d);
    struct jinja_value v = variables(&j, g, r);
    int err = j.err;
    if (!err)
        err = jinja_render(&j, text, len, v.u.dict, &out);
    if (err) {
        add_advice(g, r, err, d);
    } else {
        ret->has_switch = j.asked_think;
        err = copy_out(&j, r, out, ret);
    }
    jinja_free(&j);
    if (err)
        chat_text_free(ret);
    return err;
}
