/* trainable_write.c - where the values of a model file's tensors lie among weights that learn. */
#include <stdio.h>
#include <string.h>

#include "engine/train/trainable.h"

/* Rows of a tensor; a vector is one row. */
struct place {
    size_t at;
    int rows, columns;
    int turned;  /* first rows, of queries and keys, which lie in the order of the kernels */
    bool vector; /* whose elements are turned in place of rows */
    float by;    /* what values are multiplied with; 0: 1 */
};

static bool find_end(const struct trainable *t, const char *name, struct place *ret)
{
    const struct model_config *m = t->config;
    const struct {
        const char *name;
        struct place place;
    } ends[] = {
        {"token_embd.weight", {t->embedding, m->vocab, m->d_model, 0, false, 0}},
        {"output.weight", {t->head, m->vocab, m->d_model, 0, false, 0}},
        {"output_norm.weight", {t->out_norm, 1, m->d_model, 0, true, m->logit_scale}},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(name, ends[i].name) == 0) {
            *ret = ends[i].place;
            return true;
        }
    return false;
}

static bool find_in_layer(const struct trainable *t, const struct trainable_layer *l,
                          const char *what, struct place *ret)
{
    struct tensor_shape s;
    for (int role = 0; role < LAYER_TENSORS; role++) {
        size_t at = l->at[role];
        tensor_shape(t->config, (enum tensor_role)role, &s);
        for (int i = 0; i < s.n_parts; at += (size_t)s.part[i++].rows * (size_t)(s.K ? s.K : 1)) {
            const struct tensor_part *p = &s.part[i];
            if (strcmp(what, p->name) != 0)
                continue;
            *ret = s.K ? (struct place){at, p->rows, s.K, p->rotated, false, 0}
                       : (struct place){at, 1, p->rows, p->rotated, true, 0};
            return true;
        }
    }
    return false;
}

static bool find(const struct trainable *t, const char *name, struct place *ret)
{
    int layer, at = 0;
    if (find_end(t, name, ret))
        return true;
    if (sscanf(name, "blk.%d.%n", &layer, &at) != 1 || at == 0 || layer < 0
        || layer >= t->config->n_layers)
        return false;
    return find_in_layer(t, &t->layer[layer], name + at, ret);
}

bool trainable_fill(void *tuned, const struct gguf_tensor *tensor, float *out)
{
    const struct trainable *t = tuned;
    struct place p;
    if (!find(t, tensor->name, &p))
        return false;
    int lines = p.vector ? p.columns : p.rows;
    size_t width = p.vector ? 1 : (size_t)p.columns;
    for (int r = 0; out && r < lines; r++) {
        int to = r < p.turned ? weights_row_of(t->config, r) : r;
        memcpy(out + (size_t)to * width, t->w + p.at + (size_t)r * width, width * sizeof *out);
        if (p.by != 0)
            out[to] *= p.by;
    }
    return true;
}
