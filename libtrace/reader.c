/* reader.c - reads the values of an open trace (reader.h). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "libtrace/reader.h"

const char *kvf_meta(const struct kvf_trace *t)
{
    return t->meta;
}
int kvf_n_layers(const struct kvf_trace *t)
{
    return t->n_layers;
}
uint32_t kvf_n_steps(const struct kvf_trace *t)
{
    return t->n_steps;
}
uint32_t kvf_epoch(const struct kvf_trace *t)
{
    return t->epoch;
}
int kvf_is_clean(const struct kvf_trace *t)
{
    return t->clean;
}
int kvf_n_columns(const struct kvf_trace *t)
{
    return t->n_columns;
}

int kvf_run_id(const struct kvf_trace *t, char ret[33])
{
    const struct hash128 *id = &t->header.id;
    if (!t->header.chained || (!id->low && !id->high))
        return KVF_E_NOTFOUND;
    snprintf(ret, 33, "%016llx%016llx", (unsigned long long)id->high, (unsigned long long)id->low);
    return KVF_OK;
}

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

void trace_no_buffers(struct kvf_trace *t)
{
    memset(t->cache, 0, sizeof t->cache);
    t->n_cached = CACHED_CHUNKS;
    for (int i = 0; i < MOST_CACHED_CHUNKS; i++)
        t->cache[i].entry = SIZE_MAX;
    t->seen = NULL;
    t->stored = t->shuffled = t->raw = (struct scratch){NULL, 0};
    t->decoder = NULL;
    t->clock = 0;
    t->tokens_loaded = false;
    t->text = NULL;
    t->token = NULL;
    t->text_len = t->n_tokens = 0;
}

void trace_free_buffers(struct kvf_trace *t)
{
    for (int i = 0; i < t->n_cached; i++)
        mem_free(t->cache[i].data);
    mem_free_all(t->seen, t->stored.data, t->shuffled.data, t->raw.data);
    decoder_destroy(t->decoder);
    mem_free_all(t->text, t->token);
}

int kvf_share(const struct kvf_trace *t, struct kvf_trace **ret_trace)
{
    struct kvf_trace *s = MEM_NEW(struct kvf_trace, 1);
    if (!s)
        return KVF_E_NOMEM;
    *s = *t;
    trace_no_buffers(s);
    s->shared = true;
    if (t->tail && kvf_share(t->tail, &s->tail) != KVF_OK) {
        mem_free(s);
        return KVF_E_NOMEM;
    }
    *ret_trace = s;
    return KVF_OK;
}

/* The place of the chunk, or a free place for it: that of the chunk longest not asked for,
 * but a new one for a chunk that was decoded before, as far as the cache may grow. */
static struct cached *find_slot(struct kvf_trace *t, size_t entry)
{
    struct cached *slot = &t->cache[0];
    size_t bytes = t->rec[entry].raw_len;
    for (int i = 0; i < t->n_cached; i++) {
        struct cached *c = &t->cache[i];
        if (c->entry == entry)
            return c;
        if (c->used < slot->used)
            slot = c;
        bytes += c->cap;
    }
    bool again = t->seen && t->seen[entry] & SEEN_DECODED;
    if (again && t->n_cached < MOST_CACHED_CHUNKS && bytes <= CACHE_GROWS_TO)
        slot = &t->cache[t->n_cached++];
    return slot;
}

static int cannot_decode(const struct kvf_trace *t, const struct record *r, int err,
                         struct kvf_diag *d)
{
    return kvf_fail(d, err, "%s: the chunk at byte %llu cannot be decoded", t->path,
                    (unsigned long long)r->offset);
}

/* Of intervals: whether they can be. */
static int check_lists(const struct kvf_trace *t, const struct record *r, const unsigned char *raw,
                       struct kvf_diag *d)
{
    if (r->type != REC_INTERVALS || trace_lists_fit(t, r, raw))
        return KVF_OK;
    return kvf_fail(d, KVF_E_CORRUPT, "%s: the chunk at byte %llu has impossible intervals",
                    t->path, (unsigned long long)r->offset);
}

static int decode_chunk(struct kvf_trace *t, const struct record *r, struct cached *slot,
                        struct kvf_diag *d)
{
    const unsigned char *bytes;
    int width = (int)kvf_dtype_size(t->column[r->column].dtype);
    int err = trace_room_for(r->raw_len, &slot->data, &slot->cap);
    if (!err)
        err = trace_room(r->raw_len, &t->shuffled);
    if (err)
        return err;
    if (!t->decoder)
        t->decoder = decoder_create();
    if (!t->decoder)
        return KVF_E_NOMEM;
    err = trace_bytes(t, r, &bytes, d);
    if (err)
        return err;
    trace_decoded(t, r->raw_len);
    err = codec_decode(t->decoder, bytes + trace_header_size(t), r->stored_len, r->codec, width,
                       slot->data, r->raw_len, t->shuffled.data);
    if (err)
        return cannot_decode(t, r, err, d);
    return check_lists(t, r, slot->data, d);
}

/* The values of a chunk that need no decoding, in the map. */
static int chunk_in_map(struct kvf_trace *t, const struct record *r, const unsigned char **ret,
                        struct kvf_diag *d)
{
    const unsigned char *bytes;
    int err = trace_bytes(t, r, &bytes, d);
    if (err)
        return err;
    const unsigned char *values = bytes + trace_header_size(t);
    if (!trace_checked(t, r, false)) {
        trace_decoded(t, r->raw_len);
        err = r->stored_len == r->raw_len ? check_lists(t, r, values, d)
                                          : cannot_decode(t, r, KVF_E_CORRUPT, d);
        if (err)
            return err;
        trace_checked(t, r, true);
    }
    *ret = values;
    return KVF_OK;
}

int trace_chunk(struct kvf_trace *t, size_t entry, const unsigned char **ret, struct kvf_diag *d)
{
    if (t->map && t->rec[entry].codec == CODEC_RAW)
        return chunk_in_map(t, &t->rec[entry], ret, d);
    struct cached *slot = find_slot(t, entry);
    if (slot->entry != entry) {
        slot->entry = SIZE_MAX; /* until it is complete again */
        int err = decode_chunk(t, &t->rec[entry], slot, d);
        if (err)
            return err;
        slot->entry = entry;
        t->seen[entry] |= SEEN_DECODED;
    }
    slot->used = ++t->clock;
    *ret = slot->data;
    return KVF_OK;
}

size_t trace_lower_bound(const struct kvf_trace *t, const struct record *key)
{
    size_t lo = 0, hi = t->n_rec;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (record_compare(&t->rec[mid], key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* One pass over the chunks of (column, layer, epoch): copies the values from *have on and advances
 * *have. */
static int read_pass(struct kvf_trace *t, const struct record *key, int head, uint32_t t0,
                     uint32_t stop, uint32_t *have, char *out, struct kvf_diag *d)
{
    size_t width = kvf_dtype_size(t->column[key->column].dtype);
    for (size_t i = trace_lower_bound(t, key); i < t->n_rec && *have < stop; i++) {
        const struct record *r = &t->rec[i];
        const unsigned char *data;
        if (!trace_same_group(r, key))
            break;
        if (head < r->head0 || head >= r->head0 + r->n_heads || r->t0 > *have
            || r->t0 + r->n <= *have)
            continue;
        int err = trace_chunk(t, i, &data, d);
        if (err)
            return err;
        uint32_t end = r->t0 + r->n < stop ? r->t0 + r->n : stop;
        size_t at = (size_t)(head - r->head0) * r->n + (*have - r->t0);
        copy_le(out + (size_t)(*have - t0) * width, data + at * width, end - *have, width);
        *have = end;
    }
    return KVF_OK;
}

int trace_key(const struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
              bool intervals, struct record *key, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    if (!c || head < 0 || head >= kvf_n_heads(t, layer, (enum kvf_space)c->space)
        || t0 > KVF_MAX_STEPS || n > KVF_MAX_STEPS - t0)
        return kvf_fail(d, KVF_E_ARG, "%s: no such column, layer or head", t->path);
    if (!(c->flags & KVF_COL_INTERVALS) == intervals)
        return kvf_fail(d, KVF_E_ARG, "%s: column %s holds %s", t->path, c->name,
                        intervals ? "one value for each index" : "intervals");
    *key = (struct record){.type = trace_type_of(c),
                           .column = (uint32_t)column,
                           .layer = (uint16_t)layer,
                           .epoch = c->flags & KVF_COL_SNAPSHOT ? t->epoch : 0};
    return KVF_OK;
}

int trace_not_there(const struct kvf_trace *t, const struct record *key, int head, uint32_t index,
                    struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_NOTFOUND,
                    "%s: column %s, layer %d, head %d: values from %u on "
                    "are not in the trace",
                    t->path, t->column[key->column].name, key->layer, head, index);
}

/* After a pass over the trace itself that ended with err: the tail may have the values that are
 * damaged here, since a loss of power can damage data written after it. */
static int read_pass_of_tail(struct kvf_trace *t, const struct record *key, int head, uint32_t t0,
                             uint32_t stop, uint32_t *have, char *out, int err, struct kvf_diag *d)
{
    const uint32_t before = *have;
    int of_tail = read_pass(t->tail, key, head, t0, stop, have, out, err ? NULL : d);
    if (!err || (of_tail && of_tail != KVF_E_CORRUPT) || *have > before)
        return of_tail;
    return err;
}

static int read_values(struct kvf_trace *t, const struct record *key, int head, uint32_t t0,
                       uint32_t n, void *out, struct kvf_diag *d)
{
    uint32_t have = t0, before;
    do { /* a second pass only where the heads were grouped differently over time */
        before = have;
        int err = read_pass(t, key, head, t0, t0 + n, &have, out, d);
        if (t->tail && (!err || err == KVF_E_CORRUPT))
            err = read_pass_of_tail(t, key, head, t0, t0 + n, &have, out, err, d);
        if (err)
            return err;
    } while (have < t0 + n && have > before);
    return have < t0 + n ? trace_not_there(t, key, head, have, d) : KVF_OK;
}

bool trace_in_tail(const struct kvf_trace *t, int column)
{
    const struct kvf_column *c = kvf_column(t, column);
    return t->tail && c && c->flags & KVF_COL_SNAPSHOT;
}

int kvf_read(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
             void *out, struct kvf_diag *d)
{
    struct record key;
    int err = trace_key(t, column, layer, head, t0, n, false, &key, d);
    if (!err && trace_in_tail(t, column))
        return kvf_read(t->tail, column, layer, head, t0, n, out, d);
    return err ? err : read_values(t, &key, head, t0, n, out, d);
}

/* The chunk that read_pass takes the first value from; SIZE_MAX: no chunk, or it lacks some of the
 * n. */
static size_t whole_chunk(const struct kvf_trace *t, const struct record *key, int head,
                          uint32_t t0, uint32_t n)
{
    for (size_t i = trace_lower_bound(t, key); i < t->n_rec; i++) {
        const struct record *r = &t->rec[i];
        if (!trace_same_group(r, key))
            break;
        if (head >= r->head0 && head < r->head0 + r->n_heads && r->t0 <= t0 && r->t0 + r->n > t0)
            return r->t0 + r->n >= t0 + n ? i : SIZE_MAX;
    }
    return SIZE_MAX;
}

int kvf_view(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
             const void **ret, struct kvf_diag *d)
{
    struct record key;
    int err = trace_key(t, column, layer, head, t0, n, false, &key, d);
    if (err)
        return err;
    if (trace_in_tail(t, column))
        return kvf_view(t->tail, column, layer, head, t0, n, ret, d);
    size_t width = kvf_dtype_size(t->column[column].dtype), at = whole_chunk(t, &key, head, t0, n);
    if (LITTLE_ENDIAN_HERE && n && at != SIZE_MAX) {
        const struct record *r = &t->rec[at];
        const unsigned char *data;
        err = trace_chunk(t, at, &data, d);
        if (!err)
            *ret = data + ((size_t)(head - r->head0) * r->n + (t0 - r->t0)) * width;
        if (err != KVF_E_CORRUPT || !t->tail)
            return err;
    }
    err = trace_room(n * width, &t->raw);
    if (!err)
        err = read_values(t, &key, head, t0, n, t->raw.data, d);
    if (!err)
        *ret = t->raw.data;
    return err;
}

/* All ones of an age are "never". */
#define WIDEN_UNSIGNED(type, never)                                                                \
    for (uint32_t i = 0; i < n; i++) {                                                             \
        type v;                                                                                    \
        memcpy(&v, p + i * sizeof v, sizeof v);                                                    \
        out[i] = age && v == (never) ? -1 : (double)v;                                             \
    }                                                                                              \
    break
#define WIDEN(type)                                                                                \
    for (uint32_t i = 0; i < n; i++) {                                                             \
        type v;                                                                                    \
        memcpy(&v, p + i * sizeof v, sizeof v);                                                    \
        out[i] = (double)v;                                                                        \
    }                                                                                              \
    break

/* The type is checked once, not for each of possibly billions of values. */
static void widen(const unsigned char *p, enum kvf_dtype dtype, bool age, uint32_t n, double *out)
{
    switch (dtype) {
    case KVF_F32:
        WIDEN(float);
    case KVF_F64:
        WIDEN(double);
    case KVF_I32:
        WIDEN(int32_t);
    case KVF_U8:
        WIDEN_UNSIGNED(uint8_t, UINT8_MAX);
    case KVF_U16:
        WIDEN_UNSIGNED(uint16_t, UINT16_MAX);
    case KVF_U32:
        WIDEN_UNSIGNED(uint32_t, UINT32_MAX);
    case KVF_U64:
        WIDEN_UNSIGNED(uint64_t, UINT64_MAX);
    case KVF_F16: /* only of blobs */
    case KVF_BF16:
        break;
    }
}
#undef WIDEN
#undef WIDEN_UNSIGNED

int kvf_read_f64(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
                 double *out, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    if (!c)
        return kvf_fail(d, KVF_E_ARG, "%s: no such column", t->path);
    const void *raw;
    int err = kvf_view(t, column, layer, head, t0, n, &raw, d);
    if (!err)
        widen(raw, (enum kvf_dtype)c->dtype, c->flags & KVF_COL_AGE, n, out);
    return err;
}

int kvf_read_i32(struct kvf_trace *t, int column, int layer, int head, uint32_t t0, uint32_t n,
                 int32_t *out, struct kvf_diag *d)
{
    enum { PIECE = 512 };
    double v[PIECE];
    const struct kvf_column *c = kvf_column(t, column);
    if (!c)
        return kvf_fail(d, KVF_E_ARG, "%s: no such column", t->path);
    const void *raw;
    int err = kvf_view(t, column, layer, head, t0, n, &raw, d);
    size_t width = kvf_dtype_size((enum kvf_dtype)c->dtype);
    for (uint32_t at = 0, k; !err && at < n; at += k) {
        k = n - at < PIECE ? n - at : PIECE;
        widen((const unsigned char *)raw + at * width, (enum kvf_dtype)c->dtype,
              c->flags & KVF_COL_AGE, k, v);
        for (uint32_t i = 0; i < k; i++) /* all ones of u32 (alive) become -1 */
            out[at + i] = v[i] > 2147483647.0 || !(v[i] >= -2147483648.0) ? -1 : (int32_t)v[i];
    }
    return err;
}

static bool ends_rise(const unsigned char *p, uint32_t n, uint64_t limit)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < n; i++, p += 4) {
        uint64_t e = get_le(p, 4);
        if (e < before || e > limit)
            return false;
        before = e;
    }
    return true;
}

static bool token_record(const struct record *r)
{
    return r->type == REC_TOKENS && r->t0 <= KVF_MAX_STEPS && r->n <= KVF_MAX_STEPS - r->t0
           && r->n <= r->stored_len / 4;
}

bool trace_texts_fit(const struct record *r, const unsigned char *payload)
{
    return token_record(r) && ends_rise(payload, r->n, r->stored_len - 4 * (uint64_t)r->n);
}

/* The texts of one record.  Its tokens stay "not stored" when it is damaged. */
static int load_tokens_of(struct kvf_trace *t, const struct record *r)
{
    unsigned char *p = NULL;
    int err = trace_payload(t, r, &p, NULL);
    if (err)
        return err;
    size_t ends = 4 * (size_t)r->n, n = r->stored_len - ends;
    uint32_t next = t->n_tokens ? t->token[t->n_tokens - 1].index + 1 : 0, before = 0;
    bool rise = ends_rise(p, r->n, n);
    if (rise && r->t0 >= next) {
        for (uint32_t i = 0; i < r->n; i++) {
            uint32_t e = (uint32_t)get_le(p + 4 * (size_t)i, 4);
            t->token[t->n_tokens++] = (struct token){r->t0 + i, t->text_len + before, e - before};
            before = e;
        }
        memcpy(t->text + t->text_len, p + ends, n);
        t->text_len += (uint32_t)n;
    }
    mem_free(p);
    return rise ? KVF_OK : KVF_E_CORRUPT;
}

/* Reads all that can be read, and returns the first error. */
static int load_tokens(struct kvf_trace *t)
{
    uint64_t n = 0, bytes = 1;
    int err = KVF_OK, first = KVF_OK;
    mem_free(t->token); /* of an attempt that ran out of memory */
    mem_free(t->text);
    t->token = NULL;
    t->text = NULL;
    t->n_tokens = t->text_len = 0;
    for (size_t k = 0; k < t->n_rec; k++)
        if (token_record(&t->rec[k])) {
            n += t->rec[k].n;
            bytes += t->rec[k].stored_len - 4 * (uint64_t)t->rec[k].n;
        }
    if (bytes >= UINT32_MAX)
        return KVF_E_LIMIT;
    t->token = MEM_NEW(struct token, n);
    t->text = mem_alloc(bytes, 1);
    if (!t->token || !t->text)
        return KVF_E_NOMEM;
    for (size_t k = 0; k < t->n_rec && err != KVF_E_NOMEM; k++)
        if (token_record(&t->rec[k])) {
            err = load_tokens_of(t, &t->rec[k]);
            first = first ? first : err;
        }
    t->tokens_loaded = err != KVF_E_NOMEM;
    return err == KVF_E_NOMEM ? err : first;
}

/* Loads the texts of one file, once; the error of unreadable ones is kept. */
static int texts_of(struct kvf_trace *t)
{
    if (!t->tokens_loaded)
        t->tokens_err = load_tokens(t);
    return t->tokens_err;
}

int trace_load_texts(struct kvf_trace *t)
{
    int err = texts_of(t);
    return err || !t->tail ? err : trace_load_texts(t->tail);
}

int kvf_texts(struct kvf_trace *t)
{
    for (; t; t = t->tail) {
        int err = texts_of(t);
        if (err == KVF_E_NOMEM || err == KVF_E_LIMIT)
            return err;
    }
    return KVF_OK;
}

const char *kvf_token(struct kvf_trace *t, uint32_t i, size_t *ret_len)
{
    texts_of(t);
    if (!t->tokens_loaded)
        return NULL;
    uint32_t lo = 0, hi = t->n_tokens;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->token[mid].index < i)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == t->n_tokens || t->token[lo].index != i)
        return t->tail ? kvf_token(t->tail, i, ret_len) : NULL;
    *ret_len = t->token[lo].len;
    return t->text + t->token[lo].at;
}
