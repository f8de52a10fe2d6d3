#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/weights.h"

struct job {
    const struct gguf *g;
    const struct model_config *m;
    struct weights *w;
    enum pack_how how;
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

int weights_row_of(const struct model_config *m, int row)
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
        int from = r < part->n_turned ? weights_row_of(m, r) : r;
        memcpy(out + (size_t)r * row, (const char *)t->data + (size_t)from * row, row);
    }
    return out;
}

/* A packed matrix: parts one below the other, all of K columns. */
struct matrix {
    struct part part[3];
    int n, K;
};

enum { LAYER_MATRICES = 4 };

/* Those of a layer, in the order of enum weight_role. */
static void layer_matrices(const struct model_config *m, struct matrix out[LAYER_MATRICES])
{
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim, ffn = m->d_ffn;
    if (m->family->fused_qkv) {
        out[0] = (struct matrix){{{"attn_qkv", q + 2 * kv, q + kv}}, 1, m->d_model};
        out[2] = (struct matrix){{{"ffn_up", 2 * ffn, 0}}, 1, m->d_model};
    } else {
        out[0] = (struct matrix){
            {{"attn_q", q, q}, {"attn_k", kv, kv}, {"attn_v", kv, 0}}, 3, m->d_model};
        out[2] = (struct matrix){{{"ffn_gate", ffn, 0}, {"ffn_up", ffn, 0}}, 2, m->d_model};
    }
    out[1] = (struct matrix){{{"attn_output", m->d_model, 0}}, 1, q};
    out[3] = (struct matrix){{{"ffn_down", m->d_model, 0}}, 1, ffn};
}

/* The output matrix, which is the embedding where the file has no other. */
static struct matrix head_matrix(const struct gguf *g, const struct model_config *m)
{
    const char *name = gguf_find(g, "output.weight") ? "output" : "token_embd";
    return (struct matrix){{{name, m->vocab, 0}}, 1, m->d_model};
}

/* The parts of a matrix as they lie in the file: KVF_OK, or KVF_E_FORMAT naming a tensor. */
static int sources(const struct job *j, int layer, const struct matrix *m,
                   const struct gguf_tensor *tensor[3], struct pack_source src[3],
                   struct kvf_diag *d)
{
    for (int i = 0; i < m->n; i++) {
        tensor[i] = need(j, layer, m->part[i].what, m->part[i].n_rows, m->K, d);
        if (!tensor[i])
            return KVF_E_FORMAT;
        src[i] = (struct pack_source){tensor[i]->data, (enum weight_type)tensor[i]->type,
                                      m->part[i].n_rows};
    }
    return KVF_OK;
}

/* Gives the parts of a matrix to the sink, rows in the order of the kernels. */
static int hand_over(const struct job *j, int layer, enum weight_role role, const struct matrix *m,
                     weight_sink sink, void *ctx, struct kvf_diag *d)
{
    struct pack_source src[3];
    const struct gguf_tensor *tensor[3];
    void *own[3] = {NULL, NULL, NULL};
    int err = sources(j, layer, m, tensor, src, d);
    if (err)
        return err;
    for (int i = 0; i < m->n; i++)
        if (m->part[i].n_turned && j->m->halves) {
            src[i].data = own[i] = reordered(j->m, tensor[i], &m->part[i]);
            if (!own[i]) {
                err = KVF_E_NOMEM;
                goto done;
            }
        }
    err = sink(ctx, layer, role, src, m->n, m->K);
    for (int i = 0; i < m->n; i++)
        gguf_release(j->g, tensor[i]);

done:
    for (int i = 0; i < 3; i++)
        mem_free(own[i]);
    return err;
}

/* The sink of weights_load: packs a matrix into its place. */
static int pack(void *job, int layer, enum weight_role role, const struct pack_source *src,
                int n_src, int K)
{
    const struct job *j = job;
    struct layer_weights *w = &j->w->layer[layer < 0 ? 0 : layer];
    struct packed *const place[] = {&w->qkv, &w->out, &w->gate_up, &w->down, &j->w->head};
    return packed_build_in(&j->w->room, src, n_src, K, j->how, place[role]);
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
            w->qkv_bias[at + r] = v[r < parts[i].n_turned ? weights_row_of(m, r) : r];
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
        w[r] = v[weights_row_of(j->m, r)];
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
    struct matrix all[LAYER_MATRICES];
    layer_matrices(m, all);
    int err = load_norms(j, l, d);
    if (!err && m->family->qkv_bias)
        err = load_bias(j, l, d);
    for (int i = 0; !err && i < LAYER_MATRICES; i++)
        err = hand_over(j, l, (enum weight_role)i, &all[i], pack, (void *)j, d);
    return err;
}

static int load_ends(const struct job *j, struct kvf_diag *d)
{
    const struct model_config *m = j->m;
    struct weights *w = j->w;
    const struct matrix head = head_matrix(j->g, m);
    w->embedding = need(j, -1, "token_embd", m->vocab, m->d_model, d);
    w->out_norm = vector(j, -1, "output_norm", m->d_model, d);
    w->embedding_scale = m->embedding_scale;
    if (!w->embedding || !w->out_norm)
        return KVF_E_FORMAT;
    for (int i = 0; m->logit_scale != 1 && i < m->d_model; i++)
        w->out_norm[i] /= m->logit_scale;
    return hand_over(j, -1, ROLE_HEAD, &head, pack, (void *)j, d);
}

static void load_task(void *ctx, int task, int thread)
{
    struct job *j = ctx;
    (void)thread;
    j->err[task] = task == 0 ? load_ends(j, &j->diag[task])
                             : load_layer(j, task - 1, &j->diag[task]);
}

/* Whether some matrix of a layer or the output matrix has them. */
static bool any_words(const struct weights *w)
{
    bool any = w->head.kind == PACK_I16;
    for (int l = 0; l < w->n_layers; l++) {
        const struct layer_weights *a = &w->layer[l];
        any |= a->qkv.kind == PACK_I16 || a->out.kind == PACK_I16 || a->gate_up.kind == PACK_I16
               || a->down.kind == PACK_I16;
    }
    return any;
}

int weights_load(const struct gguf *g, const struct model_config *m, enum pack_how how,
                 struct par *pool, const struct teller *teller, struct weights **ret_weights,
                 struct kvf_diag *d)
{
    struct weights *w = MEM_NEW(struct weights, 1);
    size_t n = (size_t)m->n_layers + 1;
    struct job j = {g, m, w, how, MEM_NEW(int, n), MEM_NEW(struct kvf_diag, n)};
    int err = KVF_E_NOMEM;
    if (!w || !j.err || !j.diag)
        goto done;
    w->n_layers = m->n_layers;
    w->d_model = m->d_model;
    w->layer = MEM_NEW(struct layer_weights, (size_t)m->n_layers);
    if (!w->layer)
        goto done;
    uint64_t bytes = 0;
    if (weights_bytes(g, m, how, &bytes, NULL) == KVF_OK) /* else a task says what is missing */
        pack_room_open(&w->room, bytes, (int)n * LAYER_MATRICES);
    par_run_watched(pool, (int)n, load_task, &j, teller);
    size_t failed = 0;
    while (failed < n && !j.err[failed])
        failed++;
    err = failed < n ? j.err[failed] : KVF_OK;
    if (err && d)
        *d = j.diag[failed];
    w->has_i16 = !err && any_words(w);
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

int weights_visit(const struct gguf *g, const struct model_config *m, weight_sink sink, void *ctx,
                  struct kvf_diag *d)
{
    const struct job j = {.g = g, .m = m};
    struct matrix all[LAYER_MATRICES], head = head_matrix(g, m);
    layer_matrices(m, all);
    int err = hand_over(&j, -1, ROLE_HEAD, &head, sink, ctx, d);
    for (int i = 0; !err && i < LAYER_MATRICES * m->n_layers; i++)
        err = hand_over(&j, i / LAYER_MATRICES, (enum weight_role)(i % LAYER_MATRICES),
                        &all[i % LAYER_MATRICES], sink, ctx, d);
    return err;
}

int weights_bytes(const struct gguf *g, const struct model_config *m, enum pack_how how,
                  uint64_t *ret_bytes, struct kvf_diag *d)
{
    const struct job j = {.g = g, .m = m};
    const struct gguf_tensor *tensor[3];
    struct pack_source src[3];
    struct matrix all[LAYER_MATRICES], head = head_matrix(g, m);
    uint64_t sum = 0;
    layer_matrices(m, all);
    for (int i = 0; i < LAYER_MATRICES * m->n_layers + 1; i++) {
        int layer = i / LAYER_MATRICES;
        const struct matrix *x = layer < m->n_layers ? &all[i % LAYER_MATRICES] : &head;
        int err = sources(&j, layer < m->n_layers ? layer : -1, x, tensor, src, d);
        if (err)
            return err;
        for (int k = 0; k < x->n; k++)
            src[k].data = NULL;
        sum += packed_bytes(src, x->n, x->K, how);
    }
    *ret_bytes = sum;
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
    pack_room_close(&w->room);
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
