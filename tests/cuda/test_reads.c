/* test_reads.c - the pages that queries read, compared with an exhaustive search, and the bounds of
 * pages, compared with all their keys. */
#include "engine/cuda/reads.h"
#include "tests/cuda/heads_of.h"

enum { FIRST = 1, N_HEADS = 3, N_Q = N_HEADS * PER, DIM = 6 }; /* the layer has heads 1 to 3 */
static const int lengths[HEADS] = {130, 90, 64, 13};

/* How a page is scored. */
enum { BY_BOUNDS, BY_BLOCKS, BY_WEIGHTS, WAYS };

struct reading {
    struct bed b;
    struct gpu_reads r;
    struct gpu_bounds bounds;
    float q[N_Q * D], key[HEADS * 40 * DIM], vector[N_HEADS * DIM], *p;
    int way;
};

static double score(const struct reading *x, int q, int page)
{
    const struct bed *b = &x->b;
    int h = FIRST + q / PER, from = page * x->r.page, to = from + x->r.page;
    double sum = 0, most = 0;
    to = to < b->n[h] ? to : b->n[h];
    if (x->way == BY_BLOCKS) {
        for (int i = 0; i < DIM; i++)
            sum += (double)x->vector[(h - FIRST) * DIM + i]
                   * (double)x->key[(h * x->r.ld + page) * DIM + i];
        return sum / sqrt(DIM);
    }
    if (x->way == BY_WEIGHTS) {
        for (int s = from; s < to; s++)
            most = fmax(most, (double)x->p[q * b->ld + s]);
        return most;
    }
    for (int d = 0; d < D; d++) {
        double top = -INFINITY;
        for (int s = from; s < to; s++)
            top = fmax(top, (double)x->q[q * D + d] * (double)cache_of_get(&b->k, h, s, d, false));
        sum += top;
    }
    return sum;
}

/* Returns the score that decides for query head q. If the query heads of a KV head read together,
 * it is their maximum. */
static double deciding(const struct reading *x, int q, int page)
{
    double top = -INFINITY;
    int q0 = x->r.together ? q / PER * PER : q, end = x->r.together ? q0 + PER : q + 1;
    for (int g = q0; g < end; g++)
        top = fmax(top, score(x, g, page));
    return top;
}

/* Checks the choice: pages with one of the newest entries, then the pages with the highest scores,
 * at least budget / page pages in total. */
static void expect_choice(const struct reading *x, int q, int page_said, const unsigned char *got)
{
    int n = x->b.n[FIRST + q / PER], page = x->r.page, most = x->r.budget / page;
    int pages = (n + page - 1) / page, read = 0;
    most = most > 1 ? most : 1;
    bool all = n <= x->r.budget || n <= most * page;
    cr_expect(eq(int, page_said, all ? 0 : page));
    for (int b = 0; b < pages; b++)
        read += got[b] != 0;
    for (int b = 0; b < pages && !all; b++) {
        bool newest = (b + 1) * page > n - x->r.local;
        cr_expect(got[b] || !newest, "page %d of query head %d is read", b, q);
        for (int o = 0; o < pages && !got[b]; o++)
            if (got[o] && (o + 1) * page <= n - x->r.local)
                cr_expect(deciding(x, q, o) >= deciding(x, q, b) - 1e-5, "pages %d and %d of %d", o,
                          b, q);
    }
    int forced = pages - (n - x->r.local > 0 ? (n - x->r.local) / page : 0);
    cr_expect(eq(int, read, all ? pages : forced > most ? forced : most), "query head %d", q);
}

static void run(struct reading *x)
{
    struct gpu *g = x->b.g;
    unsigned char chosen[N_Q * 64], *d_chosen = device_alloc(g, N_Q * 64, 1);
    int32_t page[N_HEADS], *d_page = device_alloc(g, N_HEADS, 4);
    float *d_q = device_copy(g, x->q, sizeof x->q), *d_key = device_copy(g, x->key, sizeof x->key),
          *d_vector = device_copy(g, x->vector, sizeof x->vector),
          *d_p = device_copy(g, x->p, (size_t)(N_Q * x->b.ld) * 4);
    gpu_zero(g, d_chosen, N_Q * 64);
    gpu_count_pages(g, &x->b.h, &x->r, FIRST, N_HEADS, d_page, d_chosen);
    if (x->way == BY_BOUNDS) {
        gpu_take_bounds(g, &x->b.h, &x->r, FIRST, N_HEADS, &x->bounds);
        gpu_score_bounds(g, &x->b.h, &x->r, FIRST, N_HEADS, &x->bounds, d_q);
    } else if (x->way == BY_BLOCKS) {
        gpu_score_blocks(g, &x->b.h, &x->r, FIRST, N_HEADS, d_key, d_vector, DIM);
    } else {
        gpu_score_weights(g, &x->b.h, &x->r, FIRST, N_HEADS, d_p, (size_t)x->b.ld);
    }
    gpu_choose_pages(g, &x->r, N_HEADS, d_chosen);
    gpu_get(g, chosen, d_chosen, sizeof chosen);
    gpu_get(g, page, d_page, sizeof page);
    device_check(g, "reads");
    for (int q = 0; q < N_Q; q++)
        expect_choice(x, q, page[q / PER], chosen + q * x->r.ld);
}

static void open_reading(struct reading *x, struct gpu *g, struct rng *r, enum kv_type type)
{
    x->b = bed_of(g, r, lengths, type);
    int ld = (x->b.ld + x->r.page - 1) / x->r.page;
    int32_t number[N_Q * 64];
    for (int i = 0; i < N_Q * ld; i++)
        number[i] = i % ld;
    x->r.ld = ld;
    x->r.per = PER;
    x->r.score = device_alloc(g, (size_t)(N_Q * ld), 4);
    x->r.number = device_copy(g, number, (size_t)(N_Q * ld) * 4);
    x->r.n_open = device_alloc(g, N_Q, 4);
    x->r.lost = device_alloc(g, N_Q, 8);
    x->r.count = device_alloc(g, N_Q, 4);
    x->bounds.least = device_alloc(g, (size_t)(HEADS * D * ld), 4);
    x->bounds.most = device_alloc(g, (size_t)(HEADS * D * ld), 4);
    x->b.h.valid = device_alloc(g, HEADS, 4);
    x->p = NEW(float, (size_t)(N_Q * x->b.ld));
    gpu_zero(g, x->b.h.valid, HEADS * 4);
    fill(r, x->q, N_Q * D, 1);
    fill(r, x->key, sizeof x->key / 4, 1);
    fill(r, x->vector, N_HEADS * DIM, 1);
    for (int i = 0; i < N_Q * x->b.ld; i++)
        x->p[i] = (float)rng_uniform(r);
}

Test(reads, the_best_pages_are_read)
{
    static struct reading x;
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(51);
    for (int i = 0; i < 4 * WAYS; i++) {
        memset(&x, 0, sizeof x);
        x.way = i % WAYS;
        x.r.page = i / WAYS % 2 ? 4 : 7;
        x.r.budget = i / WAYS % 2 ? 3 : 31;
        x.r.local = i / WAYS == 3 ? 17 : 1;
        x.r.together = x.way == BY_BLOCKS || i / WAYS / 2;
        emulation_seed((unsigned long long)i);
        open_reading(&x, g, &r, i % 2 ? KV_F16 : KV_F32);
        run(&x);
    }
}

static void expect_bounds(const struct reading *x, int h)
{
    size_t all = (size_t)(HEADS * D * x->r.ld);
    float *least = host_copy(x->b.g, x->bounds.least, all * 4);
    float *most = host_copy(x->b.g, x->bounds.most, all * 4);
    for (int i = 0; i < D * ((x->b.n[h] + x->r.page - 1) / x->r.page); i++) {
        int d = i % D, page = i / D;
        float low = INFINITY, high = -INFINITY;
        for (int s = page * x->r.page; s < (page + 1) * x->r.page && s < x->b.n[h]; s++) {
            low = fminf(low, cache_of_get(&x->b.k, h, s, d, false));
            high = fmaxf(high, cache_of_get(&x->b.k, h, s, d, false));
        }
        size_t at = (size_t)((h * D + d) * x->r.ld + page);
        cr_expect(least[at] == low && most[at] == high, "page %d, channel %d", page, d);
    }
}

/* Some keys of a head change from a slot on, and as many entries are evicted. Bounds are recomputed
 * only from that slot on. */
Test(reads, bounds_follow_what_changes)
{
    static struct reading x;
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(52);
    memset(&x, 0, sizeof x);
    x.r.page = 5;
    x.r.budget = 20;
    x.r.local = 1;
    open_reading(&x, g, &r, KV_F32);
    run(&x);
    x.b.h.closes = true;
    x.b.mark[FIRST * x.b.ld + 33] = x.b.mark[FIRST * x.b.ld + 71] = GPU_GONE;
    x.b.mark[(FIRST + 2) * x.b.ld + 1] = GPU_GONE;
    gpu_put(g, x.b.h.mark, x.b.mark, (size_t)(HEADS * x.b.ld));
    gpu_cut(g, &x.b.h, 1, false, 0);
    int32_t *valid = host_copy(g, x.b.h.valid, HEADS * 4);
    cr_expect(eq(int, valid[FIRST], 33));
    cr_expect(eq(int, valid[FIRST + 1], lengths[FIRST + 1]));
    cr_expect(eq(int, valid[FIRST + 2], 1));
    bed_fetch(&x.b);
    cr_expect(eq(int, x.b.n[FIRST], lengths[FIRST] - 2));
    cr_expect(eq(int, x.b.gap[FIRST + 2], GPU_GAP_CLOSED)); /* although it is a single entry */
    run(&x);
    for (int h = FIRST; h < FIRST + N_HEADS; h++)
        expect_bounds(&x, h);
}
