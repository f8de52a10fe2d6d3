/* fuzz_folder.c - a model folder: config.json up to the first NUL, then model.safetensors or, if
 * the rest does not begin like one, the index of files with the weights. The tokenizer is valid. */
#include <string.h>
#include <sys/stat.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"
#include "engine/model/hf_folder.h"
#include "engine/model/weights.h"
#include "fuzz.h"

static char folder[64];

static void write_file(const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    FILE *f = n == SIZE_MAX ? NULL : fopen(path, "wb");
    MUST(n == SIZE_MAX || (f && fwrite(data, 1, n, f) == n));
    if (f)
        fclose(f);
}

static void remove_all(void)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors",
                                        "model.safetensors.index.json", "a.safetensors"};
    for (int i = 0; i < 5; i++)
        write_file(names[i], NULL, SIZE_MAX);
    rmdir(folder);
}

static void make_folder(void)
{
    static const char tokenizer[] =
        "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},"
        "\"merges\":[]}}";
    snprintf(folder, sizeof folder, "/tmp/kvfate-fuzz-XXXXXX");
    MUST(mkdtemp(folder));
    atexit(remove_all);
    write_file("tokenizer.json", tokenizer, strlen(tokenizer));
}

static void load(const struct gguf *g)
{
    struct kvf_diag d = {""};
    struct model_config m;
    struct weights *w = NULL;
    struct par *pool = NULL;
    char hash[33];
    gguf_hash(g, hash);
    MUST(strlen(hash) == 32);
    if (model_config_read(g, &m, &d)) {
        MUST(d.text[0]);
        return;
    }
    MUST(par_create(1, &pool) == KVF_OK);
    d.text[0] = 0;
    int err = weights_load(g, &m, PACK_EXACT, pool, NULL, &w, &d);
    MUST((err == KVF_OK) == (w != NULL));
    MUST(err == KVF_OK || d.text[0]);
    weights_free(w);
    par_destroy(pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!folder[0])
        make_folder();
    const uint8_t *cut = n ? memchr(data, 0, n) : NULL;
    size_t n_config = cut ? (size_t)(cut - data) : n, n_rest = cut ? n - n_config - 1 : 0;
    bool index = n_rest > 0 && cut[1] == '{';
    write_file("config.json", data, n_config);
    write_file("model.safetensors", cut ? cut + 1 : NULL, cut && !index ? n_rest : SIZE_MAX);
    write_file("model.safetensors.index.json", cut ? cut + 1 : NULL, index ? n_rest : SIZE_MAX);
    struct kvf_diag d = {""};
    struct gguf *g = NULL;
    int err = hf_folder_open(folder, &g, &d);
    MUST((err == KVF_OK) == (g != NULL));
    MUST(err == KVF_OK || err == KVF_E_NOMEM || d.text[0]);
    if (g)
        load(g);
    gguf_close(g);
    return 0;
}
