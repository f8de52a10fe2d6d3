/* prompt.c - reads, renders and tokenizes the prompt of a run. */
#include "engine/experiment/prompt.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text_kind.h"
#include "base/utf8.h"
#include "base/files.h"

bool prompt_named(const struct prompt *p)
{
    return p->given || p->file || p->chat || p->ids_file || p->messages;
}

int prompt_check(const struct prompt *p, bool needed, struct kvf_diag *d)
{
    int sources = !!p->given + !!p->file + !!p->chat + !!p->ids_file;
    if (sources == 0 && needed)
        return kvf_fail(d, KVF_E_ARG,
                        "no prompt; give one with -p TEXT, -f FILE, --chat FILE or --ids FILE");
    if (sources > 1)
        return kvf_fail(d, KVF_E_ARG, "give one of -p, -f, --chat and --ids, not several");
    if (p->chat && p->raw)
        return kvf_fail(d, KVF_E_ARG, "--raw and --chat exclude each other");
    if (p->ask && (p->chat || p->ids_file))
        return kvf_fail(d, KVF_E_ARG,
                        "--ask follows a context of -p or -f; %s has its question in it",
                        p->chat ? "--chat" : "--ids");
    if (p->think && p->no_think)
        return kvf_fail(d, KVF_E_ARG, "--think and --no-think exclude each other");
    return KVF_OK;
}

/* Renders the model's template with the messages of a request. */
static int render_chat(struct prompt *p, const struct engine *e, struct chat_request r,
                       struct kvf_diag *d)
{
    r.generation = true;
    r.date = p->date;
    if (p->think || p->no_think)
        r.think = p->think ? CHAT_THINK : CHAT_NO_THINK;
    int err = chat_render(e->gguf, &r, &p->chat_text, d);
    if (err)
        return err;
    if (r.think != CHAT_THINK_AS_IS && !p->chat_text.has_switch)
        p->note = "the model's chat template has no switch for thinking: --think and --no-think "
                  "have no effect";
    p->text = p->chat_text.text;
    p->chat_text.text = (struct buf){0};
    return KVF_OK;
}

/* Renders messages in JSON. If `others` is set, the object may have members that do not belong to
 * a chat. */
static int render_json(struct prompt *p, const struct engine *e, const char *json, size_t len,
                       bool others, struct kvf_diag *d)
{
    struct chat_json c;
    int err = chat_json_open(json, len, others, &c, d);
    if (!err)
        err = render_chat(p, e, (struct chat_request){.json = &c}, d);
    if (err && p->chat)
        kvf_diag_prefix(d, "%s", p->chat);
    chat_json_close(&c);
    return err;
}

/* Renders the text of a user message with the model's template. */
static int render_message(struct prompt *p, const struct engine *e, const char *text, size_t n,
                          struct kvf_diag *d)
{
    struct chat_message m = {"user", text};
    if (strlen(text) != n)
        return kvf_fail(
            d, KVF_E_FORMAT,
            "the prompt contains a NUL byte; use --raw for such text, or -m if it is a model");
    int err = render_chat(p, e, (struct chat_request){.msg = &m, .n = 1}, d);
    const struct chat_text *t = &p->chat_text;
    for (int i = 0; !err && i < t->n_spans; i++)
        if (t->span[i].message == 0) {
            p->at = t->span[i].from;
            p->bytes = t->span[i].to - t->span[i].from;
        }
    p->changed = !err && p->bytes != n;
    if (!err && n == 0)
        p->note =
            "the prompt is empty, so the model sees only the chat template; -p TEXT gives one";
    if (!err && p->bytes == 0 && strspn(text, " \t\r\n") < n)
        return kvf_fail(
            d, KVF_E_FORMAT,
            "%s: the chat template does not show the message of a user; give the prompt "
            "with --raw",
            gguf_path(e->gguf));
    return err;
}

/* Fills the text that is tokenized. */
static int render_plain(struct prompt *p, const struct engine *e, const char *text, size_t n,
                        struct kvf_diag *d)
{
    if (p->chat)
        return render_json(p, e, text, n, false, d);
    if (!p->raw && chat_has_template(e->gguf))
        return render_message(p, e, text, n, d);
    if (!p->raw)
        p->note = "the model has no chat template: the prompt is used unchanged, as with --raw";
    buf_add(&p->text, text, n);
    return KVF_OK;
}

/* Fills the text from a context, with the question of `ask` behind it. */
static int render(struct prompt *p, const struct engine *e, const char *text, size_t n,
                  struct kvf_diag *d)
{
    struct buf all = {0};
    if (!p->ask)
        return render_plain(p, e, text, n, d);
    buf_add(&all, text, n);
    if (p->join)
        buf_str(&all, p->join);
    else
        buf_str(&all, p->raw ? "" : "\n\n");
    size_t at = all.len;
    buf_str(&all, p->ask);
    int err = all.err ? all.err : render_plain(p, e, all.data, all.len, d);
    p->question_from = p->at + at;
    p->question_to = p->at + all.len;
    buf_finish(&all);
    return err;
}

static int read_text(struct prompt *p, const struct engine *e, struct kvf_diag *d)
{
    struct buf in = {0};
    const char *path = p->file ? p->file : p->chat;
    size_t mark = 0;
    int err = KVF_OK;
    if (p->messages)
        return render_json(p, e, p->messages, strlen(p->messages), true, d);
    if (path)
        err = file_read(path, &in, d);
    else
        buf_str(&in, p->given);
    if (!err && path)
        err = text_kind_check(path, in.data ? in.data : "", in.len, &mark, d);
    if (!err)
        err = render(p, e, in.data ? in.data + mark : "", in.len - mark, d);
    buf_finish(&in);
    return err ? err : p->text.err;
}

/* Parses decimal ids separated by white space. */
static int parse_ids(const char *path, const struct buf *in, int vocab, int32_t *ids, int *ret_n,
                     struct kvf_diag *d)
{
    const char *p = in->data ? in->data : "", *end = p + in->len;
    *ret_n = 0;
    while (true) {
        while (p < end && (*p == ' ' || (*p >= '\t' && *p <= '\r')))
            p++;
        if (p == end)
            return KVF_OK;
        const char *start = p;
        int64_t id = 0;
        while (p < end && *p >= '0' && *p <= '9' && id < vocab)
            id = id * 10 + (*p++ - '0');
        if (p == start || id >= vocab)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: id %d is not a number below the vocabulary's size of %d", path,
                            *ret_n, vocab);
        ids[(*ret_n)++] = (int32_t)id;
    }
}

int prompt_read_ids(const char *path, int vocab, int32_t **ret_ids, int *ret_n, struct kvf_diag *d)
{
    struct buf in = {0};
    int n, err = file_read(path, &in, d);
    /* every id has at least a digit and a space */
    int32_t *ids = err ? NULL : MEM_NEW(int32_t, in.len / 2 + 1);
    if (!err)
        err = ids ? parse_ids(path, &in, vocab, ids, &n, d) : KVF_E_NOMEM;
    buf_finish(&in);
    if (err) {
        mem_free(ids);
        return err;
    }
    *ret_ids = ids;
    *ret_n = n;
    return KVF_OK;
}

/* Rejects bytes that are not UTF-8 and for which the vocabulary has no token: the tokens would not
 * have them. */
static int check_bytes(const struct prompt *p, const struct engine *e, struct kvf_diag *d)
{
    uint32_t cp;
    const char *s = p->text.data;
    int err = KVF_OK;
    for (size_t at = 0, len; !err && at < p->text.len; at += len ? len : 1) {
        int32_t *ids = NULL;
        int n = 0;
        len = utf8_decode(s + at, p->text.len - at, &cp);
        if (len)
            continue;
        err = tokenizer_encode(e->tokenizer, s + at, 1, 0, &ids, &n, d);
        mem_free(ids);
        if (!err && n == 0)
            err = kvf_fail(
                d, KVF_E_FORMAT,
                "byte %zu of the prompt, 0x%02x, is not UTF-8, and the model has no token "
                "for it; convert the text to UTF-8",
                at < p->at ? at : at - p->at, (unsigned)(unsigned char)s[at]);
    }
    return err;
}

int prompt_open(struct prompt *p, const struct engine *e, struct kvf_diag *d)
{
    if (p->ids_file)
        return prompt_read_ids(p->ids_file, e->config.vocab, &p->ids, &p->n_ids, d);
    int err = read_text(p, e, d);
    p->reply_at = p->text.len;
    if (p->reply)
        buf_str(&p->text, p->reply);
    if (!err)
        err = p->text.err;
    if (!err)
        err = check_bytes(p, e, d);
    if (err)
        return err;
    return tokenizer_encode(e->tokenizer, p->text.data ? p->text.data : "", p->text.len,
                            TOKENIZER_MARKS | (p->chat_text.span ? 0 : TOKENIZER_BOS), &p->ids,
                            &p->n_ids, d);
}

int prompt_ends(const struct prompt *p, const struct tokenizer *t, int64_t **ret_end,
                struct kvf_diag *d)
{
    int64_t *end = MEM_NEW(int64_t, (size_t)prompt_all(p));
    if (!end)
        return KVF_E_NOMEM;
    int err = tokenizer_ends(t, p->text.data ? p->text.data : "", p->text.len, p->ids,
                             prompt_all(p), end);
    if (err) {
        mem_free(end);
        return err != KVF_E_FORMAT ? err
                                   : kvf_fail(d, err,
                                              "the model's tokens omit bytes of the prompt, so "
                                              "that places in it are undefined");
    }
    *ret_end = end;
    return KVF_OK;
}

int32_t prompt_token_at(const int64_t *end, int n, int64_t byte)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (end[mid] <= byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void prompt_turn(const struct prompt *p, const int64_t *end, int i, int32_t *ret_first,
                 int32_t *ret_end)
{
    const struct chat_span *s = &p->chat_text.span[i];
    *ret_first = prompt_token_at(end, prompt_all(p), (int64_t)s->from);
    *ret_end = prompt_token_at(end, prompt_all(p), (int64_t)s->to - 1) + 1;
}

void prompt_put_turns(const struct prompt *p, const struct tokenizer *t, struct buf *b)
{
    int64_t *end = NULL;
    struct kvf_diag d = {""};
    if (!p->chat_text.n_spans || prompt_ends(p, t, &end, &d) != KVF_OK)
        return;
    json_put_key(b, "turns");
    buf_char(b, '[');
    for (int i = 0; i < p->chat_text.n_spans; i++) {
        int32_t first, last;
        prompt_turn(p, end, i, &first, &last);
        buf_str(b, i ? ",{" : "{");
        json_put_member_str(b, "role", chat_role_name(p->chat_text.span[i].role));
        buf_printf(b, ",\"tokens\":[%d,%d]}", (int)first, (int)last);
    }
    buf_char(b, ']');
    mem_free(end);
}

int prompt_take(struct prompt *p, const int32_t *ids, int n)
{
    int32_t *copy = MEM_NEW(int32_t, (size_t)n);
    if (!copy)
        return KVF_E_NOMEM;
    memcpy(copy, ids, (size_t)n * sizeof *ids);
    p->ids = copy;
    p->n_ids = n;
    return KVF_OK;
}

void prompt_close(struct prompt *p)
{
    buf_finish(&p->text);
    chat_text_free(&p->chat_text);
    mem_free(p->ids);
    p->ids = NULL;
    p->n_ids = p->n_question = 0;
    p->question_from = p->question_to = 0;
    p->at = p->bytes = p->reply_at = 0;
    p->changed = false;
}
