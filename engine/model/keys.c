/* keys.c - checks the metadata keys of a GGUF file. */
#include "engine/model/keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The condition under which the loader reads a key. Otherwise its value must be the neutral one. */
enum use {
    READ,        /* by every family */
    NOTE,        /* never, because it does not affect logits */
    MULTIPLIERS, /* by families with multipliers */
    ATTN_CAP,    /* by families with capped attention scores */
    LOGIT_CAP,   /* by families with capped logits */
    LOCAL_BASE,  /* by families whose sliding-window layers have their own RoPE base */
    YARN,        /* with YaRN scaling */
    NEVER
};

/* The value that has no effect. */
enum neutral { ZERO, ONE, BASE, ROTARY, HEAD, WIDTH, NONE };

static const struct key_row {
    const char *name; /* without the architecture and the dot */
    unsigned kinds;
    enum use use;
    enum neutral neutral;
} rows[] = {
    {"block_count", GGUF_WHOLE, READ, NONE},
    {"context_length", GGUF_WHOLE, READ, NONE},
    {"embedding_length", GGUF_WHOLE, READ, NONE},
    {"feed_forward_length", GGUF_WHOLE, READ, NONE},
    {"vocab_size", GGUF_WHOLE, READ, NONE},
    {"expert_count", GGUF_WHOLE, READ, NONE},
    {"attention.head_count", GGUF_WHOLE, READ, NONE},
    {"attention.head_count_kv", GGUF_WHOLE, READ, NONE},
    {"attention.key_length", GGUF_WHOLE, READ, NONE},
    {"attention.value_length", GGUF_WHOLE, READ, NONE},
    {"attention.layer_norm_rms_epsilon", GGUF_REAL, READ, NONE},
    {"attention.scale", GGUF_REAL, READ, NONE},
    {"attention.sliding_window", GGUF_WHOLE, READ, NONE},
    {"attention.sliding_window_pattern", GGUF_WHOLE | GGUF_WHOLES, READ, NONE},
    {"attn_logit_softcapping", GGUF_REAL, ATTN_CAP, ZERO},
    {"final_logit_softcapping", GGUF_REAL, LOGIT_CAP, ZERO},
    {"embedding_scale", GGUF_REAL, MULTIPLIERS, ONE},
    {"residual_scale", GGUF_REAL, MULTIPLIERS, ONE},
    {"logit_scale", GGUF_REAL, MULTIPLIERS, ONE},
    {"rope.dimension_count", GGUF_WHOLE, READ, NONE},
    {"rope.freq_base", GGUF_REAL, READ, NONE},
    {"rope.freq_base_swa", GGUF_REAL, LOCAL_BASE, BASE},
    {"rope.halves", GGUF_FLAG, READ, NONE}, /* for folders */
    {"rope.scale_linear", GGUF_REAL, READ, NONE},
    {"rope.scaling.type", GGUF_TEXT, READ, NONE},
    {"rope.scaling.factor", GGUF_REAL, READ, NONE},
    {"rope.scaling.original_context_length", GGUF_WHOLE, READ, NONE},
    {"rope.scaling.attn_factor", GGUF_REAL, READ, NONE},
    {"rope.scaling.finetuned", GGUF_FLAG, READ, NONE},
    {"rope.scaling.yarn_beta_fast", GGUF_REAL, YARN, NONE},
    {"rope.scaling.yarn_beta_slow", GGUF_REAL, YARN, NONE},
    {"rope.scaling.yarn_attn_factor", GGUF_REAL, YARN, ONE},
    {"rope.scaling.yarn_ext_factor", GGUF_REAL, YARN, ZERO},
    {"rope.scaling.yarn_log_multiplier", GGUF_REAL, YARN, ZERO},
    {"rope.scaling.yarn_truncate", GGUF_FLAG, YARN, NONE}, /* for folders */
    /* Keys of other models. */
    {"tensor_data_layout", GGUF_TEXT, READ, NONE},
    {"hidden_activation", GGUF_TEXT, READ, NONE},
    {"pooling_type", GGUF_WHOLE, NOTE, NONE},
    {"attention.layer_norm_epsilon", GGUF_REAL, NOTE, NONE}, /* for norms that subtract the mean */
    {"use_parallel_residual", GGUF_FLAG, NEVER, ZERO},
    {"attention.causal", GGUF_FLAG, NEVER, ONE},
    {"attention.clamp_kqv", GGUF_REAL, NEVER, ZERO},
    {"attention.max_alibi_bias", GGUF_REAL, NEVER, ZERO},
    {"attention.output_scale", GGUF_REAL, NEVER, ONE},
    {"attention.value_scale", GGUF_REAL, NEVER, ONE},
    {"attention.temperature_scale", GGUF_REAL, NEVER, ZERO},
    {"attention.temperature_length", GGUF_WHOLE, NEVER, ZERO},
    {"attention.shared_kv_layers", GGUF_WHOLE, NEVER, ZERO},
    {"attention.key_length_swa", GGUF_WHOLE, NEVER, HEAD},
    {"attention.value_length_swa", GGUF_WHOLE, NEVER, HEAD},
    {"rope.dimension_count_swa", GGUF_WHOLE, NEVER, ROTARY},
    {"rope.scaling.alpha", GGUF_REAL, NEVER, ZERO},
    {"embedding_length_out", GGUF_WHOLE, NEVER, WIDTH},
    {"expert_used_count", GGUF_WHOLE, NEVER, ZERO},
    {"expert_shared_count", GGUF_WHOLE, NEVER, ZERO},
    {"leading_dense_block_count", GGUF_WHOLE, NEVER, ZERO},
    {"nextn_predict_layers", GGUF_WHOLE, NEVER, ZERO},
    {"n_deepstack_layers", GGUF_WHOLE, NEVER, ZERO},
};

/* The keys with the prefix "tokenizer.", in the form of the table above. */
static const struct key_row tokenizer_rows[] = {
    {"ggml.model", GGUF_TEXT, READ, NONE},
    {"ggml.pre", GGUF_TEXT, READ, NONE},
    {"ggml.tokens", GGUF_TEXTS, READ, NONE},
    {"ggml.token_type", GGUF_WHOLES, READ, NONE},
    {"ggml.token_type_count", GGUF_WHOLE, NOTE, NONE},
    {"ggml.scores", GGUF_REALS, READ, NONE},
    {"ggml.merges", GGUF_TEXTS, READ, NONE},
    {"ggml.add_bos_token", GGUF_FLAG, READ, NONE},
    {"ggml.add_eos_token", GGUF_FLAG, NOTE, NONE}, /* own-model.md: never added */
    {"ggml.add_sep_token", GGUF_FLAG, NEVER, ZERO},
    {"ggml.add_unknown_token", GGUF_FLAG, NOTE, NONE},
    {"ggml.add_padding_token", GGUF_FLAG, NOTE, NONE},
    {"ggml.add_space_prefix", GGUF_FLAG, READ, NONE},
    {"ggml.remove_extra_whitespaces", GGUF_FLAG, READ, NONE},
    {"ggml.escape_whitespaces", GGUF_FLAG, NEVER, ONE},
    {"ggml.precompiled_charsmap", GGUF_BYTES, READ, NONE},
    {"ggml.normalizer.lowercase", GGUF_FLAG, NEVER, ZERO},
    {"ggml.normalizer.strip_accents", GGUF_FLAG, NEVER, ZERO},
    {"chat_template", GGUF_TEXT, READ, NONE},
    {"chat_templates", GGUF_TEXTS, NOTE, NONE}, /* names of further templates */
    {"huggingface.json", GGUF_TEXT, NOTE, NONE},
    {"rwkv.world", GGUF_TEXT, NOTE, NONE},
    {"kvfate.patterns", GGUF_TEXTS, READ, NONE},
    {"kvfate.whole_words", GGUF_FLAG, READ, NONE},
    {"kvfate.nfc", GGUF_FLAG, READ, NONE},
    {"kvfate.prefix_first", GGUF_FLAG, READ, NONE},
    {"kvfate.prefix_new", GGUF_FLAG, READ, NONE},
    {"kvfate.every_space", GGUF_FLAG, READ, NONE},
    {"kvfate.strips", GGUF_WHOLES, READ, NONE},
};

enum { N_ROWS = sizeof rows / sizeof *rows };
enum { N_TOKENIZER_ROWS = sizeof tokenizer_rows / sizeof *tokenizer_rows };

/* Returns the rest of a key after a prefix and a dot; NULL if the key has another prefix. */
static const char *behind(const char *key, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 && key[n] == '.' ? key + n + 1 : NULL;
}

static const struct key_row *find_row(const struct key_row *table, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static const char *kind_words(unsigned kinds)
{
    static const char *const words[] = {"an integer",        "a number",
                                        "true or false",     "a text",
                                        "a list of numbers", "a list of F32 numbers",
                                        "a list of texts",   "a list of bytes"};
    int i = 0;
    while (!(kinds >> i & 1))
        i++;
    return words[i];
}

/* Checks the i-th pair against its row; NULL if the key has no row. */
static int check_row(const struct gguf *g, size_t i, const struct key_row *row, struct kvf_diag *d)
{
    const char *key = gguf_key_at(g, i);
    if (!row)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the key %s is not known here, and it may change the result; take "
                        "another file of the model, or a copy without the key if it has no effect",
                        gguf_path(g), key);
    if (gguf_repeats(g, i))
        return kvf_fail(d, KVF_E_FORMAT, "%s: the key %s occurs twice; fetch the file again",
                        gguf_path(g), key);
    if (!gguf_holds_at(g, i, row->kinds))
        return kvf_fail(d, KVF_E_FORMAT, "%s: the value of %s is of another type; expected %s",
                        gguf_path(g), key, kind_words(row->kinds));
    return KVF_OK;
}

/* Returns true if a key has the prefix of another architecture, or describes a part that language
 * models do not have. */
static bool is_foreign(const char *key)
{
    static const char *const parts[] = {"adapter", "clip", "diffusion", "xielu"};
    char name[32];
    size_t n = strcspn(key, ".");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (behind(key, parts[i]))
            return true;
    if (n >= sizeof name || !key[n])
        return false;
    snprintf(name, sizeof name, "%.*s", (int)n, key);
    return family_find(name) || family_refusal(name);
}

/* Returns the row of a key without the architecture prefix. The encoder of images is in another
 * file, so its keys have no effect. */
static const struct key_row *arch_row(const char *name)
{
    static const struct key_row image = {
        "vision", GGUF_WHOLE | GGUF_REAL | GGUF_FLAG | GGUF_TEXT | GGUF_WHOLES | GGUF_REALS, NOTE,
        NONE};
    if (behind(name, "vision") || behind(name, "mm"))
        return &image;
    return find_row(rows, N_ROWS, name);
}

int keys_check(const struct gguf *g, const char *arch, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (size_t i = 0; !err && gguf_key_at(g, i); i++) {
        const char *name = behind(gguf_key_at(g, i), arch);
        if (name)
            err = check_row(g, i, arch_row(name), d);
    }
    return err;
}

static bool is_read(const struct key_row *row, const struct model_config *m)
{
    const struct family *f = m->family;
    switch (row->use) {
    case READ:
    case NOTE:
        return true;
    case MULTIPLIERS:
        return f->multipliers;
    case ATTN_CAP:
        return f->attn_cap > 0;
    case LOGIT_CAP:
        return f->logit_caps;
    case LOCAL_BASE:
        return f->local_base > 0 || f->local_plain;
    case YARN:
        return m->yarn;
    case NEVER:
        break;
    }
    return false;
}

/* Returns the value without an effect; NaN if there is none. */
static double neutral_of(const struct key_row *row, const struct model_config *m)
{
    switch (row->neutral) {
    case ZERO:
        return 0;
    case ONE:
        return 1;
    case BASE:
        return m->rope_base;
    case ROTARY:
        return m->rope_dim;
    case HEAD:
        return m->head_dim;
    case WIDTH:
        return m->d_model;
    case NONE:
        break;
    }
    return NAN;
}

static double value_of(const struct gguf *g, const char *key, const struct key_row *row)
{
    return row->kinds & GGUF_FLAG ? gguf_bool(g, key, false) : gguf_real(g, key, NAN);
}

static int check_text(const struct gguf *g, const char *arch, const char *name,
                      const char *const *words, struct kvf_diag *d)
{
    char key[96];
    size_t n = 0;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    const char *s = gguf_str(g, key, &n);
    bool known = !s;
    for (int i = 0; !known && words[i]; i++)
        known = strlen(words[i]) == n && memcmp(words[i], s, n) == 0;
    if (known)
        return KVF_OK;
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: %s is '%.*s', which is not supported in this architecture", gguf_path(g),
                    key, (int)(n < 60 ? n : 60), s);
}

/* Checks keys with texts, and a key that only one family reads. */
static int check_texts(const struct gguf *g, const struct model_config *m, struct kvf_diag *d)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    static const char *const gelu[] = {"gelu", "gelu_pytorch_tanh", NULL};
    static const char *const pairs[] = {"Meta AI original pth", NULL}, *const none[] = {NULL};
    char key[96];
    int err = check_text(g, m->arch, "hidden_activation", m->family->gelu ? gelu : silu, d);
    if (!err)
        err = check_text(g, m->arch, "tensor_data_layout", m->halves ? none : pairs, d);
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", m->arch);
    if (!err && m->family->multipliers && !gguf_bool(g, key, true))
        err = kvf_fail(d, KVF_E_FORMAT,
                       "%s: %s is false, which means layers without rotations in this "
                       "architecture; they are not supported",
                       gguf_path(g), key);
    return err;
}

static int refuse_value(const struct gguf *g, const struct model_config *m, const char *key,
                        double is, double want, struct kvf_diag *d)
{
    if (isnan(want))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: %s is not supported with this %s.rope.scaling.type; take another file "
                        "of the model",
                        gguf_path(g), key, m->arch);
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: %s is %g, which is not supported in architecture '%s'; only %g is, which "
                    "has no effect",
                    gguf_path(g), key, is, m->arch, want);
}

int keys_check_values(const struct gguf *g, const struct model_config *m, struct kvf_diag *d)
{
    for (int i = 0; i < N_ROWS; i++) {
        const struct key_row *row = &rows[i];
        char key[96];
        snprintf(key, sizeof key, "%s.%s", m->arch, row->name);
        if (is_read(row, m) || !gguf_has(g, key))
            continue;
        double want = neutral_of(row, m), is = value_of(g, key, row);
        if (is != want)
            return refuse_value(g, m, key, is, want, d);
    }
    for (size_t i = 0; gguf_key_at(g, i); i++)
        if (!behind(gguf_key_at(g, i), m->arch) && is_foreign(gguf_key_at(g, i)))
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: the key %s does not belong into a model of architecture '%s', and "
                            "it may change the result",
                            gguf_path(g), gguf_key_at(g, i), m->arch);
    return check_texts(g, m, d);
}

/* Returns the row of a tokenizer key. Ids of special tokens and named chat templates are matched
 * by pattern. */
static const struct key_row *tokenizer_row(const char *name)
{
    static const struct key_row families_of_keys[] = {{"_token_id", GGUF_WHOLE, READ, NONE},
                                                      {"_token_ids", GGUF_WHOLES, READ, NONE}};
    static const struct key_row text = {"chat_template.", GGUF_TEXT, NOTE, NONE};
    static const char begin[] = "ggml.";
    for (int i = 0; i < 2; i++) {
        const char *end = strstr(name, families_of_keys[i].name);
        if (strncmp(name, begin, strlen(begin)) == 0 && end
            && strcmp(end, families_of_keys[i].name) == 0)
            return &families_of_keys[i];
    }
    if (strncmp(name, text.name, strlen(text.name)) == 0)
        return &text;
    return find_row(tokenizer_rows, N_TOKENIZER_ROWS, name);
}

int keys_check_tokenizer(const struct gguf *g, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (size_t i = 0; !err && gguf_key_at(g, i); i++) {
        const char *key = gguf_key_at(g, i), *name = behind(key, "tokenizer");
        const struct key_row *row = name ? tokenizer_row(name) : NULL;
        if (name)
            err = check_row(g, i, row, d);
        if (err || !row || row->use != NEVER || value_of(g, key, row) == (row->neutral == ONE))
            continue;
        err = kvf_fail(d, KVF_E_FORMAT, "%s: %s is %s, which is not supported", gguf_path(g), key,
                       row->neutral == ONE ? "false" : "true");
    }
    return err;
}
