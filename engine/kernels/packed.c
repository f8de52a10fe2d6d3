/* packed.c - packs weight matrices and converts half precision numbers. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/kernels/blocks.h"
#include "engine/kernels/pack_room.h"
#include "engine/kernels/words.h"

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 1023, bits;
    if (exp == 0) { /* zero and subnormals: man * 2^-24, exact in f32 */
        float f = (float)man * 0x1p-24f;
        return sign ? -f : f;
    }
    bits = sign | (exp == 31 ? 0x7f800000u : (exp + 112) << 23) | man << 13;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

uint16_t float_to_half(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000u)
        return sign | 0x7e00; /* NaN */
    if (bits >= 0x477ff000u)
        return sign | 0x7c00; /* rounds to infinity */
    if (bits < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        float a;
        memcpy(&a, &bits, 4);
        a = (a + 0.5f) - 0.5f; /* ulp of [0.5, 1) is 2^-24: rounds half to even */
        return sign | (uint16_t)(a * 0x1p24f);
    }
    bits += 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((bits >> 13) - (112 << 10));
}

static uint16_t load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

/* Converts n halves to floats without a branch, so that compilers vectorise it. Exponents move by
 * 112; the largest exponent stays the largest. */
static void halves_to_floats(float *out, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t h = load16(p + 2 * i), bits = (h & 0x7fff) << 13;
        uint32_t rest = (bits >= 0x0f800000u ? 0x7f800000u : 0) | (h & 0x8000) << 16;
        float f;
        memcpy(&f, &bits, 4);
        f *= 0x1p112f;
        memcpy(&bits, &f, 4);
        bits |= rest;
        memcpy(out + i, &bits, 4);
    }
}

size_t weight_bytes(enum weight_type type, size_t n)
{
    const struct block_format *f = block_format((unsigned)type);
    size_t bytes;
    if (!f || !f->bytes || n % (size_t)f->block
        || !mem_mul(n / (size_t)f->block, (size_t)f->bytes, &bytes))
        return 0;
    return bytes;
}

int weight_block(unsigned type)
{
    const struct block_format *f = block_format(type);
    return f && f->bytes ? f->block : 0;
}

const char *weight_type_name(unsigned type)
{
    const struct block_format *f = block_format(type);
    return f ? f->name : "unknown";
}

void weight_types_read(char *out, size_t cap)
{
    size_t at = 0, last = 0, i = 0;
    for (; block_format_at(i); i++)
        last = block_format_at(i)->bytes ? i : last;
    for (i = 0; at < cap && i <= last; i++) {
        const struct block_format *f = block_format_at(i);
        const char *link = i == last ? " and " : ", ";
        if (f->bytes)
            at += (size_t)snprintf(out + at, cap - at, "%s%s", at ? link : "", f->name);
    }
}

bool weight_type_at(size_t i, enum weight_type *ret)
{
    const struct block_format *f = block_format_at(i);
    if (f)
        *ret = f->type;
    return f != NULL;
}

static void dequant_span(float *out, const struct span *b)
{
    for (int h = 0; h < 2; h++) {
        float d = half_to_float(b->d) * (float)b->s[h], m = half_to_float(b->e) * (float)b->n[h];
        for (int i = 0; i < QBLOCK / 2; i++)
            out[h * QBLOCK / 2 + i] = d * (float)b->q[h * QBLOCK / 2 + i] - m;
    }
}

static void dequant_blocks(float *out, const uint8_t *p, const struct block_format *f, size_t n)
{
    struct span b;
    for (size_t i = 0; i < n; i += (size_t)f->block, p += f->bytes)
        for (int s = 0; s < f->block / QBLOCK; s++) {
            f->decode(p, s, &b);
            dequant_span(out + i + (size_t)(s * QBLOCK), &b);
        }
}

void weight_dequant(float *out, const void *src, enum weight_type type, size_t n)
{
    const struct block_format *f = block_format((unsigned)type);
    const uint8_t *p = src;
    if (f->decode)
        dequant_blocks(out, p, f, n);
    else if (type == WEIGHT_F32)
        memcpy(out, src, n * 4);
    else if (type == WEIGHT_F16)
        halves_to_floats(out, p, n);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = brain_to_float(load16(p + 2 * i));
}

/* Returns how many of d and m are stored. */
static size_t scales_of(const struct packed *w)
{
    return w->lowest ? 1 : 2;
}

/* w = d q - e n = d u + m n with u = q - lowest. m is lowest d if e is 0, otherwise -e. In the
 * plain form n is -1 and m is added directly. */
static void pack_scales(struct packed *w, int r, size_t at, const struct block_format *f,
                        const struct span *b)
{
    size_t step = scales_of(w) * PANEL;
    uint16_t *scale = w->scale + at / (size_t)w->super * step + r;
    int8_t *fine = w->n_fine ? w->fine + at * (size_t)w->n_fine * step + r : NULL;
    bool centred = f->lowest != 0;
    scale[0] = b->d;
    for (int h = 0; h < w->n_fine; h++)
        fine[(size_t)h * step] = b->s[h];
    if (w->lowest)
        return;
    if (centred)
        scale[PANEL] = float_to_half((float)f->lowest * half_to_float(b->d));
    else
        scale[PANEL] = w->n_fine ? b->e ^ 0x8000 : b->e;
    for (int h = 0; h < w->n_fine; h++)
        fine[(size_t)h * step + PANEL] = centred ? b->s[h] : b->n[h];
}

/* Packs the 32 numbers of a row in a (panel, block), four per word, one word for each 64 bytes. */
static void pack_words(uint32_t word[8], const uint8_t u[QBLOCK], int bits)
{
    int n_high = bits - 4;
    memset(word, 0, 8 * sizeof *word);
    for (int g = 0; g < 8; g++) {
        uint32_t four;
        memcpy(&four, u + 4 * g, 4);
        if (bits == 8) {
            word[g] = four;
            continue;
        }
        word[g / 2] |= (four & 0x0f0f0f0f) << g % 2 * 4;
        if (n_high)
            word[4 + g * n_high / 8] |= (four >> 4 & 0x0f0f0f0f) << g * n_high % 8;
    }
}

static void pack_block(struct packed *w, int row, int block, const uint8_t *src,
                       const struct block_format *f)
{
    struct span b;
    uint8_t u[QBLOCK];
    uint32_t word[8];
    int bits = packed_bits(w->kind), r = row % PANEL, spans = f->block / QBLOCK;
    size_t at = (size_t)(row / PANEL) * (size_t)w->n_blocks + (size_t)block;
    f->decode(src + (size_t)(block / spans) * (size_t)f->bytes, block % spans, &b);
    pack_scales(w, r, at, f, &b);
    for (int i = 0; i < QBLOCK; i++)
        u[i] = (uint8_t)(b.q[i] - f->lowest);
    pack_words(word, u, bits);
    for (int i = 0; i < bits; i++)
        memcpy(w->data + at * 64 * (size_t)bits + i * 64 + r * 4, word + i, 4);
}

/* Returns true if lowest * d is not exact in f16 for some block. This happens only if d is close to
 * the largest f16 number. */
static bool scale_overflows(const struct pack_source *s, const struct block_format *f, int K)
{
    size_t n = weight_bytes(s->type, (size_t)K) * (size_t)s->n_rows;
    const uint8_t *p = s->data;
    for (size_t at = 0; p && f->lowest && at < n; at += (size_t)f->bytes)
        if (!(fabsf((float)f->lowest * half_to_float(load16(p + at + (size_t)f->d_at)))
              <= 65504.0f))
            return true;
    return false;
}

/* Updates kind and form so that they fit a further source. */
static void join_kind(struct packed *w, const struct pack_source *s, bool first)
{
    const struct block_format *f = block_format((unsigned)s->type);
    int super = f->n_fine ? f->block / QBLOCK : 1;
    if (first) {
        w->kind = f->kind;
        w->super = super;
        w->lowest = f->lowest;
    } else if (packed_quantised(w) && f->kind <= PACK_Q8) {
        w->kind = w->kind > f->kind ? w->kind : f->kind;
    } else if (w->kind != f->kind) {
        w->kind = PACK_F32;
    }
    if (f->n_fine > w->n_fine)
        w->n_fine = f->n_fine;
    if (super < w->super)
        w->super = super;
    if (w->lowest != f->lowest)
        w->lowest = 0;
    if (packed_quantised(w) && scale_overflows(s, f, w->K))
        w->kind = PACK_F32;
}

/* Sets kind, form and sizes of the packed matrix. */
static void choose_kind(const struct pack_source *src, int n_src, int K, enum pack_how how,
                        struct packed *w)
{
    memset(w, 0, sizeof *w);
    w->K = K;
    for (int i = 0; i < n_src; i++) {
        w->N += src[i].n_rows;
        join_kind(w, &src[i], i == 0);
    }
    if (how == PACK_EXACT)
        w->kind = PACK_F32;
    if (!packed_quantised(w)) {
        w->n_fine = w->super = w->lowest = 0;
        w->n_blocks = how == PACK_WORDS ? (int)words_blocks(K) : 0;
        w->kind = how == PACK_WORDS ? PACK_I16 : w->kind;
    } else {
        w->n_blocks = K / QBLOCK;
    }
    w->n_panels = (w->N + PANEL - 1) / PANEL;
}

/* Bytes of data, f16 numbers of scale and bytes of fine. */
struct lengths {
    size_t data, scale, fine;
};

static struct lengths lengths(const struct packed *w)
{
    static const uint8_t bits[] = {[PACK_Q4] = 4,   [PACK_Q5] = 5,   [PACK_Q6] = 6,   [PACK_Q8] = 8,
                                   [PACK_F32] = 32, [PACK_F16] = 16, [PACK_BF16] = 16};
    size_t cells = (size_t)w->n_panels * PANEL * (size_t)w->K;
    size_t blocks = (size_t)w->n_panels * (size_t)w->n_blocks;
    if (w->kind == PACK_I16)
        return (struct lengths){blocks * WORDS_BYTES, blocks * PANEL, 0};
    size_t step = scales_of(w) * PANEL;
    return (struct lengths){cells / 8 * bits[w->kind],
                            blocks ? blocks / (size_t)w->super * step : 0,
                            blocks * (size_t)w->n_fine * step};
}

enum { ROOM_ALIGN = 64 };

static size_t aligned(size_t bytes)
{
    return (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}

void pack_room_open(struct pack_room *room, uint64_t bytes, int n)
{
    uint64_t all = bytes + (uint64_t)n * 3 * ROOM_ALIGN;
    room->data = all <= SIZE_MAX ? mem_alloc_huge((size_t)all, 1) : NULL;
    room->bytes = room->data ? (size_t)all : 0;
    atomic_init(&room->used, 0);
}

void pack_room_close(struct pack_room *room)
{
    mem_free(room->data);
    room->data = NULL;
}

/* Returns NULL if the room does not have enough memory left. */
static uint8_t *take_of(struct pack_room *room, size_t bytes)
{
    size_t at = room ? atomic_fetch_add(&room->used, bytes) : 0;
    return room && at <= room->bytes && bytes <= room->bytes - at ? room->data + at : NULL;
}

static int take_memory(struct packed *w, struct pack_room *room)
{
    struct lengths n = lengths(w);
    size_t data = aligned(n.data), scale = aligned(2 * n.scale);
    uint8_t *p = take_of(room, data + scale + aligned(n.fine));
    w->lent = p != NULL;
    w->bytes = n.data + 2 * n.scale + n.fine;
    if (!p) {
        w->data = mem_alloc_huge(n.data, 1);
        w->scale = n.scale ? mem_alloc_raw(n.scale, 2) : NULL;
        w->fine = n.fine ? mem_alloc_raw(n.fine, 1) : NULL;
        return w->data && (w->scale || !n.scale) && (w->fine || !n.fine) ? KVF_OK : KVF_E_NOMEM;
    }
    w->data = p;
    w->scale = n.scale ? (uint16_t *)(void *)(p + data) : NULL;
    w->fine = n.fine ? (int8_t *)(p + data + scale) : NULL;
    return KVF_OK;
}

/* Clears the padding rows of the last panel. */
static void clear_last_panel(struct packed *w)
{
    struct packed last = packed_part(w, w->n_panels - 1, 1);
    memset(last.data, 0, (size_t)(w->data + lengths(w).data - last.data));
    if (w->scale)
        memset(last.scale, 0, (size_t)(w->scale + lengths(w).scale - last.scale) * 2);
    if (w->fine)
        memset(last.fine, 0, (size_t)(w->fine + lengths(w).fine - last.fine));
}

size_t packed_bytes(const struct pack_source *src, int n_src, int K, enum pack_how how)
{
    struct packed w;
    choose_kind(src, n_src, K, how, &w);
    struct lengths n = lengths(&w);
    return n.data + 2 * n.scale + n.fine;
}

static void pack_float_row(struct packed *w, int row, const uint8_t *src, enum weight_type type,
                           float *tmp)
{
    size_t at = (size_t)(row / PANEL) * (size_t)w->K * PANEL + (size_t)(row % PANEL);
    if (w->kind == PACK_F32 || w->kind == PACK_I16)
        weight_dequant(tmp, src, type, (size_t)w->K);
    if (w->kind == PACK_I16) {
        pack_words_row(w, row, tmp);
        return;
    }
    for (size_t k = 0; k < (size_t)w->K; k++, at += PANEL) {
        if (w->kind == PACK_F32)
            ((float *)(void *)w->data)[at] = tmp[k];
        else
            ((uint16_t *)(void *)w->data)[at] = load16(src + 2 * k);
    }
}

int packed_build(const struct pack_source *src, int n_src, int K, enum pack_how how,
                 struct packed *ret)
{
    return packed_build_in(NULL, src, n_src, K, how, ret);
}

int packed_build_in(struct pack_room *room, const struct pack_source *src, int n_src, int K,
                    enum pack_how how, struct packed *ret)
{
    float *tmp = mem_alloc(words_blocks(K) * WBLOCK, sizeof *tmp); /* zeros after channel K */
    choose_kind(src, n_src, K, how, ret);
    int err = tmp ? take_memory(ret, room) : KVF_E_NOMEM;
    if (err) {
        mem_free(tmp);
        packed_finish(ret);
        return err;
    }
    clear_last_panel(ret);
    int row = 0;
    for (int i = 0; i < n_src; i++) {
        size_t row_bytes = weight_bytes(src[i].type, (size_t)K);
        const struct block_format *f = block_format((unsigned)src[i].type);
        for (int r = 0; r < src[i].n_rows; r++, row++) {
            const uint8_t *p = (const uint8_t *)src[i].data + (size_t)r * row_bytes;
            if (!packed_quantised(ret))
                pack_float_row(ret, row, p, src[i].type, tmp);
            for (int b = 0; packed_quantised(ret) && b < ret->n_blocks; b++)
                pack_block(ret, row, b, p, f);
        }
    }
    mem_free(tmp);
    return KVF_OK;
}

struct packed packed_part(const struct packed *w, int p0, int n)
{
    struct packed v = *w;
    size_t first = (size_t)p0, blocks = first * (size_t)w->n_blocks, step = scales_of(w) * PANEL;
    if (w->kind == PACK_I16) {
        v.data += blocks * WORDS_BYTES;
        v.scale += blocks * PANEL;
    } else if (w->n_blocks) {
        v.data += blocks * 64 * (size_t)packed_bits(w->kind);
        v.scale += blocks / (size_t)w->super * step;
        v.fine = w->fine ? w->fine + blocks * (size_t)w->n_fine * step : NULL;
    } else {
        v.data += first * (size_t)w->K * PANEL * (w->kind == PACK_F32 ? 4 : 2);
    }
    v.N = w->N - p0 * PANEL < n * PANEL ? w->N - p0 * PANEL : n * PANEL;
    v.n_panels = n;
    return v;
}

void packed_finish(struct packed *p)
{
    if (!p->lent) {
        mem_free_all(p->data, p->scale, p->fine);
    }
    memset(p, 0, sizeof *p);
}

struct qrows qrows_from(const struct qrows *q, size_t t)
{
    size_t at = t * (size_t)q->K;
    struct qrows rows = *q;
    rows.q += at / QBLOCK * qrows_bytes(q);
    rows.scale += at / QBLOCK;
    rows.sum += at / QBLOCK;
    rows.half += at / QBLOCK * 2;
    return rows;
}

struct wrows wrows_from(const struct wrows *q, size_t t)
{
    size_t at = t * words_blocks(q->K);
    return (struct wrows){q->q + at * WBLOCK, q->scale + at, q->K};
}
