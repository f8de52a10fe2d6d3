/* test_chat.c - prompts from chat templates compared with the output of the transformers library
 * for the same templates. */
#include <time.h>
#include <sys/resource.h>
#include <sys/mman.h>

#include "engine/model/chat.h"
#include "golden.h"
#include "tests/suite.h"

enum { MOST_MESSAGES = 8 };

static const char way_out[] = "--raw";

static struct gguf *open_gguf(const char *path)
{
    struct kvf_diag d = {""};
    struct gguf *g = NULL;
    cr_assert(gguf_open(path, &g, &d) == KVF_OK, "%s", d.text);
    return g;
}

static void put_text(struct buf *b, const char *s)
{
    buf_le64(b, strlen(s));
    buf_str(b, s);
}

/* Returns a model file with only the template and the tokens <s> and </s>. */
static struct gguf *with_template(const char *text)
{
    static const char *const id_key[] = {"tokenizer.ggml.bos_token_id",
                                         "tokenizer.ggml.eos_token_id"};
    SCOPED(buf_finish) struct buf b = {0};
    char path[64];
    buf_str(&b, "GGUF");
    buf_le32(&b, 3);
    buf_le64(&b, 0);
    buf_le64(&b, 4);
    put_text(&b, "tokenizer.chat_template");
    buf_le32(&b, 8); /* type: string */
    put_text(&b, text);
    put_text(&b, "tokenizer.ggml.tokens");
    buf_le32(&b, 9); /* type: array of strings */
    buf_le32(&b, 8);
    buf_le64(&b, 2);
    put_text(&b, "<s>");
    put_text(&b, "</s>");
    for (uint32_t i = 0; i < 2; i++) {
        put_text(&b, id_key[i]);
        buf_le32(&b, 4);
        buf_le32(&b, i);
    }
    int fd = memfd_create("chat", 0);
    cr_assert(fd >= 0 && b.err == KVF_OK && write(fd, b.data, b.len) == (ssize_t)b.len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct gguf *g = open_gguf(path);
    close(fd);
    return g;
}

static const char *member(const struct json *object, const char *key)
{
    const char *s = json_str(json_get(object, key), NULL);
    cr_assert_not_null(s, "%s", key);
    return s;
}

static int take_messages(const struct json *list, struct chat_message *msg)
{
    int n = 0;
    for (const struct json *m = json_first(list); m; m = json_next(m), n++) {
        cr_assert(n < MOST_MESSAGES);
        msg[n] = (struct chat_message){member(m, "role"), member(m, "content")};
    }
    return n;
}

/* text NULL: the template must be rejected, as the library does, with a message that names a
 * remedy. */
static void check_text(const char *template, const struct chat_request *r, const char *text,
                       const char *name)
{
    struct kvf_diag d = {""};
    struct chat_text out;
    OWNED(gguf_close) struct gguf *g = with_template(template);
    int err = chat_render(g, r, &out, &d);
    if (text) {
        cr_assert(err == KVF_OK, "%s: %s", name, d.text);
        cr_expect_str_eq(out.text.data ? out.text.data : "", text, "%s", name);
        chat_text_free(&out);
    } else {
        cr_expect(err == KVF_E_FORMAT, "%s", name);
        cr_expect(strstr(d.text, way_out) && strstr(d.text, "line "), "%s: %s", name, d.text);
        cr_expect(out.text.data == NULL && !out.span, "%s", name);
    }
}

static void check_case(const struct json *root, const struct json *one)
{
    struct chat_message msg[MOST_MESSAGES];
    const struct json *t = json_at(json_get(root, "templates"),
                                   (int)json_int(json_get(one, "template"), -1));
    int conversation = (int)json_int(json_get(one, "conversation"), -1);
    struct chat_request r = {
        .msg = msg,
        .n = take_messages(json_at(json_get(root, "conversations"), conversation), msg),
        .generation = json_bool(json_get(one, "generation"), false),
        .think = (enum chat_think)json_int(json_get(one, "think"), 0),
        .date = member(root, "date")};
    char name[128];
    snprintf(name, sizeof name, "%s: conversation %d", member(t, "name"), conversation);
    check_text(member(t, "text"), &r, json_str(json_get(one, "text"), NULL), name);
}

Test(chat, text_is_that_of_transformers)
{
    OWNED(json_free) struct json *root = golden_json("chat_golden.json");
    int n = 0;
    for (const struct json *c = json_first(json_get(root, "cases")); c; c = json_next(c), n++)
        check_case(root, c);
    cr_expect(n == 640, "%d cases", n);
}

/* All members of a message reach the template, with any name and type. */
Test(chat, json_messages_are_those_of_transformers)
{
    OWNED(json_free) struct json *root = golden_json("chat_golden.json");
    int n = 0, refused = 0;
    const struct json *c = json_first(json_get(root, "records"));
    for (; c; c = json_next(c), n++) {
        struct kvf_diag d = {""};
        SCOPED(chat_json_close) struct chat_json messages;
        const char *text = member(c, "json"), *want = json_str(json_get(c, "text"), NULL);
        cr_assert(chat_json_open(text, strlen(text), false, &messages, &d) == KVF_OK, "%s: %s",
                  text, d.text);
        struct chat_request r = {.json = &messages, .generation = true};
        struct chat_text out;
        OWNED(gguf_close) struct gguf *g = with_template(member(c, "template"));
        int err = chat_render(g, &r, &out, &d);
        cr_expect(err == (want ? KVF_OK : KVF_E_FORMAT), "%s: %s", text, d.text);
        if (want && err == KVF_OK)
            cr_expect_str_eq(out.text.data ? out.text.data : "", want, "%s", text);
        refused += !want;
        chat_text_free(&out);
    }
    cr_expect(n == 48 && refused > 0 && refused < 16, "%d cases, %d of them refused", n, refused);
}

/* Errors name the message and the member. */
Test(chat, wrong_messages_are_named)
{
    static const struct {
        const char *json, *want;
    } cases[] = {
        {"[]", "1 to 1024 messages"},
        {"{\"prompt\":\"x\"}", "\"messages\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"model\":\"m\"}", "\"model\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":{}}",
         "\"tools\" is an object"},
        {"[1]", "message 1 is a number"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"content\":\"x\"}]",
         "message 2: \"role\" is absent"},
        {"[{\"from\":\"human\",\"value\":\"x\"}]", "message 1: \"role\" is absent"},
        {"[{\"role\":\"user\",\"content\":5}]", "message 1: \"content\" is a number"},
        {"[{\"role\":\"user\",\"content\":{\"a\":1}}]", "message 1: \"content\" is an object"},
        {"[{\"role\":\"user\",\"content\":true}]", "message 1: \"content\" is true or false"},
        {"[{\"role\":\"user\",\"content\":[\"x\"]}]", "message 1: part 1 of \"content\""},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_"
         "url\"}]}]",
         "message 1: part 2 of \"content\" has the type \"image_url\""},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":3}]}]",
         "message 1: \"text\" of part 1 of \"content\" is a number"},
        {"[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]", "NUL"},
        {"[{\"role\":\"user\",\"content\":\"a\",\"content\":\"b\"}]", "repeats the key"},
        {"[{\"role\":\"user\",\"content\":\"a\",\"n\":99999999999999999999}]", "out of range"},
        {"[{\"role\":\"user\",\"content\":\"a\",\"n\":1e999}]", "out of range"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvf_diag d = {""};
        struct chat_json c;
        int err = chat_json_open(cases[i].json, strlen(cases[i].json), false, &c, &d);
        cr_expect(err == KVF_E_FORMAT && strstr(d.text, cases[i].want), "%s: %d, %s", cases[i].json,
                  err, d.text);
        cr_expect(c.tape.entry == NULL);
    }
}

/* Reasoning counts as a thought, and content parts belong to their message. */
Test(chat, json_members_have_roles)
{
    static const char json[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"ask\"}]},"
        "{\"role\":\"assistant\",\"reasoning_content\":\"muse\",\"content\":\"say\"}]";
    static const char template[] =
        "{% for m in messages %}{% if m.content is string %}<think>{{ m.reasoning_content "
        "}}</think>"
        "{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %}{% endfor %}";
    static const struct chat_span want[] = {{0, 3, CHAT_USER, 0},
                                            {3, 10, CHAT_THOUGHT, -1},
                                            {10, 14, CHAT_THOUGHT, 1},
                                            {14, 22, CHAT_THOUGHT, -1},
                                            {22, 25, CHAT_ANSWER, 1}};
    struct kvf_diag d = {""};
    struct chat_json c;
    struct chat_text out;
    OWNED(gguf_close) struct gguf *g = with_template(template);
    cr_assert(chat_json_open(json, strlen(json), false, &c, &d) == KVF_OK, "%s", d.text);
    struct chat_request r = {.json = &c};
    cr_assert(chat_render(g, &r, &out, &d) == KVF_OK, "%s", d.text);
    cr_expect_str_eq(out.text.data, "ask<think>muse</think>say");
    cr_assert(out.n_spans == 5, "%d spans", out.n_spans);
    for (int i = 0; i < 5; i++)
        cr_expect(out.span[i].from == want[i].from && out.span[i].to == want[i].to
                      && out.span[i].role == want[i].role && out.span[i].message == want[i].message,
                  "span %d: %zu to %zu, role %d, message %d", i, out.span[i].from, out.span[i].to,
                  out.span[i].role, out.span[i].message);
    chat_text_free(&out);
    chat_json_close(&c);
}

Test(chat, each_rule_is_that_of_jinja)
{
    OWNED(json_free) struct json *root = golden_json("chat_golden.json");
    struct chat_message msg[MOST_MESSAGES];
    struct chat_request r = {.msg = msg,
                             .n = take_messages(json_get(root, "snippet_messages"), msg)};
    int n = 0;
    const struct json *c = json_first(json_get(root, "snippets"));
    for (; c; c = json_next(c), n++)
        check_text(member(c, "template"), &r, json_str(json_get(c, "text"), NULL),
                   member(c, "template"));
    cr_expect(n == 107, "%d snippets", n);
}

/* The first golden template equals the one in the default model's file. */
Test(chat, template_is_that_of_the_default_model)
{
    const char *path = default_model();
    if (!path)
        cr_skip_test("no default model");
    OWNED(json_free) struct json *root = golden_json("chat_golden.json");
    OWNED(gguf_close) struct gguf *g = open_gguf(path);
    const char *want = member(json_first(json_get(root, "templates")), "text");
    size_t len = 0;
    const char *have = gguf_str(g, "tokenizer.chat_template", &len);
    cr_expect(have && len == strlen(want) && memcmp(have, want, len) == 0);
}

static void render_one(const char *template, const char *user, int want, struct kvf_diag *d)
{
    struct chat_message msg = {"user", user};
    struct chat_request r = {.msg = &msg, .n = 1, .generation = true};
    struct chat_text out;
    OWNED(gguf_close) struct gguf *g = with_template(template);
    int err = chat_render(g, &r, &out, d);
    cr_expect(err == want, "%.60s: %d, %s", template, err, d->text);
    chat_text_free(&out);
}

/* Without a date, strftime_now is undefined. A template that tests for it runs; one that calls it
 * is rejected with the option that sets a date. */
Test(chat, no_date_is_made_up)
{
    struct kvf_diag d = {""};
    render_one("{{ strftime_now('%Y') if strftime_now is defined else 'undated' }}", "x", KVF_OK,
               &d);
    render_one("a\n{{ strftime_now('%Y') }}", "x", KVF_E_ARG, &d);
    cr_expect(strstr(d.text, "--date") && strstr(d.text, "line 2"), "%s", d.text);
}

/* A break in a macro does not belong to a loop around the call. */
Test(chat, a_jump_outside_of_loops_is_refused)
{
    struct kvf_diag d = {""};
    render_one("{% break %}", "x", KVF_E_FORMAT, &d);
    render_one("{% macro f() %}{% break %}{% endmacro %}{% for i in [1] %}{{ f() }}{% endfor %}",
               "x", KVF_E_FORMAT, &d);
}

/* Templates with unbounded time, memory or nesting are rejected before they use them. */
Test(chat, hostile_templates_are_refused)
{
    static const char *const hostile[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(999999999) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f(n) }}{% endmacro %}{{ f(1) "
        "}}",
        "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor "
        "%}",
        "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{{ n.s }}"
        "{% endfor %}",
        "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor "
        "%}",
        "{% set n = namespace(s=[1]) %}{% for i in range(999) %}{% set n.s = [n.s, n.s] %}{% "
        "endfor %}"
        "{{ n.s | tojson }}",
        "{% set n = namespace(s=[1]) %}{% for i in range(999) %}{% set n.s = [n.s] %}{% endfor %}"
        "{{ n.s == [n.s] }}",
        "{% set n = namespace(s=1) %}{% set n.s = n %}{{ n | tojson }}",
        "{{ 'x' * 999999999 }}",
        "{{ ('x' * 999999) | replace('x', 'y' * 9999) }}",
        "{% set s = 'x' * 999999 %}{% for i in range(99999) %}{{ 'y' in s }}{% endfor %}",
        "{% set s = 'x' * 999999 %}{% for i in range(99999) %}{{ s | trim | length }}{% endfor %}",
        "{% set s = 'x' * 999999 %}{% for i in range(99999) %}{{ s.count('y') }}{% endfor %}",
        "{% for a in messages[0].content * 9999999 %}{% endfor %}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'abc' | map('map', 'map') }}",
    };
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct kvf_diag d = {""};
        struct timespec a, b;
        struct chat_message msg = {"user", "hello"};
        struct chat_request r = {.msg = &msg, .n = 1};
        struct chat_text out;
        OWNED(gguf_close) struct gguf *g = with_template(hostile[i]);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        int err = chat_render(g, &r, &out, &d);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        double seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
        cr_expect(err == KVF_E_LIMIT || err == KVF_E_FORMAT, "%s: %d", hostile[i], err);
        cr_expect(strstr(d.text, way_out) != NULL, "%s: %s", hostile[i], d.text);
        cr_expect(seconds < 5, "%s: %g s", hostile[i], seconds);
    }
}

/* Deeply nested expressions and statements are rejected. */
Test(chat, deep_nesting_is_refused)
{
    static const struct {
        const char *open, *close;
    } nests[] = {{"(", ")"},      {"[", "]"},           {"-", ""},       {"not ", ""},
                 {"{'a': ", "}"}, {"x if ", " else y"}, {"f(", ")"},     {"a[", "]"},
                 {"x + ", ""},    {"x | f(", ")"},      {"x.a and ", ""}};
    struct kvf_diag d = {""};
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        SCOPED(buf_finish) struct buf b = {0};
        buf_str(&b, "{{ ");
        for (int k = 0; k < 50000; k++)
            buf_str(&b, nests[i].open);
        buf_str(&b, "x");
        for (int k = 0; k < 50000; k++)
            buf_str(&b, nests[i].close);
        buf_str(&b, " }}");
        render_one(b.data, "x", KVF_E_LIMIT, &d);
    }
    struct buf b = {0};
    for (int k = 0; k < 50000; k++)
        buf_str(&b, "{% if x %}");
    render_one(b.data, "x", KVF_E_LIMIT, &d);
    buf_finish(&b);
}

/* Returns the speaker of each byte: message content, even if stripped, and thoughts only for the
 * assistant. */
Test(chat, spans_say_who_speaks)
{
    OWNED(json_free) struct json *root = golden_json("chat_golden.json");
    struct chat_message msg[] = {{"system", "rule <think>no</think>"},
                                 {"user", "ask <think>no</think>"},
                                 {"assistant", "<think>yes</think>said"},
                                 {"user", " again "}};
    struct chat_request r = {.msg = msg, .n = 4, .generation = true};
    const struct {
        enum chat_role role;
        int message;
        const char *text;
    } want[] = {{CHAT_SYSTEM, 0, "rule <think>no</think>"},
                {CHAT_USER, 1, "ask <think>no</think>"},
                {CHAT_THOUGHT, 2, "<think>yes</think>"},
                {CHAT_ANSWER, 2, "said"},
                {CHAT_USER, 3, " again "}};
    struct kvf_diag d = {""};
    struct chat_text out;
    struct gguf *g = with_template(
        member(json_at(json_get(root, "templates"), 8), "text")); /* no default message */
    cr_assert(chat_render(g, &r, &out, &d) == KVF_OK, "%s", d.text);
    cr_assert(out.n_spans == 5, "%d", out.n_spans);
    for (int i = 0; i < 5; i++) {
        const struct chat_span *s = &out.span[i];
        cr_expect(s->role == want[i].role && s->message == want[i].message, "%d", i);
        cr_expect(s->to - s->from == strlen(want[i].text)
                      && memcmp(out.text.data + s->from, want[i].text, s->to - s->from) == 0,
                  "%d", i);
    }
    cr_expect(not(out.thinks));
    chat_text_free(&out);
    gguf_close(g);
    g = with_template(member(json_at(json_get(root, "templates"), 6), "text")); /* with modes */
    r = (struct chat_request){.msg = msg + 1, .n = 1, .generation = true, .date = "2026-11-23"};
    cr_assert(chat_render(g, &r, &out, &d) == KVF_OK, "%s", d.text);
    cr_expect(out.n_spans == 1 && out.span[0].role == CHAT_USER, "%d", out.n_spans);
    r = (struct chat_request){.msg = msg, .n = 4, .generation = true};
    chat_text_free(&out);
    gguf_close(g);
    g = with_template(member(json_at(json_get(root, "templates"), 4), "text")); /* a thought */
    cr_assert(chat_render(g, &r, &out, &d) == KVF_OK, "%s", d.text);
    cr_expect(out.thinks);
    cr_expect(out.n_spans && out.span[out.n_spans - 1].role == CHAT_THOUGHT);
    cr_expect(out.n_spans && out.span[out.n_spans - 1].to == out.text.len);
    chat_text_free(&out);
    gguf_close(g);
}
