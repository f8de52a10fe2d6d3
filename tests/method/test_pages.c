/* test_pages.c - stored minima and maxima of pages compared with the keys themselves. */
#include "engine/cache/cache.h"
#include "engine/method/evidence.h"
#include "tests/gates/file.h"

enum { H = 2, D = 4, MOST = 70 };

struct bed {
    struct cache *cache;
    struct evidence e;
    struct rng r;
    int32_t next[H];
};

static void bed_open(struct bed *b, int page, enum kv_type type)
{
    struct cache_config cfg = {1, H, D, type};
    struct method_shape shape = {1, H, H, D};
    struct method_params p = {.page = page, .window = 1};
    *b = (struct bed){0};
    rng_init(&b->r, (uint64_t)page);
    cr_assert(zero(int, cache_create(&cfg, &b->cache)));
    cr_assert(zero(int, evidence_init(&b->e, EVIDENCE_PAGES, &p, &shape, NULL)));
    cr_assert(zero(int, evidence_reserve(&b->e, 3)));
}

static void bed_close(struct bed *b)
{
    cache_destroy(b->cache);
    evidence_finish(&b->e);
}

static void append(struct bed *b, int head)
{
    float key[D], value[D] = {0};
    for (int d = 0; d < D; d++)
        key[d] = (float)rng_normal(&b->r);
    struct cache_entry entry = {b->next[head]++, NEVER_EXPIRES, key, value};
    cr_assert(zero(int, cache_reserve(b->cache, 0, head, 1)));
    cr_assert(zero(int, evidence_reserve(&b->e, cache_view(b->cache, 0, head).n + 1)));
    int slot = cache_append(b->cache, reference(), 0, head, &entry);
    evidence_appended(&b->e, b->cache, 0, head, slot, NAN, NULL);
}

/* Evicts entries as the engine does: the remaining entries close ranks. */
static void drop(struct bed *b, int head, const unsigned char *keep)
{
    int n = cache_view(b->cache, 0, head).n, to = 0;
    cache_keep(b->cache, 0, head, keep);
    for (int i = 0; i < n; i++)
        if (keep[i]) {
            if (to != i)
                evidence_move(&b->e, 0, head, i, to);
            to++;
        }
}

static void compare(struct bed *b, int head, int page)
{
    int n = cache_view(b->cache, 0, head).n;
    const struct pages *p = &b->e.pages;
    pages_update(&b->e.pages, b->cache, 0, head, head, n);
    for (int s0 = 0; s0 < n; s0 += page)
        for (int d = 0; d < D; d++) {
            float least = INFINITY, most = -INFINITY, key[D];
            size_t at = ((size_t)head * (size_t)p->cap + (size_t)(s0 / page)) * D + (size_t)d;
            for (int s = s0; s < n && s < s0 + page; s++) {
                cache_key(b->cache, 0, head, s, key);
                least = fminf(least, key[d]);
                most = fmaxf(most, key[d]);
            }
            cr_assert(eq(flt, p->least[at], least), "page %d of %d, entry %d", page, n, s0);
            cr_assert(eq(flt, p->most[at], most), "page %d of %d, entry %d", page, n, s0);
        }
}

static void any_order(int page, enum kv_type type)
{
    SCOPED(bed_close) struct bed b;
    unsigned char keep[MOST];
    bed_open(&b, page, type);
    for (int round = 0; round < 400; round++) {
        int head = (int)rng_below(&b.r, H), n = cache_view(b.cache, 0, head).n;
        int what = (int)rng_below(&b.r, 6);
        if (what < 3 && n < MOST) {
            append(&b, head);
        } else if (what == 3 && n > 0) { /* some entries are evicted, later ones more often */
            int from = (int)rng_below(&b.r, 2) ? n - 1 : 0;
            for (int i = 0; i < n; i++)
                keep[i] = i < from || rng_below(&b.r, 4) != 0;
            drop(&b, head, keep);
        } else {
            compare(&b, head, page);
        }
    }
}

Test(pages, bounds_are_those_of_the_keys)
{
    const int sizes[] = {1, 2, 3, 16, 64, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int type = 0; type < KV_TYPES; type++)
            any_order(sizes[i], (enum kv_type)type);
}

/* The last entry is evicted and a new entry takes its slot, so that the count is unchanged. */
Test(pages, a_slot_that_is_filled_anew)
{
    SCOPED(bed_close) struct bed b;
    const unsigned char keep[] = {1, 1, 1, 1, 0};
    bed_open(&b, 16, KV_F32);
    for (int i = 0; i < 5; i++)
        append(&b, 0);
    compare(&b, 0, 16);
    drop(&b, 0, keep);
    append(&b, 0);
    compare(&b, 0, 16);
}

static struct gates *open_seer(void)
{
    const struct gates_model model = {2, 3, 4, H, 2, 1e-5f, 1e4, "feed", reference()};
    const char *folder = getenv("KVF_GATES");
    char path[4096];
    struct gates *g;
    snprintf(path, sizeof path, "%s/seer.safetensors", folder ? folder : ".");
    succeeds(gates_open(path, &model, &g, &d));
    return g;
}

/* Checks that the key of a full block is the gate applied to the maximum, minimum and mean of its
 * keys. */
static void block_keys(const struct gates *g, int page)
{
    enum { N = 20, D2 = 2 };
    SCOPED(pages_finish) struct pages p;
    float key[N][D2], scratch[256], want[64];
    struct rng r = rng_seeded(8);
    cr_assert(le(int, gates_gate_dim(g), 64));
    pages_init(&p, EVIDENCE_BLOCKS, page, 2 * H, D2, g);
    for (int s = 0; s < N; s++) {
        for (int d = 0; d < D2; d++)
            key[s][d] = (float)rng_normal(&r);
        cr_assert(zero(int, pages_reserve(&p, s + 1)));
        pages_take_key(&p, 1, 1, H, s, key[s]);
    }
    for (int block = 0; (block + 1) * page <= N; block++) {
        float most[D2], least[D2], mean[D2];
        for (int d = 0; d < D2; d++) {
            double sum = 0;
            most[d] = -INFINITY, least[d] = INFINITY;
            for (int s = block * page; s < (block + 1) * page; s++) {
                most[d] = fmaxf(most[d], key[s][d]);
                least[d] = fminf(least[d], key[s][d]);
                sum += (double)key[s][d];
            }
            mean[d] = (float)(sum / page);
        }
        gates_block_key(g, 1, 1, most, least, mean, block * page, want, scratch);
        size_t at = ((size_t)(H + 1) * (size_t)p.cap + (size_t)block) * (size_t)gates_gate_dim(g);
        for (int d = 0; d < gates_gate_dim(g); d++)
            cr_assert(lt(flt, fabsf(p.key[at + (size_t)d] - want[d]), 1e-5f), "block %d", block);
    }
}

Test(pages, block_keys_are_those_of_the_gates)
{
    OWNED(gates_close) struct gates *g = open_seer();
    cr_assert(le(sz, gates_scratch(g), 256));
    block_keys(g, 1);
    block_keys(g, 3);
    block_keys(g, 4);
}
