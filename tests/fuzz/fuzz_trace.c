/* fuzz_trace.c - any bytes as a trace: opened in every mode, verified, and read completely. Each
 * input is used twice, unchanged and with all checksums corrected; otherwise no mutation would get
 * past the first record. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../format/tiny.h"
#include "libtrace/crc32c.h"
#include "libtrace/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16, VALUES = 4096, READS = 48 };

/* Sums up bytes, so that memory tools see each of them used. */
static volatile unsigned sink;
static void use(const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sink += ((const unsigned char *)p)[i];
}

/* Reads the intervals of a head and checks the guarantees of the reader. */
static void read_lists(struct kvf_trace *t, int column, int layer, int head)
{
    static uint32_t end[VALUES];
    const struct kvf_interval *v;
    uint32_t n = kvf_n_steps(t) < VALUES ? kvf_n_steps(t) : VALUES, k = 0;
    if (n == 0 || kvf_read_intervals(t, column, layer, head, 0, n, end, &v, NULL) != KVF_OK)
        return;
    for (uint32_t i = 0, least; i < n; i++)
        for (least = i; k < end[i]; least = v[k++].last + 2)
            if (v[k].first < least || v[k].last < v[k].first || v[k].last >= kvf_n_steps(t))
                abort();
}

static void read_columns(struct kvf_trace *t)
{
    static double wide[VALUES];
    static uint64_t raw[VALUES];
    static int32_t narrow[VALUES];
    int left = READS;
    uint32_t n = kvf_n_steps(t) < VALUES ? kvf_n_steps(t) : VALUES;
    for (int c = 0; c < kvf_n_columns(t) && left > 0; c++) {
        const struct kvf_column *col = kvf_column(t, c);
        size_t width = kvf_dtype_size((enum kvf_dtype)col->dtype);
        if (kvf_find(t, col->name) > c)
            abort(); /* the first column of a name is found */
        for (int l = 0; l < kvf_n_layers(t) && left > 0; l++)
            for (int h = 0; h < kvf_n_heads(t, l, (enum kvf_space)col->space) && left-- > 0; h++) {
                if (kvf_read(t, c, l, h, 0, n, raw, NULL) == KVF_OK)
                    use(raw, n * width);
                kvf_read_f64(t, c, l, h, n / 2, n - n / 2, wide, NULL);
                kvf_read_i32(t, c, l, h, 3, 5, narrow, NULL);
                read_lists(t, c, l, h);
            }
    }
}

static void read_blobs(struct kvf_trace *t)
{
    struct kvf_blob b;
    const void *p;
    for (int i = 0; i < kvf_n_blobs(t) && i < READS; i++) {
        int told = kvf_blob(t, i, &b, NULL), seen = kvf_blob_view(t, i, &p, NULL);
        if (seen == KVF_OK && (told != KVF_OK || kvf_blob_size(&b) == 0))
            abort(); /* a readable blob has a description */
        if (seen == KVF_OK)
            use(p, kvf_blob_size(&b));
    }
}

static void hear(void *ctx, const char *line)
{
    if (!line[0] || ++*(int *)ctx > KVF_MAX_FINDINGS)
        abort();
}

static void judge(struct kvf_trace *t)
{
    int heard = 0, n = -1;
    char digest[33];
    struct kvf_diag d = {""};
    if (kvf_judge(t, 1, hear, &heard, &n) != KVF_OK || n != heard)
        abort();
    if (kvf_digest(t, digest, &d) != KVF_OK && !d.text[0])
        abort();
}

static void read_all(struct kvf_trace *t)
{
    const char *note = kvf_note(t, "result");
    size_t len;
    use(kvf_meta(t), strlen(kvf_meta(t)));
    if (note)
        use(note, strlen(note));
    for (uint32_t i = 0; i < 64; i++) {
        const char *text = kvf_token(t, i, &len);
        if (text)
            use(text, len);
    }
    read_columns(t);
    read_blobs(t);
    judge(t);
}

static void try_bytes(const unsigned char *p, size_t n)
{
    const char *path = as_file(p, n);
    struct kvf_check quick, full;
    struct kvf_diag d = {""};
    int ok = kvf_verify(path, 0, &quick, &d), all = kvf_verify(path, 1, &full, &d);
    if (all == KVF_OK && (ok != KVF_OK || quick.records != full.records))
        abort(); /* the full check may only find more */
    for (int mode = KVF_OPEN_TAIL; mode <= KVF_OPEN_SALVAGE; mode++) {
        struct kvf_trace *t = NULL;
        d.text[0] = 0;
        int err = kvf_open(path, (enum kvf_open_mode)mode, &t, &d);
        if (err && (t || !d.text[0]))
            abort(); /* no trace, but a message */
        if (all == KVF_OK && err && mode != KVF_OPEN_STRICT)
            abort(); /* a verified trace opens */
        if (!err)
            read_all(t);
        kvf_close(t);
    }
}

/* Corrects the checksum of every reachable record. */
static void mend(unsigned char *p, size_t n)
{
    static const unsigned char plain[RECORD_HEADER];
    if (n < FILE_HEADER)
        return;
    bool chained = p[16] & FEATURE_CHAINED; /* otherwise, a file of format 0.1 remains one */
    size_t size = header_size(chained);
    file_header_write(p, &(struct hash128){.low = 7});
    if (!chained) {
        memcpy(p + 32, plain, 16);
        put_le(p + 16, 0, 4);
        put_le(p + 60, crc32c(0, p, 60), 4);
    }
    uint64_t link = hash64(p, FILE_HEADER);
    for (size_t at = FILE_HEADER; n - at >= size;) {
        struct record r = {.salt = 7, .seq = get_le(p + at + 8, 8), .offset = at};
        uint64_t stored = get_le(p + at + 16, 8);
        if (stored > n - at - size)
            break;
        unsigned char *h = p + at;
        put_le(h, 0x52465ac5u, 4);
        put_le(h + 4, size, 2);
        put_le(h + 56, 7, 4);
        put_le(h + 68, at, 8);
        put_le(h + 52, payload_crc(&r, h + size, (size_t)stored), 4);
        if (chained)
            put_le(h + 76, link, 8);
        put_le(h + size - 4, crc32c(0, h, size - 4), 4);
        link = hash64(h, size);
        at += size + (size_t)padded(stored);
        if (at > n)
            return;
    }
    if (n >= FILE_HEADER + FOOTER) {
        unsigned char *f = p + n - FOOTER;
        if (chained)
            put_le(f + 24, link, 8);
        put_le(f + 36, 7, 4);
        put_le(f + 60, crc32c(0, f, 60), 4);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char copy[MOST];
    if (size > MOST)
        return 0;
    memcpy(copy, data, size);
    try_bytes(copy, size);
    mend(copy, size);
    try_bytes(copy, size);
    return 0;
}
