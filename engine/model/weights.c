#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/weights.h"

struct job {
    const struct gguf *g;
    const struct model_config *m;
    struct weights *w;
    bool exact;
    int *err;              /* [n_layers + 1] */
    struct kvf_diag *diag; /* [n_layers + 1] */
};

/* A matrix of n_rows x K, or a vector when n_rows is 0.  what: with ".bias" or, by default,
 * ".weight" behind it. */
static const struct gguf_tensor *need(const struct job *j, int layer, const char *what, int n_rows,
                                      int K, struct kvf_diag *d)
{
    char name[64];
    const char *kind = strchr(what, '.') ? "" : ".weight";
    if (layer >= 0)
        snprintf(name, sizeof name, "blk.%d.%s%s", layer, what, kind);
    else
        snprintf(name, sizeof name, "%s%s", what, kind);
    const struct gguf_tensor *t = gguf_find(j->g, name);
    uint64_t rows = n_rows ? (uint64_t)n_rows : 1;
    if (!t)
        kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s is missing", gguf_path(j->g), name);
    else if (t->dim[0] != (uint64_t)K || t->dim[1] != rows || t->dim[2] != 1 || t->dim[3] != 1)
        kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s is %llu x %llu, expected %d x %llu",
                 gguf_path(j->g), name, (unsigned long long)t->dim[0],
                 (unsigned long long)t->dim[1], K, (unsigned long long)rows);
    else if (!t->bytes)
        gguf_refuse_type(j->g, t, d);
    else
        return t;
    return NULL;
}

static float *vector(const struct job *j, int layer, const char *what, int n, struct kvf_diag *d)
{
    const struct gguf_tensor *t = need(j, layer, what, 0, n, d);
    float *v = t ? MEM_NEW(float, (size_t)n) : NULL;
    if (v)
        weight_dequant(v, t->data, (enum weight_type)t->type, (size_t)n);
    return v;
}

/* Where channel c of a head of queries or keys lies in the file. */
static int channel(const struct model_config *m, int c)
{
    return m->halves && c < m->rope_dim ? c / 2 + c % 2 * (m->rope_dim / 2) : c;
}

/* Where a row of queries and keys lies in the file. */
static int row_of(const struct model_config *m, int row)
{
    int c = row % m->head_dim;
    return row - c + channel(m, c);
}

struct part {
    const char *what;
    int n_rows;
    int n_turned; /* the first rows, of queries and keys, which are reordered */
};

/* A copy of the rows of a matrix, in the order of the kernels; mem_free. */
static void *reordered(const struct model_config *m, const struct gguf_tensor *t,
                       const struct part *part)
{
    size_t row = t->bytes / (size_t)part->n_rows;
    char *out = mem_alloc((size_t)part->n_rows, row);
    for (int r = 0; out && r < part->n_rows; r++) {
        int from = r < part->n_turned ? row_of(m, r) : r;
        memcpy(out + (size_t)r * row, (const char *)t->data + (size_t)from * row, row);
    }
    return out;
}

static int matrix(const struct job *j, int layer, const struct part *part, int n, int K,
                  struct packed *out, struct kvf_diag *d)
{
    struct pack_source src[3];
    const struct gguf_tensor *tensor[3];
    void *own[3] = {NULL, NULL, NULL};
    int err = KVF_OK;
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor *t = need(j, layer, part[i].what, part[i].n_rows, K, d);
        tensor[i] = t;
        if (!t) {
            err = KVF_E_FORMAT;
            goto done;
        }
        src[i] = (struct pack_source){t->data, (enum weight_type)t->type, part[i].n_rows};
        if (part[i].n_turned && j->m->halves) {
            src[i].data = own[i] = reordered(j->m, t, &part[i]);
            if (!own[i]) {
                err = KVF_E_NOMEM;
                goto done;
            }
        }
    }
    err = packed_build(src, n, K, j->exact, out);
    for (int i = 0; i < n; i++)
        gguf_release(j->g, tensor[i]);

done:
    for (int i = 0; i < 3; i++)
        mem_free(own[i]);
    return err;
}

/* Biases of queries, keys and values, one below the other as the rows of qkv. */
static int load_bias(const struct job *j, int l, struct kvf_diag *d)
{
    const struct model_config *m = j->m;
    struct layer_weights *w = &j->w->layer[l];
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim, at = 0;
    const struct part parts[] = {
        {"attn_q.bias", q, q}, {"attn_k.bias", kv, kv}, {"attn_v.bias", kv, 0}};
    w->qkv_bias = MEM_NEW(float, (size_t)(q + 2 * kv));
    if (!w->qkv_bias)
        return KVF_E_NOMEM;
    for (int i = 0; i < 3; at += parts[i++].n_rows) {
        float *v = vector(j, l, parts[i].what, parts[i].n_rows, d);
        if (!v)
            return KVF_E_FORMAT;
        for (int r = 0; r < parts[i].n_rows; r++)
            w->qkv_bias[at + r] = v[r < parts[i].n_turned ? row_of(m, r) : r];
        mem_free(v);
    }
    return KVF_OK;
}

/* The norm of queries or keys, n numbers. */
static float *head_norm(const struct job *j, int l, const char *what, int n, struct kvf_diag *d)
{
    float *v = vector(j, l, what, n, d);
    float *w = v ? MEM_NEW(float, (size_t)n) : NULL;
    for (int r = 0; w && r < n; r++)
        w[r] = v[row_of(j->m, r)];
    mem_free(v);
    return w;
}

static int load_norms(const struct job *j, int l, struct kvf_diag *d)
{
    const struct model_config *m = j->m;
    const struct family *f = m->family;
    struct layer_weights *w = &j->w->layer[l];
    int D = m->head_dim;
    const struct {
        bool there;
        float **to;
        const char *what;
    } norms[] = {
        {!f->no_pre_norm, &w->attn_norm, "attn_norm"},
        {!f->no_pre_norm, &w->ffn_norm, "ffn_norm"},
        {f->post_norm, &w->attn_post, "post_attention_norm"},
        {f->post_norm, &w->ffn_post, "post_ffw_norm"},
    };
    for (int i = 0; i < 4; i++) {
        if (!norms[i].there)
            continue;
        *norms[i].to = vector(j, l, norms[i].what, m->d_model, d);
        if (!*norms[i].to)
            return KVF_E_FORMAT;
    }
    if (!f->qk_norm)
        return KVF_OK;
    w->q_norm = head_norm(j, l, "attn_q_norm", f->qk_norm_wide ? m->n_heads * D : D, d);
    if (w->q_norm)
        w->k_norm = head_norm(j, l, "attn_k_norm", f->qk_norm_wide ? m->n_kv_heads * D : D, d);
    return w->k_norm ? KVF_OK : KVF_E_FORMAT;
}

static int load_layer(const struct job *j, int l, struct kvf_diag *d)
{
    const struct model_config *m = j->m;
    struct layer_weights *w = &j->w->layer[l];
    bool fused = m->family->fused;
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const struct part qkv[] = {{"attn_q", q, q}, {"attn_k", kv, kv}, {"attn_v", kv, 0}};
    const struct part gate_up[] = {{"ffn_gate", m->d_ffn, 0}, {"ffn_up", m->d_ffn, 0}};
    const struct part all_qkv = {"attn_qkv", q + 2 * kv, q + kv};
    const struct part both = {"ffn_up", 2 * m->d_ffn, 0};
    const struct part out = {"attn_output", m->d_model, 0};
    const struct part down = {"ffn_down", m->d_model, 0};
    int err = load_norms(j, l, d);
    if (err)
        return err;
    err = m->family->qkv_bias ? load_bias(j, l, d) : KVF_OK;
    if (err)
        return err;
    err = matrix(j, l, fused ? &all_qkv : qkv, fused ? 1 : 3, m->d_model, &w->qkv, d);
    if (err)
        return err;
    err = matrix(j, l, &out, 1, q, &w->out, d);
    if (err)
        return err;
    err = matrix(j, l, fused ? &both : gate_up, fused ? 1 : 2, m->d_model, &w->gate_up, d);
    return err ? err : matrix(j, l, &down, 1, m->d_ffn, &w->down, d);
}

static int load_ends(const struct job *j, struct kvf_diag *d)
{
    const struct model_config *m = j->m;
    struct weights *w = j->w;
    bool tied = !gguf_find(j->g, "output.weight");
    const struct part head = {tied ? "token_embd" : "output", m->vocab, 0};
    w->embedding = need(j, -1, "token_embd", m->vocab, m->d_model, d);
    w->out_norm = vector(j, -1, "output_norm", m->d_model, d);
    w->embedding_scale = m->embedding_scale;
    if (!w->embedding || !w->out_norm)
        return KVF_E_FORMAT;
    for (int i = 0; m->logit_scale != 1 && i < m->d_model; i++)
        w->out_norm[i] /= m->logit_scale;
    return matrix(j, -1, &head, 1, m->d_model, &w->head, d);
}

static void load_task(void *ctx, int task, int thread)
{
    struct job *j = ctx;
    (void)thread;
    j->err[task] = task == 0 ? load_ends(j, &j->diag[task])
                             : load_layer(j, task - 1, &j->diag[task]);
}

int weights_load(const struct gguf *g, const struct model_config *m, bool exact, struct par *pool,
                 struct weights **ret_weights, struct kvf_diag *d)
{
    struct weights *w = MEM_NEW(struct weights, 1);
    size_t n = (size_t)m->n_layers + 1;
    struct job j = {g, m, w, exact, MEM_NEW(int, n), MEM_NEW(struct kvf_diag, n)};
    int err = KVF_E_NOMEM;
    if (!w || !j.err || !j.diag)
        goto done;
    w->n_layers = m->n_layers;
    w->d_model = m->d_model;
    w->layer = MEM_NEW(struct layer_weights, (size_t)m->n_layers);
    if (!w->layer)
        goto done;
    par_run(pool, (int)n, load_task, &j);
    size_t failed = 0;
    while (failed < n && !j.err[failed])
        failed++;
    err = failed < n ? j.err[failed] : KVF_OK;
    if (err && d)
        *d = j.diag[failed];
done:
    if (err == KVF_E_NOMEM)
        kvf_fail(d, err, "%s: not enough memory for the weights", gguf_path(g));
    mem_free(j.err);
    mem_free(j.diag);
    if (err) {
        weights_free(w);
        return err;
    }
    *ret_weights = w;
    return KVF_OK;
}

void weights_free(struct weights *w)
{
    if (!w)
        return;
    for (int l = 0; w->layer && l < w->n_layers; l++) {
        struct layer_weights *a = &w->layer[l];
        mem_free(a->attn_norm);
        mem_free(a->ffn_norm);
        mem_free(a->attn_post);
        mem_free(a->ffn_post);
        mem_free(a->q_norm);
        mem_free(a->k_norm);
        mem_free(a->qkv_bias);
        packed_finish(&a->qkv);
        packed_finish(&a->out);
        packed_finish(&a->gate_up);
        packed_finish(&a->down);
    }
    mem_free(w->layer);
    mem_free(w->out_norm);
    packed_finish(&w->head);
    mem_free(w);
}

void weights_embed(const struct weights *w, int32_t token, float *out)
{
    const struct gguf_tensor *t = w->embedding;
    size_t row = weight_bytes((enum weight_type)t->type, (size_t)w->d_model);
    weight_dequant(out, (const char *)t->data + (size_t)token * row, (enum weight_type)t->type,
                   (size_t)w->d_model);
    for (int i = 0; w->embedding_scale != 1 && i < w->d_model; i++)
        out[i] *= w->embedding_scale;
}
