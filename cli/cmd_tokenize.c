/* cmd_tokenize.c - `kvfate tokenize` counts the tokens of texts, and converts tokens to text.
 *
 * It reads only the vocabulary of the model. Each line is answered before the next one is read, so
 * that a program can use it through pipes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/models.h"
#include "cli/signals.h"
#include "engine/experiment/prompt.h"

struct request {
    const char *model, *pre;
    bool ids;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

static int check_keys(const struct json *root, struct kvf_diag *d)
{
    static const char *const known[] = {"text", "prompt", "ids", "messages", "answer_prefix"};
    enum { IDS = 2, KINDS = 4, KNOWN = 5 };
    int kinds = 0;
    if (!json_is_object(root))
        return kvf_fail(d, KVF_E_FORMAT, "expected a JSON object");
    for (const struct json *m = json_first(root); m; m = json_next(m)) {
        size_t i = 0;
        while (i < KNOWN && strcmp(json_key(m), known[i]) != 0)
            i++;
        if (i == KNOWN)
            return kvf_fail(d, KVF_E_FORMAT,
                            "unknown key \"%.60s\"; known are text, prompt, messages, ids and "
                            "answer_prefix",
                            json_key(m));
        bool array = i == IDS || i == IDS + 1;
        kinds += i < KINDS;
        if (array ? !json_is_array(m) : !json_str(m, NULL))
            return kvf_fail(d, KVF_E_FORMAT, "\"%s\" must be %s", known[i],
                            array ? "an array" : "a text");
    }
    if (kinds != 1)
        return kvf_fail(d, KVF_E_FORMAT,
                        "give exactly one of \"text\", \"prompt\", \"messages\" and \"ids\"");
    if (json_get(root, "ids") && json_get(root, "answer_prefix"))
        return kvf_fail(d, KVF_E_FORMAT, "\"answer_prefix\" and \"ids\" exclude each other");
    return KVF_OK;
}

/* Appends {"text"} with the bytes of token ids, without control tokens. */
static int put_decoded(const struct tokenizer *t, const struct json *ids, struct buf *out,
                       struct kvf_diag *d)
{
    struct buf text = {0};
    int vocab = tokenizer_vocab(t), err = KVF_OK;
    for (const struct json *m = json_first(ids); !err && m; m = json_next(m)) {
        int64_t id = json_int(m, -1);
        size_t len = 0;
        if (id < 0 || id >= vocab) {
            err = kvf_fail(d, KVF_E_FORMAT,
                           "\"ids\" must hold whole numbers below the vocabulary's size of %d",
                           vocab);
        } else if (!tokenizer_is_special(t, (int32_t)id)) {
            const char *bytes = tokenizer_bytes(t, (int32_t)id, &len);
            buf_add(&text, bytes, len);
        }
    }
    buf_str(out, "{\"text\":");
    json_put_str(out, text.data ? text.data : "", text.len);
    buf_str(out, "}\n");
    err = err ? err : text.err;
    buf_finish(&text);
    return err;
}

/* Appends {"tokens"}, and with --ids {"ids"}, of a text or a prompt. */
static int put_encoded(const struct request *q, const struct json *root, const char *line,
                       struct buf *out, struct kvf_diag *d)
{
    /* prompt_open() uses no other member, because the prompt is a text */
    const struct engine e = {.gguf = q->gguf, .tokenizer = q->tokenizer};
    struct prompt p = {.given = json_str(json_get(root, "prompt"), NULL),
                       .reply = json_str(json_get(root, "answer_prefix"), NULL)};
    if (json_get(root, "messages")) {
        p.messages = line;
    } else if (!p.given) {
        p.given = json_str(json_get(root, "text"), "");
        p.raw = true;
    }
    int err = prompt_open(&p, &e, d);
    buf_char(out, '{');
    json_put_member_num(out, "tokens", p.n_ids);
    if (q->ids) {
        json_put_key(out, "ids");
        for (int i = 0; i < p.n_ids; i++)
            buf_printf(out, "%c%d", i ? ',' : '[', p.ids[i]);
        buf_str(out, p.n_ids ? "]" : "[]");
    }
    buf_str(out, "}\n");
    prompt_close(&p);
    return err;
}

static int answer_line(const struct request *q, const struct buf *line, struct kvf_diag *d)
{
    struct json *root = NULL;
    struct buf out = {0};
    int err = json_parse(line->data, line->len, &root, d);
    if (!err)
        err = check_keys(root, d);
    if (!err)
        err = json_get(root, "ids") ? put_decoded(q->tokenizer, json_get(root, "ids"), &out, d)
                                    : put_encoded(q, root, line->data, &out, d);
    if (!err)
        err = out.err;
    if (!err && (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0))
        err = kvf_fail(d, KVF_E_IO, "standard output: %s", strerror(errno));
    json_free(root);
    buf_finish(&out);
    return err;
}

static int answer_lines(const struct request *q, const char *name, FILE *f, struct kvf_diag *d)
{
    struct buf line = {.max = JSON_MOST};
    int err = KVF_OK, c = 0;
    for (int number = 1; !err && c != EOF && !signals_caught(); number++) {
        buf_clear(&line);
        for (c = getc(f); c != EOF && c != '\n' && !line.err; c = getc(f))
            buf_char(&line, (char)c);
        if (line.err)
            err = kvf_fail(d, line.err, "over %d MiB", JSON_MOST >> 20);
        else if (strspn(line.data ? line.data : "", " \t\r") < line.len)
            err = answer_line(q, &line, d);
        if (err)
            kvf_diag_prefix(d, "%s: line %d", name, number);
    }
    if (!err && ferror(f))
        err = kvf_fail(d, KVF_E_IO, "%s: cannot read it: %s", name, strerror(errno));
    buf_finish(&line);
    return err;
}

static const struct opt options[] = {
    {OPT_STR, 'm', "model", offsetof(struct request, model), "FILE", "model with the vocabulary",
     .absent = "SmolLM2 in the cache folder"},
    {OPT_STR, 0, "pre", offsetof(struct request, pre), "NAME",
     "pre-tokenizer of a byte-level vocabulary, as 'kvfate models' lists them",
     .absent = "as in the file"},
    {OPT_FLAG, 0, "ids", offsetof(struct request, ids), NULL, "print the token ids too"},
    {.type = OPT_END},
};

static int cmd_tokenize(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct kvf_diag d = {""};
    bool piped = n == 0 || strcmp(operand[0], "-") == 0;
    const char *name = piped ? "standard input" : operand[0];
    int err = model_tokenizer(q->model, q->pre, &q->gguf, &q->tokenizer, &d);
    FILE *f = piped ? stdin : NULL;
    if (!err && !piped)
        f = fopen(operand[0], "rb");
    if (!err && !f)
        err = kvf_fail(&d, KVF_E_IO, "%s: cannot open it: %s", name, strerror(errno));
    if (!err)
        err = answer_lines(q, name, f, &d);
    if (f && !piped)
        fclose(f);
    tokenizer_destroy(q->tokenizer);
    gguf_close(q->gguf);
    return command_end(self, err, &d);
}

const struct command command_tokenize = {
    .name = "tokenize",
    .group = "running models",
    .summary = "count the tokens of texts, or convert tokens to text",
    .example = "kvfate tokenize lines.jsonl",
    .operands = {"[LINES.jsonl]", "file", 0, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_tokenize,
};
