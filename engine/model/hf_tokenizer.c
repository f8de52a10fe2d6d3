/* hf_tokenizer.c - converts tokenizer.json or tokenizer.model, and related settings in other
 * files, to the keys of GGUF. */
#include <string.h>

#include "base/mem.h"
#include "engine/model/hf_spm.h"

enum { MOST_TOKENS = 1 << 22, MOST_MERGES = 1 << 22 };

static uint32_t get(const struct hf_tokens *x, uint32_t object, const char *key)
{
    return json_tape_get(x->tape, object, key);
}

/* Rejects options of other kinds of BPE, and reads ignore_merges. */
static int check_model(struct hf_tokens *x, uint32_t model)
{
    static const char *const marks[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        size_t n = 0;
        if (json_tape_str(x->tape, get(x, model, marks[i]), &x->scratch, &n) && n > 0)
            return kvf_fail(x->d, KVF_E_FORMAT,
                            "%s: tokens with a %s are not supported; give a .gguf file of the "
                            "model",
                            x->path, marks[i]);
    }
    if (json_tape_kind(x->tape, get(x, model, "dropout")) == 0
        && json_tape_num(x->tape, get(x, model, "dropout"), 0) != 0)
        return kvf_fail(x->d, KVF_E_FORMAT,
                        "%s: the tokenizer skips merges at random (dropout); set it to null",
                        x->path);
    x->whole_words = json_tape_bool(x->tape, get(x, model, "ignore_merges"), false);
    return KVF_OK;
}

/* Writes a merge, which is a text "a b" or a pair, as a text. */
static int put_merge(struct hf_tokens *x, uint32_t v, uint64_t i, struct gguf_put *put)
{
    struct buf second = {0};
    size_t n = 0, n2 = 0;
    const char *s = json_tape_str(x->tape, v, &x->scratch, &n), *s2 = NULL;
    if (s) {
        gguf_put_text(put, s, n);
        return put->pairs.err;
    }
    if (json_tape_kind(x->tape, v) == '[' && json_tape_count(x->tape, v) == 2) {
        uint32_t a = json_tape_first(x->tape, v);
        s = json_tape_str(x->tape, a, &x->scratch, &n);
        s2 = json_tape_str(x->tape, json_tape_next(x->tape, a), &second, &n2);
    }
    bool good = s && s2 && !memchr(s, ' ', n) && !memchr(s2, ' ', n2);
    if (good) {
        buf_le64(&put->pairs, n + 1 + n2);
        buf_add(&put->pairs, s, n);
        buf_char(&put->pairs, ' ');
        buf_add(&put->pairs, s2, n2);
    }
    buf_finish(&second);
    return good ? put->pairs.err
                : kvf_fail(x->d, KVF_E_FORMAT,
                           "%s: merge %llu is neither a text nor a pair of tokens without spaces; "
                           "fetch the file again",
                           x->path, (unsigned long long)i);
}

static int put_merges(struct hf_tokens *x, uint32_t model, struct gguf_put *put)
{
    uint32_t list = get(x, model, "merges");
    uint64_t n = json_tape_count(x->tape, list), i = 0;
    if (json_tape_kind(x->tape, list) != '[' || n > MOST_MERGES)
        return kvf_fail(x->d, KVF_E_FORMAT,
                        "%s: the merges are missing, or over %d; fetch the file again", x->path,
                        MOST_MERGES);
    gguf_put_strings(put, "tokenizer.ggml.merges", n);
    for (uint32_t v = json_tape_first(x->tape, list); v; v = json_tape_next(x->tape, v)) {
        int err = put_merge(x, v, i++, put);
        if (err)
            return err;
    }
    return KVF_OK;
}

static void put_patterns(const struct hf_tokens *x, struct gguf_put *put)
{
    const char *s = x->patterns.data;
    gguf_put_strings(put, "tokenizer.kvfate.patterns", (uint64_t)x->n_patterns);
    for (int i = 0; i < x->n_patterns; i++, s += strlen(s) + 1)
        gguf_put_text(put, s, strlen(s));
    gguf_put_bool(put, "tokenizer.kvfate.whole_words", x->whole_words);
    gguf_put_bool(put, "tokenizer.kvfate.nfc", x->nfc);
}

/* Appends the bytes of a base64 text to out. Returns false if it is malformed. */
static bool from_base64(const char *s, size_t n, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int have = 0;
    while (n > 0 && s[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        const char *at = s[i] ? strchr(digits, s[i]) : NULL;
        if (!at)
            return false;
        bits = bits << 6 | (uint32_t)(at - digits);
        have += 6;
        if (have < 8)
            continue;
        have -= 8;
        buf_char(out, (char)(bits >> have & 0xff));
    }
    return true;
}

/* Writes the settings for spaces. */
static void put_spaces(const struct hf_tokens *x, struct gguf_put *put)
{
    gguf_put_bool(put, "tokenizer.ggml.add_space_prefix", x->prefix);
    gguf_put_bool(put, "tokenizer.kvfate.prefix_first", x->prefix_first);
    gguf_put_bool(put, "tokenizer.kvfate.prefix_new", x->prefix_new);
    gguf_put_bool(put, "tokenizer.kvfate.every_space", x->words);
    gguf_put_bool(put, "tokenizer.ggml.remove_extra_whitespaces", x->collapse);
}

static void put_rules(const void *rules, size_t n, struct gguf_put *put)
{
    if (n > 0)
        gguf_put_bytes(put, "tokenizer.ggml.precompiled_charsmap", rules, n);
}

static int put_pieces(struct hf_tokens *x, struct gguf_put *put)
{
    size_t n;
    put_spaces(x, put);
    const char *s = json_tape_str(x->tape, x->rules, &x->scratch, &n);
    if (!s)
        return KVF_OK;
    struct buf rules = {0};
    bool good = from_base64(s, n, &rules);
    if (good)
        put_rules(rules.data, rules.len, put);
    buf_finish(&rules);
    return good ? KVF_OK
                : kvf_fail(x->d, KVF_E_FORMAT,
                           "%s: the rules of precompiled_charsmap are not base64; fetch the file "
                           "again",
                           x->path);
}

/* ---- marks */

static int32_t find(const struct hf_tokens *x, const char *s, size_t n)
{
    return s ? names_find(&x->names, (struct piece){s, n}) : -1;
}

/* Returns the id of a token that tokenizer_config.json names, as text or object. */
static int32_t named(const struct hf_tokens *x, const struct json *config, const char *key)
{
    const struct json *v = json_get(config, key);
    const char *s = json_str(v, NULL);
    s = s ? s : json_str(json_get(v, "content"), NULL);
    return find(x, s, s ? strlen(s) : 0);
}

/* Returns the token that a TemplateProcessing adds before a text, or -1. */
static int32_t before_text(struct hf_tokens *x, uint32_t step)
{
    size_t n = 0;
    if (!json_tape_is(x->tape, get(x, step, "type"), "TemplateProcessing"))
        return -1;
    uint32_t first = json_tape_first(x->tape, get(x, step, "single"));
    uint32_t id = get(x, get(x, first, "SpecialToken"), "id");
    const char *s = json_tape_str(x->tape, id, &x->scratch, &n);
    return find(x, s, n);
}

static int32_t template_bos(struct hf_tokens *x, uint32_t root)
{
    uint32_t step = get(x, root, "post_processor"), list = get(x, step, "processors");
    int32_t id = before_text(x, step);
    for (uint32_t v = json_tape_first(x->tape, list); v && id < 0; v = json_tape_next(x->tape, v))
        id = before_text(x, v);
    return id;
}

/* Returns a token id in JSON; -1 if it is not in the vocabulary. */
static int32_t id_of(const struct hf_tokens *x, const struct json *v)
{
    int64_t id = json_int(v, -1);
    return id >= 0 && id < x->n ? (int32_t)id : -1;
}

/* Returns the first id of a key's value, which is one id or a list of ids, or -1. */
static int32_t first_id(const struct hf_tokens *x, const struct json *config, const char *key)
{
    const struct json *v = json_get(config, key);
    return id_of(x, json_is_array(v) ? json_first(v) : v);
}

/* Writes every id that ends generation, from generation_config.json or else from config.json. */
static void put_ends(const struct hf_tokens *x, const struct hf_texts *texts, struct gguf_put *put)
{
    static const char from[] = "eos_token_id", to[] = "tokenizer.ggml.eos_token_ids";
    const struct json *v = json_get(texts->generation, from);
    if (!v || json_is_null(v))
        v = json_get(texts->config, from);
    bool list = json_is_array(v);
    gguf_put_ints(put, to, list ? (uint64_t)json_len(v) : 1);
    if (!list)
        buf_le32(&put->pairs, (uint32_t)id_of(x, v));
    for (v = list ? json_first(v) : NULL; v; v = json_next(v))
        buf_le32(&put->pairs, (uint32_t)id_of(x, v));
}

/* Writes the start and end marks; bos and own_eos are ids of the tokenizer file, or -1. */
static void put_marks(const struct hf_tokens *x, int32_t bos, int32_t own_eos,
                      const struct hf_texts *texts, struct gguf_put *put)
{
    const struct json *own = texts->tokenizer_config;
    int32_t eos = named(x, own, "eos_token");
    bool adds = json_bool(json_get(own, "add_bos_token"), bos >= 0);
    if (bos < 0)
        bos = named(x, own, "bos_token");
    if (bos < 0)
        bos = first_id(x, texts->config, "bos_token_id");
    if (eos < 0)
        eos = first_id(x, texts->config, "eos_token_id");
    if (eos < 0)
        eos = own_eos;
    gguf_put_int(put, "tokenizer.ggml.bos_token_id", bos);
    gguf_put_int(put, "tokenizer.ggml.eos_token_id", eos);
    put_ends(x, texts, put);
    gguf_put_bool(put, "tokenizer.ggml.add_bos_token", adds && bos >= 0);
}

static void put_unknown(struct hf_tokens *x, uint32_t root, struct gguf_put *put)
{
    uint32_t model = get(x, root, "model");
    size_t n = 0;
    const char *s = json_tape_str(x->tape, get(x, model, "unk_token"), &x->scratch, &n);
    int64_t unknown = find(x, s, n);
    unknown = x->model == HF_UNIGRAM ? json_tape_int(x->tape, get(x, model, "unk_id"), -1)
                                     : unknown;
    gguf_put_int(put, "tokenizer.ggml.unknown_token_id", unknown);
}

/* Writes the chat template. chat_template.jinja has priority over tokenizer_config.json, where the
 * template may be one of several named ones. */
static void put_template(const struct hf_texts *texts, struct gguf_put *put)
{
    static const char key[] = "tokenizer.chat_template";
    const struct json *v = json_get(texts->tokenizer_config, "chat_template");
    const char *s = json_str(v, NULL);
    if (texts->chat_template) {
        gguf_put_str(put, key, texts->chat_template, texts->n_chat_template);
        return;
    }
    for (const struct json *x = json_first(v); x && !s && json_is_array(v); x = json_next(x))
        if (strcmp(json_str(json_get(x, "name"), ""), "default") == 0)
            s = json_str(json_get(x, "template"), NULL);
    if (s)
        gguf_put_str(put, key, s, strlen(s));
}

static int read_tape(struct hf_tokens *x, const struct hf_texts *texts, struct gguf_put *put)
{
    static const char *const models[] = {
        [HF_BYTE_LEVEL] = "gpt2", [HF_PIECES] = "llama", [HF_UNIGRAM] = "t5"};
    const uint32_t root = 1, model = get(x, root, "model");
    int err = check_model(x, model);
    if (!err)
        err = hf_steps_read(x, root);
    if (!err)
        err = hf_tokens_read(x, root);
    if (err)
        return err;
    gguf_put_str(put, "tokenizer.ggml.model", models[x->model], strlen(models[x->model]));
    hf_tokens_put(x, put);
    if (x->model != HF_UNIGRAM)
        err = put_merges(x, model, put);
    if (err)
        return err;
    if (x->model == HF_BYTE_LEVEL)
        put_patterns(x, put);
    else
        err = put_pieces(x, put);
    put_marks(x, template_bos(x, root), -1, texts, put);
    put_unknown(x, root, put);
    put_template(texts, put);
    return err;
}

/* ---- tokenizer.model */

static int32_t within(const struct hf_tokens *x, int64_t id)
{
    return id >= 0 && id < x->n ? (int32_t)id : -1;
}

static int read_spm(struct hf_tokens *x, const struct hf_texts *texts, struct gguf_put *put)
{
    const struct json *own = texts->tokenizer_config;
    struct hf_spm m;
    int err = hf_tokens_open(x);
    if (!err)
        err = hf_spm_read(x, texts->spm, texts->n_spm, &m);
    if (!err)
        err = hf_tokens_decoder(x);
    if (!err)
        err = hf_tokens_index(x);
    if (err)
        return err;
    x->prefix = json_bool(json_get(own, "add_prefix_space"), x->prefix);
    x->prefix_first = !json_bool(json_get(own, "legacy"), true);
    const char *model = x->model == HF_UNIGRAM ? "t5" : "llama";
    gguf_put_str(put, "tokenizer.ggml.model", model, strlen(model));
    hf_tokens_put(x, put);
    put_spaces(x, put);
    put_rules(m.rules, m.n_rules, put);
    put_marks(x, within(x, m.bos), within(x, m.eos), texts, put);
    gguf_put_int(put, "tokenizer.ggml.unknown_token_id", within(x, m.unknown));
    put_template(texts, put);
    return KVF_OK;
}

static int read_json(struct hf_tokens *x, const struct hf_texts *texts, struct gguf_put *put)
{
    struct json_tape tape = {.n = 0};
    int err = json_tape_open(texts->tokenizer, texts->n_tokenizer, JSON_TAPE_MOST, &tape, x->d);
    x->tape = &tape;
    if (err)
        kvf_diag_prefix(x->d, "%s", x->path);
    else
        err = read_tape(x, texts, put);
    json_tape_finish(&tape);
    x->tape = NULL;
    return err;
}

int hf_tokenizer_read(const struct hf_texts *texts, struct gguf_put *put, struct kvf_diag *d)
{
    struct buf path = {0};
    int64_t most = json_int(json_get(texts->config, "vocab_size"), 0);
    buf_printf(&path, "%s/tokenizer.%s", texts->path, texts->tokenizer ? "json" : "model");
    struct hf_tokens x = {.path = path.data ? path.data : "", .d = d};
    x.decoder = json_get(texts->tokenizer_config, "added_tokens_decoder");
    x.most = (int32_t)(most < MOST_TOKENS ? most : MOST_TOKENS);
    int err = path.err;
    if (!err)
        err = texts->tokenizer ? read_json(&x, texts, put) : read_spm(&x, texts, put);
    hf_tokens_finish(&x);
    buf_finish(&path);
    return err;
}
