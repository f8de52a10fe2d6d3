#include <string.h>

#include "engine/model/chat.h"

static const char *find(const char *hay, size_t n, const char *needle)
{
    return memmem(hay, n, needle, strlen(needle));
}

/* The literal system message of the template: the first text between
 * "<|im_start|>system\n" and "<|im_end|>" that holds no code (those of Qwen2.5 have
 * branches with code before it). "\n" is spelled with a backslash inside the template's
 * strings. */
static bool default_system(const char *t, size_t n, struct buf *out)
{
    static const char open[] = "<|im_start|>system\\n", close[] = "<|im_end|>";
    const char *end = t + n, *a = t, *b;
    for (;;) {
        a = find(a, (size_t)(end - a), open);
        b = a ? find(a, (size_t)(end - a), close) : NULL;
        if (!b)
            return false;
        a += strlen(open);
        if (b > a && !memchr(a, '{', (size_t)(b - a)) && !memchr(a, '\'', (size_t)(b - a)))
            break;
    }
    while (a < b) {
        if (a + 1 < b && a[0] == '\\' && a[1] == 'n') {
            buf_char(out, '\n');
            a += 2;
        } else {
            buf_char(out, *a++);
        }
    }
    return true;
}

static void message(struct buf *out, const char *role, const char *text)
{
    buf_str(out, "<|im_start|>");
    buf_str(out, role);
    buf_char(out, '\n');
    buf_str(out, text);
    buf_str(out, "<|im_end|>\n");
}

int chat_render(const struct gguf *g, const struct chat_message *msg, int n, bool generation,
                struct buf *out, struct kvf_diag *d)
{
    size_t len = 0;
    const char *t = gguf_str(g, "tokenizer.chat_template", &len);
    if (!t)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the model has no chat template; give the prompt with "
                        "--raw",
                        gguf_path(g));
    if (!find(t, len, "<|im_start|>") || !find(t, len, "<|im_end|>"))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: this chat template is not known (ChatML is); give the "
                        "prompt with --raw",
                        gguf_path(g));
    struct buf system = {0};
    if (n > 0 && strcmp(msg[0].role, "system") != 0 && default_system(t, len, &system))
        message(out, "system", system.data ? system.data : "");
    buf_finish(&system);
    for (int i = 0; i < n; i++)
        message(out, msg[i].role, msg[i].content);
    if (generation)
        buf_str(out, "<|im_start|>assistant\n");
    return out->err;
}
