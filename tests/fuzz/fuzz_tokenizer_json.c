/* Any tokenizer.json and any text under it, which stands behind the first NUL: a sentence says why
 * the file is refused, or its tokens are of the vocabulary. */
#include <string.h>

#include "base/mem.h"
#include "engine/model/hf.h"
#include "engine/model/tokenizer.h"
#include "fuzz.h"

static void check(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
    struct kvf_diag d = {""};
    int32_t *ids = NULL, before = -1;
    int n_ids = -1;
    int err = tokenizer_encode(t, text, n, flags, &ids, &n_ids, &d);
    MUST(err == KVF_OK || (err == KVF_E_LIMIT && d.text[0]));
    for (int i = 0; i < n_ids; before = ids[i++]) {
        size_t len;
        MUST(ids[i] >= 0 && ids[i] < tokenizer_vocab(t));
        tokenizer_bytes(t, ids[i], &len);
        MUST(tokenizer_covers(t, before, ids[i], text, n) <= len);
    }
    mem_free(ids);
}

/* The view of a folder that has nothing but this. */
static struct gguf *view_of(const struct hf_texts *x)
{
    struct kvf_diag d = {""};
    struct gguf_put put = {.n = 0};
    struct gguf *g = NULL;
    int err = hf_tokenizer_read(x, &put, &d);
    MUST(err == KVF_OK || err == KVF_E_NOMEM || d.text[0]);
    const struct gguf_view view = {.pairs = put.pairs, .n_pairs = put.n};
    if (err)
        buf_finish(&put.pairs);
    else
        MUST(gguf_from_view("fuzz", &view, &g, &d) == KVF_OK);
    return g;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct json *config;
    struct kvf_diag d = {""};
    struct tokenizer *t = NULL;
    static const char text[] = "{\"vocab_size\":4096,\"bos_token_id\":1,\"eos_token_id\":[2,3]}";
    if (!config)
        MUST(json_parse(text, strlen(text), &config, &d) == KVF_OK);
    const uint8_t *cut = n ? memchr(data, 0, n) : NULL;
    size_t n_json = cut ? (size_t)(cut - data) : n;
    const struct hf_texts x = {.path = "fuzz",
                               .tokenizer = (const char *)data,
                               .n_tokenizer = n_json,
                               .config = config,
                               .generation = config};
    struct gguf *g = view_of(&x);
    int err = g ? tokenizer_create(g, &t, &d) : KVF_E_FORMAT;
    MUST(!g || err == KVF_OK || d.text[0]);
    gguf_close(g);
    for (unsigned flags = 0; t && cut && flags < 4; flags++)
        check(t, (const char *)cut + 1, n - n_json - 1, flags);
    tokenizer_destroy(t);
    return 0;
}
