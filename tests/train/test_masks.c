/* test_masks.c - masks: in a pass, the student sees exactly the entries that a decoder with
 * evictions saw, so that both give every token the same probability. Tests each method and
 * document. */
#include "engine/train/masks.h"
#include "tests/train/student.h"

enum { N = 90, CUT = 37, PROMPT = 12 };

struct bench {
    struct student s;
    int32_t ids[N], first[N], *gone;
    struct pack pack;
};

static void open_bench(struct bench *b, const char *name)
{
    student_open(&b->s, name, 2, N, 0);
    const struct model_config *m = &b->s.e->config;
    b->gone = MEM_NEW(int32_t, ((size_t)m->n_layers * N * (size_t)m->n_kv_heads));
    struct rng r = rng_seeded(5);
    for (int t = 0; t < N; t++) {
        b->ids[t] = (int32_t)rng_below(&r, (uint32_t)m->vocab);
        b->first[t] = t < CUT ? 0 : CUT;
    }
    b->pack = (struct pack){b->ids, b->first, N};
    pass_mask(b->s.pass, b->gone);
}

static void close_bench(struct bench *b)
{
    mem_free(b->gone);
    student_close(&b->s);
}

static double nll(const float *logits, int n, int id)
{
    double most = (double)logits[0], sum = 0;
    for (int i = 1; i < n; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum) - (double)logits[id];
}

/* Returns -ln p of tokens [PROMPT, n) of a document, computed by decoding. */
static double decoded(struct bench *b, const struct session_options *opt, int first, int n)
{
    OWNED(session_destroy) struct session *s = NULL;
    struct session_options o = *opt;
    double sum = 0;
    o.cap = n;
    succeeds(session_create(b->s.e, &o, &s, &d));
    cr_assert(zero(int, session_prompt(s, b->ids + first, PROMPT, NULL, NULL)));
    for (int t = PROMPT; t < n; t++) {
        sum += nll(session_logits(s), b->s.e->config.vocab, b->ids[first + t]);
        if (t + 1 < n)
            cr_assert(zero(int, session_step(s, b->ids[first + t])));
    }
    return sum;
}

/* Returns -ln p of these tokens in both documents, computed by the pass. */
static double passed(struct bench *b, const float *share)
{
    struct pass_loss loss;
    pass_share(b->s.pass, share);
    pass_run(b->s.pass, &b->pack, 1, NULL, NULL, &loss);
    return loss.term[QUALITY_NTP];
}

static void compare(struct bench *b, const char *method, const float *share)
{
    struct method row;
    struct method_params params;
    int64_t left;
    succeeds(method_parse(method, 16, &row, &params, &d));
    struct session_options o = {.method = &row, .params = &params, .kv_type = KV_F32};
    succeeds(masks_make(b->s.e, &o, PROMPT, &b->pack, 1, &b->gone, &left, NULL, &d));
    double want = decoded(b, &o, 0, CUT) + decoded(b, &o, CUT, N - CUT), have = passed(b, share);
    cr_expect(left > 0, "%s evicts nothing", method);
    cr_expect(fabs(have - want) <= 1e-5 * want, "%s: %.9g, decoded %.9g", method, have, want);
    for (size_t i = 0; i < (size_t)b->s.e->config.n_layers * N * (size_t)b->s.e->config.n_kv_heads;
         i++)
        b->gone[i] = INT32_MAX;
    cr_expect(fabs(passed(b, share) - want) > 1e-4 * want, "%s: the mask makes no difference",
              method);
}

/* share: the weight of the token at t + 1, for tokens that are decoded one by one. */
static void compare_all(const char *const *model, int n_models, const char *const *method,
                        int n_methods)
{
    float share[N];
    for (int t = 0; t < N; t++)
        share[t] = t + 1 < N && t + 1 != CUT && (t + 1) - (t < CUT ? 0 : CUT) >= PROMPT;
    for (int k = 0; k < n_models; k++) {
        SCOPED(close_bench) struct bench b;
        open_bench(&b, model[k]);
        for (int i = 0; i < n_methods; i++)
            compare(&b, method[i], share);
    }
}

Test(masks, give_every_token_the_probability_that_decoding_gives_it)
{
    static const char *const method[] = {
        "window", "h2o",   "tova", "snapkv", "keydiff",        "gkv",
        "rkv",    "adakv", "cake", "knorm",  "h2o:order=after"};
    static const char *const model[] = {"train0.gguf", "train1.gguf", "train3.gguf", "train4.gguf"};
    compare_all(model, 4, method, 11);
}

/* Sliding windows, capped scores and logits, norms after branches, other RoPE variants, and
 * scales. */
Test(masks, do_so_in_models_of_every_family)
{
    static const char *const method[] = {"window", "h2o", "snapkv", "gkv"};
    static const char *const model[] = {"llama.gguf", "qwen2.gguf",   "qwen3.gguf",
                                        "phi3.gguf",  "gemma2.gguf",  "gemma3.gguf",
                                        "olmo2.gguf", "granite.gguf", "smollm3.gguf"};
    compare_all(model, 9, method, 4);
}
