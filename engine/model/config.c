/* config.c - reads the configuration of a model from its GGUF keys (config.h). */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/model/keys.h"
#include "engine/model/layers.h"
#include "engine/model/rope.h"
#include "engine/model/tensors.h"

static void copy(char *out, size_t cap, const char *s, size_t len)
{
    snprintf(out, cap, "%.*s", (int)(len < cap ? len : cap - 1), s ? s : "");
}

/* Returns true if the last part of a file name, such as "Q4_K_M", states the type of weights. */
static bool names_weights(const char *s)
{
    s += tolower((unsigned char)s[0]) == 'i' || tolower((unsigned char)s[0]) == 't';
    return (tolower((unsigned char)s[0]) == 'q' && isdigit((unsigned char)s[1]))
           || strcasecmp(s, "f32") == 0 || strcasecmp(s, "f16") == 0 || strcasecmp(s, "bf16") == 0
           || strcasecmp(s, "fp16") == 0;
}

/* Returns true for names that many models share: names of converters, and digests. */
static bool common_name(const char *s)
{
    size_t n = strlen(s);
    return n == 0 || strcasecmp(s, "model") == 0 || strcasecmp(s, "ggml-model") == 0
           || (n >= 32 && strspn(s, "0123456789abcdefABCDEF") == n);
}

void model_name(const struct gguf *g, char *out, size_t cap)
{
    const char *path = gguf_path(g), *slash = strrchr(path, '/'), *end = strrchr(path, '.');
    const char *file = slash ? slash + 1 : path;
    if (end > file && strcasecmp(end, ".gguf") == 0) {
        copy(out, cap, file, (size_t)(end - file));
        size_t n = strlen(out);
        if (n > 15 && out[n - 15] == '-' && memcmp(out + n - 9, "-of-", 4) == 0)
            out[n - 15] = '\0';
        char *last = strpbrk(out, "-.");
        for (char *next = last; next; next = strpbrk(next + 1, "-."))
            last = next;
        if (last && names_weights(last + 1))
            *last = '\0';
        if (!common_name(out))
            return;
    }
    size_t len = 0;
    const char *name = gguf_str(g, "general.name", &len);
    copy(out, cap, name, name ? len : 0);
}

struct field {
    const char *key;
    int *out;
    int64_t otherwise, max;
};

/* Keys of a shape begin with the name of the architecture: "qwen3.block_count". */
struct key {
    char text[96];
};

static struct key key_of(const struct model_config *m, const char *name)
{
    struct key k;
    snprintf(k.text, sizeof k.text, "%s.%s", m->arch, name);
    return k;
}

static int read_fields(const struct gguf *g, const struct model_config *m, const struct field *f,
                       int n, struct kvf_diag *d)
{
    for (int i = 0; i < n; i++) {
        struct key key = key_of(m, f[i].key);
        int64_t v = gguf_int(g, key.text, f[i].otherwise);
        if (v < 1 || v > f[i].max)
            return kvf_fail(d, KVF_E_FORMAT, "%s: %s is %s; expected 1 to %lld", gguf_path(g),
                            key.text, v == f[i].otherwise ? "missing" : "out of range",
                            (long long)f[i].max);
        *f[i].out = (int)v;
    }
    return KVF_OK;
}

/* Checks the assumptions of the engine: values are as wide as keys, and every token has a row of
 * the embedding. */
static int check_widths(const struct gguf *g, const struct model_config *m, int64_t tokens,
                        struct kvf_diag *d)
{
    struct key key = key_of(m, "attention.value_length");
    int64_t width = gguf_int(g, key.text, m->head_dim);
    if (width != m->head_dim)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: %s is %lld; only values as wide as the keys (%d) are "
                        "supported",
                        gguf_path(g), key.text, (long long)width, m->head_dim);
    if (tokens > m->vocab)
        return kvf_fail(d, KVF_E_FORMAT, "%s: the tokenizer has %lld tokens, the model only %d",
                        gguf_path(g), (long long)tokens, m->vocab);
    return KVF_OK;
}

static int read_sizes(const struct gguf *g, struct model_config *m, int64_t vocab,
                      struct kvf_diag *d)
{
    const struct field first[] = {
        {"block_count", &m->n_layers, -1, MODEL_LAYERS},
        {"embedding_length", &m->d_model, -1, 65536},
        {"feed_forward_length", &m->d_ffn, -1, 1 << 20},
        {"attention.head_count", &m->n_heads, -1, 4096},
        {"context_length", &m->n_ctx, -1, 1 << 24},
        {"vocab_size", &m->vocab, vocab, 1 << 20},
    };
    int err = read_fields(g, m, first, 6, d);
    if (err)
        return err;
    const struct field second[] = {
        {"attention.head_count_kv", &m->n_kv_heads, m->n_heads, 4096},
        {"attention.key_length", &m->head_dim, m->d_model / m->n_heads, 1024},
    };
    err = read_fields(g, m, second, 2, d);
    if (err)
        return err;
    const struct field third[] = {{"rope.dimension_count", &m->rope_dim, m->head_dim, 1024}};
    err = read_fields(g, m, third, 1, d);
    if (err)
        return err;
    if (m->n_heads % m->n_kv_heads || m->head_dim % 2)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %d query heads of %d do not divide among %d KV heads",
                        gguf_path(g), m->n_heads, m->head_dim, m->n_kv_heads);
    return KVF_OK;
}

static int read_arch(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    size_t len = 0;
    const char *arch = gguf_str(g, "general.architecture", &len);
    copy(m->arch, sizeof m->arch, arch, len);
    m->family = family_find(m->arch);
    const char *why = family_refusal(m->arch);
    if (m->family && gguf_int(g, key_of(m, "expert_count").text, 0) > 0)
        why = "a mixture of experts";
    if (why)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: a model of architecture '%s' has %s, which is not supported",
                        gguf_path(g), m->arch, why);
    if (m->family)
        return KVF_OK;
    char list[300] = "";
    size_t n = 0;
    for (int i = 0; family_at(i) && n < sizeof list - 32; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s'%s'", n ? ", " : "",
                              family_at(i)->name);
    return kvf_fail(d, KVF_E_FORMAT, "%s: architecture '%s' is not supported; these are: %s",
                    gguf_path(g), m->arch, list);
}

static float number(const struct gguf *g, const struct model_config *m, const char *name,
                    float otherwise)
{
    return (float)gguf_real(g, key_of(m, name).text, (double)otherwise);
}

static bool usable(float x)
{
    return x > 0 && isfinite(x);
}

static int read_scales(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    const struct family *f = m->family;
    bool by_width = f->depth_by_width && m->n_layers == f->depth_by_width;
    float per = (float)(by_width ? m->d_model / m->n_heads : m->head_dim);
    m->attn_scale = number(g, m, "attention.scale", 1.0f / sqrtf(per));
    m->attn_cap = f->attn_cap > 0 ? number(g, m, "attn_logit_softcapping", f->attn_cap) : 0;
    m->logit_cap = f->logit_caps ? number(g, m, "final_logit_softcapping", f->logit_cap) : 0;
    m->embedding_scale = f->embedding_by_width ? sqrtf((float)m->d_model) : 1;
    m->residual_scale = m->logit_scale = 1;
    if (f->multipliers) {
        m->embedding_scale = number(g, m, "embedding_scale", 1);
        m->residual_scale = number(g, m, "residual_scale", 1);
        m->logit_scale = number(g, m, "logit_scale", 1);
    }
    bool caps = m->attn_cap >= 0 && isfinite(m->attn_cap) && m->logit_cap >= 0
                && isfinite(m->logit_cap);
    if (!caps || !usable(m->attn_scale) || !usable(m->embedding_scale) || !usable(m->residual_scale)
        || !usable(m->logit_scale))
        return kvf_fail(d, KVF_E_FORMAT, "%s: a scale or a cap of %s is out of range", gguf_path(g),
                        m->arch);
    return KVF_OK;
}

int model_config_read(const struct gguf *g, struct model_config *ret, struct kvf_diag *d)
{
    struct model_config m = {0};
    int64_t vocab = gguf_array_strings(g, "tokenizer.ggml.tokens");
    model_name(g, m.name, sizeof m.name);
    int err = read_arch(g, &m, d);
    if (!err)
        err = keys_check(g, m.arch, d);
    if (err)
        return err;
    m.halves = gguf_bool(g, key_of(&m, "rope.halves").text, m.family->rope_neox);
    err = read_sizes(g, &m, vocab, d);
    if (err)
        return err;
    m.rope_base = gguf_real(g, key_of(&m, "rope.freq_base").text, 10000.0);
    m.norm_eps = number(g, &m, "attention.layer_norm_rms_epsilon", 0);
    if (!(m.rope_base > 1.0 && isfinite(m.rope_base)) || !(m.norm_eps > 0 && m.norm_eps < 1))
        return kvf_fail(d, KVF_E_FORMAT, "%s: rotary base %g or norm epsilon %g is out of range",
                        gguf_path(g), m.rope_base, (double)m.norm_eps);
    err = check_widths(g, &m, vocab, d);
    if (!err)
        err = layers_read(g, &m, d);
    if (!err)
        err = read_scales(g, &m, d);
    if (err)
        return err;
    m.n_ctx_max = m.n_ctx;
    err = rope_read(g, &m, d);
    if (!err)
        err = keys_check_values(g, &m, d);
    if (!err)
        err = tensors_find(g, &m, d);
    if (!err)
        err = tensors_check(g, &m, d);
    if (err)
        return err;
    *ret = m;
    return KVF_OK;
}
