/* pack.c - compresses numbers and writes them as base64. */
#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "render/report/pack.h"

const char *const pack_names[] = {"u1", "u2", "u4", "i1", "i2", "i4", "f4", "f8"};

int pack_width(enum pack_type type)
{
    return pack_names[type][1] - '0';
}

/* Returns the bits of v in the type. */
static uint64_t bits_of(double v, enum pack_type type)
{
    uint64_t out = 0;
    float f = (float)v;
    uint32_t word;
    if (type == PACK_F64) {
        memcpy(&out, &v, sizeof out);
    } else if (type == PACK_F32) {
        memcpy(&word, &f, sizeof word);
        out = word;
    } else {
        out = (uint64_t)(int64_t)v;
    }
    return out;
}

int pack_values(struct buf *out, const double *v, int64_t n, enum pack_type type)
{
    size_t width = (size_t)pack_width(type), bytes;
    if (!mem_mul((size_t)n, width, &bytes))
        return KVF_E_LIMIT;
    uLongf room = compressBound((uLong)bytes);
    unsigned char *plain = MEM_NEW(unsigned char, bytes), *packed = MEM_NEW(unsigned char, room);
    int err = plain && packed ? KVF_OK : KVF_E_NOMEM;
    for (int64_t i = 0; !err && i < n; i++) {
        uint64_t bits = bits_of(v[i], type);
        for (size_t k = 0; k < width; k++)
            plain[k * (size_t)n + (size_t)i] = (unsigned char)(bits >> (8 * k));
    }
    if (!err && compress2(packed, &room, plain, (uLong)bytes, 8) != Z_OK)
        err = KVF_E_NOMEM;
    if (!err) {
        buf_base64(out, packed, room);
        err = out->err;
    }
    mem_free_all(plain, packed);
    return err;
}
