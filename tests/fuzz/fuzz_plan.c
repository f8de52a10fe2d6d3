/* fuzz_plan.c - plans, which one run passes to another. A plan is read or rejected with a message,
 * from traces with the header of a plan (any_trace.h), and is made from other traces. Also covers
 * the results that `eval --state` keeps: lines of arbitrary bytes after a valid header. */
#include <inttypes.h>
#include <math.h>

#include <kvf/schema.h>

#include "any_trace.h"
#include "engine/decode/backend.h"
#include "engine/experiment/eval_state.h"
#include "engine/experiment/plan.h"
#include "fuzz.h"

static void check_plan(const struct plan *p, const struct plan_model *m)
{
    size_t T = (size_t)p->n_tokens;
    MUST(T >= 1 && p->n_prompt >= 0 && p->n_prompt <= p->n_tokens);
    MUST(p->n_layers == m->n_layers || (!p->evict_step && !p->mass)); /* only tokens */
    MUST(p->chunk >= 0 && p->chunk < p->n_tokens && strlen(p->method) < sizeof p->method);
    for (size_t i = 0; p->ids && i < T; i++)
        MUST(p->ids[i] >= 0 && p->ids[i] < m->vocab);
    for (size_t i = 0; p->roles && i < T; i++)
        MUST(p->roles[i] <= KVF_ROLE_IMAGE);
    for (size_t i = 0; p->evict_step && i < T * (size_t)(p->n_layers * p->n_kv_heads); i++)
        MUST(p->evict_step[i] == KVF_ALIVE || (p->evict_step[i] > i % T && p->evict_step[i] <= T));
    for (size_t i = 0; p->mass && i < T * (size_t)(p->n_layers * p->n_heads); i++)
        MUST(p->mass[i] >= 0 && isfinite(p->mass[i]));
}

static void read_plan(const char *path, struct kvf_trace *t, bool tokens)
{
    struct plan_model m = {.n_layers = kvf_n_layers(t),
                           .n_heads = kvf_n_heads(t, 0, KVF_SPACE_QUERY),
                           .n_kv_heads = kvf_n_heads(t, 0, KVF_SPACE_KV),
                           .vocab = 50,
                           .most_tokens = 64};
    struct plan *p = NULL;
    struct kvf_diag d = {""};
    snprintf(m.hash, sizeof m.hash, "%032d", 1); /* the hash in any_trace.c */
    snprintf(m.tokenizer_hash, sizeof m.tokenizer_hash, "%032d", 2);
    int err = tokens ? plan_open_tokens(path, &m, &p, &d) : plan_open(path, &m, &p, &d);
    MUST(err == KVF_OK ? p != NULL : !p && d.text[0]);
    if (p)
        check_plan(p, &m);
    plan_close(p);
}

/* Writes a plan of a trace. It must be valid, unless the trace has values that no run can have. */
static void write_plan(struct kvf_trace *t, unsigned how)
{
    static char path[64];
    struct plan_options o = {
        .no_tokens = how & 1, .no_evictions = how & 2, .no_mass = how & 4, .overwrite = true};
    struct kvf_trace *made = NULL;
    struct kvf_diag d = {""};
    if (!path[0])
        snprintf(path, sizeof path, "/dev/shm/kvf-fuzz-%d-plan.kvf", (int)getpid());
    int err = plan_write(t, &o, path, &d);
    MUST(err == KVF_OK || (d.text[0] && err != KVF_E_IO && err != KVF_E_NOMEM));
    MUST((access(path, F_OK) == 0) == (err == KVF_OK));
    if (err)
        return;
    MUST(kvf_open(path, KVF_OPEN_STRICT, &made, &d) == KVF_OK);
    read_plan(path, made, false);
    kvf_close(made);
    unlink(path);
}

static void plan(struct source *s, unsigned how)
{
    struct kvf_trace *t = NULL;
    char path[64];
    size_t n;
    const unsigned char *p = any_trace(s, &n);
    int fd = memory_file(p, n, path);
    if (kvf_open(path, KVF_OPEN_TAIL, &t, NULL) == KVF_OK) {
        if (how & 8)
            write_plan(t, how);
        else
            read_plan(path, t, how & 1);
    }
    kvf_close(t);
    close(fd);
}

static struct gguf *model(void)
{
    static struct gguf *g;
    struct kvf_diag d = {""};
    static const unsigned char head[] = "GGUF\3\0\0\0" /* no tensors, no metadata */
                                        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    char path[64];
    if (!g) {
        int fd = memory_file(head, 24, path);
        MUST(gguf_open(path, &g, &d) == KVF_OK);
        close(fd);
    }
    return g;
}

static void results(struct source *s, unsigned how)
{
    struct engine engine = {.gguf = model(), .backend = &backend_cpu};
    const struct eval e = {.engine = &engine, .prompt = 8, .score = 4};
    struct eval_cell cell = {.label = "h2o"};
    struct eval_result r = {1, 2, .5, 1, 3, 4, 5, 6}, got;
    struct eval_state *state = NULL;
    struct kvf_diag d = {""};
    char path[64];
    int fd = memory_file("", 0, path);
    MUST(eval_state_open(path, &e, 1, "1", &state, &d) == KVF_OK);
    if (how & 1)
        MUST(eval_state_add(state, 3, 99, &cell, &r, &d) == KVF_OK);
    eval_state_close(state);
    state = NULL;
    MUST(lseek(fd, 0, SEEK_END) > 0 && write(fd, s->p, s->n) == (ssize_t)s->n);
    int err = eval_state_open(path, &e, 1, "1", &state, &d);
    MUST(err == KVF_OK ? state != NULL : !state && d.text[0]);
    if (!err && how & 1) { /* earlier results are found */
        MUST(eval_state_find(state, 3, 99, &cell, &got, &d) == 1);
        MUST(memcmp(&got, &r, sizeof r) == 0);
        MUST(eval_state_find(state, 3, 98, &cell, &got, &d) == KVF_E_FORMAT);
    }
    eval_state_close(state);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct source s = {data, n};
    unsigned how = (unsigned)take(&s, 1);
    if (n > 1024)
        return 0;
    if (how % 4 == 3)
        results(&s, how >> 4);
    else
        plan(&s, how >> 4);
    return 0;
}
