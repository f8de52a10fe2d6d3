/* test_turns.c - a prompt that is cut after each turn equals a chain of prompts with one turn each,
 * and a question that is fed to a cut cache equals its tokens as decode steps. */
#include "golden.h"
#include "tests/suite.h"

enum { T = 90, CAP = 120, MOST = 4000 };
static const int ends[] = {22, 51, 70};
enum { TURNS = sizeof ends / sizeof *ends };

struct log {
    struct eviction e[MOST];
    int n;
};

static void on_evict(void *ctx, const struct eviction *e)
{
    struct log *l = ctx;
    cr_assert(l->n < MOST);
    memset(&l->e[l->n], 0, sizeof *e); /* padding is compared, too */
    l->e[l->n].layer = e->layer;
    l->e[l->n].head = e->head;
    l->e[l->n].pos = e->pos;
    l->e[l->n].t = e->t;
    l->e[l->n].score = e->score;
    l->e[l->n++].rank = e->rank;
}

static struct engine *model;
static int32_t ids[CAP];

static void setup(void)
{
    struct rng r;
    model = open_model(tiny_path(1), true, 2);
    rng_init(&r, 17);
    for (int i = 0; i < CAP; i++)
        ids[i] = (int32_t)(3 + rng_below(&r, (uint64_t)model->config.vocab - 3));
}

static void teardown(void)
{
    engine_close(model);
}

TestSuite(turns, .init = setup, .fini = teardown);

static struct session *open_turns(const struct choice *c, int n_turns, int chunk, struct log *l)
{
    struct session_options opt = {.method = &c->row,
                                  .params = &c->params,
                                  .kv_type = KV_F32,
                                  .cap = CAP,
                                  .chunk = chunk,
                                  .turn_end = ends,
                                  .n_turns = n_turns};
    struct session *s = NULL;
    struct kvf_diag d = {""};
    cr_assert(session_create(model, &opt, &s, &d) == KVF_OK, "%s", d.text);
    *l = (struct log){.n = 0};
    session_on_evict(s, on_evict, l);
    return s;
}

/* Steps to the end of the tokens, and compares the logits of each. */
static void same_from(struct session *a, struct session *b, const char *what)
{
    size_t bytes = (size_t)model->config.vocab * sizeof(float);
    cr_assert(session_length(a) == session_length(b));
    cr_assert(memcmp(session_logits(a), session_logits(b), bytes) == 0, "%s: logits", what);
    while (session_length(a) < CAP) {
        int32_t id = ids[session_length(a)];
        cr_assert(session_step(a, id) == KVF_OK);
        cr_assert(session_step(b, id) == KVF_OK);
        cr_assert(memcmp(session_logits(a), session_logits(b), bytes) == 0, "%s: step %d", what,
                  session_length(a));
    }
}

static void same_log(const struct log *a, const struct log *b, const char *what)
{
    cr_assert(a->n > 0, "%s: nothing was evicted", what);
    cr_assert(a->n == b->n, "%s", what);
    cr_assert(memcmp(a->e, b->e, (size_t)a->n * sizeof *a->e) == 0, "%s: evictions", what);
}

static const char *const methods[] = {
    "snapkv:window=6,", "h2o:",           "adakv:window=6,",     "pyramidkv:", "keydiff:",
    "window:",          "cake:window=6,", "expected-attention:", "tova:"};

Test(turns, equal_a_chain_of_prompts, .timeout = 120)
{
    static struct log a, b;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char text[64];
        snprintf(text, sizeof text, "%scut=turn", methods[i]);
        struct choice turn = choose(text, 18);
        snprintf(text, sizeof text, "%scut=prompt", methods[i]);
        struct choice once = choose(text, 18);
        struct session *s = open_turns(&turn, TURNS, 16, &a), *chain = open_turns(&once, 0, 33, &b);
        cr_assert(session_prompt(s, ids, T, NULL, NULL) == KVF_OK);
        for (int k = 0, from = 0; k <= TURNS; k++) {
            int to = k < TURNS ? ends[k] : T;
            cr_assert(session_prompt(chain, ids + from, to - from, NULL, NULL) == KVF_OK);
            from = to;
        }
        same_log(&a, &b, text);
        cr_assert(eq(int, (int)session_cuts(s), TURNS + 1), "%s", text);
        same_from(s, chain, text);
        same_log(&a, &b, text); /* the cache grows after the last turn */
        session_destroy(s);
        session_destroy(chain);
    }
}

/* The answers of a chat are fed by decode steps, as when they were generated. */
Test(turns, equal_a_chat_whose_answers_were_generated, .timeout = 120)
{
    static struct log a, b;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char text[64];
        snprintf(text, sizeof text, "%scut=turn", methods[i]);
        struct choice c = choose(text, 18);
        struct session *s = open_turns(&c, TURNS, 16, &a), *live = open_turns(&c, 0, 16, &b);
        cr_assert(session_prompt(s, ids, T, NULL, NULL) == KVF_OK);
        for (int k = 0, from = 0; k <= TURNS; k++) {
            int to = k < TURNS ? ends[k] : T;
            cr_assert(session_prompt(live, ids + from, to - from, NULL, NULL) == KVF_OK);
            for (from = to; k < TURNS && from < to + 5; from++) /* an answer of 5 tokens */
                cr_assert(session_step(live, ids[from]) == KVF_OK);
        }
        same_log(&a, &b, text);
        same_from(s, live, text);
        session_destroy(s);
        session_destroy(live);
    }
}

Test(turns, a_question_is_fed_as_decode_steps, .timeout = 120)
{
    static struct log a, b;
    static const char *const some[] = {"h2o", "snapkv:cut=prompt", "quest:page=4,dense=0",
                                       "rkv:order=after", "full"};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct choice c = choose(some[i], 24);
        struct session *s = open_turns(&c, 0, 16, &a), *steps = open_turns(&c, 0, 16, &b), *fork;
        struct kvf_diag d = {""};
        cr_assert(session_prompt(s, ids, ends[1], NULL, NULL) == KVF_OK);
        cr_assert(session_prompt(steps, ids, ends[1], NULL, NULL) == KVF_OK);
        cr_assert(session_fork(s, NULL, &fork, &d) == KVF_OK);
        cr_assert(session_feed(fork, ids, 9, NULL, NULL) == KVF_OK); /* another question before */
        cr_assert(session_feed(s, ids + ends[1], T - ends[1], NULL, NULL) == KVF_OK);
        for (int t = ends[1]; t < T; t++)
            cr_assert(session_step(steps, ids[t]) == KVF_OK);
        cr_assert(a.n == b.n, "%s", some[i]);
        cr_assert(memcmp(a.e, b.e, (size_t)a.n * sizeof *a.e) == 0, "%s: evictions", some[i]);
        same_from(s, steps, some[i]);
        session_destroy(s);
        session_destroy(steps);
        session_destroy(fork);
    }
}

/* Hashes of the attention rows of a session, and the numbers of tokens that were fed together. */
struct rows {
    uint64_t of[16][16][CAP];
    int most, blocks;
    int fed;
};

static void on_row(void *ctx, const struct attn_row *row)
{
    struct rows *r = ctx;
    uint64_t h = rng_hash_bytes((uint64_t)row->n, row->p, (size_t)row->n * sizeof *row->p);
    r->of[row->layer][row->head][row->t] = rng_hash_bytes(h, &row->lse, sizeof row->lse);
}

static int on_block(void *ctx, int done)
{
    struct rows *r = ctx;
    r->most = done - r->fed > r->most ? done - r->fed : r->most;
    r->blocks++;
    r->fed = done;
    return 0;
}

/* Feeds a question in blocks and in single steps, and compares all that follows from it: attention
 * rows, counters, evictions with their scores, and the decision after a further prompt, which reads
 * the evidence of the question. */
static void compare_blocks(const char *text, int budget, enum kv_type kv, int least, int most)
{
    static struct log a, b;
    static struct rows x, y;
    struct choice c = choose(text, budget);
    struct session_options opt = {
        .method = &c.row, .params = &c.params, .kv_type = kv, .cap = CAP, .chunk = 16};
    struct session *s = NULL, *steps = NULL;
    succeeds(session_create(model, &opt, &s, &d));
    succeeds(session_create(model, &opt, &steps, &d));
    a.n = b.n = 0;
    x = y = (struct rows){.most = 0};
    session_on_evict(s, on_evict, &a);
    session_on_evict(steps, on_evict, &b);
    cr_assert(session_prompt(s, ids, ends[1], NULL, NULL) == KVF_OK);
    cr_assert(session_prompt(steps, ids, ends[1], NULL, NULL) == KVF_OK);
    session_on_row(s, on_row, &x);
    session_on_row(steps, on_row, &y);
    cr_assert(session_feed(s, ids + ends[1], T - ends[1], on_block, &x) == KVF_OK);
    for (int t = ends[1]; t < T; t++)
        cr_assert(session_step(steps, ids[t]) == KVF_OK);
    cr_assert(memcmp(x.of, y.of, sizeof x.of) == 0, "%s: attention rows", text);
    cr_assert(least <= x.most && x.most <= most, "%s: blocks of up to %d", text, x.most);
    cr_assert(x.fed == T - ends[1]);
    cr_assert(session_peak(s, NULL) == session_peak(steps, NULL), "%s", text);
    cr_assert(session_cuts(s) == session_cuts(steps), "%s", text);
    cr_assert(eq(dbl, session_reads(s), session_reads(steps)), "%s", text);
    cr_assert(memcmp(session_logits(s), session_logits(steps),
                     (size_t)model->config.vocab * sizeof(float))
                  == 0,
              "%s: logits", text);
    cr_assert(session_prompt(s, ids + T, 9, NULL, NULL) == KVF_OK);
    cr_assert(session_prompt(steps, ids + T, 9, NULL, NULL) == KVF_OK);
    cr_assert(a.n == b.n && (a.n > 0 || budget > CAP || !c.row.score), "%s", text);
    cr_assert(memcmp(a.e, b.e, (size_t)a.n * sizeof *a.e) == 0, "%s: evictions", text);
    same_from(s, steps, text);
    session_destroy(s);
    session_destroy(steps);
}

/* Methods, the length of the longest block that the question is fed in, and the budget. */
static const struct {
    const char *text;
    int least, most, budget;
} fed[] = {
    {"full", 16, 16, 24},
    {"snapkv:cut=prompt", 16, 16, 24},
    {"snapkv:window=6,cut=prompt", 16, 16, 50}, /* one entry is evicted: its slot is open */
    {"h2o:cut=turn", 16, 16, 24},
    {"tova:cut=prompt", 16, 16, 24},
    {"adakv:window=6,cut=prompt", 16, 16, 24},
    {"pyramidkv:cut=prompt", 16, 16, 24},
    {"keydiff:cut=prompt", 16, 16, 24},
    {"cake:window=6,cut=prompt", 16, 16, 24},
    {"expected-attention:cut=prompt", 16, 16, 24},
    {"h2o:cut=prompt,positions=cache", 16, 16, 24},
    {"rkv:cut=prompt", 16, 16, 24},
    {"h2o", 1, 1, 24},         /* each step evicts */
    {"h2o:every=9", 8, 8, 24}, /* a cut makes room for its own token and eight more */
    {"h2o:slack=5", 5, 6, 24}, /* entries above the budget */
    {"h2o:order=after", 1, 1, 24},
    {"h2o:every=9,order=after", 8, 8, 24},
    {"snapkv:stride=8,order=after", 1, 16, 24},
    {"adakv:window=6", 1, 1, 24},
    {"h2o", 10, 16, 61},                /* the first ten steps fill the budget */
    {"h2o", 16, 16, CAP + 9},           /* nothing is ever evicted */
    {"quest:page=4,dense=0", 1, 1, 24}, /* each step reads other pages */
    {"window", 1, 1, 24},
    {"local", 1, 1, 24}, /* entries expire */
};

Test(turns, a_question_is_fed_in_blocks, .timeout = 120)
{
    static const enum kv_type types[] = {KV_F32, KV_F16, KV_Q8_0, KV_I16};
    for (size_t i = 0; i < sizeof fed / sizeof *fed; i++)
        compare_blocks(fed[i].text, fed[i].budget, types[i % 4], fed[i].least, fed[i].most);
    for (size_t k = 0; k < 4; k++)
        compare_blocks("snapkv:window=6,cut=prompt", 24, types[k], 16, 16);
}

/* The same with weights and activations as integers. */
Test(turns, a_question_is_fed_in_blocks_of_integers, .timeout = 120)
{
    engine_close(model);
    model = open_words(tiny_path(1), 2);
    for (size_t i = 0; i < sizeof fed / sizeof *fed; i++)
        compare_blocks(fed[i].text, fed[i].budget, KV_I16, fed[i].least, fed[i].most);
}

Test(turns, a_budget_in_percent_needs_a_prompt)
{
    struct choice c = choose("h2o", 24);
    struct kvf_diag d = {""};
    struct session *s = NULL;
    cr_assert(method_parse_for("h2o", &(struct budget){.part = BUDGET_WHOLE / 4},
                               &(struct budget_prompt){0}, &c.row, &c.params, &d)
              == KVF_OK);
    struct session_options opt = {.method = &c.row, .params = &c.params, .cap = CAP};
    cr_assert(session_create(model, &opt, &s, &d) == KVF_E_ARG);
    cr_assert(strstr(d.text, "percent") != NULL, "%s", d.text);
}
