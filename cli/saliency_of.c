/* saliency_of.c - reads the tokens and entries of a trace for `kvfate ablate --as saliency`. */
#include "cli/open_traces.h"
#include "cli/saliency_of.h"

#include <math.h>
#include <string.h>

#include <kvf/schema.h>
#include <kvf/trace.h>

#include "base/mem.h"
#include "engine/model/gguf.h"
#include "libtrace/run_header.h"

/* Checks that the trace was made with this model, because entries of another model are not
 * comparable. */
static int check_model(struct kvf_trace *t, const char *path, const char *hash, struct kvf_diag *d)
{
    struct json *header = NULL;
    int err = run_header(t, &header, d);
    const char *name = json_str(json_get(json_get(header, "model"), "name"), "?");
    const char *other = json_str(json_get(json_get(header, "model"), "hash"), "");
    if (!err && strcmp(other, hash) != 0)
        err = kvf_fail(d, KVF_E_FORMAT,
                       "%s was made with another model (%.40s of hash %.32s); "
                       "this one has hash %s",
                       path, name, *other ? other : "unknown", hash);
    json_free(header);
    return err;
}

/* Reads a column of entries [L * H][T]. Leaves *ret unchanged if the column is not recorded for
 * the KV heads of the model. */
static int read_column(struct kvf_trace *t, const char *name, const struct model_config *m,
                       double **ret, struct kvf_diag *d)
{
    int column = kvf_find(t, name), err = KVF_OK;
    const struct kvf_column *c = kvf_column(t, column);
    size_t T = kvf_n_steps(t), H = (size_t)m->n_kv_heads;
    bool fits = c && c->space == KVF_SPACE_KV && c->axis == KVF_AXIS_TOKEN
                && kvf_n_layers(t) == m->n_layers;
    for (int l = 0; fits && l < m->n_layers; l++)
        fits = kvf_n_heads(t, l, KVF_SPACE_KV) == m->n_kv_heads;
    if (!fits)
        return KVF_OK;
    double *v = mem_alloc((size_t)m->n_layers * H, T * sizeof *v);
    if (!v)
        return KVF_E_NOMEM;
    for (size_t k = 0; !err && k < (size_t)m->n_layers * H; k++)
        err = kvf_read_f64(t, column, (int)(k / H), (int)(k % H), 0, (uint32_t)T, v + k * T, d);
    if (err)
        mem_free(v);
    else
        *ret = v;
    return err;
}

static int read_gates(struct kvf_trace *t, const struct model_config *m, float **ret,
                      struct kvf_diag *d)
{
    double *v = NULL;
    int err = read_column(t, "write_gate", m, &v, d);
    size_t n = (size_t)m->n_layers * (size_t)m->n_kv_heads * kvf_n_steps(t);
    float *g = !err && v ? MEM_NEW(float, n) : NULL;
    if (!err && v && !g)
        err = KVF_E_NOMEM;
    for (size_t k = 0; !err && v && k < n; k++) {
        g[k] = (float)v[k];
        if (!(v[k] >= 0 && v[k] <= 1)) /* true for NaN, too */
            err = kvf_fail(d, KVF_E_FORMAT, "write_gate: %g is no number from 0 to 1", v[k]);
    }
    mem_free(v);
    *ret = g;
    return err;
}

static int read_columns(struct saliency_of *of, struct kvf_trace *t, const struct model_config *m,
                        struct kvf_diag *d)
{
    int err = read_column(t, "log_beta", m, &of->log_beta, d);
    if (!err)
        err = read_column(t, "evict_step", m, &of->evict_step, d);
    size_t n = (size_t)m->n_layers * (size_t)m->n_kv_heads * kvf_n_steps(t);
    for (size_t k = 0; !err && of->evict_step && k < n; k++)
        if (of->evict_step[k] >= (double)KVF_ALIVE)
            of->evict_step[k] = INFINITY;
    return err ? err : read_gates(t, m, &of->write_gate, d);
}

int saliency_of_open(struct saliency_of *of, const char *path, const struct engine *e,
                     struct kvf_diag *d)
{
    const struct model_config *c = &e->config;
    struct plan_model m = {c->n_layers, c->n_heads, c->n_kv_heads, c->vocab, c->n_ctx_max, "", ""};
    struct kvf_trace *t = NULL;
    memcpy(m.hash, e->hash, sizeof m.hash);
    tokenizer_hash(e->tokenizer, m.tokenizer_hash);
    int err = kvf_open(path, KVF_OPEN_TAIL, &t, d);
    of->partial = !err && trace_is_partial(t);
    if (!err)
        err = kvf_check_size(t, d);
    if (!err)
        err = check_model(t, path, m.hash, d);
    if (!err)
        err = plan_open_tokens(path, &m, &of->tokens, d);
    if (!err)
        err = read_columns(of, t, c, d);
    kvf_close(t);
    return err;
}

void saliency_of_close(struct saliency_of *of)
{
    plan_close(of->tokens);
    mem_free(of->log_beta);
    mem_free(of->evict_step);
    mem_free(of->write_gate);
    memset(of, 0, sizeof *of);
}
