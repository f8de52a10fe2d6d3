/* lora_write.c - low-rank weights in the layout of PEFT's adapters. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/replace.h"
#include "engine/gate/safetensors_write.h"
#include "engine/train/lora.h"

enum { NAME = 96 };

/* Row of B in the common layout, where rotations turn the halves of a head, whatever the order of
 * the file is. */
static int common_row(const struct model_config *m, int r)
{
    int c = r % m->head_dim;
    return c < m->rope_dim ? r - c + c / 2 + c % 2 * (m->rope_dim / 2) : r;
}

static void copy_b(const struct lora *l, const struct lora_pair *p, float *to)
{
    size_t rank = (size_t)l->opt.rank;
    bool turned = p->target == LORA_Q || p->target == LORA_K;
    for (int r = 0; r < p->rows; r++) {
        size_t row = (size_t)(turned ? common_row(l->trainable->config, r) : r);
        memcpy(to + row * rank, l->w + p->b + (size_t)r * rank, rank * sizeof *to);
    }
}

/* Both matrices of every pair; b: room for all B, one behind the other. */
static void describe(const struct lora *l, struct safetensors_item *item, char (*name)[NAME],
                     float *b)
{
    uint64_t rank = (uint64_t)l->opt.rank;
    for (int i = 0; i < l->n_pairs; i++) {
        const struct lora_pair *p = &l->pair[i];
        for (int k = 0; k < 2; k++)
            snprintf(name[2 * i + k], NAME, "base_model.model.model.layers.%d.%s.lora_%c.weight",
                     p->layer, lora_target_name(p->target), "AB"[k]);
        copy_b(l, p, b);
        item[2 * i] = (struct safetensors_item){
            name[2 * i], 2, {rank, (uint64_t)p->columns, 1, 1}, l->w + p->a, WEIGHT_F32};
        item[2 * i + 1] = (struct safetensors_item){
            name[2 * i + 1], 2, {(uint64_t)p->rows, rank, 1, 1}, b, WEIGHT_F32};
        b += (size_t)p->rows * (size_t)rank;
    }
}

/* PEFT opens a folder with adapter_model.safetensors and this; other names stand alone. */
static int write_config(const struct lora *l, const char *path, struct kvf_diag *d)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path, *comma = "";
    struct buf name = {0}, b = {0};
    struct replace r;
    if (strcmp(file, "adapter_model.safetensors") != 0)
        return KVF_OK;
    buf_printf(&name, "%.*sadapter_config.json", (int)(file - path), path);
    buf_printf(
        &b,
        "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"bias\": \"none\", \"r\": %d, "
        "\"lora_alpha\": %.17g, \"lora_dropout\": 0.0, \"target_modules\": [",
        l->opt.rank, l->opt.alpha);
    for (int t = 0; t < LORA_TARGETS; t++) {
        if (!(l->opt.targets & 1u << t))
            continue;
        buf_printf(&b, "%s\"%s\"", comma, strchr(lora_target_name((enum lora_target)t), '.') + 1);
        comma = ", ";
    }
    buf_str(&b, "]}\n");
    int err = name.err ? name.err : b.err;
    if (!err)
        err = replace_open(&r, name.data, d);
    if (!err) {
        replace_write(&r, b.data, b.len);
        err = replace_finish(&r, d);
    }
    buf_finish(&name);
    buf_finish(&b);
    return err;
}

int lora_write(const struct lora *l, const char *path, const char *hash, const char *record,
               struct kvf_diag *d)
{
    char rank[16], alpha[32];
    snprintf(rank, sizeof rank, "%d", l->opt.rank);
    snprintf(alpha, sizeof alpha, "%.17g", l->opt.alpha);
    const struct safetensors_note note[] = {{"format", "pt"},
                                            {"r", rank},
                                            {"lora_alpha", alpha},
                                            {"kvfate.model_hash", hash},
                                            {"training", record}};
    size_t n = 2 * (size_t)l->n_pairs;
    struct safetensors_item *item = MEM_NEW(struct safetensors_item, n);
    char(*name)[NAME] = mem_alloc(n, NAME);
    float *b = MEM_NEW(float, l->n);
    int err = KVF_E_NOMEM;
    if (item && name && b) {
        describe(l, item, name, b);
        err = safetensors_write(path, item, (int)n, note, 5, d);
    }
    mem_free_all(item, name, b);
    return err ? err : write_config(l, path, d);
}
