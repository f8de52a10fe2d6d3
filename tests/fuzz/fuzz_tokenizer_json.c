/* fuzz_tokenizer_json.c - any tokenizer.json, and after the first NUL any text for it. The file is
 * rejected with a message, or its tokens are in the vocabulary. */
#include "any_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct json *config;
    if (!config)
        config = parsed("{\"vocab_size\":4096,\"bos_token_id\":1,\"eos_token_id\":[2,3]}");
    const uint8_t *cut = n ? memchr(data, 0, n) : NULL;
    size_t n_json = cut ? (size_t)(cut - data) : n;
    const struct hf_texts x = {.path = "fuzz",
                               .tokenizer = (const char *)data,
                               .n_tokenizer = n_json,
                               .config = config,
                               .generation = config};
    try_tokenizer(&x, cut ? (const char *)cut + 1 : NULL, cut ? n - n_json - 1 : 0);
    return 0;
}
