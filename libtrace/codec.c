/* codec.c - chunk encodings: raw, one repeated element, byte shuffle + zstd. */
#include <string.h>

#define ZSTD_STATIC_LINKING_ONLY /* for its allocator: in libzstd.so all the same */
#include <zstd.h>

#include "base/mem.h"
#include "libtrace/layout.h"

size_t codec_bound(size_t n)
{
    size_t z = ZSTD_compressBound(n);
    return z > n ? z : n;
}

/* Byte k of every element together: ages and floats compress far better. */
static inline void shuffle_as(const unsigned char *in, unsigned char *out, size_t count,
                              const int width)
{
    for (int k = 0; k < width; k++)
        for (size_t i = 0; i < count; i++)
            out[(size_t)k * count + i] = in[i * (size_t)width + (size_t)k];
}

/* A stride that the compiler knows becomes vector instructions. */
static void shuffle(const unsigned char *in, unsigned char *out, size_t count, int width)
{
    if (width == 2)
        shuffle_as(in, out, count, 2);
    else if (width == 4)
        shuffle_as(in, out, count, 4);
    else
        shuffle_as(in, out, count, width);
}

/* zstd gives memory back when 128 chunks needed a third of it, and takes it again for the next
 * large one.  Freed memory is kept, so that repeated writes of the same sizes do not allocate. */
struct working {
    ZSTD_CCtx *zstd;
    struct block {
        size_t size; /* before the memory that zstd gets, which is aligned as the block */
    } * kept;        /* NULL: none */
};
enum { BEFORE = MEM_ALIGN };

static void *take_block(void *ctx, size_t n)
{
    struct working *w = ctx;
    struct block *b = w->kept && w->kept->size >= n ? w->kept : NULL;
    if (b) {
        w->kept = NULL;
    } else {
        b = mem_alloc_raw(BEFORE + n, 1);
        if (!b)
            return NULL;
        b->size = n;
    }
    return (char *)b + BEFORE;
}

/* Of two the larger one is kept. */
static void give_block(void *ctx, void *p)
{
    struct working *w = ctx;
    if (!p)
        return;
    struct block *b = (void *)((char *)p - BEFORE), *other = w->kept;
    w->kept = other && other->size > b->size ? other : b;
    mem_free(w->kept == b ? other : b);
}

void *codec_create(void)
{
    struct working *w = MEM_NEW(struct working, 1);
    if (w)
        w->zstd = ZSTD_createCCtx_advanced((ZSTD_customMem){take_block, give_block, w});
    if (w && w->zstd)
        return w;
    mem_free(w);
    return NULL;
}

void codec_destroy(void *codec)
{
    struct working *w = codec;
    if (!w)
        return;
    ZSTD_freeCCtx(w->zstd);
    mem_free_all(w->kept, w);
}

/* Element by element, which writes each cache line once. */
static inline void unshuffle_as(const unsigned char *in, unsigned char *out, size_t count,
                                const int width)
{
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < width; k++)
            out[i * (size_t)width + (size_t)k] = in[(size_t)k * count + i];
}

static void unshuffle(const unsigned char *in, unsigned char *out, size_t count, int width)
{
    if (width == 2)
        unshuffle_as(in, out, count, 2);
    else if (width == 4)
        unshuffle_as(in, out, count, 4);
    else
        unshuffle_as(in, out, count, width);
}

static bool constant(const unsigned char *p, size_t n, size_t width)
{
    return n > width && memcmp(p, p + width, n - width) == 0;
}

size_t codec_encode(void *codec, const void *raw, size_t n, int width, void *out, void *scratch,
                    uint32_t *ret_codec)
{
    return codec_encode_at(ZSTD_LEVEL, codec, raw, n, width, out, scratch, ret_codec);
}

size_t codec_encode_at(int level, void *codec, const void *raw, size_t n, int width, void *out,
                       void *scratch, uint32_t *ret_codec)
{
    if (constant(raw, n, (size_t)width)) {
        memcpy(out, raw, (size_t)width);
        *ret_codec = CODEC_CONSTANT;
        return (size_t)width;
    }
    shuffle(raw, scratch, n / (size_t)width, width);
    struct working *w = codec;
    size_t z = ZSTD_compressCCtx(w->zstd, out, codec_bound(n), scratch, n, level);
    if (ZSTD_isError(z)) /* out has room for anything: memory is out */
        return 0;
    if (z < n) {
        *ret_codec = CODEC_SHUFFLE_ZSTD;
        return z;
    }
    memcpy(out, raw, n);
    *ret_codec = CODEC_RAW;
    return n;
}

void *decoder_create(void)
{
    return ZSTD_createDCtx();
}

void decoder_destroy(void *decoder)
{
    ZSTD_freeDCtx(decoder);
}

int codec_decode(void *decoder, const void *in, size_t n, uint32_t codec, int width, void *out,
                 size_t raw_len, void *scratch)
{
    size_t w = (size_t)width;
    if (raw_len % w)
        return KVF_E_CORRUPT;
    if (codec == CODEC_RAW) {
        if (n != raw_len)
            return KVF_E_CORRUPT;
        memcpy(out, in, n);
    } else if (codec == CODEC_CONSTANT) {
        if (n != w)
            return KVF_E_CORRUPT;
        for (size_t i = 0; i < raw_len; i += w)
            memcpy((char *)out + i, in, w);
    } else if (codec == CODEC_SHUFFLE_ZSTD) {
        if (ZSTD_getFrameContentSize(in, n) != raw_len)
            return KVF_E_CORRUPT;
        size_t got = decoder ? ZSTD_decompressDCtx(decoder, scratch, raw_len, in, n)
                             : ZSTD_decompress(scratch, raw_len, in, n);
        if (ZSTD_isError(got) || got != raw_len)
            return KVF_E_CORRUPT;
        unshuffle(scratch, out, raw_len / w, width);
    } else {
        return KVF_E_VERSION;
    }
    return KVF_OK;
}
