#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/config.h"

static void copy(char *out, size_t cap, const char *s, size_t len)
{
    snprintf(out, cap, "%.*s", (int)(len < cap ? len : cap - 1), s ? s : "");
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

static int check_rope(const struct gguf *g, const struct model_config *m, struct kvf_diag *d)
{
    size_t len;
    const char *scaling = gguf_str(g, key_of(m, "rope.scaling.type").text, &len);
    if ((scaling && !(len == 4 && memcmp(scaling, "none", 4) == 0))
        || gguf_find(g, "rope_freqs.weight"))
        return kvf_fail(d, KVF_E_FORMAT, "%s: scaled rotary positions are not supported yet",
                        gguf_path(g));
    if (m->rope_dim % 2 || m->rope_dim > m->head_dim)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %d rotary dimensions do not fit heads of %d",
                        gguf_path(g), m->rope_dim, m->head_dim);
    return KVF_OK;
}

/* What the engine takes for granted: values as wide as keys, a row of the
 * embedding for every token. */
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
        {"block_count", &m->n_layers, -1, 4096},
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

static const struct arch {
    const char *name;
    bool qk_norm, qkv_bias, halves;
} archs[] = {
    {"llama", false, false, false},
    {"qwen2", false, true, true},
    {"qwen3", true, false, true},
};

static int read_arch(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    size_t len = 0;
    const char *arch = gguf_str(g, "general.architecture", &len);
    copy(m->arch, sizeof m->arch, arch, len);
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(m->arch, archs[i].name) == 0) {
            m->qk_norm = archs[i].qk_norm;
            m->qkv_bias = archs[i].qkv_bias;
            /* folders of the transformers library have halves in all of them */
            m->halves = gguf_bool(g, key_of(m, "rope.halves").text, archs[i].halves);
            return KVF_OK;
        }
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: architecture '%s' is not supported; 'llama', 'qwen2' and "
                    "'qwen3' are",
                    gguf_path(g), m->arch);
}

int model_config_read(const struct gguf *g, struct model_config *ret, struct kvf_diag *d)
{
    struct model_config m = {0};
    size_t len = 0;
    int64_t vocab = gguf_array_strings(g, "tokenizer.ggml.tokens");
    const char *name = gguf_str(g, "general.name", &len);
    copy(m.name, sizeof m.name, name, name ? len : 0);
    int err = read_arch(g, &m, d);
    if (err)
        return err;
    err = read_sizes(g, &m, vocab, d);
    if (err)
        return err;
    m.rope_base = gguf_real(g, key_of(&m, "rope.freq_base").text, 10000.0);
    m.norm_eps = (float)gguf_real(g, key_of(&m, "attention.layer_norm_rms_epsilon").text, 1e-5);
    if (!(m.rope_base > 1.0 && isfinite(m.rope_base)) || !(m.norm_eps > 0 && m.norm_eps < 1))
        return kvf_fail(d, KVF_E_FORMAT, "%s: rotary base %g or norm epsilon %g is out of range",
                        gguf_path(g), m.rope_base, (double)m.norm_eps);
    err = check_widths(g, &m, vocab, d);
    if (err)
        return err;
    err = check_rope(g, &m, d);
    if (err)
        return err;
    *ret = m;
    return KVF_OK;
}
