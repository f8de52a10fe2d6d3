/* runner_methods.c - --method, --override and --gates: which rows a run has, and what
 * they need. */
#include <stdio.h>
#include <string.h>

#include "base/headset.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/folders.h"
#include "cli/runner.h"
#include "engine/model/gguf.h"

/* Both want the same cache; what a plan wants is known when it is open (force.c). */
static bool same_cache(const struct runner *r, const struct runner_override *o)
{
    if (r->row.admission->reason == KVF_REASON_PLAN)
        return true;
    return o->params.positions == r->params.positions && o->params.chunk == r->params.chunk
           && method_per_query_head(&o->row, &o->params)
                  == method_per_query_head(&r->row, &r->params);
}

static int parse_override(struct runner *r, int i, struct kvf_diag *d)
{
    struct runner_override *o = &r->override[i];
    const char *text = r->override_text.item[i], *row = strchr(text, '=');
    if (!row || row == text)
        return kvf_fail(d, KVF_E_ARG,
                        "--override '%s': write SET=NAME[:key=value,...], as "
                        "L0-5K*=window:budget=64",
                        text);
    int budget = method_unbudgeted(row + 1) ? 0 : (int)r->budget;
    int err = method_parse(row + 1, budget, &o->row, &o->params, d);
    if (err)
        return err;
    if (!same_cache(r, o))
        return kvf_fail(d, KVF_E_ARG,
                        "--override '%s': positions, chunk and group=none belong to "
                        "the whole run; give them to --method and to every override",
                        text);
    return KVF_OK;
}

int runner_parse_methods(struct runner *r, struct kvf_diag *d)
{
    int err = method_parse(r->method, (int)r->budget, &r->row, &r->params, d);
    r->override = MEM_NEW(struct runner_override, (size_t)r->override_text.n + 1);
    if (!err && !r->override)
        err = KVF_E_NOMEM;
    for (int i = 0; !err && i < r->override_text.n; i++)
        err = parse_override(r, i, d);
    return err;
}

/* Marks the heads of a set; KVF_E_ARG when it is malformed or names none. */
static int mark(const struct runner *r, const char *text, unsigned char *take, struct kvf_diag *d)
{
    const struct model_config *m = &r->engine->config;
    char set[256];
    size_t n = strcspn(text, "=");
    if (n >= sizeof set)
        return kvf_fail(d, KVF_E_ARG, "--override: the set of heads is over %zu characters long",
                        sizeof set - 1);
    memcpy(set, text, n);
    set[n] = 0;
    char wrong = m->n_heads == m->n_kv_heads ? 0 : r->cache_heads == m->n_heads ? 'K' : 'H';
    int marked = headset_mark(set, wrong, m->n_layers, r->cache_heads, take);
    if (marked < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "--override: '%s' is not a set of KV heads such as "
                        "L0-5K*, L3K1 or 3.1",
                        set);
    return marked ? KVF_OK
                  : kvf_fail(d, KVF_E_ARG, "--override: '%s' names no head of this model", set);
}

/* The override that decides for a head; -1: --method does. */
static int decider(const struct runner *r, int at)
{
    int i = r->override_text.n - 1;
    while (i >= 0 && !r->override[i].take[at])
        i--;
    return i;
}

/* One set of entries per layer cannot leave a head of it to another row. */
static int check_layers(const struct runner *r, struct kvf_diag *d)
{
    int H = r->cache_heads, n = r->engine->config.n_layers * H;
    for (int at = 0; at < n; at++) {
        int a = decider(r, at), b = at % H ? decider(r, at - 1) : a, later = a > b ? a : b;
        const struct method *one = a < 0 ? &r->row : &r->override[a].row;
        const struct method *two = b < 0 ? &r->row : &r->override[b].row;
        if (a != b && (one->scope == SCOPE_LAYER || two->scope == SCOPE_LAYER))
            return kvf_fail(d, KVF_E_ARG,
                            "--override '%s': %s chooses for all heads of a layer; "
                            "name whole layers",
                            r->override_text.item[later],
                            one->scope == SCOPE_LAYER ? one->name : two->name);
    }
    return KVF_OK;
}

int runner_gates(struct engine *e, const char *path, struct gates **ret_gates, struct kvf_diag *d)
{
    const struct model_config *m = &e->config;
    char hash[33] = "";
    gguf_hash(e->gguf, hash);
    struct gates_model model = {m->n_layers,          m->d_model,  m->n_heads,
                                m->n_kv_heads,        m->head_dim, m->norm_eps,
                                (double)m->rope_base, hash,        &e->kernels};
    struct buf file = {0};
    int err = folder_gates_path(path, &file, d);
    if (!err)
        err = gates_open(file.data, &model, ret_gates, d);
    buf_finish(&file);
    return err;
}

static const char *kind_of(unsigned kinds)
{
    int kind = 0;
    while (!(kinds >> kind & 1))
        kind++;
    return gates_kind_name((enum gate_kind)kind);
}

int runner_shipped_gates(struct engine *e, const struct method *m, struct gates **ret_gates,
                         struct kvf_diag *d)
{
    static const char *const trained[] = {"trimkv", "dbtrimkv", "wgkv"};
    unsigned need = method_gates(m);
    struct buf path = {0};
    char hash[33] = "";
    if (!need)
        return KVF_OK;
    gguf_hash(e->gguf, hash);
    int err = folder_gates_for(m->name, need, hash, &path);
    if (!err)
        err = runner_gates(e, path.data, ret_gates, d);
    for (size_t i = 0; err == KVF_E_NOTFOUND && i < sizeof trained / sizeof *trained; i++)
        if (strncmp(m->name, trained[i], strlen(trained[i])) == 0)
            err = kvf_fail(d, KVF_E_ARG,
                           "--method %s needs %s gates, and none are shipped for "
                           "this model: give --gates FILE, or make one with kvfate train --method "
                           "%s",
                           m->name, kind_of(need), trained[i]);
    buf_finish(&path);
    return err == KVF_E_NOTFOUND ? KVF_OK : err; /* method_check_inputs says what it needs */
}

/* The gates given, or those shipped for the first row that needs some. */
static int open_gates(struct runner *r, struct kvf_diag *d)
{
    if (r->gates_file)
        return runner_gates(r->engine, r->gates_file, &r->gates, d);
    int err = runner_shipped_gates(r->engine, &r->row, &r->gates, d);
    for (int i = 0; !err && !r->gates && i < r->override_text.n; i++)
        err = runner_shipped_gates(r->engine, &r->override[i].row, &r->gates, d);
    if (!err && r->gates)
        fprintf(stderr, "note: --gates %s, which are shipped for this model\n",
                gates_path(r->gates));
    return err;
}

int runner_open_methods(struct runner *r, struct kvf_diag *d)
{
    int err = open_gates(r, d);
    unsigned need = method_gates(&r->row);
    r->cache_heads = session_cache_heads(&r->engine->config, &r->row, &r->params);
    r->inputs.gates = r->gates;
    if (!err)
        err = method_check_inputs(&r->row, &r->inputs, d);
    for (int i = 0; !err && i < r->override_text.n; i++) {
        struct runner_override *o = &r->override[i];
        const char *text = r->override_text.item[i];
        size_t n = (size_t)r->engine->config.n_layers * (size_t)r->cache_heads;
        if (!(o->take = MEM_NEW(unsigned char, n)))
            return KVF_E_NOMEM;
        need |= method_gates(&o->row);
        err = mark(r, text, o->take, d);
        if (!err)
            err = method_check_inputs(&o->row, &r->inputs, d);
    }
    if (!err)
        err = check_layers(r, d);
    if (!err && r->gates && !need)
        err = kvf_fail(d, KVF_E_ARG, "--gates %s: --method %s uses no gates", gates_path(r->gates),
                       r->row.name);
    if (!err && r->gates && r->row.allocation->pool == POOL_ALL && r->row.score
        && r->row.score->gates && !gates_tied(r->gates))
        fprintf(stderr,
                "note: %s: the layers' readouts are not tied; %s compares their scores all "
                "the same\n",
                gates_path(r->gates), r->row.name);
    return err;
}

const char *runner_gate_column(const struct runner *r)
{
    static const char *const column[] = {[GATE_RETENTION] = "log_beta",
                                         [GATE_WRITE] = "write_gate",
                                         [GATE_IMPORTANCE] = "importance",
                                         [GATE_HEADS] = NULL,
                                         [GATE_BLOCKS] = NULL};
    return r->gates ? column[gates_kind(r->gates)] : NULL;
}

static bool row_evicts(const struct method *m)
{
    return m->score || m->admission->until || !m->read->all;
}

bool runner_evicts(const struct runner *r)
{
    bool some = row_evicts(&r->row);
    for (int i = 0; i < r->override_text.n; i++)
        some |= row_evicts(&r->override[i].row);
    return some;
}

bool runner_reads_pages(const struct runner *r)
{
    bool some = !r->row.read->all;
    for (int i = 0; i < r->override_text.n; i++)
        some |= !r->override[i].row.read->all;
    return some;
}

void runner_close_methods(struct runner *r)
{
    for (int i = 0; r->override && i < r->override_text.n; i++)
        mem_free(r->override[i].take);
    mem_free(r->override);
    r->override = NULL;
    gates_close(r->gates);
    r->gates = NULL;
}

static void put_row(struct buf *b, const struct method *m, const struct method_params *p)
{
    json_put_member_str(b, "name", m->name);
    json_put_key(b, "budget");
    json_put_num(b, p->budget);
    json_put_member_str(b, "admission", m->admission->name);
    json_put_member_str(b, "score", m->score ? m->score->name : "none");
    json_put_member_str(b, "allocation", m->allocation->name);
    json_put_member_str(b, "trigger", m->trigger->name);
    json_put_member_str(b, "read", m->read->name);
    for (const struct method_option *o = method_options; o->key; o++) {
        const char *word = method_option_word(o, p);
        json_put_key(b, o->key);
        if (word)
            json_put_str(b, word, strlen(word));
        else
            json_put_num(b, method_option_value(o, p));
    }
}

void runner_put_methods(struct buf *b, const struct runner *r)
{
    buf_str(b, ",\"method\":{");
    put_row(b, &r->row, &r->params);
    buf_char(b, '}');
    if (r->cache_heads != r->engine->config.n_kv_heads)
        buf_str(b, ",\"entry_space\":\"query\"");
    if (r->gates) {
        buf_str(b, ",\"gates\":{");
        json_put_member_str(b, "kind", gates_kind_name(gates_kind(r->gates)));
        json_put_member_str(b, "layout", gates_layout(r->gates));
        json_put_member_str(b, "hash", gates_hash(r->gates));
        buf_char(b, '}');
    }
    if (r->override_text.n == 0)
        return;
    buf_str(b, ",\"overrides\":[");
    for (int i = 0; i < r->override_text.n; i++) {
        const char *text = r->override_text.item[i];
        buf_str(b, i ? ",{" : "{");
        json_put_key(b, "heads");
        json_put_str(b, text, strcspn(text, "="));
        put_row(b, &r->override[i].row, &r->override[i].params);
        buf_char(b, '}');
    }
    buf_char(b, ']');
}
