/* saliency_beta.c - evaluates retention gates on tokens. */
#include "cli/models.h"
#include "cli/saliency_beta.h"
#include "cli/watcher.h"

#include <stdio.h>

#include "base/mem.h"
#include "engine/method/parts.h"

enum { NO_LIMIT = 1 << 24 }; /* a budget above any context, so that no entry is evicted */

static int open_gates(struct engine *e, const char *file, const char *method, struct gates **ret,
                      struct kvf_diag *d)
{
    struct method row;
    struct method_params p;
    int err = method ? method_parse(method, NO_LIMIT, &row, &p, d) : KVF_OK;
    if (!err && method && !(method_gates(&row) >> GATE_RETENTION & 1))
        err = kvf_fail(d, KVF_E_ARG,
                       "--method %s has no retention gates to compare with; "
                       "trimkv and dbtrimkv have",
                       row.name);
    if (!err)
        err = file ? model_gates(e, file, ret, d) : model_shipped_gates(e, &row, ret, d);
    if (!err && !*ret)
        err = kvf_fail(d, KVF_E_ARG,
                       "--method %s: no gates are shipped for it and this model; "
                       "give --gates FILE",
                       row.name);
    if (!err && gates_kind(*ret) != GATE_RETENTION)
        err = kvf_fail(d, KVF_E_ARG,
                       "--gates %s has %s gates; saliency is compared with retention gates",
                       gates_path(*ret), gates_kind_name(gates_kind(*ret)));
    return err;
}

/* Feeds the tokens with a method that records the gate values and evicts no entry. */
static int feed(struct engine *e, const struct gates *g, const int32_t *ids, int n,
                struct session **ret, struct kvf_diag *d)
{
    struct method row;
    struct method_params p;
    int err = method_parse("trimkv", NO_LIMIT, &row, &p, d);
    struct session_options opt = {
        .method = &row, .params = &p, .gates = g, .kv_type = KV_F32, .cap = n};
    if (!err)
        err = session_create(e, &opt, ret, d);
    struct watcher w = watcher_count("gates", "tok");
    w.of = (uint64_t)n;
    if (!err)
        err = session_prompt(*ret, ids, n, watcher_tokens, &w);
    watcher_end(&w);
    return err;
}

static int collect(struct engine *e, struct session *s, int n, double **ret)
{
    size_t L = (size_t)e->config.n_layers, H = (size_t)e->config.n_kv_heads;
    double *v = mem_alloc(L * H, (size_t)n * sizeof *v);
    if (!v)
        return KVF_E_NOMEM;
    for (size_t k = 0; k < L * H; k++) {
        int layer = (int)(k / H), head = (int)(k % H);
        const float *gate = evidence_gate(session_method(s), layer, head);
        struct cache_head view = cache_view(session_cache(s), layer, head);
        for (int i = 0; i < view.n; i++)
            v[k * (size_t)n + (size_t)view.pos[i]] = (double)gate[i];
    }
    *ret = v;
    return KVF_OK;
}

int saliency_beta(struct engine *e, const char *gates_file, const char *method, const int32_t *ids,
                  int n, double **ret_beta, char ret_hash[33], struct kvf_diag *d)
{
    struct gates *g = NULL;
    struct session *s = NULL;
    int err = open_gates(e, gates_file, method, &g, d);
    if (!err && gates_positions(g) < n)
        err = kvf_fail(d, KVF_E_ARG,
                       "--gates %s has values for %d positions, and the text has %d tokens",
                       gates_path(g), (int)gates_positions(g), n);
    if (!err)
        err = feed(e, g, ids, n, &s, d);
    if (!err)
        err = collect(e, s, n, ret_beta);
    if (!err)
        snprintf(ret_hash, 33, "%s", gates_hash(g));
    session_destroy(s);
    gates_close(g);
    return err;
}
