/* fuzz_corpus.c - the state of a corpus must be rejected with a message or be valid. A valid state
 * can be merged, converted to a table and written, and written states read back to the same
 * bytes. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "fuzz.h"
#include "studies/corpus.h"

enum { CHECKSUM = 8, BLOCK = 1 << 16 };

/* Appends the checksum to the input. Otherwise no code after the header would be reached. */
static unsigned char *with_checksum(const uint8_t *data, size_t n)
{
    unsigned char *p = malloc(n + CHECKSUM);
    uint64_t h = 0;
    MUST(p);
    if (n)
        memcpy(p, data, n);
    for (size_t at = 0; at < n; at += BLOCK)
        h = rng_hash_bytes(h, p + at, n - at < BLOCK ? n - at : BLOCK);
    for (int k = 0; k < CHECKSUM; k++)
        p[n + (size_t)k] = (unsigned char)(h >> (8 * k));
    return p;
}

static void use(struct corpus *c)
{
    struct kvf_diag d = {""};
    struct corpus *again = NULL;
    struct table *t = NULL;
    struct buf text = {0};
    char path[64] = "/tmp/kvf-XXXXXX";
    int fd = mkstemp(path), err = corpus_table(c, &t, &d);
    MUST(fd >= 0 && (err == KVF_OK || err == KVF_E_NOMEM));
    if (!err)
        corpus_describe(c, t, &text);
    buf_finish(&text);
    table_destroy(t);
    MUST(corpus_write(c, path, &d) == KVF_OK);
    MUST(corpus_read(path, &again, &d) == KVF_OK);
    MUST(corpus_same_arguments(c, again, &d) == KVF_OK);
    MUST(corpus_counted(c).documents == corpus_counted(again).documents);
    err = corpus_merge(again, c, &d);
    MUST((err == KVF_OK && corpus_counted(c).documents == 0) || d.text[0] || err == KVF_E_NOMEM);
    corpus_destroy(again);
    close(fd);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct corpus *c = NULL;
    struct kvf_diag d = {""};
    unsigned char *p = with_checksum(data, n);
    int err = corpus_parse(p, n + CHECKSUM, &c, &d);
    MUST((err == KVF_OK) == (c != NULL));
    MUST(!err || err == KVF_E_NOMEM || d.text[0]);
    if (c)
        use(c);
    corpus_destroy(c);
    if (n > 16) { /* only a correct checksum is accepted */
        c = NULL;
        MUST(corpus_parse(data, n, &c, &d) != KVF_OK && !c);
    }
    free(p);
    return 0;
}
