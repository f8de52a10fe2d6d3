/* test_cache.c - the order of slots after evictions, with entries that are identified by their keys
 * and values. */
#include "engine/cache/cache.h"
#include "tests/suite.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The linker's --wrap adds guard bytes after every block of the cache. Writes to them are detected
 * when the block is freed. */
enum { GUARD = 64, GUARD_BYTE = 0xa5, MOST_BLOCKS = 256 };
static struct {
    unsigned char *start; /* NULL: free */
    size_t n;
} blocks[MOST_BLOCKS];

void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void __real_free(void *p);
void __wrap_free(void *p);

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    unsigned char *p = __real_aligned_alloc(align, n + GUARD);
    int i = 0;
    cr_assert(p != NULL);
    while (i < MOST_BLOCKS && blocks[i].start)
        i++;
    cr_assert(lt(int, i, MOST_BLOCKS));
    memset(p + n, GUARD_BYTE, GUARD);
    blocks[i].start = p;
    blocks[i].n = n;
    return p;
}

void __wrap_free(void *p)
{
    for (int i = 0; p && i < MOST_BLOCKS; i++) {
        if (blocks[i].start != p)
            continue;
        for (size_t k = 0; k < GUARD; k++)
            cr_assert(eq(int, blocks[i].start[blocks[i].n + k], GUARD_BYTE),
                      "byte %zu behind a block of %zu was written", k, blocks[i].n);
        blocks[i].start = NULL;
    }
    __real_free(p);
}

enum { N = 2 * PAGE_SLOTS + 6, D = 8 };

static float number_of(int pos, int d, int value)
{
    return (float)(value ? -pos * 10 - d : pos * 10 + d); /* exact in f16 up to 2048 */
}

/* Appends position pos with the key of the given sequence; returns the slot. */
static int append(struct cache *c, int pos, int sequence)
{
    struct kernels k;
    float key[D], value[D];
    kernels_init(&k, 0);
    for (int d = 0; d < D; d++) {
        key[d] = number_of(pos, d, 0) + (float)sequence * 1000;
        value[d] = number_of(pos, d, 1);
    }
    struct cache_entry e = {pos, 1000 + pos, key, value};
    cr_assert(eq(int, cache_reserve(c, 0, 0, 1), KVF_OK));
    return cache_append(c, &k, 0, 0, &e);
}

static struct cache *filled(enum kv_type type, int n)
{
    struct cache_config cfg = {1, 1, D, type};
    struct cache *c = NULL;
    cr_assert(eq(int, cache_create(&cfg, &c), KVF_OK));
    for (int i = 0; i < n; i++)
        cr_assert(eq(int, append(c, i, 0), i));
    return c;
}

static void expect_slots(const struct cache *c, const int *want, int n)
{
    struct cache_head view = cache_view(c, 0, 0);
    float x[D];
    cr_assert(eq(int, view.n, n));
    cr_expect(eq(i64, cache_stats(c).pages, (n + PAGE_SLOTS - 1) / PAGE_SLOTS));
    for (int s = 0; s < n; s++) {
        cr_expect(eq(int, view.pos[s], want[s]));
        cr_expect(eq(int, view.expires_at[s], 1000 + want[s]));
        cr_expect(s == 0 || view.pos[view.order[s]] > view.pos[view.order[s - 1]]);
        cache_key(c, 0, 0, s, x);
        for (int d = 0; d < D; d++)
            cr_expect(eq(flt, x[d], number_of(want[s], d, 0)));
        cache_value(c, 0, 0, s, x);
        for (int d = 0; d < D; d++)
            cr_expect(eq(flt, x[d], number_of(want[s], d, 1)));
    }
}

/* Slots of evicted entries in the first, a middle and the last page, and at page edges. */
static const int holes[] = {0,     1,    PAGE_SLOTS - 1, PAGE_SLOTS, PAGE_SLOTS + 9, 2 * PAGE_SLOTS,
                            N - 2, N - 1};

/* Sets the expected slots after the eviction of one of N entries. who: the entry that is then in
 * its slot. */
static int without(int slot, int who, int *ret_want)
{
    for (int i = 0; i < N; i++)
        ret_want[i] = i == slot ? who : i;
    return slot;
}

Test(cache, newcomer_takes_the_open_slot)
{
    int want[N];
    for (size_t i = 0; i < 2 * COUNT(holes); i++) {
        OWNED(cache_destroy) struct cache *c = filled(i % 2 ? KV_F16 : KV_F32, N);
        int slot = without(holes[i / 2], N, want);
        cache_evict(c, 0, 0, slot);
        cr_expect(eq(int, append(c, N, 0), slot));
        expect_slots(c, want, N);
        cr_expect(eq(int, append(c, N + 1, 0), N)); /* there is no hole left */
    }
}

/* Other readers see the last entry in the hole. The next new entry goes to the end. */
Test(cache, settling_fills_the_slot)
{
    int want[N];
    for (size_t i = 0; i < COUNT(holes); i++) {
        OWNED(cache_destroy) struct cache *c = filled(KV_F16, N);
        int slot = without(holes[i], N - 1, want);
        cache_evict(c, 0, 0, slot);
        cr_expect(eq(int, cache_settle(c, 0, 0), slot != N - 1));
        cr_expect(eq(int, cache_settle(c, 0, 0), 0));
        expect_slots(c, want, N - 1);
        cr_expect(eq(int, append(c, N, 0), N - 1));
        want[N - 1] = N;
        expect_slots(c, want, N);
    }
}

Test(cache, reopening_undoes_settling)
{
    int want[N];
    for (size_t i = 0; i < COUNT(holes); i++) {
        OWNED(cache_destroy) struct cache *c = filled(KV_F16, N);
        int slot = without(holes[i], N, want);
        cache_evict(c, 0, 0, slot);
        cache_settle(c, 0, 0);
        cr_assert(eq(int, cache_reserve(c, 0, 0, 1), KVF_OK));
        cr_expect(eq(int, cache_reopen(c, 0, 0), slot != N - 1));
        cr_expect(eq(int, cache_reopen(c, 0, 0), 0));
        cr_expect(eq(int, append(c, N, 0), slot));
        expect_slots(c, want, N);
    }
}

/* Two evictions before one append give the same slots together or one by one, with or without a
 * look in between. */
Test(cache, two_cuts_are_as_one)
{
    static const int pairs[][2] = {{0, 1},      {5, 3},         {3, 5},
                                   {40, N - 2}, {N - 2, 2},     {2, N - 1},
                                   {N - 1, 2},  {N - 1, N - 2}, {10, PAGE_SLOTS}};
    for (size_t p = 0; p < 3 * COUNT(pairs); p++) {
        unsigned char keep[N];
        int a = pairs[p / 3][0], b = pairs[p / 3][1], want[N], n = 0, how = (int)(p % 3);
        OWNED(cache_destroy) struct cache *c = filled(KV_F16, N);
        for (int i = 0; i < N; i++) {
            keep[i] = i != a && i != b;
            if (keep[i])
                want[n++] = i;
        }
        if (how > 0)
            cache_evict(c, 0, 0, a);
        if (how == 2) {
            cache_settle(c, 0, 0);
            cr_assert(eq(int, cache_reserve(c, 0, 0, 1), KVF_OK));
            cache_reopen(c, 0, 0);
        }
        cache_keep(c, 0, 0, keep);
        cr_expect(eq(int, cache_gap(c, 0, 0, NULL), GAP_CLOSED));
        expect_slots(c, want, n);
        cr_expect(eq(int, append(c, N, 0), n));
    }
}

/* The original and its fork each store a new entry in the slot that was free at the fork. */
Test(cache, fork_takes_the_open_slot_along)
{
    for (size_t i = 0; i < COUNT(holes); i++) {
        struct cache *c = filled(KV_F32, N), *f = NULL;
        int want[N], slot = without(holes[i], N, want);
        float x[D];
        cache_evict(c, 0, 0, slot);
        cr_assert(eq(int, cache_fork(c, &f), KVF_OK));
        cr_expect(eq(int, append(f, N, 7), slot));
        cr_expect(eq(int, append(c, N, 0), slot));
        expect_slots(c, want, N);
        cache_key(f, 0, 0, slot, x);
        cr_expect(eq(flt, x[0], number_of(N, 0, 0) + 7000));
        for (int s = 0; s < N; s++) {
            cr_expect(eq(int, cache_view(f, 0, 0).pos[s], want[s]));
            cr_expect(eq(int, cache_view(f, 0, 0).expires_at[s], 1000 + want[s]));
        }
        cr_expect(eq(i64, cache_shared(c), 2)); /* of three pages */
        cache_destroy(f);
        cache_destroy(c);
    }
}

/* A page is freed after its last entry is evicted, but not while an entry follows a hole. */
Test(cache, pages_around_a_hole)
{
    static const struct {
        int n, slot, open, settled;
    } cases[] = {
        {PAGE_SLOTS + 1, 5, 2, 1},
        {PAGE_SLOTS + 1, PAGE_SLOTS, 1, 1},
        {PAGE_SLOTS + 2, PAGE_SLOTS, 2, 2},
        {PAGE_SLOTS + 2, PAGE_SLOTS + 1, 2, 2},
        {PAGE_SLOTS, 0, 1, 1},
        {1, 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        OWNED(cache_destroy) struct cache *c = filled(KV_F16, cases[i].n);
        cache_evict(c, 0, 0, cases[i].slot);
        cr_expect(eq(i64, cache_stats(c).pages, cases[i].open));
        cache_settle(c, 0, 0);
        cr_expect(eq(i64, cache_stats(c).pages, cases[i].settled));
        cr_assert(eq(int, cache_reserve(c, 0, 0, 1), KVF_OK));
        cache_reopen(c, 0, 0);
        cr_expect(eq(int, append(c, cases[i].n, 0), cases[i].slot));
        cr_expect(eq(i64, cache_stats(c).pages, (cases[i].n - 1) / PAGE_SLOTS + 1));
    }
}

/* q8_0 keys and values move with their scales, bit for bit. WIDE has a shorter last block. */
enum { WIDE = 40 };

static void quantised_entry(int pos, float *key, float *value)
{
    for (int d = 0; d < WIDE; d++) {
        key[d] = sinf((float)(pos * WIDE + d)) * (float)(pos + 1);
        value[d] = cosf((float)(pos * WIDE + d)) / (float)(pos + d / 32 * 50 + 1);
    }
}

static void expect_quantised(const struct cache *c)
{
    struct cache_head view = cache_view(c, 0, 0);
    for (int s = 0; s < view.n; s++) {
        float key[WIDE], value[WIDE], x[2][WIDE];
        quantised_entry(view.pos[s], key, value);
        cache_key(c, 0, 0, s, x[0]);
        cache_value(c, 0, 0, s, x[1]);
        for (int d = 0; d < WIDE; d++) {
            double k = 0, v = 0; /* maximum of the block */
            for (int e = d / 32 * 32; e < d / 32 * 32 + 32 && e < WIDE; e++) {
                k = fmax(k, fabs((double)key[e]));
                v = fmax(v, fabs((double)value[e]));
            }
            cr_expect(le(dbl, fabs((double)(x[0][d] - key[d])), k / 127 * 0.57));
            cr_expect(le(dbl, fabs((double)(x[1][d] - value[d])), v / 127 * 0.57));
        }
    }
}

Test(cache, quantised_entries_move_with_their_scales)
{
    struct cache_config cfg = {1, 1, WIDE, KV_Q8_0};
    struct cache *c = NULL, *f = NULL;
    struct kernels k;
    unsigned char keep[N];
    kernels_init(&k, 0);
    cr_assert(eq(int, cache_create(&cfg, &c), KVF_OK));
    cr_expect(eq(i64, cache_stats(c).page_bytes, 2 * PAGE_SLOTS * (WIDE + 2 * 2)));
    for (int i = 0; i < N; i++) {
        float key[WIDE], value[WIDE];
        quantised_entry(i, key, value);
        struct cache_entry e = {i, NEVER_EXPIRES, key, value};
        cr_assert(eq(int, cache_reserve(c, 0, 0, 1), KVF_OK));
        cache_append(c, &k, 0, 0, &e);
        keep[i] = i % 3 != 1;
    }
    expect_quantised(c);
    cache_evict(c, 0, 0, 3);
    cache_settle(c, 0, 0);
    expect_quantised(c);
    cr_assert(eq(int, cache_fork(c, &f), KVF_OK));
    cr_assert(eq(int, cache_own(f, 0, 0, 0, N - 1), KVF_OK));
    cache_keep(f, 0, 0, keep);
    expect_quantised(f);
    expect_quantised(c);
    cr_expect(eq(int, cache_view(f, 0, 0).n, (N - 1) - (N - 1) / 3));
    cache_destroy(f);
    cache_destroy(c);
}

/* In many steps of one eviction and one append, the time order stays correct. */
Test(cache, order_over_many_steps)
{
    OWNED(cache_destroy) struct cache *c = filled(KV_F16, 40);
    for (int t = 40; t < 1000; t++) {
        struct cache_head view = cache_view(c, 0, 0);
        int rank = t % 3 == 0 ? 0 : t % 3 == 1 ? 4 : t * 7 % 40, slot = view.order[rank];
        int32_t least = NEVER_EXPIRES;
        cache_evict(c, 0, 0, slot);
        cr_assert(eq(int, append(c, t, 0), slot));
        view = cache_view(c, 0, 0);
        cr_assert(eq(int, view.pos[slot], t));
        cr_assert(eq(int, view.order[39], slot));
        for (int i = 0; i < view.n; i++) {
            cr_assert(i == 0 || view.pos[view.order[i - 1]] < view.pos[view.order[i]]);
            least = view.expires_at[i] < least ? view.expires_at[i] : least;
        }
        cr_assert(eq(int, view.first_expiry, least));
    }
}

/* The counts cover all heads; the count of the last head would be 1. */
Test(cache, all_heads_count_and_the_peak_stays)
{
    const struct cache_config cfg = {2, 2, D, KV_F32};
    const float zeros[D] = {0};
    struct kernels k;
    OWNED(cache_destroy) struct cache *c = NULL;
    kernels_init(&k, 0);
    cr_assert(eq(int, cache_create(&cfg, &c), KVF_OK));
    for (int h = 0; h < 4; h++)
        for (int i = 0; i < 4 - h; i++) {
            const struct cache_entry e = {i, NEVER_EXPIRES, zeros, zeros};
            cr_assert(eq(int, cache_reserve(c, h / 2, h % 2, 1), KVF_OK));
            cr_assert(eq(int, cache_append(c, &k, h / 2, h % 2, &e), i));
        }
    cache_account(c);
    cr_expect(eq(i64, cache_stats(c).entries, 4 + 3 + 2 + 1));
    cache_evict(c, 0, 0, 1);
    cache_evict(c, 1, 0, 0);
    cache_account(c);
    cr_expect(eq(i64, cache_stats(c).entries, 3 + 3 + 1 + 1));
    cr_expect(eq(i64, cache_stats(c).entries_peak, 10));
}

/* Compares the summary of a head with a scan of all entries. */
static void expect_known(const struct cache *c)
{
    struct cache_head view = cache_view(c, 0, 0);
    int32_t least = NEVER_EXPIRES;
    int firm = 0;
    while (firm < view.n && view.expires_at[firm] == NEVER_EXPIRES)
        firm++;
    for (int i = 0; i < view.n; i++) {
        cr_assert(i == 0 || view.pos[view.order[i - 1]] < view.pos[view.order[i]]);
        least = view.expires_at[i] < least ? view.expires_at[i] : least;
    }
    cr_assert(le(int, view.first_expiry, least));
    cr_assert(le(int, view.n_permanent, firm));
}

/* Random changes of a head in which some entries never expire. A single eviction leaves a hole,
 * which is filled, reopened or reused; many evictions close ranks. */
Test(cache, what_is_known_of_heads)
{
    struct kernels k;
    kernels_init(&k, 0);
    struct rng r = rng_seeded(21);
    OWNED(cache_destroy) struct cache *c = filled(KV_F16, 1);
    for (int t = 1; t < 4000; t++) {
        int n = cache_view(c, 0, 0).n, how = (int)rng_below(&r, 40);
        unsigned char keep[600];
        if (how == 0 && n > 300) {
            int first = (int)rng_below(&r, (uint64_t)n);
            for (int i = 0; i < n; i++)
                keep[i] = i < first || rng_below(&r, 3) == 0;
            cache_keep(c, 0, 0, keep);
        } else if (how < 6 && n > 1 && cache_gap(c, 0, 0, NULL) == GAP_NONE) {
            cache_evict(c, 0, 0, (int)rng_below(&r, (uint64_t)n));
            if (how > 1)
                cache_settle(c, 0, 0);
            if (how > 3 && cache_reserve(c, 0, 0, 1) == KVF_OK)
                cache_reopen(c, 0, 0);
        }
        float x[D] = {(float)t};
        struct cache_entry e = {t, rng_below(&r, 9) ? NEVER_EXPIRES : t + 90, x, x};
        cr_assert(eq(int, cache_reserve(c, 0, 0, 1), KVF_OK));
        cache_append(c, &k, 0, 0, &e);
        expect_known(c);
        n = cache_view(c, 0, 0).n;
        if (n > 550) {
            memset(keep, 1, sizeof keep);
            memset(keep + 40, 0, 300);
            cache_keep(c, 0, 0, keep);
            expect_known(c);
        }
    }
}
