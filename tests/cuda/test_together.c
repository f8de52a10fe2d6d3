/* test_together.c - sessions that decode in a batch collect the same evidence as each session on
 * its own: sums, rows of windows and the decisions based on them. This holds for any lengths,
 * methods and batch size. */
#include "engine/decode/session.h"
#include "engine/method/device_eviction.h"
#include "tests/cuda/outcome.h"
#include "tests/engine/golden.h"

/* STEPS exceeds the rows of every window, so that no row of the prompt remains. */
enum { MOST = 13, STEPS = 4, LONGEST = 75 };

/* More sessions collect rows than one launch processes. Heads are short in the first and the last
 * session and two pages long in some of the others. The second session collects no evidence, one
 * reads by pages, and in two an observer also reads the rows. */
static const struct member {
    const char *method;
    int budget, prompt;
    const char *gates; /* file of gates for the matching model; NULL: no gates */
    bool watched;
} members[MOST] = {
    {"h2o", 20, 24, NULL, false},
    {"full", 0, 40, NULL, false},
    {"snapkv:window=3,every=2", 64, 66, NULL, false},
    {"quest:page=4,dense=0", 24, 42, NULL, true},
    {"h2o", LONGEST + STEPS, LONGEST, NULL, false},
    {"rkv:window=3,every=2", 18, 28, NULL, false},
    {"gkv:window=2,every=2", 17, 26, NULL, false},
    {"tova", 20, 33, NULL, false},
    {"snapkv:window=3,group=max", 21, 29, NULL, true},
    {"wgkv-snapkv:local=5,window=2,fraction=0.2", 18, 30, "wgkv", false},
    {"h2o:every=3,group=mean", 19, 27, NULL, false},
    {"tova", 16, 22, NULL, false},
    {"h2o", 17, 25, NULL, false},
};

/* Results of a session: logits and decisions of all steps, and the evidence after them. */
struct told {
    struct outcome o;
    double *memory;
    size_t n_memory, room;
    int strange; /* rows with weight on entries that were not read */
};

static void put(struct told *x, double number)
{
    if (x->n_memory == x->room) {
        x->memory = mem_grow(x->memory, x->room, 2 * x->room + 512, sizeof *x->memory);
        x->room = 2 * x->room + 512;
    }
    x->memory[x->n_memory++] = number;
}

static void on_row(void *ctx, const struct attn_row *row)
{
    struct told *x = ctx;
    int read = 0;
    bool more = false;
    put(x, row->t);
    put(x, row->seen);
    put(x, (double)row->lse);
    for (int i = 0; i < row->n; i++) {
        bool own = !row->visible || row->visible[i];
        put(x, (double)row->p[i]);
        read += own;
        more |= !own && row->p[i] != 0;
    }
    x->strange += more || row->seen != read;
}

/* Stores row w of query head q: the weights of the entries that existed then. Returns their sum. */
static double put_row(struct told *x, const struct device_evidence *e, size_t q, int w,
                      const struct cache_head *head)
{
    size_t at = q * (size_t)e->ring + (size_t)w;
    double sum = 0;
    put(x, e->row_t[at]);
    put(x, e->row_n[at]);
    put(x, (double)e->row_lse[at]);
    for (int i = 0; i < head->n; i++) {
        float weight = head->pos[i] <= e->row_t[at] ? e->rows[at * (size_t)e->cap + (size_t)i] : 0;
        put(x, (double)weight);
        sum += (double)weight;
    }
    return sum;
}

/* Stores the evidence of query head q, given its KV head. Checks that the newest row is the last
 * query's and that it sums to 1, unless entries are evicted after the query. Checks that the sums
 * of a head without evictions equal the number of queries. */
static void put_head(struct told *x, const struct device_evidence *e, size_t q,
                     const struct cache_head *head, int fed, const char *what)
{
    double sum = 0, newest = 0;
    for (int i = 0; e->sum && i < head->n; i++) {
        put(x, e->sum[q * (size_t)e->cap + (size_t)i]);
        sum += e->sum[q * (size_t)e->cap + (size_t)i];
    }
    if (e->sum && head->n == fed)
        cr_expect(le(dbl, fabs(sum - fed), 1e-3), "%s: sums of query head %zu", what, q);
    for (int w = 0; e->rows && w < e->ring && w < e->n_rows[q]; w++) {
        double row = put_row(x, e, q, w, head);
        newest = w == (e->n_rows[q] - 1) % e->ring ? row : newest;
        cr_expect(ge(int, e->row_t[q * (size_t)e->ring + (size_t)w], fed - e->ring), "%s", what);
    }
    if (e->rows && !strstr(what, "order=after"))
        cr_expect(le(dbl, fabs(newest - 1), 1e-4), "%s: a row of query head %zu", what, q);
}

static void remember(struct told *x, const struct engine *e, struct session *s, const char *what)
{
    const struct cache *c = session_cache(s);
    const struct device_evidence all = device_evidence(session_method(s), c);
    const struct model_config *m = &e->config;
    int G = m->n_heads, per = G / m->n_kv_heads;
    cr_expect(zero(int, x->strange), "%s: rows of what was not read", what);
    for (int q = 0; q < m->n_layers * G; q++) {
        const struct cache_head head = cache_view(c, q / G, q % G / per);
        put_head(x, &all, (size_t)q, &head, session_length(s), what);
        for (int i = 0; all.gate && i < head.n; i++)
            put(x, (double)all.gate[(size_t)(q / per * all.cap + i)]);
    }
}

/* Sessions after their prompts. Steps run on forks of them. */
struct crowd {
    struct engine *e;
    struct batch *batch;
    const struct member *who[MOST];
    struct gates *gates[MOST];
    struct session *origin[MOST];
    int n;
};

static void add(struct crowd *c, const struct member *m, const int32_t *ids)
{
    struct kvf_diag d = {""};
    struct choice of = choose(m->method, method_unbudgeted(m->method) ? 0 : m->budget);
    c->gates[c->n] = m->gates ? open_gates(c->e, m->gates) : NULL;
    struct session_options opt = {.method = &of.row,
                                  .params = &of.params,
                                  .gates = c->gates[c->n],
                                  .kv_type = c->e->exact ? KV_F32 : KV_F16,
                                  .cap = m->prompt + STEPS};
    cr_assert(zero(int, session_create(c->e, &opt, &c->origin[c->n], &d)), "%s: %s", m->method,
              d.text);
    cr_assert(zero(int, session_prompt(c->origin[c->n], ids, m->prompt, NULL, NULL)));
    c->who[c->n++] = m;
}

static struct crowd open_crowd(const char *path, const struct backend *backend, bool exact)
{
    struct crowd c = {.e = open_on(path, backend, exact, 1)};
    cr_assert(zero(int, batch_create(c.e, MOST, &c.batch)));
    return c;
}

/* gated: the model has gates. */
static struct crowd gather(const char *path, const struct backend *backend, bool exact, bool gated)
{
    struct crowd c = open_crowd(path, backend, exact);
    int32_t ids[LONGEST + MOST];
    for (int i = 0; i < LONGEST + MOST; i++)
        ids[i] = (i * i + 3) % c.e->config.vocab;
    for (int i = 0; i < MOST; i++)
        if (gated || !members[i].gates)
            add(&c, &members[i], ids + i);
    return c;
}

static void part(struct crowd *c)
{
    for (int i = 0; i < c->n; i++) {
        session_destroy(c->origin[i]);
        gates_close(c->gates[i]);
    }
    batch_destroy(c->batch);
    engine_close(c->e);
}

/* Work that the last step asked of the device. */
struct cost {
    long waits, launches;
};

/* Runs steps of the first n sessions, in a batch or one after the other. */
static struct cost feed(const struct crowd *c, int n, bool together, struct told *told)
{
    struct session *s[MOST];
    struct cost last = {0, 0};
    size_t V = (size_t)c->e->config.vocab;
    int32_t id[MOST];
    for (int i = 0; i < n; i++) {
        told[i] = (struct told){.o = {.logits = MEM_NEW(float, STEPS *V), .n_logits = STEPS * V}};
        succeeds(session_fork(c->origin[i], NULL, &s[i], &d));
        session_on_evict(s[i], on_evict, &told[i].o);
        if (c->who[i]->watched)
            session_on_row(s[i], on_row, &told[i]);
    }
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < n; i++)
            id[i] = (int32_t)((size_t)(t * 7 + i) % V);
        const struct cost then = {emulation_waits(), emulation_launches()};
        if (together)
            cr_assert(zero(int, batch_step(c->batch, s, n, id)));
        for (int i = 0; !together && i < n; i++)
            cr_assert(zero(int, session_step(s[i], id[i])));
        last = (struct cost){emulation_waits() - then.waits, emulation_launches() - then.launches};
        for (int i = 0; i < n; i++)
            memcpy(told[i].o.logits + (size_t)t * V, session_logits(s[i]), V * sizeof(float));
    }
    for (int i = 0; i < n; i++) {
        remember(&told[i], c->e, s[i], c->who[i]->method);
        session_destroy(s[i]);
    }
    return last;
}

static void drop(struct told *x, int n)
{
    for (int i = 0; i < n; i++) {
        mem_free(x[i].o.logits);
        mem_free(x[i].o.evictions);
        mem_free(x[i].memory);
    }
}

/* The exp of a real device may differ in the last digit. */
static bool same_memory(const struct told *a, const struct told *b, double most)
{
    for (size_t i = 0; a->n_memory == b->n_memory && i < a->n_memory; i++)
        if (!(fabs(a->memory[i] - b->memory[i]) <= most))
            return false;
    return a->n_memory == b->n_memory;
}

/* Checks that session i of n has the same bits as on its own. */
static void expect_same(const struct crowd *c, int i, int n, const struct told *one,
                        const struct told *alone)
{
    const char *what = c->who[i]->method;
    size_t bytes = alone->o.n_logits * sizeof(float);
    cr_expect(zero(int, memcmp(one->o.logits, alone->o.logits, bytes)), "%s, %d of %d", what, i, n);
    cr_expect(same_evictions(&one->o, &alone->o), "%s, %d of %d decides", what, i, n);
    cr_expect(same_memory(one, alone, 0), "%s, %d of %d: what is remembered", what, i, n);
}

/* If sums may have any order, separate kernels compute the rows. The bits equal those of each
 * session on its own. */
Test(together, remembers_what_each_would_alone, .timeout = 120)
{
    static const int n_of[] = {1, 2, MOST - 1};
    SCOPED(part) struct crowd c = gather(family_path(9), &backend_cuda, false, false);
    struct told alone[MOST], all[MOST];
    feed(&c, c.n, false, alone);
    for (size_t k = 0; k < sizeof n_of / sizeof *n_of; k++) {
        int n = n_of[k];
        feed(&c, n, true, all);
        for (int i = 0; i < n; i++)
            expect_same(&c, i, n, &all[i], &alone[i]);
        drop(all, n);
    }
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
    drop(alone, c.n);
}

/* With exact sums, rows are computed before the output. Evidence and decisions equal those of the
 * CPU. */
Test(together, remembers_what_the_processor_does, .timeout = 120)
{
    struct crowd here = gather(tiny_path(0), &backend_cpu, true, true);
    SCOPED(part) struct crowd there = gather(tiny_path(0), &backend_cuda, true, true);
    struct told cpu[MOST], cuda[MOST];
    feed(&here, MOST, false, cpu);
    feed(&there, MOST, true, cuda);
    for (int i = 0; i < MOST; i++) {
        const char *what = members[i].method;
        cr_expect(le(dbl, distance(cuda[i].o.logits, cpu[i].o.logits, cpu[i].o.n_logits), 1e-5),
                  "%s", what);
        cr_expect(same_evictions(&cuda[i].o, &cpu[i].o), "%s decides", what);
        cr_expect(same_memory(&cuda[i], &cpu[i], EMULATED ? 0 : 1e-5), "%s: what is remembered",
                  what);
    }
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
    drop(cpu, MOST);
    drop(cuda, MOST);
    part(&here);
}

/* Checks that each session of a batch has the same bits as on its own. */
static void expect_each(struct crowd *c, int n)
{
    struct told alone[MOST], all[MOST];
    feed(c, n, false, alone);
    feed(c, n, true, all);
    for (int i = 0; i < n; i++)
        expect_same(c, i, n, &all[i], &alone[i]);
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
    drop(alone, n);
    drop(all, n);
    part(c);
}

/* More gated sessions than one launch processes. They differ only in their tokens. */
Test(together, numbers_of_gates_are_those_of_each, .timeout = 60)
{
    static const struct member gated = {"trimkv", 20, 24, "rg", false};
    struct crowd c = open_crowd(tiny_path(0), &backend_cuda, false);
    int32_t ids[24];
    for (int i = 0; i < 24; i++)
        ids[i] = i * i % c.e->config.vocab;
    add(&c, &gated, ids);
    for (int i = 1; i < GPU_TOGETHER + 2; i++) {
        c.origin[i] = c.origin[0];
        c.who[i] = &gated;
    }
    expect_each(&c, GPU_TOGETHER + 2);
}

/* Heads with more entries than the lanes of a block, between short heads. */
Test(together, long_heads_are_taken_whole, .timeout = 60)
{
    enum { LONG = 258 };
    static const struct member mixed[] = {{"h2o", 20, 24, NULL, false},
                                          {"h2o", LONG, LONG, NULL, false},
                                          {"tova", 16, 22, NULL, false}};
    struct crowd c = open_crowd(tiny_path(0), &backend_cuda, false);
    int32_t ids[LONG];
    for (int i = 0; i < LONG; i++)
        ids[i] = (i * i + 5) % c.e->config.vocab;
    for (int i = 0; i < 3; i++)
        add(&c, &mixed[i], ids);
    expect_each(&c, 3);
}

/* Makes sessions of these methods with different budgets and lengths. */
enum { MIXED = 10 };
static struct crowd gather_mixed(const char *const *method, const struct backend *backend,
                                 bool exact, struct member *who)
{
    struct crowd c = open_crowd(tiny_path(5), backend, exact);
    int32_t ids[70 + MIXED];
    for (int i = 0; i < 70 + MIXED; i++)
        ids[i] = (i * i + 3) % c.e->config.vocab;
    for (int i = 0; i < MIXED; i++) {
        who[i] = (struct member){method[i], 24 + i, 70 - 7 * i, NULL, false};
        add(&c, &who[i], ids + i);
    }
    return c;
}

/* The matrix multiplications of a step are launched once for all sessions, and rows have the same
 * bits as on their own. A session that evicts after its query costs the batch one more wait. */
Test(together, weights_are_read_once, .timeout = 120)
{
    static const char *const method[MIXED] = {"full",
                                              "h2o",
                                              "snapkv:window=4",
                                              "tova:order=after",
                                              "keydiff:order=after",
                                              "h2o",
                                              "full",
                                              "window",
                                              "tova",
                                              "window"};
    static const int n_of[] = {1, 3, MIXED}, waits[] = {1, 1, 2};
    struct member who[MIXED];
    struct crowd here = gather_mixed(method, &backend_cpu, true, who);
    SCOPED(part) struct crowd there = gather_mixed(method, &backend_cuda, true, who);
    struct told cpu[MIXED], alone[MIXED], all[MIXED];
    feed(&here, MIXED, true, cpu);
    for (int k = 0; k < 3; k++) {
        int n = n_of[k], products = 2 * 4 + 1; /* minimum per session */
        struct cost apart = feed(&there, n, false, alone), once = feed(&there, n, true, all);
        for (int i = 0; i < n; i++) {
            double off = distance(all[i].o.logits, cpu[i].o.logits, cpu[i].o.n_logits);
            expect_same(&there, i, n, &all[i], &alone[i]);
            cr_expect(le(dbl, off, 1e-5), "%d of %d", i, n);
            cr_expect(same_evictions(&all[i].o, &cpu[i].o), "%d of %d decide", i, n);
        }
        cr_expect(once.waits == waits[k] || !EMULATED, "%d together: %ld waits", n, once.waits);
        bool fewer = once.launches <= apart.launches - (n - 1) * products;
        cr_expect(fewer || !EMULATED, "%d together", n);
        drop(alone, n);
        drop(all, n);
    }
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
    drop(cpu, MIXED);
    part(&here);
}

/* With sums in any order and attention kernels that keep no rows, each session still has the same
 * bits. The sessions have different lengths, and there are more than one launch processes. */
Test(together, bits_are_those_of_each, .timeout = 60)
{
    static const char *const method[MIXED] = {
        "full",   "h2o",  "quest:page=4", "full", "snapkv:window=4", "keydiff:order=after",
        "window", "full", "full",         "tova"};
    struct member who[MIXED];
    struct crowd c = gather_mixed(method, &backend_cuda, false, who);
    expect_each(&c, MIXED);
}
