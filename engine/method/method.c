/* method.c - parsing of "--method" and the state that a row needs. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/opt.h"
#include "engine/method/state.h"

static int clamp_window(int published, int budget)
{
    int most = budget / 4 > 1 ? budget / 4 : 1;
    return published < most ? published : most;
}

static const struct method *find_preset(const char *name)
{
    for (const struct method *m = method_presets; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

static int unknown_preset(const char *name, struct kvf_diag *d)
{
    char list[256] = "";
    size_t n = 0;
    for (const struct method *m = method_presets; m->name && n < sizeof list - 32; m++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", m->name);
    return kvf_fail(d, KVF_E_ARG, "--method: no method '%s'; there are %s", name, list);
}

static int bad_value(const char *key, const char *value, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG, "--method: '%s' is not a value for %s", value, key);
}

static const struct {
    const char *key;
    unsigned use; /* 0: every row that evicts */
    int64_t min, max;
} options[] = {
    {"sinks", 0, 0, 1 << 24}, {"recent", 0, 0, 1 << 24}, {"window", USES_WINDOW, 1, 4096},
    {"pool", USES_POOL, 1, 1023}, {"pool-kind", USES_POOL, 0, 0}, {"group", USES_GROUP, 0, 0},
    {"seed", USES_SEED, 0, INT64_C(1) << 53},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

/* The option's row in the table, when the method has a use for it. */
static int find_option(const struct method *m, const char *key, int *ret, struct kvf_diag *d)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strcmp(options[i].key, key) != 0)
            continue;
        if (!m->score || (options[i].use & ~m->score->uses))
            return kvf_fail(d, KVF_E_ARG, "--method %s: %s would change nothing", m->name, key);
        *ret = i;
        return KVF_OK;
    }
    return kvf_fail(d, KVF_E_ARG, "--method: unknown option '%s'; options are sinks, recent, "
                    "window, pool, pool-kind, group, seed", key);
}

/* Sets one number of the row; unset ones stay -1. */
static int set_param(const struct method *m, struct method_params *p, const char *key,
                     const char *value, struct kvf_diag *d)
{
    static const char *const groups[] = {"mean", "max", "sum"};
    int64_t n = -1;
    int at = 0, err = find_option(m, key, &at, d);
    if (err)
        return err;
    if (strcmp(key, "group") == 0) {
        for (int i = 0; i < 3; i++)
            if (strcmp(value, groups[i]) == 0)
                return p->group = (enum group_kind)i, KVF_OK;
        return bad_value(key, value, d);
    }
    if (strcmp(key, "pool-kind") == 0) {
        if (strcmp(value, "max") != 0 && strcmp(value, "avg") != 0)
            return bad_value(key, value, d);
        p->pool_kind = value[0] == 'm' ? POOL_MAX : POOL_AVG;
        return KVF_OK;
    }
    if (!opt_int(value, &n) || n < options[at].min || n > options[at].max)
        return bad_value(key, value, d);
    if (strcmp(key, "sinks") == 0)
        p->sinks = (int)n;
    else if (strcmp(key, "recent") == 0)
        p->recent = (int)n;
    else if (strcmp(key, "window") == 0)
        p->window = (int)n;
    else if (strcmp(key, "seed") == 0)
        p->seed = (uint64_t)n;
    else if (n % 2 == 0)
        return bad_value(key, value, d); /* an even pool has no middle */
    else
        p->pool = (int)n;
    return KVF_OK;
}

/* Fills what was not given, and checks that the budget can hold. */
static int resolve(const struct method *m, struct method_params *p, struct kvf_diag *d)
{
    int B = p->budget;
    if (p->window < 0)
        p->window = m->window ? clamp_window(m->window, B) : 0;
    if (p->pool < 0)
        p->pool = m->pool;
    if (!m->score) {
        p->sinks = p->recent = 0;
        return KVF_OK;
    }
    if (p->sinks < 0)
        p->sinks = m->sinks ? (B / 4 < m->sinks ? B / 4 : m->sinks) : 0;
    if (p->recent < 0) {
        p->recent = m->recent == RECENT_REST ? (B > p->sinks ? B - p->sinks : 0)
                  : m->recent == RECENT_HALF ? B / 2
                  : m->recent == RECENT_WINDOW ? p->window : m->recent;
        if (p->recent > B - p->sinks) /* derived: it gives way */
            p->recent = B > p->sinks ? B - p->sinks : 0;
    }
    if (p->sinks + p->recent > B)
        return kvf_fail(d, KVF_E_ARG, "--method: %d sinks and %d recent entries do not fit into "
                        "--budget %d", p->sinks, p->recent, B);
    return KVF_OK;
}

int method_parse(const char *text, int budget, const struct method **ret_method,
                 struct method_params *ret_params, struct kvf_diag *d)
{
    char name[64], key[64], value[64];
    size_t n = strcspn(text, ":");
    if (n == 0 || n >= sizeof name)
        return unknown_preset(text, d);
    memcpy(name, text, n);
    name[n] = 0;
    const struct method *m = find_preset(name);
    if (!m)
        return unknown_preset(name, d);
    if (m->score && budget < 1)
        return kvf_fail(d, KVF_E_ARG, "--method %s needs --budget N with N >= 1: entries that each "
                        "KV head may hold", name);
    struct method_params p = {.budget = m->score ? budget : 0, .sinks = -1, .recent = -1,
                              .window = -1, .pool = -1, .pool_kind = m->pool_kind,
                              .group = m->group, .seed = 0};
    const char *rest = text[n] ? text + n + 1 : text + n;
    int more;
    while ((more = opt_pair(&rest, key, value, sizeof key)) == 1) {
        int err = set_param(m, &p, key, value, d);
        if (err)
            return err;
    }
    if (more < 0)
        return kvf_fail(d, KVF_E_ARG, "--method %s: write options as key=value,key=value", text);
    int err = resolve(m, &p, d);
    if (err)
        return err;
    *ret_method = m;
    *ret_params = p;
    return KVF_OK;
}

int method_state_create(const struct method *m, const struct method_params *p,
                        const struct method_shape *shape, struct method_state **ret_state)
{
    struct method_state *s = MEM_NEW(struct method_state, 1);
    if (!s)
        return KVF_E_NOMEM;
    *s = (struct method_state){.method = m, .params = *p, .shape = *shape};
    s->n_groups = shape->n_layers * (m->scope == SCOPE_LAYER ? 1 : shape->n_kv_heads);
    s->n_cut = MEM_NEW(int, (size_t)s->n_groups);
    int err = s->n_cut ? evidence_init(&s->evidence, m->score ? m->score->evidence : EVIDENCE_NONE,
                                       p->window, shape) : KVF_E_NOMEM;
    if (err) {
        method_state_destroy(s);
        return err;
    }
    *ret_state = s;
    return KVF_OK;
}

void method_state_destroy(struct method_state *s)
{
    if (!s)
        return;
    evidence_finish(&s->evidence);
    mem_free(s->n_cut);
    mem_free(s->victim);
    mem_free(s->value);
    mem_free(s->keep);
    mem_free(s->scratch);
    mem_free(s);
}

const struct method *method_of(const struct method_state *s) { return s->method; }
const struct method_params *method_params_of(const struct method_state *s) { return &s->params; }
const struct method_shape *method_shape_of(const struct method_state *s) { return &s->shape; }

int method_prepare(struct method_state *s, int slots, int32_t next_decision)
{
    s->next_decision = next_decision;
    if (!s->method->score || slots <= s->cap)
        return KVF_OK;
    int err = evidence_reserve(&s->evidence, slots);
    if (err)
        return err;
    size_t n = (size_t)s->n_groups * (size_t)slots;
    mem_free(s->victim);
    mem_free(s->value);
    mem_free(s->keep);
    s->cap = 0;
    s->victim = MEM_NEW(int32_t, n);
    s->value = MEM_NEW(float, n);
    s->keep = MEM_NEW(unsigned char, (size_t)slots);
    if (!s->victim || !s->value || !s->keep)
        return KVF_E_NOMEM;
    s->cap = slots;
    return KVF_OK;
}

void method_appended(struct method_state *s, const struct cache *c, int layer, int head, int slot)
{
    if (s->evidence.kind != EVIDENCE_NONE)
        evidence_appended(&s->evidence, c, layer, head, slot);
}

bool method_wants_row(const struct method_state *s, int32_t t)
{
    if (s->evidence.kind == EVIDENCE_SUM)
        return true;
    return s->evidence.kind == EVIDENCE_WINDOW && t >= s->next_decision - s->params.window;
}

void method_row(struct method_state *s, const struct attn_row *row)
{
    evidence_take(&s->evidence, row);
}

static size_t query_index(const struct method_state *s, int layer, int g)
{
    return (size_t)layer * (size_t)s->shape.n_heads + (size_t)g;
}

const double *evidence_sum(const struct method_state *s, int layer, int query_head)
{
    return s->evidence.sum + query_index(s, layer, query_head) * (size_t)s->evidence.cap;
}

int evidence_rows(const struct method_state *s, int layer, int query_head)
{
    int n = s->evidence.n_rows[query_index(s, layer, query_head)];
    return n < s->evidence.window ? n : s->evidence.window;
}

const float *evidence_row(const struct method_state *s, int layer, int query_head, int age)
{
    size_t q = query_index(s, layer, query_head);
    int at = (s->evidence.n_rows[q] - 1 - age) % s->evidence.window;
    return s->evidence.rows
           + (q * (size_t)s->evidence.window + (size_t)at) * (size_t)s->evidence.cap;
}

const float *evidence_key(const struct method_state *s, int layer, int head, int slot)
{
    size_t at = (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)head;
    return s->evidence.keys
           + (at * (size_t)s->evidence.cap + (size_t)slot) * (size_t)s->shape.head_dim;
}

void method_group(const struct method_state *s, int head, int *ret_first, int *ret_n)
{
    int per = s->shape.n_heads / s->shape.n_kv_heads;
    bool layer = s->method->scope == SCOPE_LAYER;
    *ret_first = layer ? 0 : head * per;
    *ret_n = layer ? s->shape.n_heads : per;
}
