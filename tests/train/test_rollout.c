/* test_rollout.c - roll-outs: a pass under the evictions of an answer gives its tokens the
 * probabilities with which they were sampled, so that all ratios are 1. Also compares advantages
 * with their equation. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/train/masks.h"
#include "engine/train/rollout.h"
#include "tests/train/student.h"

enum { QUESTIONS = 3, SAMPLES = 3, MOST = 24, LONGEST = 40, ALL = QUESTIONS * SAMPLES };
#define TEMPERATURE 0.7

struct bench {
    struct student s;
    int32_t ids[QUESTIONS][LONGEST];
    struct question q[QUESTIONS];
};

static void open_bench(struct bench *b, const char *name, int threads)
{
    static const int length[QUESTIONS] = {LONGEST, 2, 21};
    struct rng r;
    student_open(&b->s, name, threads, LONGEST + MOST, TEMPERATURE);
    const struct model_config *m = &b->s.e->config;
    rng_init(&r, 5);
    for (int i = 0; i < QUESTIONS; i++) {
        for (int t = 0; t < length[i]; t++)
            b->ids[i][t] = (int32_t)rng_below(&r, (uint32_t)m->vocab);
        b->q[i] = (struct question){b->ids[i], length[i], (uint64_t)i};
    }
}

static void sample(struct bench *b, const char *method, uint64_t seed, struct answer *a)
{
    struct method row;
    struct method_params params;
    struct kvf_diag d = {""};
    cr_assert(zero(int, method_parse(method, 16, &row, &params, &d)), "%s", d.text);
    struct session_options s = {.method = &row, .params = &params, .kv_type = KV_F32};
    struct rollout_options o = {&s, SAMPLES, MOST, TEMPERATURE, seed};
    cr_assert(zero(int, rollout_run(b->s.e, &o, b->q, QUESTIONS, a, &d)), "%s", d.text);
}

/* Returns the mean of the ratios, computed by the pass. */
static double mean_ratio(struct bench *b, const struct answer *a, const int32_t *gone)
{
    static const int32_t zero[LONGEST + MOST];
    float share[LONGEST + MOST] = {0}, sampled[LONGEST + MOST] = {0};
    struct pack pack = {a->ids, zero, a->prompt + a->n};
    struct pass_loss loss;
    for (int i = 0; i < a->n; i++) {
        share[a->prompt - 1 + i] = (float)(1.0 / a->n);
        sampled[a->prompt - 1 + i] = a->log_p[i];
    }
    pass_mask(b->s.pass, gone);
    pass_share(b->s.pass, share);
    pass_policy(b->s.pass, sampled, 1e9);
    pass_run(b->s.pass, &pack, 1, NULL, NULL, &loss);
    return -loss.total;
}

static void compare(struct bench *b, const char *method)
{
    struct answer a[ALL];
    int64_t left = 0;
    double apart = 0;
    sample(b, method, 3, a);
    for (int i = 0; i < ALL; i++) {
        double r = mean_ratio(b, &a[i], a[i].evicted_at);
        cr_expect(a[i].n > 0 && a[i].n <= MOST && (a[i].ended || a[i].n == MOST));
        cr_expect(fabs(r - 1) <= 2e-5, "%s, answer %d: ratio %.9g", method, i, r);
        cr_expect(a[i].entropy > 0 && a[i].entropy < a[i].n * log(b->s.e->config.vocab));
        apart = fmax(apart, fabs(mean_ratio(b, &a[i], NULL) - 1));
        left += a[i].n_evicted;
    }
    cr_expect(left > 0 && apart > 1e-3, "%s: the mask makes no difference", method);
    answers_finish(a, ALL);
}

Test(rollout, ratios_of_the_same_policy_are_1)
{
    static const char *const method[] = {"window", "h2o", "snapkv", "gkv", "rkv", "knorm"};
    static const char *const model[] = {"train0.gguf", "train3.gguf"};
    for (size_t k = 0; k < sizeof model / sizeof *model; k++) {
        struct bench b;
        open_bench(&b, model[k], 2);
        for (size_t i = 0; i < sizeof method / sizeof *method; i++)
            compare(&b, method[i]);
        student_close(&b.s);
    }
}

Test(rollout, answers_are_the_same_for_any_number_of_threads)
{
    struct bench b, c;
    struct answer x[ALL], y[ALL], z[ALL];
    int same = 0;
    open_bench(&b, "train0.gguf", 1);
    open_bench(&c, "train0.gguf", 3);
    sample(&b, "snapkv", 3, x);
    sample(&c, "snapkv", 3, y);
    sample(&c, "snapkv", 4, z);
    for (int i = 0; i < ALL; i++) {
        size_t n = (size_t)(x[i].prompt + x[i].n) * sizeof *x[i].ids;
        cr_expect(x[i].n == y[i].n && memcmp(x[i].ids, y[i].ids, n) == 0);
        cr_expect(memcmp(x[i].log_p, y[i].log_p, (size_t)x[i].n * sizeof(float)) == 0);
        same += x[i].n == z[i].n && memcmp(x[i].ids, z[i].ids, n) == 0;
    }
    cr_expect(lt(int, same, 2), "another seed gives the same answers");
    answers_finish(x, ALL);
    answers_finish(y, ALL);
    answers_finish(z, ALL);
    student_close(&b.s);
    student_close(&c.s);
}

/* Sampled tokens have the frequencies of the reported probabilities: a chi-squared test of 400
 * samples. */
Test(rollout, first_tokens_follow_the_distribution)
{
    enum { N = 400 };
    static struct answer a[N];
    struct bench b;
    struct kvf_diag d = {""};
    double expected = 0, seen = 0, entropy = 0;
    open_bench(&b, "train0.gguf", 2);
    struct session_options s = {.kv_type = KV_F32};
    struct rollout_options o = {&s, N, 1, 1, 9};
    cr_assert(zero(int, rollout_run(b.s.e, &o, b.q, 1, a, &d)), "%s", d.text);
    /* The mean of ln p over samples is minus the entropy, within four standard errors. */
    for (int i = 0; i < N; i++) {
        seen -= (double)a[i].log_p[0] / N;
        expected += a[i].entropy / N;
    }
    for (int i = 0; i < N; i++)
        entropy += pow(-(double)a[i].log_p[0] - seen, 2) / N;
    cr_expect(ge(dbl, expected, 0.1), "%g", expected);
    cr_expect(fabs(seen - expected) <= 4 * sqrt(entropy / N), "%.6g, entropy %.6g", seen, expected);
    answers_finish(a, N);
    student_close(&b.s);
}

Test(rollout, advantages_are_those_of_the_equation)
{
    struct answer a[8] = {{0}};
    static const double reward[8] = {1, 0, 0, 1, 1, 1, 1, 1};
    for (int i = 0; i < 8; i++) {
        a[i].reward = reward[i];
        a[i].ended = i != 2;
    }
    answers_weigh(a, 2, 4);
    /* Mean 1/2, standard deviation 1/2. The third answer was cut; all answers of the second
     * question are equal. */
    static const double want[8] = {1, -1, 0, 1, 0, 0, 0, 0};
    for (int i = 0; i < 8; i++)
        cr_expect(fabs(a[i].advantage - want[i]) <= 1e-12, "%d: %g", i, a[i].advantage);
    a[3].reward = 0;
    answers_weigh(a, 1, 4);
    cr_expect(fabs(a[0].advantage - 0.75 / sqrt(0.1875)) <= 1e-12);
    cr_expect(fabs(a[1].advantage + 0.25 / sqrt(0.1875)) <= 1e-12);
}
