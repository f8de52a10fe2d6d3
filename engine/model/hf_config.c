/* hf_config.c - converts config.json of a Hugging Face folder to the keys of GGUF. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/hf.h"

static const struct hf_family families[] = {
    {.model_type = "llama", .arch = "llama", .bit = HF_LLAMA},
    {.model_type = "mistral", .arch = "llama", .bit = HF_MISTRAL},
    {.model_type = "qwen2", .arch = "qwen2", .bit = HF_QWEN2},
    {.model_type = "qwen3", .arch = "qwen3", .bit = HF_QWEN3, .head_dim = 128},
    {.model_type = "smollm3", .arch = "smollm3", .bit = HF_SMOLLM3, .tied = true},
    {.model_type = "phi3", .arch = "phi3", .bit = HF_PHI3},
    {.model_type = "gemma2",
     .arch = "gemma2",
     .bit = HF_GEMMA2,
     .head_dim = 256,
     .gelu = true,
     .tied = true},
    {.model_type = "gemma3_text",
     .arch = "gemma3",
     .bit = HF_GEMMA3,
     .head_dim = 256,
     .gelu = true,
     .tied = true},
    {.model_type = "olmo2", .arch = "olmo2", .bit = HF_OLMO2},
    {.model_type = "olmo3", .arch = "olmo2", .bit = HF_OLMO2},
    {.model_type = "granite", .arch = "granite", .bit = HF_GRANITE},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

enum kind {
    WHOLE, /* at least 1 */
    REAL,
    CAP /* null means no cap */
};

/* Keys that only have another name in GGUF. */
static const struct row {
    const char *key, *gguf;
    enum kind kind;
    bool must;
    unsigned families;
} rows[] = {
    {"num_hidden_layers", "block_count", WHOLE, true, HF_ALL},
    {"hidden_size", "embedding_length", WHOLE, true, HF_ALL},
    {"intermediate_size", "feed_forward_length", WHOLE, true, HF_ALL},
    {"num_attention_heads", "attention.head_count", WHOLE, true, HF_ALL},
    {"num_key_value_heads", "attention.head_count_kv", WHOLE, false, HF_ALL},
    {"max_position_embeddings", "context_length", WHOLE, true, HF_ALL},
    {"vocab_size", "vocab_size", WHOLE, true, HF_ALL},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", REAL, true, HF_ALL},
    {"attn_logit_softcapping", "attn_logit_softcapping", CAP, false, HF_GEMMA2},
    {"final_logit_softcapping", "final_logit_softcapping", CAP, false, HF_GEMMAS},
    {"attention_multiplier", "attention.scale", REAL, true, HF_GRANITE},
    {"embedding_multiplier", "embedding_scale", REAL, true, HF_GRANITE},
    {"residual_multiplier", "residual_scale", REAL, true, HF_GRANITE},
    {"logits_scaling", "logit_scale", REAL, true, HF_GRANITE},
};

/* Keys for features that the engine does not support; a folder that sets one is rejected. */
static const struct never {
    const char *key;
    const char *why;
} nevers[] = {
    {"attention_bias", "biases of attention"},
    {"mlp_bias", "biases of the feed-forward part"},
    {"use_bidirectional_attention", "tokens that see later ones"},
};

/* A config.json that is being read. */
struct reader {
    const char *path;
    const struct json *config;
    struct gguf_put *put;
    struct hf_config *out;
    int head_dim, turned, n_layers, n_ctx;
    struct kvf_diag *d;
};

struct key {
    char text[96];
};

static struct key key_of(const struct reader *r, const char *name)
{
    struct key k;
    snprintf(k.text, sizeof k.text, "%s.%s", r->out->family->arch, name);
    return k;
}

/* Returns a member that exists and is not null; otherwise NULL. */
static const struct json *member(const struct json *object, const char *key)
{
    const struct json *x = json_get(object, key);
    return x && !json_is_null(x) ? x : NULL;
}

static int refuse_number(const struct reader *r, const char *key, const struct json *x,
                         const char *expected)
{
    return kvf_fail(r->d, KVF_E_FORMAT, "%s: %s is %s; expected %s", r->path, key,
                    x ? "no such number" : "missing", expected);
}

/* Reads an integer from 1 to 2^31 - 1. A missing key gives `otherwise`, or an error if that is 0.
 * *ret is 0 after an error. */
static int read_whole(const struct reader *r, const char *key, int otherwise, int *ret)
{
    const struct json *x = member(r->config, key);
    int64_t v = json_int(x, x ? -1 : otherwise);
    bool known = v >= 1 && v <= INT32_MAX;
    *ret = known ? (int)v : 0;
    return known ? KVF_OK : refuse_number(r, key, x, "a whole number from 1 on");
}

static int put_row(const struct reader *r, const struct row *row)
{
    const struct json *x = member(r->config, row->key);
    struct key key = key_of(r, row->gguf);
    int whole;
    if (!x && row->kind == CAP && json_get(r->config, row->key))
        gguf_put_real(r->put, key.text, 0);
    if (!x && !row->must)
        return KVF_OK;
    if (row->kind == WHOLE) {
        int err = read_whole(r, row->key, 0, &whole);
        if (!err)
            gguf_put_int(r->put, key.text, whole);
        return err;
    }
    double v = json_num(x, NAN);
    if (!isfinite(v))
        return refuse_number(r, row->key, x, "a number");
    gguf_put_real(r->put, key.text, v);
    return KVF_OK;
}

static int read_family(struct reader *r)
{
    const char *type = json_str(json_get(r->config, "model_type"), NULL);
    if (!type)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: model_type is missing; give the folder of a language model as the "
                        "transformers library saves it",
                        r->path);
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(type, families[i].model_type) == 0) {
            r->out->family = &families[i];
            return KVF_OK;
        }
    struct buf known = {0};
    for (int i = 0; i < N_FAMILIES; i++)
        buf_printf(&known, "%s%s", i ? ", " : "", families[i].model_type);
    int err = kvf_fail(r->d, KVF_E_FORMAT, "%s: model_type '%.60s' is not supported; these are: %s",
                       r->path, type, known.data ? known.data : "");
    buf_finish(&known);
    return err;
}

static int check_nevers(const struct reader *r)
{
    for (size_t i = 0; i < sizeof nevers / sizeof *nevers; i++)
        if (json_bool(json_get(r->config, nevers[i].key), false) && r->out->family->bit != HF_QWEN2)
            return kvf_fail(r->d, KVF_E_FORMAT,
                            "%s: %s is true, but %s are not supported for model_type '%s'", r->path,
                            nevers[i].key, nevers[i].why, r->out->family->model_type);
    if (!json_bool(json_get(r->config, "is_causal"), true))
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: is_causal is false, but tokens that see later ones are not supported",
                        r->path);
    if (r->out->family->bit == HF_GEMMA3 && member(r->config, "attn_logit_softcapping"))
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: attn_logit_softcapping is not null, but capped attention scores are "
                        "not supported for model_type '%s'",
                        r->path, r->out->family->model_type);
    if (member(r->config, "quantization_config"))
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: the weights are quantised (quantization_config); give the folder of "
                        "the model in 16 or 32 bits, or a quantised .gguf file of it",
                        r->path);
    const char *act = json_str(json_get(r->config, "hidden_activation"), NULL);
    act = act ? act : json_str(json_get(r->config, "hidden_act"), NULL);
    const char *own = r->out->family->gelu ? "gelu_pytorch_tanh" : "silu";
    bool swish = act && !r->out->family->gelu && strcmp(act, "swish") == 0;
    if (act && !swish && strcmp(act, own) != 0)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: activation '%.40s' is not supported for model_type '%s'; '%s' is",
                        r->path, act, r->out->family->model_type, own);
    return KVF_OK;
}

/* Returns the RoPE parameters: rope_parameters, or in older folders rope_scaling with further keys
 * next to it. Gemma 3 has two sets, for global and for local layers; this returns the global
 * one. */
static const struct json *rope_of(const struct reader *r)
{
    const struct json *rope = member(r->config, "rope_parameters");
    const struct json *full = json_get(rope, "full_attention");
    if (json_is_object(full))
        return full;
    return rope ? rope : member(r->config, "rope_scaling");
}

static int put_heads(struct reader *r)
{
    int width, heads, err = read_whole(r, "hidden_size", 0, &width);
    if (!err)
        err = read_whole(r, "num_attention_heads", 0, &heads);
    if (err)
        return err;
    int otherwise = r->out->family->head_dim ? r->out->family->head_dim : width / heads;
    err = read_whole(r, "head_dim", otherwise, &r->head_dim);
    if (!err)
        err = read_whole(r, "num_hidden_layers", 0, &r->n_layers);
    if (!err)
        err = read_whole(r, "max_position_embeddings", 0, &r->n_ctx);
    if (err)
        return err;
    double part = json_num(member(r->config, "partial_rotary_factor"), 1.0);
    part = json_num(member(rope_of(r), "partial_rotary_factor"), part);
    double turned = r->head_dim * part;
    if (r->head_dim > 65536 || !(turned >= 2 && turned <= r->head_dim))
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: partial_rotary_factor %g of heads of %d is out of "
                        "range",
                        r->path, part, r->head_dim);
    gguf_put_int(r->put, key_of(r, "attention.key_length").text, r->head_dim);
    gguf_put_int(r->put, key_of(r, "attention.value_length").text, r->head_dim);
    r->turned = (int)turned;
    gguf_put_int(r->put, key_of(r, "rope.dimension_count").text, r->turned);
    gguf_put_bool(r->put, key_of(r, "rope.halves").text, true);
    if (r->out->family->bit & HF_GEMMAS) {
        double scalar = json_num(member(r->config, "query_pre_attn_scalar"), r->head_dim);
        if (!(scalar > 0 && isfinite(scalar)))
            return refuse_number(r, "query_pre_attn_scalar", r->config, "a number over 0");
        gguf_put_real(r->put, key_of(r, "attention.scale").text, 1 / sqrt(scalar));
    }
    return KVF_OK;
}

/* Returns 1 for true, 0 for false, an integer unchanged, and -1 for other values. */
static int64_t flag_of(const struct json *x)
{
    if (json_bool(x, false))
        return 1;
    return json_bool(x, true) ? json_int(x, -1) : 0;
}

/* Reads a list with one value per layer; *ret is NULL if there is none. `word` means true, and
 * `other` means false. */
static int layer_flags(const struct reader *r, const char *key, const char *word, const char *other,
                       bool **ret)
{
    const struct json *list = member(r->config, key);
    *ret = NULL;
    if (!list)
        return KVF_OK;
    if (!json_is_array(list) || json_len(list) != r->n_layers)
        return kvf_fail(r->d, KVF_E_FORMAT, "%s: %s is no list of %d layers", r->path, key,
                        r->n_layers);
    bool *flag = MEM_NEW(bool, (size_t)r->n_layers);
    if (!flag)
        return KVF_E_NOMEM;
    int i = 0;
    for (const struct json *x = json_first(list); x; x = json_next(x), i++) {
        const char *s = json_str(x, NULL);
        int64_t v = flag_of(x);
        flag[i] = s ? strcmp(s, word) == 0 : v == 1;
        bool known = flag[i] || (s ? strcmp(s, other) == 0 : v == 0);
        if (!known) {
            mem_free(flag);
            return kvf_fail(r->d, KVF_E_FORMAT,
                            "%s: layer %d of %s is '%.40s'; '%s' and '%s' are supported", r->path,
                            i, key, s ? s : "?", word, other);
        }
    }
    *ret = flag;
    return KVF_OK;
}

/* Sets *ret to the layers with a sliding window, from layer_types, or from a list in
 * sliding_window_pattern; NULL if there is no list. */
static int listed_layers(const struct reader *r, bool **ret)
{
    if (!member(r->config, "layer_types")
        && json_is_array(member(r->config, "sliding_window_pattern")))
        return layer_flags(r, "sliding_window_pattern", "1", "0", ret);
    return layer_flags(r, "layer_types", "sliding_attention", "full_attention", ret);
}

/* Sets *ret to the sliding-window layers of Qwen without a list: the layers from max_window_layers
 * on. */
static int late_layers(const struct reader *r, bool **ret)
{
    int64_t first = json_int(member(r->config, "max_window_layers"), 28);
    bool *local = MEM_NEW(bool, (size_t)r->n_layers);
    if (!local)
        return KVF_E_NOMEM;
    for (int i = 0; i < r->n_layers; i++)
        local[i] = i >= first;
    *ret = local;
    return KVF_OK;
}

/* Writes which layers have a sliding window. If config.json does not specify layers, the table of
 * families does. */
static int put_window(const struct reader *r)
{
    const unsigned qwen = HF_QWEN2 | HF_QWEN3;
    const unsigned asked = qwen | HF_SMOLLM3; /* families with a key that enables windows */
    const unsigned may = HF_MISTRAL | HF_PHI3 | HF_GEMMAS | HF_OLMO2 | qwen;
    const struct hf_family *f = r->out->family;
    bool *local = NULL, some = false;
    struct key pattern = key_of(r, "attention.sliding_window_pattern");
    int window, every, err = listed_layers(r, &local);
    bool asks = !(f->bit & asked) || json_bool(json_get(r->config, "use_sliding_window"), false);
    asks = asks && member(r->config, "sliding_window");
    if (!err && asks && !local && f->bit & qwen)
        err = late_layers(r, &local);
    for (int i = 0; !err && i < r->n_layers; i++)
        some = some || !local || local[i];
    if (!err && asks && some && !(f->bit & may))
        err = kvf_fail(r->d, KVF_E_FORMAT,
                       "%s: layers with a window (sliding_window, layer_types) are not supported "
                       "for model_type '%s'",
                       r->path, f->model_type);
    if (!err && asks && some)
        err = read_whole(r, "sliding_window", 0, &window);
    if (!err && asks && some)
        gguf_put_int(r->put, key_of(r, "attention.sliding_window").text, window);
    if (!err && local
        && ((asks && some) || f->bit & HF_GEMMAS)) /* these families have windows by default */
        gguf_put_bools(r->put, pattern.text, local, (uint64_t)r->n_layers);
    if (!err && !local && f->bit == HF_GEMMA3 && member(r->config, "sliding_window_pattern")) {
        err = read_whole(r, "sliding_window_pattern", 0, &every);
        if (!err)
            gguf_put_int(r->put, pattern.text, every);
    }
    mem_free(local);
    return err;
}

/* Checks no_rope_layers: SmolLM3 has no RoPE in every fourth layer, which GGUF assumes. */
static int check_turning(const struct reader *r)
{
    bool *turns;
    int err = layer_flags(r, "no_rope_layers", "1", "0", &turns);
    bool usual = true;
    for (int i = 0; !err && turns && i < r->n_layers; i++)
        usual = usual && turns[i] == ((i + 1) % 4 != 0);
    mem_free(turns);
    if (err || usual || r->out->family->bit != HF_SMOLLM3)
        return err;
    return kvf_fail(r->d, KVF_E_FORMAT,
                    "%s: no_rope_layers names others than every fourth layer, which is not "
                    "supported",
                    r->path);
}

/* ---- RoPE */

static float *new_vector(struct hf_config *c, const char *name, int n)
{
    struct hf_vector *x = &c->vector[c->n_vectors];
    *x = (struct hf_vector){name, MEM_NEW(float, (size_t)n), (uint64_t)n};
    c->n_vectors += x->v != NULL;
    return x->v;
}

static double need(const struct json *rope, const char *key)
{
    double v = json_num(json_get(rope, key), NAN);
    return v > 0 && isfinite(v) ? v : NAN;
}

static int refuse_rope(const struct reader *r, const char *key)
{
    return kvf_fail(r->d, KVF_E_FORMAT,
                    "%s: the scaling of rotary positions lacks a usable '%s'; fetch config.json "
                    "again",
                    r->path, key);
}

/* Computes the divisors of Llama 3.1: slow frequencies are divided by `factor`, fast ones are
 * unchanged, and those between are interpolated. The tensor contains the divisor of each
 * frequency. */
static int llama3_factors(const struct reader *r, const struct json *rope, double base, int dim)
{
    static const char *const keys[] = {"factor", "low_freq_factor", "high_freq_factor",
                                       "original_max_position_embeddings"};
    double v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = need(rope, keys[i]);
        if (isnan(v[i]))
            return refuse_rope(r, keys[i]);
    }
    double factor = v[0], low = v[1], high = v[2], before = v[3];
    if (high <= low)
        return refuse_rope(r, "high_freq_factor");
    float *out = new_vector(r->out, "rope_freqs.weight", dim / 2);
    if (!out)
        return KVF_E_NOMEM;
    for (int j = 0; j < dim / 2; j++) {
        double turns = before * pow(base, -2.0 * j / dim) / (2 * M_PI);
        double mix = fmin(fmax((turns - low) / (high - low), 0), 1);
        out[j] = (float)(1 / ((1 - mix) / factor + mix));
    }
    return KVF_OK;
}

static int read_factors(const struct reader *r, const struct json *rope, const char *key,
                        const char *name, int dim)
{
    const struct json *list = json_get(rope, key);
    if (!json_is_array(list) || json_len(list) != dim / 2)
        return refuse_rope(r, key);
    float *out = new_vector(r->out, name, dim / 2);
    if (!out)
        return KVF_E_NOMEM;
    for (const struct json *x = json_first(list); x; x = json_next(x), out++) {
        double v = json_num(x, NAN);
        if (!(v > 0 && isfinite(v)))
            return refuse_rope(r, key);
        *out = (float)v;
    }
    return KVF_OK;
}

/* Reads the two lists of divisors of Phi-3, for texts within the original length and beyond it. */
static int longrope(const struct reader *r, const struct json *rope, int dim)
{
    int before;
    const struct json *inside = json_get(rope, "original_max_position_embeddings");
    int err = read_whole(r, "original_max_position_embeddings", (int)json_int(inside, 0), &before);
    if (err)
        return err;
    err = read_factors(r, rope, "long_factor", "rope_factors_long.weight", dim);
    if (!err)
        err = read_factors(r, rope, "short_factor", "rope_factors_short.weight", dim);
    if (err)
        return err;
    double scale = (double)r->n_ctx / before, attn = need(rope, "attention_factor");
    if (isnan(attn))
        attn = scale > 1 ? sqrt(1 + log(scale) / log(before)) : 1;
    gguf_put_int(r->put, key_of(r, "rope.scaling.original_context_length").text, before);
    gguf_put_real(r->put, key_of(r, "rope.scaling.attn_factor").text, attn);
    return KVF_OK;
}

/* Returns the gain of YaRN for queries and keys, 1 + 0.1 mscale ln(factor). */
static double yarn_gain(double factor, double mscale)
{
    return factor > 1 ? 1 + 0.1 * mscale * log(factor) : 1;
}

/* Returns the gain relative to the usual one, which is the value that a GGUF file has. */
static double yarn_more(const struct json *rope, double factor)
{
    double gain = need(rope, "attention_factor");
    double own = need(rope, "mscale"), all = need(rope, "mscale_all_dim");
    if (isnan(gain) && !isnan(own) && !isnan(all))
        gain = yarn_gain(factor, own) / yarn_gain(factor, all);
    return isnan(gain) ? 1 : gain / yarn_gain(factor, 1);
}

static int yarn(const struct reader *r, const struct json *rope)
{
    int64_t before = json_int(json_get(rope, "original_max_position_embeddings"), r->n_ctx);
    double factor = member(rope, "factor") ? need(rope, "factor")
                                           : (double)r->n_ctx / (double)before;
    double fast = need(rope, "beta_fast"), slow = need(rope, "beta_slow");
    if (before < 1)
        return refuse_rope(r, "original_max_position_embeddings");
    if (!(factor >= 1))
        return refuse_rope(r, "factor");
    gguf_put_str(r->put, key_of(r, "rope.scaling.type").text, "yarn", 4);
    gguf_put_real(r->put, key_of(r, "rope.scaling.factor").text, factor);
    gguf_put_int(r->put, key_of(r, "rope.scaling.original_context_length").text, before);
    gguf_put_real(r->put, key_of(r, "rope.scaling.yarn_beta_fast").text, isnan(fast) ? 32 : fast);
    gguf_put_real(r->put, key_of(r, "rope.scaling.yarn_beta_slow").text, isnan(slow) ? 1 : slow);
    gguf_put_real(r->put, key_of(r, "rope.scaling.yarn_attn_factor").text, yarn_more(rope, factor));
    gguf_put_bool(r->put, key_of(r, "rope.scaling.yarn_truncate").text,
                  json_bool(json_get(rope, "truncate"), true));
    return KVF_OK;
}

/* Returns the context before linear scaling if config.json specifies it, otherwise 0.
 * max_position_embeddings may be the length before or after scaling. */
static int64_t unscaled_length(const struct reader *r, const struct json *rope, double factor)
{
    int64_t before = json_int(json_get(rope, "original_max_position_embeddings"), 0);
    double scaled = json_num(json_get(r->config, "max_sequence_length"), 0);
    if (before < 1 && scaled == factor * r->n_ctx)
        before = r->n_ctx;
    return before > 0 && before <= INT32_MAX ? before : 0;
}

static int put_scaling(const struct reader *r, const struct json *rope, double base, int dim)
{
    const char *type = json_str(json_get(rope, "rope_type"), NULL);
    type = type ? type : json_str(json_get(rope, "type"), "default");
    if (strcmp(type, "default") == 0)
        return KVF_OK;
    if (strcmp(type, "llama3") == 0)
        return llama3_factors(r, rope, base, dim);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
        return longrope(r, rope, dim);
    if (strcmp(type, "yarn") == 0)
        return yarn(r, rope);
    if (strcmp(type, "linear") != 0)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: rotary positions of type '%.40s' are not supported; linear, llama3, "
                        "longrope and yarn are",
                        r->path, type);
    double factor = need(rope, "factor");
    if (isnan(factor))
        return refuse_rope(r, "factor");
    int64_t before = unscaled_length(r, rope, factor);
    if (before > 0)
        gguf_put_int(r->put, key_of(r, "rope.scaling.original_context_length").text, before);
    gguf_put_str(r->put, key_of(r, "rope.scaling.type").text, type, strlen(type));
    gguf_put_real(r->put, key_of(r, "rope.scaling.factor").text, factor);
    return KVF_OK;
}

static int put_rope(const struct reader *r)
{
    const struct json *rope = rope_of(r), *set = member(r->config, "rope_parameters");
    const struct json *theta = member(rope, "rope_theta");
    theta = theta ? theta : member(r->config, "rope_theta");
    const struct json *near_set = json_get(set, "sliding_attention");
    const struct json *local = member(near_set, "rope_theta");
    const char *near_type = json_str(json_get(near_set, "rope_type"), "default");
    if (strcmp(near_type, "default") != 0)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: rotary positions of type '%.40s' in layers with a window are not "
                        "supported; default is",
                        r->path, near_type);
    local = local ? local : member(r->config, "rope_local_base_freq");
    double base = json_num(theta, theta ? NAN : 10000.0);
    double near = json_num(local, local ? NAN : base);
    if (!(base > 1 && isfinite(base)) || !(near > 1 && isfinite(near)))
        return refuse_number(r, "rope_theta", r->config, "a number over 1");
    gguf_put_real(r->put, key_of(r, "rope.freq_base").text, base);
    if (local)
        gguf_put_real(r->put, key_of(r, "rope.freq_base_swa").text, near);
    return put_scaling(r, rope, base, r->turned);
}

int hf_config_read(const char *path, const struct json *config, struct gguf_put *put,
                   struct hf_config *ret, struct kvf_diag *d)
{
    struct reader r = {.path = path, .config = config, .put = put, .out = ret, .d = d};
    int err = read_family(&r);
    if (err)
        return err;
    gguf_put_str(put, "general.architecture", ret->family->arch, strlen(ret->family->arch));
    for (size_t i = 0; !err && i < sizeof rows / sizeof *rows; i++)
        if (rows[i].families & ret->family->bit)
            err = put_row(&r, &rows[i]);
    if (!err)
        err = check_nevers(&r);
    if (!err)
        err = put_heads(&r);
    if (!err)
        err = put_window(&r);
    if (!err)
        err = check_turning(&r);
    if (!err)
        err = put_rope(&r);
    ret->tied = json_bool(json_get(config, "tie_word_embeddings"), ret->family->tied);
    return err;
}

void hf_config_finish(struct hf_config *c)
{
    for (int i = 0; i < c->n_vectors; i++)
        mem_free(c->vector[i].v);
}
