/* test_fork.c - forks share the pages of their common past, and a change in a fork is not visible
 * in other forks. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "golden.h"

static long allocs_left = -1; /* allocations before the failing one; < 0: no failure */

void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    if (allocs_left == 0) {
        allocs_left = -1;
        return NULL;
    }
    allocs_left -= allocs_left > 0;
    return __real_aligned_alloc(align, n);
}

/* A cache of one head with its expected contents. The key and value of an entry are functions of
 * its mark, which differs per cache. */
enum { DIM = 32, MOST = 5 * PAGE_SLOTS, TWINS = 6 };
struct twin {
    struct cache *c;
    int n;
    int32_t pos[MOST];
    float mark[MOST];
    int32_t next;
};

static void append(struct twin *t, const struct kernels *k, float mark)
{
    float key[DIM], value[DIM];
    for (int d = 0; d < DIM; d++) {
        key[d] = mark + (float)d;
        value[d] = mark - (float)d;
    }
    cr_assert(cache_reserve(t->c, 0, 0, 1) == KVF_OK);
    struct cache_entry e = {t->next, t->next % 7 ? NEVER_EXPIRES : t->next + 9, key, value};
    cache_append(t->c, k, 0, 0, &e);
    t->pos[t->n] = t->next++;
    t->mark[t->n++] = mark;
}

/* Moves the last entry to the free slot. */
static void settle(struct twin *t, int slot)
{
    cr_assert(cache_own(t->c, 0, 0, slot, slot + 1) == KVF_OK);
    cache_settle(t->c, 0, 0);
    t->n--;
    t->pos[slot] = t->pos[t->n];
    t->mark[slot] = t->mark[t->n];
}

/* Appends a new entry to the free slot. */
static void replace(struct twin *t, const struct kernels *k, int slot, float mark)
{
    int last = --t->n;
    int32_t pos = t->pos[last];
    float old = t->mark[last];
    append(t, k, mark);
    t->pos[slot] = t->pos[last];
    t->mark[slot] = mark;
    if (slot < last) {
        t->pos[last] = pos;
        t->mark[last] = old;
    }
}

/* Evicts one entry. If a slot of the head is already free, ranks close instead. */
static void evict(struct twin *t, struct twin *u, const struct kernels *k, int slot, float mark,
                  uint64_t how)
{
    unsigned char keep[MOST];
    if (cache_gap(t->c, 0, 0, NULL) == GAP_NONE) {
        cache_evict(t->c, 0, 0, slot);
        if (how == 1 && t != u) { /* fork while the slot is free */
            cache_destroy(u->c);
            *u = *t;
            cr_assert(cache_fork(t->c, &u->c) == KVF_OK);
            replace(u, k, slot, mark + 0.5f);
        }
        if (how < 3)
            replace(t, k, slot, mark);
        else
            settle(t, slot);
        return;
    }
    memset(keep, 1, sizeof keep);
    keep[slot] = 0;
    cr_assert(cache_own(t->c, 0, 0, slot, t->n - 1) == KVF_OK);
    cache_keep(t->c, 0, 0, keep);
    t->n--;
    for (int i = slot; i < t->n; i++) {
        t->pos[i] = t->pos[i + 1];
        t->mark[i] = t->mark[i + 1];
    }
}

static void keep_some(struct twin *t, struct rng *r)
{
    unsigned char keep[MOST];
    int n = 0, first = t->n;
    for (int i = 0; i < t->n; i++) {
        keep[i] = rng_below(r, 3) != 0;
        if (!keep[i] && i < first)
            first = i;
        n += keep[i];
    }
    cr_assert(cache_own(t->c, 0, 0, first, n) == KVF_OK);
    cache_keep(t->c, 0, 0, keep);
    for (int i = 0, m = 0; i < t->n; i++)
        if (keep[i]) {
            t->pos[m] = t->pos[i];
            t->mark[m++] = t->mark[i];
        }
    t->n = n;
}

static void check(const struct twin *t)
{
    struct cache_head view = cache_view(t->c, 0, 0);
    float key[DIM];
    cr_assert(view.n == t->n);
    cr_assert(cache_stats(t->c).pages == (t->n + PAGE_SLOTS - 1) / PAGE_SLOTS);
    for (int i = 0; i < t->n; i++) {
        const float *page = cache_values(t->c, &view, i / PAGE_SLOTS);
        const float *value = page + (size_t)(i % PAGE_SLOTS) * DIM;
        cache_key(t->c, 0, 0, i, key);
        cr_assert(view.pos[i] == t->pos[i]);
        cr_assert(view.expires_at[i] == (t->pos[i] % 7 ? NEVER_EXPIRES : t->pos[i] + 9));
        cr_assert(view.first_expiry <= view.expires_at[i]);
        cr_assert(i == 0 || view.pos[view.order[i]] > view.pos[view.order[i - 1]]);
        for (int d = 0; d < DIM; d++) {
            cr_assert(key[d] == t->mark[i] + (float)d);
            cr_assert(value[d] == t->mark[i] - (float)d);
        }
    }
}

/* Compares random appends, single and multiple evictions, forks and destroys with plain arrays. */
Test(fork, caches_behave_as_copies, .timeout = 120)
{
    static struct twin twin[TWINS];
    struct kernels k;
    struct rng r;
    struct cache_config cfg = {1, 1, DIM, KV_F32};
    int64_t shared = 0;
    kernels_init(&k, 0);
    rng_init(&r, 5);
    cr_assert(cache_create(&cfg, &twin[0].c) == KVF_OK);
    for (int step = 0; step < 6000; step++) {
        struct twin *t = &twin[rng_below(&r, TWINS)], *u = &twin[rng_below(&r, TWINS)];
        uint64_t what = rng_below(&r, 100);
        if (!t->c)
            continue;
        if (what < 8 && t != u) {
            cache_destroy(u->c);
            *u = *t;
            cr_assert(cache_fork(t->c, &u->c) == KVF_OK);
            cr_assert(cache_shared(u->c) == cache_stats(u->c).pages);
        } else if (what < 9) {
            keep_some(t, &r);
        } else if (what < 42 && t->n) {
            evict(t, u, &k, (int)rng_below(&r, (uint64_t)t->n), (float)step, rng_below(&r, 6));
        } else if (t->n < MOST) {
            append(t, &k, (float)step);
        }
        for (int i = 0; i < TWINS; i++)
            if (twin[i].c) {
                check(&twin[i]);
                shared += cache_shared(twin[i].c);
            }
    }
    cr_expect(shared > 1000, "only %ld pages were shared", (long)shared);
    for (int i = 0; i < TWINS; i++)
        cache_destroy(twin[i].c);
}

/* Returns presets that need no gates and plans, and methods with options that need more of a
 * session. */
static const char *const *all_rows(int *ret_n)
{
    static const char *list[128] = {"h2o:group=none", "tova:positions=cache", "snapkv:order=after",
                                    "window:chunk=16", "cake:order=after"};
    int n = 5;
    for (const struct method *m = method_presets; m->name; m++) {
        struct method_inputs none = {0};
        struct kvf_diag d;
        if (method_check_inputs(m, &m->params, &none, &d) == KVF_OK)
            list[n++] = m->name;
    }
    *ret_n = n;
    return list;
}

enum { PROMPT = 110, STEPS = 12, CAP = PROMPT + STEPS }; /* the second page is half full */

static struct {
    struct engine *e;
    int32_t ids[CAP], other[STEPS]; /* two continuations */
    size_t bytes;                   /* of one row of logits */
} world;

static void open_world(int model, bool exact)
{
    struct rng r;
    rng_init(&r, 23);
    world.e = open_model(tiny_path(model), exact, 2);
    world.bytes = (size_t)world.e->config.vocab * sizeof(float);
    for (int i = 0; i < CAP + STEPS; i++)
        *(i < CAP ? &world.ids[i] : &world.other[i - CAP]) = (int32_t)rng_below(
            &r, (uint64_t)world.e->config.vocab);
}

static struct session *prompted(const struct choice *c)
{
    struct session *s = open_session(world.e, c, CAP, 33, NULL);
    cr_assert(session_prompt(s, world.ids, PROMPT, NULL, NULL) == KVF_OK);
    return s;
}

/* Returns the logits of all steps of a session that was never forked. */
static float *alone(const struct choice *c, const int32_t *next)
{
    struct session *s = prompted(c);
    float *out = mem_alloc(STEPS, world.bytes);
    for (size_t i = 0; i < STEPS; i++) {
        cr_assert(session_step(s, next[i]) == KVF_OK);
        memcpy((char *)out + i * world.bytes, session_logits(s), world.bytes);
    }
    session_destroy(s);
    return out;
}

static void step(struct session *s, const int32_t *next, const float *expected, const char *what)
{
    int i = session_length(s) - PROMPT;
    cr_assert(session_step(s, next[i]) == KVF_OK);
    cr_assert(
        memcmp(session_logits(s), (const char *)expected + (size_t)i * world.bytes, world.bytes)
            == 0,
        "%s: step %d differs from a run without forks", what, i);
}

static struct session *fork_of(const struct session *s)
{
    struct session *twin = NULL;
    struct kvf_diag d = {""};
    cr_assert(session_fork(s, NULL, &twin, &d) == KVF_OK, "%s", d.text);
    return twin;
}

/* Forks after the prompt and in the middle; runs the steps in random order. */
static void any_order(const char *name, int budget)
{
    struct choice c = choose(name, budget);
    float *a = alone(&c, world.ids + PROMPT), *b = alone(&c, world.other);
    struct rng r;
    rng_init(&r, 3);
    for (int round = 0; round < 3; round++) {
        struct session *s[3] = {prompted(&c)};
        s[1] = fork_of(s[0]);
        cr_assert(cache_shared(session_cache(s[1])) == session_cache_stats(s[1]).pages);
        int left[2] = {STEPS, STEPS};
        while (left[0] + left[1] > 0) {
            int who = left[0] == 0 || (left[1] > 0 && rng_below(&r, 2));
            left[who]--;
            step(s[who], who ? world.other : world.ids + PROMPT, who ? b : a, name);
            if (who == 0 && left[0] == STEPS / 2 && !s[2]) {
                s[2] = fork_of(s[0]);
                session_destroy(s[0]); /* the origin is destroyed first */
                s[0] = fork_of(s[2]);
            }
        }
        while (session_length(s[2]) < CAP)
            step(s[2], world.ids + PROMPT, a, name);
        for (int i = 0; i < 3; i++)
            session_destroy(s[i]);
    }
    mem_free(a);
    mem_free(b);
}

Test(fork, of_any_method_goes_on_as_if_alone, .timeout = 120)
{
    int n;
    const char *const *rows = all_rows(&n);
    open_world(0, true);
    for (int i = 0; i < n; i++)
        any_order(rows[i], 40);
    engine_close(world.e);
    open_world(5, false);
    any_order("full", 0);
    any_order("h2o", 80);
    engine_close(world.e);
}

/* The prompt evicts one entry of the first page, and the last entry moves to its slot. Then the
 * cache forks. The first step evicts an entry of the second page, so the moved entry moves back in
 * each fork's own copy. */
Test(fork, a_filled_slot_is_of_each_its_own, .timeout = 60)
{
    static const char *const rows[] = {"h2o", "tova", "keydiff", "random"};
    open_world(0, true);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        any_order(rows[i], PROMPT - 1);
    engine_close(world.e);
}

static void same_entries(const struct session *a, const struct session *b, const char *what)
{
    const struct model_config *m = &world.e->config;
    for (int i = 0; i < m->n_layers * m->n_kv_heads; i++) {
        struct cache_head x = cache_view(session_cache(a), i / m->n_kv_heads, i % m->n_kv_heads);
        struct cache_head y = cache_view(session_cache(b), i / m->n_kv_heads, i % m->n_kv_heads);
        cr_assert(x.n == y.n, "%s", what);
        cr_assert(memcmp(x.pos, y.pos, (size_t)x.n * sizeof *x.pos) == 0, "%s", what);
    }
}

/* One prefill with method full, observed by all methods, serves each of them. */
Test(fork, a_watched_prompt_is_that_of_the_method, .timeout = 120)
{
    enum { MOST_METHODS = 128 };
    struct method_state *state[MOST_METHODS];
    const char *name[MOST_METHODS];
    struct choice c;
    int n = 0, n_rows;
    const char *const *rows = all_rows(&n_rows);
    open_world(0, true);
    const struct model_config *m = &world.e->config;
    struct method_shape shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim};
    for (int i = 0; i < n_rows; i++) {
        c = choose(rows[i], 40);
        name[n] = rows[i];
        if (method_shares_prompt(&c.row, &c.params))
            cr_assert(method_state_create(&c.row, &c.params, &shape, NULL, &state[n++]) == KVF_OK);
    }
    cr_assert(n > 15);
    struct session *full = open_session(world.e, NULL, CAP, 33, NULL);
    session_watch(full, state, n);
    cr_assert(session_prompt(full, world.ids, PROMPT, NULL, NULL) == KVF_OK);
    for (int i = 0; i < n; i++) {
        c = choose(name[i], 40);
        struct session *own = prompted(&c), *s = fork_of(full);
        float *expected = alone(&c, world.other);
        cr_assert(session_adopt(s, state[i]) == KVF_OK);
        same_entries(s, own, name[i]);
        while (session_length(s) < CAP)
            step(s, world.other, expected, name[i]);
        session_destroy(own);
        session_destroy(s);
        mem_free(expected);
    }
    float *expected = alone(NULL, world.other);
    session_watch(full, NULL, 0);
    while (session_length(full) < CAP)
        step(full, world.other, expected, "full");
    mem_free(expected);
    session_destroy(full);
    for (int i = 0; i < n; i++)
        method_state_destroy(state[i]);
    engine_close(world.e);
}

/* Sessions of all methods with different lengths, in batches where some have to wait for others. */
Test(fork, a_batch_steps_as_each_alone, .timeout = 120)
{
    enum { MOST_METHODS = 128 };
    struct session *s[MOST_METHODS];
    float *expected[MOST_METHODS];
    int32_t ids[MOST_METHODS];
    struct batch *b = NULL;
    int n = 0;
    const char *const *rows = all_rows(&n);
    open_world(6, false);
    for (int k = 0; k < n; k++) {
        struct choice c = choose(rows[k], 40);
        expected[k] = alone(&c, world.other);
        s[k] = prompted(&c);
        for (int i = 0; i < k % 3; i++)
            step(s[k], world.other, expected[k], rows[k]);
    }
    cr_assert(batch_create(world.e, n * 2 / 3, &b) == KVF_OK);
    for (int round = 0; round < STEPS - 2; round++) {
        for (int i = 0; i < n; i++)
            ids[i] = world.other[session_length(s[i]) - PROMPT];
        cr_assert(batch_step(b, s, n, ids) == KVF_OK);
        for (int i = 0; i < n; i++) {
            size_t at = (size_t)(session_length(s[i]) - PROMPT - 1) * world.bytes;
            cr_assert(memcmp(session_logits(s[i]), (char *)expected[i] + at, world.bytes) == 0,
                      "%s: step %d in a batch differs", rows[i], round);
        }
    }
    for (int i = 0; i < n; i++) {
        while (session_length(s[i]) < CAP)
            step(s[i], world.other, expected[i], "after a batch");
        session_destroy(s[i]);
        mem_free(expected[i]);
    }
    batch_destroy(b);
    engine_close(world.e);
}

/* Fails each allocation in turn during fork, adopt and step. */
static void without_memory(const char *name, int budget)
{
    struct choice c = choose(name, budget);
    float *a = alone(&c, world.ids + PROMPT), *b = alone(&c, world.other);
    struct kvf_diag d = {""};
    int failures[3] = {0};
    struct session *s = prompted(&c), *twin = NULL, *third = NULL;
    for (long n = 0; !twin; n++) {
        allocs_left = n;
        failures[0] += session_fork(s, NULL, &twin, &d) == KVF_E_NOMEM;
        allocs_left = -1;
    }
    for (long n = 0;; n++, session_destroy(third)) {
        third = fork_of(s);
        allocs_left = n;
        int err = session_adopt(third, session_method(s));
        allocs_left = -1;
        cr_assert(err == KVF_OK || err == KVF_E_NOMEM);
        failures[1] += err == KVF_E_NOMEM;
        if (!err)
            break;
    }
    for (int i = 0; i < STEPS; i++) {
        int err = KVF_E_NOMEM;
        for (long n = 0; err; n++) {
            allocs_left = n;
            err = session_step(twin, world.other[i]);
            allocs_left = -1;
            failures[2] += err != KVF_OK;
            if (err && n == 0 && i > 1) /* the other continues; all shared pages were copied */
                step(s, world.ids + PROMPT, a, name);
        }
        cr_assert(memcmp(session_logits(twin), (char *)b + (size_t)i * world.bytes, world.bytes)
                      == 0,
                  "%s: repeated step %d differs", name, i);
    }
    while (session_length(s) < CAP)
        step(s, world.ids + PROMPT, a, name);
    while (session_length(third) < CAP)
        step(third, world.other, b, name);
    cr_expect(failures[0] > 20 && failures[1] > 3 && failures[2] > 3, "%d, %d and %d failures",
              failures[0], failures[1], failures[2]);
    session_destroy(s);
    session_destroy(twin);
    session_destroy(third);
    mem_free(a);
    mem_free(b);
}

Test(fork, lack_of_memory_leaves_both_usable, .timeout = 120)
{
    open_world(6, true); /* three layers: an allocation may fail in the middle of a token */
    without_memory("snapkv", 40);
    without_memory("h2o", 90);
    without_memory("adakv", 80);
    without_memory("local", 40);
    without_memory("quest", 40);
    engine_close(world.e);
}

Test(fork, refuses_fewer_tokens_than_were_fed, .timeout = 60)
{
    open_world(0, true);
    struct session *s = prompted(NULL), *twin = NULL;
    struct session_options opt = {.cap = PROMPT - 1};
    struct kvf_diag d = {""};
    cr_expect(session_fork(s, &opt, &twin, &d) == KVF_E_LIMIT && !twin && d.text[0]);
    opt.cap = PROMPT;
    cr_assert(session_fork(s, &opt, &twin, &d) == KVF_OK);
    cr_expect(session_step(twin, 1) == KVF_E_LIMIT);
    session_destroy(twin);
    session_destroy(s);
    engine_close(world.e);
}
