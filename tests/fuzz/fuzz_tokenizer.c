/* fuzz_tokenizer.c - any bytes as text, with each pre-tokenizer: the ids spell the text, or its
 * normal form C. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/model/tokenizer.h"
#include "fuzz.h"

static const char *const pre[] = {"smollm",       "gpt-2",          "default",    "llama-bpe",
                                  "qwen2",        "qwen35",         "tekken",     "gpt-4o",
                                  "deepseek-llm", "deepseek-coder", "deepseek-v3"};
enum { N_PRE = sizeof pre / sizeof *pre };

static struct tokenizer *tokenizer[N_PRE];

/* vocabulary.gguf ends with the key of the pre-tokenizer. Its value is appended here. */
static void load_all(void)
{
    static char head[1 << 20];
    FILE *f = fopen(FUZZ_DATA "/vocabulary.gguf", "rb");
    MUST(f);
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    for (int i = 0; i < N_PRE; i++) {
        struct buf b = {0};
        struct kvf_diag d = {""};
        struct gguf *g = NULL;
        char path[64];
        buf_add(&b, head, n);
        buf_le64(&b, strlen(pre[i]));
        buf_str(&b, pre[i]);
        int fd = memory_file(b.data, b.len, path);
        MUST(gguf_open(path, &g, &d) == KVF_OK);
        MUST(tokenizer_create_as(g, NULL, &tokenizer[i], &d) == KVF_OK);
        gguf_close(g);
        close(fd);
        buf_finish(&b);
    }
}

static void check(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                  bool normal)
{
    struct kvf_diag d = {""};
    int32_t *ids = NULL;
    int n_ids = -1;
    size_t at = 0;
    MUST(tokenizer_encode(t, text, n, flags, &ids, &n_ids, &d) == KVF_OK);
    MUST(n_ids >= 0 && (normal || (size_t)n_ids <= n));
    int64_t *end = MEM_NEW(int64_t, (size_t)n_ids + 1);
    MUST(end && tokenizer_ends(t, text, n, ids, n_ids, end) == KVF_OK);
    for (int i = 0; i < n_ids; i++) {
        size_t len;
        MUST(ids[i] >= 0 && ids[i] < tokenizer_vocab(t));
        MUST(flags || !tokenizer_is_special(t, ids[i]));
        const char *s = tokenizer_bytes(t, ids[i], &len);
        MUST(len > 0 && end[i] >= (i ? end[i - 1] : 0));
        MUST(normal || (at + len <= n && memcmp(text + at, s, len) == 0));
        at += len;
        MUST(normal || end[i] == (int64_t)at);
    }
    MUST(n_ids ? end[n_ids - 1] == (int64_t)n : n == 0);
    mem_free_all(ids, end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!tokenizer[0])
        load_all();
    for (int i = 0; i < N_PRE; i++) {
        bool normal = strncmp(pre[i], "qwen", 4) == 0;
        check(tokenizer[i], (const char *)data, n, TOKENIZER_MARKS, normal);
        check(tokenizer[i], (const char *)data, n, 0, normal);
    }
    return 0;
}
