/* pre_known.c - identifies the pre-tokenizer of a published vocabulary. */
#include "engine/model/pre_known.h"

#include <string.h>

static const struct known {
    const char *pre;
    int64_t merges;
    const char *token; /* a token with this id */
    int64_t id;
} rows[] = {
    {"gpt-2", 50000, "<|endoftext|>", 50256},
    {"starcoder", 48872, "<fim_prefix>", 1},
    {"smollm", 48900, "<|im_start|>", 1},
    {"llama-bpe", 280147, "<|begin_of_text|>", 128000},
    {"qwen2", 151387, "<|endoftext|>", 151643},
    {"deepseek-llm", 99757,
     "<\xef\xbd\x9c"
     "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     100000},
    {"deepseek-coder", 31757,
     "<\xef\xbd\x9c"
     "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     32013},
};

struct look {
    const struct known *row;
    bool found;
};

static void on_token(void *ctx, int64_t i, const char *s, size_t len)
{
    struct look *l = ctx;
    if (i == l->row->id)
        l->found = strlen(l->row->token) == len && memcmp(l->row->token, s, len) == 0;
}

const char *pre_known(const struct gguf *g)
{
    int64_t merges = gguf_array_strings(g, "tokenizer.ggml.merges");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct look l = {.row = &rows[i], .found = false};
        if (rows[i].merges == merges)
            gguf_each_str(g, "tokenizer.ggml.tokens", on_token, &l);
        if (l.found)
            return rows[i].pre;
    }
    return NULL;
}
