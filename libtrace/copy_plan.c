/* copy_plan.c - which columns, layers and heads a copy has. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "libtrace/copying.h"

int copying_heads(const struct copying *c, int layer, int space)
{
    if (space == KVF_SPACE_RUN)
        return 1;
    return space == KVF_SPACE_KV ? c->n_kv[layer] : c->n_query[layer];
}

int copying_head_of(const struct copying *c, int layer, int space, int head)
{
    if (space == KVF_SPACE_RUN || !c->kv_of)
        return head;
    const uint16_t *kv = c->kv_of + c->first[layer];
    int group = c->group[layer];
    return space == KVF_SPACE_KV ? kv[head] : kv[head / group] * group + head % group;
}

/* ---- heads */

static int room_for_layers(struct copying *c, const struct kvf_trace *t, bool some)
{
    size_t L = (size_t)t->n_layers, heads = 0;
    for (size_t l = 0; l < L; l++)
        heads += t->n_kv[l];
    c->n_kv = MEM_NEW(uint16_t, L);
    c->n_query = MEM_NEW(uint16_t, L);
    c->layer_of = MEM_NEW(int, L);
    c->group = MEM_NEW(int, L);
    c->first = MEM_NEW(size_t, L);
    c->kv_of = some ? MEM_NEW(uint16_t, heads) : NULL;
    return c->n_kv && c->n_query && c->layer_of && c->group && c->first && (c->kv_of || !some)
               ? KVF_OK
               : KVF_E_NOMEM;
}

/* The heads of one layer that are kept; at: the start of this layer in `keep`. */
static int plan_layer(struct copying *c, const struct kvf_trace *t, int l,
                      const unsigned char *keep, size_t *used, struct kvf_diag *d)
{
    int out = c->n_layers, kept = 0;
    for (int h = 0; keep && h < t->n_kv[l]; h++)
        if (keep[h])
            c->kv_of[*used + (size_t)kept++] = (uint16_t)h;
    if (keep && kept == 0)
        return KVF_OK;
    if (keep && t->n_query[l] % t->n_kv[l])
        return kvf_fail(d, KVF_E_ARG,
                        "%s: layer %d has %d query heads for %d KV heads: they do not go with them",
                        t->path, l, t->n_query[l], t->n_kv[l]);
    c->group[out] = keep ? t->n_query[l] / t->n_kv[l] : 0;
    c->n_kv[out] = keep ? (uint16_t)kept : t->n_kv[l];
    c->n_query[out] = keep ? (uint16_t)(kept * c->group[out]) : t->n_query[l];
    c->first[out] = *used;
    c->layer_of[out] = l;
    c->n_layers++;
    *used += (size_t)kept;
    return KVF_OK;
}

static int plan_heads(struct copying *c, const struct kvf_trace *t, const unsigned char *keep,
                      struct kvf_diag *d)
{
    size_t used = 0;
    int err = room_for_layers(c, t, keep != NULL);
    for (int l = 0; !err && l < t->n_layers; l++) {
        err = plan_layer(c, t, l, keep, &used, d);
        keep = keep ? keep + t->n_kv[l] : NULL;
    }
    if (!err && t->n_layers && !c->n_layers)
        err = kvf_fail(d, KVF_E_ARG, "%s: no head is kept", t->path);
    return err;
}

/* ---- columns */

bool holds_steps(const struct kvf_column *c)
{
    return c->dtype == KVF_U32
           && (strcmp(c->name, "evict_step") == 0 || strcmp(c->name, "shadow.first_hit") == 0);
}

static int layer_in(const struct copying *c, int layer)
{
    for (int l = 0; l < c->n_layers; l++)
        if (c->layer_of[l] == layer)
            return l;
    return -1;
}

static int query_head_in(const struct copying *c, int layer, int head)
{
    for (int h = 0; h < c->n_query[layer]; h++)
        if (copying_head_of(c, layer, KVF_SPACE_QUERY, h) == head)
            return h;
    return -1;
}

/* Reads a number after a letter, as in "L10". Returns its length in bytes, or 0. */
static int number_at(const char *s, const char *letter, int *ret)
{
    char form[8];
    int used = 0;
    snprintf(form, sizeof form, "%s%%d%%n", letter);
    return sscanf(s, form, ret, &used) == 1 ? used : 0;
}

/* Renumbers the rest of a name from its layer on; false: a layer or head of it is not kept. */
static bool renumber(const struct copying *c, const char *at, int64_t later, struct buf *b)
{
    int layer, head, token, used = number_at(at, "L", &layer);
    int l = used ? layer_in(c, layer) : -1;
    if (l < 0)
        return !used;
    buf_printf(b, "L%d", l);
    at += used;
    used = number_at(at, "H", &head);
    int h = used ? query_head_in(c, l, head) : 0;
    if (h < 0)
        return false;
    if (used)
        buf_printf(b, "H%d", h);
    at += used;
    used = strncmp(b->data, "received.", 9) == 0 ? number_at(at, ".", &token) : 0;
    if (used)
        buf_printf(b, ".%lld", (long long)token - (long long)later);
    buf_str(b, at + used);
    return true;
}

/* Columns of the run with a layer, head or token in their names: "received.L3H5.17". */
static bool rename_column(const struct copying *c, int64_t later, struct kvf_column *k)
{
    static const char *const before[] = {"received.", "query.pre.", "query.post.",
                                         "shadow.residual_error."};
    const char *at = NULL;
    struct buf b = {0};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (strncmp(k->name, before[i], strlen(before[i])) == 0)
            at = k->name + strlen(before[i]);
    if (!at || k->space != KVF_SPACE_RUN)
        return true;
    buf_add(&b, k->name, (size_t)(at - k->name));
    bool kept = b.err || renumber(c, at, later, &b);
    if (kept && !b.err && b.len > (size_t)(at - k->name) && b.len < KVF_NAME_MAX) {
        memset(k->name, 0, sizeof k->name);
        memcpy(k->name, b.data, b.len);
    }
    buf_finish(&b);
    return kept;
}

int copying_plan(struct copying *c, const struct kvf_trace *t, const unsigned char *heads,
                 int64_t later, struct kvf_diag *d)
{
    int err = plan_heads(c, t, heads, d);
    if (err)
        return err;
    c->column = MEM_NEW(struct kvf_column, (size_t)t->n_columns);
    c->column_of = MEM_NEW(int, (size_t)t->n_columns);
    c->block = mem_alloc_raw(CHUNK_RAW, 1);
    if (!c->column || !c->column_of || !c->block)
        return KVF_E_NOMEM;
    for (int i = 0; i < t->n_columns; i++) {
        c->column[c->n_columns] = t->column[i];
        c->column_of[c->n_columns] = i;
        c->n_columns += rename_column(c, later, &c->column[c->n_columns]);
    }
    return KVF_OK;
}

int copying_wrote(struct copying *c, int err, struct kvf_diag *d)
{
    if (!err)
        return KVF_OK;
    if (c->w->err != err) /* the source's run header cannot be written */
        return kvf_fail(d, err, "%s: its content cannot be written: %s", c->w->path,
                        kvf_strerror(err));
    err = kvf_writer_close(c->w, d); /* it has the sentence */
    c->w = NULL;
    return err;
}

void copying_finish(struct copying *c)
{
    kvf_writer_abandon(c->w);
    mem_free_all(c->column, c->column_of, c->n_kv, c->n_query, c->layer_of, c->group, c->first,
                 c->kv_of, c->block, c->mine.list, c->next.list);
}
