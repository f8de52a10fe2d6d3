/* common.c - heads, token ranges, provenance and columns for analyzers (common.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/common.h"
#include "analyzers/heads.h"
#include "analyzers/protocol.h"
#include "base/headset.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/stats.h"
#include "libtrace/run_header.h"

/* How many values of a column a file of some bytes may declare: of a run, only values that are all
 * equal take less than a thousandth of a byte. */
enum { VALUES_OF_ANY = 1 << 24, VALUES_OF_A_BYTE = 1024 };

int budget_column(const struct kvf_trace *t, int column, uint64_t n, struct kvf_diag *d)
{
    uint64_t held = kvf_held(t, column);
    if (held >= n)
        return KVF_OK;
    return kvf_fail(d, KVF_E_NOTFOUND,
                    "%s has %llu values of the column %s, fewer than the %llu requested; 'kvfate "
                    "trace verify' lists the missing ones",
                    kvf_path(t), (unsigned long long)held, kvf_column(t, column)->name,
                    (unsigned long long)n);
}

/* n heads with all their steps against the bytes of the file. */
static int budget_heads(const struct kvf_trace *t, uint64_t n, struct kvf_diag *d)
{
    uint64_t values = n * kvf_n_steps(t), bytes = kvf_bytes(t);
    if (values <= VALUES_OF_ANY || values / VALUES_OF_A_BYTE <= bytes)
        return KVF_OK;
    return kvf_fail(d, KVF_E_LIMIT,
                    "%s declares %llu heads and %u steps in a file of %llu bytes, which is too "
                    "small for their values",
                    kvf_path(t), (unsigned long long)n, kvf_n_steps(t), (unsigned long long)bytes);
}

static int fill_list(const struct kvf_trace *t, enum kvf_space space, const unsigned char *wanted,
                     int stride, struct head_list *l, struct kvf_diag *d)
{
    size_t n = 0;
    for (int i = 0; i < kvf_n_layers(t) * stride; i++)
        n += wanted[i];
    int err = budget_heads(t, n, d);
    if (err)
        return err;
    l->head = MEM_NEW(struct head, n);
    l->name = MEM_NEW(const char *, n);
    l->layer = MEM_NEW(int64_t, n);
    l->index = MEM_NEW(int64_t, n);
    if (!l->head || !l->name || !l->layer || !l->index)
        return KVF_E_NOMEM;
    for (int i = 0; i < kvf_n_layers(t) * stride; i++) {
        if (!wanted[i])
            continue;
        struct head *h = &l->head[l->n];
        h->layer = i / stride;
        h->index = i % stride;
        snprintf(h->name, sizeof h->name, "L%d%c%d", h->layer, space == KVF_SPACE_KV ? 'K' : 'H',
                 h->index);
        l->name[l->n] = h->name;
        l->layer[l->n] = h->layer;
        l->index[l->n++] = h->index;
    }
    return KVF_OK;
}

int heads_select(const struct kvf_trace *t, enum kvf_space space, const char *set,
                 struct head_list *ret, struct kvf_diag *d)
{
    int L = kvf_n_layers(t), stride = 1, *heads = MEM_NEW(int, (size_t)L);
    for (int l = 0; heads && l < L; l++) {
        heads[l] = kvf_n_heads(t, l, space);
        stride = heads[l] > stride ? heads[l] : stride;
    }
    const struct headset_shape shape = {kvf_path(t), L, stride, heads,
                                        space == KVF_SPACE_KV ? 'K' : 'H'};
    unsigned char *wanted = MEM_NEW(unsigned char, (size_t)L *(size_t)stride);
    *ret = (struct head_list){0};
    int err = wanted && heads ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        err = headset_mark("--head", set ? set : "*.*", &shape, wanted, d);
    if (!err)
        err = fill_list(t, space, wanted, stride, ret, d);
    mem_free_all(wanted, heads);
    if (err)
        heads_free(ret);
    return err;
}

int heads_mask(const struct kvf_trace *t, enum kvf_space space, const char *set,
               unsigned char **ret_mask, struct kvf_diag *d)
{
    struct head_list l;
    int per_layer = kvf_n_heads(t, 0, space), err = heads_select(t, space, set, &l, d);
    if (err)
        return err;
    unsigned char *mask = mem_alloc((size_t)kvf_n_layers(t), (size_t)per_layer);
    for (int i = 0; mask && i < l.n; i++)
        if (l.head[i].index < per_layer)
            mask[l.head[i].layer * per_layer + l.head[i].index] = 1;
    heads_free(&l);
    if (!mask)
        return KVF_E_NOMEM;
    *ret_mask = mask;
    return KVF_OK;
}

void heads_free(struct head_list *l)
{
    mem_free_all(l->head, l->name, l->layer, l->index);
    *l = (struct head_list){0};
}

int tokens_select(const struct kvf_trace *t, const struct analyzer_args *args, int64_t *a,
                  int64_t *b, struct kvf_diag *d)
{
    int64_t end = args->token1;
    int err = opt_range_fit("--tokens", "tokens", kvf_path(t), kvf_n_steps(t), &args->token0, &end,
                            d);
    if (err)
        return err;
    *a = args->token0;
    *b = end;
    return KVF_OK;
}

void put_tokens(struct table *t, int64_t a, int64_t b, int64_t T)
{
    char text[64];
    snprintf(text, sizeof text, "%lld:%lld", (long long)a, (long long)b);
    if (a > 0 || b < T)
        table_meta_str(t, "tokens", text);
}

void describe_tokens(const struct table *t, struct buf *out)
{
    const char *range = table_meta(t, "tokens");
    long long a, b, T = (long long)table_meta_int(t, "T", 0);
    if (range && sscanf(range, "%lld:%lld", &a, &b) == 2)
        buf_printf(out, "%lld of ", b - a);
    buf_printf(out, "%lld token%s", T, T == 1 ? "" : "s");
}

static void copy_str(struct table *t, const char *key, const struct json *n)
{
    if (json_str(n, NULL))
        table_meta_str(t, key, json_str(n, ""));
}

static void copy_num(struct table *t, const char *key, const struct json *n)
{
    double v = json_num(n, NAN);
    if (!isnan(v))
        table_meta_num(t, key, v);
}

/* Notes the settings of the run that its method and its budget do not name. */
static int put_protocol(struct table *t, const struct json *header)
{
    struct buf protocol = {0}, overrides = {0};
    protocol_put(&protocol, header);
    overrides_put(&overrides, header);
    int err = protocol.err ? protocol.err : overrides.err;
    if (!err && protocol.len)
        table_meta_str(t, "protocol", protocol.data);
    if (!err && overrides.len > PROTOCOL_OVERRIDES)
        table_meta_str(t, "overrides", overrides.data);
    copy_str(t, "gates", json_get(json_get(header, "gates"), "hash"));
    buf_finish(&protocol);
    buf_finish(&overrides);
    return err;
}

int put_provenance(struct table *t, const struct kvf_trace *trace, struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = run_header(trace, &root, d);
    if (err)
        return err;
    const struct json *model = json_get(root, "model"), *run = json_get(root, "run");
    const struct json *method = json_get(root, "method");
    copy_str(t, "model", json_get(model, "name"));
    copy_str(t, "model_hash", json_get(model, "hash"));
    copy_num(t, "query_heads", json_get(model, "query_heads"));
    copy_num(t, "kv_heads", json_get(model, "kv_heads"));
    table_meta_num(t, "layers", kvf_n_layers(trace));
    table_meta_num(t, "T", kvf_n_steps(trace));
    copy_num(t, "prompt_tokens", json_get(run, "prompt_tokens"));
    copy_num(t, "question_tokens", json_get(run, "question_tokens"));
    const struct json *own = json_get(run, "external_score"); /* the name of a user's function */
    copy_str(t, "method", own ? own : json_get(method, "name"));
    copy_num(t, "budget", json_get(method, "budget"));
    copy_num(t, "budget_percent", json_get(method, "budget_percent"));
    err = put_protocol(t, root);
    copy_str(t, "engine", json_get(json_get(root, "kvf"), "version"));
    if (!kvf_is_clean(trace))
        table_meta_str(t, "warning",
                       "the trace was not closed: values are those of its last snapshot");
    json_free(root);
    return err;
}

/* Notes the metadata of part i that no earlier part has: the value, if all parts have it or if it
 * is a warning, or else its key in `differ`. */
static void put_shared(struct table *t, struct table *const *part, int n, int i, struct buf *differ)
{
    for (int m = 0; m < table_meta_count(part[i]); m++) {
        const char *key = table_meta_key(part[i], m), *value = table_meta(part[i], key);
        bool known = false, alike = true;
        for (int k = 0; k < n; k++) {
            const char *other = table_meta(part[k], key);
            known |= k < i && other;
            alike &= other && strcmp(other, value) == 0;
        }
        if (known)
            continue;
        if (alike || strcmp(key, "warning") == 0)
            table_meta_str(t, key, value);
        else
            buf_printf(differ, "%s%s", differ->len ? " " : "", key);
    }
}

int put_provenance_all(struct table *t, struct kvf_trace *const *traces, int n, struct kvf_diag *d)
{
    struct table **part = MEM_NEW(struct table *, (size_t)n);
    struct buf differ = {0};
    int err = part ? KVF_OK : KVF_E_NOMEM;
    for (int k = 0; !err && k < n; k++) {
        part[k] = table_create("provenance", 0);
        err = part[k] ? put_provenance(part[k], traces[k], d) : KVF_E_NOMEM;
    }
    for (int k = 0; !err && k < n; k++) {
        err = table_err(part[k]);
        put_shared(t, part, n, k, &differ);
    }
    if (!err && differ.len)
        table_meta_str(t, "differ", differ.data);
    err = err ? err : differ.err;
    for (int k = 0; part && k < n; k++)
        table_destroy(part[k]);
    mem_free((void *)part);
    buf_finish(&differ);
    return err;
}

int put_sampled(struct table *t, const struct kvf_trace *trace, const char *probe,
                struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = run_header(trace, &root, d);
    if (err)
        return err;
    copy_str(t, "sampled", json_get(json_get(root, "sampled"), probe));
    json_free(root);
    return KVF_OK;
}

int prompt_tokens(const struct kvf_trace *t, int64_t *ret, struct kvf_diag *d)
{
    return trace_number(t, "run", "prompt_tokens", -1, ret, d);
}

int answer_start(const struct kvf_trace *t, int64_t *ret, struct kvf_diag *d)
{
    int64_t prompt, question;
    int err = prompt_tokens(t, &prompt, d);
    if (!err)
        err = trace_number(t, "run", "question_tokens", 0, &question, d);
    if (err)
        return err;
    bool known = prompt >= 0 && question >= 0 && question <= INT64_MAX - prompt;
    *ret = known ? prompt + question : prompt;
    return KVF_OK;
}

void put_heads(struct table *t, const struct head_list *l)
{
    table_block_str(t, "head", "", l->name, l->n);
    table_block_int(t, "layer", "", l->layer, l->n);
    table_block_int(t, "index", "", l->index, l->n);
}

int put_heads_all(struct table *out, const struct head_list *heads)
{
    int n = heads->n;
    const char **name = MEM_NEW(const char *, (size_t)n + 1);
    int64_t *layer = MEM_NEW(int64_t, (size_t)n + 1), *index = MEM_NEW(int64_t, (size_t)n + 1);
    int err = name && layer && index ? KVF_OK : KVF_E_NOMEM;
    for (int h = 0; !err && h <= n; h++) {
        name[h] = h < n ? heads->name[h] : "all";
        layer[h] = h < n ? heads->layer[h] : -1;
        index[h] = h < n ? heads->index[h] : -1;
    }
    if (!err) {
        table_block_str(out, "head", "", name, n + 1);
        table_block_int(out, "layer", "", layer, n + 1);
        table_block_int(out, "index", "", index, n + 1);
    }
    mem_free_all((void *)name, layer, index);
    return err;
}

int read_evict(struct kvf_trace *t, int column, const struct head *h, uint32_t n, double *out,
               struct kvf_diag *d)
{
    int err = kvf_read_f64(t, column, h->layer, h->index, 0, n, out, d);
    for (uint32_t i = 0; !err && i < n; i++)
        if (out[i] == (double)KVF_ALIVE)
            out[i] = INFINITY;
    return err;
}

int view_evict(struct kvf_trace *t, int column, const struct head *h, uint32_t n, uint32_t *scratch,
               const uint32_t **ret, struct kvf_diag *d)
{
    const void *raw = NULL;
    int err;
    *ret = scratch;
    if (kvf_column(t, column)->dtype != KVF_U32) /* a value beyond int32 becomes -1: KVF_ALIVE */
        return kvf_read_i32(t, column, h->layer, h->index, 0, n, (int32_t *)scratch, d);
    err = kvf_view(t, column, h->layer, h->index, 0, n, &raw, d);
    if (!err)
        *ret = raw;
    return err;
}

int column_of_heads(const struct kvf_trace *t, int column, enum kvf_space space, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    if (c->space == space && c->axis == KVF_AXIS_TOKEN)
        return KVF_OK;
    return kvf_fail(d, KVF_E_FORMAT, "the column %s must have a value for each %s head and token",
                    c->name, space == KVF_SPACE_KV ? "KV" : "query");
}

bool saw_everything(struct kvf_trace *t, uint32_t n)
{
    struct kvf_diag d = {""};
    struct head_list heads = {.n = 0};
    int column = kvf_find(t, "evict_step");
    uint32_t *scratch = MEM_NEW(uint32_t, (size_t)n + 1);
    const uint32_t *step = NULL;
    bool all = scratch && column >= 0 && kvf_find(t, "read.count") < 0
               && column_of_heads(t, column, KVF_SPACE_KV, &d) == KVF_OK
               && heads_select(t, KVF_SPACE_KV, NULL, &heads, &d) == KVF_OK;
    for (int h = 0; all && n && h < heads.n; h++) {
        all = view_evict(t, column, &heads.head[h], n, scratch, &step, &d) == KVF_OK;
        for (uint32_t i = 0; all && i < n; i++)
            all = step[i] >= n;
    }
    heads_free(&heads);
    mem_free(scratch);
    return all;
}

int log_beta_need(const struct kvf_trace *t, int *ret_column, struct kvf_diag *d)
{
    return column_need(t, "log_beta", ret_column, d);
}

int gate_column_need(const struct kvf_trace *t, int *ret_column, struct kvf_diag *d)
{
    static const char *const names[] = {"log_beta", "write_gate", "importance"};
    struct lacks l = {.n = 0};
    int c = -1;
    for (size_t i = 0; c < 0 && i < sizeof names / sizeof *names; i++)
        c = kvf_find(t, names[i]);
    for (size_t i = 0; c < 0 && i < sizeof names / sizeof *names; i++)
        lacks_add(&l, t, names[i]);
    int err = columns_refuse(&l, "one of them is enough", KVF_OK, d);
    if (err)
        return err;
    *ret_column = c;
    return column_of_heads(t, c, KVF_SPACE_KV, d);
}

double mean_retention(double log_beta, int64_t i, int64_t T)
{
    return stats_geometric(log_beta, (double)(T - i)) / (double)(T - i);
}

const char *role_name(double code)
{
    static const char *const names[] = {"prompt", "answer", "think", "image", "question"};
    return code >= 0 && code < 5 ? names[(int)code] : "?";
}

int step_select(const char *text, int64_t T, int64_t *ret_step, struct kvf_diag *d)
{
    int64_t step = T;
    if (strcmp(text, "end") != 0 && (!opt_int(text, &step) || step < 0 || step >= T))
        return kvf_fail(d, KVF_E_ARG,
                        "--step is 'end' or one of this trace's %lld steps from 0, "
                        "not '%s'",
                        (long long)T, text);
    *ret_step = step;
    return KVF_OK;
}

const char *reason_name(double code)
{
    static const char *const names[] = {"alive",   "budget",       "window",
                                        "refused", "architecture", "plan"};
    return code >= 0 && code < 6 ? names[(int)code] : "unknown";
}

int64_t steps_every(int64_t asked, int64_t T)
{
    enum { MOST_STEPS = 512 };
    if (asked > 0)
        return asked;
    return T > MOST_STEPS ? (T + MOST_STEPS - 1) / MOST_STEPS : 1;
}

int trace_head_limit(const struct kvf_trace *t, int64_t *ret, struct kvf_diag *d)
{
    struct json *root = NULL;
    int64_t budget, slack, stride;
    int err = trace_number(t, "method", "budget", 0, &budget, d);
    if (!err)
        err = trace_number(t, "method", "slack", 0, &slack, d);
    if (!err)
        err = trace_number(t, "method", "stride", 0, &stride, d);
    if (!err)
        err = run_header(t, &root, d);
    if (err)
        return err;
    const char *allocation = json_str(json_get(json_get(root, "method"), "allocation"), "uniform");
    bool alone = strcmp(allocation, "uniform") == 0 && json_len(json_get(root, "overrides")) == 0
                 && !json_get(json_get(root, "method"), "cut")
                 && !json_get(json_get(root, "method"), "of");
    json_free(root);
    *ret = alone && budget > 0 ? budget + slack + stride : 0;
    return KVF_OK;
}
