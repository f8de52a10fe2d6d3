/* png_out.c - writes PNG files with libpng. */
#include <png.h>
#include <setjmp.h>

#include "render/png_out.h"
#include "render/png_rows.h"

static void on_write(png_structp png, png_bytep data, png_size_t n)
{
    struct buf *b = png_get_io_ptr(png);
    buf_add(b, data, n);
    if (b->err)
        png_error(png, "out of memory");
}

static void on_flush(png_structp png)
{
    (void)png;
}

static void on_error(png_structp png, png_const_charp text)
{
    (void)text;
    png_longjmp(png, 1);
}

static void write_rows(png_structp png, const struct png_rows *r)
{
    static const png_byte data[5] = "IDAT", end[5] = "IEND";
    for (int i = 0; i < r->n; i++)
        png_write_chunk(png, data, (png_const_bytep)r->piece[i].data, r->piece[i].len);
    png_write_chunk(png, end, NULL, 0);
}

/* Writes all chunks before the rows; on_error jumps out of it. */
static void write_head(png_structp png, png_infop info, int w, int h, double per_metre,
                       const char *title, const char *comment)
{
    const char *words[3][2] = {{"Title", title}, {"Software", "kvfate"}, {"Comment", comment}};
    png_text text[3] = {{0}};
    for (int i = 0; i < 3; i++)
        text[i] = (png_text){.compression = PNG_ITXT_COMPRESSION_NONE,
                             .key = (char *)(uintptr_t)words[i][0],
                             .text = (char *)(uintptr_t)words[i][1]};
    png_set_IHDR(png, info, (png_uint_32)w, (png_uint_32)h, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_pHYs(png, info, (png_uint_32)per_metre, (png_uint_32)per_metre, PNG_RESOLUTION_METER);
    png_set_text(png, info, text, 3);
    png_write_info(png, info);
}

int png_encode(const uint32_t *rgb, int w, int h, int stride, double per_metre, const char *title,
               const char *comment, int threads, struct buf *out)
{
    struct png_rows rows;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, on_error, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    volatile int err = png_rows_make(&rows, rgb, w, h, stride, threads);
    if (err)
        goto done;
    err = KVF_E_NOMEM;
    if (!info || setjmp(png_jmpbuf(png)))
        goto done;
    png_set_write_fn(png, out, on_write, on_flush);
    write_head(png, info, w, h, per_metre, title, comment);
    write_rows(png, &rows);
    err = KVF_OK;
done:
    png_destroy_write_struct(png ? &png : NULL, info ? &info : NULL);
    png_rows_finish(&rows);
    return err;
}
