/* test_admission.c - how long new entries stay: quantiles and windows compared with results
 * computed by hand. */
#include "bed.h"

static struct gates *open_alphas(const float *alpha, int n)
{
    const struct gates_model model = {1, 2, n, n, 2, 1e-5f, 1e4, NULL, reference()};
    struct maker m = {0};
    struct gates *g;
    char shape[32];
    snprintf(shape, sizeof shape, "[1, %d]", n);
    start(&m, "\"kvfate.kind\": \"heads\", \"kvfate.layout\": \"duo\"");
    tensor(&m, "duo.alpha", shape, alpha, (size_t)n);
    const struct buf *f = finish(&m);
    succeeds(try_open(f->data, f->len, &model, &g, &d));
    return g;
}

static double quantile(const float *alpha, int n, const char *method)
{
    OWNED(gates_close) struct gates *g = open_alphas(alpha, n);
    struct bed b;
    bed_open(&b, method, 0, 1, n, g);
    double q = b.m->alpha_from;
    bed_close(&b);
    return q;
}

Test(admission, quantile_of_alphas)
{
    const float four[] = {0.5f, 0.125f, 0.75f, 0.25f}, one[] = {0.375f};
    cr_expect(eq(dbl, quantile(four, 4, "duo"), 0.375)); /* between 0.25 and 0.5 */
    cr_expect(eq(dbl, quantile(four, 4, "duo:sparsity=0"), 0.125));
    cr_expect(eq(dbl, quantile(four, 4, "duo:sparsity=1"), 0.75));
    cr_expect(eq(dbl, quantile(four, 4, "duo:sparsity=0.25"), 0.125 + 0.75 * 0.125));
    cr_expect(eq(dbl, quantile(four, 3, "duo"), 0.5)); /* the middle one of three */
    cr_expect(eq(dbl, quantile(one, 1, "duo:sparsity=0.7"), 0.375));
}

Test(admission, duo_streams_heads_below_the_quantile)
{
    const float alpha[] = {0.5f, 0.125f, 0.75f, 0.25f};
    OWNED(gates_close) struct gates *g = open_alphas(alpha, 4);
    struct bed b;
    bed_open(&b, "duo:sinks=2,recent=5", 0, 1, 4, g);
    for (int h = 0; h < 4; h += 2) /* heads with 0.5 and 0.75 keep all entries */
        cr_expect(eq(i32, method_until(b.m, 0, h, 9, NAN), NEVER_EXPIRES));
    for (int h = 1; h < 4; h += 2) {
        cr_expect(eq(i32, method_until(b.m, 0, h, 1, NAN), NEVER_EXPIRES)); /* a sink */
        cr_expect(eq(i32, method_until(b.m, 0, h, 2, NAN), 7));
        cr_expect(eq(i32, method_until(b.m, 0, h, 9, NAN), 14));
    }
    bed_close(&b);
}

Test(admission, equal_alphas_are_treated_alike)
{
    const float alpha[] = {0.5f, 0.5f, 0.5f};
    OWNED(gates_close) struct gates *g = open_alphas(alpha, 3);
    struct bed b;
    bed_open(&b, "duo:sparsity=1", 0, 1, 3, g);
    for (int h = 0; h < 3; h++)
        cr_expect(eq(i32, method_until(b.m, 0, h, 999, NAN), NEVER_EXPIRES));
    bed_close(&b);
}

static int32_t written(const char *method, float g, int32_t pos)
{
    struct bed b;
    bed_open(&b, method, 0, 1, 1, NULL);
    int32_t until = method_until(b.m, 0, 0, pos, g);
    bed_close(&b);
    return until;
}

Test(admission, write_gates_at_the_threshold)
{
    cr_expect(eq(i32, written("wgkv:tau=0.5", 0.5f, 3), NEVER_EXPIRES));
    cr_expect(eq(i32, written("wgkv:tau=0.5,compare=gt", 0.5f, 3), 3 + 256));
    cr_expect(eq(i32, written("wgkv:tau=0.5,variant=code", 0.5f, 3), 3 + 256));
    cr_expect(eq(i32, written("wgkv:tau=0.5,local=1", 0.4375f, 3), 4)); /* only its own query */
    cr_expect(eq(i32, written("wgkv:tau=0", 0, 3), NEVER_EXPIRES));
    cr_expect(eq(i32, written("wgkv:tau=0.5", NAN, 3), 3 + 256));
}

Test(admission, windows_end_before_the_last_number)
{
    cr_expect(eq(i32, written("wgkv:local=16777216", 0, INT32_MAX - 5), NEVER_EXPIRES - 1));
    cr_expect(eq(i32, written("wgkv:local=5", 0, INT32_MAX - 5), NEVER_EXPIRES - 1));
    cr_expect(eq(i32, written("wgkv:local=5", 0, INT32_MAX - 6), NEVER_EXPIRES - 1));
    cr_expect(eq(i32, written("wgkv:local=5", 0, INT32_MAX - 7), NEVER_EXPIRES - 2));
}

Test(admission, streaming_keeps_sinks_and_a_window)
{
    struct bed b;
    bed_open(&b, "local:sinks=3", 10, 1, 1, NULL);
    cr_expect(eq(i32, method_until(b.m, 0, 0, 2, NAN), NEVER_EXPIRES));
    cr_expect(eq(i32, method_until(b.m, 0, 0, 3, NAN), 10)); /* recent = 10 - 3 */
    bed_close(&b);
}

struct left {
    int n;
    struct eviction e[8];
};

static void note(void *ctx, const struct eviction *e)
{
    struct left *l = ctx;
    l->e[l->n++] = *e;
}

Test(admission, refused_entries_leave_with_their_gate_and_margin)
{
    struct left l = {0};
    struct bed b;
    bed_open(&b, "wgkv:tau=0.5,local=2", 0, 1, 1, NULL);
    for (int i = 0; i < 4; i++)
        bed_append(&b, 0, 0, i, i % 2 ? 0.75f : 0.125f, 1, 0);
    method_expire(b.m, b.cache, 1, NULL, note, &l);
    cr_expect(eq(int, l.n, 0));
    method_expire(b.m, b.cache, 4, NULL, note, &l);
    cr_assert(eq(int, l.n, 2));
    for (int i = 0; i < 2; i++) {
        cr_expect(eq(i32, l.e[i].pos, 2 * i));
        cr_expect(eq(i32, l.e[i].t, 2 * i + 2)); /* the step set at the append, not at the call */
        cr_expect(eq(int, (int)l.e[i].reason, (int)KVF_REASON_REFUSED));
        cr_expect(eq(flt, l.e[i].score, 0.125f));
        cr_expect(eq(flt, l.e[i].margin, 0.375f));
    }
    bed_close(&b);
}
