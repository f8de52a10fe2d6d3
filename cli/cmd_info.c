/* cmd_info.c - `kvfate trace info` describes a trace or a file of gates. */
#include <stdio.h>
#include <string.h>

#include <kvf/trace.h>

#include "base/json_tape.h"
#include "cli/commands.h"
#include "cli/info_blobs.h"
#include "cli/info_gates.h"
#include "cli/open_traces.h"
#include "cli/original_heads.h"
#include "cli/shown.h"
#include "libtrace/run_header.h"

static const char *const space_names[] = {"run", "kv", "query"};
static const char *const axis_names[] = {"token", "step"};

static void put(struct buf *b, const char *key, double v)
{
    json_put_key(b, key);
    json_put_num(b, v);
}

/* Appends the format, and the run id and the digest that are stored in the file. */
static void put_identity(struct buf *b, const struct kvf_trace *t)
{
    char text[33];
    json_put_member_str(b, "format", kvf_format(t));
    if (kvf_run_id(t, text) == KVF_OK)
        json_put_member_str(b, "run", text);
    if (kvf_stored_digest(t, text) == KVF_OK)
        json_put_member_str(b, "digest", text);
}

static void put_column(struct buf *b, const struct kvf_trace *t, int i)
{
    const struct kvf_column *c = kvf_column(t, i);
    buf_char(b, '{');
    json_put_member_str(b, "name", c->name);
    json_put_member_str(b, "dtype", dtype_name(c->dtype));
    json_put_member_str(b, "space", space_names[c->space]);
    json_put_member_str(b, "axis", axis_names[c->axis]);
    if (c->flags & KVF_COL_INTERVALS)
        put(b, "intervals", (double)kvf_held_intervals(t, i));
    buf_char(b, '}');
}

/* Appends a stored text as JSON if it is valid JSON, otherwise as a string. */
static void put_json_or_text(struct buf *b, const char *text)
{
    if (json_check(text, strlen(text)))
        json_put_text(b, text);
    else
        json_put_str(b, text, strlen(text));
}

/* Appends the original numbers of the heads of a trimmed trace. */
static void put_heads(struct buf *b, const struct kvf_trace *t, bool json)
{
    struct original_heads x;
    original_heads_read(t, &x);
    if (x.n && json) {
        buf_str(b, ",\"heads\":[");
        for (int i = 0; i < x.n; i++)
            buf_printf(b, "%s\"L%dK%d\"", i ? "," : "", x.head[i].of_layer, x.head[i].of_index);
        buf_char(b, ']');
    } else if (x.n) {
        buf_printf(b, "%-10s", "heads");
        original_heads_text(&x, x.n, b);
        buf_str(b, " of the complete run\n");
    }
    original_heads_free(&x);
}

static int info_json(struct kvf_trace *t, struct kvf_diag *d)
{
    struct buf b = {0};
    buf_char(&b, '{');
    put_identity(&b, t);
    put(&b, "steps", kvf_n_steps(t));
    put(&b, "epoch", kvf_epoch(t));
    json_put_key(&b, "clean");
    buf_str(&b, kvf_is_clean(t) ? "true" : "false");
    put(&b, "layers", kvf_n_layers(t));
    put_heads(&b, t, true);
    json_put_key(&b, "columns");
    buf_char(&b, '[');
    for (int i = 0; i < kvf_n_columns(t); i++) {
        if (i)
            buf_char(&b, ',');
        put_column(&b, t, i);
    }
    buf_str(&b, "],\"blobs\":");
    int err = info_blobs_json(&b, t, d);
    buf_str(&b, ",\"header\":");
    put_json_or_text(&b, kvf_meta(t));
    if (kvf_note(t, "result")) {
        buf_str(&b, ",\"result\":");
        put_json_or_text(&b, kvf_note(t, "result"));
    }
    buf_str(&b, "}\n");
    if (!b.err)
        fwrite(b.data, 1, b.len, stdout);
    err = b.err ? b.err : err;
    buf_finish(&b);
    return err;
}

/* Appends a member as "key value"; of an array, the number of its values. */
static void put_member(struct buf *b, const struct json *m)
{
    const char *text = json_str(m, NULL);
    buf_printf(b, "%s ", json_key(m));
    if (text)
        buf_str(b, text);
    else if (json_is_array(m))
        buf_printf(b, "of %d values", json_len(m));
    else
        json_put_node(b, m);
}

/* Appends one line for an object of the run header: "method    name h2o, budget 256, ..." An object
 * in it stands in parentheses. */
static void put_object(struct buf *b, const char *name, const struct json *object)
{
    const char *sep = "";
    buf_printf(b, "%-10s", name);
    for (const struct json *m = json_first(object); m; m = json_next(m), sep = ", ") {
        const char *inner = "";
        buf_str(b, sep);
        if (!json_is_object(m)) {
            put_member(b, m);
            continue;
        }
        buf_printf(b, "%s (", json_key(m));
        for (const struct json *x = json_first(m); x; x = json_next(x), inner = ", ") {
            buf_str(b, inner);
            put_member(b, x);
        }
        buf_char(b, ')');
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
        shown--; /* cut at the start of a character */
    const char *stop = json_str(json_get(result, "stop"), NULL);
    buf_printf(b, "%-10s%lld tokens%s%s: ", "answer",
               (long long)json_int(json_get(result, "generated_tokens"), 0), stop ? ", stop: " : "",
               stop ? stop : "");
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
        buf_printf(b, "  %-22s %-4s %s%s%s%s", c->name, dtype_name(c->dtype), heads[c->space],
                   axis_names[c->axis], c->unit[0] ? ", in " : "", c->unit);
        if (c->flags & KVF_COL_INTERVALS)
            buf_printf(b, ", %llu intervals", (unsigned long long)kvf_held_intervals(t, i));
        buf_char(b, '\n');
    }
}

static void put_format(struct buf *b, const struct kvf_trace *t)
{
    char text[33];
    buf_printf(b, "%-10s%s", "format", kvf_format(t));
    if (kvf_run_id(t, text) == KVF_OK)
        buf_printf(b, ", run %s", text);
    if (kvf_stored_digest(t, text) == KVF_OK)
        buf_printf(b, "\n%-10s%s", "digest", text);
    buf_char(b, '\n');
}

static int info_text(struct kvf_trace *t, struct kvf_diag *d)
{
    struct buf b = {0};
    struct json *header = NULL;
    struct kvf_diag why = {""};
    buf_printf(&b, "%s: %u tokens, %s\n", shown_name(kvf_path(t)).text, kvf_n_steps(t),
               kvf_is_clean(t) ? "closed" : "not closed: the writer was interrupted");
    put_format(&b, t);
    if (run_header(t, &header, &why) != KVF_OK)
        command_print("info", "%s", why.text);
    for (const struct json *m = json_first(header); m; m = json_next(m))
        if (json_is_object(m))
            put_object(&b, json_key(m), m);
    const struct json *o = json_first(json_get(header, "overrides"));
    for (; o; o = json_next(o))
        put_object(&b, "override", o);
    json_free(header);
    put_heads(&b, t, false);
    put_answer(&b, t);
    put_columns(&b, t);
    int err = info_blobs_text(&b, t, d);
    if (!b.err)
        shown_print(b.data, b.len);
    err = b.err ? b.err : err;
    buf_finish(&b);
    return err;
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
    int err = kvf_open(operand[0], KVF_OPEN_TAIL, &t, &d);
    if (err) {
        command_print_error(self, err, &d);
        return EXIT_FAILED;
    }
    trace_check_complete(self, t, "showing");
    err = q->json ? info_json(t, &d) : info_text(t, &d);
    command_print_error(self, err, &d);
    kvf_close(t);
    return err ? EXIT_FAILED : EXIT_OK;
}

const struct command command_info = {
    .name = "info",
    .group = "files",
    .summary = "show the metadata and the columns of a trace or a gate file",
    .example = "kvfate trace info run.kvf",
    .operands = {"FILE", "trace", 1, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_info,
};
