/* fuzz_codec.c - the codecs: any bytes are decoded or rejected, within their buffers, and encoded
 * data decode to the original. Byte 0 selects the codec, byte 1 the width, bytes 2 and 3 the
 * decoded size. */
#include "fuzz.h"
#include "libtrace/layout.h"
#include "source.h"

enum { MOST = 1 << 12 };

static const int widths[] = {1, 2, 4, 8};

/* Copies n bytes to a block of exactly n bytes, so that tools detect reads beyond it. */
static unsigned char *block(const uint8_t *from, size_t n)
{
    unsigned char *p = malloc(n ? n : 1);
    MUST(p);
    if (from)
        memcpy(p, from, n);
    return p;
}

static void decode(void *decoder, struct source s, uint32_t codec, int width, size_t raw_len)
{
    unsigned char *out = block(NULL, raw_len), *again = block(NULL, raw_len),
                  *scratch = block(NULL, raw_len);
    int err = codec_decode(decoder, s.p, s.n, codec, width, out, raw_len, scratch);
    MUST(err == KVF_OK || err == KVF_E_CORRUPT || (err == KVF_E_VERSION && codec > 2));
    MUST(err != KVF_OK || raw_len % (size_t)width == 0);
    if (err == KVF_OK && codec == CODEC_SHUFFLE_ZSTD) { /* with and without reused memory */
        MUST(codec_decode(NULL, s.p, s.n, codec, width, again, raw_len, scratch) == KVF_OK);
        MUST(memcmp(out, again, raw_len) == 0);
    }
    free(out);
    free(again);
    free(scratch);
}

static void encode(void *encoder, void *decoder, struct source s, int width)
{
    size_t n = s.n - s.n % (size_t)width;
    if (n == 0)
        return;
    unsigned char *out = block(NULL, codec_bound(n)), *back = block(NULL, n),
                  *scratch = block(NULL, n);
    uint32_t codec = 99;
    size_t len = codec_encode(encoder, s.p, n, width, out, scratch, &codec);
    MUST(len <= n && codec <= CODEC_SHUFFLE_ZSTD);
    MUST(codec_decode(decoder, out, len, codec, width, back, n, scratch) == KVF_OK);
    MUST(memcmp(back, s.p, n) == 0);
    MUST(codec_decode(decoder, out, len - 1, codec, width, back, n, scratch) != KVF_OK);
    free(out);
    free(back);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static void *encoder, *decoder;
    struct source s = {data, n};
    if (!encoder)
        encoder = codec_create();
    if (!decoder)
        decoder = decoder_create();
    MUST(encoder && decoder);
    unsigned what = (unsigned)take(&s, 1);
    int width = widths[take(&s, 1) % 4];
    size_t raw_len = take(&s, 2) % MOST;
    if (s.n > MOST)
        return 0;
    if (what % 8 == 7)
        encode(encoder, decoder, s, width);
    else
        decode(decoder, s, what % 8 < 5 ? CODEC_SHUFFLE_ZSTD : what % 8 - 5 + (what >> 3), width,
               raw_len);
    return 0;
}
