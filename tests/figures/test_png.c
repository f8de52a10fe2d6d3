/* test_png.c - checks PNG rows that are compressed in pieces on several threads.  The pieces form
 * one zlib stream, which zlib reads.  Its rows, unfiltered according to the PNG specification, are
 * the pixels.  The bytes do not depend on the number of threads. */
#include <png.h>
#include <zlib.h>

#include "render/png_out.h"
#include "render/png_rows.h"
#include "tests/suite.h"

static uint32_t *picture(int stride, int h, unsigned seed)
{
    uint32_t *rgb = malloc(sizeof *rgb * (size_t)stride * (size_t)h);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < stride; x++) {
            seed = seed * 1664525u + 1013904223u;
            bool noise = (x / 37 + y / 11) % 3 == 0;
            rgb[(size_t)y * (size_t)stride + (size_t)x] =
                0xff000000u | (noise ? seed >> 8 : (unsigned)(x / 9 * 0x010203 + y));
        }
    return rgb;
}

static struct buf stream_of(const uint32_t *rgb, int w, int h, int stride, int threads, int *ret_n)
{
    SCOPED(png_rows_finish) struct png_rows r;
    struct buf all = {0};
    cr_assert_eq(png_rows_make(&r, rgb, w, h, stride, threads), KVF_OK);
    for (int i = 0; i < r.n; i++)
        buf_add(&all, r.piece[i].data, r.piece[i].len);
    *ret_n = r.n;
    return all;
}

static void expect_pixels(const uint8_t *raw, const uint32_t *rgb, int w, int h, int stride)
{
    size_t bytes = 3 * (size_t)w;
    OWNED(free) uint8_t *above = calloc(bytes, 1);
    for (int y = 0; y < h; y++, raw += 1 + bytes) {
        cr_assert_eq(raw[0], 2, "row %d: filter %d", y, raw[0]);
        for (size_t i = 0; i < bytes; i++) {
            uint32_t v = rgb[(size_t)y * (size_t)stride + i / 3];
            above[i] = (uint8_t)(above[i] + raw[1 + i]);
            cr_assert_eq(above[i], (uint8_t)(v >> (16 - 8 * (i % 3))), "row %d, byte %zu", y, i);
        }
    }
}

static void check(int w, int h, int stride, int least_pieces)
{
    OWNED(free) uint32_t *rgb = picture(stride, h, (unsigned)(w * 31 + h));
    uLongf raw = (uLongf)h * (1 + 3 * (uLongf)w), n = raw;
    OWNED(free) uint8_t *out = malloc(raw);
    int pieces;
    SCOPED(buf_finish) struct buf one = stream_of(rgb, w, h, stride, 1, &pieces);
    cr_assert_geq(pieces, least_pieces, "%d x %d: %d pieces", w, h, pieces);
    cr_assert_eq(uncompress(out, &n, (const Bytef *)one.data, one.len), Z_OK, "%d x %d", w, h);
    cr_assert_eq(n, raw);
    expect_pixels(out, rgb, w, h, stride);
    for (int threads = 2; threads <= 7; threads += threads == 3 ? 4 : 1) {
        SCOPED(buf_finish) struct buf more = stream_of(rgb, w, h, stride, threads, &pieces);
        cr_assert(more.len == one.len && memcmp(more.data, one.data, one.len) == 0,
                  "%d x %d: other bytes with %d threads", w, h, threads);
    }
}

Test(png, sizes)
{
    check(1, 1, 1, 1);
    check(7, 3, 9, 1);
    check(1, 20000, 1, 1);
    check(20000, 1, 20000, 1);
    check(20000, 23, 20000, 5); /* a row is longer than the window of deflate */
    check(333, 2000, 340, 7);
}

/* Independent pieces cost little. */
Test(png, pieces_cost_little)
{
    int w = 700, h = 2000, pieces;
    OWNED(free) uint32_t *rgb = picture(w, h, 5);
    size_t raw = (size_t)h * (1 + 3 * (size_t)w);
    uLongf n = compressBound(raw), m = raw;
    OWNED(free) uint8_t *whole = malloc(n), *rows = malloc(raw);
    SCOPED(buf_finish) struct buf one = stream_of(rgb, w, h, w, 2, &pieces);
    cr_assert_eq(uncompress(rows, &m, (const Bytef *)one.data, one.len), Z_OK);
    cr_assert_eq(compress2(whole, &n, rows, raw, 2), Z_OK);
    cr_assert_leq(one.len, n + n / 100, "%zu bytes in pieces, %lu in one", one.len, n);
}

Test(png, libpng_reads_it)
{
    int w = 450, h = 500;
    OWNED(free) uint32_t *rgb = picture(w, h, 3);
    OWNED(free) uint8_t *got = malloc((size_t)w * (size_t)h * 3);
    SCOPED(buf_finish) struct buf out = {0};
    png_image image = {.version = PNG_IMAGE_VERSION};
    cr_assert_eq(png_encode(rgb, w, h, w, 11811, "a title", "a comment", 2, &out), KVF_OK);
    cr_assert(png_image_begin_read_from_memory(&image, out.data, out.len), "%s", image.message);
    cr_assert_eq(image.width, (unsigned)w);
    cr_assert_eq(image.height, (unsigned)h);
    image.format = PNG_FORMAT_RGB;
    cr_assert(png_image_finish_read(&image, NULL, got, 0, NULL), "%s", image.message);
    cr_assert_eq(image.warning_or_error, 0, "%s", image.message);
    for (int i = 0; i < w * h; i++)
        cr_assert(got[3 * i] == (uint8_t)(rgb[i] >> 16) && got[3 * i + 1] == (uint8_t)(rgb[i] >> 8)
                      && got[3 * i + 2] == (uint8_t)rgb[i],
                  "pixel %d", i);
}
