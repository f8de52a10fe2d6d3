/* png_rows.c - filters and compresses the rows of an image on several threads (png_rows.h). */
#include <zlib.h>

#include "base/mem.h"
#include "base/par.h"
#include "render/png_rows.h"

enum {
    PIECE = 1 << 18, /* minimum bytes of rows */
    UP = 2,
    /* Maps and text both repeat from row to row.  Level 6 takes three times as long.  Level 4 would
     * save 2 % of plots and 11 to 14 % of maps for 40 % more time. */
    LEVEL = 2,
    HEAD = 0x785e /* deflate, window of 32 KiB, "fast"; divisible by 31 */
};

/* The buffers of a thread, reused for all its pieces. */
struct press {
    z_stream z;
    uint8_t *rows; /* of a piece, filtered */
};

struct work {
    struct png_rows *r;
    struct press *press; /* [threads] */
    uLong *sum;          /* [pieces]: Adler-32 of each */
    size_t *length;      /* [pieces]: bytes before compression */
};

static size_t row_bytes(const struct png_rows *r)
{
    return 1 + 3 * (size_t)r->w;
}

static int rows_each(const struct png_rows *r)
{
    return (int)(PIECE / row_bytes(r)) + 1;
}

/* Writes the rows [from, to) to out, each filtered, after the byte of its filter type. */
static void filter(const struct png_rows *r, int from, int to, uint8_t *out)
{
    for (int y = from; y < to; y++) {
        const uint32_t *row = r->rgb + (size_t)y * (size_t)r->stride;
        const uint32_t *above = y ? row - r->stride : NULL;
        *out++ = UP;
        for (int x = 0; x < r->w; x++, out += 3) {
            uint32_t v = row[x], a = above ? above[x] : 0;
            out[0] = (uint8_t)((v >> 16) - (a >> 16));
            out[1] = (uint8_t)((v >> 8) - (a >> 8));
            out[2] = (uint8_t)(v - a);
        }
    }
}

static void deflate_all(z_stream *z, const uint8_t *in, size_t n, bool last, struct buf *out)
{
    uint8_t block[1 << 14];
    z->next_in = (Bytef *)(uintptr_t)in;
    z->avail_in = (uInt)n;
    do {
        z->next_out = block;
        z->avail_out = sizeof block;
        deflate(z, last ? Z_FINISH : Z_SYNC_FLUSH);
        buf_add(out, block, sizeof block - z->avail_out);
    } while (z->avail_out == 0 && !out->err);
}

static void compress_piece(void *ctx, int i, int thread)
{
    struct work *w = ctx;
    struct press *p = &w->press[thread];
    const struct png_rows *r = w->r;
    int each = rows_each(r), from = i * each, to = from + each < r->h ? from + each : r->h;
    size_t n = (size_t)(to - from) * row_bytes(r);
    filter(r, from, to, p->rows);
    deflateReset(&p->z);
    if (i == 0)
        buf_add(&r->piece[i], (const uint8_t[]){HEAD >> 8, HEAD & 255}, 2);
    deflate_all(&p->z, p->rows, n, i == r->n - 1, &r->piece[i]);
    w->sum[i] = adler32(adler32(0, NULL, 0), p->rows, (uInt)n);
    w->length[i] = n;
}

/* Appends the checksum of all rows, high byte first, to the last piece. */
static int join(struct work *w)
{
    uLong sum = adler32(0, NULL, 0);
    for (int i = 0; i < w->r->n; i++) {
        if (w->r->piece[i].err)
            return w->r->piece[i].err;
        sum = adler32_combine(sum, w->sum[i], (z_off_t)w->length[i]);
    }
    struct buf *last = &w->r->piece[w->r->n - 1];
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_char(last, (char)(sum >> shift));
    return last->err;
}

static int press_make(struct press *p, const struct png_rows *r)
{
    p->rows = mem_alloc((size_t)rows_each(r), row_bytes(r));
    return p->rows && deflateInit2(&p->z, LEVEL, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK
               ? KVF_OK
               : KVF_E_NOMEM;
}

static int make(struct work *w, struct par *pool, int threads)
{
    int n = w->r->n, err = KVF_OK;
    w->press = MEM_NEW(struct press, (size_t)threads);
    w->sum = MEM_NEW(uLong, (size_t)n);
    w->length = MEM_NEW(size_t, (size_t)n);
    if (!w->press || !w->sum || !w->length)
        return KVF_E_NOMEM;
    for (int i = 0; i < threads && !err; i++)
        err = press_make(&w->press[i], w->r);
    if (err)
        return err;
    par_run(pool, n, compress_piece, w);
    return join(w);
}

int png_rows_make(struct png_rows *r, const uint32_t *rgb, int w, int h, int stride, int threads)
{
    *r = (struct png_rows){.rgb = rgb, .w = w, .h = h, .stride = stride};
    struct work work = {.r = r};
    struct par *pool = NULL;
    int n = (h + rows_each(r) - 1) / rows_each(r);
    r->piece = MEM_NEW(struct buf, (size_t)n);
    if (!r->piece)
        return KVF_E_NOMEM;
    r->n = n;
    int err = n > 1 ? par_create(threads, &pool) : KVF_OK;
    if (err)
        return err;
    err = make(&work, pool, par_threads(pool));
    for (int i = 0; work.press && i < par_threads(pool); i++) {
        deflateEnd(&work.press[i].z);
        mem_free(work.press[i].rows);
    }
    par_destroy(pool);
    mem_free_all(work.press, work.sum, work.length);
    return err;
}

void png_rows_finish(struct png_rows *r)
{
    for (int i = 0; i < r->n; i++)
        buf_finish(&r->piece[i]);
    mem_free(r->piece);
    *r = (struct png_rows){0};
}
