/* Prompts of chat templates against what Jinja2 made of the same templates. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/model/chat.h"
#include "golden.h"

enum { MOST_MESSAGES = 8 };

static struct gguf *open_gguf(const char *path)
{
    struct kvf_diag d = {""};
    struct gguf *g = NULL;
    cr_assert(gguf_open(path, &g, &d) == KVF_OK, "%s", d.text);
    return g;
}

/* A model file that holds nothing but the template. */
static struct gguf *with_template(const char *text)
{
    static const char key[] = "tokenizer.chat_template";
    struct buf b = {0};
    char path[64];
    buf_str(&b, "GGUF");
    buf_le32(&b, 3);
    buf_le64(&b, 0);
    buf_le64(&b, 1);
    buf_le64(&b, strlen(key));
    buf_str(&b, key);
    buf_le32(&b, 8); /* text */
    buf_le64(&b, strlen(text));
    buf_str(&b, text);
    int fd = memfd_create("chat", 0);
    cr_assert(fd >= 0 && b.err == KVF_OK && write(fd, b.data, b.len) == (ssize_t)b.len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct gguf *g = open_gguf(path);
    close(fd);
    buf_finish(&b);
    return g;
}

static const char *member(const struct json *object, const char *key)
{
    const char *s = json_str(json_get(object, key), NULL);
    cr_assert_not_null(s, "%s", key);
    return s;
}

static void check_case(const struct json *root, const struct json *one)
{
    struct chat_message msg[MOST_MESSAGES];
    struct kvf_diag d = {""};
    struct buf out = {0};
    int n = 0;
    const struct json *t = json_at(json_get(root, "templates"),
                                   (int)json_int(json_get(one, "template"), -1));
    for (const struct json *m = json_first(json_get(one, "messages")); m; m = json_next(m), n++) {
        cr_assert(n < MOST_MESSAGES);
        msg[n] = (struct chat_message){member(m, "role"), member(m, "content")};
    }
    struct gguf *g = with_template(member(t, "text"));
    bool generation = json_bool(json_get(one, "generation"), false);
    cr_assert(chat_render(g, msg, n, generation, &out, &d) == KVF_OK, "%s", d.text);
    cr_expect_str_eq(out.data ? out.data : "", member(one, "text"), "%s: %d messages",
                     member(t, "name"), n);
    buf_finish(&out);
    gguf_close(g);
}

Test(chat, text_is_that_of_jinja)
{
    struct json *root = golden_json("chat_golden.json");
    int n = 0;
    for (const struct json *c = json_first(json_get(root, "cases")); c; c = json_next(c), n++)
        check_case(root, c);
    cr_expect(n == 110, "%d cases", n);
    json_free(root);
}

/* The golden's first template is what the file of the default model carries. */
Test(chat, template_is_that_of_the_default_model)
{
    const char *path = default_model();
    if (!path)
        cr_skip_test("no default model");
    struct json *root = golden_json("chat_golden.json");
    struct gguf *g = open_gguf(path);
    const char *want = member(json_first(json_get(root, "templates")), "text");
    size_t len = 0;
    const char *have = gguf_str(g, "tokenizer.chat_template", &len);
    cr_expect(have && len == strlen(want) && memcmp(have, want, len) == 0);
    gguf_close(g);
    json_free(root);
}

/* Outside of a string of Jinja a backslash is a letter like others. */
Test(chat, a_backslash_of_plain_text_stays)
{
    struct gguf *g = with_template("<|im_start|>system\nIn C:\\new\\Q<|im_end|>\n{{ messages }}");
    struct chat_message msg[] = {{"user", "x"}};
    struct kvf_diag d = {""};
    struct buf out = {0};
    cr_expect(chat_render(g, msg, 1, true, &out, &d) == KVF_OK, "%s", d.text);
    cr_expect(out.data && strstr(out.data, "<|im_start|>system\nIn C:\\new\\Q<|im_end|>\n"), "%s",
              out.data);
    buf_finish(&out);
    gguf_close(g);
}

/* An escape whose meaning is not known is refused, not left out. */
Test(chat, unknown_escape_is_an_error)
{
    struct gguf *g = with_template("{{ '<|im_start|>system\\n\\N{BULLET}<|im_end|>\\n' }}");
    struct chat_message msg[] = {{"user", "x"}, {"system", "y"}};
    struct kvf_diag d = {""};
    struct buf out = {0};
    cr_expect(chat_render(g, msg, 1, true, &out, &d) == KVF_E_FORMAT);
    cr_expect(strstr(d.text, "--raw"), "%s", d.text);
    cr_expect(out.len == 0);
    cr_expect(chat_render(g, msg + 1, 1, true, &out, &d) == KVF_OK);
    buf_finish(&out);
    gguf_close(g);
}
