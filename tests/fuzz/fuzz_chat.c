/* fuzz_chat.c - a chat template, a NUL byte, and messages as JSON. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/chat.h"
#include "fuzz.h"
#include "tests/scoped.h"

/* Returns a model file with only the template. */
static struct gguf *with_template(const char *text, size_t n)
{
    static const char key[] = "tokenizer.chat_template";
    SCOPED(buf_finish) struct buf b = {0};
    struct kvf_diag d = {""};
    struct gguf *g = NULL;
    char path[64];
    buf_str(&b, "GGUF");
    buf_le32(&b, 3);
    buf_le64(&b, 0);
    buf_le64(&b, 1);
    buf_le64(&b, strlen(key));
    buf_str(&b, key);
    buf_le32(&b, 8); /* type: string */
    buf_le64(&b, n);
    buf_add(&b, text, n);
    int fd = memory_file(b.data, b.len, path);
    MUST(gguf_open(path, &g, &d) == KVF_OK);
    close(fd);
    return g;
}

/* Checks that spans are in order, inside the text, and of existing messages. */
static void check_spans(const struct chat_text *t, int n)
{
    size_t at = 0;
    for (int i = 0; i < t->n_spans; i++) {
        const struct chat_span *s = &t->span[i];
        MUST(s->from >= at && s->from < s->to && s->to <= t->text.len);
        MUST(s->message >= -1 && s->message < n && s->role != CHAT_MARKS);
        at = s->to;
    }
}

static void render(const struct gguf *g, const char *json, size_t n)
{
    SCOPED(chat_json_close) struct chat_json messages;
    struct kvf_diag d = {""};
    struct chat_text out;
    int err = chat_json_open(json, n, true, &messages, &d);
    MUST(err == KVF_OK || err == KVF_E_NOMEM || d.text[0]);
    struct chat_request r = {.json = &messages, .generation = true, .date = "2024-02-29"};
    for (int think = 0; !err && think < 3; think++) {
        r.think = (enum chat_think)think;
        int bad = chat_render(g, &r, &out, &d);
        MUST(bad == KVF_OK || d.text[0]);
        MUST(bad == KVF_OK || (!out.text.data && !out.span));
        if (!bad)
            check_spans(&out, messages.n);
        chat_text_free(&out);
    }
}

/* Checks that written JSON reads back equal. */
static void check_writer(const char *s, size_t n)
{
    SCOPED(buf_finish) struct buf b = {0};
    OWNED(json_free) struct json *back = NULL;
    struct kvf_diag d = {""};
    bool clean = utf8_valid(s, n) && (n == 0 || !memchr(s, 0, n));
    json_put_str(&b, s, n);
    MUST(b.err == KVF_OK && utf8_valid(b.data, b.len));
    if (clean) {
        MUST(json_parse(b.data, b.len, &back, &d) == KVF_OK);
        const char *text = json_str(back, NULL);
        MUST(text && strlen(text) == n && memcmp(text, s, n) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data, *cut = n ? memchr(text, 0, n) : NULL;
    size_t n_template = cut ? (size_t)(cut - text) : n;
    static const char greeting[] = "[{\"role\":\"user\",\"content\":\"hello\"}]";
    struct gguf *g = with_template(text, n_template);
    render(g, greeting, sizeof greeting - 1);
    if (cut)
        render(g, cut + 1, n - n_template - 1);
    gguf_close(g);
    check_writer(text, n);
    return 0;
}
