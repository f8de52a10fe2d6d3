/* test_attention.c - attention kernels over one page of each cache type compared with double
 * precision. */
#include "engine/kernels/packed.h"
#include "variants.h"

/* Kernels keep converted keys of up to 256 channels for several tiles of rows. */
static const int dims[] = {16, 20, 32, 64, 80, 128, 256, 272};
enum { N_DIMS = sizeof dims / sizeof *dims, MAX_D = 272, MAX_T = 25 };

/* A full page of each kind, filled by kv_store, and its stored values. */
struct pages {
    void *k, *v;
    float key[PAGE_SLOTS][MAX_D], value[PAGE_SLOTS][MAX_D];
};

/* Rounds x as a page of the type stores it; for q8_0 by its equations. */
static void round_row(float *x, int D, enum kv_type type)
{
    for (int d = 0; type == KV_F16 && d < D; d++)
        x[d] = half_to_float(float_to_half(x[d]));
    for (int d0 = 0; type == KV_Q8_0 && d0 < D; d0 += 32) {
        int end = d0 + 32 < D ? d0 + 32 : D;
        double max = 0;
        for (int d = d0; d < end; d++)
            max = fmax(max, fabs((double)x[d]));
        double scale = (double)half_to_float(float_to_half((float)max / 127));
        for (int d = d0; d < end; d++) {
            double q = scale > 0 ? rint((double)(x[d] / (float)scale)) : 0;
            x[d] = (float)(scale * fmax(-127, fmin(127, q)));
        }
    }
    float max = 0;
    for (int d = 0; type == KV_I16 && d < D; d++)
        max = fmaxf(max, fabsf(x[d]));
    for (int d = 0; type == KV_I16 && d < D; d++)
        x[d] = rintf(x[d] * (4095 / max)) * (max / 4095);
}

static void fill_pages(struct pages *p, const struct kernels *k, struct rng *r, int D,
                       enum kv_type type)
{
    p->k = guard(kv_half_bytes(type, D));
    p->v = guard(kv_half_bytes(type, D));
    for (int s = 0; s < PAGE_SLOTS; s++) {
        fill_normal(r, p->key[s], (size_t)D, 2);
        fill_normal(r, p->value[s], (size_t)D, 2);
        k->kv_store(p->k, p->v, type, s, p->key[s], p->value[s], D);
        round_row(p->key[s], D, type);
        round_row(p->value[s], D, type);
    }
}

/* Reads an i16 page: key channels and value slots are stored in pairs, scales at the end. */
static float stored_int(const void *page, bool keys, int D, int s, int d)
{
    int at = keys ? (d / 2 * PAGE_SLOTS + s) * 2 + d % 2 : (s / 2 * D + d) * 2 + s % 2;
    const float *scales = (const float *)page + (D + 1) / 2 * PAGE_SLOTS;
    return (float)((const int16_t *)page)[at] * scales[s];
}

/* Reads a q8_0 page: four key channels, or four value slots, are adjacent. The scales of all blocks
 * are at the end. */
static float stored_byte(const void *page, bool keys, int D, int s, int d)
{
    const int8_t *q = page;
    int at = keys ? (d / 4 * PAGE_SLOTS + s) * 4 + d % 4 : (s / 4 * D + d) * 4 + s % 4;
    const uint16_t *scales = (const uint16_t *)(const void *)(q + (D + 3) / 4 * 4 * PAGE_SLOTS);
    return (float)q[at] * half_to_float(scales[d / 32 * PAGE_SLOTS + s]);
}

static float stored(const void *page, enum kv_type type, bool keys, int D, int s, int d)
{
    int at = keys ? d * PAGE_SLOTS + s : s * D + d;
    if (type == KV_I16)
        return stored_int(page, keys, D, s, d);
    if (type == KV_Q8_0)
        return stored_byte(page, keys, D, s, d);
    if (type == KV_F32)
        return ((const float *)page)[at];
    return half_to_float(((const uint16_t *)page)[at]);
}

Test(attention, entries_lie_where_the_contract_says)
{
    VARIANTS(v, n);
    static struct pages p;
    struct rng r = rng_seeded(1);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++)
            for (int type = KV_F32; type < KV_TYPES; type++) {
                int D = dims[c];
                bool ok = true;
                fill_pages(&p, &v[i].k, &r, D, (enum kv_type)type);
                for (int s = 0; s < PAGE_SLOTS; s++)
                    for (int d = 0; d < D; d++) {
                        enum kv_type of = (enum kv_type)type;
                        ok = ok && stored(p.k, of, true, D, s, d) == p.key[s][d];
                        ok = ok && stored(p.v, of, false, D, s, d) == p.value[s][d];
                    }
                cr_expect(ok, "%s: D %d, type %d", v[i].name, D, type);
                cr_expect(intact(p.k) && intact(p.v), "%s wrote outside", v[i].name);
            }
}

/* Returns the slot of byte `at` of a half page, for a multiple of four channels. */
static int slot_of(size_t at, enum kv_type type, int D, bool keys)
{
    static const size_t widths[KV_TYPES] = {
        [KV_F32] = 4, [KV_F16] = 2, [KV_Q8_0] = 1, [KV_I16] = 2};
    size_t width = widths[type], elements = (size_t)D * width * 64, row = (size_t)D;
    if (at >= elements) /* scales */
        return (int)((at - elements) / (type == KV_I16 ? 4 : 2) % PAGE_SLOTS);
    if (type == KV_I16) /* pairs */
        return (int)(keys ? at / 4 % PAGE_SLOTS : at / 4 / row * 2 + at / 2 % 2);
    if (type == KV_Q8_0)
        return (int)(keys ? at / 4 % PAGE_SLOTS : at / 4 / row * 4 + at % 4);
    return (int)(keys ? at / width % PAGE_SLOTS : at / width / row);
}

/* Storing one slot does not change other slots. */
Test(attention, store_leaves_other_slots_alone)
{
    VARIANTS(v, n);
    static struct pages p;
    struct rng r = rng_seeded(2);
    for (int i = 0; i < n; i++)
        for (int type = KV_F32; type < KV_TYPES; type++) {
            enum { D = 64, SLOT = 37 };
            fill_pages(&p, &v[i].k, &r, D, (enum kv_type)type);
            size_t bytes = kv_half_bytes((enum kv_type)type, D);
            unsigned char *k0 = mem_alloc(bytes, 1), *v0 = mem_alloc(bytes, 1);
            memcpy(k0, p.k, bytes);
            memcpy(v0, p.v, bytes);
            float ones[D];
            for (int d = 0; d < D; d++)
                ones[d] = 1;
            v[i].k.kv_store(p.k, p.v, (enum kv_type)type, SLOT, ones, ones, D);
            int changed = 0;
            for (size_t at = 0; at < bytes; at++) {
                enum kv_type kv = (enum kv_type)type;
                bool k_other = slot_of(at, kv, D, true) != SLOT;
                bool v_other = slot_of(at, kv, D, false) != SLOT;
                changed += k_other && ((unsigned char *)p.k)[at] != k0[at];
                changed += v_other && ((unsigned char *)p.v)[at] != v0[at];
            }
            cr_expect(zero(int, changed), "%s, type %d", v[i].name, type);
            mem_free(k0);
            mem_free(v0);
            cr_expect(intact(p.k) && intact(p.v));
        }
}

static void check_qk(const struct variant *v, const struct pages *p, struct rng *r, int D, int T,
                     enum kv_type type)
{
    enum { LD_Q = MAX_D + 3, LD_S = PAGE_SLOTS * 2 };
    float q[MAX_T * LD_Q], one[PAGE_SLOTS];
    size_t used = (size_t)(T - 1) * LD_S + PAGE_SLOTS;
    float *s = guard(used * sizeof *s);
    fill_normal(r, q, MAX_T * LD_Q, 1);
    const struct kv_keys keys = {p->k, type, p->v}, alone = {p->k, type, NULL};
    v->k.attn_qk(s, LD_S, q, LD_Q, T, D, &keys, 0.125f);
    double bad = 0;
    for (int t = 0; t < T; t++) {
        for (int slot = 0; slot < PAGE_SLOTS; slot++) {
            double sum = 0, size = 0;
            for (int d = 0; d < D; d++) {
                sum += (double)q[t * LD_Q + d] * (double)p->key[slot][d];
                size += fabs((double)q[t * LD_Q + d] * (double)p->key[slot][d]);
            }
            double bound = (D + 2) * 0x1p-24 * size * 0.125;
            bad = worst(fabs((double)s[t * LD_S + slot] - sum * 0.125) / bound, bad);
        }
        v->k.attn_qk(one, PAGE_SLOTS, q + t * LD_Q, LD_Q, 1, D, &alone, 0.125f);
        cr_expect(zero(int, memcmp(one, s + t * LD_S, sizeof one)),
                  "%s: D %d, T %d, row %d differs from the row alone", v->name, D, T, t);
    }
    for (int t = 0; t + 1 < T; t++) /* the gap between two rows of scores */
        for (int i = PAGE_SLOTS; i < LD_S; i++)
            cr_assert(zero(int, memcmp(s + t * LD_S + i, "\xa5\xa5\xa5\xa5", 4)), "%s", v->name);
    cr_expect(bad <= 1, "%s: D %d, T %d: %g times the bound", v->name, D, T, bad);
    cr_expect(intact(s), "%s wrote outside", v->name);
}

Test(attention, scores_are_scaled_dot_products)
{
    VARIANTS(v, n);
    static struct pages p;
    struct rng r = rng_seeded(3);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++)
            for (int type = KV_F32; type < KV_TYPES; type++) {
                fill_pages(&p, &v[i].k, &r, dims[c], (enum kv_type)type);
                for (int T = 1; T <= MAX_T; T++)
                    check_qk(&v[i], &p, &r, dims[c], T, (enum kv_type)type);
                cr_expect(intact(p.k) && intact(p.v));
            }
}

static void check_av(const struct variant *v, const struct pages *p, struct rng *r, int D, int T,
                     enum kv_type type, int n_slots)
{
    enum { LD_P = PAGE_SLOTS + 5 };
    float w[MAX_T * LD_P], start[MAX_T * MAX_D], one[MAX_D];
    float *out = guard((size_t)T * (size_t)D * sizeof *out);
    fill_normal(r, w, MAX_T * LD_P, 1);
    fill_normal(r, start, MAX_T * MAX_D, 1);
    memcpy(out, start, (size_t)T * (size_t)D * sizeof *out);
    const struct kv_values values = {p->v, type, D, 0, D, n_slots, p->k};
    v->k.attn_av(out, (size_t)D, w, LD_P, T, &values);
    double bad = 0;
    for (int t = 0; t < T; t++) {
        for (int d = 0; d < D; d++) {
            double sum = (double)start[t * D + d], size = fabs(sum);
            for (int s = 0; s < n_slots; s++) {
                sum += (double)w[t * LD_P + s] * (double)p->value[s][d];
                size += fabs((double)w[t * LD_P + s] * (double)p->value[s][d]);
            }
            bad = worst(fabs((double)out[t * D + d] - sum) / ((n_slots + 1) * 0x1p-24 * size), bad);
        }
        memcpy(one, start + t * D, (size_t)D * sizeof *one);
        for (int d = 0; d < D; d += KV_BLOCK) { /* also in parts */
            int end = d + KV_BLOCK < D ? d + KV_BLOCK : D;
            const struct kv_values part = {p->v, type, D, d, end, n_slots, NULL};
            v->k.attn_av(one, MAX_D, w + t * LD_P, LD_P, 1, &part);
        }
        cr_expect(zero(int, memcmp(one, out + t * D, (size_t)D * sizeof *one)),
                  "%s: D %d, T %d, row %d differs from the row alone", v->name, D, T, t);
    }
    cr_expect(bad <= 1, "%s: D %d, T %d, %d slots: %g times the bound", v->name, D, T, n_slots,
              bad);
    cr_expect(intact(out), "%s wrote outside", v->name);
}

Test(attention, values_are_summed_over_the_used_slots)
{
    static const int slots[] = {1, 2, 15, 33, 63, 64};
    VARIANTS(v, n);
    static struct pages p;
    struct rng r = rng_seeded(4);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++)
            for (int type = KV_F32; type < KV_I16; type++) {
                fill_pages(&p, &v[i].k, &r, dims[c], (enum kv_type)type);
                for (int T = 1; T <= MAX_T; T++)
                    check_av(&v[i], &p, &r, dims[c], T, (enum kv_type)type, slots[T % 6]);
                cr_expect(intact(p.k) && intact(p.v));
            }
}

/* Sums have a fixed order with fused operations, so all variants give the same bits. */
static void check_bits(const struct variant *v, int n, enum kv_type type, struct rng *r)
{
    static struct pages p;
    enum { T = 25, D = 80 };
    float q[T * D], w[T * PAGE_SLOTS];
    fill_normal(r, q, T * D, 1);
    fill_normal(r, w, T * PAGE_SLOTS, 1);
    fill_pages(&p, &v[0].k, r, D, type);
    for (int i = 1; i < n; i++) {
        float s[2][T * PAGE_SLOTS], o[2][T * D] = {{0}, {0}};
        for (int j = 0; j < 2; j++) {
            const struct kernels *k = &v[j * i].k;
            const struct kv_keys keys = {p.k, type, j ? p.v : NULL};
            k->attn_qk(s[j], PAGE_SLOTS, q, D, T, D, &keys, 0.3f);
            const struct kv_values values = {p.v, type, D, 0, D, 61, j ? p.k : NULL};
            k->attn_av(o[j], D, w, PAGE_SLOTS, T, &values);
        }
        cr_expect(zero(int, memcmp(s[0], s[1], sizeof s[0])), "%s: scores", v[i].name);
        cr_expect(zero(int, memcmp(o[0], o[1], sizeof o[0])), "%s: outputs", v[i].name);
    }
    cr_expect(intact(p.k) && intact(p.v));
}

Test(attention, variants_agree_to_the_bit)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(5);
    check_bits(v, n, KV_F16, &r);
    check_bits(v, n, KV_Q8_0, &r);
    check_bits(v, n, KV_I16, &r);
}

/* Products with q8_0 elements are not rounded: an f32 page of the same values gives the same
 * result. */
Test(attention, q8_0_gives_what_its_values_give_in_f32)
{
    enum { T = 5 };
    VARIANTS(v, n);
    static struct pages p;
    static _Alignas(64) float fk[MAX_D * PAGE_SLOTS], fv[MAX_D * PAGE_SLOTS];
    float q[T * MAX_D], w[T * PAGE_SLOTS];
    struct rng r = rng_seeded(6);
    fill_normal(&r, q, T * MAX_D, 1);
    fill_normal(&r, w, T * PAGE_SLOTS, 1);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++) {
            int D = dims[c];
            float s[2][T * PAGE_SLOTS], o[2][T * MAX_D] = {{0}, {0}};
            const struct kernels *k = &v[i].k;
            fill_pages(&p, k, &r, D, KV_Q8_0);
            for (int j = 0; j < PAGE_SLOTS; j++)
                k->kv_store(fk, fv, KV_F32, j, p.key[j], p.value[j], D);
            for (int j = 0; j < 2; j++) {
                enum kv_type type = j ? KV_F32 : KV_Q8_0;
                const struct kv_keys keys = {j ? fk : p.k, type, NULL};
                k->attn_qk(s[j], PAGE_SLOTS, q, (size_t)D, T, D, &keys, 0.3f);
                const struct kv_values values = {j ? fv : p.v, type, D, 0, D, 63, NULL};
                k->attn_av(o[j], (size_t)D, w, PAGE_SLOTS, T, &values);
            }
            cr_expect(zero(int, memcmp(s[0], s[1], sizeof s[0])), "%s: D %d", v[i].name, D);
            cr_expect(zero(int, memcmp(o[0], o[1], sizeof o[0])), "%s: D %d", v[i].name, D);
            cr_expect(intact(p.k) && intact(p.v));
        }
}

/* |x - q d| <= d / 2 + 127 d 2^-11. Covers blocks of zeros, tiny and large values. */
Test(attention, q8_0_stays_within_half_a_step)
{
    enum { D = 96 };
    static const float sizes[] = {0, 1e-9f, 1e-3f, 1, 300, 6e4f};
    struct kernels k;
    kernels_init(&k, cpu_flags_detect());
    struct rng r = rng_seeded(7);
    void *keys = guard(kv_half_bytes(KV_Q8_0, D));
    void *values = guard(kv_half_bytes(KV_Q8_0, D));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        float x[D], y[D];
        double bad = 0;
        fill_normal(&r, x, D, 0.2);
        fill_normal(&r, y, D, 0.2);
        for (int d = 0; d < D; d++) {
            x[d] *= sizes[i];
            y[d] *= sizes[i];
        }
        k.kv_store(keys, values, KV_Q8_0, 11, x, y, D);
        for (int d = 0; d < D; d++) {
            double max[2] = {0};
            for (int e = d / 32 * 32; e < d / 32 * 32 + 32; e++) {
                max[0] = fmax(max[0], fabs((double)x[e]));
                max[1] = fmax(max[1], fabs((double)y[e]));
            }
            double tiny = 127 * 0x1p-24, step = max[0] / 127, vstep = max[1] / 127;
            double dk = fabs((double)x[d] - (double)kv_key_at(keys, KV_Q8_0, D, 11, d));
            double dv = fabs((double)y[d] - (double)kv_value_at(values, KV_Q8_0, D, 11, d));
            bad = worst(dk / (step * (0.5 + 127 * 0x1p-11) + tiny), bad);
            bad = worst(dv / (vstep * (0.5 + 127 * 0x1p-11) + tiny), bad);
        }
        cr_expect(bad <= 1, "size %g: %g times the bound", (double)sizes[i], bad);
    }
    cr_expect(intact(keys) && intact(values));
}
