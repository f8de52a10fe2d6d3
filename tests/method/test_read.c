/* test_read.c - the pages and entries that queries read, compared with a closed form and with brute
 * force over the cached keys, also when entries are evicted between the queries. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

#include "base/rng.h"
#include "engine/cache/cache.h"
#include "engine/method/state.h"
#include "tests/gates/file.h"

enum { GROUP = 2, DIM = 3, MOST = 96 };

/* One KV head that GROUP query heads read. */
struct bed {
    struct method row;
    struct method_params params;
    struct method_state *m;
    struct cache *cache;
    struct rng r;
    float q[GROUP][DIM];
    unsigned char chosen[GROUP][MOST];
};

static void open_bed(struct bed *b, const char *method, int budget)
{
    struct kvf_diag d = {""};
    struct method_shape shape = {1, GROUP, 1, DIM};
    struct cache_config cfg = {1, 1, DIM, KV_F32};
    *b = (struct bed){0};
    rng_init(&b->r, (uint64_t)budget);
    cr_assert(zero(int, method_parse(method, budget, &b->row, &b->params, &d)), "%s", d.text);
    cr_assert(zero(int, method_state_create(&b->row, &b->params, &shape, NULL, &b->m)));
    cr_assert(zero(int, cache_create(&cfg, &b->cache)));
    cr_assert(zero(int, method_prepare(b->m, MOST, 0)));
}

static void close_bed(struct bed *b)
{
    method_state_destroy(b->m);
    cache_destroy(b->cache);
}

static void append(struct bed *b, int32_t pos, const float *key)
{
    struct cache_entry e = {pos, NEVER_EXPIRES, key, key};
    cr_assert(zero(int, cache_reserve(b->cache, 0, 0, 1)));
    int slot = cache_append(b->cache, reference(), 0, 0, &e);
    method_appended(b->m, b->cache, 0, 0, slot, NAN, key);
}

static struct read_input input_of(const struct bed *b, int32_t t)
{
    struct read_input in = {.m = b->m,
                            .cache = b->cache,
                            .kernels = reference(),
                            .view = cache_view(b->cache, 0, 0),
                            .t = t,
                            .kv_type = KV_F32,
                            .q = b->q[0],
                            .n_q = GROUP};
    in.n_pages = (in.view.n + b->params.page - 1) / b->params.page;
    return in;
}

static int read_at(struct bed *b, int32_t t)
{
    float scratch[16 * MOST];
    struct read_input in = input_of(b, t);
    cr_assert(le(sz, method_read_scratch(b->m, MOST), sizeof scratch / sizeof *scratch));
    return method_read(&in, b->chosen[0], MOST, scratch);
}

/* The weights follow by hand: the sums of the queries (3, -1, 0.3) have the signs (+, -, +), the
 * channels 0 and 1 have the largest mean |q|, and the logits of the pages are -1, 4 and 3, 3. */
Test(read, rocket_by_hand)
{
    static const float key[4][DIM] = {{1, 1, 0}, {0, 3, 1}, {2, 0, 0}, {-1, -1, 4}};
    static const float q[GROUP][DIM] = {{1, -2, 0.5f}, {2, 1, -0.2f}};
    double first = (1 / (2 + 2 * exp(5 / sqrt(9 / 3.5))) + 0.25) / 2;
    for (int reads = 1; reads <= 4; reads++) {
        struct bed b;
        char method[64];
        float out[2], scratch[64];
        snprintf(method, sizeof method, "rocketkv:page=2,channels=2,reads=%d", reads);
        open_bed(&b, method, 40);
        memcpy(b.q, q, sizeof q);
        for (int i = 0; i < 4; i++)
            append(&b, i, key[i]);
        struct read_input in = input_of(&b, 3);
        b.row.read->eval(&in, out, scratch);
        cr_assert(lt(dbl, fabs((double)out[0] / GROUP - first), 1e-6));
        cr_assert(lt(dbl, fabs((double)out[1] / GROUP - (0.5 - first)), 1e-6));
        cr_assert(eq(int, read_at(&b, 3), reads < 4)); /* 0: everything is read */
        static const int order[] = {3, 2, 1, 0};       /* the page of 2 and 3 is better */
        for (int i = 0; i < 4 && reads < 4; i++)
            for (int g = 0; g < GROUP; g++)
                cr_assert(eq(int, b.chosen[g][order[i]], i < reads), "%d reads, slot %d", reads,
                          order[i]);
        close_bed(&b);
    }
}

/* Returns the upper bound of q . k over the keys in slots [from, end). */
static double bound(const struct bed *b, const float *q, int from, int end)
{
    double sum = 0;
    for (int d = 0; d < DIM; d++) {
        double least = INFINITY, most = -INFINITY;
        for (int s = from; s < end; s++) {
            float key[DIM];
            cache_key(b->cache, 0, 0, s, key);
            least = fmin(least, (double)key[d]);
            most = fmax(most, (double)key[d]);
        }
        sum += fmax((double)q[d] * least, (double)q[d] * most);
    }
    return sum;
}

/* Checks the pages of one query head: as many as fit, the newest among them, and no page that is
 * left out has a larger bound than one that is read, apart from the newest. */
static void compare(const struct bed *b, int g, int page)
{
    struct cache_head view = cache_view(b->cache, 0, 0);
    int pages = (view.n + page - 1) / page, read = 0, last = pages - 1;
    int most = b->params.reads / page > 1 ? b->params.reads / page : 1;
    double best_out = -INFINITY, worst_in = INFINITY;
    for (int i = 1; i < view.n; i++)
        cr_assert(lt(int, view.pos[i - 1], view.pos[i]), "slots are in order of time");
    for (int p = 0; p < pages; p++) {
        int end = (p + 1) * page < view.n ? (p + 1) * page : view.n;
        double u = bound(b, b->q[g], p * page, end);
        read += b->chosen[g][p];
        if (b->chosen[g][p] && p != last)
            worst_in = fmin(worst_in, u);
        if (!b->chosen[g][p])
            best_out = fmax(best_out, u);
    }
    cr_assert(eq(int, read, most));
    cr_assert(eq(int, b->chosen[g][last], 1));
    cr_assert(ge(dbl, worst_in + 1e-5, best_out), "page %d of %d entries", page, view.n);
}

/* Feeds tokens with random keys and cuts, and compares the choice of every query. */
static void feed(const char *method, int budget, int prompt, int n)
{
    struct bed b;
    int read = 0;
    open_bed(&b, method, budget);
    for (int32_t t = 0; t < n; t++) {
        float key[DIM];
        for (int d = 0; d < DIM; d++)
            key[d] = (float)rng_normal(&b.r);
        for (int g = 0; g < GROUP; g++)
            for (int d = 0; d < DIM; d++)
                b.q[g][d] = (float)rng_normal(&b.r);
        enum phase phase = t == prompt ? PHASE_PROMPT : PHASE_BEFORE;
        for (int i = 0; t >= prompt && i < 1 + (t == prompt); i++, phase = PHASE_BEFORE)
            cr_assert(zero(int, method_decide(b.m, b.cache, t, phase, NULL, NULL, NULL, NULL)));
        append(&b, t, key);
        int page = t < prompt ? 0 : read_at(&b, t);
        for (int g = 0; page > 0 && g < GROUP; g++)
            compare(&b, g, page);
        read += page > 0;
        if (t >= prompt && b.params.order == ORDER_AFTER)
            cr_assert(
                zero(int, method_decide(b.m, b.cache, t + 1, PHASE_AFTER, NULL, NULL, NULL, NULL)));
    }
    cr_assert(gt(int, read, 10), "%s reads pages", method);
    close_bed(&b);
}

Test(read, quest_over_what_was_not_evicted)
{
    feed("random:read=quest,reads=8,page=4", 20, 40, 90);
    feed("knorm:read=quest,reads=6,page=1", 21, 30, 90);
    feed("knorm:read=quest,reads=7,page=3,every=5", 22, 30, 90);
    feed("random:read=quest,reads=9,page=2,order=after,slack=3", 23, 1, 90);
    feed("window:read=quest,reads=1,page=16", 40, 60, 90);
}
