/* models.c - opens models, gates and sets of heads by their names on the command line. */
#include "cli/models.h"

#include <stdio.h>
#include <string.h>

#include "base/headset.h"
#include "base/mem.h"
#include "cli/folders.h"
#include "cli/model_list.h"
#include "cli/runner.h"
#include "cli/watcher.h"
#include "engine/device/devices.h"
#include "engine/model/gguf.h"
#include "engine/model/model_file.h"
#include "engine/train/learner.h"

/* Sets the backend and the device that --device selects on this machine. */
static int choose_device(enum device_word word, struct engine_options *opt, struct kvf_diag *d)
{
    struct kvf_diag why = {""};
    int err = devices_choose(word, &opt->backend, &opt->which, &why);
    if (err)
        return kvf_fail(d, err, "--device cuda: %s; --device cpu computes here", why.text);
    if (word == DEVICE_AUTO && opt->backend->host_memory)
        fprintf(stderr, "--device auto takes the processor: %s\n", why.text);
    else if (word == DEVICE_AUTO)
        fprintf(stderr, "--device auto takes CUDA device %d\n", opt->which);
    return KVF_OK;
}

int model_learner(struct execution *how, struct learner *ret, struct kvf_diag *d)
{
    struct engine_options opt = {.backend = NULL};
    int err = choose_device((enum device_word)how->device, &opt, d);
    if (err)
        return err;
    *ret = (struct learner){learner_of(opt.backend), opt.which, how->exact};
    how->device = DEVICE_CPU;
    how->exact = true;
    return KVF_OK;
}

const char *model_learner_word(const struct learner *l)
{
    if (l->on == &ops_cpu)
        return NULL;
    return l->exact ? "cuda f32" : "cuda bf16";
}

/* Checks --activations. It selects how the CPU multiplies weights, so it conflicts with --exact
 * and with devices. */
static int check_activations(const struct execution *how, struct kvf_diag *d)
{
    int bits = how->activations == ACTIVATIONS_8 ? 8 : 16;
    if (how->activations && how->exact)
        return kvf_fail(d, KVF_E_ARG, "--activations %d and --exact, which keeps f32: give one",
                        bits);
    if (how->activations && how->device != DEVICE_CPU)
        return kvf_fail(d, KVF_E_ARG,
                        "--activations %d is of the processor, and a device keeps f32: give it "
                        "without --device %s",
                        bits, device_words[how->device]);
    return KVF_OK;
}

/* Prints a note if the model file names no pre-tokenizer, because the chosen one is a guess. */
static void note_pre(const struct engine *e)
{
    size_t n = 0;
    const char *pre = gguf_has(e->gguf, "tokenizer.ggml.pre") ? NULL : tokenizer_pre(e->gguf, &n);
    if (pre)
        fprintf(stderr, "note: %s names no pre-tokenizer; its vocabulary is that of --pre %.*s\n",
                gguf_path(e->gguf), (int)n, pre);
}

int model_tokenizer(const char *model, const char *pre, struct gguf **ret_gguf,
                    struct tokenizer **ret_tokenizer, struct kvf_diag *d)
{
    struct buf path = {0};
    int err = model_path(model, &path, d);
    if (!err)
        err = model_file_open(path.data, ret_gguf, d);
    if (!err)
        err = tokenizer_create_as(*ret_gguf, pre, ret_tokenizer, d);
    buf_finish(&path);
    return err;
}

int model_open(const char *model, const struct execution *how, struct engine **ret_engine,
               struct kvf_diag *d)
{
    struct buf path = {0};
    struct engine_options opt = {.exact = how->exact,
                                 .i8_activations = how->activations == ACTIVATIONS_8,
                                 .words = how->activations == ACTIVATIONS_16,
                                 .n_threads = (int)how->threads,
                                 .cpu_flags = cpu_flags_detect(),
                                 .pre = how->pre,
                                 .adapter = how->lora};
    int err = check_activations(how, d);
    if (!err && how->rope_scale)
        err = rope_scale_parse(how->rope_scale, &opt.rope_scale, d);
    if (!err)
        err = choose_device((enum device_word)how->device, &opt, d);
    if (err)
        return err;
    err = model_path(model, &path, d);
    struct watcher w = watcher_count("model", "layers");
    opt.progress = (struct progress_callback){watcher_update, &w};
    if (!err)
        err = engine_open(path.data, &opt, ret_engine, d);
    watcher_end(&w);
    if (!err && !how->pre)
        note_pre(*ret_engine);
    buf_finish(&path);
    return err;
}

int model_gates(struct engine *e, const char *path, struct gates **ret_gates, struct kvf_diag *d)
{
    struct gates_model model = gates_model_from(&e->config, e->hash, &e->kernels);
    struct buf file = {0};
    int err = folder_gates_path(path, &file, d);
    if (!err)
        err = gates_open(file.data, &model, ret_gates, d);
    buf_finish(&file);
    return err;
}

static const char *kind_of(unsigned kinds)
{
    int kind = 0;
    while (!(kinds >> kind & 1))
        kind++;
    return gates_kind_name((enum gate_kind)kind);
}

int model_shipped_gates(struct engine *e, const struct method *m, struct gates **ret_gates,
                        struct kvf_diag *d)
{
    static const char *const trained[] = {"trimkv", "dbtrimkv", "wgkv"};
    unsigned need = method_gates(m);
    struct buf path = {0};
    if (!need)
        return KVF_OK;
    int err = folder_gates_for(m->name, need, e->hash, &path);
    if (!err)
        err = model_gates(e, path.data, ret_gates, d);
    for (size_t i = 0; err == KVF_E_NOTFOUND && i < sizeof trained / sizeof *trained; i++)
        if (strncmp(m->name, trained[i], strlen(trained[i])) == 0)
            err = kvf_fail(d, KVF_E_ARG,
                           "method %s needs %s gates, and none are shipped for this method and "
                           "model: give --gates FILE, or train them with kvfate train --method %s",
                           m->name, kind_of(need), trained[i]);
    buf_finish(&path);
    /* method_check_inputs() reports the missing gates */
    return err == KVF_E_NOTFOUND ? KVF_OK : err;
}

int model_heads(const struct model_config *m, const char *set, unsigned char **ret_take,
                struct kvf_diag *d)
{
    /* with equal head counts, KV heads and query heads are the same */
    char kind = m->n_heads == m->n_kv_heads ? 0 : 'K';
    const struct headset_shape shape = {"the model", m->n_layers, m->n_kv_heads, .kind = kind};
    *ret_take = MEM_NEW(unsigned char, (size_t)m->n_layers *(size_t)m->n_kv_heads);
    if (!*ret_take)
        return KVF_E_NOMEM;
    return headset_mark("--head", set, &shape, *ret_take, d);
}
