/* fuzz_gguf.c - a model file: opened, read as a model, and run for a few tokens. */
#include <string.h>

#include "base/mem.h"
#include "engine/decode/session.h"
#include "fuzz.h"

enum { TOKENS = 5 };

static void count(void *ctx, int64_t i, int64_t value)
{
    (void)value;
    MUST(i == (*(int64_t *)ctx)++);
}

/* Calls every getter on an accepted file. */
static void look_around(const struct gguf *g)
{
    char hash[33];
    size_t len;
    gguf_hash(g, hash);
    MUST(strlen(hash) == 32);
    gguf_int(g, "general.alignment", 0);
    gguf_real(g, "llama.rope.freq_base", 0);
    gguf_bool(g, "tokenizer.ggml.add_bos_token", false);
    gguf_str(g, "general.name", &len);
    int64_t seen = 0, n = gguf_array_ints(g, "tokenizer.ggml.token_type");
    gguf_each_int(g, "tokenizer.ggml.token_type", count, &seen);
    MUST(seen == (n < 0 ? 0 : n));
    MUST(!gguf_find(g, "no such tensor"));
}

static void play(struct engine *e)
{
    struct kvf_diag d = {""};
    struct session *s = NULL;
    int cap = e->config.n_ctx < TOKENS ? e->config.n_ctx : TOKENS;
    struct session_options opt = {.kv_type = KV_F16, .cap = cap, .chunk = 2};
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i * 7 % e->config.vocab;
    MUST(session_create(e, &opt, &s, &d) == KVF_OK);
    int n = cap > 2 ? cap - 2 : 1;
    MUST(session_prompt(s, ids, n, NULL, NULL) == KVF_OK);
    for (; n < cap; n++)
        MUST(session_step(s, ids[n]) == KVF_OK);
    MUST(session_length(s) == cap);
    session_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    int fd = memory_file(data, n, path);
    struct kvf_diag d = {""};
    struct gguf *g = NULL;
    struct engine *e = NULL;
    int err = gguf_open(path, &g, &d);
    MUST((err == KVF_OK) == (g != NULL));
    if (g)
        look_around(g);
    gguf_close(g);
    for (int exact = 0; exact < 2 && !err; exact++) {
        struct engine_options opt = {
            .exact = exact != 0, .n_threads = 1, .cpu_flags = cpu_flags_detect()};
        e = NULL;
        d.text[0] = 0;
        err = engine_open(path, &opt, &e, &d);
        MUST(err == KVF_OK || d.text[0] || err == KVF_E_NOMEM);
        if (!err)
            play(e);
        engine_close(e);
    }
    close(fd);
    return 0;
}
