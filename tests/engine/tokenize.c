/* tokenize.c - prints the tokens of texts, for comparisons with other tokenizers.
 *
 * usage: tokenize MODEL [marks] < TEXTS
 *
 * TEXTS: each text is its length as 4 bytes, little-endian, followed by its bytes. Each text gives
 * one line of ids. marks: names of control tokens in a text become those tokens. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/model/model_file.h"
#include "engine/model/tokenizer.h"
#include "tests/scoped.h"

static int fail(const struct kvf_diag *d)
{
    fprintf(stderr, "tokenize: %s\n", d->text);
    return 1;
}

/* Reads the next text; returns false at the end. */
static bool read_text(struct buf *text)
{
    unsigned char head[4];
    buf_clear(text);
    if (fread(head, 1, 4, stdin) != 4)
        return false;
    size_t n = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    for (size_t i = 0; i < n; i++)
        buf_char(text, (char)getchar());
    return text->err == KVF_OK;
}

int main(int argc, char **argv)
{
    struct kvf_diag d = {""};
    OWNED(gguf_close) struct gguf *g = NULL;
    OWNED(tokenizer_destroy) struct tokenizer *t = NULL;
    SCOPED(buf_finish) struct buf text = {0};
    unsigned flags = argc > 2 && strcmp(argv[2], "marks") == 0 ? TOKENIZER_MARKS : 0;
    if (argc < 2)
        return 2;
    if (model_file_open(argv[1], &g, &d) || tokenizer_create_as(g, NULL, &t, &d))
        return fail(&d);
    while (read_text(&text)) {
        OWNED(mem_free) int32_t *ids = NULL;
        int n = 0;
        if (tokenizer_encode(t, text.data ? text.data : "", text.len, flags, &ids, &n, &d))
            return fail(&d);
        for (int i = 0; i < n; i++)
            printf("%s%d", i ? " " : "", ids[i]);
        putchar('\n');
    }
    return 0;
}
