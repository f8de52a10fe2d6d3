/* Writes standard input, UTF-8, in Unicode's normal form C. */
#include <stdio.h>

#include "engine/model/nfc.h"

int main(void)
{
    struct buf text = {0}, out = {0};
    struct nfc x = {.chars = {0}};
    char part[4096];
    size_t n = fread(part, 1, sizeof part, stdin);
    for (; n > 0; n = fread(part, 1, sizeof part, stdin))
        buf_add(&text, part, n);
    const char *s = nfc(&x, text.data ? text.data : "", text.len, &out, &n);
    fwrite(s, 1, n, stdout);
    int err = text.err ? text.err : out.err;
    nfc_finish(&x);
    buf_finish(&text);
    buf_finish(&out);
    return err != KVF_OK;
}
