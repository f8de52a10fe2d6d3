#include "engine/kernels/packed.h"
#include "variants.h"

static const int dims[] = {16, 20, 32, 64, 80, 128};
enum { N_DIMS = sizeof dims / sizeof *dims, MAX_D = 128, MAX_T = 17 };

static size_t page_bytes(int D, enum kv_type type)
{
    return (size_t)D * PAGE_SLOTS * (type == KV_F16 ? 2 : 4);
}

/* A full page of each kind, filled through kv_store, and its values as stored. */
struct pages {
    void *k, *v;
    struct guarded gk, gv;
    float key[PAGE_SLOTS][MAX_D], value[PAGE_SLOTS][MAX_D];
};

static void fill_pages(struct pages *p, const struct kernels *k, struct rng *r, int D,
                       enum kv_type type)
{
    p->k = guard(&p->gk, page_bytes(D, type));
    p->v = guard(&p->gv, page_bytes(D, type));
    for (int s = 0; s < PAGE_SLOTS; s++) {
        fill_normal(r, p->key[s], (size_t)D, 2);
        fill_normal(r, p->value[s], (size_t)D, 2);
        k->kv_store(p->k, p->v, type, s, p->key[s], p->value[s], D);
        for (int d = 0; type == KV_F16 && d < D; d++) {
            p->key[s][d] = half_to_float(float_to_half(p->key[s][d]));
            p->value[s][d] = half_to_float(float_to_half(p->value[s][d]));
        }
    }
}

static float stored(const void *page, enum kv_type type, size_t at)
{
    return type == KV_F16 ? half_to_float(((const uint16_t *)page)[at]) : ((const float *)page)[at];
}

Test(attention, entries_lie_where_the_contract_says)
{
    struct variant v[MAX_VARIANTS];
    struct rng r;
    static struct pages p;
    rng_init(&r, 1);
    int n = variants(v);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++)
            for (int type = KV_F32; type <= KV_F16; type++) {
                int D = dims[c];
                bool ok = true;
                fill_pages(&p, &v[i].k, &r, D, (enum kv_type)type);
                for (int s = 0; s < PAGE_SLOTS; s++)
                    for (int d = 0; d < D; d++) {
                        size_t k = (size_t)(d * PAGE_SLOTS + s), val = (size_t)(s * D + d);
                        ok = ok && stored(p.k, (enum kv_type)type, k) == p.key[s][d];
                        ok = ok && stored(p.v, (enum kv_type)type, val) == p.value[s][d];
                    }
                cr_expect(ok, "%s: D %d, type %d", v[i].name, D, type);
                cr_expect(intact(&p.gk) && intact(&p.gv), "%s wrote outside", v[i].name);
            }
}

/* Storing one slot touches no other. */
Test(attention, store_leaves_other_slots_alone)
{
    struct variant v[MAX_VARIANTS];
    static struct pages p;
    struct rng r;
    rng_init(&r, 2);
    int n = variants(v);
    for (int i = 0; i < n; i++)
        for (int type = KV_F32; type <= KV_F16; type++) {
            enum { D = 64, SLOT = 37 };
            fill_pages(&p, &v[i].k, &r, D, (enum kv_type)type);
            size_t bytes = page_bytes(D, (enum kv_type)type), width = bytes / D / PAGE_SLOTS;
            unsigned char *k0 = mem_alloc(bytes, 1), *v0 = mem_alloc(bytes, 1);
            memcpy(k0, p.k, bytes);
            memcpy(v0, p.v, bytes);
            float ones[D];
            for (int d = 0; d < D; d++)
                ones[d] = 1;
            v[i].k.kv_store(p.k, p.v, (enum kv_type)type, SLOT, ones, ones, D);
            int changed = 0;
            for (size_t at = 0; at < bytes; at++) {
                size_t slot_k = at / width % PAGE_SLOTS, slot_v = at / width / D;
                changed += slot_k != SLOT && ((unsigned char *)p.k)[at] != k0[at];
                changed += slot_v != SLOT && ((unsigned char *)p.v)[at] != v0[at];
            }
            cr_expect(zero(int, changed), "%s, type %d", v[i].name, type);
            mem_free(k0);
            mem_free(v0);
            cr_expect(intact(&p.gk) && intact(&p.gv));
        }
}

static void check_qk(const struct variant *v, const struct pages *p, struct rng *r, int D, int T,
                     enum kv_type type)
{
    enum { LD_Q = MAX_D + 3, LD_S = PAGE_SLOTS * 2 };
    float q[MAX_T * LD_Q], one[PAGE_SLOTS];
    struct guarded g;
    size_t used = (size_t)(T - 1) * LD_S + PAGE_SLOTS;
    float *s = guard(&g, used * sizeof *s);
    fill_normal(r, q, MAX_T * LD_Q, 1);
    v->k.attn_qk(s, LD_S, q, LD_Q, T, D, p->k, type, 0.125f);
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
        v->k.attn_qk(one, PAGE_SLOTS, q + t * LD_Q, LD_Q, 1, D, p->k, type, 0.125f);
        cr_expect(zero(int, memcmp(one, s + t * LD_S, sizeof one)),
                  "%s: D %d, T %d, row %d differs from the row alone", v->name, D, T, t);
    }
    for (int t = 0; t + 1 < T; t++) /* the gap between two rows of scores */
        for (int i = PAGE_SLOTS; i < LD_S; i++)
            cr_assert(zero(int, memcmp(s + t * LD_S + i, "\xa5\xa5\xa5\xa5", 4)), "%s", v->name);
    cr_expect(bad <= 1, "%s: D %d, T %d: %g times the bound", v->name, D, T, bad);
    cr_expect(intact(&g), "%s wrote outside", v->name);
}

Test(attention, scores_are_scaled_dot_products)
{
    struct variant v[MAX_VARIANTS];
    static struct pages p;
    struct rng r;
    rng_init(&r, 3);
    int n = variants(v);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++)
            for (int type = KV_F32; type <= KV_F16; type++) {
                fill_pages(&p, &v[i].k, &r, dims[c], (enum kv_type)type);
                for (int T = 1; T <= MAX_T; T++)
                    check_qk(&v[i], &p, &r, dims[c], T, (enum kv_type)type);
                cr_expect(intact(&p.gk) && intact(&p.gv));
            }
}

static void check_av(const struct variant *v, const struct pages *p, struct rng *r, int D, int T,
                     enum kv_type type, int n_slots)
{
    enum { LD_P = PAGE_SLOTS + 5 };
    float w[MAX_T * LD_P], start[MAX_T * MAX_D], one[MAX_D];
    struct guarded g;
    float *out = guard(&g, (size_t)T * (size_t)D * sizeof *out);
    fill_normal(r, w, MAX_T * LD_P, 1);
    fill_normal(r, start, MAX_T * MAX_D, 1);
    memcpy(out, start, (size_t)T * (size_t)D * sizeof *out);
    v->k.attn_av(out, (size_t)D, w, LD_P, T, D, p->v, type, n_slots);
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
        v->k.attn_av(one, MAX_D, w + t * LD_P, LD_P, 1, D, p->v, type, n_slots);
        cr_expect(zero(int, memcmp(one, out + t * D, (size_t)D * sizeof *one)),
                  "%s: D %d, T %d, row %d differs from the row alone", v->name, D, T, t);
    }
    cr_expect(bad <= 1, "%s: D %d, T %d, %d slots: %g times the bound", v->name, D, T, n_slots,
              bad);
    cr_expect(intact(&g), "%s wrote outside", v->name);
}

Test(attention, values_are_summed_over_the_used_slots)
{
    static const int slots[] = {1, 2, 15, 33, 63, 64};
    struct variant v[MAX_VARIANTS];
    static struct pages p;
    struct rng r;
    rng_init(&r, 4);
    int n = variants(v);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_DIMS; c++)
            for (int type = KV_F32; type <= KV_F16; type++) {
                fill_pages(&p, &v[i].k, &r, dims[c], (enum kv_type)type);
                for (int T = 1; T <= MAX_T; T++)
                    check_av(&v[i], &p, &r, dims[c], T, (enum kv_type)type, slots[T % 6]);
                cr_expect(intact(&p.gk) && intact(&p.gv));
            }
}

/* Sums run in one order with fused operations: the same bits everywhere. */
Test(attention, variants_agree_to_the_bit)
{
    struct variant v[MAX_VARIANTS];
    static struct pages p;
    struct rng r;
    rng_init(&r, 5);
    int n = variants(v);
    enum { T = 13, D = 80 };
    float q[T * D], w[T * PAGE_SLOTS];
    fill_normal(&r, q, T * D, 1);
    fill_normal(&r, w, T * PAGE_SLOTS, 1);
    fill_pages(&p, &v[0].k, &r, D, KV_F16);
    for (int i = 1; i < n; i++) {
        float s[2][T * PAGE_SLOTS], o[2][T * D] = {{0}, {0}};
        for (int j = 0; j < 2; j++) {
            const struct kernels *k = &v[j * i].k;
            k->attn_qk(s[j], PAGE_SLOTS, q, D, T, D, p.k, KV_F16, 0.3f);
            k->attn_av(o[j], D, w, PAGE_SLOTS, T, D, p.v, KV_F16, 61);
        }
        cr_expect(zero(int, memcmp(s[0], s[1], sizeof s[0])), "%s: scores", v[i].name);
        cr_expect(zero(int, memcmp(o[0], o[1], sizeof o[0])), "%s: outputs", v[i].name);
    }
    cr_expect(intact(&p.gk) && intact(&p.gv));
}
