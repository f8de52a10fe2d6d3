/* cmd_tokenize.c - `kvfate tokenize` converts texts and messages to the token ids of a model, and
 * ids to text. The command reads the tokenizer and the chat template of a model, but not its
 * weights. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/files.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/idle.h"
#include "cli/jsonl.h"
#include "cli/models.h"
#include "cli/runner.h"

struct request {
    struct runner r; /* model, prompt and how.pre only */
    const char *jsonl;
    bool json;
    struct engine e; /* gguf, config and tokenizer only */
};

/* ---- lines of --jsonl */

/* Requests of a line; each has one of these keys. */
enum line_kind { LINE_TEXT, LINE_MESSAGES, LINE_IDS, LINE_MODEL, LINE_KINDS };
static const char *const line_keys[LINE_KINDS] = {"text", "messages", "ids", "model"};
/* The key that may go with each; tools may go with messages, too. */
static const char *const line_options[LINE_KINDS] = {"start", "continue", "marks", NULL};

static int read_kind(const struct json *line, enum line_kind *ret, struct kvf_diag *d)
{
    int kind = LINE_KINDS, some = 0;
    for (int i = 0; i < LINE_KINDS; i++)
        if (json_get(line, line_keys[i])) {
            kind = i;
            some++;
        }
    if (some != 1)
        return kvf_fail(d, KVF_E_FORMAT,
                        "expected an object with one of \"text\", \"messages\", \"ids\" and "
                        "\"model\"");
    for (const struct json *m = json_first(line); m; m = json_next(m)) {
        const char *key = json_key(m);
        bool option = line_options[kind] && strcmp(key, line_options[kind]) == 0;
        bool flag = json_bool(m, false) == json_bool(m, true);
        bool known = strcmp(key, line_keys[kind]) == 0 || option
                     || (kind == LINE_MESSAGES && strcmp(key, "tools") == 0);
        if (!known)
            return kvf_fail(d, KVF_E_FORMAT, "\"%.60s\" does not go with \"%s\"", key,
                            line_keys[kind]);
        if (option && !flag)
            return kvf_fail(d, KVF_E_FORMAT, "\"%s\" is neither true nor false", key);
    }
    *ret = (enum line_kind)kind;
    return KVF_OK;
}

static void put_ids(struct buf *b, const int32_t *ids, int n)
{
    json_put_key(b, "ids");
    buf_char(b, '[');
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%d", i ? "," : "", (int)ids[i]);
    buf_char(b, ']');
}

static int answer_text(const struct request *q, const struct json *line, struct buf *out,
                       struct kvf_diag *d)
{
    const char *text = json_str(json_get(line, "text"), NULL);
    const struct json *start = json_get(line, "start");
    unsigned flags = TOKENIZER_MARKS;
    int32_t *ids;
    int n;
    if (!text)
        return kvf_fail(d, KVF_E_FORMAT, "\"text\" is no text");
    if (!start)
        flags |= TOKENIZER_BOS;
    else if (json_bool(start, false))
        flags |= TOKENIZER_BOS_ALWAYS;
    int err = tokenizer_encode(q->e.tokenizer, text, strlen(text), flags, &ids, &n, d);
    if (err)
        return err;
    put_ids(out, ids, n);
    mem_free(ids);
    return KVF_OK;
}

/* Sets *ret_end to the end of the content of the last of n messages in a rendered prompt. */
static int end_of_last(const struct chat_text *t, int n, size_t *ret_end, struct kvf_diag *d)
{
    *ret_end = 0;
    for (int i = 0; i < t->n_spans; i++)
        if (t->span[i].message == n - 1)
            *ret_end = t->span[i].to;
    return *ret_end ? KVF_OK
                    : kvf_fail(d, KVF_E_FORMAT,
                               "the chat template does not show the last message, which is to be "
                               "continued");
}

static int answer_messages(const struct request *q, const char *s, size_t n,
                           const struct json *line, struct buf *out, struct kvf_diag *d)
{
    const struct prompt *p = &q->r.prompt;
    struct chat_json c;
    struct chat_text t = {.span = NULL};
    bool continued = json_bool(json_get(line, "continue"), false);
    int err = chat_json_open(s, n, true, &c, d);
    if (err)
        return err;
    struct chat_request r = {.json = &c, .generation = !continued, .date = p->date};
    if (p->think || p->no_think)
        r.think = p->think ? CHAT_THINK : CHAT_NO_THINK;
    err = chat_render(q->e.gguf, &r, &t, d);
    size_t end = t.text.len;
    if (!err && continued)
        err = end_of_last(&t, c.n, &end, d);
    if (!err) {
        json_put_key(out, "text");
        json_put_str(out, t.text.data ? t.text.data : "", end);
    }
    chat_text_free(&t);
    chat_json_close(&c);
    return err;
}

static int answer_ids(const struct request *q, const struct json *line, struct buf *out,
                      struct kvf_diag *d)
{
    const struct json *array = json_get(line, "ids");
    const struct tokenizer *t = q->e.tokenizer;
    struct buf text = {0};
    int32_t *ids = NULL;
    int n = 0;
    if (!json_is_array(array))
        return kvf_fail(d, KVF_E_FORMAT, "\"ids\" is no array");
    int err = jsonl_ids(array, tokenizer_vocab(t), &ids, &n, d);
    if (!err) {
        tokenizer_decode(t, ids, n, json_bool(json_get(line, "marks"), true), &text);
        json_put_key(out, "text");
        json_put_str(out, text.data ? text.data : "", text.len);
        err = text.err;
    }
    mem_free(ids);
    buf_finish(&text);
    return err;
}

static void put_mark(struct buf *b, const char *key, int32_t id)
{
    if (id >= 0)
        json_put_member_num(b, key, id);
}

/* Appends facts of the model file about the tokenizer, the template and the context. */
static void answer_model(const struct request *q, struct buf *out)
{
    char hash[33];
    size_t n = 0;
    const struct tokenizer *t = q->e.tokenizer;
    const struct tokenizer_marks marks = tokenizer_marks(t);
    const char *template = gguf_str(q->e.gguf, "tokenizer.chat_template", &n);
    tokenizer_hash(t, hash);
    json_put_member_str(out, "name", q->e.config.name);
    json_put_member_str(out, "tokenizer", hash);
    json_put_member_num(out, "vocabulary", tokenizer_vocab(t));
    json_put_member_num(out, "context", q->e.config.n_ctx);
    put_mark(out, "bos", marks.bos);
    put_mark(out, "eos", marks.eos);
    put_mark(out, "start", tokenizer_before_text(t));
    json_put_key(out, "adds_bos");
    buf_str(out, marks.adds_bos ? "true" : "false");
    if (template) {
        json_put_key(out, "template");
        json_put_str(out, template, n);
    }
}

/* Answers a line with one JSON object. */
static int answer(const struct request *q, const char *s, size_t n, struct buf *out,
                  struct kvf_diag *d)
{
    struct json *line = NULL;
    enum line_kind kind = LINE_MODEL;
    int err = json_parse(s, n, &line, d);
    if (!err)
        err = read_kind(line, &kind, d);
    buf_char(out, '{');
    if (!err && kind == LINE_TEXT)
        err = answer_text(q, line, out, d);
    else if (!err && kind == LINE_MESSAGES)
        err = answer_messages(q, s, n, line, out, d);
    else if (!err && kind == LINE_IDS)
        err = answer_ids(q, line, out, d);
    else if (!err)
        answer_model(q, out);
    buf_str(out, "}\n");
    json_free(line);
    return err ? err : out->err;
}

/* Answers each line of a file before reading the next. The answer to a line that fails is
 * {"error": sentence}, and the loop continues. Returns KVF_E_FORMAT with a sentence if a line
 * failed. */
static int answer_lines(const struct request *q, FILE *f, struct kvf_diag *d)
{
    struct buf line = {.max = JSON_MOST}, out = {0};
    int failed = 0, first = 0, c = 0;
    for (int number = 1; c != EOF && !ferror(stdout); number++) {
        struct kvf_diag why = {""};
        buf_clear(&line);
        for (c = getc(f); c != EOF && c != '\n'; c = getc(f))
            buf_char(&line, (char)c);
        if (!line.err && (!line.data || strspn(line.data, " \t\r") == line.len))
            continue;
        buf_clear(&out);
        int err = line.err ? kvf_fail(&why, line.err, "over %d MiB", JSON_MOST >> 20)
                           : answer(q, line.data, line.len, &out, &why);
        if (err) {
            buf_clear(&out);
            buf_char(&out, '{');
            json_put_member_str(&out, "error", why.text[0] ? why.text : kvf_strerror(err));
            buf_str(&out, "}\n");
            first = failed++ ? first : number;
        }
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
    }
    int err = ferror(f) ? kvf_fail(d, KVF_E_IO, "%s: cannot read it: %s", q->jsonl, strerror(errno))
                        : KVF_OK;
    if (!err && failed)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: lines that failed: %d, the first is line %d", q->jsonl,
                       failed, first);
    buf_finish(&line);
    buf_finish(&out);
    return err;
}

static int read_lines(const struct request *q, struct kvf_diag *d)
{
    FILE *f = strcmp(q->jsonl, "-") == 0 ? stdin : fopen(q->jsonl, "rb");
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open it: %s", q->jsonl, strerror(errno));
    int err = answer_lines(q, f, d);
    if (f != stdin)
        fclose(f);
    return err;
}

/* ---- the command */

/* Opens the model without its weights. */
static int open_tokenizer(struct request *q, struct kvf_diag *d)
{
    int err = model_tokenizer(q->r.model, q->r.how.pre, &q->e.gguf, &q->e.tokenizer, d);
    return err ? err : model_config_read(q->e.gguf, &q->e.config, d);
}

/* Prints the ids of the prompt, or the text of --ids; with --json both. */
static int print_prompt(struct request *q, struct kvf_diag *d)
{
    struct prompt *p = &q->r.prompt;
    struct buf b = {0};
    int err = prompt_open(p, &q->e, d);
    if (err)
        return err;
    if (p->note)
        fprintf(stderr, "note: %s\n", p->note);
    if (p->ids_file)
        tokenizer_decode(q->e.tokenizer, p->ids, p->n_ids, true, &p->text);
    const char *text = p->text.data ? p->text.data : "";
    if (q->json) {
        buf_char(&b, '{');
        json_put_key(&b, "text");
        json_put_str(&b, text, p->text.len);
        put_ids(&b, p->ids, p->n_ids);
        buf_char(&b, '}');
    } else if (p->ids_file) {
        buf_add(&b, text, p->text.len);
    }
    for (int i = 0; !q->json && !p->ids_file && i < p->n_ids; i++)
        buf_printf(&b, "%s%d", i ? " " : "", (int)p->ids[i]);
    buf_char(&b, '\n');
    err = p->text.err ? p->text.err : b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return err;
}

static int check_options(const struct request *q, struct kvf_diag *d)
{
    const struct prompt *p = &q->r.prompt;
    const char *bare = p->raw ? "with --raw, which uses no chat template"
                              : "with --ids, which uses no chat template";
    const char *lines = "with --jsonl: the lines have the texts";
    bool plain = p->raw || p->ids_file;
    const struct idle list[] = {
        {q->jsonl && p->given, "-p", lines},
        {q->jsonl && p->file, "-f", lines},
        {q->jsonl && p->chat, "--chat", lines},
        {q->jsonl && p->ids_file, "--ids", lines},
        {q->jsonl && p->raw, "--raw", lines},
        {q->jsonl && q->json, "--json", "with --jsonl: the answers are JSON"},
        {p->think && plain, "--think", bare},
        {p->no_think && plain, "--no-think", bare},
        {p->date && plain, "--date", bare},
        {p->raw && p->ids_file, "--raw", "with --ids: ids are used without conversion"},
    };
    int err = IDLE_CHECK(list, d);
    return err ? err : prompt_check(p, !q->jsonl, d);
}

static const struct opt options[] = {
    {OPT_GROUP, 0, "prompt", offsetof(struct request, r), .group = runner_prompt_options},
    {OPT_STR, 0, "jsonl", offsetof(struct request, jsonl), "FILE",
     "many texts, messages or arrays of ids, one JSON object per line"},
    {OPT_STR, 0, "pre", offsetof(struct request, r.how.pre), "NAME",
     "pre-tokenizer of a byte-level vocabulary, as 'kvfate models' lists them",
     .absent = "as in the file"},
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL,
     "one JSON object with the text and the ids"},
    {.type = OPT_END},
};

static int cmd_tokenize(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct kvf_diag d = {""};
    (void)n;
    (void)operand;
    int err = check_options(q, &d);
    if (!err)
        err = open_tokenizer(q, &d);
    if (!err)
        err = q->jsonl ? read_lines(q, &d) : print_prompt(q, &d);
    prompt_close(&q->r.prompt);
    tokenizer_destroy(q->e.tokenizer);
    gguf_close(q->e.gguf);
    return command_end(self, err, &d);
}

const struct command command_tokenize = {
    .name = "tokenize",
    .group = "running",
    .summary = "convert text to token ids, and token ids to text",
    .example = "kvfate tokenize --raw -p 'Once upon a time'",
    .needs = "(-p TEXT | -f FILE | --chat FILE | --ids FILE | --jsonl FILE)",
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_tokenize,
};
