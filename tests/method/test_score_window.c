/* test_score_window.c - sums over a window of queries compared with the weights. */
#include "bed.h"

enum { HEADS = 2, STEPS = 1200, MOST = 256 };

/* Returns the weight of an entry at query t. A few entries always stay. Of the rest, young entries
 * get larger weights, so that heads keep exchanging them. The worst two entries are sometimes in
 * one head and sometimes in two. */
static float weight(int head, int32_t t, int32_t pos)
{
    struct rng r = rng_seeded((uint64_t)(pos * HEADS + head));
    if (pos % 64 == 0)
        return (float)(1 + (3 * t + pos / 64) % 7) * 0x1p-6f;
    return t - pos < 4 ? (float)((pos + 100) * rng_uniform(&r)) * 0x1p-20f : 0;
}

static float mean_of(int head, int32_t t, int32_t pos, int window)
{
    int32_t first = t - window + 1 > 0 ? t - window + 1 : 0, taken = t + 1 - first;
    double sum = 0;
    for (int32_t q = first > pos ? first : pos; q <= t; q++)
        sum += (double)weight(head, q, pos);
    return (float)(sum / taken);
}

static void take_row(struct bed *b, int head, int32_t t)
{
    float p[MOST];
    struct cache_head view = cache_view(b->cache, 0, head);
    for (int i = 0; i < view.n; i++)
        p[i] = weight(head, t, view.pos[i]);
    struct attn_row a = {.head = head, .t = t, .n = view.n, .seen = view.n, .p = p};
    method_row(b->m, &a);
}

/* Two heads share their budget, so that one head often loses two entries at once and the second
 * head keeps all. Each window row must then close more ranks when it is read than are
 * remembered. */
static void follow(const char *method, int window)
{
    struct bed b;
    int bad = 0;
    bed_open(&b, method, 40, 1, HEADS, NULL);
    for (int32_t t = 0; t < STEPS; t++) {
        float score[MOST];
        cr_assert(zero(int, method_decide(b.m, b.cache, t, PHASE_BEFORE, NULL, NULL, NULL, NULL)));
        for (int h = 0; h < HEADS; h++) {
            bed_append(&b, 0, h, t, NAN, 1, 0);
            take_row(&b, h, t);
        }
        bed_score(&b, t + 1, score);
        struct cache_head view = cache_view(b.cache, 0, 0);
        for (int i = 0; i < view.n; i++)
            bad += fabsf(score[i] - mean_of(0, t, view.pos[i], window)) > 1e-6f;
    }
    cr_expect(zero(int, bad), "%s: %d scores of other rows", method, bad);
    bed_close(&b);
}

Test(window, sums_follow_entries_through_long_windows)
{
    follow("adakv:window=20,recent=4,pool=1,floor=0", 20);
    follow("adakv:window=120,recent=4,pool=1,floor=0", 120);
    follow("adakv:window=300,recent=4,pool=1,floor=0", 300);
    follow("adakv:window=900,recent=4,pool=1,floor=0", 900);
}
