/* normal_form.c - converts UTF-8 from standard input to Unicode normal form C. With an argument, it
 * writes the code points that utf8proc supports, without surrogates. */
#include <stdio.h>
#include <utf8proc.h>

#include "engine/model/nfc.h"
#include "tests/scoped.h"

static int write_assigned(void)
{
    for (int32_t cp = 0; cp < 0x110000; cp++)
        if (utf8proc_category(cp) != UTF8PROC_CATEGORY_CN && (cp < 0xd800 || cp >= 0xe000))
            printf("%d\n", (int)cp);
    return 0;
}

int main(int argc, char **argv)
{
    (void)argv;
    SCOPED(buf_finish) struct buf text = {0}, out = {0};
    SCOPED(nfc_finish) struct nfc x = {.chars = {0}};
    char part[4096];
    if (argc > 1)
        return write_assigned();
    size_t n = fread(part, 1, sizeof part, stdin);
    for (; n > 0; n = fread(part, 1, sizeof part, stdin))
        buf_add(&text, part, n);
    const char *s = nfc(&x, text.data ? text.data : "", text.len, &out, &n);
    fwrite(s, 1, n, stdout);
    int err = text.err ? text.err : out.err;
    return err != KVF_OK;
}
