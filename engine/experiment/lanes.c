/* lanes.c - prefills one prompt for several methods and budgets. */
#include "engine/experiment/lanes.h"

#include <string.h>

#include "base/mem.h"
#include "engine/experiment/feed.h"

int eval_cell_resolve(struct eval_cell *c, int tokens, struct kvf_diag *d)
{
    if (!c->params.part)
        return KVF_OK;
    int err = method_parse_for(c->label, &c->budget, &(struct budget_prompt){.tokens = tokens},
                               &c->row, &c->params, d);
    if (err)
        kvf_diag_prefix(d, "--methods '%.200s', in a prompt of %d tokens", c->label, tokens);
    return err;
}

int eval_cell_fit(struct eval_cell *c, const struct engine *e, int tokens, struct kvf_diag *d)
{
    int err = eval_cell_resolve(c, tokens, d);
    if (err || !c->params.part || !c->row.allocation->heads)
        return err;
    struct method_inputs in = {
        .gates = c->gates, .head_table = c->head_table, .model = &e->config, .length = tokens};
    err = method_check_inputs(&c->row, &c->params, &in, d);
    if (err)
        kvf_diag_prefix(d, "--methods '%.200s', in a prompt of %d tokens", c->label, tokens);
    return err;
}

int lanes_cap(const struct lanes *l, int i)
{
    const struct model_config *m = &l->engine->config;
    const struct eval_cell *c = i < 0 ? NULL : &l->cell[i];
    struct method_shape shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim};
    if (c)
        shape.n_kv_heads = session_cache_heads(m, &c->row, &c->params);
    bool longer = c && method_outlives(&c->row, &c->params, &shape, m->n_ctx);
    return longer || l->cap < m->n_ctx ? l->cap : m->n_ctx;
}

/* Returns true if a method can observe a prefill with the full cache. With sliding-window layers
 * it cannot, because observed values would remain in slots that the window has emptied. */
static bool can_watch(const struct lanes *l, const struct eval_cell *c)
{
    return !l->engine->config.window && method_shares_prompt(&c->row, &c->params);
}

/* Returns true if a cell is bitwise equal to the full cache: it has the same prefill, a budget for
 * all tokens, and reads all of them. */
static bool stays_full(const struct lanes *l, const struct eval_cell *c)
{
    int most = lanes_cap(l, -1);
    bool reads_all = c->row.read->all || method_reads_most(&c->row, &c->params, 0) >= most;
    return strcmp(c->label, "full") == 0
           || (can_watch(l, c) && c->params.budget >= most && reads_all
               && !c->row.allocation->heads);
}

static bool has_lane(const struct lanes *l, int i)
{
    return !l->spare || !stays_full(l, &l->cell[i]);
}

/* Returns the gates that are evaluated during the prefill: the gates of the first observing cell
 * that needs some. */
static const struct gates *watched_gates(const struct lanes *l)
{
    for (int i = 0; i < l->n; i++)
        if (has_lane(l, i) && method_gates(&l->cell[i].row) && can_watch(l, &l->cell[i]))
            return l->cell[i].gates;
    return NULL;
}

/* Returns true if a cell observes the prefill with the full cache, which evaluates these gates. */
static bool watches(const struct lanes *l, int i, const struct gates *gates)
{
    const struct eval_cell *c = &l->cell[i];
    return has_lane(l, i) && can_watch(l, c) && (!method_gates(&c->row) || c->gates == gates);
}

int lanes_prompts(const struct lanes *l)
{
    const struct gates *gates = watched_gates(l);
    int n = 1;
    for (int i = 0; i < l->n; i++)
        n += has_lane(l, i) && !watches(l, i, gates);
    return n;
}

static int feed(const struct lanes *l, struct session *s, const int32_t *ids, int n)
{
    return feed_prompt(s, ids, n, l->progress, l->ctx);
}

/* Returns what the methods need to know of a prompt of n tokens. */
static struct method_inputs inputs_of(const struct lanes *l, int n)
{
    return (struct method_inputs){.prompt = n, .ranges = l->ranges, .n_ranges = l->n_ranges};
}

/* Copies the parameters of the cells, and finds their protected tokens in a prompt of n tokens. */
static int take_params(struct lanes *l, int n, struct kvf_diag *d)
{
    const struct method_inputs in = inputs_of(l, n);
    int err = KVF_OK;
    l->params = MEM_NEW(struct method_params, (size_t)l->n + 1);
    if (!l->params)
        return KVF_E_NOMEM;
    for (int i = 0; !err && i < l->n; i++) {
        l->params[i] = l->cell[i].params;
        err = method_protect(&l->cell[i].row, &l->params[i], &in, d);
    }
    return err;
}

/* Creates the method states of the observing cells. watching[i] stays NULL for other cells. */
static int create_watchers(const struct lanes *l, const struct gates *gates, int n,
                           struct method_state **watching)
{
    const struct model_config *m = &l->engine->config;
    struct method_shape shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim};
    struct method_inputs in = inputs_of(l, n);
    int err = KVF_OK;
    in.model = m;
    in.length = l->cap;
    in.kernels = &l->engine->kernels;
    for (int i = 0; !err && i < l->n; i++) {
        const struct eval_cell *c = &l->cell[i];
        in.gates = c->gates;
        in.head_table = c->head_table;
        if (watches(l, i, gates))
            err = method_state_create(&c->row, &l->params[i], &shape, &in, &watching[i]);
    }
    return err;
}

static int run_full(struct lanes *l, const int32_t *ids, int n, struct method_state **watching,
                    struct kvf_diag *d)
{
    struct session_options opt = {.gates = watched_gates(l),
                                  .kv_type = l->kv_type,
                                  .cap = lanes_cap(l, -1),
                                  .chunk = l->chunk};
    struct method_state *watcher[LANES_MOST];
    int some = 0, err;
    opt.watched_gates = opt.gates != NULL;
    err = session_create(l->engine, &opt, &l->full, d);
    if (!err)
        err = create_watchers(l, opt.gates, n, watching);
    if (err)
        return err;
    for (int i = 0; i < l->n; i++)
        if (watching[i])
            watcher[some++] = watching[i];
    session_watch(l->full, watcher, some);
    err = feed(l, l->full, ids, n);
    session_watch(l->full, NULL, 0);
    return err;
}

/* Creates the session of a cell after its prompt, evicted to its budget. */
static int start(struct lanes *l, int i, const int32_t *ids, int n,
                 const struct method_state *watching, struct kvf_diag *d)
{
    const struct eval_cell *c = &l->cell[i];
    struct method_inputs in = inputs_of(l, n);
    in.head_table = c->head_table;
    struct session_options opt = {.method = &c->row,
                                  .params = &l->params[i],
                                  .gates = c->gates,
                                  .inputs = &in,
                                  .kv_type = l->kv_type,
                                  .cap = lanes_cap(l, i),
                                  .chunk = watching ? 1 : l->chunk};
    int err = watching ? session_fork(l->full, &opt, &l->lane[i], d)
                       : session_create(l->engine, &opt, &l->lane[i], d);
    if (err)
        return err;
    return watching ? session_adopt(l->lane[i], watching) : feed(l, l->lane[i], ids, n);
}

int lanes_open(struct lanes *l, const int32_t *ids, int n, struct kvf_diag *d)
{
    struct method_state *watching[LANES_MOST] = {NULL};
    int err = take_params(l, n, d);
    if (!err)
        err = run_full(l, ids, n, watching, d);
    for (int i = 0; i < l->n; i++) {
        if (!err && has_lane(l, i))
            err = start(l, i, ids, n, watching[i], d);
        method_state_destroy(watching[i]);
    }
    return err;
}

int lanes_feed(struct lanes *l, const int32_t *ids, int n)
{
    struct session *s[LANES_MOST + 1] = {l->full};
    int32_t id[LANES_MOST + 1];
    struct batch *batch = NULL;
    int some = 1, err = batch_create(l->engine, l->n + 1, &batch);
    for (int i = 0; i < l->n; i++)
        if (l->lane[i])
            s[some++] = l->lane[i];
    for (int t = 0; !err && t < n; t++) {
        for (int i = 0; i < some; i++)
            id[i] = ids[t];
        err = batch_step(batch, s, some, id);
        if (l->progress)
            l->progress(l->ctx, some);
    }
    batch_destroy(batch);
    return err;
}

void lanes_close(struct lanes *l)
{
    for (int i = 0; i < l->n; i++)
        session_destroy(l->lane[i]);
    session_destroy(l->full);
    mem_free(l->params);
    l->params = NULL;
    l->full = NULL;
    l->n = 0;
}

struct session *lanes_session(const struct lanes *l, int i)
{
    return l->lane[i] ? l->lane[i] : l->full;
}
