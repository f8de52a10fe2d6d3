/* text_kind.c - distinguishes text files from others by their first bytes (text_kind.h). */
#include "base/text_kind.h"

#include <stdbool.h>
#include <string.h>

static const char unpack[] = "unpack it first",
                  utf8[] = "convert it to UTF-8, for example with iconv",
                  convert[] = "convert it to text or JSONL first";

/* Longer signatures precede their prefixes. */
static const struct signature {
    const char *bytes;
    size_t n;
    const char *name, *remedy;
} signatures[] = {
    {"\xff\xfe\0\0", 4, "UTF-32 text", utf8},
    {"\0\0\xfe\xff", 4, "UTF-32 text", utf8},
    {"\xff\xfe", 2, "UTF-16 text", utf8},
    {"\xfe\xff", 2, "UTF-16 text", utf8},
    {"\x1f\x8b", 2, "compressed with gzip", unpack},
    {"\x28\xb5\x2f\xfd", 4, "compressed with zstd", unpack},
    {"\xfd"
     "7zXZ",
     5, "compressed with xz", unpack},
    {"BZh11AY&SY", 10, "compressed with bzip2", unpack},
    {"BZh21AY&SY", 10, "compressed with bzip2", unpack},
    {"BZh31AY&SY", 10, "compressed with bzip2", unpack},
    {"BZh41AY&SY", 10, "compressed with bzip2", unpack},
    {"BZh51AY&SY", 10, "compressed with bzip2", unpack},
    {"BZh61AY&SY", 10, "compressed with bzip2", unpack},
    {"BZh71AY&SY", 10, "compressed with bzip2", unpack},
    {"BZh81AY&SY", 10, "compressed with bzip2", unpack},
    {"BZh91AY&SY", 10, "compressed with bzip2", unpack},
    {"PK\3\4", 4, "a zip archive", unpack},
    {"7z\xbc\xaf", 4, "a 7z archive", unpack},
    {"PAR1\x15", 5, "a Parquet table", convert}, /* a page header follows the magic */
    {"ARROW1\0\0", 8, "an Arrow table", convert},
    {"SQLite format 3", 16, "an SQLite database", convert},
    {"\x89HDF", 4, "an HDF5 file", convert},
    {"\x93NUMPY", 6, "a NumPy array", convert},
    {"%PDF-", 5, "a PDF document", convert},
    {"\x89PNG", 4, "a PNG picture", "give text"},
    {"GGUF\1\0", 6, "a GGUF model", "give a model with -m"},
    {"GGUF\2\0", 6, "a GGUF model", "give a model with -m"},
    {"GGUF\3\0", 6, "a GGUF model", "give a model with -m"},
};

/* Returns true if the text is UTF-16 without a byte-order mark: every second one of its first
 * bytes is zero. */
static bool is_utf16(const char *s, size_t n)
{
    enum { LOOKED_AT = 16 };
    int zeros[2] = {0, 0};
    for (size_t i = 0; i < n && i < LOOKED_AT; i++)
        zeros[i % 2] += s[i] == 0;
    int half = n < LOOKED_AT ? (int)(n / 2) : LOOKED_AT / 2;
    return half >= 2
           && ((zeros[0] == half && zeros[1] == 0) || (zeros[1] == half && zeros[0] == 0));
}

int text_kind_check(const char *path, const char *s, size_t n, size_t *ret_mark, struct kvf_diag *d)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const struct signature *x = &signatures[i];
        if (n >= x->n && memcmp(s, x->bytes, x->n) == 0)
            return kvf_fail(d, KVF_E_FORMAT, "%s: the file is %s; %s", path, x->name, x->remedy);
    }
    if (is_utf16(s, n))
        return kvf_fail(d, KVF_E_FORMAT, "%s: the file is UTF-16 text; %s", path, utf8);
    *ret_mark = n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    return KVF_OK;
}
