#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "render/png_out.h"

enum { PART = 1 << 15, FILTER_UP = 2, LEVEL = 3 };

static void put_be32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (24 - 8 * i));
}

static void chunk(struct buf *out, const char *type, const void *data, size_t n)
{
    unsigned char begin[8], end[4];
    put_be32(begin, (uint32_t)n);
    memcpy(begin + 4, type, 4);
    uLong crc = crc32(crc32(0, begin + 4, 4), data, (uInt)n);
    put_be32(end, (uint32_t)crc);
    buf_add(out, begin, sizeof begin);
    buf_add(out, data, n);
    buf_add(out, end, sizeof end);
}

static void put_header(struct buf *out, int w, int h, double per_metre)
{
    unsigned char size[13] = {[8] = 8, [9] = 2}, density[9] = {[8] = 1}; /* RGB; metres */
    put_be32(size, (uint32_t)w);
    put_be32(size + 4, (uint32_t)h);
    put_be32(density, (uint32_t)per_metre);
    put_be32(density + 4, (uint32_t)per_metre);
    buf_add(out, "\x89PNG\r\n\x1a\n", 8);
    chunk(out, "IHDR", size, sizeof size);
    chunk(out, "pHYs", density, sizeof density);
}

/* iTXt: keyword, neither compressed nor of a language, text in UTF-8 */
static void put_text(struct buf *out, const char *key, const char *text)
{
    struct buf b = {0};
    buf_add(&b, key, strlen(key) + 1);
    buf_add(&b, "\0\0\0", 4);
    buf_str(&b, text);
    if (b.err)
        out->err = out->err ? out->err : b.err;
    else
        chunk(out, "iTXt", b.data, b.len);
    buf_finish(&b);
}

/* Maps and text alike repeat from row to row: the filter "up" alone, no choice among all. */
static void filter(const uint32_t *row, const uint32_t *above, int w, unsigned char *out)
{
    *out++ = FILTER_UP;
    if (memcmp(row, above, (size_t)w * sizeof *row) == 0) {
        memset(out, 0, 3 * (size_t)w);
        return;
    }
    for (int x = 0; x < w; x++, out += 3) {
        out[0] = (unsigned char)((row[x] >> 16) - (above[x] >> 16));
        out[1] = (unsigned char)((row[x] >> 8) - (above[x] >> 8));
        out[2] = (unsigned char)(row[x] - above[x]);
    }
}

/* Takes in all of z's input, and with Z_FINISH gives out all that is left. */
static void squeeze(z_stream *z, int flush, unsigned char *part, struct buf *out)
{
    int state;
    do {
        state = deflate(z, flush);
        if (z->avail_out == 0 || state == Z_STREAM_END) {
            chunk(out, "IDAT", part, PART - z->avail_out);
            z->next_out = part;
            z->avail_out = PART;
        }
    } while (z->avail_in || (flush == Z_FINISH && state == Z_OK));
}

static void put_pixels(const uint32_t *rgb, int w, int h, int stride, z_stream *z,
                       unsigned char *row, unsigned char *part, const uint32_t *black,
                       struct buf *out)
{
    z->next_out = part;
    z->avail_out = PART;
    for (int y = 0; y < h; y++) {
        const uint32_t *at = rgb + (size_t)y * (size_t)stride;
        filter(at, y ? at - stride : black, w, row);
        z->next_in = row;
        z->avail_in = 3 * (uInt)w + 1;
        squeeze(z, Z_NO_FLUSH, part, out);
    }
    squeeze(z, Z_FINISH, part, out);
}

/* An eighth of the time of libpng's choices (all filters, level 6) for files a tenth larger:
 * the first match of a few, but a long one if there is any (docs/performance.md). */
static int begin(z_stream *z)
{
    int state = deflateInit2(z, LEVEL, Z_DEFLATED, 15, 8, Z_FILTERED);
    if (state == Z_OK)
        deflateTune(z, 4, 64, 258, 4);
    return state == Z_OK ? KVF_OK : KVF_E_NOMEM;
}

int png_encode(const uint32_t *rgb, int w, int h, int stride, double per_metre,
               const char *title, const char *comment, struct buf *out)
{
    unsigned char *row = mem_alloc(3 * (size_t)w + 1, 1), *part = mem_alloc(PART, 1);
    uint32_t *black = MEM_NEW(uint32_t, (size_t)w);
    z_stream z = {0};
    int err = row && part && black ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        err = begin(&z);
    if (!err) {
        put_header(out, w, h, per_metre);
        put_text(out, "Title", title);
        put_text(out, "Software", "kvfate");
        put_text(out, "Comment", comment);
        put_pixels(rgb, w, h, stride, &z, row, part, black, out);
        chunk(out, "IEND", "", 0);
        err = out->err;
        deflateEnd(&z);
    }
    mem_free(row);
    mem_free(part);
    mem_free(black);
    return err;
}
