#include <string.h>

#include "engine/model/chat.h"

/* The default system message as the template spells it.  quote is the sign around the
 * Jinja string that it stands in; 0: it stands outside of strings, where no escape counts. */
struct literal {
    const char *text;
    size_t n;
    char quote;
};

static const char *find(const char *hay, size_t n, const char *needle)
{
    return memmem(hay, n, needle, strlen(needle));
}

/* Length of a line feed at a, as a template spells it; 0: there is none.  Inside a Jinja
 * string it is the escape of two signs or the line feed itself. */
static size_t line_feed(const char *a, const char *end, char quote)
{
    if (a < end && *a == '\n')
        return 1;
    return quote && end - a >= 2 && a[0] == '\\' && a[1] == 'n' ? 2 : 0;
}

/* Whether the text holds no code: the string does not end in it; outside of strings, no tag
 * of Jinja begins in it. */
static bool is_plain(const struct literal *l)
{
    for (size_t i = 0; i < l->n; i++) {
        char c = l->text[i], next = i + 1 < l->n ? l->text[i + 1] : 0;
        if (l->quote && c == '\\')
            i++;
        else if (l->quote ? c == l->quote : c == '{' && next && strchr("{%#", next))
            return false;
    }
    return true;
}

/* The literal system message of the template: the first text between "<|im_start|>system",
 * a line feed and "<|im_end|>" that holds no code (those of Qwen2.5 have branches with code
 * before it). */
static bool default_system(const char *t, size_t n, struct literal *ret)
{
    static const char open[] = "<|im_start|>system", close[] = "<|im_end|>";
    const char *end = t + n;
    for (const char *a = find(t, n, open); a; a = find(a, (size_t)(end - a), open)) {
        struct literal l = {.quote = a > t && (a[-1] == '\'' || a[-1] == '"') ? a[-1] : 0};
        a += strlen(open);
        size_t feed = line_feed(a, end, l.quote);
        l.text = a + feed;
        const char *b = find(l.text, (size_t)(end - l.text), close);
        l.n = b ? (size_t)(b - l.text) : 0;
        if (feed && b && is_plain(&l)) {
            *ret = l;
            return true;
        }
    }
    return false;
}

/* What the escape \c of a Jinja string means; 0: not known. */
static char escaped(char c)
{
    static const char from[] = "nt\\'\"", to[] = "\n\t\\'\"";
    const char *at = c ? strchr(from, c) : NULL;
    return at ? to[at - from] : 0;
}

/* Appends the literal with its escapes resolved. */
static int put_literal(struct buf *out, const struct literal *l, const char *path,
                       struct kvf_diag *d)
{
    for (size_t i = 0; i < l->n; i++) {
        char c = l->text[i];
        if (l->quote && c == '\\') {
            i++;
            c = i < l->n ? escaped(l->text[i]) : 0;
            if (!c)
                return kvf_fail(d, KVF_E_FORMAT,
                                "%s: the default system message of the chat template has an "
                                "escape that is not known; give a system message with --chat, "
                                "or the whole prompt with --raw",
                                path);
        }
        buf_char(out, c);
    }
    return out->err;
}

static void message(struct buf *out, const char *role, const char *text)
{
    buf_str(out, "<|im_start|>");
    buf_str(out, role);
    buf_char(out, '\n');
    buf_str(out, text);
    buf_str(out, "<|im_end|>\n");
}

bool chat_has_template(const struct gguf *g)
{
    size_t len;
    return gguf_str(g, "tokenizer.chat_template", &len) != NULL;
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
    struct literal l;
    struct buf system = {0};
    int err = KVF_OK;
    if (n > 0 && strcmp(msg[0].role, "system") != 0 && default_system(t, len, &l)) {
        err = put_literal(&system, &l, gguf_path(g), d);
        if (!err)
            message(out, "system", system.data ? system.data : "");
    }
    buf_finish(&system);
    if (err)
        return err;
    for (int i = 0; i < n; i++)
        message(out, msg[i].role, msg[i].content);
    if (generation)
        buf_str(out, "<|im_start|>assistant\n");
    return out->err;
}
