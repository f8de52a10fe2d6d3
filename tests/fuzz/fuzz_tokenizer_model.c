/* fuzz_tokenizer_model.c - two bytes with a length, any tokenizer.model of that length, and any
 * text for it. The file is rejected with a message, or its tokens are in the vocabulary. */
#include "any_tokenizer.h"
#include "source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct json *config, *own;
    struct source s = {data, n};
    size_t n_model;
    const char *model = take_text(&s, (size_t)take(&s, 2), &n_model);
    if (!config) {
        config = parsed("{\"vocab_size\":4096}");
        own = parsed("{\"legacy\":false,\"added_tokens_decoder\":{\"1\":{\"content\":\"<s>\","
                     "\"special\":true},\"40\":{\"content\":\"ba\",\"rstrip\":true}}}");
    }
    const struct hf_texts x = {.path = "fuzz",
                               .spm = model,
                               .n_spm = n_model,
                               .config = config,
                               .tokenizer_config = n % 2 ? own : NULL};
    try_tokenizer(&x, (const char *)s.p, s.n);
    return 0;
}
