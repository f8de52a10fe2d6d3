/* test_chunks.c - chunked prefill on the device and on the CPU. Caches must agree slot by slot, and
 * logits must agree. Also tests the number of waits, the bytes copied to the host, and the kernels
 * for chunks. */
#include "engine/cuda/heads.h"
#include "engine/decode/session.h"
#include "tests/cuda/cache_of.h"
#include "tests/engine/golden.h"

enum { CAP = 1160, SHORT = 420, CHUNK = 64, LAYERS = 2, HEADS = 2, HEAD_DIM = 16, WIDTH = 64 };

struct run {
    const char *method;
    int budget;
    const char *gates; /* tiny model that the gates belong to; NULL: no gates */
    bool exact;
    int chunk;
    const char *model; /* NULL: the model that the gates are for */
};

struct player {
    struct engine *e;
    struct gates *gates;
    struct session *s;
    struct choice c;
};

static struct player open_player(const struct run *run, const struct backend *backend)
{
    const char *model = run->model ? run->model : tiny_path(0);
    struct player p = {.c = choose(run->method, run->budget)};
    struct kvf_diag d = {""};
    struct engine_options eo = {.exact = run->exact, .n_threads = 2, .backend = backend};
    if (!run->model) /* for a text of this length */
        cr_assert(zero(int, rope_scale_parse("linear:3", &eo.rope_scale, &d)));
    device_needed();
    cr_assert(zero(int, engine_open(model, &eo, &p.e, &d)), "%s", d.text);
    p.gates = run->gates ? open_gates(p.e, run->gates) : NULL;
    struct session_options opt = {.method = &p.c.row,
                                  .params = &p.c.params,
                                  .gates = p.gates,
                                  .kv_type = run->exact ? KV_F32 : KV_F16,
                                  .cap = run->model ? SHORT : CAP,
                                  .chunk = run->chunk};
    cr_assert(zero(int, session_create(p.e, &opt, &p.s, &d)), "%s: %s", run->method, d.text);
    return p;
}

static void close_player(struct player *p)
{
    session_destroy(p->s);
    gates_close(p->gates);
    engine_close(p->e);
}

static void fill_ids(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        ids[i] = (i * i + 3) % 61;
}

/* ---- results equal those of the CPU */

static bool same_head(const struct cache *a, const struct cache *b, int layer, int head, int D)
{
    struct cache_head x = cache_view(a, layer, head), y = cache_view(b, layer, head);
    size_t ints = (size_t)x.n * sizeof *x.pos;
    float one[256], two[256];
    if (x.n != y.n || x.plain != y.plain || memcmp(x.pos, y.pos, ints) != 0
        || memcmp(x.expires_at, y.expires_at, ints) != 0 || memcmp(x.order, y.order, ints) != 0)
        return false;
    for (int i = 0; i < x.n; i++)
        for (int value = 0; value < 2; value++) {
            (value ? cache_value : cache_key)(a, layer, head, i, one);
            (value ? cache_value : cache_key)(b, layer, head, i, two);
            if (EMULATED ? memcmp(one, two, (size_t)D * 4) != 0
                         : distance(one, two, (size_t)D) > 1e-4)
                return false;
        }
    return true;
}

static void compare(const struct run *run, const struct player *cpu, const struct player *cuda,
                    const char *when)
{
    const struct model_config *c = &cpu->e->config;
    const struct cache *a = session_cache(cpu->s), *b = session_cache(cuda->s);
    for (int i = 0; i < c->n_layers * c->n_kv_heads; i++)
        cr_expect(same_head(a, b, i / c->n_kv_heads, i % c->n_kv_heads, c->head_dim),
                  "%s, %s: head %d", run->method, when, i);
    cr_expect(
        le(dbl, distance(session_logits(cuda->s), session_logits(cpu->s), (size_t)c->vocab), 1e-5),
        "%s, %s: logits", run->method, when);
}

/* Runs a prompt of `first` tokens and steps that leave free slots and move entries. Then runs a
 * second prompt and a prompt of one token, each followed by steps. */
static void same_prompts_of(const struct run *run, int first)
{
    struct run other = *run;
    other.chunk = 96; /* must not change results */
    struct player cpu = open_player(&other, &backend_cpu), cuda = open_player(run, &backend_cuda);
    int32_t ids[CAP];
    fill_ids(ids, CAP);
    struct player *const both[] = {&cpu, &cuda};
    const int prompts[] = {first, 75, 1};
    for (int k = 0, at = 0; k < 3; k++) {
        for (int i = 0; i < 2; i++) {
            cr_assert(zero(int, session_prompt(both[i]->s, ids + at, prompts[k], NULL, NULL)));
            for (int t = 0; t < 3; t++)
                cr_assert(zero(int, session_step(both[i]->s, ids[at + prompts[k] + t])));
        }
        at += prompts[k] + 3;
        compare(run, &cpu, &cuda, k == 0 ? "the first prompt" : k == 1 ? "the second" : "the last");
    }
    cr_assert(eq(int, emulation_faults(), 0), "%s: %s", run->method, emulation_first_fault());
    close_player(&cpu);
    close_player(&cuda);
}

static void same_prompts(const struct run *run)
{
    same_prompts_of(run, 130);
}

static const struct run runs[] = {
    {"full", 0, NULL, true, CHUNK, NULL},
    {"full", 0, NULL, true, 50, NULL},
    {"h2o", 40, NULL, true, CHUNK, NULL},
    {"h2o:order=after,every=2", 40, NULL, true, 33, NULL},
    {"snapkv:window=4", 40, NULL, true, 48, NULL},
    {"snapkv:window=4,chunk=40", 40, NULL, true, CHUNK, NULL},
    {"keydiff", 70, NULL, true, CHUNK, NULL},
    {"local:sinks=2", 40, NULL, true, CHUNK, NULL},
    {"trimkv", 40, "rg", true, CHUNK, NULL},
    {"locret:positions=original", 40, "locret", true, 50, NULL},
    {"wgkv:local=8", 0, "wgkv", true, CHUNK, NULL},
    {"wgkv:local=100", 0, "wgkv", true, 50, NULL},
    {"duo:recent=9,sinks=3", 0, "duo", true, CHUNK, NULL},
    {"expected-attention", 40, NULL, true, CHUNK, NULL},
    {"h2o:order=after", 40, NULL, true, CHUNK, NULL},
    {"keydiff:chunk=50", 40, NULL, true, 33, NULL},
    {"keydiff:chunk=41", 40, NULL, true, CHUNK, NULL}, /* evictions leave holes of one entry */
};

Test(chunks, caches_are_those_of_the_processor, .timeout = 300)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i += (size_t)stride(4))
        same_prompts(&runs[i]);
}

/* Counters at the end of each chunk. */
struct count {
    long waits[9], arrivals[9], copies[9];
    long long home[9];
    int n;
};

static int note(void *ctx, int done)
{
    struct count *c = ctx;
    (void)done;
    c->waits[c->n] = emulation_waits();
    c->arrivals[c->n] = emulation_arrivals();
    c->copies[c->n] = emulation_copies();
    c->home[c->n++] = emulation_bytes_home();
    return 0;
}

/* Entries that expire are removed at the same token for every chunk size. Entries move on the
 * device, and the next chunk must find them. */
Test(chunks, entries_move_between_chunks, .timeout = 300)
{
    static const struct run leaving[] = {{"wgkv:local=8", 0, "wgkv", true, 500, NULL},
                                         {"wgkv:local=100,tau=0.2", 0, "wgkv", true, 130, NULL},
                                         {"local:sinks=2", 40, NULL, true, 500, NULL},
                                         {"duo:recent=9,sinks=3", 0, "duo", true, 500, NULL},
                                         {"wgkv-snapkv:chunk=300", 90, "wgkv", true, 500, NULL}};
    for (size_t i = 0; i < sizeof leaving / sizeof *leaving; i += (size_t)stride(4))
        same_prompts_of(&leaving[i], 1050);
}

/* The device learns the new places of moved entries from one copy, however many entries moved. */
Test(chunks, entries_move_by_one_copy, .timeout = 120)
{
    const struct run run = {"wgkv:local=8", 0, "wgkv", false, 512, NULL};
    SCOPED(close_player) struct player p = open_player(&run, &backend_cuda);
    struct count c = {.n = 0};
    int32_t ids[CAP];
    if (!EMULATED)
        cr_skip_test("a device does not count");
    fill_ids(ids, CAP);
    cr_assert(zero(int, session_prompt(p.s, ids, 2 * 512 + 100, note, &c)));
    long before = c.copies[1] - c.copies[0], moved = c.copies[2] - c.copies[1];
    cr_expect(le(long, moved, before + 1));
}

/* Layers with sliding windows from which entries expire within a chunk, layers with different RoPE
 * angles, and wide norms. */
Test(chunks, families, .timeout = 300)
{
    for (int i = 0; i < 17; i += stride(8)) {
        char model[4096];
        snprintf(model, sizeof model, "%s", family_path(i));
        const struct run run = {"full", 0, NULL, true, CHUNK, model};
        same_prompts(&run);
    }
}

/* ---- waits and bytes */

/* Returns the bytes that a chunk of whole pages must copy to the host: entries, gate values and one
 * normed row. */
static long long needed(const struct run *run, bool numbers)
{
    long long entry = 2 * HEAD_DIM * (run->exact ? 4 : 2) + (numbers ? 4 : 0);
    return entry * LAYERS * HEADS * CHUNK + WIDTH * 4;
}

/* The host processes layer after layer while the device runs, and waits for the stream only at the
 * end of a chunk. The first chunk also allocates memory and is not counted. */
Test(chunks, wait_once, .timeout = 120)
{
    static const struct {
        struct run run;
        bool numbers;
    } all[] = {{{"full", 0, NULL, true, CHUNK, NULL}, false},
               {{"full", 0, NULL, false, CHUNK, NULL}, false},
               {{"local:sinks=2", 270, NULL, false, CHUNK, NULL}, false},
               {{"keydiff", 40, NULL, false, CHUNK, NULL}, false},
               {{"trimkv", 40, "rg", true, CHUNK, NULL}, true},
               {{"trimkv", 40, "rg", false, CHUNK, NULL}, true},
               {{"wgkv:local=200", 0, "wgkv", true, CHUNK, NULL}, true},
               {{"wgkv:local=200", 0, "wgkv", false, CHUNK, NULL}, true}};
    if (!EMULATED)
        cr_skip_test("a device does not count");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        SCOPED(close_player) struct player p = open_player(&all[i].run, &backend_cuda);
        struct count c = {.n = 0};
        int32_t ids[CAP];
        fill_ids(ids, CAP);
        cr_assert(zero(int, session_prompt(p.s, ids, 3 * CHUNK, note, &c)));
        for (int k = 1; k < 3; k++) {
            cr_expect(eq(long, c.waits[k] - c.waits[k - 1], 1), "%s", all[i].run.method);
            cr_expect(eq(long, c.arrivals[k] - c.arrivals[k - 1], LAYERS), "%s", all[i].run.method);
            long home = (long)(c.home[k] - c.home[k - 1]);
            cr_expect(eq(long, home, (long)needed(&all[i].run, all[i].numbers)), "%s",
                      all[i].run.method);
        }
    }
}

/* If only the last queries count, the host needs rows of weights in the last chunk only. */
Test(chunks, wait_where_rows_are_watched, .timeout = 60)
{
    const struct run run = {"snapkv:window=4", 40, NULL, false, CHUNK, NULL};
    SCOPED(close_player) struct player p = open_player(&run, &backend_cuda);
    struct count c = {.n = 0};
    int32_t ids[CAP];
    if (!EMULATED)
        cr_skip_test("a device does not count");
    fill_ids(ids, CAP);
    cr_assert(zero(int, session_prompt(p.s, ids, 4 * CHUNK, note, &c)));
    cr_expect(eq(long, c.waits[1] - c.waits[0], 1));
    cr_expect(eq(long, c.waits[2] - c.waits[1], 1));
    cr_expect(gt(long, c.waits[3] - c.waits[2], LAYERS));
}

/* The result for a token does not depend on the chunk size, even if sums may have any order. */
Test(chunks, sizes_change_nothing, .timeout = 120)
{
    static const struct run run[] = {{"full", 0, NULL, false, 200, NULL},
                                     {"full", 0, NULL, false, 37, NULL},
                                     {"trimkv", 40, "rg", false, 200, NULL},
                                     {"trimkv", 40, "rg", false, 37, NULL},
                                     {"wgkv:local=20", 0, "wgkv", false, 200, NULL},
                                     {"wgkv:local=20", 0, "wgkv", false, 37, NULL}};
    int32_t ids[CAP];
    fill_ids(ids, CAP);
    for (int i = 0; i < 6; i += 2) {
        struct player a = open_player(&run[i], &backend_cuda);
        SCOPED(close_player) struct player b = open_player(&run[i + 1], &backend_cuda);
        cr_assert(zero(int, session_prompt(a.s, ids, 75, NULL, NULL)));
        cr_assert(zero(int, session_prompt(b.s, ids, 75, NULL, NULL)));
        compare(&run[i], &a, &b, "in other chunks");
        close_player(&a);
    }
}

/* ---- kernels */

static void pages_case(struct gpu *g, enum kv_type type)
{
    static const int n[] = {200, 64, 131};
    const int32_t first[] = {63, 61, 128};
    enum { T = 3, OUT = 2 };
    struct rng r = rng_seeded(5);
    struct cache_of k = cache_of_random(g, &r, 3, n, 20, type);
    size_t page = 2 * kv_half_bytes(type, 20);
    int32_t *d_first = device_copy(g, first, sizeof first);
    unsigned char *out = device_alloc(g, 3 * OUT, page);
    gpu_zero(g, out, 3 * OUT * page);
    gpu_gather_pages(g, &k.c, d_first, T, OUT, out);
    unsigned char *got = host_copy(g, out, 3 * OUT * page);
    for (int i = 0; i < 3 * OUT; i++) {
        int h = i / OUT, at = first[h] / PAGE_SLOTS + i % OUT;
        bool is = at <= (first[h] + T - 1) / PAGE_SLOTS;
        const unsigned char *from = (const unsigned char *)k.pool;
        if (is)
            from += (size_t)k.table[h * k.c.ld_table + at] * page;
        for (size_t b = 0; b < page; b++)
            cr_assert(eq(int, got[(size_t)i * page + b], is ? from[b] : 0), "page %d", i);
    }
    device_check(g, "pages");
}

Test(chunks, pages_come_as_they_are, .timeout = 30)
{
    OWNED(device_close) struct gpu *g = device_open();
    pages_case(g, KV_F16);
    pages_case(g, KV_F32);
}

/* gpu_pages_in() copies pages to their places and changes no other page. */
Test(chunks, pages_go_where_they_belong, .timeout = 30)
{
    enum { PAGES = 7, SENT = 4, BYTES = 16 * 300 };
    static const int where[SENT] = {5, 0, 6, 2};
    OWNED(device_close) struct gpu *g = device_open();
    unsigned char *pinned = gpu_pin(g, SENT, BYTES), *pool = device_alloc(g, PAGES, BYTES);
    int32_t *to = gpu_pin(g, SENT, sizeof *to);
    gpu_zero(g, pool, PAGES * BYTES);
    for (int i = 0; i < SENT; i++)
        to[i] = where[i];
    for (int i = 0; i < SENT * BYTES; i++)
        pinned[i] = (unsigned char)(1 + i % 251);
    gpu_pages_in(g, pool, BYTES, to, pinned, SENT);
    device_check(g, "pages");
    unsigned char *got = host_copy(g, pool, PAGES * BYTES);
    for (int p = 0; p < PAGES; p++) {
        int from = -1;
        for (int i = 0; i < SENT; i++)
            from = where[i] == p ? i : from;
        for (int b = 0; b < BYTES; b++)
            cr_assert(eq(int, got[p * BYTES + b], from < 0 ? 0 : pinned[from * BYTES + b]),
                      "page %d", p);
    }
    gpu_unpin(g, pinned);
    gpu_unpin(g, to);
}

static bool same_entry(const unsigned char *a, int i, const unsigned char *b, int j,
                       enum kv_type type, int D)
{
    size_t e = type == KV_F16 ? 2 : 4, half = kv_half_bytes(type, D), row = (size_t)D * e;
    bool same = memcmp(a + half + (size_t)i * row, b + half + (size_t)j * row, row) == 0;
    for (int d = 0; d < D; d++)
        same &= memcmp(a + (size_t)(d * PAGE_SLOTS + i) * e, b + (size_t)(d * PAGE_SLOTS + j) * e,
                       e)
                == 0;
    return same;
}

/* Assembles pages 1 and 3 from entries of all other pages. One job is empty. */
static void join_case(struct gpu *g, enum kv_type type, int D)
{
    enum { PAGES = 6, JOBS = 3, JOB = 1 + PAGE_SLOTS };
    size_t page = 2 * kv_half_bytes(type, D);
    unsigned char *pool = host_alloc(PAGES, page);
    int32_t jobs[JOBS * JOB];
    struct rng r = rng_seeded(8);
    for (size_t i = 0; i < PAGES * page; i++)
        pool[i] = (unsigned char)rng_below(&r, 256);
    for (int i = 0; i < JOBS * JOB; i++) {
        int from = (int)rng_below(&r, 3) * 2 * PAGE_SLOTS + (int)rng_below(&r, PAGE_SLOTS);
        jobs[i] = rng_below(&r, 9) == 0 ? -1 : from;
    }
    jobs[0] = 3;
    jobs[JOB] = -1;
    jobs[2 * JOB] = 1;
    unsigned char *d_pool = device_copy(g, pool, PAGES * page);
    int32_t *d_jobs = device_copy(g, jobs, sizeof jobs);
    gpu_join_entries(g, d_pool, type, D, d_jobs, JOBS);
    unsigned char *got = host_copy(g, d_pool, PAGES * page);
    device_check(g, "joined entries");
    for (int p = 0; p < PAGES; p++)
        for (int i = 0; i < PAGE_SLOTS; i++) {
            int from = p == 3 ? jobs[1 + i] : p == 1 ? jobs[2 * JOB + 1 + i] : -1;
            from = from < 0 ? p * PAGE_SLOTS + i : from;
            cr_assert(same_entry(got + (size_t)p * page, i,
                                 pool + (size_t)(from / PAGE_SLOTS) * page, from % PAGE_SLOTS, type,
                                 D),
                      "page %d, slot %d", p, i);
        }
}

Test(chunks, pages_are_put_together, .timeout = 30)
{
    OWNED(device_close) struct gpu *g = device_open();
    join_case(g, KV_F16, 64);
    join_case(g, KV_F16, 20);
    join_case(g, KV_F32, 5);
}

/* gpu_put_until() keeps leading entries, sets the expiry of the others, and does not touch new
 * entries. */
Test(chunks, departures_are_put, .timeout = 30)
{
    static const int n[] = {300, 70};
    static const int32_t first[] = {290, 70}, firm[] = {200, 0};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(7);
    struct cache_of k = cache_of_random(g, &r, 2, n, 16, KV_F16);
    int32_t *from = gpu_pin(g, 2, (size_t)k.ld_slot * sizeof *from);
    int32_t *d_first = device_copy(g, first, sizeof first),
            *d_firm = device_copy(g, firm, sizeof firm);
    for (int i = 0; i < 2 * k.ld_slot; i++)
        from[i] = i;
    gpu_put(g, k.c.until, from, (size_t)(2 * k.ld_slot) * 4);
    device_check(g, "what was there");
    for (int i = 0; i < 2 * k.ld_slot; i++)
        from[i] = 1000 + i;
    k.c.most = 300;
    k.c.firm = d_firm;
    gpu_put_until(g, &k.c, from, d_first);
    gpu_get(g, k.until, k.c.until, (size_t)(2 * k.ld_slot) * 4);
    device_check(g, "departures");
    for (int i = 0; i < 2 * k.ld_slot; i++) {
        int h = i / k.ld_slot, slot = i % k.ld_slot;
        int want = slot < firm[h] ? INT32_MAX : slot < first[h] ? 1000 + i : i;
        cr_assert(eq(int, k.until[i], want), "%d", i);
    }
    gpu_unpin(g, from);
}

/* A stage for many tokens: chains of fused multiply-adds, followed by bias, activation or
 * ending. */
static void stage_case(struct gpu *g, const struct gpu_gate_rows *a, bool bias, bool with)
{
    struct gpu_gate_rows s = *a;
    size_t W = (size_t)(s.units * s.N * s.K), B = (size_t)(s.units * s.N);
    size_t X = (size_t)s.T * s.ld_x, O = (size_t)s.T * s.ld_out;
    float *w = NEW(float, W), *b = NEW(float, B), *x = NEW(float, X);
    float *y = NEW(float, O);
    struct rng r = rng_seeded(9);
    fill(&r, w, W, 0.3);
    fill(&r, b, B, 1);
    fill(&r, x, X, 1);
    fill(&r, y, O, 1);
    s.w = device_copy(g, w, W * 4);
    s.bias = bias ? device_copy(g, b, B * 4) : NULL;
    s.x = device_copy(g, x, X * 4);
    s.with = with ? device_copy(g, y, O * 4) : NULL;
    s.out = device_copy(g, y, O * 4);
    gpu_gate_rows(g, &s);
    float *got = host_copy(g, s.out, O * 4);
    device_check(g, "a stage of gates");
    for (size_t i = 0; i < O; i++) {
        int t = (int)(i / s.ld_out), at = (int)(i % s.ld_out), u = at / s.N;
        float sum = 0;
        for (int k = 0; u < s.units && k < s.K; k++)
            sum = fmaf(x[(size_t)t * s.ld_x + (size_t)(u * s.K + k)], w[at * s.K + k], sum);
        sum = bias && u < s.units ? sum + b[at] : sum;
        float want = with ? sum * y[i] : fmaxf(sum, 0); /* relu */
        if (s.last)
            want = 1.0f / (1.0f + expf(-sum));
        if (u >= s.units)
            want = y[i];
        cr_assert(s.last ? fabsf(got[i] - want) <= 1e-6f : got[i] == want, "%d, %d: %g is not %g",
                  t, at, (double)got[i], (double)want);
    }
}

Test(chunks, stages_of_gates, .timeout = 60)
{
    OWNED(device_close) struct gpu *g = device_open();
    const struct gpu_gate_rows wide = {
        .units = 2, .N = 40, .K = 44, .T = 70, .ld_x = 88, .ld_out = 80, .act = GATE_ACT_RELU};
    const struct gpu_gate_rows odd = {
        .units = 3, .N = 33, .K = 35, .T = 65, .ld_x = 107, .ld_out = 101, .act = GATE_ACT_RELU};
    const struct gpu_gate_rows last = {.units = 3,
                                       .N = 1,
                                       .K = 96,
                                       .T = 130,
                                       .ld_x = 288,
                                       .ld_out = 3,
                                       .output = GATE_OUT_SIGMOID,
                                       .last = true};
    stage_case(g, &wide, true, false);
    stage_case(g, &wide, true, true);
    stage_case(g, &odd, false, false);
    stage_case(g, &odd, true, true);
    stage_case(g, &last, true, false);
}

/* Entries that their gate value admits stay. The others expire after some queries, and all expire
 * when the window ends. */
Test(chunks, admission, .timeout = 30)
{
    static const int n[] = {100, 80};
    static const int32_t first[] = {90, 70};
    static const float numbers[] = {0.5f, 0.25f, 0.75f, 0.5f, 0.1f, NAN};
    static const struct gpu_admission how[] = {{0.5, false, 7, 0},
                                               {0.5, true, 7, 0},
                                               {0.5, false, 7, 4},
                                               {0.5, false, 7, 12},
                                               {0.5, true, INT32_MAX, INT32_MAX}};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(6);
    struct cache_of k = cache_of_random(g, &r, 2, n, 16, KV_F16);
    int32_t *d_first = device_copy(g, first, sizeof first);
    float *d_numbers = device_copy(g, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        gpu_admit(g, &k.c, &how[i], d_numbers, d_first, 3, 1000);
        gpu_get(g, k.until, k.c.until, (size_t)(2 * k.ld_slot) * 4);
        for (int j = 0; j < 6; j++) {
            int64_t pos = 1000 + j / 2, window = how[i].window;
            bool in = how[i].above ? numbers[j] > 0.5f : numbers[j] >= 0.5f;
            int64_t until = in ? INT32_MAX : pos + how[i].stays;
            until = !in && until >= INT32_MAX ? INT32_MAX - 1 : until;
            until = window && pos + window < until ? pos + window : until;
            cr_expect(eq(int, k.until[j % 2 * k.ld_slot + first[j % 2] + j / 2], (int)until),
                      "%zu, %d", i, j);
        }
        cr_expect(eq(int, k.until[first[0] - 1], INT32_MAX));
    }
    device_check(g, "admission");
}

/* The data of a parcel is on the host after the wait for it, whatever work follows on the
 * stream. */
Test(chunks, parcels, .timeout = 30)
{
    OWNED(device_close) struct gpu *g = device_open();
    float *x = device_alloc(g, 4, sizeof *x), *y = device_alloc(g, 4, sizeof *y);
    float *home = gpu_pin(g, 8, sizeof *home), one[] = {1, 2, 3, 4}, two[] = {5, 6, 7, 8};
    cr_assert(gpu_parcels_open(g) && gpu_parcels_open(g));
    for (int i = 0; i < 2 * GPU_PARCELS; i++) {
        one[0] = (float)i;
        gpu_put(g, x, one, sizeof one);
        gpu_put(g, y, two, sizeof two);
        gpu_add(g, x, y, 4, 1);
        gpu_copyback_begin(g, i % GPU_PARCELS);
        gpu_parcel_add(g, home, x, sizeof one);
        gpu_parcel_add(g, home + 4, y, sizeof two);
        gpu_parcel_end(g, i % GPU_PARCELS);
        cr_assert(gpu_parcel_wait(g, i % GPU_PARCELS));
        cr_expect(home[0] == (float)(i + 5) && home[3] == 12 && home[7] == 8, "%d", i);
    }
    gpu_put(g, x, two, sizeof two);
    gpu_copyback_begin(g, 0);
    gpu_parcel_add(g, home, x, sizeof one);
    gpu_parcel_end(g, 0);
    gpu_parcels_join(g, 0);
    device_check(g, "parcels");
    cr_expect(home[0] == 5 && home[3] == 8, "what was joined");
    gpu_unpin(g, home);
}
