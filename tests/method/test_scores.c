/* test_scores.c - scores fixed by gates at the append, compared with the sums that they represent:
 * log sum_{k < N} beta^(e + k), computed with 60 digits. */
#include <float.h>

#include "bed.h"

/* Returns the score of the entry of position 0 at query t, that is with e = t - 1. */
static float retention(const char *method, float log_beta, int32_t t)
{
    struct bed b;
    float out;
    bed_open(&b, method, 8, 1, 1, NULL);
    bed_append(&b, 0, 0, 0, log_beta, 1, 0);
    bed_score(&b, t, &out);
    bed_close(&b);
    return out;
}

static void expect(const char *method, float log_beta, int32_t t, double want)
{
    float have = retention(method, log_beta, t);
    double most = 2 * (double)FLT_EPSILON * fmax(fabs(want), 1e-30);
    cr_expect(le(dbl, fabs((double)have - want), most), "%s, log beta %g, t %d: %.9g, not %.9g",
              method, (double)log_beta, t, (double)have, want);
}

Test(scores, retention_of_two_queries)
{
    const float half = -0.693147182464599609375f;               /* the f32 nearest to log 1/2 */
    expect("trimkv:lookahead=2", half, 4, -1.6739764399205193); /* log(1/8 + 1/16) */
    expect("trimkv:lookahead=2,offset=3", half, 1, -1.6739764399205193);
    expect("dbtrimkv", half, 3, -1.6739764399205193); /* offset 1 */
    expect("trimkv:lookahead=7", half, 1, 0.68530400129924607);
    expect("trimkv:lookahead=2", -80, 6, -400);
}

Test(scores, retention_near_one)
{
    expect("trimkv:lookahead=65536", -1e-9f, 1, 11.090322121638081);
    expect("trimkv:lookahead=65536", -1.3e-8f, 6, 11.089928876702853);
    expect("trimkv:lookahead=65536", -0.25f, 101, -23.491308450553969);
    expect("trimkv:lookahead=100", -1e-13f, 8, 4.6051701859824412);
    expect("trimkv:lookahead=65536", 0, 9, 11.0903548889591250); /* log N */
    expect("trimkv:lookahead=2", 0, 1, 0.69314718055994531);
}

Test(scores, retention_of_one_query)
{
    expect("trimkv", -0.5f, 1, 0); /* the newest entry has exponent 0 */
    expect("trimkv", -0.5f, 8, -3.5);
    expect("trimkv:offset=2", -0.5f, 8, -4.5);
    expect("trimkv", 0, 200, 0);
}

/* With beta = 0, an entry has weight 1 for the query of its own step and weight 0 later. */
Test(scores, retention_of_nothing)
{
    cr_expect(eq(flt, retention("trimkv", -INFINITY, 1), 0));
    cr_expect(eq(flt, retention("trimkv:lookahead=5", -INFINITY, 1), 0));
    cr_expect(eq(flt, retention("trimkv", -INFINITY, 2), -INFINITY));
    cr_expect(eq(flt, retention("trimkv:lookahead=5", -INFINITY, 2), -INFINITY));
    cr_expect(isnan(retention("trimkv", NAN, 1)));
    cr_expect(isnan(retention("trimkv:lookahead=5", NAN, 3)));
}

struct cuts {
    int n;
    struct eviction e[64];
};

static void note(void *ctx, const struct eviction *e)
{
    struct cuts *c = ctx;
    c->e[c->n++] = *e;
}

static bool left(const struct cuts *c, int layer, int head, int32_t pos)
{
    for (int i = 0; i < c->n; i++)
        if (c->e[i].layer == layer && c->e[i].head == head && c->e[i].pos == pos)
            return true;
    return false;
}

/* NaN ranks as minus infinity, with a real one in the same head. */
Test(scores, nan_goes_first_with_minus_infinity)
{
    const float gate[] = {3, NAN, -2, -INFINITY, 1};
    struct cuts c = {0};
    struct bed b;
    bed_open(&b, "locret:recent=0,positions=original,chunk=0", 2, 1, 1, NULL);
    for (int i = 0; i < 5; i++)
        bed_append(&b, 0, 0, i, gate[i], 1, 0);
    cr_assert(zero(int, method_decide(b.m, b.cache, 5, PHASE_PROMPT, NULL, note, &c, NULL)));
    cr_assert(eq(int, c.n, 3));
    cr_expect(left(&c, 0, 0, 1) && left(&c, 0, 0, 3) && left(&c, 0, 0, 2));
    cr_expect(eq(flt, c.e[0].score, -INFINITY)); /* position 1: its score as it was compared */
    cr_expect(eq(flt, c.e[1].margin, 3));        /* position 2: 1 - (-2) */
    bed_close(&b);
}

/* All heads share L H B = 4 entries: the best four in any head stay. */
Test(scores, places_shared_by_all_heads)
{
    const float gate[2][2][3] = {{{9, 8, 7}, {1, 2, 0}}, {{6, -1, -2}, {-3, -4, -5}}};
    struct cuts c = {0};
    struct bed b;
    bed_open(&b, "locret:recent=0,positions=original,chunk=0,allocation=global", 1, 2, 2, NULL);
    for (int i = 0; i < 12; i++)
        bed_append(&b, i / 6, i / 3 % 2, i % 3, gate[i / 6][i / 3 % 2][i % 3], 1, 0);
    cr_assert(zero(int, method_decide(b.m, b.cache, 3, PHASE_PROMPT, NULL, note, &c, NULL)));
    cr_expect(eq(int, c.n, 8));
    cr_expect(eq(int, cache_view(b.cache, 0, 0).n, 3));
    cr_expect(eq(int, cache_view(b.cache, 1, 0).n, 1));
    cr_expect(eq(int, cache_view(b.cache, 0, 1).n + cache_view(b.cache, 1, 1).n, 0));
    bed_close(&b);
}

/* A method that decides for one head of one layer does not share its budget with other methods. */
Test(scores, layers_share_only_among_the_heads_of_their_row)
{
    const unsigned char take[] = {1, 0, 0, 0, 1, 1}; /* L0K0, L2K* of 3 x 2 */
    struct bed b, o;
    bed_open(&b, "full", 0, 3, 2, NULL);
    bed_open(&o, "snapkv:allocation=pyramid,beta=3,recent=1,window=1", 7, 3, 2, NULL);
    cr_assert(zero(int, method_override(b.m, o.m, take)));
    for (int i = 0; i < 240; i++)
        bed_append(&b, i / 80, i / 40 % 2, i % 40, 0, 1, 0);
    cr_assert(zero(int, method_decide(b.m, b.cache, 40, PHASE_PROMPT, NULL, NULL, NULL, NULL)));
    /* u = 6: 10 for a head of layer 0 and 2 for one of layer 2, scaled so that one head and two get
     * 3 * 6 entries: 12.86 and 2.57. Of the 2 remaining, layer 0 takes one. The last is not enough
     * for both heads of layer 2. */
    cr_expect(eq(int, cache_view(b.cache, 0, 0).n, 1 + 13));
    cr_expect(eq(int, cache_view(b.cache, 2, 0).n, 1 + 2));
    cr_expect(eq(int, cache_view(b.cache, 2, 1).n, 1 + 2));
    cr_expect(eq(int, cache_view(b.cache, 0, 1).n, 40));
    cr_expect(eq(int, cache_view(b.cache, 1, 0).n, 40));
    o.m = NULL; /* now owned by b */
    bed_close(&b);
    bed_close(&o);
}

/* Checks G-KV's equations 3 to 5 with alpha = 1/2, for three entries and two evictions. */
static void fold_twice(const char *method, const float *want)
{
    static const float row[2][3] = {{0.25f, 0.5f, 0.5f}, {0.125f, 1, 0.125f}};
    struct bed b;
    float score[3];
    bed_open(&b, method, 64, 1, 1, NULL);
    for (int i = 0; i < 3; i++)
        bed_append(&b, 0, 0, i, NAN, 1, 0);
    for (int cut = 0; cut < 2; cut++) {
        struct attn_row a = {.t = 3 + cut, .n = 3, .seen = 3, .p = row[cut]};
        method_row(b.m, &a);
        bed_score(&b, 3, score);
    }
    for (int i = 0; i < 3; i++)
        cr_expect(ieee_ulp_eq(flt, score[i], want[i], 1), "%s, entry %d: %g, want %g", method, i,
                  (double)score[i], (double)want[i]);
    bed_close(&b);
}

Test(scores, global_score_in_three_forms)
{
    /* Divided by their maximum, the rows are 1/2 1 1 and 1/8 1 1/8. */
    fold_twice("snapkv-global:window=1,pool=1,history=0.5", (const float[]){0.25f, 1, 0.5f});
    fold_twice("snapkv-global:window=1,pool=1,history=0.5,fold=average",
               (const float[]){0.3125f, 1, 0.5625f});
    fold_twice("snapkv-global:window=1,pool=1,history=0.5,fold=sum",
               (const float[]){0.375f, 1.5f, 0.625f});
    fold_twice("snapkv-global:window=1,pool=1,history=0", (const float[]){0.125f, 1, 0.125f});
    /* The score is pooled when it is used. A pooled history would give 1/2 1 1/2 1/2 from then
     * on. */
    fold_twice("snapkv-global:window=1,pool=3,pool-kind=avg,history=0.5",
               (const float[]){1.25f / 3, 1.75f / 3, 0.5f});
}

/* A head that loses all entries that must be evicted is listed again, but not scored again. */
Test(scores, a_decision_remembers_once)
{
    const float row[2][6] = {{0.5f, 0.03125f, 0.0625f, 0.25f, 1, 0.5f}, {1, 1, 1, 1, 1, 1}};
    struct cuts c = {0};
    struct bed b;
    bed_open(&b,
             "snapkv-global:window=1,pool=1,history=0.5,fold=sum,recent=0,every=1,"
             "allocation=adaptive,floor=0",
             6, 1, 2, NULL);
    for (int i = 0; i < 12; i++)
        bed_append(&b, 0, i / 6, i % 6, NAN, 1, 0);
    for (int h = 0; h < 2; h++)
        method_row(b.m, &(struct attn_row){.head = h, .t = 5, .n = 6, .seen = 6, .p = row[h]});
    cr_assert(zero(int, method_decide(b.m, b.cache, 6, PHASE_BEFORE, NULL, note, &c, NULL)));
    cr_assert(eq(int, c.n, 2));
    cr_expect(left(&c, 0, 0, 1) && left(&c, 0, 0, 2));
    cr_expect(eq(flt, c.e[0].score, row[0][c.e[0].pos]));
    cr_expect(eq(flt, c.e[1].score, row[0][c.e[1].pos]));
    method_settle(b.m, b.cache);
    bed_close(&b);
}

/* Two query heads of one KV head with irrelevant keys: scores follow from weights and
 * log-sum-exps. */
Test(scores, largest_logits_of_a_group)
{
    struct method_shape shape = {1, 2, 1, 2};
    struct cache_config cfg = {1, 1, 2, KV_F32};
    struct bed b = {.H = 1, .D = 2};
    float score[3], p[2][3] = {{0.5f, 0.25f, 0.25f}, {0.125f, 0.125f, 0.75f}};
    float lse[2] = {logf(8), logf(16)}; /* exp(z): 4 2 2 and 2 2 12; maxima 4 2 12 */
    succeeds(method_parse("snapkv:window=1,pool=1,group=max-logits,support=candidates", 64, &b.row,
                          &b.params, &d));
    cr_assert(zero(int, method_state_create(&b.row, &b.params, &shape,
                                            &(struct method_inputs){.gates = NULL}, &b.m)));
    cr_assert(zero(int, cache_create(&cfg, &b.cache)));
    cr_assert(zero(int, method_prepare(b.m, 256, 0)));
    for (int i = 0; i < 3; i++)
        bed_append(&b, 0, 0, i, NAN, 1, 0);
    for (int g = 0; g < 2; g++) {
        struct attn_row a = {.head = g, .t = 3, .n = 3, .seen = 3, .p = p[g], .lse = lse[g]};
        method_row(b.m, &a);
    }
    bed_score(&b, 3, score);
    const double want[3] = {4.0 / 18, 2.0 / 18, 12.0 / 18};
    for (int i = 0; i < 3; i++)
        cr_expect(fabs((double)score[i] - want[i]) < 1e-6, "entry %d: %g", i, (double)score[i]);
    bed_close(&b);
}

/* Keys 1, -3 and 2, 4 in two pages. A page's score is the maximum product of a query with any of
 * its keys. */
Test(reads, quest_bounds_the_products_of_a_page)
{
    const float keys[] = {1, -3, 2, 4}, q[] = {1, 7, -1, 7};
    static const float want[3][2] = {{1, 4}, {3, -2}, {3, 4}}; /* 1, then -1, then both */
    struct bed b;
    bed_open(&b, "quest:page=2", 2, 1, 1, NULL);
    for (int i = 0; i < 4; i++)
        bed_append(&b, 0, 0, i, NAN, keys[i], 0);
    for (int k = 0; k < 3; k++) {
        float out[2], scratch[1024];
        const struct read_input in = {.m = b.m,
                                      .cache = b.cache,
                                      .kernels = reference(),
                                      .view = cache_view(b.cache, 0, 0),
                                      .t = 4,
                                      .q = q + (k == 1 ? 2 : 0),
                                      .n_q = k == 2 ? 2 : 1,
                                      .n_pages = 2};
        b.row.read->eval(&in, out, scratch);
        for (int page = 0; page < 2; page++)
            cr_expect(eq(flt, out[page], want[k][page]), "query %d, page %d", k, page);
    }
    bed_close(&b);
}
