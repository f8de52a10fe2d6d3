/* saliency_write.c - writes a trace with tokens and the column "saliency". */
#include <string.h>
#include <unistd.h>

#include <kvf/schema.h>

#include "base/json.h"
#include "base/mem.h"
#include "engine/experiment/saliency.h"
#include "engine/model/gguf.h"

enum { COL_ID, COL_ROLE, COL_SALIENCY, N_COLUMNS };

static const struct kvf_column columns[N_COLUMNS] = {
    {"tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
    {"tokens.role", KVF_U8, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
    {"saliency", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, "nat"},
};

static int put_header(struct buf *b, const struct engine *e, const struct saliency *s,
                      const struct saliency_options *opt, const struct saliency_text *text)
{
    char hash[33] = "";
    tokenizer_hash(e->tokenizer, hash);
    buf_str(b, "{\"saliency\":{");
    json_put_member_str(b, "loss", opt->kl ? "kl" : "nll");
    json_put_member_num(b, "nats", s->loss);
    json_put_member_num(b, "predictions", (double)s->positions);
    if (s->from > 0)
        json_put_member_num(b, "from", s->from);
    json_put_member_num(b, "window", s->window);
    if (opt->weights)
        json_put_member_str(b, "weight", "recorded");
    else
        json_put_member_num(b, "weight", opt->weight);
    buf_str(b, "},\"model\":{");
    engine_put_model(e, b);
    buf_str(b, "},\"tokenizer\":{");
    json_put_member_str(b, "hash", hash);
    buf_str(b, "},\"run\":{");
    json_put_member_num(b, "prompt_tokens", text->n_prompt);
    json_put_member_str(b, "precision", opt->precision ? opt->precision : "f32");
    buf_str(b, "},\"method\":{");
    json_put_member_str(b, "name", "full");
    buf_str(b, "},\"entry_space\":\"kv\"}");
    return b->err;
}

static int write_texts(const struct engine *e, const struct saliency_text *text, int T,
                       struct kvf_writer *w)
{
    struct buf all = {0};
    uint32_t *end = MEM_NEW(uint32_t, (size_t)T);
    if (!end)
        return KVF_E_NOMEM;
    for (int i = 0; i < T; i++) {
        size_t len;
        const char *s = tokenizer_bytes(e->tokenizer, text->ids[i], &len);
        buf_add(&all, s, len);
        end[i] = (uint32_t)all.len;
    }
    int err = all.err;
    if (!err)
        err = kvf_write_token_bytes(w, 0, (uint32_t)T, end, all.data ? all.data : "");
    mem_free(end);
    buf_finish(&all);
    return err;
}

static int write_columns(const struct saliency *s, const struct saliency_text *text,
                         struct kvf_writer *w)
{
    uint32_t T = (uint32_t)s->T;
    uint8_t *prompt = MEM_NEW(uint8_t, T); /* zeroed, and KVF_ROLE_PROMPT is 0 */
    if (!prompt)
        return KVF_E_NOMEM;
    int err = kvf_write_chunk(w, COL_ID, 0, 0, 1, 0, T, 0, text->ids);
    if (err)
        goto done;
    err = kvf_write_chunk(w, COL_ROLE, 0, 0, 1, 0, T, 0, text->roles ? text->roles : prompt);
    if (err)
        goto done;
    for (int l = 0; l < s->L; l++) {
        err = kvf_write_chunk(w, COL_SALIENCY, l, 0, s->H, 0, T, 0,
                              s->value + (size_t)l * (size_t)s->H * T);
        if (err)
            goto done;
    }

done:
    mem_free(prompt);
    return err;
}

static int open_writer(const struct engine *e, const char *meta, const struct saliency_text *text,
                       bool overwrite, const char *path, struct kvf_writer **ret,
                       struct kvf_diag *d)
{
    int L = e->config.n_layers;
    uint16_t *heads = MEM_NEW(uint16_t, 2 * (size_t)L);
    if (!heads)
        return KVF_E_NOMEM;
    for (int l = 0; l < L; l++) {
        heads[l] = (uint16_t)e->config.n_kv_heads;
        heads[L + l] = (uint16_t)e->config.n_heads;
    }
    struct kvf_shape shape = {L, heads, heads + L};
    const struct kvf_writer_options opt = {.existing = overwrite ? KVF_OVERWRITE : KVF_REFUSE,
                                           .only_whole = true,
                                           .prompt = text->ids,
                                           .n_prompt = (size_t)text->n_prompt};
    int err = kvf_writer_open(path, meta, &shape, columns, N_COLUMNS, &opt, ret, d);
    mem_free(heads);
    return err;
}

static int write_all(const struct engine *e, const struct saliency *s, const char *meta,
                     const struct saliency_text *text, bool overwrite, const char *path,
                     struct kvf_diag *d)
{
    struct kvf_writer *w = NULL;
    int err = open_writer(e, meta, text, overwrite, path, &w, d);
    if (err)
        return err;
    err = write_texts(e, text, s->T, w);
    if (err)
        goto fail;
    err = write_columns(s, text, w);
    if (err)
        goto fail;
    err = kvf_writer_commit(w, 1, (uint32_t)s->T);
    if (err)
        goto fail;
    return kvf_writer_close(w, d);

fail:
    kvf_writer_abandon(w);
    return err;
}

int saliency_write(const struct engine *e, const struct saliency *s,
                   const struct saliency_options *opt, const struct saliency_text *text,
                   const char *path, struct kvf_diag *d)
{
    struct buf meta = {0};
    int err = put_header(&meta, e, s, opt, text);
    if (!err)
        err = write_all(e, s, meta.data, text, opt->overwrite, path, d);
    if (err == KVF_E_IO && !d->text[0])
        kvf_fail(d, err, "%s: writing failed: no space or no permission", path);
    buf_finish(&meta);
    return err;
}
