/* score_external.c - scores that another program computes (external.h), such as a function in
 * Python. */
#include "engine/method/external.h"

#include "base/mem.h"
#include "engine/method/parts.h"
#include "engine/method/state.h"

/* Appends n integers or floats, which are all 32 bits wide. */
static void put(struct buf *b, const void *word, int n)
{
    buf_add(b, word, (size_t)n * 4);
}

static void put_positions(struct buf *b, const struct score_input *in)
{
    const struct cache_head *v = &in->view;
    for (int i = 0; i < v->n; i++)
        put(b, &v->pos[v->order[i]], 1);
    for (int i = 0; i < v->n; i++) {
        int32_t pos = v->pos[v->order[i]];
        int32_t may = pos >= method_params_of(in->m)->sinks && pos < in->recent_from
                      && !is_protected(in->m, pos);
        put(b, &may, 1);
    }
}

/* Appends the keys or the values of the heads [head, head + n_heads). */
static void put_vectors(struct buf *b, const struct score_input *in, int n_heads,
                        void (*get)(const struct cache *, int, int, int, float *), float *vector)
{
    for (int h = in->head; h < in->head + n_heads; h++) {
        struct cache_head v = cache_view(in->cache, in->layer, h);
        for (int i = 0; i < v.n; i++) {
            get(in->cache, in->layer, h, v.order[i], vector);
            put(b, vector, method_shape_of(in->m)->head_dim);
        }
    }
}

/* Appends the attention rows of the last n_rows queries, the oldest first. */
static void put_rows(struct buf *b, const struct score_input *in, int first, int n_queries,
                     int n_rows)
{
    const struct cache_head *v = &in->view;
    for (int age = n_rows - 1; age >= 0; age--)
        for (int g = first; g < first + n_queries; g++) {
            int32_t t;
            const float *row = evidence_row(in->m, in->layer, g, age, &t, NULL);
            for (int i = 0; i < v->n; i++) {
                int slot = v->order[i];
                float weight = v->pos[slot] <= t ? row[slot] : 0;
                put(b, &weight, 1);
            }
        }
}

static void put_request(struct buf *b, const struct score_input *in, unsigned parts, float *vector)
{
    const struct method_shape *shape = method_shape_of(in->m);
    int first, n_queries, n_heads = method_of(in->m)->scope == SCOPE_LAYER ? shape->n_kv_heads : 1;
    method_group(in->m, in->head, &first, &n_queries);
    int n_rows = evidence_rows(in->m, in->layer, first);
    const int32_t header[EXTERNAL_HEADER] = {
        [EXTERNAL_LAYER] = in->layer,   [EXTERNAL_HEAD] = in->head,
        [EXTERNAL_STEP] = in->t,        [EXTERNAL_ENTRIES] = in->view.n,
        [EXTERNAL_KV_HEADS] = n_heads,  [EXTERNAL_HEAD_DIM] = shape->head_dim,
        [EXTERNAL_QUERIES] = n_queries, [EXTERNAL_ROWS] = n_rows};
    put(b, header, EXTERNAL_HEADER);
    put_positions(b, in);
    for (int age = n_rows - 1; age >= 0; age--) {
        int32_t t;
        evidence_row(in->m, in->layer, first, age, &t, NULL);
        put(b, &t, 1);
    }
    if (parts & EXTERNAL_KEYS)
        put_vectors(b, in, n_heads, cache_key, vector);
    if (parts & EXTERNAL_VALUES)
        put_vectors(b, in, n_heads, cache_value, vector);
    if (parts & EXTERNAL_ATTENTION)
        put_rows(b, in, first, n_queries, n_rows);
}

/* After an error, writes scores of 0; decide.c ends the round. */
static void eval(const struct score_input *in, float *out, float *scratch)
{
    struct external *x = method_inputs_of(in->m)->external;
    struct buf b = {0};
    int n = in->view.n;
    if (!x->err) {
        put_request(&b, in, x->parts, scratch + n);
        x->err = b.err ? b.err : x->ask(x->ctx, b.data, b.len, scratch, n);
    }
    for (int i = 0; i < n; i++)
        out[in->view.order[i]] = x->err ? 0 : scratch[i];
    buf_finish(&b);
}

const struct score score_external = {
    .name = "external",
    .cost = "g w n + D n",
    .summary = "computed by another program, such as a Python function",
    .evidence = EVIDENCE_WINDOW,
    .uses = USES_WINDOW,
    .calibrated = true, /* its author knows whether scores of heads can be compared */
    .serial = true,
    .eval = eval,
};
