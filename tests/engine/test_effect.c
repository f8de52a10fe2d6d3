/* test_effect.c - ablation: a fork loses entries, its origin keeps them, and failed allocations
 * damage neither. */
#include "engine/experiment/effect.h"
#include "golden.h"
#include "tests/failing_alloc.h"
#include "tests/suite.h"

enum { PROMPT = 110, STEPS = 6, CAP = PROMPT + STEPS }; /* the second page is half full */

static struct {
    struct engine *e;
    int heads;
    int32_t ids[CAP + 1];
} world;

static void open_world(int model)
{
    struct rng r = rng_seeded(29);
    world.e = open_model(tiny_path(model), true, 2);
    world.heads = world.e->config.n_layers * world.e->config.n_kv_heads;
    for (int i = 0; i <= CAP; i++)
        world.ids[i] = (int32_t)rng_below(&r, (uint64_t)world.e->config.vocab);
}

/* Writes the positions of a head in ascending order; returns their number. */
static int positions(const struct session *s, int head, int32_t *out)
{
    int H = world.e->config.n_kv_heads;
    struct cache_head view = cache_view(session_cache(s), head / H, head % H);
    for (int i = 0; i < view.n; i++)
        out[i] = view.pos[view.order[i]];
    return view.n;
}

static void check_positions(const struct session *s, const unsigned char *heads,
                            const unsigned char *gone, const char *what)
{
    for (int i = 0; i < world.heads; i++) {
        int32_t found[CAP];
        int n = positions(s, i, found), k = 0;
        for (int p = 0; p < PROMPT; p++)
            if (!heads || !heads[i] || !gone[p])
                cr_assert(k < n && found[k++] == p, "%s: head %d, position %d", what, i, p);
        cr_assert(k == n, "%s: head %d holds %d entries, not %d", what, i, n, k);
    }
}

/* Draws a random set of positions: one entry, some entries, or all. */
static void draw_gone(struct rng *r, unsigned char *gone)
{
    int kind = (int)rng_below(r, 3);
    memset(gone, kind == 2, PROMPT);
    if (kind == 0)
        gone[rng_below(r, PROMPT)] = 1;
    for (int p = 0; kind == 1 && p < PROMPT; p++)
        gone[p] = rng_below(r, 4) == 0;
}

Test(effect, entries_leave_the_fork_alone, .timeout = 60)
{
    struct kvf_diag d = {""};
    open_world(6);
    struct rng r = rng_seeded(31);
    struct session *s = open_session(world.e, NULL, CAP, 33, NULL), *twin;
    cr_assert(session_prompt(s, world.ids, PROMPT, NULL, NULL) == KVF_OK);
    unsigned char *heads = MEM_NEW(unsigned char, (size_t)world.heads), gone[PROMPT];
    int failures = 0;
    for (int round = 0; round < 30; round++) {
        int err = KVF_E_NOMEM;
        for (int i = 0; i < world.heads; i++)
            heads[i] = rng_below(&r, 2) != 0;
        draw_gone(&r, gone);
        for (long n = 0; err; n++) { /* each allocation fails in turn */
            cr_assert(session_fork(s, NULL, &twin, &d) == KVF_OK);
            allocs_left = n;
            err = session_remove(twin, heads, gone);
            allocs_left = -1;
            failures += err == KVF_E_NOMEM;
            if (!err) {
                check_positions(twin, heads, gone, "fork");
                for (int i = 0; i < STEPS; i++)
                    cr_assert(session_step(twin, world.ids[PROMPT + i]) == KVF_OK);
            }
            session_destroy(twin);
        }
        check_positions(s, NULL, gone, "origin");
    }
    cr_expect(failures > 60, "%d failures", failures);
    session_destroy(s);
    mem_free(heads);
    engine_close(world.e);
}

/* Checks that a fork without evictions equals the full cache bit for bit, and that others
 * differ. */
static void check_steps(const struct effect_step *step)
{
    for (int i = 0; i < STEPS; i++) {
        cr_assert(step[i].kl == 0 && step[i].dnll == 0 && step[i].agree, "step %d", i);
        cr_assert(step[STEPS + i].kl > 0, "step %d: nothing was lost in a held head", i);
        cr_assert(step[2 * STEPS + i].kl > 0, "step %d: nothing was lost with an entry", i);
    }
}

static int measure(const struct effect *e, const struct effect_cell *cell, struct effect_step *step,
                   struct effect_memory *m)
{
    OWNED(effect_close) struct effect_run *run = NULL;
    int err = effect_open(e, world.ids, &run, NULL);
    if (!err)
        err = effect_measure(run, STEPS, cell, 3, step, m, NULL);
    return err;
}

Test(effect, lack_of_memory_is_reported, .timeout = 60)
{
    open_world(6);
    struct effect e = {.engine = world.e, .kv_type = KV_F32, .prompt = PROMPT, .steps = STEPS};
    unsigned char *heads = MEM_NEW(unsigned char, (size_t)world.heads);
    int32_t gone = 107;
    struct effect_cell cell[3] = {{.heads = heads},
                                  {.heads = heads, .sinks = 2, .recent = 9},
                                  {.heads = heads, .gone = &gone, .n_gone = 1}};
    struct effect_step expected[3 * STEPS], step[3 * STEPS];
    struct effect_memory all = {0}, memory = {0};
    int failures = 0, err = KVF_E_NOMEM;
    heads[1] = 1;
    cr_assert(measure(&e, cell, expected, &all) == KVF_OK);
    check_steps(expected);
    cr_expect(all.pages < all.pages_unshared && all.pages >= 2 * world.heads);
    for (long n = 0; err; n++) {
        allocs_left = n;
        memory = (struct effect_memory){0};
        err = measure(&e, cell, step, &memory);
        cr_assert(err == KVF_E_NOMEM || allocs_left >= 0);
        allocs_left = -1;
        failures += err != KVF_OK;
    }
    cr_expect(failures > 100, "%d failures", failures);
    cr_expect(memory.pages == all.pages && memory.pages_unshared == all.pages_unshared);
    for (int i = 0; i < 3 * STEPS; i++)
        cr_expect(step[i].kl == expected[i].kl && step[i].dnll == expected[i].dnll);
    mem_free(heads);
    engine_close(world.e);
}
