/* methods.c - parses the methods of a run, opens their gates and checks their inputs. */
#include "cli/methods.h"

#include <stdio.h>
#include <string.h>

#include "base/headset.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/models.h"
#include "engine/method/head_budgets.h"

/* Returns true if an override needs the same cache layout as --method. The needs of a plan are
 * known only after it is opened (force.c). */
static bool same_cache(const struct methods *r, const struct row_override *o)
{
    if (r->row.admission->reason == KVF_REASON_PLAN)
        return true;
    return o->params.positions == r->params.positions && o->params.chunk == r->params.chunk
           && (o->params.cut == CUT_TURN) == (r->params.cut == CUT_TURN)
           && method_per_query_head(&o->row, &o->params)
                  == method_per_query_head(&r->row, &r->params);
}

/* Parses an override for a prompt; prompt->tokens is 0 if it is not known. */
static int parse_override(struct methods *r, int i, const struct budget_prompt *prompt,
                          struct kvf_diag *d)
{
    struct row_override *o = &r->override[i];
    const char *text = r->override_text.item[i], *row = strchr(text, '=');
    const struct budget none = {0};
    if (!row || row == text)
        return kvf_fail(d, KVF_E_ARG,
                        "--override '%s': write SET=NAME[:key=value,...], as "
                        "L0-5K*=window:budget=64",
                        text);
    int err = method_parse_for(row + 1, method_unbudgeted(row + 1) ? &none : &r->budget, prompt,
                               &o->row, &o->params, d);
    if (err) {
        kvf_diag_prefix(d, "--override '%.200s'", text);
        return err;
    }
    if (!same_cache(r, o))
        return kvf_fail(d, KVF_E_ARG,
                        "--override '%s': positions, chunk, group=none and cut=turn belong to the "
                        "complete run; give them to --method and to every override",
                        text);
    return KVF_OK;
}

/* Returns true if the method `text` takes its budget from --budget: with another --budget its
 * parameter would differ. */
static bool takes_budget(const struct methods *r, const char *text, const struct method_params *p)
{
    struct method row;
    struct method_params changed;
    struct kvf_diag unused;
    struct budget other = r->budget;
    if (other.part)
        other.part += other.part < BUDGET_WHOLE ? 1 : -1;
    else
        other.entries++;
    bool same = p->part == r->budget.part && (p->part || p->budget == r->budget.entries);
    return same && !method_unbudgeted(text)
           && method_parse_for(text, &other, &(struct budget_prompt){0}, &row, &changed, &unused)
                  == KVF_OK
           && (changed.budget != p->budget || changed.part != p->part);
}

/* Returns KVF_E_ARG with a sentence if --budget was given and no method takes it, otherwise
 * KVF_OK. */
static int check_budget(const struct methods *r, bool named, struct kvf_diag *d)
{
    char budget[BUDGET_TEXT];
    bool taken = !r->budget_text || takes_budget(r, r->method, &r->params);
    for (int i = 0; i < r->override_text.n; i++)
        taken = taken
                || takes_budget(r, strchr(r->override_text.item[i], '=') + 1,
                                &r->override[i].params);
    if (taken)
        return KVF_OK;
    budget_text(&r->budget, budget);
    if (!named && r->row.admission->reason == KVF_REASON_PLAN)
        return kvf_fail(d, KVF_E_ARG,
                        "-B %s: with --plan entries are evicted at the steps of the plan, and a "
                        "budget would have no effect; leave it out, or give --method",
                        budget);
    if (!named)
        return kvf_fail(d, KVF_E_ARG,
                        "-B %s needs --method: without it no entry is evicted and a budget would "
                        "have no effect",
                        budget);
    return kvf_fail(
        d, KVF_E_ARG,
        "-B %s: --method %s takes no budget, so that it would have no effect; leave it out", budget,
        r->method);
}

static int parse_method(struct methods *r, const struct budget_prompt *prompt, struct kvf_diag *d)
{
    int err = method_parse_for(r->method, &r->budget, prompt, &r->row, &r->params, d);
    if (err)
        kvf_diag_prefix(d, "--method '%.200s'", r->method);
    return err;
}

int methods_parse(struct methods *r, const char *standard, struct kvf_diag *d)
{
    bool named = r->method != NULL;
    const struct budget_prompt unknown = {0};
    r->method = named ? r->method : standard;
    r->budget = (struct budget){0};
    if (r->budget_text && !budget_parse(r->budget_text, &r->budget))
        return kvf_fail(d, KVF_E_ARG, "--budget '%.40s': %s", r->budget_text,
                        budget_advice(r->budget_text));
    int err = parse_method(r, &unknown, d);
    r->override = MEM_NEW(struct row_override, (size_t)r->override_text.n + 1);
    if (!err && !r->override)
        err = KVF_E_NOMEM;
    for (int i = 0; !err && i < r->override_text.n; i++)
        err = parse_override(r, i, &unknown, d);
    return err ? err : check_budget(r, named, d);
}

bool methods_cut_turns(const struct methods *r)
{
    return r->params.cut == CUT_TURN; /* then every override does (same_cache) */
}

bool methods_fractional(const struct methods *r)
{
    bool some = r->params.part > 0;
    for (int i = 0; i < r->override_text.n; i++)
        some |= r->override[i].params.part > 0;
    return some;
}

int methods_resolve(struct methods *r, const struct budget_prompt *prompt, struct kvf_diag *d)
{
    const bool opened = r->inputs.model; /* methods_open() left out what depends on the prompt */
    int err = r->params.part ? parse_method(r, prompt, d) : KVF_OK;
    r->prompt = *prompt;
    if (!err && r->params.part && opened)
        err = method_check_inputs(&r->row, &r->params, &r->inputs, d);
    for (int i = 0; !err && i < r->override_text.n; i++) {
        struct row_override *o = &r->override[i];
        if (!o->params.part)
            continue;
        err = parse_override(r, i, prompt, d);
        if (!err && opened)
            err = method_check_inputs(&o->row, &o->params, &r->inputs, d);
    }
    return err;
}

/* Marks the heads of a set. Returns KVF_E_ARG with a sentence if the set is malformed or matches
 * no head. */
static int mark(const struct methods *r, const struct model_config *m, const char *text,
                unsigned char *take, struct kvf_diag *d)
{
    char set[256];
    size_t n = strcspn(text, "=");
    if (n >= sizeof set)
        return kvf_fail(d, KVF_E_ARG, "--override: the set of heads is over %zu characters long",
                        sizeof set - 1);
    memcpy(set, text, n);
    set[n] = 0;
    char kind = r->cache_heads == m->n_heads ? 'H' : 'K';
    if (m->n_heads == m->n_kv_heads)
        kind = 0; /* with equal head counts, KV heads and query heads are the same */
    const struct headset_shape shape = {"the model", m->n_layers, r->cache_heads, .kind = kind};
    return headset_mark("--override", set, &shape, take, d);
}

int methods_decider(const struct methods *r, int at)
{
    int i = r->override_text.n - 1;
    while (i >= 0 && !r->override[i].take[at])
        i--;
    return i;
}

/* Rejects overrides of single heads in a layer whose method selects one set of entries for all
 * heads of the layer. */
static int check_layers(const struct methods *r, const struct model_config *m, struct kvf_diag *d)
{
    int H = r->cache_heads, n = m->n_layers * H;
    for (int at = 0; at < n; at++) {
        int a = methods_decider(r, at), b = at % H ? methods_decider(r, at - 1) : a,
            later = a > b ? a : b;
        const struct method *one = a < 0 ? &r->row : &r->override[a].row;
        const struct method *two = b < 0 ? &r->row : &r->override[b].row;
        if (a != b && (one->scope == SCOPE_LAYER || two->scope == SCOPE_LAYER))
            return kvf_fail(
                d, KVF_E_ARG,
                "--override '%s': %s chooses for all heads of a layer; name complete layers",
                r->override_text.item[later], one->scope == SCOPE_LAYER ? one->name : two->name);
    }
    return KVF_OK;
}

/* Opens the gates of --gates, or the gates shipped for the first method that needs some. */
static int open_gates(struct methods *r, struct engine *e, struct kvf_diag *d)
{
    if (r->gates_file)
        return model_gates(e, r->gates_file, &r->gates, d);
    int err = model_shipped_gates(e, &r->row, &r->gates, d);
    for (int i = 0; !err && !r->gates && i < r->override_text.n; i++)
        err = model_shipped_gates(e, &r->override[i].row, &r->gates, d);
    if (!err && r->gates)
        fprintf(stderr, "note: --gates %s, which are shipped for this model\n",
                gates_path(r->gates));
    return err;
}

/* Marks the heads of an override, and checks that its method has all its inputs. */
static int open_override(struct methods *r, const struct model_config *m, int i, struct kvf_diag *d)
{
    struct row_override *o = &r->override[i];
    o->take = MEM_NEW(unsigned char, (size_t)m->n_layers *(size_t)r->cache_heads);
    if (!o->take)
        return KVF_E_NOMEM;
    int err = mark(r, m, r->override_text.item[i], o->take, d);
    return err ? err : method_check_inputs(&o->row, &o->params, &r->inputs, d);
}

/* Rejects --gates if no method uses gates. Prints a note if scores of different layers are
 * compared although their readouts are not tied. */
static int check_gates(const struct methods *r, struct kvf_diag *d)
{
    unsigned need = method_gates(&r->row);
    for (int i = 0; i < r->override_text.n; i++)
        need |= method_gates(&r->override[i].row);
    if (!r->gates)
        return KVF_OK;
    if (!need)
        return kvf_fail(d, KVF_E_ARG, "--gates %s: --method %s uses no gates", gates_path(r->gates),
                        r->row.name);
    if (r->row.allocation->pool == POOL_ALL && r->row.score && r->row.score->gates
        && !gates_tied(r->gates))
        fprintf(stderr,
                "note: %s: the layers' readouts are not tied; %s compares their scores all "
                "the same\n",
                gates_path(r->gates), r->row.name);
    return KVF_OK;
}

/* Rejects an override that applies to no head because later ones replace it. */
static int check_deciders(const struct methods *r, const struct model_config *m, struct kvf_diag *d)
{
    for (int k = 0; k < r->override_text.n; k++) {
        bool some = false;
        for (int i = 0; !some && i < m->n_layers * r->cache_heads; i++)
            some = methods_decider(r, i) == k;
        if (!some)
            return kvf_fail(d, KVF_E_ARG,
                            "--override '%s' has no effect: later overrides take all of its heads",
                            r->override_text.item[k]);
    }
    return KVF_OK;
}

/* Opens the table of --head-budgets. Rejects it if no method takes budgets from it. */
static int open_heads(struct methods *r, struct kvf_diag *d)
{
    bool taken = r->row.allocation->heads != NULL;
    for (int i = 0; i < r->override_text.n; i++)
        taken |= r->override[i].row.allocation->heads != NULL;
    if (!r->head_budgets)
        return KVF_OK;
    if (!taken)
        return kvf_fail(d, KVF_E_ARG,
                        "--head-budgets %s: no method takes budgets from it; give "
                        "allocation=file to --method",
                        r->head_budgets);
    return head_table_open(r->head_budgets, &r->head_table, d);
}

/* Rejects scores of another program on a device, and if no method uses them. */
static int check_external(const struct methods *r, const struct engine *e, struct kvf_diag *d)
{
    bool used = r->row.score && r->row.score->serial;
    for (int i = 0; i < r->override_text.n; i++)
        used |= r->override[i].row.score && r->override[i].row.score->serial;
    if (r->inputs.external && !used)
        return kvf_fail(
            d, KVF_E_ARG,
            "--score-pipe: no method takes its scores; give score=external to --method");
    if (used && !e->backend->host_memory)
        return kvf_fail(d, KVF_E_ARG,
                        "score=external needs keys and values in host memory: use --device cpu");
    return KVF_OK;
}

int methods_open(struct methods *r, struct engine *e, struct kvf_diag *d)
{
    int err = open_gates(r, e, d);
    if (!err)
        err = open_heads(r, d);
    if (err)
        return err;
    r->cache_heads = session_cache_heads(&e->config, &r->row, &r->params);
    r->inputs.gates = r->gates;
    r->inputs.head_table = r->head_table;
    r->inputs.model = &e->config;
    err = check_external(r, e, d);
    if (!err)
        err = method_check_inputs(&r->row, &r->params, &r->inputs, d);
    for (int i = 0; !err && i < r->override_text.n; i++)
        err = open_override(r, &e->config, i, d);
    if (!err)
        err = check_deciders(r, &e->config, d);
    if (!err)
        err = check_layers(r, &e->config, d);
    return err ? err : check_gates(r, d);
}

int methods_protect(struct methods *r, struct kvf_diag *d)
{
    int err = method_protect(&r->row, &r->params, &r->inputs, d);
    for (int i = 0; !err && i < r->override_text.n; i++)
        err = method_protect(&r->override[i].row, &r->override[i].params, &r->inputs, d);
    return err;
}

const char *methods_gate_column(const struct methods *r)
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

bool methods_evict(const struct methods *r)
{
    bool some = row_evicts(&r->row);
    for (int i = 0; i < r->override_text.n; i++)
        some |= row_evicts(&r->override[i].row);
    return some;
}

bool methods_outlive(const struct methods *r, const struct model_config *m)
{
    const struct method_shape shape = {m->n_layers, m->n_heads, r->cache_heads, m->head_dim};
    bool all = method_outlives(&r->row, &r->params, &shape, m->n_ctx);
    for (int i = 0; i < r->override_text.n; i++)
        all = all && method_outlives(&r->override[i].row, &r->override[i].params, &shape, m->n_ctx);
    return all;
}

bool methods_cut_prompt(const struct methods *r)
{
    bool some = r->params.chunk > 0 || r->row.admission->until;
    for (int i = 0; i < r->override_text.n; i++)
        some |= r->override[i].row.admission->until != NULL;
    return some;
}

bool methods_read_pages(const struct methods *r)
{
    bool some = !r->row.read->all;
    for (int i = 0; i < r->override_text.n; i++)
        some |= !r->override[i].row.read->all;
    return some;
}

void methods_close(struct methods *r)
{
    for (int i = 0; r->override && i < r->override_text.n; i++)
        mem_free(r->override[i].take);
    mem_free(r->override);
    r->override = NULL;
    gates_close(r->gates);
    r->gates = NULL;
    head_table_close(r->head_table);
    r->head_table = NULL;
}

/* Computes the budgets of all heads of the cache for a method with allocation=file. Returns an
 * owned array [L * cache heads], or NULL if memory is exhausted. */
static int *budgets_of(const struct methods *r, const struct method_params *p,
                       const struct model_config *m, int prompt)
{
    const struct method_shape shape = {m->n_layers, m->n_heads, r->cache_heads, m->head_dim};
    int *budget = MEM_NEW(int, (size_t)m->n_layers *(size_t)r->cache_heads);
    if (budget)
        head_budgets(r->head_table, p, &shape, prompt, budget);
    return budget;
}

int methods_head_budgets(const struct methods *r, const struct model_config *m, int prompt,
                         struct head_budget_range *ret)
{
    *ret = (struct head_budget_range){.low = INT32_MAX};
    for (int k = -1; r->head_table && k < r->override_text.n; k++) {
        const struct method *row = k < 0 ? &r->row : &r->override[k].row;
        if (!row->allocation->heads)
            continue;
        int *budget = budgets_of(r, k < 0 ? &r->params : &r->override[k].params, m, prompt);
        if (!budget)
            return KVF_E_NOMEM;
        for (int at = 0; at < m->n_layers * r->cache_heads; at++) {
            if (methods_decider(r, at) != k)
                continue;
            ret->n++;
            if (budget[at] == HEAD_TABLE_BUDGET) {
                ret->free++;
                continue;
            }
            ret->sum += budget[at];
            ret->low_at = budget[at] < ret->low ? at : ret->low_at;
            ret->low = budget[at] < ret->low ? budget[at] : ret->low;
            ret->high_at = budget[at] > ret->high ? at : ret->high_at;
            ret->high = budget[at] > ret->high ? budget[at] : ret->high;
        }
        mem_free(budget);
    }
    return KVF_OK;
}

/* Appends "head_budgets" of a method with allocation=file. The list "entries" has a number per head
 * of the cache, in order of layer and head; 0: no limit. It is left out if it depends on a prompt
 * that is not known. */
static void put_heads(struct buf *b, const struct methods *r, const struct method_params *p,
                      const struct model_config *m, int prompt)
{
    const struct head_table *t = r->head_table;
    int *budget = prompt > 0 || t->form != HEAD_TABLE_PRUNED ? budgets_of(r, p, m, prompt) : NULL;
    json_put_key(b, "head_budgets");
    buf_char(b, '{');
    json_put_member_str(b, "form", head_table_form_name(t->form));
    json_put_member_str(b, "hash", t->hash);
    if (t->form == HEAD_TABLE_SCORES) {
        json_put_member_num(b, "beta", p->beta > 0 ? p->beta : HEADKV_BETA);
        json_put_member_num(b, "temp", p->temp > 0 ? p->temp : HEADKV_TEMP);
    }
    if (budget)
        json_put_key(b, "entries");
    for (int at = 0; budget && at < m->n_layers * r->cache_heads; at++)
        buf_printf(b, "%c%d", at ? ',' : '[', budget[at] < HEAD_TABLE_BUDGET ? budget[at] : 0);
    buf_str(b, budget ? "]}" : "}");
    if (!budget && (prompt > 0 || t->form != HEAD_TABLE_PRUNED))
        b->err = KVF_E_NOMEM;
    mem_free(budget);
}

/* Appends "options" of a method, unless none changes the preset. */
static void put_options(struct buf *b, const struct methods *r, const char *text)
{
    const struct budget none = {0};
    struct buf options = {0};
    int err = method_options_put(&options, text, method_unbudgeted(text) ? &none : &r->budget,
                                 &r->prompt);
    if (!err && options.len)
        json_put_member_str(b, "options", options.data);
    b->err = b->err ? b->err : err;
    buf_finish(&options);
}

/* Appends the members of a method with the text "NAME:key=value,...". */
static void put_row(struct buf *b, const struct methods *r, const char *text,
                    const struct method *m, const struct method_params *p)
{
    json_put_member_str(b, "name", m->name);
    put_options(b, r, text);
    json_put_key(b, "budget");
    json_put_num(b, p->budget);
    if (p->part)
        json_put_member_num(b, "budget_percent", (double)p->part * 100 / (double)BUDGET_WHOLE);
    json_put_member_str(b, "admission", m->admission->name);
    json_put_member_str(b, "score", m->score ? m->score->name : "none");
    json_put_member_str(b, "allocation", m->allocation->name);
    json_put_member_str(b, "trigger", m->trigger->name);
    json_put_member_str(b, "read", m->read->name);
    for (const struct method_option *o = method_options; o->key; o++) {
        const char *word = method_option_word(o, p);
        if (o->tacit && method_option_value(o, p) == 0)
            continue;
        json_put_key(b, o->key);
        if (word)
            json_put_str(b, word, strlen(word));
        else
            json_put_num(b, method_option_value(o, p));
    }
}

void methods_put(struct buf *b, const struct methods *r, const struct model_config *m, int prompt)
{
    buf_str(b, ",\"method\":{");
    put_row(b, r, r->method, &r->row, &r->params);
    if (r->row.allocation->heads)
        put_heads(b, r, &r->params, m, prompt);
    buf_char(b, '}');
    if (r->cache_heads != m->n_kv_heads)
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
        put_row(b, r, strchr(text, '=') + 1, &r->override[i].row, &r->override[i].params);
        if (r->override[i].row.allocation->heads)
            put_heads(b, r, &r->override[i].params, m, prompt);
        buf_char(b, '}');
    }
    buf_char(b, ']');
}
