/* plan_write.c - makes a plan from a trace. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvf/schema.h>

#include "base/mem.h"
#include "engine/experiment/plan.h"
#include "libtrace/run_header.h"

enum { PLAN_VERSION = 1, MOST_COLUMNS = 4 };

/* A column of the plan, and the index of the trace column with its values. */
struct source {
    struct kvf_column column;
    int from;
};

/* A plan that is being written. */
struct job {
    struct kvf_trace *t;
    const struct plan_options *opt;
    uint32_t T;
    struct source source[MOST_COLUMNS];
    int n;
    bool tokens, evictions, mass;
};

static int find(const struct kvf_trace *t, const char *name, enum kvf_space space)
{
    const struct kvf_column *c = kvf_column(t, kvf_find(t, name));
    return c && c->space == space && c->axis == KVF_AXIS_TOKEN ? kvf_find(t, name) : -1;
}

static bool add_column(struct job *j, const char *from, const char *name, enum kvf_dtype dtype,
                       enum kvf_space space, const char *unit)
{
    int column = find(j->t, from, space);
    if (column < 0)
        return false;
    struct source *s = &j->source[j->n++];
    *s = (struct source){.from = column};
    snprintf(s->column.name, sizeof s->column.name, "%s", name);
    snprintf(s->column.unit, sizeof s->column.unit, "%s", unit);
    s->column.dtype = (uint8_t)dtype;
    s->column.space = (uint8_t)space;
    s->column.axis = KVF_AXIS_TOKEN;
    return true;
}

static int choose(struct job *j, struct kvf_diag *d)
{
    const struct plan_options *o = j->opt;
    for (int l = 1; l < kvf_n_layers(j->t); l++)
        if (kvf_n_heads(j->t, l, KVF_SPACE_KV) != kvf_n_heads(j->t, 0, KVF_SPACE_KV)
            || kvf_n_heads(j->t, l, KVF_SPACE_QUERY) != kvf_n_heads(j->t, 0, KVF_SPACE_QUERY))
            return kvf_fail(d, KVF_E_FORMAT,
                            "plans need models with the same number of heads in all layers");
    if (!o->no_tokens && add_column(j, "tokens.id", "tokens.id", KVF_I32, KVF_SPACE_RUN, "")) {
        j->tokens = true;
        add_column(j, "tokens.role", "tokens.role", KVF_U8, KVF_SPACE_RUN, "");
    }
    if (!o->no_evictions)
        j->evictions = add_column(j, "evict_step", "evict_step", KVF_U32, KVF_SPACE_KV, "step");
    if (!o->no_mass)
        j->mass = add_column(j, "plan.mass", "plan.mass", KVF_F64, KVF_SPACE_QUERY, "")
                  || add_column(j, "mass.sum", "plan.mass", KVF_F64, KVF_SPACE_QUERY, "");
    if (o->heads && !j->evictions)
        return kvf_fail(d, KVF_E_NOTFOUND, "--head chooses evictions, and there are no evictions");
    if (!j->n)
        return kvf_fail(d, KVF_E_NOTFOUND,
                        "the plan would be empty: the trace needs tokens.id, evict_step of KV "
                        "heads or mass.sum ('kvfate run --probes paper')");
    return KVF_OK;
}

static int header(const struct job *j, struct buf *b, struct kvf_diag *d)
{
    static const char *const kept[] = {"kvf", "model", "tokenizer", "run", "method", "entry_space"};
    const char *heads = j->opt->head_text;
    struct json *root = NULL;
    int err = run_header(j->t, &root, d);
    if (err)
        return err;
    buf_printf(b, "{\"plan\":{\"version\":%d", PLAN_VERSION);
    buf_str(b, ",\"holds\":\"");
    const char *const names[] = {j->tokens ? "tokens" : NULL, j->evictions ? "evictions" : NULL,
                                 j->mass ? "mass" : NULL};
    const char *sep = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!names[i])
            continue;
        buf_printf(b, "%s%s", sep, names[i]);
        sep = " ";
    }
    buf_char(b, '"');
    json_put_key(b, "heads");
    json_put_str(b, heads ? heads : "all", strlen(heads ? heads : "all"));
    buf_char(b, '}');
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const struct json *node = json_get(root, kept[i]);
        if (!node)
            continue;
        json_put_key(b, kept[i]);
        json_put_node(b, node);
    }
    buf_char(b, '}');
    json_free(root);
    return b->err;
}

/* Converts the values of one head to the type of the plan. scratch: [T] doubles. */
static int convert(const struct job *j, const struct source *s, int layer, int head,
                   double *scratch, void *out, struct kvf_diag *d)
{
    int err = kvf_read_f64(j->t, s->from, layer, head, 0, j->T, scratch, d);
    if (err)
        return err;
    bool out_of_plan = s->column.dtype == KVF_U32 && j->opt->heads
                       && !j->opt->heads[layer * kvf_n_heads(j->t, 0, KVF_SPACE_KV) + head];
    for (uint32_t i = 0; i < j->T; i++) {
        double v = scratch[i];
        bool whole = v >= 0 && v <= (double)UINT32_MAX;
        switch (s->column.dtype) {
        case KVF_F64:
            ((double *)out)[i] = v;
            break;
        case KVF_I32:
            ((int32_t *)out)[i] = whole && v <= INT32_MAX ? (int32_t)v : -1;
            break;
        case KVF_U8:
            ((uint8_t *)out)[i] = whole && v <= UINT8_MAX ? (uint8_t)v : 0;
            break;
        default:
            ((uint32_t *)out)[i] = whole && !out_of_plan ? (uint32_t)v : KVF_ALIVE;
        }
        if (s->column.dtype == KVF_U32 && !out_of_plan
            && !(v == (double)KVF_ALIVE || (v > i && v <= j->T)))
            return kvf_fail(d, KVF_E_FORMAT,
                            "layer %d, head %d, entry %u: no run evicts at step "
                            "%.0f",
                            layer, head, i, v);
    }
    return KVF_OK;
}

static int write_column(const struct job *j, int c, struct kvf_writer *w, struct kvf_diag *d)
{
    const struct source *s = &j->source[c];
    enum kvf_space space = (enum kvf_space)s->column.space;
    int layers = space == KVF_SPACE_RUN ? 1 : kvf_n_layers(j->t), err = KVF_E_NOMEM;
    double *scratch = MEM_NEW(double, j->T), *out = MEM_NEW(double, j->T);
    if (!scratch || !out)
        goto done;
    for (int l = 0; l < layers; l++)
        for (int h = 0; h < kvf_n_heads(j->t, l, space); h++) {
            err = convert(j, s, l, h, scratch, out, d);
            if (err)
                goto done;
            err = kvf_write_chunk(w, c, l, h, 1, 0, j->T, 0, out);
            if (err)
                goto done;
        }
    err = KVF_OK;

done:
    mem_free(scratch);
    mem_free(out);
    return err;
}

static int write_texts(const struct job *j, struct kvf_writer *w)
{
    struct buf text = {0};
    uint32_t *end = MEM_NEW(uint32_t, j->T), n = 0;
    int err = end ? kvf_texts(j->t) : KVF_E_NOMEM;
    for (; !err && n < j->T; n++) {
        size_t len;
        const char *s = kvf_token(j->t, n, &len);
        if (!s) /* the trace stores no texts from here on */
            break;
        buf_add(&text, s, len);
        end[n] = (uint32_t)text.len;
    }
    err = err ? err : text.err;
    if (!err && n)
        err = kvf_write_token_bytes(w, 0, n, end, text.data);
    mem_free(end);
    buf_finish(&text);
    return err;
}

static int open_writer(const struct job *j, const char *path, struct kvf_writer **ret,
                       struct kvf_diag *d)
{
    int L = kvf_n_layers(j->t);
    uint16_t *heads = MEM_NEW(uint16_t, 2 * (size_t)L);
    struct kvf_column column[MOST_COLUMNS];
    struct kvf_writer_options opt = {.existing = j->opt->overwrite ? KVF_OVERWRITE : KVF_REFUSE,
                                     .only_whole = true,
                                     .n_prompt = j->tokens ? j->T : 0};
    int32_t *ids = MEM_NEW(int32_t, opt.n_prompt);
    struct buf meta = {0};
    int err = heads && ids ? header(j, &meta, d) : KVF_E_NOMEM;
    if (!err && j->tokens)
        err = kvf_read_i32(j->t, kvf_find(j->t, "tokens.id"), 0, 0, 0, j->T, ids, d);
    if (err)
        goto done;
    opt.prompt = ids;
    for (int l = 0; l < L; l++) {
        heads[l] = (uint16_t)kvf_n_heads(j->t, l, KVF_SPACE_KV);
        heads[L + l] = (uint16_t)kvf_n_heads(j->t, l, KVF_SPACE_QUERY);
    }
    for (int c = 0; c < j->n; c++)
        column[c] = j->source[c].column;
    struct kvf_shape shape = {L, heads, heads + L};
    err = kvf_writer_open(path, meta.data, &shape, column, j->n, &opt, ret, d);

done:
    buf_finish(&meta);
    mem_free(ids);
    mem_free(heads);
    return err;
}

static int write_all(const struct job *j, const char *path, struct kvf_diag *d)
{
    struct kvf_writer *w = NULL;
    int err = open_writer(j, path, &w, d);
    if (err)
        return err;
    if (j->tokens) {
        err = write_texts(j, w);
        if (err)
            goto fail;
    }
    for (int c = 0; c < j->n; c++) {
        err = write_column(j, c, w, d);
        if (err)
            goto fail;
    }
    err = kvf_writer_commit(w, 1, j->T);
    if (err)
        goto fail;
    return kvf_writer_close(w, d);

fail:
    kvf_writer_abandon(w);
    return err;
}

int plan_write(struct kvf_trace *trace, const struct plan_options *opt, const char *path,
               struct kvf_diag *d)
{
    struct job j = {.t = trace, .opt = opt, .T = kvf_n_steps(trace)};
    if (!j.T)
        return kvf_fail(d, KVF_E_FORMAT, "the trace has no step");
    int err = choose(&j, d);
    if (err)
        return err;
    err = write_all(&j, path, d);
    if (err == KVF_E_IO && !d->text[0])
        kvf_fail(d, err, "%s: writing failed: no space or no permission", path);
    return err;
}
