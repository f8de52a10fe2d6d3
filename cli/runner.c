#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/headset.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/folders.h"
#include "cli/force.h"
#include "cli/runner.h"
#include "engine/model/chat.h"

enum { MAX_PROMPT_BYTES = 64 << 20, N_PREDICT = 128 };

const struct opt runner_prompt_options[] = {
    {OPT_STR, 'm', "model", offsetof(struct runner, model), "FILE", "GGUF model",
     .absent = "SmolLM2 in the cache folder"},
    {OPT_STR, 'p', "prompt", offsetof(struct runner, prompt), "TEXT",
     "prompt, as a user's message"},
    {OPT_STR, 'f', "file", offsetof(struct runner, file), "FILE",
     "prompt from a file, as a user's message"},
    {OPT_STR, 0, "chat", offsetof(struct runner, chat), "FILE",
     "messages as JSON: [{\"role\",\"content\"}, ...]"},
    {OPT_STR, 0, "ids", offsetof(struct runner, ids_file), "FILE",
     "prompt as token ids, separated by white space"},
    {OPT_FLAG, 0, "raw", offsetof(struct runner, raw), NULL,
     "no chat template: the prompt as it stands"},
    {.type = OPT_END},
};

const struct opt runner_options[] = {
    {OPT_GROUP, 0, "prompt", 0, .group = runner_prompt_options},
    {OPT_INT, 'n', "predict", offsetof(struct runner, n_predict), "N", "most tokens to generate",
     "-1", .absent = "128; with --force all its tokens", .max = 1 << 24},
    {OPT_STR, 0, "method", offsetof(struct runner, method), "M",
     "cache method NAME[:key=value,...]", .absent = "full"},
    {OPT_LIST, 0, "override", offsetof(struct runner, override_text), "SET=M",
     "another method for some KV heads, as L0-5K*=window:budget=64"},
    {OPT_STR, 0, "gates", offsetof(struct runner, gates_file), "FILE",
     "trained gates, safetensors or torch, or the name of shipped ones"},
    {OPT_INT, 'B', "budget", offsetof(struct runner, budget), "N",
     "entries that each KV head may hold", .min = 1, .max = 1 << 24},
    {OPT_INT, 's', "seed", offsetof(struct runner, seed), "S", "seed of sampling", "0",
     .max = 9e15},
    {OPT_REAL, 0, "temp", offsetof(struct runner, temperature), "X", "temperature; 0 = greedy", "0",
     .max = 100},
    {OPT_REAL, 0, "top-p", offsetof(struct runner, top_p), "P",
     "draw from the likeliest tokens of mass P", "1", .min = 1e-9, .max = 1},
    {OPT_FLAG, 0, "ignore-eos", offsetof(struct runner, ignore_eos), NULL,
     "do not stop at the end token"},
    {OPT_INT, 'c', "context", offsetof(struct runner, context), "N", "most tokens in all",
     .absent = "the model's context", .min = 1, .max = 1 << 24},
    {OPT_INT, 0, "chunk", offsetof(struct runner, chunk), "N", "prompt tokens that run together",
     .absent = "256", .min = 1, .max = 8192},
    {OPT_INT, 't', "threads", offsetof(struct runner, threads), "N", "threads",
     .absent = "number of cores", .min = 1, .max = 256},
    {OPT_STR, 0, "kv-type", offsetof(struct runner, kv_type), "T", "cache elements: f16 or f32",
     .absent = "f16"},
    {OPT_FLAG, 0, "exact", offsetof(struct runner, exact), NULL,
     "f32 weights, activations and cache"},
    {.type = OPT_END},
};

int runner_heads(const struct model_config *m, const char *set, unsigned char **ret_take,
                 struct kvf_diag *d)
{
    char wrong = m->n_heads == m->n_kv_heads ? 0 : 'H'; /* where both are one, so are the names */
    *ret_take = MEM_NEW(unsigned char, (size_t)m->n_layers *(size_t)m->n_kv_heads);
    if (!*ret_take)
        return KVF_E_NOMEM;
    int marked = headset_mark(set, wrong, m->n_layers, m->n_kv_heads, *ret_take);
    if (marked < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "--head: '%s' is not a set of KV heads such as L0-5K*, L3K1 "
                        "or 3.1",
                        set);
    if (marked == 0)
        return kvf_fail(d, KVF_E_ARG, "--head: '%s' names no head of this model", set);
    return KVF_OK;
}

int runner_data(struct opt_list *data, char *const *operand, int n, struct kvf_diag *d)
{
    for (int i = 0; i < n; i++) {
        if (data->n == 0 || data->n == OPT_LIST_MAX)
            return kvf_fail(d, KVF_E_ARG,
                            data->n ? "more than %d files"
                                    : "--data comes before "
                                      "the files",
                            OPT_LIST_MAX);
        data->item[data->n++] = operand[i];
    }
    return KVF_OK;
}

int runner_status(int err)
{
    return err == KVF_OK ? EXIT_OK : err == KVF_E_ARG ? EXIT_USAGE : EXIT_FAILED;
}

int runner_read_file(const char *path, struct buf *out, struct kvf_diag *d)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char part[65536];
    size_t n;
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open it: %s", path, strerror(errno));
    out->max = MAX_PROMPT_BYTES;
    while (!out->err && (n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(out, part, n);
    int bad = ferror(f);
    if (f != stdin)
        fclose(f);
    if (bad)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read it: %s", path, strerror(errno));
    if (out->err)
        return kvf_fail(d, out->err, "%s: over %d MiB", path, MAX_PROMPT_BYTES >> 20);
    return KVF_OK;
}

/* Whether the prompt is that of a file whose tokens are forced. */
static bool held_prompt(const struct runner *r)
{
    return !r->prompt && !r->file && !r->chat && !r->ids_file && r->force
           && (r->force->file || r->force->plan_file);
}

static int check_options(struct runner *r, struct kvf_diag *d)
{
    int sources = !!r->prompt + !!r->file + !!r->chat + !!r->ids_file;
    if (sources == 0 && !held_prompt(r))
        return kvf_fail(d, KVF_E_ARG,
                        "no prompt; give one with -p TEXT, -f FILE, --chat FILE or --ids FILE");
    if (sources > 1)
        return kvf_fail(d, KVF_E_ARG, "give one of -p, -f, --chat and --ids, not several");
    if (r->kv_type && strcmp(r->kv_type, "f16") != 0 && strcmp(r->kv_type, "f32") != 0)
        return kvf_fail(d, KVF_E_ARG, "--kv-type is f16 or f32, not '%s'", r->kv_type);
    if (r->chat && r->raw)
        return kvf_fail(d, KVF_E_ARG, "--raw and --chat exclude each other");
    if (!r->method)
        r->method = r->force && r->force->plan_file ? "plan" : "full";
    return runner_parse_methods(r, d);
}

/* Messages of a JSON array, rendered by the model's template. */
static int render_messages(struct runner *r, const char *json, size_t len, struct kvf_diag *d)
{
    enum { MAX_MESSAGES = 1024 };
    struct json *root = NULL;
    int err = json_parse(json, len, &root, d);
    if (err) {
        kvf_diag_prefix(d, "%s", r->chat);
        return err;
    }
    int n = json_is_array(root) ? json_len(root) : 0, i = 0;
    struct chat_message *msg = n > 0 && n <= MAX_MESSAGES ? MEM_NEW(struct chat_message, (size_t)n)
                                                          : NULL;
    for (const struct json *m = json_first(root); msg && m && i < n; m = json_next(m), i++) {
        msg[i].role = json_str(json_get(m, "role"), NULL);
        msg[i].content = json_str(json_get(m, "content"), NULL);
        if (!msg[i].role || !msg[i].content)
            break;
    }
    if (!msg || i < n)
        err = kvf_fail(d, KVF_E_FORMAT,
                       "%s: expected a JSON array of 1 to %d {\"role\", \"content\"} objects",
                       r->chat, MAX_MESSAGES);
    else
        err = chat_render(r->engine->gguf, msg, n, true, &r->text, d);
    mem_free(msg);
    json_free(root);
    return err;
}

/* The user's message is the last that the template has. */
static void find_prompt(struct runner *r, const char *text, size_t n)
{
    size_t at = r->text.len - n;
    while (at > 0 && memcmp(r->text.data + at, text, n) != 0)
        at--;
    r->prompt_at = at;
    r->prompt_bytes = n;
}

static int build_prompt(struct runner *r, struct kvf_diag *d)
{
    struct buf in = {0};
    int err = KVF_OK;
    const char *path = r->file ? r->file : r->chat;
    if (path)
        err = runner_read_file(path, &in, d);
    else
        buf_str(&in, r->prompt);
    const char *text = in.data ? in.data : "";
    if (!err && r->chat) {
        err = render_messages(r, text, in.len, d);
    } else if (!err && r->raw) {
        buf_add(&r->text, text, in.len);
    } else if (!err) {
        if (strlen(text) != in.len) {
            err = kvf_fail(d, KVF_E_FORMAT, "the prompt holds a NUL byte; use --raw for such text");
        } else {
            struct chat_message m = {"user", text};
            err = chat_render(r->engine->gguf, &m, 1, true, &r->text, d);
            if (!err)
                find_prompt(r, text, in.len);
        }
    }
    buf_finish(&in);
    return err ? err : r->text.err;
}

/* Ids in decimal, separated by white space. */
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

int runner_read_ids(const char *path, int vocab, int32_t **ret_ids, int *ret_n, struct kvf_diag *d)
{
    struct buf in = {0};
    int n, err = runner_read_file(path, &in, d);
    int32_t *ids = err ? NULL : MEM_NEW(int32_t, in.len / 2 + 1); /* a digit and a space each */
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

static int take_held_prompt(struct runner *r, struct kvf_diag *d)
{
    const int32_t *ids;
    int n, err = force_prompt(r->force, &ids, &n, d);
    if (err)
        return err;
    r->ids = MEM_NEW(int32_t, (size_t)n);
    if (!r->ids)
        return KVF_E_NOMEM;
    memcpy(r->ids, ids, (size_t)n * sizeof *ids);
    r->n_ids = n;
    return KVF_OK;
}

static int tokenize(struct runner *r, struct kvf_diag *d)
{
    if (held_prompt(r))
        return take_held_prompt(r, d);
    if (r->ids_file)
        return runner_read_ids(r->ids_file, r->engine->config.vocab, &r->ids, &r->n_ids, d);
    return tokenizer_encode(r->engine->tokenizer, r->text.data ? r->text.data : "", r->text.len,
                            true, &r->ids, &r->n_ids, d);
}

static int limit_of(const struct runner *r)
{
    int limit = r->engine->config.n_ctx;
    return r->context && r->context < limit ? (int)r->context : limit;
}

static int check_lengths(struct runner *r, struct kvf_diag *d)
{
    int limit = limit_of(r);
    if (r->n_ids == 0)
        return kvf_fail(d, KVF_E_ARG, "the prompt is empty");
    if (r->n_ids > limit)
        return kvf_fail(d, KVF_E_LIMIT,
                        "the prompt has %d tokens, over the context of %d; shorten it%s", r->n_ids,
                        limit, r->context ? " or raise -c" : "");
    int err = r->force ? force_follow(r->force, r->ids, r->n_ids, d) : KVF_OK;
    int forced = err || !r->force ? 0 : r->force->n_ids;
    if (r->n_predict < 0)
        r->n_predict = r->force && r->force->ids ? forced : N_PREDICT;
    if (!err && forced > limit - r->n_ids && r->n_predict > limit - r->n_ids)
        err = kvf_fail(d, KVF_E_LIMIT,
                       "the prompt of %d tokens and %d that are forced are over "
                       "the context of %d; -n takes fewer",
                       r->n_ids, forced, limit);
    /* the last token sampled is in the text only */
    int64_t most = runner_cap(r), fed = r->n_ids + (r->n_predict > 1 ? r->n_predict - 1 : 0);
    fed = fed < most ? fed : most;
    if (!err && r->gates && gates_positions(r->gates) < fed)
        err = kvf_fail(d, KVF_E_ARG,
                       "--gates %s holds numbers of %d positions, and the run may "
                       "have %d; use a smaller -n",
                       gates_path(r->gates), (int)gates_positions(r->gates), (int)fed);
    return err;
}

bool runner_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int runner_keeps(const char *out, char *const *in, int n, struct kvf_diag *d)
{
    for (int i = 0; out && strcmp(out, "-") != 0 && i < n; i++)
        if (runner_same_file(in[i], out))
            return kvf_fail(d, KVF_E_ARG, "-o %s would overwrite the input %s", out, in[i]);
    return KVF_OK;
}

int runner_output(const struct runner *r, const char *out, struct kvf_diag *d)
{
    const char *const in[] = {r->file,
                              r->chat,
                              r->ids_file,
                              gguf_path(r->engine->gguf),
                              r->force ? r->force->file : NULL,
                              r->force ? r->force->plan_file : NULL};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (in[i] && runner_same_file(in[i], out))
            return kvf_fail(d, KVF_E_ARG, "-o %s would overwrite the input %s", out, in[i]);
    return KVF_OK;
}

int runner_engine(const char *model, bool exact, int threads, struct engine **ret_engine,
                  struct kvf_diag *d)
{
    struct buf path = {0};
    struct engine_options opt = {exact, threads, cpu_flags_detect()};
    int err = model ? KVF_OK : folder_cache(FOLDER_DEFAULT_MODEL, &path);
    if (!err)
        err = engine_open(model ? model : path.data, &opt, ret_engine, d);
    if (!model && (err == KVF_E_IO || err == KVF_E_NOTFOUND))
        err = kvf_fail(d, KVF_E_IO,
                       "the default model is not at %s; run ./setup.sh or give "
                       "-m MODEL.gguf",
                       path.data ? path.data : "$HOME/.cache/kvfate");
    buf_finish(&path);
    return err;
}

int runner_open(struct runner *r, struct kvf_diag *d)
{
    int err = check_options(r, d);
    if (!err)
        err = runner_engine(r->model, r->exact, (int)r->threads, &r->engine, d);
    if (!err && r->force)
        err = force_open(r->force, r->engine, d);
    if (!err && r->force)
        err = force_inputs(r->force, r, d);
    if (!err)
        err = runner_open_methods(r, d);
    if (!err && !r->ids_file && !held_prompt(r))
        err = build_prompt(r, d);
    if (!err)
        err = tokenize(r, d);
    return err ? err : check_lengths(r, d);
}

void runner_close(struct runner *r)
{
    runner_close_methods(r);
    engine_close(r->engine);
    buf_finish(&r->text);
    mem_free(r->ids);
    r->engine = NULL;
    r->ids = NULL;
}

int runner_cap(const struct runner *r)
{
    int64_t limit = limit_of(r), want = r->n_ids + r->n_predict;
    return (int)(want < limit ? want : limit);
}

int runner_session(struct runner *r, struct recorder *rec, struct session **ret_session,
                   struct kvf_diag *d)
{
    bool wide = r->exact ? !r->kv_type || strcmp(r->kv_type, "f16") != 0
                         : r->kv_type && strcmp(r->kv_type, "f32") == 0;
    struct session_override *list = MEM_NEW(struct session_override,
                                            (size_t)r->override_text.n + 1);
    if (!list)
        return KVF_E_NOMEM;
    for (int i = 0; i < r->override_text.n; i++)
        list[i] = (struct session_override){&r->override[i].row, &r->override[i].params,
                                            r->override[i].take};
    struct session_options opt = {.method = &r->row,
                                  .params = &r->params,
                                  .overrides = list,
                                  .n_overrides = r->override_text.n,
                                  .gates = r->gates,
                                  .inputs = &r->inputs,
                                  .kv_type = wide ? KV_F32 : KV_F16,
                                  .cap = runner_cap(r),
                                  .chunk = (int)r->chunk,
                                  .recorder = rec};
    int err = session_create(r->engine, &opt, ret_session, d);
    mem_free(list);
    return err;
}
