/* test_steady.c - a step with a full cache allocates no memory under any method. */
#include <stdatomic.h>

#include "golden.h"
#include "tests/suite.h"

static atomic_long asked, bytes_asked; /* calls of the allocator from any thread */

void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    atomic_fetch_add(&asked, 1);
    atomic_fetch_add(&bytes_asked, (long)n);
    return __real_aligned_alloc(align, n);
}
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
    atomic_fetch_add(&asked, 1);
    return __real_malloc(n);
}
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
    atomic_fetch_add(&asked, 1);
    return __real_realloc(p, n);
}

enum { PROMPT = 100, BUDGET = 40, WARM = 20, STEPS = 25 };

/* Returns the number of allocations in STEPS steps. *ret_grew: true if the cache added pages. */
static long calls_of(struct engine *e, const char *method, bool *ret_grew)
{
    struct choice c = choose(method, BUDGET);
    OWNED(session_destroy) struct session *s = open_session(e, &c, PROMPT + WARM + STEPS, 0, NULL);
    int32_t ids[PROMPT];
    struct rng r = rng_seeded(9);
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)rng_below(&r, (uint64_t)e->config.vocab);
    cr_assert(session_prompt(s, ids, PROMPT, NULL, NULL) == KVF_OK);
    long before = 0;
    int64_t pages = 0;
    for (int i = 0; i < WARM + STEPS; i++) {
        if (i == WARM) {
            before = atomic_load(&asked);
            pages = session_cache_stats(s).pages;
        }
        cr_assert(session_step(s, ids[i % PROMPT]) == KVF_OK);
    }
    long n = atomic_load(&asked) - before;
    *ret_grew = session_cache_stats(s).pages > pages;
    return n;
}

Test(steady, a_step_of_a_full_cache_asks_for_no_memory, .timeout = 120)
{
    OWNED(engine_close) struct engine *e = open_model(tiny_path(0), false, 1);
    int n = 0;
    bool grew;
    for (const struct method *m = method_presets; m->name; m++) {
        struct method_inputs none = {0};
        struct kvf_diag d;
        if (method_check_inputs(m, &m->params, &none, &d) != KVF_OK
            || (m->score && m->score->evidence & EVIDENCE_FULL)) /* the mirror cache grows */
            continue;
        long calls = calls_of(e, m->name, &grew);
        cr_expect(grew || calls == 0, "%s: %ld calls", m->name, calls);
        n += !grew;
    }
    cr_expect(n > 10);
    cr_expect(calls_of(e, "full", &grew) > 0 && grew); /* proves that calls are counted */
}

/* Returns the bytes that a run of PROMPT + WARM tokens allocates under a method. cap: maximum
 * length of the session. */
static long bytes_of(struct engine *e, const char *method, int cap)
{
    struct choice c = choose(method, BUDGET);
    long before = atomic_load(&bytes_asked);
    OWNED(session_destroy) struct session *s = open_session(e, &c, cap, 0, NULL);
    int32_t ids[PROMPT] = {0};
    cr_assert(session_prompt(s, ids, PROMPT, NULL, NULL) == KVF_OK);
    for (int i = 0; i < WARM; i++)
        cr_assert(session_step(s, 1) == KVF_OK);
    return atomic_load(&bytes_asked) - before;
}

/* A method's data about entries must grow with the head, not with the maximum length. With rkv, the
 * keys of all heads would need 4 bytes per number. */
Test(steady, what_is_known_of_entries_grows_with_the_heads, .timeout = 120)
{
    enum { SHORT = 256, LONG = 512 };
    OWNED(engine_close) struct engine *e = open_model(tiny_path(0), false, 1);
    const struct model_config *m = &e->config;
    double keys = 4.0 * m->n_layers * m->n_kv_heads * m->head_dim, full = bytes_of(e, "full", LONG);
    double more = (double)(bytes_of(e, "rkv", LONG) - bytes_of(e, "rkv", SHORT)) / (LONG - SHORT);
    double base = (full - (double)bytes_of(e, "full", SHORT)) / (LONG - SHORT);
    cr_expect(more - base < keys / 8, "%g bytes a token, %g without a method", more, base);
}
