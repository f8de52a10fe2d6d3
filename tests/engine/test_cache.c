/* The order of slots after evictions, on entries whose key and value tell who they are. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "engine/cache/cache.h"

enum { N = 70, D = 8 }; /* more than two pages */

static float number_of(int pos, int d, int value)
{
    return (float)(pos * 10 + d) + (value ? 0.5f : 0.0f); /* exact in 16 bits up to 2047 */
}

static struct cache *filled(enum kv_type type, const struct kernels *k)
{
    struct cache_config cfg = {1, 1, D, type};
    struct cache *c = NULL;
    float key[D], value[D];
    cr_assert(eq(int, cache_create(&cfg, &c), KVF_OK));
    cr_assert(eq(int, cache_reserve(c, 0, 0, N), KVF_OK));
    for (int i = 0; i < N; i++) {
        for (int d = 0; d < D; d++) {
            key[d] = number_of(i, d, 0);
            value[d] = number_of(i, d, 1);
        }
        struct cache_entry e = {i, 1000 + i, key, value};
        cr_assert(eq(int, cache_append(c, k, 0, 0, &e), i));
    }
    return c;
}

static void expect_slots(const struct cache *c, const int *want, int n)
{
    struct cache_head view = cache_view(c, 0, 0);
    float x[D];
    cr_assert(eq(int, view.n, n));
    for (int s = 0; s < n; s++) {
        cr_expect(eq(int, view.pos[s], want[s]));
        cr_expect(eq(int, view.until[s], 1000 + want[s]));
        cr_expect(s == 0 || view.pos[view.order[s]] > view.pos[view.order[s - 1]]);
        cache_key(c, 0, 0, s, x);
        for (int d = 0; d < D; d++)
            cr_expect(eq(flt, x[d], number_of(want[s], d, 0)));
        cache_value(c, 0, 0, s, x);
        for (int d = 0; d < D; d++)
            cr_expect(eq(flt, x[d], number_of(want[s], d, 1)));
    }
}

/* The entry goes behind the others, whatever its slot, also across pages. */
Test(cache, to_end_closes_ranks)
{
    static const int slots[] = {0, 1, 31, 32, 33, 63, 64, N - 2, N - 1};
    struct kernels k;
    kernels_init(&k, 0);
    for (size_t at = 0; at < 2 * sizeof slots / sizeof *slots; at++) {
        int slot = slots[at / 2], want[N], n = 0;
        struct cache *c = filled(at % 2 ? KV_F16 : KV_F32, &k);
        for (int i = 0; i < N; i++)
            if (i != slot)
                want[n++] = i;
        want[n] = slot;
        cache_to_end(c, 0, 0, slot);
        expect_slots(c, want, N);
        cr_expect(eq(int, cache_view(c, 0, 0).plain, slot == N - 1));
        cache_destroy(c);
    }
}

/* A hole filled by the last entry, then another entry cut: with the one that moved put
 * back to the end, the same as cutting both at once. */
Test(cache, two_cuts_are_as_one)
{
    static const int pairs[][2] = {{0, 1}, {5, 3}, {3, 5}, {40, 68}, {68, 2}, {2, 69}, {10, 33}};
    struct kernels k;
    kernels_init(&k, 0);
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        unsigned char keep[N];
        int a = pairs[p][0], b = pairs[p][1], want[N], n = 0, to = 0;
        struct cache *c = filled(KV_F16, &k);
        for (int i = 0; i < N; i++)
            if (i != a && i != b)
                want[n++] = i;
        cache_evict(c, 0, 0, a);
        struct cache_head view = cache_view(c, 0, 0);
        for (int s = 0; s < view.n; s++)
            keep[s] = view.pos[s] != b;
        bool stays = keep[a]; /* slot a holds the entry that was last */
        for (int s = 0; s < a; s++)
            to += keep[s];
        cache_keep(c, 0, 0, keep);
        if (stays)
            cache_to_end(c, 0, 0, to);
        expect_slots(c, want, n);
        cache_destroy(c);
    }
}
