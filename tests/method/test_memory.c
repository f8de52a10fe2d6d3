/* test_memory.c - allocations fail anywhere in a session: every preset returns KVF_E_NOMEM, and all
 * memory is freed (checked by a sanitizer). The linker's --wrap fails the k-th call. */
#include "engine/decode/session.h"
#include "tests/failing_alloc.h"
#include "tests/suite.h"

enum { PROMPT = 40, STEPS = 6, CAP = PROMPT + STEPS };

struct play {
    struct engine *engine;
    struct method row, other;
    struct method_params params, other_params;
    const struct gates *gates;
    bool overrides;
};

/* Runs a complete session. */
static int play(const struct play *p)
{
    unsigned char take[64] = {1, 0, 1, 1};
    struct session_override o = {&p->other, &p->other_params, take};
    struct session_options opt = {.method = &p->row,
                                  .params = &p->params,
                                  .gates = p->gates,
                                  .overrides = &o,
                                  .n_overrides = p->overrides,
                                  .kv_type = KV_F16,
                                  .cap = CAP,
                                  .chunk = 16};
    OWNED(session_destroy) struct session *s = NULL;
    struct kvf_diag d = {""};
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        ids[i] = 3 + i * 7 % 250;
    int err = session_create(p->engine, &opt, &s, &d);
    cr_assert(eq(int, s != NULL, err == KVF_OK));
    if (!err)
        err = session_prompt(s, ids, PROMPT, NULL, NULL);
    for (int i = 0; !err && i < STEPS; i++)
        err = session_step(s, ids[i]);
    return err;
}

static const struct gates *open_gates(struct engine *e, const char *name)
{
    const struct model_config *m = &e->config;
    const struct gates_model model = {m->n_layers,          m->d_model,  m->n_heads,
                                      m->n_kv_heads,        m->head_dim, m->norm_eps,
                                      (double)m->rope_base, NULL,        &e->kernels};
    char path[4096];
    struct gates *g = NULL;
    const char *folder = getenv("KVF_TINY_GATES");
    snprintf(path, sizeof path, "%s/tiny_%s.safetensors", folder ? folder : ".", name);
    succeeds(gates_open(path, &model, &g, &d));
    return g;
}

static struct engine *open_model(void)
{
    const struct engine_options opt = {.n_threads = 2};
    const char *folder = getenv("KVF_TINY");
    char path[4096];
    struct engine *e = NULL;
    snprintf(path, sizeof path, "%s/tiny0.gguf", folder ? folder : ".");
    succeeds(engine_open(path, &opt, &e, &d));
    return e;
}

/* Fails each allocation in turn until a session makes fewer. */
static void every_allocation(const char *method, const char *other, const char *gates)
{
    struct play p = {.engine = open_model(), .overrides = other != NULL};
    int err = KVF_E_NOMEM;
    long k = 0;
    succeeds(method_parse(method, 9, &p.row, &p.params, &d));
    if (other)
        succeeds(method_parse(other, 9, &p.other, &p.other_params, &d));
    p.gates = gates ? open_gates(p.engine, gates) : NULL;
    for (; err; k++) {
        allocs_left = k;
        err = play(&p);
        bool came = allocs_left < 0;
        allocs_left = -1;
        cr_assert(eq(int, err, came ? KVF_E_NOMEM : KVF_OK), "%s, allocation %ld", method, k);
        cr_assert(lt(long, k, 5000));
    }
    cr_expect(ge(long, k, 31)); /* the failures occurred */
    gates_close((struct gates *)p.gates);
    engine_close(p.engine);
}

Test(memory, scores)
{
    every_allocation("snapkv:group=none", NULL, NULL);
    every_allocation("gkv:positions=cache,chunk=12", NULL, NULL);
    every_allocation("expected-attention", NULL, NULL);
    every_allocation("next-topk", NULL, NULL);
    every_allocation("ada-pyramidkv:order=after", NULL, NULL);
    every_allocation("snapkv:read=quest,page=2", NULL, NULL);
    every_allocation("rocketkv", NULL, NULL);
}

Test(memory, gates)
{
    every_allocation("dbtrimkv", NULL, "rg");
    every_allocation("wgkv-snapkv", NULL, "wgkv");
    every_allocation("wgkv-quest", NULL, "wgkv");
    every_allocation("seer:page=4", NULL, "seer");
}

Test(memory, rows_side_by_side)
{
    every_allocation("h2o", "quest", NULL);
    every_allocation("keydiff", "next-topk", NULL);
    every_allocation("seer-oracle:page=2", "cake", NULL);
}

Test(memory, quantile)
{
    struct play p = {.engine = open_model()};
    struct kvf_diag d = {""};
    cr_assert(zero(int, method_parse("duo:sinks=2,recent=4", 0, &p.row, &p.params, &d)));
    p.gates = open_gates(p.engine, "duo");
    int err = KVF_E_NOMEM;
    for (long k = 0; err; k++) {
        allocs_left = k;
        err = play(&p);
        bool came = allocs_left < 0;
        allocs_left = -1;
        cr_assert(eq(int, err, came ? KVF_E_NOMEM : KVF_OK), "allocation %ld", k);
    }
    gates_close((struct gates *)p.gates);
    engine_close(p.engine);
}
