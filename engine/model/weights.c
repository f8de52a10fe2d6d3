/* weights.c - loads and packs the weights of a model (weights.h). */
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

/* Returns a tensor of a layer, or of no layer (-1), with n_rows x K elements, or K if n_rows is 0;
 * NULL: it is missing, has another shape or an unknown type. */
static const struct gguf_tensor *need(const struct job *j, int layer, const char *what, int n_rows,
                                      int K, struct kvf_diag *d)
{
    char name[64];
    if (layer >= 0)
        snprintf(name, sizeof name, "blk.%d.%s", layer, what);
    else
        snprintf(name, sizeof name, "%s", what);
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

/* A copy of the rows of a matrix, in the order of the kernels; mem_free. */
static void *reordered(const struct model_config *m, const struct gguf_tensor *t,
                       const struct tensor_part *part)
{
    size_t row = t->bytes / (size_t)part->rows;
    char *out = mem_alloc((size_t)part->rows, row);
    for (int r = 0; out && r < part->rows; r++) {
        int from = r < part->rotated ? weights_row_of(m, r) : r;
        memcpy(out + (size_t)r * row, (const char *)t->data + (size_t)from * row, row);
    }
    return out;
}

/* Returns the shape of the output matrix, which is the embedding if the file has no other. */
static struct tensor_shape head_shape(const struct gguf *g, const struct model_config *m)
{
    struct tensor_shape s;
    tensor_shape(m, T_HEAD, &s);
    if (!gguf_find(g, s.part[0].name))
        s.part[0].name = "token_embd.weight";
    return s;
}

/* The parts of a matrix as they lie in the file: KVF_OK, or KVF_E_FORMAT naming a tensor. */
static int sources(const struct job *j, int layer, const struct tensor_shape *m,
                   const struct gguf_tensor *tensor[3], struct pack_source src[3],
                   struct kvf_diag *d)
{
    for (int i = 0; i < m->n_parts; i++) {
        tensor[i] = need(j, layer, m->part[i].name, m->part[i].rows, m->K, d);
        if (!tensor[i])
            return KVF_E_FORMAT;
        src[i] = (struct pack_source){tensor[i]->data, (enum weight_type)tensor[i]->type,
                                      m->part[i].rows};
    }
    return KVF_OK;
}

/* Gives the parts of a matrix to the sink, rows in the order of the kernels. */
static int hand_over(const struct job *j, int layer, enum tensor_role role,
                     const struct tensor_shape *m, weight_sink sink, void *ctx, struct kvf_diag *d)
{
    struct pack_source src[3];
    const struct gguf_tensor *tensor[3];
    void *own[3] = {NULL, NULL, NULL};
    int err = sources(j, layer, m, tensor, src, d);
    if (err)
        return err;
    for (int i = 0; i < m->n_parts; i++)
        if (m->part[i].rotated && j->m->halves) {
            src[i].data = own[i] = reordered(j->m, tensor[i], &m->part[i]);
            if (!own[i]) {
                err = KVF_E_NOMEM;
                goto done;
            }
        }
    err = sink(ctx, layer, role, src, m->n_parts, m->K);
    for (int i = 0; i < m->n_parts; i++)
        gguf_release(j->g, tensor[i]);

done:
    for (int i = 0; i < 3; i++)
        mem_free(own[i]);
    return err;
}

/* Packs a matrix into its place: the sink of weights_load. */
static int pack(void *job, int layer, enum tensor_role role, const struct pack_source *src,
                int n_src, int K)
{
    const struct job *j = job;
    struct packed *to = role == T_HEAD ? &j->w->head : &j->w->layer[layer].matrix[role];
    return packed_build_in(&j->w->room, src, n_src, K, j->how, to);
}

/* Reads a vector whose parts lie one behind the other, in the order of the kernels. */
static int load_vector(const struct job *j, int l, const struct tensor_shape *s, float **ret,
                       struct kvf_diag *d)
{
    float *v = MEM_NEW(float, (size_t)s->rows), *to = *ret = MEM_NEW(float, (size_t)s->rows);
    int err = v && to ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < s->n_parts; to += s->part[i++].rows) {
        const struct tensor_part *part = &s->part[i];
        const struct gguf_tensor *t = need(j, l, part->name, 0, part->rows, d);
        if (!t) {
            err = KVF_E_FORMAT;
            break;
        }
        weight_dequant(v, t->data, (enum weight_type)t->type, (size_t)part->rows);
        for (int r = 0; r < part->rows; r++)
            to[r] = v[r < part->rotated ? weights_row_of(j->m, r) : r];
    }
    mem_free(v);
    return err;
}

static int load_layer(const struct job *j, int l, struct kvf_diag *d)
{
    struct tensor_shape s;
    int err = KVF_OK;
    for (int role = LAYER_MATRICES; !err && role < LAYER_TENSORS; role++)
        if (tensor_shape(j->m, (enum tensor_role)role, &s))
            err = load_vector(j, l, &s, &j->w->layer[l].vector[role], d);
    for (int role = 0; !err && role < LAYER_MATRICES; role++) {
        tensor_shape(j->m, (enum tensor_role)role, &s);
        err = hand_over(j, l, (enum tensor_role)role, &s, pack, (void *)j, d);
    }
    return err;
}

static int load_ends(const struct job *j, struct kvf_diag *d)
{
    const struct model_config *m = j->m;
    struct weights *w = j->w;
    const struct tensor_shape head = head_shape(j->g, m),
                              norm = {{{"output_norm.weight", m->d_model, 0}}, 1, m->d_model, 0};
    w->embedding = need(j, -1, "token_embd.weight", m->vocab, m->d_model, d);
    w->embedding_scale = m->embedding_scale;
    int err = w->embedding ? load_vector(j, -1, &norm, &w->out_norm, d) : KVF_E_FORMAT;
    if (err)
        return err;
    for (int i = 0; m->logit_scale != 1 && i < m->d_model; i++)
        w->out_norm[i] /= m->logit_scale;
    return hand_over(j, -1, T_HEAD, &head, pack, (void *)j, d);
}

static void load_task(void *ctx, int task, int thread)
{
    struct job *j = ctx;
    (void)thread;
    j->err[task] = task == 0 ? load_ends(j, &j->diag[task])
                             : load_layer(j, task - 1, &j->diag[task]);
}

/* Returns whether a matrix has integers of 16 bits. */
static bool any_words(const struct weights *w)
{
    bool any = w->head.kind == PACK_I16;
    for (int l = 0; l < w->n_layers; l++)
        for (int role = 0; role < LAYER_MATRICES; role++)
            any |= w->layer[l].matrix[role].kind == PACK_I16;
    return any;
}

int weights_load(const struct gguf *g, const struct model_config *m, enum pack_how how,
                 struct par *pool, const struct progress_callback *progress,
                 struct weights **ret_weights, struct kvf_diag *d)
{
    struct weights *w = MEM_NEW(struct weights, 1);
    size_t n = (size_t)m->n_layers + 1;
    struct job j = {g, m, w, how, MEM_NEW(int, n), MEM_NEW(struct kvf_diag, n)};
    int err = KVF_E_NOMEM;
    if (!w || !j.err || !j.diag)
        goto done;
    w->n_layers = m->n_layers;
    w->d_model = m->d_model;
    block_plan_build(m, &w->plan);
    w->layer = MEM_NEW(struct layer_weights, (size_t)m->n_layers);
    if (!w->layer)
        goto done;
    uint64_t bytes = 0;
    if (weights_bytes(g, m, how, &bytes, NULL) == KVF_OK) /* else a task says what is missing */
        pack_room_open(&w->room, bytes, (int)n * LAYER_MATRICES);
    par_run_watched(pool, (int)n, load_task, &j, progress);
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

/* Returns the shape of the i-th matrix of a model, layer by layer, then the output matrix. */
static struct tensor_shape matrix_at(const struct job *j, int i, int *ret_layer)
{
    struct tensor_shape s = head_shape(j->g, j->m);
    *ret_layer = i / LAYER_MATRICES < j->m->n_layers ? i / LAYER_MATRICES : -1;
    if (*ret_layer >= 0)
        tensor_shape(j->m, (enum tensor_role)(i % LAYER_MATRICES), &s);
    return s;
}

int weights_visit(const struct gguf *g, const struct model_config *m, weight_sink sink, void *ctx,
                  struct kvf_diag *d)
{
    const struct job j = {.g = g, .m = m};
    int n = LAYER_MATRICES * m->n_layers, layer;
    struct tensor_shape s = matrix_at(&j, n, &layer);
    int err = hand_over(&j, layer, T_HEAD, &s, sink, ctx, d);
    for (int i = 0; !err && i < n; i++) {
        s = matrix_at(&j, i, &layer);
        err = hand_over(&j, layer, (enum tensor_role)(i % LAYER_MATRICES), &s, sink, ctx, d);
    }
    return err;
}

int weights_bytes(const struct gguf *g, const struct model_config *m, enum pack_how how,
                  uint64_t *ret_bytes, struct kvf_diag *d)
{
    const struct job j = {.g = g, .m = m};
    const struct gguf_tensor *tensor[3];
    struct pack_source src[3];
    uint64_t sum = 0;
    for (int i = 0; i < LAYER_MATRICES * m->n_layers + 1; i++) {
        int layer;
        const struct tensor_shape s = matrix_at(&j, i, &layer);
        int err = sources(&j, layer, &s, tensor, src, d);
        if (err)
            return err;
        for (int k = 0; k < s.n_parts; k++)
            src[k].data = NULL;
        sum += packed_bytes(src, s.n_parts, s.K, how);
    }
    *ret_bytes = sum;
    return KVF_OK;
}

void weights_free(struct weights *w)
{
    if (!w)
        return;
    for (int l = 0; w->layer && l < w->n_layers; l++) {
        for (int role = 0; role < LAYER_TENSORS; role++)
            mem_free(w->layer[l].vector[role]);
        for (int role = 0; role < LAYER_MATRICES; role++)
            packed_finish(&w->layer[l].matrix[role]);
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
