/* arrays.c - arrays of probes: allocation, conversion to columns, and writing. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/arrays.h"

/* Offset of the elements in the task of a blob, which begins with its description. */
enum { BLOB_DATA = (sizeof(struct kvf_blob) + 15) / 16 * 16 };

static size_t n_layers(const struct probe_config *c, const struct probe_array *a)
{
    return a->column.space == KVF_SPACE_RUN ? 1 : (size_t)c->shape.n_layers;
}

static int n_heads(const struct probe_config *c, const struct probe_array *a)
{
    if (a->column.space == KVF_SPACE_RUN)
        return 1;
    return a->column.space == KVF_SPACE_KV ? c->shape.n_kv_heads : c->shape.n_heads;
}

/* Returns the bytes of a value in memory. */
static size_t kept_size(const struct probe_array *a)
{
    enum kvf_dtype kept = a->kept == PROBE_AS_DOUBLE ? KVF_F64 : (enum kvf_dtype)a->column.dtype;
    return kvf_dtype_size(kept);
}

static bool is_narrow(const struct probe_config *c)
{
    return c->cap < 65535;
}

int probe_columns(const struct probe *p, const struct probe_config *cfg, struct probe_array *out)
{
    int n = p->arrays ? p->arrays(cfg, out) : p->n_arrays;
    if (!p->arrays && out)
        memcpy(out, p->array, (size_t)n * sizeof *out);
    for (int i = 0; out && i < n; i++)
        if (out[i].column.dtype == PROBE_STEPS)
            out[i].column.dtype = is_narrow(cfg) ? KVF_U16 : KVF_U32;
    return n;
}

/* Sets n values to the initial value of an array. */
static void fill(const struct probe_array *a, void *data, size_t n)
{
    float *real = data;
    if (a->start != PROBE_NAN)
        memset(data, a->start == PROBE_ONES ? 0xff : 0, n * kept_size(a));
    for (size_t i = 0; a->start == PROBE_NAN && i < n; i++)
        real[i] = NAN;
}

/* Creates an array of n values; returns NULL if memory is short. */
static void *new_array(const struct probe_array *a, size_t n)
{
    void *data = mem_alloc_raw(n, kept_size(a));
    if (data)
        fill(a, data, n);
    return data;
}

/* Returns the number of sampled steps before step t. */
static size_t n_sampled(const struct probe_state *s, int32_t t)
{
    return ((size_t)t + (size_t)s->every - 1) / (size_t)s->every;
}

int probe_state_open(struct probe_state *s, const struct probe *p, const struct probe_config *cfg)
{
    int n = probe_columns(p, cfg, NULL);
    *s = (struct probe_state){.probe = p, .cfg = cfg, .narrow = is_narrow(cfg), .n_arrays = n};
    s->every = p->sampled && cfg->every > 1 ? cfg->every : 1;
    s->cells = n_sampled(s, cfg->cap);
    s->array = MEM_NEW(struct probe_array, (size_t)n);
    s->data = MEM_NEW(void *, (size_t)n);
    s->heads = MEM_NEW(size_t, (size_t)n);
    s->head_size = MEM_NEW(size_t, (size_t)n);
    if (!s->array || !s->data || !s->heads || !s->head_size)
        return KVF_E_NOMEM;
    probe_columns(p, cfg, s->array);
    for (int i = 0; i < n; i++) {
        const struct probe_array *a = &s->array[i];
        s->heads[i] = (size_t)n_heads(cfg, a);
        s->head_size[i] = s->cells * kept_size(a);
        if (a->kept == PROBE_NOT_KEPT)
            continue;
        s->data[i] = new_array(a, probe_rows(s, i) * s->cells);
        if (!s->data[i])
            return KVF_E_NOMEM;
    }
    return p->open ? p->open(s) : KVF_OK;
}

/* Copies the first `bytes` bytes of rows that are ld and ld_from bytes apart. */
static void copy_rows(void *to, size_t ld, const void *source, size_t ld_from, size_t rows,
                      size_t bytes)
{
    for (size_t row = 0; row < rows; row++)
        memcpy((char *)to + row * ld, (const char *)source + row * ld_from, bytes);
}

void probe_copy_rows(const struct probe_state *s, void *to, const struct probe_state *from,
                     const void *source, size_t rows, size_t size, int32_t n)
{
    copy_rows(to, (size_t)s->cfg->cap * size, source, (size_t)from->cfg->cap * size, rows,
              (size_t)n * size);
}

void probe_state_copy(struct probe_state *s, const struct probe_state *from, int32_t n)
{
    for (int i = 0; i < s->n_arrays; i++)
        if (s->data[i])
            copy_rows(s->data[i], s->head_size[i], from->data[i], from->head_size[i],
                      probe_rows(s, i), n_sampled(s, n) * kept_size(&s->array[i]));
    if (s->probe->copy)
        s->probe->copy(s, from, n);
}

void probe_state_close(struct probe_state *s)
{
    if (s->own && s->probe->close)
        s->probe->close(s);
    else
        mem_free(s->own);
    for (int i = 0; s->data && i < s->n_arrays; i++)
        mem_free(s->data[i]);
    mem_free_all(s->data, s->heads, s->head_size, s->array);
    *s = (struct probe_state){0};
}

size_t probe_rows(const struct probe_state *s, int array)
{
    const struct probe_array *a = &s->array[array];
    return n_layers(s->cfg, a) * (size_t)n_heads(s->cfg, a);
}

size_t probe_cell_size(const struct probe_state *s, int array)
{
    return kept_size(&s->array[array]);
}

void *probe_cells(const struct probe_state *s, int array, int layer, int head)
{
    size_t at = (size_t)layer * s->heads[array] + (size_t)head;
    return (char *)s->data[array] + at * s->head_size[array];
}

/* Converts steps of events to ages; all ones (no event) stay. */
static void to_ages(bool narrow, const void *step, int32_t t0, int32_t t1, void *out)
{
    const uint16_t *a = step;
    const uint32_t *b = step;
    uint16_t *to_a = out;
    uint32_t *to_b = out;
    for (int32_t i = t0; narrow && i < t1; i++)
        *to_a++ = a[i] == UINT16_MAX ? a[i] : (uint16_t)(a[i] - i);
    for (int32_t i = t0; !narrow && i < t1; i++)
        *to_b++ = b[i] == UINT32_MAX ? b[i] : b[i] - (uint32_t)i;
}

/* Fills steps [t0, t1) with the initial value and puts the sampled values in their places. */
static void spread(const struct probe_state *s, const struct probe_array *a, const char *cells,
                   int32_t t0, int32_t t1, char *out)
{
    size_t size = kept_size(a);
    fill(a, out, (size_t)(t1 - t0));
    for (size_t k = n_sampled(s, t0), end = n_sampled(s, t1); k < end; k++)
        memcpy(out + (k * (size_t)s->every - (size_t)t0) * size, cells + k * size, size);
}

/* Converts values [t0, t1) of a head to the column's type. */
static void convert(const struct probe_state *s, int array, int layer, int head, int32_t t0,
                    int32_t t1, void *out)
{
    const struct probe_array *a = &s->array[array];
    size_t size = kept_size(a), n = (size_t)(t1 - t0);
    if (a->kept == PROBE_BY_VALUES || a->kept == PROBE_NOT_KEPT) {
        s->probe->values(s, array, layer, head, t1, out);
        return;
    }
    const char *cells = probe_cells(s, array, layer, head);
    if (s->every > 1) {
        spread(s, a, cells, t0, t1, out);
        return;
    }
    const double *real = (const double *)(const void *)cells + t0;
    float *rounded = out;
    switch (a->kept) {
    case PROBE_AS_DOUBLE:
        for (size_t i = 0; i < n; i++)
            rounded[i] = (float)real[i];
        break;
    case PROBE_AS_STEP:
        to_ages(a->column.dtype == KVF_U16, cells, t0, t1, out);
        break;
    default:
        memcpy(out, cells + (size_t)t0 * size, n * size);
    }
}

static int write_values(const struct pen_task *t, struct kvf_writer *w)
{
    return kvf_write_chunk(w, t->column, t->layer, 0, t->heads, t->t0, t->n, t->epoch, t->data);
}

/* Queues a task, or runs it if there is no pen. */
static int deliver(const struct probe_sink *sink, struct pen_task *t)
{
    if (sink->pen) {
        pen_put(sink->pen, t);
        return KVF_OK;
    }
    int err = t->run(t, sink->writer);
    mem_free(t);
    return err;
}

/* Writes or queues values [t0, t1) of an array's heads in a layer. */
static int put(const struct probe_state *s, const struct probe_sink *sink, int array, int layer,
               int32_t t0, int32_t t1)
{
    const struct probe_array *a = &s->array[array];
    int heads = n_heads(s->cfg, a);
    size_t row = (size_t)(t1 - t0) * kvf_dtype_size((enum kvf_dtype)a->column.dtype);
    struct pen_task *t = pen_task((size_t)heads * row, write_values);
    if (!t)
        return KVF_E_NOMEM;
    t->column = s->column0 + array;
    t->layer = layer;
    t->heads = heads;
    t->t0 = (uint32_t)t0;
    t->n = (uint32_t)(t1 - t0);
    t->epoch = a->column.flags & KVF_COL_SNAPSHOT ? sink->epoch : 0;
    for (int h = 0; h < heads; h++)
        convert(s, array, layer, h, t0, t1, t->data + (size_t)h * row);
    return deliver(sink, t);
}

static int write_blob(const struct pen_task *t, struct kvf_writer *w)
{
    struct kvf_blob b;
    memcpy(&b, t->data, sizeof b);
    return kvf_write_blob(w, &b, true, t->data + BLOB_DATA);
}

int probe_put_blob(const struct probe_sink *sink, const struct kvf_blob *b, const void *data)
{
    size_t n = kvf_blob_size(b);
    struct pen_task *t = pen_task(BLOB_DATA + n, write_blob);
    if (!t)
        return KVF_E_NOMEM;
    memcpy(t->data, b, sizeof *b);
    memcpy(t->data + BLOB_DATA, data, n);
    return deliver(sink, t);
}

/* Writes columns [first, end), layer by layer. */
static int put_layers(const struct probe_state *s, const struct probe_sink *sink, bool snapshots,
                      int first, int end, int32_t t0, int32_t t1)
{
    for (int l = 0; l < s->cfg->shape.n_layers; l++)
        for (int i = first; i < end; i++) {
            const struct probe_array *a = &s->array[i];
            bool is_snapshot = a->column.flags & KVF_COL_SNAPSHOT;
            bool due = is_snapshot == snapshots && (size_t)l < n_layers(s->cfg, a);
            int err = due ? put(s, sink, i, l, t0, t1) : KVF_OK;
            if (err)
                return err;
        }
    return KVF_OK;
}

static int put_all(const struct probe_state *s, const struct probe_sink *sink, bool snapshots,
                   int32_t t0, int32_t t1)
{
    int n = s->n_arrays, step = s->probe->by_column ? 1 : n;
    for (int i = 0; i < n; i += step) {
        int err = put_layers(s, sink, snapshots, i, i + step, t0, t1);
        if (err)
            return err;
    }
    return KVF_OK;
}

static int write_away(const struct pen_task *t, struct kvf_writer *w)
{
    const struct probe_sink at_once = {.writer = w, .epoch = t->epoch};
    return put_all(t->state, &at_once, t->snapshots, (int32_t)t->t0, (int32_t)(t->t0 + t->n));
}

bool probe_streams(const struct probe_state *s)
{
    bool any = false;
    for (int i = 0; i < s->n_arrays; i++)
        any |= !(s->array[i].column.flags & KVF_COL_SNAPSHOT);
    return any;
}

int probe_write(const struct probe_state *s, const struct probe_sink *sink, bool snapshots,
                int32_t t0, int32_t t1)
{
    if (s->probe->blobs && !snapshots) {
        int err = s->probe->blobs(s, sink, t0, t1);
        if (err)
            return err;
    }
    if (!s->away)
        return put_all(s, sink, snapshots, t0, t1);
    if (!snapshots && !probe_streams(s))
        return KVF_OK;
    struct pen_task *t = pen_task(0, write_away);
    if (!t)
        return KVF_E_NOMEM;
    t->state = s;
    t->snapshots = snapshots;
    t->t0 = (uint32_t)t0;
    t->n = (uint32_t)(t1 - t0);
    t->epoch = sink->epoch;
    pen_put(sink->pen, t);
    return KVF_OK;
}

static int write_tokens(const struct pen_task *t, struct kvf_writer *w)
{
    return kvf_write_chunk(w, t->column, 0, 0, 1, t->t0, t->n, 0, t->data);
}

int probe_put_tokens(struct pen *pen, int column, const void *values, size_t size, int32_t t0,
                     int32_t n)
{
    struct pen_task *t = pen_task((size_t)n * size, write_tokens);
    if (!t)
        return KVF_E_NOMEM;
    t->column = column;
    t->t0 = (uint32_t)t0;
    t->n = (uint32_t)n;
    memcpy(t->data, (const char *)values + (size_t)t0 * size, (size_t)n * size);
    pen_put(pen, t);
    return KVF_OK;
}
