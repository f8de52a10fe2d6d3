/* test_session.c - complete runs on the device and on the CPU in f32 make the same decisions and
 * write the same bytes of every probe column to the trace. Logits agree. */
#include "engine/decode/session.h"
#include "engine/model/out_gram.h"
#include "engine/probe/probes.h"
#include "engine/probe/watch.h"
#include "tests/cuda/outcome.h"
#include "tests/engine/golden.h"

enum { PROMPT = 70, BRIEF = 36, LONG = 150, STEPS = 5, CAP = LONG + STEPS, BUDGET = 24 };

struct run {
    const char *path, *method, *probes; /* probes NULL: no trace is recorded */
    const char *shadows;
    int budget;
    bool exact;
    int prompt;        /* tokens; 0: PROMPT */
    const char *gates; /* file name; NULL: gates of the kind that the method needs */
};

static int prompt_of(const struct run *run)
{
    return run->prompt ? run->prompt : PROMPT;
}

/* Inputs of a run in addition to its method. */
struct given {
    struct gates *gates; /* NULL: the method needs no gates */
    int32_t *until;      /* [L][G][CAP] a plan: each entry expires at some step, or stays */
    uint32_t *evict;     /* the plan in the format of the probes */
    double *mass;        /* [L][G][CAP] total attention in the run */
    double *gram;
    struct watch watch;
};

/* Opens the gates of tiny0 of the kind that a method needs. */
static struct gates *gates_of(const struct engine *e, const struct method *row)
{
    static const char *const file[] = {[GATE_RETENTION] = "rg",
                                       [GATE_WRITE] = "wgkv",
                                       [GATE_IMPORTANCE] = "locret",
                                       [GATE_HEADS] = "duo",
                                       [GATE_BLOCKS] = "seer"};
    unsigned kinds = method_gates(row);
    return kinds ? open_gates(e, file[__builtin_ctz(kinds)]) : NULL;
}

static struct given give(struct engine *e, const struct method *row, const char *gates)
{
    size_t n = (size_t)e->config.n_layers * (size_t)e->config.n_heads * CAP;
    struct given g = {.gates = gates ? open_gates(e, gates) : gates_of(e, row),
                      .until = MEM_NEW(int32_t, n),
                      .evict = MEM_NEW(uint32_t, n),
                      .mass = MEM_NEW(double, n)};
    struct rng r = rng_seeded(3);
    for (size_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)(i % CAP), stays = (uint32_t)rng_below(&r, 90);
        g.evict[i] = stays > 80 || at + 1 + stays > CAP ? KVF_ALIVE : at + 1 + stays;
        g.until[i] = g.evict[i] == KVF_ALIVE ? NEVER_EXPIRES : (int32_t)g.evict[i];
        g.mass[i] = rng_uniform(&r) * 9;
    }
    return g;
}

static void take_back(struct given *g)
{
    gates_close(g->gates);
    mem_free(g->until);
    mem_free(g->evict);
    mem_free(g->mass);
    mem_free(g->gram);
    watch_free(&g->watch);
}

/* Returns the probe set. "full" also enables the probes that are in no set, with some watched heads
 * and tokens. */
static unsigned set_of(const struct run *run, struct probe_config *cfg, struct watch *w)
{
    unsigned set = 0, shadows = 0;
    succeeds(probes_parse(run->probes, &set, &d));
    if (run->shadows)
        succeeds(shadows_parse(run->shadows, &shadows, &d));
    if (strcmp(run->probes, "full") == 0) {
        succeeds(probes_parse("full,copies", &set, &d));
        succeeds(watch_add_tokens(w, "3,20-24@L0H1,L1H2", cfg, &d));
        succeeds(watch_set_queries(w, "L1H0@post", cfg, &d));
        succeeds(watch_settle(w, cfg, &set, &d));
        cfg->watch = w;
        for (int i = 0; probe_table[i]; i++) /* raw: test_program.py compares its blocks */
            cr_expect(set >> i & 1 || probe_table[i]->shadow
                          || strcmp(probe_table[i]->name, "raw") == 0,
                      "%s", probe_table[i]->name);
    }
    return set | shadows;
}

/* Useful tokens of a prompt, and some that come later. */
static const int32_t useful[][2] = {{2, 9}, {30, 33}, {72, 74}}, later[][2] = {{72, 74}};
static const struct probe_span_set spans[] = {{"", 3, useful}, {"later", 1, later}};

static struct recorder *record(struct engine *e, const struct run *run, const struct choice *c,
                               struct given *given, const char *path, const int32_t *ids)
{
    static const char *const column_of[] = {[GATE_RETENTION] = "log_beta",
                                            [GATE_WRITE] = "write_gate",
                                            [GATE_IMPORTANCE] = "importance",
                                            [GATE_HEADS] = NULL,
                                            [GATE_BLOCKS] = NULL};
    const struct model_config *m = &e->config;
    int heads = session_cache_heads(m, &c->row, &c->params);
    struct probe_config cfg = {.shape = {m->n_layers, m->n_heads, heads, m->head_dim},
                               .cap = CAP,
                               .kernels = &e->kernels,
                               .reads = !c->row.read->all,
                               .evicts = true,
                               .span_set = spans,
                               .n_span_sets = 2,
                               .shadow_entries = run->shadows && run->shadows[0] == 'e',
                               .plan_until = given->evict,
                               .plan_heads = heads,
                               .plan_tokens = CAP};
    struct kvf_diag d = {""};
    struct recorder *rec = NULL;
    if (given->gates)
        cfg.gate_column = column_of[gates_kind(given->gates)];
    unsigned set = set_of(run, &cfg, &given->watch);
    cr_assert(eq(int, out_gram(e->gguf, m, e->pool, &given->gram, &d), KVF_OK), "%s", d.text);
    cfg.out_gram = given->gram;
    struct recorder_run header = {.header = "{}", .existing = KVF_OVERWRITE, .without_tail = true};
    int err = recorder_create(path, &header, set, &cfg, par_threads(e->pool), &rec, &d);
    cr_assert(eq(int, err, KVF_OK), "%s", d.text);
    for (int i = 0; i < prompt_of(run); i++)
        recorder_token(rec, ids[i], KVF_ROLE_PROMPT, "ab", 2);
    return rec;
}

static struct session *open_given(struct engine *e, const struct choice *c, const struct given *g,
                                  struct recorder *rec)
{
    struct kvf_diag d = {""};
    struct session *s = NULL;
    const struct method_inputs in = {.plan_until = g->until, .plan_len = CAP, .plan_mass = g->mass};
    struct session_options opt = {.method = &c->row,
                                  .params = &c->params,
                                  .gates = g->gates,
                                  .inputs = &in,
                                  .kv_type = e->exact ? KV_F32 : KV_F16,
                                  .cap = CAP,
                                  .recorder = rec};
    cr_assert(zero(int, session_create(e, &opt, &s, &d)), "%s: %s", c->row.name, d.text);
    return s;
}

static struct outcome play(const struct run *run, const struct backend *backend)
{
    char path[] = "/tmp/kvf-device-XXXXXX";
    struct engine *e = open_on(run->path, backend, run->exact, 2);
    struct choice c = choose(run->method, run->budget);
    size_t V = (size_t)e->config.vocab;
    int prompt = prompt_of(run);
    struct outcome o = {.logits = MEM_NEW(float, (1 + STEPS) * V), .n_logits = (1 + STEPS) * V};
    int32_t ids[CAP];
    struct given given = give(e, &c.row, run->gates);
    struct rng r = rng_seeded(11);
    for (int i = 0; i < CAP; i++)
        ids[i] = (int32_t)rng_below(&r, V);
    close(mkstemp(path));
    struct recorder *rec = run->probes ? record(e, run, &c, &given, path, ids) : NULL;
    struct session *s = open_given(e, &c, &given, rec);
    session_on_evict(s, on_evict, &o);
    cr_assert(eq(int, session_prompt(s, ids, prompt, NULL, NULL), KVF_OK));
    memcpy(o.logits, session_logits(s), V * sizeof(float));
    for (int i = 0; i < STEPS; i++) {
        if (rec)
            recorder_token(rec, ids[prompt + i], KVF_ROLE_ANSWER, "c", 1);
        long before = emulation_waits();
        long home = (long)emulation_bytes_home(), told = emulation_told();
        cr_assert(eq(int, session_step(s, ids[prompt + i]), KVF_OK));
        long waits = emulation_waits() - before;
        o.waits = waits > o.waits ? waits : o.waits;
        o.told = emulation_told() - told;
        if (i == 0 || waits < o.least) {
            o.least = waits;
            o.home = (long)emulation_bytes_home() - home;
        }
        memcpy(o.logits + (size_t)(i + 1) * V, session_logits(s), V * sizeof(float));
    }
    if (rec) {
        succeeds(recorder_finish(rec, "{}", &d));
        o.trace = read_whole(path, &o.n_trace);
    }
    o.cuts = session_cuts(s);
    o.peak = session_peak(s, NULL);
    o.reads = session_reads(s);
    session_destroy(s);
    take_back(&given);
    engine_close(e);
    unlink(path);
    return o;
}

static void drop(struct outcome *o)
{
    mem_free(o->logits);
    mem_free(o->trace);
    mem_free(o->evictions);
}

static void compare(const struct run *run, const struct outcome *cpu, const struct outcome *cuda)
{
    bool same = cpu->n_trace == cuda->n_trace
                && (!cpu->trace || memcmp(cpu->trace, cuda->trace, cpu->n_trace) == 0);
    /* The exp of a real device may differ in the last digit, which weights show. */
    cr_expect(same || !EMULATED || !run->exact, "%s, %s: the trace differs", run->path,
              run->method);
    same = same_evictions(cpu, cuda);
    cr_expect(same || !run->exact, "%s, %s: decisions differ", run->path, run->method);
    same = cpu->cuts == cuda->cuts && cpu->peak == cuda->peak && cpu->reads == cuda->reads;
    cr_expect(same, "%s, %s: what is counted differs", run->path, run->method);
    cr_expect(le(dbl, distance(cuda->logits, cpu->logits, cpu->n_logits), run->exact ? 1e-5 : 2e-2),
              "%s, %s: logits", run->path, run->method);
    cr_assert(eq(int, emulation_faults(), 0), "%s: %s", run->method, emulation_first_fault());
}

/* Compares the two runs. waits: the exact number of waits for the device per step; 0: not
 * checked. */
static void same_within(const struct run *run, int waits)
{
    struct outcome cpu = play(run, &backend_cpu), cuda = play(run, &backend_cuda);
    compare(run, &cpu, &cuda);
    bool in_time = !EMULATED || waits == 0 || cuda.waits == waits;
    cr_expect(in_time, "%s: %ld waits in a step", run->method, cuda.waits);
    drop(&cpu);
    drop(&cuda);
}

static void same_on_both(const struct run *run)
{
    same_within(run, 0);
}

/* Writes the name of a preset. Its pages are short so that some are not read. */
static void text_of(const struct method *row, char *out, size_t cap)
{
    snprintf(out, cap, "%s%s", row->name, row->read->all ? "" : ":page=4");
}

/* Steps that stay on the device are also compared below for all presets. One preset in ten is
 * enough, except in the long tests. */
Test(session, every_method_decides_alike, .timeout = 400)
{
    int n = 0, step = stride(10);
    for (const struct method *m = method_presets; m->name; m++, n++) {
        if (n % step)
            continue;
        char text[128];
        text_of(m, text, sizeof text);
        struct run run = {tiny_path(method_gates(m) ? 0 : 4 + n % 2), text, "full", NULL,
                          method_unbudgeted(text) ? 0 : BUDGET,       true};
        same_on_both(&run);
    }
    cr_expect(ge(int, n, 31));
}

Test(session, every_family_computes_alike, .timeout = 300)
{
    for (int i = 0; i < 10; i += stride(3)) {
        struct run run = {family_path(i), "snapkv", "lean", NULL, BUDGET, true};
        same_on_both(&run);
    }
}

Test(session, shadows_see_the_same, .timeout = 120)
{
    static const char *const what[] = {"entries", "model"};
    for (int i = 0; i < 2; i++) {
        struct run run = {tiny_path(4), "h2o", "full", what[i], BUDGET, true};
        same_on_both(&run);
    }
    /* no eviction, and the host computes gates */
    struct run run = {tiny_path(0), "trimkv", "gate,dilution", "model", CAP, true};
    same_on_both(&run);
}

/* The host makes these decisions: by the order of the last scores, and by sums divided by the
 * number of queries. */
Test(session, decisions_of_the_host_are_the_same, .timeout = 60)
{
    static const char *const rows[] = {"rkv:window=4,variant=code,slack=1", "h2o:divide=queries"};
    for (int i = 0; i < 2; i++) {
        struct run run = {tiny_path(4), rows[i], "full", NULL, BUDGET, true};
        same_on_both(&run);
    }
}

/* Gate values that are read from a file instead of computed by networks. */
Test(session, given_numbers_of_gates, .timeout = 60)
{
    struct run run = {tiny_path(0), "trimkv", "evict,gate,dilution", NULL,
                      BUDGET,       true,     .gates = "values"};
    same_on_both(&run);
}

/* The oracle's full cache keeps the entries that sliding-window masks hide from queries. */
Test(session, oracles_look_through_windows, .timeout = 60)
{
    struct run run = {family_path(6), "next-topk", "lean", NULL, BUDGET, true};
    same_on_both(&run);
}

/* Steps that stay on the device: method parts and options of all kinds that have kernels. A step
 * that evicts after its query waits once more. */
static const struct {
    const char *method;
    int budget, waits;
} rows_that_stay[] = {
    {"full", 0, 1},
    {"window", BUDGET, 1},
    {"h2o:tie=older", BUDGET, 1},
    {"h2o:every=3,group=mean", BUDGET, 1},
    {"h2o:order=after,slack=1", BUDGET, 2},
    {"h2o:allocation=adaptive,floor=1,group=max", BUDGET, 1},
    {"tova", BUDGET, 1},
    {"tova:order=after", BUDGET, 2},
    {"snapkv:window=4", BUDGET, 1},
    {"snapkv:window=3,pool=5,pool_kind=avg,group=max,every=2", BUDGET, 1},
    {"snapkv:window=4,support=candidates", BUDGET, 1},
    {"adakv:window=4,floor=1,tie=older", BUDGET, 1},
    {"ada-pyramidkv:window=4,every=2", BUDGET, 1},
    {"pyramidkv:window=4", BUDGET, 1},
    {"morphkv:window=5", BUDGET, 1},
    {"keydiff", BUDGET, 1},
    {"keydiff:every=3,order=after", BUDGET, 2},
    {"knorm:allocation=adaptive", BUDGET, 1},
    {"local:sinks=2", BUDGET, 1},
    {"duo:recent=9,sinks=3", 0, 1},
    {"trimkv", BUDGET, 1},
    {"trimkv:variant=code,slack=1", BUDGET, 2},
    {"dbtrimkv", BUDGET, 1},
    {"dbtrimkv:floor=1,every=2,tie=older", BUDGET, 1},
    {"wgkv:local=8", BUDGET, 1},
    {"wgkv-snapkv:local=5,window=6,fraction=0.2", BUDGET, 1},
    {"locret:positions=original", BUDGET, 1},
    {"random:seed=7,every=2", BUDGET, 1},
    {"scissorhands:recent=5,window=9,every=3", BUDGET, 1},
    {"cake:window=4", BUDGET, 1},
    {"snapkv-global:window=4,every=2", BUDGET, 1},
    {"snapkv-global:window=3,every=2,fold=average,pool=1,across=max", BUDGET, 1},
    {"gkv:window=4,every=2", BUDGET, 1},
    {"gkv:window=4,every=3,order=after,fold=sum", BUDGET, 2},
    {"rkv:window=4,every=2", BUDGET, 1},
    {"rkv:window=4,group=max-logits,lambda=0.07,every=1,order=after,slack=1", BUDGET, 2},
    {"snapkv:window=4,group=max-logits,support=candidates", BUDGET, 1},
    {"quest:page=4,dense=0", BUDGET, 1},
    {"quest:page=5,group=max,dense=1", BUDGET, 1},
    {"wgkv-quest:page=4,local=8", BUDGET, 1},
    {"seer:page=4", BUDGET, 1},
    {"expected-attention:every=2,horizon=9", BUDGET, 1},
    {"tova:score=expected-attention,sinks=2", BUDGET, 1},
    {"seer-oracle:page=4", BUDGET, 1},
};

/* Returns the prompt length. If the budget leaves one page of entries, a prompt of one page is
 * enough. */
static int brief(int budget)
{
    return stride(2) > 1 && budget > 0 ? BRIEF : PROMPT;
}

Test(session, steps_wait_once, .timeout = 400)
{
    for (size_t i = 0; i < sizeof rows_that_stay / sizeof *rows_that_stay; i++) {
        struct choice c = choose(rows_that_stay[i].method, rows_that_stay[i].budget);
        struct run run = {tiny_path(method_gates(&c.row) ? 0 : 4 + (int)i % 2),
                          rows_that_stay[i].method,
                          i % 3 == 0 ? "lean" : NULL,
                          NULL,
                          rows_that_stay[i].budget,
                          true,
                          i % 3 == 0 ? PROMPT : brief(rows_that_stay[i].budget)};
        same_within(&run, rows_that_stay[i].waits);
    }
}

/* Probes read rows of weights on the device. A step with all of these probes waits once, copies no
 * more bytes to the host than without probes, and writes the same trace bytes. */
Test(session, probes_leave_rows_there, .timeout = 300)
{
    static const char probes[] =
        "evict,survival,mass,steps,nll,read,calibration,returns,window,under,contrib,dilution";
    static const struct {
        const char *method;
        int model, budget;
    } all[] = {{"full", 4, 0},
               {"h2o", 5, BUDGET},
               {"snapkv:window=4", 4, BUDGET},
               {"keydiff:every=3", 5, BUDGET},
               {"trimkv", 0, BUDGET},
               {"dbtrimkv:every=2", 0, CAP}}; /* no eviction: gates are still recorded in steps */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int prompt = all[i].budget == CAP ? PROMPT : brief(all[i].budget);
        struct run run = {tiny_path(all[i].model), all[i].method, probes, NULL,
                          all[i].budget,           true,          prompt};
        struct outcome cpu = play(&run, &backend_cpu), with = play(&run, &backend_cuda);
        compare(&run, &cpu, &with);
        run.probes = NULL;
        SCOPED(drop) struct outcome without = play(&run, &backend_cuda);
        cr_expect(with.least == 1 || !EMULATED, "%s", run.method);
        cr_expect(eq(long, with.home, without.home), "%s", run.method);
        cr_expect(zero(long, with.told), "%s", run.method);
        drop(&cpu);
        drop(&with);
    }
}

/* When ranks close, entries move into pages that are not otherwise written. The sinks stay in the
 * first page, all later entries come from later pages, and with slack the steps only append. */
Test(session, pages_that_entries_moved_into_are_sent, .timeout = 60)
{
    struct run run = {tiny_path(4), "window:slack=9", "lean", NULL, PAGE_SLOTS + 6,
                      true,         .prompt = LONG};
    same_on_both(&run);
}

/* With positions=cache, each key is rotated by its current rank. Covers heads of different lengths,
 * layers with windows, one KV head per query head, and a prompt in chunks. A cache in f16 is
 * rotated in f32, as on the CPU. */
Test(session, keys_are_turned_by_ranks, .timeout = 120)
{
    static const char *const methods[] = {
        "window:positions=cache", "h2o:positions=cache,allocation=adaptive,floor=1",
        "keydiff:positions=cache,chunk=32", "tova:positions=cache,group=none,tie=older",
        "gkv:positions=cache,window=4,chunk=12,every=2"};
    static const int family[] = {-1, 6, -1, 9, -1}; /* layers with different RoPE angles or none */
    for (int i = 0; i < 5; i++) {
        struct run run = {family[i] < 0 ? tiny_path(4 + i % 2) : family_path(family[i]),
                          methods[i],
                          i % 2 ? "lean" : "full",
                          NULL,
                          BUDGET,
                          true,
                          i ? PROMPT : LONG};
        same_on_both(&run);
        run.exact = false;
        if (i < 2)
            same_on_both(&run);
    }
}

/* A method that evicts for its budget and reads pages decides on the host, layer by layer. */
Test(session, evict_then_read, .timeout = 120)
{
    static const char *const methods[] = {
        "snapkv:window=4,read=quest,reads=12,page=4", "rocketkv:page=3,reads=9",
        "h2o:read=seer-oracle,page=2,order=after,slack=2",
        "adakv:window=4,read=quest,page=5,every=3", "tova:group=none,read=rocket,page=2"};
    for (int i = 0; i < 5; i++) {
        struct run run = {tiny_path(4 + i % 2), methods[i], "full", NULL, BUDGET, true, LONG};
        same_on_both(&run);
    }
}

/* Forks a session and runs both in turn. Each fork has its own pages after the fork; a step writes
 * one page of each head. */
static float *forked(const struct backend *backend, const char *method, size_t *ret_n)
{
    const struct run run = {tiny_path(4), method, NULL, NULL, 2 * PAGE_SLOTS + 2, true};
    struct engine *e = open_on(run.path, backend, run.exact, 2);
    struct choice c = choose(run.method, run.budget);
    size_t V = (size_t)e->config.vocab;
    int32_t ids[LONG];
    float *logits = MEM_NEW(float, 2 * STEPS * V);
    for (int i = 0; i < LONG; i++)
        ids[i] = (int32_t)((size_t)(i * i + 3) % V);
    struct session *s[2] = {open_session(e, &c, CAP, 0, NULL), NULL};
    cr_assert(eq(int, session_prompt(s[0], ids, LONG, NULL, NULL), KVF_OK));
    cr_assert(eq(int, session_step(s[0], 5), KVF_OK));
    succeeds(session_fork(s[0], NULL, &s[1], &d));
    for (int i = 0; i < 2 * (STEPS - 1); i++) {
        cr_assert(eq(int, session_step(s[i % 2], ids[i]), KVF_OK));
        memcpy(logits + (size_t)i * V, session_logits(s[i % 2]), V * sizeof *logits);
    }
    session_destroy(s[0]);
    session_destroy(s[1]);
    engine_close(e);
    *ret_n = 2 * STEPS * V;
    return logits;
}

/* Also covers heads that differ from a full cache, and keys rotated by rank. */
Test(session, forks_go_their_ways, .timeout = 60)
{
    static const char *const methods[] = {"h2o", "h2o:group=none", "tova:positions=cache"};
    for (int i = 0; i < 3; i++) {
        size_t n;
        OWNED(mem_free) float *cpu = forked(&backend_cpu, methods[i], &n);
        OWNED(mem_free) float *cuda = forked(&backend_cuda, methods[i], &n);
        cr_expect(le(dbl, distance(cuda, cpu, n), 1e-5), "%s", methods[i]);
        cr_assert(eq(int, emulation_faults(), 0), "%s: %s", methods[i], emulation_first_fault());
    }
}

/* Checks that the device rejects the setting with a message that contains `word`. */
static void expect_refused(const char *method, enum kv_type type, const char *word)
{
    const struct run run = {tiny_path(4), method, NULL, NULL, BUDGET, true};
    OWNED(engine_close) struct engine *e = open_on(run.path, &backend_cuda, run.exact, 2);
    struct choice c = choose(run.method, run.budget);
    struct session_options opt = {
        .method = &c.row, .params = &c.params, .kv_type = type, .cap = CAP};
    struct session *s = NULL;
    struct kvf_diag d = {""};
    cr_expect(eq(int, session_create(e, &opt, &s, &d), KVF_E_ARG));
    cr_expect(ne(ptr, strstr(d.text, word), NULL), "%s", d.text);
}

Test(session, refuses_a_cache_of_8_bits, .timeout = 60)
{
    expect_refused("window", KV_Q8_0, "q8_0");
}

/* The session must not be created if no kernel supports the head width. */
Test(session, refuses_heads_that_are_too_wide, .timeout = 60)
{
    const struct run run = {tiny_path(4), "full", NULL, NULL, 0, true};
    OWNED(engine_close) struct engine *e = open_on(run.path, &backend_cuda, run.exact, 2);
    struct choice c = choose(run.method, run.budget);
    struct session_options opt = {
        .method = &c.row, .params = &c.params, .kv_type = KV_F32, .cap = CAP};
    struct session *s = NULL;
    struct kvf_diag d = {""};
    int own = e->config.head_dim;
    e->config.head_dim = GPU_MAX_CHANNELS + 2;
    cr_expect(eq(int, session_create(e, &opt, &s, &d), KVF_E_ARG));
    cr_expect(ne(ptr, strstr(d.text, "258 channels"), NULL), "%s", d.text);
    e->config.head_dim = own;
}

/* Weights in the types of their files and sums in any order give close results. The attention
 * kernels keep no rows of weights; other kernels compute them if a trace is recorded. */
Test(session, fast_sums_are_near, .timeout = 240)
{
    for (int i = 0; i < 16; i += stride(5)) {
        static const char *const probes[] = {NULL, "paper", "full"};
        struct run run = {tiny_path(i % 8),
                          i % 2 ? "full" : "window",
                          i < 8 ? NULL : probes[1 + i % 2],
                          NULL,
                          i % 2 ? 0 : BUDGET,
                          false};
        same_on_both(&run);
    }
}
