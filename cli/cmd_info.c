/* cmd_info.c - what a trace, or a file of gates, holds. */
#include <stdio.h>
#include <string.h>

#include <kvf/trace.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/info_gates.h"
#include "cli/open_traces.h"
#include "cli/shown.h"

static const char *const space_names[] = {"run", "kv", "query"};
static const char *const axis_names[] = {"token", "step"};
static const char *const dtype_names[] = {"?", "u8", "u16", "u32", "i32", "f32", "f64", "u64"};

static void put(struct buf *b, const char *key, double v)
{
    json_put_key(b, key);
    json_put_num(b, v);
}

static int info_json(struct kvf_trace *t)
{
    struct buf b = {0};
    buf_char(&b, '{');
    put(&b, "steps", kvf_n_steps(t));
    put(&b, "epoch", kvf_epoch(t));
    json_put_key(&b, "clean");
    buf_str(&b, kvf_is_clean(t) ? "true" : "false");
    put(&b, "layers", kvf_n_layers(t));
    json_put_key(&b, "columns");
    buf_char(&b, '[');
    for (int i = 0; i < kvf_n_columns(t); i++) {
        const struct kvf_column *c = kvf_column(t, i);
        buf_str(&b, i ? ",{" : "{");
        json_put_key(&b, "name");
        json_put_str(&b, c->name, strlen(c->name));
        buf_printf(&b, ",\"dtype\":\"%s\",\"space\":\"%s\",\"axis\":\"%s\"}", dtype_names[c->dtype],
                   space_names[c->space], axis_names[c->axis]);
    }
    buf_str(&b, "],\"header\":");
    json_put_text(&b, kvf_meta(t));
    if (kvf_note(t, "result")) {
        buf_str(&b, ",\"result\":");
        json_put_text(&b, kvf_note(t, "result"));
    }
    buf_str(&b, "}\n");
    int err = b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return err ? EXIT_FAILED : EXIT_OK;
}

/* One line for each object of the run header: "method    name h2o, budget 256, ..." */
static void put_object(struct buf *b, const struct json *object)
{
    const char *sep = "";
    buf_printf(b, "%-10s", json_key(object));
    for (const struct json *m = json_first(object); m; m = json_next(m), sep = ", ") {
        const char *text = json_str(m, NULL);
        if (text)
            buf_printf(b, "%s%s %s", sep, json_key(m), text);
        else
            buf_printf(b, "%s%s %g", sep, json_key(m), json_num(m, 0));
    }
    buf_char(b, '\n');
}

static void put_answer(struct buf *b, struct kvf_trace *t)
{
    enum { SHOWN = 300 };
    const char *note = kvf_note(t, "result");
    struct json *result = NULL;
    if (!note || json_parse(note, strlen(note), &result, NULL) != KVF_OK)
        return;
    const char *text = json_str(json_get(result, "text"), "");
    size_t n = strlen(text), shown = n < SHOWN ? n : SHOWN;
    while (shown < n && ((unsigned char)text[shown] & 0xc0) == 0x80)
        shown--; /* not within a character */
    buf_printf(b, "%-10s%lld tokens: ", "answer",
               (long long)json_int(json_get(result, "generated_tokens"), 0));
    for (size_t i = 0; i < shown; i++)
        buf_char(b, text[i] == '\n' ? ' ' : text[i]);
    buf_printf(b, "%s\n", shown < n ? " ..." : "");
    json_free(result);
}

static void put_columns(struct buf *b, const struct kvf_trace *t)
{
    static const char *const heads[] = {"", "KV head x ", "query head x "};
    buf_str(b, "columns\n");
    for (int i = 0; i < kvf_n_columns(t); i++) {
        const struct kvf_column *c = kvf_column(t, i);
        buf_printf(b, "  %-22s %-4s %s%s%s%s\n", c->name, dtype_names[c->dtype], heads[c->space],
                   axis_names[c->axis], c->unit[0] ? ", in " : "", c->unit);
    }
}

static int info_text(struct kvf_trace *t)
{
    struct buf b = {0};
    struct json *header = NULL;
    const char *meta = kvf_meta(t);
    buf_printf(&b, "%s: %u tokens, %s\n", kvf_path(t), kvf_n_steps(t),
               kvf_is_clean(t) ? "closed" : "not closed: the writer was interrupted");
    if (json_parse(meta, strlen(meta), &header, NULL) == KVF_OK) {
        for (const struct json *m = json_first(header); m; m = json_next(m))
            if (json_is_object(m))
                put_object(&b, m);
    }
    json_free(header);
    put_answer(&b, t);
    put_columns(&b, t);
    int err = b.err;
    if (!err)
        shown_print(b.data, b.len);
    buf_finish(&b);
    return err ? EXIT_FAILED : EXIT_OK;
}

struct request {
    bool json;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "one JSON object"},
    {.type = OPT_END},
};

static int cmd_info(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    struct request *q = request;
    struct kvf_diag d = {""};
    struct kvf_trace *t = NULL;
    if (looks_like_gates(operand[0]))
        return info_gates(self, operand[0], q->json);
    int err = kvf_open(operand[0], KVF_OPEN_TAIL, &t, &d), status = EXIT_OK;
    if (err) {
        command_say(self, err, &d);
        return EXIT_FAILED;
    }
    trace_judge(self, t, "showing");
    if (q->json)
        status = info_json(t);
    else
        status = info_text(t);
    kvf_close(t);
    return status;
}

const struct command command_info = {
    .name = "info",
    .group = "traces",
    .summary = "show what a trace, or a file of gates, holds",
    .example = "kvfate info run.kvf",
    .operands = {"FILE", "trace", 1, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_info,
};
