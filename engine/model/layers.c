/* layers.c - reads properties that differ between layers. */
#include <stdio.h>

#include "engine/model/layers.h"

struct key {
    char text[96];
};

static struct key key_of(const struct model_config *m, const char *name)
{
    struct key k;
    snprintf(k.text, sizeof k.text, "%s.%s", m->arch, name);
    return k;
}

static void on_local(void *ctx, int64_t l, int64_t value)
{
    struct model_config *m = ctx;
    if (l < m->n_layers)
        m->local[l] = value != 0;
}

/* Sets local[] from a list with one element per layer. */
static int read_list(const struct gguf *g, struct model_config *m, const char *key, int64_t n,
                     struct kvf_diag *d)
{
    if (n < m->n_layers)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s has %lld layers, but the model has %d",
                        gguf_path(g), key, (long long)n, m->n_layers);
    gguf_each_int(g, key, on_local, m);
    return KVF_OK;
}

/* Sets local[] from a period: the last of every `every` layers has global attention. */
static int read_period(const struct gguf *g, struct model_config *m, const char *key,
                       struct kvf_diag *d)
{
    int64_t every = gguf_int(g, key, m->family->global_every);
    if (every < 0 || every > MODEL_LAYERS)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s is out of range", gguf_path(g), key);
    for (int l = 0; l < m->n_layers; l++)
        m->local[l] = every == 0 || (l + 1) % every != 0;
    return KVF_OK;
}

int layers_read(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    const struct family *f = m->family;
    struct key size = key_of(m, "attention.sliding_window");
    struct key pattern = key_of(m, "attention.sliding_window_pattern");
    int64_t window = gguf_int(g, size.text, f->window);
    int64_t listed = gguf_array_ints(g, pattern.text);
    bool told = f->windows != WINDOWS_LISTED || listed >= 0;
    m->no_rope_every = f->nope_every;
    if ((f->windows == WINDOWS_NONE || !told) && window > 0 && window < m->n_ctx)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s is %lld, and %s", gguf_path(g), size.text,
                        (long long)window,
                        told ? "layers with a window are not supported in this architecture"
                             : "no attention.sliding_window_pattern says in which layers");
    if (f->windows == WINDOWS_NONE || !told)
        return KVF_OK;
    if (window < 0 || window > INT32_MAX / 2)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s is out of range", gguf_path(g), size.text);
    m->window = (int)window;
    return listed >= 0 ? read_list(g, m, pattern.text, listed, d)
                       : read_period(g, m, pattern.text, d);
}

int model_window(const struct model_config *m, int layer)
{
    return m->local[layer] ? m->window : 0;
}

bool model_has_local_rope(const struct model_config *m)
{
    return m->window && (m->family->local_base > 0 || m->family->local_plain);
}

enum model_rope model_rope(const struct model_config *m, int layer, int length)
{
    if (m->no_rope_every && (layer + 1) % m->no_rope_every == 0)
        return ROPE_NONE;
    if (model_has_local_rope(m) && model_window(m, layer))
        return ROPE_LOCAL;
    return length > m->n_ctx_orig ? ROPE_LONG : ROPE_PLAIN;
}
