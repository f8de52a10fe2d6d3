/* test_codec.c - checksum and codecs compared with published values and brute force. */
#include <zstd.h>

#include "libtrace/crc32c.h"
#include "libtrace/layout.h"
#include "tests/suite.h"

/* Computes the checksum bit by bit from the polynomial of RFC 3720, section 12.1, reflected. */
static uint32_t crc_by_bits(const unsigned char *p, size_t n)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < 8 * n; i++) {
        uint32_t top = (c ^ (uint32_t)(p[i / 8] >> i % 8)) & 1;
        c = c >> 1 ^ (top ? 0x82f63b78u : 0);
    }
    return ~c;
}

Test(crc32c, values_of_rfc_3720_appendix_b4)
{
    unsigned char zero[32] = {0}, ones[32], up[32], down[32];
    static const unsigned char read_pdu[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0x14, 0, 0, 0,   0,
        0,    0x04, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0,    0, 0, 0x02};
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++) {
        up[i] = (unsigned char)i;
        down[i] = (unsigned char)(31 - i);
    }
    uint32_t (*const all[])(uint32_t, const void *, size_t) = {crc32c, crc32c_portable};
    for (int k = 0; k < 2; k++) {
        cr_expect(eq(u32, all[k](0, zero, 32), 0x8a9136aau));
        cr_expect(eq(u32, all[k](0, ones, 32), 0x62a8ab43u));
        cr_expect(eq(u32, all[k](0, up, 32), 0x46dd794eu));
        cr_expect(eq(u32, all[k](0, down, 32), 0x113fdb5cu));
        cr_expect(eq(u32, all[k](0, read_pdu, 48), 0xd9963a56u));
        cr_expect(eq(u32, all[k](0, "123456789", 9), 0xe3069283u));
        cr_expect(eq(u32, all[k](0, "", 0), 0u));
    }
}

Test(crc32c, both_variants_equal_brute_force_at_every_length_split_and_alignment)
{
    unsigned char p[96];
    for (size_t i = 0; i < sizeof p; i++)
        p[i] = (unsigned char)(i * 37 + 11);
    for (size_t at = 0; at < 9; at++)
        for (size_t n = 0; n + at <= sizeof p; n++) {
            uint32_t want = crc_by_bits(p + at, n);
            size_t cut = n / 3;
            cr_assert(eq(u32, crc32c(0, p + at, n), want));
            cr_assert(eq(u32, crc32c_portable(0, p + at, n), want));
            cr_assert(eq(u32, crc32c(crc32c(0, p + at, cut), p + at + cut, n - cut), want));
            cr_assert(
                eq(u32, crc32c_portable(crc32c(0, p + at, cut), p + at + cut, n - cut), want));
        }
}

Test(crc32c, both_variants_equal_brute_force_at_lengths_that_are_summed_in_stretches)
{
    static unsigned char p[10000];
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof p; i++, x = x * 1664525u + 1013904223u)
        p[i] = (unsigned char)(x >> 24);
    for (size_t stretch = 1; stretch <= 3; stretch++)
        for (size_t n = 3072 * stretch - 9; n < 3072 * stretch + 10; n++)
            for (size_t at = 0; at < 8; at += 7) {
                uint32_t want = crc_by_bits(p + at, n);
                cr_assert(eq(u32, crc32c(0, p + at, n), want));
                cr_assert(eq(u32, crc32c_portable(0, p + at, n), want));
                cr_assert(eq(u32, crc32c(crc32c(0, p + at, 11), p + at + 11, n - 11), want));
            }
}

enum { MOST = 70000 };
struct work {
    unsigned char raw[MOST], packed[MOST + 1024], scratch[MOST], out[MOST + 8];
};

static int decode(const void *in, size_t n, uint32_t codec, int width, void *out, size_t raw_len,
                  void *scratch)
{
    return codec_decode(NULL, in, n, codec, width, out, raw_len, scratch);
}

/* Encodes with a new and a used codec, which must give the same bytes. Returns their number. */
static size_t encode(const unsigned char *raw, size_t n, int width, unsigned char *out,
                     unsigned char *scratch, uint32_t *ret_codec)
{
    static unsigned char again[MOST + 1024];
    void *fresh = codec_create(), *used = codec_create();
    uint32_t codec = 99;
    cr_assert(fresh && used);
    codec_encode(used, "a word and a word and a word and a word", 39, 1, again, scratch, &codec);
    size_t z = codec_encode(fresh, raw, n, width, out, scratch, ret_codec);
    cr_assert(eq(sz, z, codec_encode(used, raw, n, width, again, scratch, &codec)));
    cr_assert(eq(u32, codec, *ret_codec));
    cr_assert(zero(int, memcmp(out, again, z)));
    codec_destroy(fresh);
    codec_destroy(used);
    return z;
}

static void round_trip(struct work *w, size_t n, int width, uint32_t want_codec)
{
    uint32_t codec = 99;
    cr_assert(le(sz, codec_bound(n), sizeof w->packed));
    size_t z = encode(w->raw, n, width, w->packed, w->scratch, &codec);
    cr_assert(le(sz, z, codec_bound(n)));
    if (want_codec != 99)
        cr_assert(eq(u32, codec, want_codec), "n %zu width %d", n, width);
    memset(w->out, 0xee, sizeof w->out);
    cr_assert(zero(int, decode(w->packed, z, codec, width, w->out, n, w->scratch)));
    cr_assert(zero(int, memcmp(w->out, w->raw, n)));
    for (int i = 0; i < 8; i++)
        cr_assert(eq(u8, w->out[n + (size_t)i], 0xee));
}

Test(codec, every_width_and_odd_lengths_round_trip)
{
    static const size_t counts[] = {1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1023, 8191};
    OWNED(free) struct work *w = calloc(1, sizeof *w);
    for (int width = 1; width <= 8; width *= 2)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            size_t n = counts[k] * (size_t)width;
            for (size_t i = 0; i < n; i++) /* noise like that of splitmix: incompressible */
                w->raw[i] = (unsigned char)((i + 1) * 0x9e3779b97f4a7c15u >> 29 ^ i * i);
            round_trip(w, n, width, 99);
            for (size_t i = 0; i < n; i++)
                w->raw[i] = (unsigned char)(0xa0 + i % (size_t)width);
            round_trip(w, n, width, counts[k] == 1 ? CODEC_RAW : CODEC_CONSTANT);
            memset(w->raw, 0xff, n);
            round_trip(w, n, width, counts[k] == 1 ? CODEC_RAW : CODEC_CONSTANT);
        }
}

Test(codec, small_integers_take_zstd_and_noise_is_stored_raw)
{
    OWNED(free) struct work *w = calloc(1, sizeof *w);
    struct rng r = rng_seeded(1);
    for (size_t i = 0; i < 4096; i++)
        w->raw[4 * i] = (unsigned char)(rng_next(&r) & 7);
    round_trip(w, 4 * 4096, 4, CODEC_SHUFFLE_ZSTD);
    for (size_t i = 0; i < 4096; i++)
        w->raw[i] = (unsigned char)rng_next(&r);
    round_trip(w, 4096, 1, CODEC_RAW);
}

/* Byte k of element i is at k * count + i. The test undoes this with index arithmetic. */
Test(codec, shuffled_bytes_lie_as_the_document_says)
{
    OWNED(free) struct work *w = calloc(1, sizeof *w);
    uint32_t codec;
    size_t count = 1000, width = 4, n = count * width;
    for (size_t i = 0; i < n; i++)
        w->raw[i] = (unsigned char)(i % width == 0 ? i / width % 50 : i % width);
    size_t z = encode(w->raw, n, (int)width, w->packed, w->scratch, &codec);
    cr_assert(eq(u32, codec, CODEC_SHUFFLE_ZSTD));
    cr_assert(eq(sz, ZSTD_decompress(w->out, n, w->packed, z), n));
    for (size_t k = 0; k < width; k++)
        for (size_t i = 0; i < count; i++)
            cr_assert(eq(u8, w->out[k * count + i], w->raw[i * width + k]));
}

Test(codec, wrong_lengths_and_codecs_are_errors)
{
    OWNED(free) struct work *w = calloc(1, sizeof *w);
    OWNED(free) struct work *v = calloc(1, sizeof *v);
    size_t z = ZSTD_compress(w->packed, sizeof w->packed, w->raw, 4000, 1);
    cr_expect(zero(int, decode(w->packed, z, CODEC_SHUFFLE_ZSTD, 4, v->out, 4000, v->scratch)));
    static const size_t bad[] = {0, 4, 3996, 4004, 65536};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect(eq(int, decode(w->packed, z, CODEC_SHUFFLE_ZSTD, 4, v->out, bad[i], v->scratch),
                     KVF_E_CORRUPT));
        cr_expect(
            eq(int, decode(w->packed, 8, CODEC_RAW, 4, v->out, bad[i], v->scratch), KVF_E_CORRUPT));
    }
    for (size_t cut = 0; cut < z; cut++)
        cr_expect(eq(int, decode(w->packed, cut, CODEC_SHUFFLE_ZSTD, 4, v->out, 4000, v->scratch),
                     KVF_E_CORRUPT));
    cr_expect(
        eq(int, decode(w->packed, 3, CODEC_CONSTANT, 4, v->out, 40, v->scratch), KVF_E_CORRUPT));
    cr_expect(
        eq(int, decode(w->packed, 4, CODEC_CONSTANT, 4, v->out, 42, v->scratch), KVF_E_CORRUPT));
    cr_expect(eq(int, decode(w->packed, 40, 3, 4, v->out, 40, v->scratch), KVF_E_VERSION));
}
