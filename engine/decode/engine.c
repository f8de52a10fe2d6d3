/* engine.c - opens and closes models, and describes them in headers. */
#include <pthread.h>

#include "base/json.h"
#include "base/mem.h"
#include "engine/decode/session.h"
#include "engine/model/adapter.h"
#include "engine/model/model_file.h"

/* Creating the tokenizer and hashing the file takes as long as packing the weights of a small
 * model, so both run in parallel. */
struct reading {
    struct engine *e;
    const char *pre;
    struct kvf_diag diag;
    int err;
};

static void *read_names(void *reading)
{
    struct reading *r = reading;
    r->err = tokenizer_create_as(r->e->gguf, r->pre, &r->e->tokenizer, &r->diag);
    if (!r->err)
        gguf_hash(r->e->gguf, r->e->hash);
    return NULL;
}

static int read_parts(struct engine *e, const struct engine_options *opt, struct kvf_diag *d)
{
    struct reading r = {.e = e, .pre = opt->pre};
    pthread_t beside;
    enum pack_how floats = opt->words ? PACK_WORDS : PACK_AS_STORED;
    enum pack_how how = opt->exact ? PACK_EXACT : floats;
    bool two = pthread_create(&beside, NULL, read_names, &r) == 0;
    int err = weights_load(e->gguf, &e->config, how, e->pool, &opt->progress, &e->weights, d);
    if (two)
        pthread_join(beside, NULL);
    else
        read_names(&r);
    if (r.err && d)
        *d = r.diag;
    return r.err ? r.err : err;
}

int engine_open(const char *path, const struct engine_options *opt, struct engine **ret_engine,
                struct kvf_diag *d)
{
    struct engine *e = MEM_NEW(struct engine, 1);
    if (!e)
        return KVF_E_NOMEM;
    e->exact = opt->exact;
    e->i8_activations = opt->i8_activations;
    e->backend = opt->backend ? opt->backend : &backend_cpu;
    e->which = opt->which;
    kernels_init(&e->kernels, opt->cpu_flags);
    int err = model_file_open(path, &e->gguf, d);
    if (err)
        goto fail;
    if (opt->adapter)
        err = adapter_apply(e->gguf, opt->adapter, opt->exact, &e->gguf, d);
    if (err)
        goto fail;
    err = model_config_read(e->gguf, &e->config, d);
    if (!err)
        err = rope_scale_apply(&opt->rope_scale, &e->config, d);
    if (!err)
        err = tokenizer_check(e->gguf, d);
    if (err)
        goto fail;
    err = par_create(opt->n_threads, &e->pool);
    if (err) {
        kvf_fail(d, err, "cannot start %d threads", opt->n_threads);
        goto fail;
    }
    err = read_parts(e, opt, d);
    if (err)
        goto fail;
    e->words = e->weights->has_i16;
    err = e->backend->open(e, d);
    if (err)
        goto fail;
    *ret_engine = e;
    return KVF_OK;

fail:
    engine_close(e);
    return err;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    e->backend->close(e);
    weights_free(e->weights);
    par_destroy(e->pool);
    tokenizer_destroy(e->tokenizer);
    gguf_close(e->gguf);
    mem_free(e);
}

int engine_error(const struct engine *e, int err, struct kvf_diag *d)
{
    if (e && e->error.text[0] && (err == KVF_E_BACKEND || err == KVF_E_NOMEM))
        return kvf_fail(d, err, "%s", e->error.text);
    return err;
}

const char *engine_precision(const struct engine *e)
{
    if (e->words)
        return "float weights as 16-bit integers, 16-bit activations";
    if (e->i8_activations)
        return "weights as stored, 8-bit activations where quantised";
    return e->exact ? "f32" : e->backend->precision;
}

void engine_put_model(const struct engine *e, struct buf *b)
{
    const struct model_config *m = &e->config;
    json_put_member_str(b, "name", m->name);
    json_put_member_str(b, "hash", e->hash);
    json_put_member_str(b, "arch", m->arch);
    json_put_member_num(b, "layers", m->n_layers);
    json_put_member_num(b, "query_heads", m->n_heads);
    json_put_member_num(b, "kv_heads", m->n_kv_heads);
    json_put_member_num(b, "head_dim", m->head_dim);
    json_put_member_num(b, "vocab", m->vocab);
    json_put_member_num(b, "context", m->n_ctx);
    if (m->rope_scale.kind) {
        char text[32];
        rope_scale_text(&m->rope_scale, text);
        json_put_member_str(b, "rope_scale", text);
    }
}

void engine_put_scale(const struct engine *e, struct table *t)
{
    char text[32];
    rope_scale_text(&e->config.rope_scale, text);
    if (e->config.rope_scale.kind)
        table_meta_str(t, "rope_scale", text);
}
