/* safetensors_write.c - writes safetensors files (safetensors_write.h). */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/replace.h"
#include "engine/gate/tensor_file.h"
#include "engine/gate/safetensors_write.h"

/* MAX_HEADER is the reader's limit for JSON, so that every written file can be read. */
enum { MAX_HEADER = 16 << 20, STRIPE = 4096 };

static int count(const struct safetensors_item *x, uint64_t *ret)
{
    uint64_t n = 1;
    if (x->n_dims < 0 || x->n_dims > TENSOR_DIMS
        || (x->type != WEIGHT_F32 && x->type != WEIGHT_BF16))
        return KVF_E_ARG;
    for (int i = 0; i < x->n_dims; i++)
        if (x->dim[i] == 0 || __builtin_mul_overflow(n, x->dim[i], &n) || n > (uint64_t)1 << 40)
            return KVF_E_ARG;
    *ret = n;
    return KVF_OK;
}

static void put_item(struct buf *b, const struct safetensors_item *x, uint64_t begin, uint64_t end)
{
    json_put_key(b, x->name);
    buf_printf(b, "{\"dtype\":\"%s\",\"shape\":[", x->type == WEIGHT_F32 ? "F32" : "BF16");
    for (int i = 0; i < x->n_dims; i++)
        buf_printf(b, "%s%llu", i ? "," : "", (unsigned long long)x->dim[i]);
    buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
               (unsigned long long)end);
}

/* Appends the metadata, with zeros at its end for the checksum.  Returns the offset of the zeros.
 */
static size_t put_notes(struct buf *b, const struct safetensors_note *note, int n)
{
    buf_str(b, "\"__metadata__\":{");
    for (int i = 0; i < n; i++) {
        json_put_key(b, note[i].key);
        json_put_str(b, note[i].value, strlen(note[i].value));
    }
    json_put_key(b, SAFETENSORS_CHECKSUM);
    size_t at = b->len + 1;
    buf_str(b, "\"" SAFETENSORS_ZEROS "\"}");
    return at;
}

/* Builds the header: its length, the JSON, and padding that aligns the tensors.  *ret_at: offset of
 * the checksum; 0: no metadata. */
static int make_header(const struct safetensors_item *item, int n,
                       const struct safetensors_note *note, int n_notes, struct buf *out,
                       size_t *ret_at, struct kvf_diag *d)
{
    struct buf b = {.max = MAX_HEADER};
    uint64_t at = 0, size;
    buf_char(&b, '{');
    *ret_at = n_notes ? 8 + put_notes(&b, note, n_notes) : 0;
    for (int i = 0; i < n; i++) {
        uint64_t one = item[i].type == WEIGHT_F32 ? 4 : 2;
        if (count(&item[i], &size) || at % one) {
            buf_finish(&b);
            return kvf_fail(d, KVF_E_ARG,
                            "tensor %s has a shape, type or place that cannot be "
                            "written",
                            item[i].name);
        }
        size *= one;
        put_item(&b, &item[i], at, at + size);
        at += size;
    }
    buf_char(&b, '}');
    while (b.len % 8 && !b.err)
        buf_char(&b, ' ');
    buf_le64(out, b.len);
    buf_add(out, b.data, b.len);
    int err = b.err ? b.err : out->err;
    buf_finish(&b);
    return err == KVF_E_LIMIT ? kvf_fail(d, err,
                                         "the metadata do not fit into a header of %d "
                                         "bytes",
                                         MAX_HEADER)
                              : err;
}

/* Rounds to bfloat16, the upper half of an f32: to nearest, ties to even.  A NaN stays a NaN. */
static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* The output of the bytes of a file: the disk, or the checksum. */
struct sink {
    struct replace *file;
    XXH3_state_t *hash;
};

static void put(const struct sink *s, const void *p, size_t n)
{
    if (s->file)
        replace_write(s->file, p, n);
    else
        XXH3_128bits_update(s->hash, p, n);
}

static void put_item_data(const struct sink *s, const struct safetensors_item *x)
{
    uint64_t n = 0;
    uint16_t part[STRIPE];
    if (count(x, &n))
        return;
    if (x->type == WEIGHT_F32) {
        put(s, x->data, n * 4);
        return;
    }
    for (uint64_t at = 0; at < n; at += STRIPE) {
        size_t k = n - at < STRIPE ? (size_t)(n - at) : STRIPE;
        for (size_t i = 0; i < k; i++)
            part[i] = to_bf16(x->data[at + i]);
        put(s, part, k * sizeof *part);
    }
}

static void put_all(const struct sink *s, const struct buf *header,
                    const struct safetensors_item *item, int n)
{
    put(s, header->data, header->len);
    for (int i = 0; i < n; i++)
        put_item_data(s, &item[i]);
}

/* Writes the checksum of the file into its header at offset `at`. */
static int seal(struct buf *header, size_t at, const struct safetensors_item *item, int n)
{
    char digits[SAFETENSORS_DIGITS + 1];
    struct sink s = {.hash = XXH3_createState()};
    if (!s.hash)
        return KVF_E_NOMEM;
    XXH3_128bits_reset(s.hash);
    put_all(&s, header, item, n);
    XXH128_hash_t h = XXH3_128bits_digest(s.hash);
    snprintf(digits, sizeof digits, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    memcpy(header->data + at, digits, SAFETENSORS_DIGITS);
    XXH3_freeState(s.hash);
    return KVF_OK;
}

int safetensors_write(const char *path, const struct safetensors_item *item, int n,
                      const struct safetensors_note *note, int n_notes, struct kvf_diag *d)
{
    struct buf header = {0};
    struct replace r;
    size_t at = 0;
    int err = make_header(item, n, note, n_notes, &header, &at, d);
    if (err) {
        kvf_diag_prefix(d, "%s", path);
        goto done;
    }
    if (at)
        err = seal(&header, at, item, n);
    if (!err)
        err = replace_open(&r, path, d);
    if (err)
        goto done;
    put_all(&(struct sink){.file = &r}, &header, item, n);
    err = replace_finish(&r, d);

done:
    buf_finish(&header);
    return err;
}
