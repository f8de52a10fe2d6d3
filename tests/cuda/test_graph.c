/* test_graph.c - device graphs: a replayed graph gives the same bytes as single launches, and
 * changed work is never replayed unchanged. */
#include "engine/device/device.h"
#include "engine/decode/sampler.h"
#include "tests/cuda/outcome.h"
#include "tests/engine/golden.h"

enum { N = 1100 };

/* Work on arrays of N numbers: y = x + scale x for the first n, then a copy and zeros. The result
 * is copied to the host. */
struct work {
    float *x, *y, *z, *home;
    float scale;
    size_t n;
};

static void put(struct gpu *g, const struct work *w)
{
    gpu_copy(g, w->y, w->x, N * sizeof *w->x);
    gpu_add(g, w->y, w->x, w->n, w->scale);
    gpu_zero(g, w->z, N * sizeof *w->z);
    gpu_copy(g, w->z, w->y, w->n * sizeof *w->z);
    gpu_fetch(g, w->home, w->z, N * sizeof *w->z);
}

static void expect(struct gpu *g, const struct work *w, const char *what)
{
    cr_assert(zero(int, gpu_wait(g, NULL)));
    for (size_t i = 0; i < N; i++) {
        float x = (float)i, want = i < w->n ? x + w->scale * x : 0;
        cr_assert(eq(flt, w->home[i], want), "%s: %zu", what, i);
        w->home[i] = NAN;
    }
}

static struct work work_of(struct gpu *g)
{
    struct work w = {.scale = 2, .n = N, .home = gpu_pin(g, N, sizeof *w.home)};
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    w.x = device_copy(g, x, sizeof x);
    w.y = device_copy(g, x, sizeof x);
    w.z = device_copy(g, x, sizeof x);
    return w;
}

static void drop(struct gpu *g, struct work *w)
{
    gpu_free(g, w->x);
    gpu_free(g, w->y);
    gpu_free(g, w->z);
    gpu_unpin(g, w->home);
}

static void end(struct gpu *g, struct gpu_graph *graph, struct work *w, const char *what)
{
    gpu_graph_free(g, graph);
    drop(g, w);
    device_check(g, what);
    gpu_close(g);
}

/* Runs the work through the graph and checks the counts of built graphs, replays and updated
 * nodes. */
static void step(struct gpu *g, struct gpu_graph **graph, const struct work *w, const long want[3],
                 const char *what)
{
    gpu_graph_begin(g, graph);
    put(g, w);
    gpu_graph_end(g);
    expect(g, w, what);
    struct gpu_graph_facts f = gpu_graph_look(*graph);
    cr_expect(eq(long, f.nodes, 5), "%s", what);
    cr_expect(f.built == want[0] && f.replayed == want[1] && f.updated == want[2],
              "%s: %ld graphs, %ld replays, %ld told", what, f.built, f.replayed, f.updated);
}

Test(graph, replays_what_is_launched)
{
    struct gpu *g = device_open();
    struct gpu_graph *graph = NULL;
    struct work w = work_of(g), other = work_of(g);
    step(g, &graph, &w, (long[]){0, 0, 0}, "the first time");
    step(g, &graph, &w, (long[]){1, 1, 0}, "again");
    step(g, &graph, &w, (long[]){1, 2, 0}, "a third time");
    w.scale = -0.5f;
    step(g, &graph, &w, (long[]){1, 3, 1}, "another number");
    w.n = 72; /* changes the size of a launch and of a copy */
    step(g, &graph, &w, (long[]){1, 4, 3}, "another size");
    step(g, &graph, &other, (long[]){1, 5, 8}, "other memory");
    step(g, &graph, &other, (long[]){1, 6, 8}, "the same memory");
    float *x = other.x; /* a replay must read the current memory */
    for (int i = 0; i < N; i++)
        other.home[i] = 0;
    gpu_put(g, x, other.home, N * sizeof *x);
    gpu_graph_begin(g, &graph);
    put(g, &other);
    gpu_graph_end(g);
    cr_assert(zero(int, gpu_wait(g, NULL)));
    cr_expect(other.home[7] == 0 && other.home[N - 1] == 0);
    drop(g, &other);
    end(g, graph, &w, "graph");
}

/* A launch of which only the grid changes is updated. */
Test(graph, a_grid_alone_changes)
{
    enum { WIDE = 10 };
    struct gpu *g = device_open();
    struct gpu_graph *graph = NULL;
    struct work w = work_of(g);
    for (int turn = 0; turn < 4; turn++) {
        int rows = turn < 3 ? 5 : 8;
        gpu_graph_begin(g, &graph);
        gpu_copy(g, w.y, w.x, N * sizeof *w.x);
        gpu_add_row(g, w.y, WIDE, w.x, rows, WIDE);
        gpu_fetch(g, w.home, w.y, N * sizeof *w.y);
        gpu_graph_end(g);
        cr_assert(zero(int, gpu_wait(g, NULL)));
        for (int i = 0; i < N; i++)
            cr_assert(eq(flt, w.home[i], (float)(i + (i < rows * WIDE ? i % WIDE : 0))),
                      "turn %d: %d", turn, i);
    }
    struct gpu_graph_facts f = gpu_graph_look(graph);
    cr_expect(f.built == 1 && f.replayed == 3 && f.updated == 1,
              "%ld graphs, %ld replays, %ld told", f.built, f.replayed, f.updated);
    end(g, graph, &w, "a grid");
}

/* Work that ends earlier than last time has another shape. The rest of the old graph must not be
 * replayed. */
Test(graph, a_beginning_is_not_the_whole)
{
    struct gpu *g = device_open();
    struct gpu_graph *graph = NULL;
    struct work w = work_of(g);
    for (int turn = 0; turn < 4; turn++) {
        bool whole = turn < 3;
        float last;
        gpu_graph_begin(g, &graph);
        gpu_copy(g, w.y, w.x, N * sizeof *w.x);
        gpu_add(g, w.y, w.x, N, 1);
        if (whole)
            gpu_zero(g, w.y, N * sizeof *w.y);
        gpu_graph_end(g);
        gpu_get(g, &last, w.y + N - 1, sizeof last);
        cr_expect(eq(flt, last, whole ? 0 : 2 * (float)(N - 1)), "turn %d", turn);
    }
    end(g, graph, &w, "a beginning");
}

/* Work of another shape, and work that cannot be captured, is launched directly. */
Test(graph, shapes_change)
{
    struct gpu *g = device_open();
    struct gpu_graph *graph = NULL;
    struct work w = work_of(g);
    for (int i = 0; i < 9; i++) {
        bool longer = i == 3 || i == 4 || i == 5, stops = i == 6;
        w.scale = (float)i;
        gpu_graph_begin(g, &graph);
        if (longer)
            gpu_zero(g, w.z, 4);
        put(g, &w);
        if (stops)
            gpu_put(g, w.z, w.home, 4); /* ends the capture; the data do not matter */
        gpu_graph_end(g);
        expect(g, &w, "a shape");
    }
    struct gpu_graph_facts f = gpu_graph_look(graph);
    cr_expect(f.built == 3 && f.replayed == 5, "%ld graphs, %ld replays", f.built, f.replayed);
    end(g, graph, &w, "shapes");
}

/* Low-priority work runs after the work before it, and after earlier low-priority work of its
 * branch. This covers the trunk and branches, two of which are the same. Result: home = (1 + 2)(1 +
 * 1) x + scale x for each. */
static void put_asides(struct gpu *g, const struct work *w, float *const *more, int n)
{
    for (int i = 0; i < n; i++) {
        gpu_branch(g, i < 2 ? -1 : i * 8); /* 16 and 32 are the same branch */
        gpu_copy(g, w[i].y, w[i].x, N * sizeof *w->x);
        gpu_add(g, w[i].y, w[i].y, N, 2);
        gpu_low_priority(g, true);
        gpu_copy(g, w[i].z, w[i].y, N * sizeof *w->z);
        gpu_add(g, w[i].z, w[i].z, N, 1);
        gpu_low_priority(g, false);
        gpu_copy(g, more[i], w[i].x, N * sizeof *w->x);
    }
    for (int i = 0; i < n; i++) {
        gpu_branch(g, i < 2 ? -1 : i * 8);
        gpu_low_priority(g, true);
        gpu_add(g, w[i].z, more[i], N, w->scale);
        gpu_zero(g, more[i], N * sizeof *w->x);
        gpu_fetch(g, w[i].home, w[i].z, N * sizeof *w->z);
        gpu_low_priority(g, false);
    }
    gpu_branch(g, -1);
}

Test(graph, what_is_aside_waits_for_what_it_leaves)
{
    enum { ALL = 5 };
    OWNED(device_close) struct gpu *g = device_open();
    struct gpu_graph *graph = NULL;
    struct work w[ALL];
    float *more[ALL];
    for (int i = 0; i < ALL; i++) {
        w[i] = work_of(g);
        more[i] = gpu_alloc(g, N, sizeof **more);
        gpu_zero(g, more[i], N * sizeof **more);
    }
    for (int turn = 0; turn < 4; turn++) {
        w->scale = (float)turn - .5f;
        gpu_graph_begin(g, &graph);
        put_asides(g, w, more, ALL);
        gpu_graph_end(g);
        cr_assert(zero(int, gpu_wait(g, NULL)));
        for (int i = 0; i < ALL; i++)
            for (int k = 0; k < N; k++) {
                float x = (float)k, want = 6 * x + w->scale * x;
                cr_assert(eq(flt, w[i].home[k], want), "turn %d, %d of %d", turn, k, i);
                w[i].home[k] = NAN;
            }
    }
    struct gpu_graph_facts f = gpu_graph_look(graph);
    cr_expect(f.built == 1 && f.replayed == 3, "%ld graphs, %ld replays", f.built, f.replayed);
    gpu_graph_free(g, graph);
    for (int i = 0; i < ALL; i++) {
        drop(g, &w[i]);
        gpu_free(g, more[i]);
    }
    device_check(g, "asides");
}

/* No other work waits for low-priority work. Here the trunk overwrites memory that low-priority
 * work reads, which is an error in real use. The emulated device runs the later of two nodes first
 * and thus shows it. Equal nodes without low priority form another graph. */
Test(graph, nothing_waits_for_what_is_aside)
{
    struct gpu *g = device_open();
    struct gpu_graph *graph = NULL;
    struct work w = work_of(g);
    for (int turn = 0; turn < 4; turn++) {
        gpu_graph_begin(g, &graph);
        gpu_copy(g, w.y, w.x, N * sizeof *w.x);
        gpu_low_priority(g, turn < 2);
        gpu_fetch(g, w.home, w.y, N * sizeof *w.y);
        gpu_low_priority(g, false);
        gpu_zero(g, w.y, N * sizeof *w.y);
        gpu_graph_end(g);
        cr_assert(zero(int, gpu_wait(g, NULL)));
        if (EMULATED || turn != 1)
            cr_expect(eq(flt, w.home[N - 1], turn == 1 ? 0 : (float)N - 1), "turn %d", turn);
    }
    end(g, graph, &w, "aside");
}

/* ---- steps of sessions */

enum { PROMPT = 52, STEPS = 16, CAP = PROMPT + STEPS };

struct told {
    float *logits; /* [STEPS][vocab] */
    int32_t token[STEPS];
    struct gpu_graph_facts facts;
    long calls, home, early; /* of the last step */
    int vocab;
};

/* Returns the sums over all graphs of a session. */
static struct gpu_graph_facts facts_of(const struct session *s)
{
    struct gpu_graph_facts all = {0};
    for (int i = 0; i < MIRROR_GRAPHS; i++) {
        struct gpu_graph_facts f = gpu_graph_look(
            ((struct device_session *)s->device_state)->graph[i]);
        all.nodes += f.nodes;
        all.built += f.built;
        all.updated += f.updated;
        all.replayed += f.replayed;
        all.shapes += f.shapes;
        all.refused += f.refused;
        all.broken += f.broken;
    }
    return all;
}

/* Runs steps on sampled tokens. The token is sampled on the device (there) or on the host. */
static struct told play(const char *method, int budget, bool exact, double temperature, bool there)
{
    OWNED(engine_close) struct engine *e = open_on(tiny_path(4), &backend_cuda, exact, 1);
    struct sampler by;
    int32_t ids[PROMPT];
    size_t V = (size_t)e->config.vocab;
    struct choice c = choose(method, budget);
    OWNED(session_destroy) struct session *s = open_session(e, &c, CAP, 0, NULL);
    struct told t = {.logits = MEM_NEW(float, STEPS *V)};
    cr_assert(zero(int, sampler_init(&by, temperature, 0.9, 5, e->config.vocab)));
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)((size_t)(i * i + 1) % V);
    cr_assert(zero(int, session_prompt(s, ids, PROMPT, NULL, NULL)));
    if (there)
        session_set_sampler(s, &by);
    for (int i = 0; i < STEPS; i++) {
        t.token[i] = there ? session_next(s) : sampler_next(&by, session_logits(s));
        t.calls = emulation_calls();
        t.home = (long)emulation_bytes_home();
        cr_assert(zero(int, session_step(s, t.token[i])));
        t.calls = emulation_calls() - t.calls;
        t.home = (long)emulation_bytes_home() - t.home;
        memcpy(t.logits + (size_t)i * V, session_logits(s), V * sizeof(float));
    }
    t.facts = facts_of(s);
    t.early = emulation_early();
    t.vocab = e->config.vocab;
    sampler_finish(&by);
    return t;
}

/* Heads that grow over a page, of equal lengths, many heads, and heads that are read by pages. The
 * bits are the same with and without graphs, and each step after the first is one driver call. */
Test(graph, steps_are_replayed, .timeout = 240)
{
    static const struct {
        const char *method;
        int budget;
    } rows[] = {{"full", 0}, {"adakv:window=4", 24}, {"quest:page=4,dense=0", 24}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *what = rows[i].method;
        bool exact = i % 2 == 0;
        struct told graph = play(what, rows[i].budget, exact, i % 2, true);
        setenv("KVF_EMULATED", "graphs=0", 1);
        struct told launched = play(what, rows[i].budget, exact, i % 2, true);
        unsetenv("KVF_EMULATED");
        struct gpu_graph_facts f = graph.facts;
        cr_expect(zero(int, memcmp(graph.token, launched.token, sizeof graph.token)), "%s", what);
        size_t bytes = (size_t)(STEPS * graph.vocab) * sizeof(float);
        cr_expect(zero(int, memcmp(graph.logits, launched.logits, bytes)), "%s: logits", what);
        cr_expect(f.built == 1 && f.replayed == STEPS - 1 && f.updated <= f.nodes,
                  "%s: %ld graphs, %ld replays, %ld of %ld told", what, f.built, f.replayed,
                  f.updated, f.nodes);
        if (EMULATED) {
            cr_expect(zero(long, launched.facts.replayed), "%s", what);
            cr_expect(graph.calls == 1 && launched.calls == f.nodes,
                      "%s: %ld calls, %ld without graphs", what, graph.calls, launched.calls);
        }
        mem_free(graph.logits);
        mem_free(launched.logits);
    }
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
}

/* The device samples the same token as the CPU, and only the token is copied to the host, not the
 * logits. */
Test(graph, the_token_comes_home_alone, .timeout = 240)
{
    struct told here = play("full", 0, true, 0.8, false), there = play("full", 0, true, 0.8, true);
    size_t bytes = (size_t)(STEPS * here.vocab) * sizeof(float);
    cr_expect(zero(int, memcmp(here.token, there.token, sizeof here.token)));
    cr_expect(zero(int, memcmp(here.logits, there.logits, bytes)));
    if (EMULATED)
        cr_expect(eq(long, here.home - there.home, (long)(4 * here.vocab)));
    mem_free(here.logits);
    mem_free(there.logits);
}

static void same_answer(const char *what, const struct told *a, const struct told *b)
{
    size_t bytes = (size_t)(STEPS * a->vocab) * sizeof(float);
    cr_expect(zero(int, memcmp(a->token, b->token, sizeof a->token)), "%s", what);
    cr_expect(zero(int, memcmp(a->logits, b->logits, bytes)), "%s: logits", what);
}

/* Counts reveal a silent fallback to single launches. tests/gpu/run.sh reads the lines that begin
 * with "graphs:". */
Test(graph, shapes_are_built_once, .timeout = 240)
{
    static const struct {
        const char *method;
        int budget;
    } rows[] = {{"full", 0},
                {"window", 24},
                {"h2o", 24},
                {"tova:order=after", 24},
                {"adakv:window=4", 24},
                {"snapkv:window=4,every=3", 24},
                {"quest:page=4,dense=0", 24}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct told x = play(rows[i].method, rows[i].budget, false, i % 2, true);
        struct gpu_graph_facts f = x.facts;
        printf("graphs: %s, %d steps: %ld shapes met, %ld built, %ld replayed, %ld nodes told "
               "anew, %ld refused, %ld broken off\n",
               rows[i].method, STEPS, f.shapes, f.built, f.replayed, f.updated, f.refused,
               f.broken);
        fflush(stdout);
        cr_expect(zero(long, f.refused), "%s", rows[i].method);
        cr_expect(zero(long, f.broken), "%s", rows[i].method);
        cr_expect(f.built <= f.shapes, "%s: %ld of %ld", rows[i].method, f.built, f.shapes);
        cr_expect(f.replayed + f.shapes >= STEPS, "%s", rows[i].method);
        mem_free(x.logits);
    }
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
}

/* If a driver rejects graph updates, only time is lost, and the rejections are counted. */
Test(graph, a_refused_change_is_counted, .timeout = 240)
{
    struct told with = play("full", 0, false, 0, true);
    setenv("KVF_EMULATED", "told=0", 1);
    struct told without = play("full", 0, false, 0, true);
    unsetenv("KVF_EMULATED");
    same_answer("told=0", &with, &without);
    if (EMULATED)
        cr_expect(with.facts.updated > 0 && without.facts.refused > 0 && without.facts.built > 1);
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
    mem_free(with.logits);
    mem_free(without.logits);
}

/* Kernels that were compiled for an older device do not start early and run in order. */
Test(graph, code_for_older_devices_does_not_start_early, .timeout = 240)
{
    struct told new = play("full", 0, false, 0, true);
    setenv("KVF_EMULATED", "ptx=80", 1);
    struct told old = play("full", 0, false, 0, true);
    unsetenv("KVF_EMULATED");
    same_answer("ptx=80", &new, &old);
    if (EMULATED)
        cr_expect(new.early > 0 && old.early == 0, "%ld, %ld", new.early, old.early);
    mem_free(new.logits);
    mem_free(old.logits);
}

/* Enqueues branches with low-priority work in them and in the trunk, then a mark, and work after
 * the mark. */
static void put_marked(struct gpu *g, struct work *w, float *late)
{
    gpu_mark(g, 0);
    for (int i = 0; i < 3; i++) {
        gpu_branch(g, i);
        gpu_copy(g, w[i].y, w[i].x, N * sizeof *w->x);
        gpu_low_priority(g, true);
        gpu_add(g, w[i].y, w[i].x, N, 1);
        gpu_fetch(g, w[i].home, w[i].y, N * sizeof *w->y);
        gpu_low_priority(g, false);
    }
    gpu_branch(g, -1);
    gpu_low_priority(g, true);
    gpu_copy(g, w[3].y, w[2].x, N * sizeof *w->x);
    gpu_fetch(g, w[3].home, w[3].y, N * sizeof *w->y);
    gpu_low_priority(g, false);
    gpu_mark(g, 1);
    gpu_fetch(g, late, w->x, N * sizeof *w->x);
}

/* After a wait for a mark, the work before the mark is done, with a graph and without one. Work
 * after the mark needs its own wait. */
Test(graph, a_mark_waits_for_what_came_before)
{
    enum { ALL = 4 };
    OWNED(device_close) struct gpu *g = device_open();
    struct gpu_graph *graph = NULL;
    struct work w[ALL];
    float *late = gpu_pin(g, N, sizeof *late);
    for (int i = 0; i < ALL; i++)
        w[i] = work_of(g);
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < ALL; i++)
            w[i].home[N - 1] = NAN;
        late[N - 1] = NAN;
        if (turn < 4)
            gpu_graph_begin(g, &graph);
        put_marked(g, w, late);
        if (turn < 4)
            gpu_graph_end(g);
        cr_assert(gpu_marked(g, 0));
        bool soon = !EMULATED || isnan(w->home[N - 1]);
        cr_expect(soon, "turn %d: the first mark waits for more", turn);
        cr_assert(gpu_marked(g, 1));
        for (int i = 0; i < ALL; i++)
            cr_expect(eq(flt, w[i].home[N - 1], (float)((N - 1) * (i < 3 ? 2 : 1))),
                      "%d of turn %d", i, turn);
        bool behind = EMULATED && !isnan(late[N - 1]);
        cr_expect(zero(int, behind), "turn %d waits for all", turn);
        cr_assert(zero(int, gpu_wait(g, NULL)));
        cr_expect(eq(flt, late[N - 1], (float)N - 1), "turn %d", turn);
    }
    struct gpu_graph_facts f = gpu_graph_look(graph);
    cr_expect(f.built == 1 && f.replayed == 3 && f.updated == 0, "%ld graphs, %ld replays", f.built,
              f.replayed);
    gpu_graph_free(g, graph);
    for (int i = 0; i < ALL; i++)
        drop(g, &w[i]);
    gpu_unpin(g, late);
    device_check(g, "a mark");
}

/* Parts of different lengths, one of them empty, and one more part than fits. */
Test(graph, parts_are_sent_together)
{
    enum { LONGEST = 700 };
    OWNED(device_close) struct gpu *g = device_open();
    struct gpu_parts p = {.n = 0};
    uint32_t *pinned = gpu_pin(g, GPU_MAX_PARTS * LONGEST, sizeof *pinned), *to[GPU_MAX_PARTS];
    gpu_send_parts(g, &p);
    gpu_part(&p, NULL, pinned, 0);
    for (uint32_t i = 0; i < GPU_MAX_PARTS * LONGEST; i++)
        pinned[i] = i + 1;
    for (int i = 0; i < GPU_MAX_PARTS; i++) {
        to[i] = gpu_alloc(g, LONGEST, sizeof *pinned);
        gpu_zero(g, to[i], LONGEST * sizeof *pinned);
        size_t n = (size_t)(1 + i * 997 % LONGEST);
        gpu_part(&p, to[i], pinned + i * LONGEST, n * sizeof *pinned);
    }
    gpu_part(&p, to[0], pinned, 4);
    cr_assert(eq(int, p.n, GPU_MAX_PARTS));
    gpu_send_parts(g, &p);
    for (int i = 0; i < GPU_MAX_PARTS; i++) {
        uint32_t got[LONGEST];
        gpu_get(g, got, to[i], sizeof got);
        for (int k = 0; k < LONGEST; k++)
            cr_assert(eq(u32, got[k], k <= i * 997 % LONGEST ? pinned[i * LONGEST + k] : 0));
        gpu_free(g, to[i]);
    }
    gpu_unpin(g, pinned);
    device_check(g, "parts");
}

/* Host memory is released after the copies that use it are done. */
Test(graph, copies_end_before_their_memory_goes)
{
    OWNED(device_close) struct gpu *g = device_open();
    float *x = gpu_alloc(g, N, sizeof *x), *pinned = gpu_pin(g, N, sizeof *pinned), home[N];
    for (int i = 0; i < N; i++)
        pinned[i] = (float)i;
    gpu_send(g, x, pinned, N * sizeof *x);
    gpu_unpin(g, pinned);
    gpu_get(g, home, x, N * sizeof *x);
    for (int i = 0; i < N; i++)
        cr_assert(eq(flt, home[i], (float)i));
    gpu_put(g, x, home, 0); /* no driver call */
    gpu_get(g, home, x, 0);
    device_check(g, "memory");
    gpu_free(g, x);
}
