#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "libtrace/reader.h"

const char *kvf_meta(const struct kvf_trace *t) { return t->meta; }
int kvf_n_layers(const struct kvf_trace *t) { return t->n_layers; }
uint32_t kvf_n_steps(const struct kvf_trace *t) { return t->n_steps; }
uint32_t kvf_epoch(const struct kvf_trace *t) { return t->epoch; }
int kvf_is_clean(const struct kvf_trace *t) { return t->clean; }
int kvf_n_columns(const struct kvf_trace *t) { return t->n_columns; }

const char *kvf_note(const struct kvf_trace *t, const char *key)
{
    const char *found = NULL;
    for (int i = 0; i < t->n_notes; i++)
        if (strcmp(t->note[i], key) == 0)
            found = t->note[i] + strlen(key) + 1;
    return found;
}

int kvf_n_heads(const struct kvf_trace *t, int layer, enum kvf_space space)
{
    if (space == KVF_SPACE_RUN)
        return layer == 0;
    if (layer < 0 || layer >= t->n_layers)
        return 0;
    return space == KVF_SPACE_KV ? t->n_kv[layer] : t->n_query[layer];
}

const struct kvf_column *kvf_column(const struct kvf_trace *t, int column)
{
    return column >= 0 && column < t->n_columns ? &t->column[column] : NULL;
}

int kvf_find(const struct kvf_trace *t, const char *name)
{
    for (int i = 0; i < t->n_columns; i++)
        if (strcmp(t->column[i].name, name) == 0)
            return i;
    return -1;
}

/* Decoded values of a chunk, from the cache or from the file. */
static int chunk_data(struct kvf_trace *t, size_t entry, const unsigned char **ret,
                      struct kvf_diag *d)
{
    const struct record *r = &t->rec[entry];
    struct cached *slot = &t->cache[0];
    for (int i = 0; i < CACHED_CHUNKS; i++) {
        struct cached *c = &t->cache[i];
        if (c->entry == entry) {
            c->used = ++t->clock;
            *ret = c->data;
            return KVF_OK;
        }
        if (c->used < slot->used)
            slot = c;
    }
    unsigned char *stored = NULL, *raw = mem_alloc(r->raw_len, 1),
                  *scratch = mem_alloc(r->raw_len, 1);
    int err = raw && scratch ? trace_payload(t, r, &stored, d) : KVF_E_NOMEM;
    if (!err) {
        err = codec_decode(stored, r->stored_len, r->codec,
                           (int)kvf_dtype_size(t->column[r->column].dtype), raw, r->raw_len,
                           scratch);
        if (err)
            kvf_fail(d, err, "%s: the chunk at byte %llu cannot be decoded", t->path,
                     (unsigned long long)r->offset);
    }
    mem_free(stored);
    mem_free(scratch);
    if (err) {
        mem_free(raw);
        return err;
    }
    mem_free(slot->data);
    *slot = (struct cached){entry, ++t->clock, raw};
    *ret = raw;
    return KVF_OK;
}

/* First record of (column, layer, epoch) in the sorted list. */
static size_t lower_bound(const struct kvf_trace *t, int column, int layer, uint32_t epoch)
{
    struct record key = {.type = REC_COLUMN, .column = (uint32_t)column, .layer = (uint16_t)layer,
                         .epoch = epoch};
    size_t lo = 0, hi = t->n_rec;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (record_compare(&t->rec[mid], &key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int kvf_read(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
             void *out, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    if (!c || head < 0 || head >= kvf_n_heads(t, layer, (enum kvf_space)c->space)
        || t0 > KVF_MAX_STEPS || n > KVF_MAX_STEPS - t0)
        return kvf_fail(d, KVF_E_ARG, "%s: no such column, layer or head", t->path);
    size_t width = kvf_dtype_size(c->dtype);
    uint32_t epoch = c->flags & KVF_COL_SNAPSHOT ? t->epoch : 0, have = t0;
    for (size_t i = lower_bound(t, column, layer, epoch); i < t->n_rec && have < t0 + n; i++) {
        const struct record *r = &t->rec[i];
        if (r->type != REC_COLUMN || r->column != (uint32_t)column || r->layer != layer
            || r->epoch != epoch)
            break;
        if (head < r->head0 || head >= r->head0 + r->n_heads || r->t0 > have
            || r->t0 + r->n <= have)
            continue;
        const unsigned char *data;
        int err = chunk_data(t, i, &data, d);
        if (err)
            return err;
        uint32_t end = r->t0 + r->n < t0 + n ? r->t0 + r->n : t0 + n;
        size_t at = (size_t)(head - r->head0) * r->n + (have - r->t0);
        memcpy((char *)out + (size_t)(have - t0) * width, data + at * width,
               (size_t)(end - have) * width);
        have = end;
    }
    if (have < t0 + n)
        return kvf_fail(d, KVF_E_NOTFOUND,
                        "%s: column %s, layer %d, head %d: values from %u on are not in the trace",
                        t->path, c->name, layer, head, have);
    return KVF_OK;
}

static double widen(const unsigned char *p, enum kvf_dtype dtype, bool age)
{
    uint64_t v = get_le(p, (int)kvf_dtype_size(dtype));
    float f;
    double x;
    switch (dtype) {
    case KVF_F32: return memcpy(&f, p, 4), (double)f;
    case KVF_F64: return memcpy(&x, p, 8), x;
    case KVF_I32: return (double)(int32_t)v;
    case KVF_U8: return age && v == UINT8_MAX ? -1 : (double)v;
    case KVF_U16: return age && v == UINT16_MAX ? -1 : (double)v;
    case KVF_U32: return age && v == UINT32_MAX ? -1 : (double)v;
    case KVF_U64: return age && v == UINT64_MAX ? -1 : (double)v;
    }
    return NAN;
}

int kvf_read_f64(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
                 double *out, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    if (!c)
        return kvf_fail(d, KVF_E_ARG, "%s: no such column", t->path);
    size_t width = kvf_dtype_size(c->dtype);
    unsigned char *raw = mem_alloc(n, width);
    if (!raw)
        return KVF_E_NOMEM;
    int err = kvf_read(t, column, layer, head, t0, n, raw, d);
    for (uint32_t i = 0; !err && i < n; i++)
        out[i] = widen(raw + i * width, c->dtype, c->flags & KVF_COL_AGE);
    mem_free(raw);
    return err;
}

int kvf_read_i32(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
                 int32_t *out, struct kvf_diag *d)
{
    double *v = MEM_NEW(double, n);
    if (!v)
        return KVF_E_NOMEM;
    int err = kvf_read_f64(t, column, layer, head, t0, n, v, d);
    for (uint32_t i = 0; !err && i < n; i++) /* all ones of u32 (alive) become -1 */
        out[i] = v[i] > 2147483647.0 || !(v[i] >= -2147483648.0) ? -1 : (int32_t)v[i];
    mem_free(v);
    return err;
}

static int load_tokens_of(struct kvf_trace *t, const struct record *r, uint64_t *len)
{
    unsigned char *p = NULL;
    int err = trace_payload(t, r, &p, NULL);
    if (err)
        return err;
    uint64_t ends = 4 * (uint64_t)r->n, n = ends <= r->stored_len ? r->stored_len - ends : 0;
    if (ends > r->stored_len || r->t0 != t->n_text || *len + n > UINT32_MAX)
        err = KVF_E_CORRUPT;
    char *text = err ? NULL : mem_grow(t->text, *len, *len + n + 1, 1);
    if (text)
        t->text = text;
    uint32_t *end = text ? mem_grow(t->text_end, t->n_text, t->n_text + r->n, 4) : NULL;
    if (end)
        t->text_end = end;
    else if (!err)
        err = KVF_E_NOMEM;
    uint64_t before = 0;
    for (uint32_t i = 0; !err && i < r->n; i++) {
        uint64_t e = get_le(p + 4 * (size_t)i, 4);
        if (e < before || e > n)
            err = KVF_E_CORRUPT;
        t->text_end[t->n_text + i] = (uint32_t)(*len + e);
        before = e;
    }
    if (!err) {
        memcpy(t->text + *len, p + ends, n);
        *len += n;
        t->n_text += r->n;
    }
    mem_free(p);
    return err;
}

const char *kvf_token(struct kvf_trace *t, uint32_t i, size_t *ret_len)
{
    uint64_t len = 0;
    int err = KVF_OK;
    for (size_t k = 0; !t->text && !err && k < t->n_rec; k++)
        if (t->rec[k].type == REC_TOKENS) {
            for (; k < t->n_rec && t->rec[k].type == REC_TOKENS && !err; k++)
                err = load_tokens_of(t, &t->rec[k], &len);
            break;
        }
    if (i >= t->n_text)
        return NULL;
    uint32_t start = i ? t->text_end[i - 1] : 0;
    *ret_len = t->text_end[i] - start;
    return t->text + start;
}

/* Checksum of every record, and for chunks that they decode. */
static int check_record(struct kvf_trace *t, size_t i, struct kvf_check *c, struct kvf_diag *d)
{
    const struct record *r = &t->rec[i];
    unsigned char *p = NULL;
    const unsigned char *data;
    if (r->type == REC_COLUMN) {
        c->payload_bytes += r->stored_len;
        c->raw_bytes += r->raw_len;
        return chunk_data(t, i, &data, d);
    }
    int err = trace_payload(t, r, &p, d);
    mem_free(p);
    return err;
}

int kvf_verify(const char *path, int full, struct kvf_check *ret, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    struct kvf_diag first = {""};
    memset(ret, 0, sizeof *ret);
    int err = kvf_open(path, KVF_OPEN_SALVAGE, &t, d);
    if (err)
        return err;
    ret->bytes = t->size;
    ret->clean = t->clean;
    ret->bad = t->bad_records;
    ret->lost = t->lost_bytes;
    for (size_t i = 0; i < t->n_rec; i++) {
        struct kvf_diag why = {""};
        err = full ? check_record(t, i, ret, &why) : KVF_OK;
        if (err == KVF_E_NOMEM)
            break;
        ret->records += !err;
        ret->bad += !!err;
        if (err && !first.text[0])
            first = why;
    }
    if (err != KVF_E_NOMEM)
        err = ret->bad ? KVF_E_CORRUPT : KVF_OK;
    if (err && first.text[0])
        kvf_fail(d, err, "%s", first.text);
    else if (err)
        kvf_fail(d, err, "%s: damage from byte %llu on: %llu bytes belong to no record", path,
                 (unsigned long long)t->first_bad, (unsigned long long)t->lost_bytes);
    else if (!t->clean)
        kvf_fail(d, KVF_OK, "%s: the trace was not closed; all %llu records are whole", path,
                 (unsigned long long)ret->records);
    kvf_close(t);
    return err;
}
