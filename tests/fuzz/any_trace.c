/* any_trace.c - turns fuzz bytes into a trace; see any_trace.h. */
#include "any_trace.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvf/schema.h>

#include "fuzz.h"
#include "libtrace/layout.h"

enum { MOST_COLUMNS = 80, LAYERS = 3, ROOM_OF_VALUES = 1 << 16, MOST_META = 4096 };

/* The kinds of valid values of a column, at token or step i of T. */
enum kind {
    ID,
    ROLE,
    STEP, /* eviction step, or never */
    REASON,
    AGE,   /* or never */
    COUNT, /* of queries */
    SEEN,  /* of entries */
    SHARE,
    REAL,
    POSITIVE,
    NEGATIVE,
    BITS,
    LISTS,
};

struct plan {
    const char *name;
    uint8_t dtype, space, axis, flags, kind;
};

#define SNAP KVF_COL_SNAPSHOT
#define AGES (KVF_COL_SNAPSHOT | KVF_COL_AGE)
#define TOKEN KVF_AXIS_TOKEN
#define BY_STEP KVF_AXIS_STEP
#define RUN KVF_SPACE_RUN
#define KV KVF_SPACE_KV
#define QUERY KVF_SPACE_QUERY
#define SELECTED(c)                                                                                \
    {"last_selected." c, KVF_U16, QUERY, TOKEN, AGES, AGE},                                        \
        {"first_unselected." c, KVF_U16, QUERY, TOKEN, AGES, AGE},                                 \
        {"selected_at." c, KVF_U32, QUERY, TOKEN, SNAP, BITS},                                     \
        {"n_selected." c, KVF_U16, QUERY, TOKEN, SNAP, COUNT},                                     \
        {"n_returns." c, KVF_U16, QUERY, TOKEN, SNAP, COUNT},                                      \
    {                                                                                              \
        "longest_gap." c, KVF_U16, QUERY, TOKEN, SNAP, COUNT                                       \
    }
#define USEFUL(u)                                                                                  \
    {"useful." u, KVF_F32, QUERY, BY_STEP, 0, SHARE},                                              \
        {"dilution." u, KVF_F32, QUERY, BY_STEP, 0, SHARE},                                        \
        {"size." u, KVF_U16, QUERY, BY_STEP, 0, SEEN},                                             \
        {"kept." u, KVF_F32, QUERY, BY_STEP, 0, SHARE},                                            \
        {"rho_u." u, KVF_F32, QUERY, BY_STEP, 0, SHARE},                                           \
        {"rho_d." u, KVF_F32, QUERY, BY_STEP, 0, SHARE},                                           \
        {"beta.kept." u, KVF_F32, QUERY, BY_STEP, 0, SHARE},                                       \
        {"beta.rho_u." u, KVF_F32, QUERY, BY_STEP, 0, SHARE},                                      \
    {                                                                                              \
        "beta.rho_d." u, KVF_F32, QUERY, BY_STEP, 0, SHARE                                         \
    }

static const struct plan plans[] = {
    {"tokens.id", KVF_I32, RUN, TOKEN, 0, ID},
    {"tokens.role", KVF_U8, RUN, TOKEN, 0, ROLE},
    {"nll", KVF_F32, RUN, TOKEN, 0, POSITIVE},
    {"evict_step", KVF_U32, KV, TOKEN, SNAP, STEP},
    {"evict_reason", KVF_U8, KV, TOKEN, SNAP, REASON},
    {"evict_score", KVF_F32, KV, TOKEN, SNAP, REAL},
    {"evict_margin", KVF_F32, KV, TOKEN, SNAP, POSITIVE},
    {"evict_tie", KVF_U8, KV, TOKEN, SNAP, COUNT},
    {"evict_rank", KVF_U32, KV, TOKEN, SNAP, COUNT},
    {"seen", KVF_U32, KV, TOKEN, SNAP | KVF_COL_INTERVALS, LISTS},
    {"log_beta", KVF_F32, KV, TOKEN, 0, NEGATIVE},
    {"write_gate", KVF_F32, KV, TOKEN, 0, SHARE},
    {"importance", KVF_F32, KV, TOKEN, 0, REAL},
    {"key_norm", KVF_F32, KV, TOKEN, 0, POSITIVE},
    {"saliency", KVF_F32, KV, TOKEN, 0, REAL},
    {"read.count", KVF_U32, QUERY, TOKEN, SNAP, COUNT},
    {"mass.sum", KVF_F32, QUERY, TOKEN, SNAP, SHARE},
    {"mass.max", KVF_F32, QUERY, TOKEN, SNAP, SHARE},
    {"plan.mass", KVF_F64, QUERY, TOKEN, 0, SHARE},
    {"out_norm", KVF_F32, QUERY, TOKEN, 0, POSITIVE},
    {"last_selected.contrib64", KVF_U16, QUERY, TOKEN, AGES, AGE},
    {"lse", KVF_F32, QUERY, BY_STEP, 0, REAL},
    {"entropy", KVF_F32, QUERY, BY_STEP, 0, POSITIVE},
    {"shadow.kept_mass", KVF_F32, QUERY, BY_STEP, 0, SHARE},
    {"shadow.oracle_mass", KVF_F32, QUERY, BY_STEP, 0, SHARE},
    {"shadow.output_error", KVF_F32, QUERY, BY_STEP, 0, POSITIVE},
    {"shadow.ghost_hits", KVF_U32, QUERY, TOKEN, SNAP, COUNT},
    {"shadow.first_hit", KVF_U32, QUERY, TOKEN, SNAP, STEP},
    {"shadow.ghost_mass", KVF_F32, QUERY, TOKEN, SNAP, SHARE},
    {"shadow.nll", KVF_F32, RUN, TOKEN, 0, POSITIVE},
    {"shadow.kl", KVF_F32, RUN, BY_STEP, 0, POSITIVE},
    {"shadow.residual_error.L0", KVF_F32, RUN, BY_STEP, 0, POSITIVE},
    {"window.0", KVF_F32, KV, TOKEN, SNAP, SHARE},
    {"window.1", KVF_F32, KV, TOKEN, SNAP, SHARE},
    {"window16.0", KVF_F32, KV, TOKEN, SNAP, SHARE},
    {"window16.1", KVF_F32, KV, TOKEN, SNAP, SHARE},
    {"under.0.01", KVF_U16, QUERY, BY_STEP, 0, SEEN},
    {"under.0.1", KVF_U16, QUERY, BY_STEP, 0, SEEN},
    {"under.seen", KVF_U16, QUERY, BY_STEP, 0, SEEN},
    {"received.L0H0.0", KVF_F32, RUN, BY_STEP, 0, SHARE},
    {"received.L0H0.3", KVF_F32, RUN, BY_STEP, 0, SHARE},
    {"query.pre.L0H0.d00", KVF_F32, RUN, BY_STEP, 0, REAL},
    {"query.pre.L0H0.d01", KVF_F32, RUN, BY_STEP, 0, REAL},
    {"query.post.L0H0.d00", KVF_F32, RUN, BY_STEP, 0, REAL},
    {"query.post.L0H0.d01", KVF_F32, RUN, BY_STEP, 0, REAL},
    {"near.all.0", KVF_U16, QUERY, BY_STEP, 0, SEEN},
    {"near.span.0", KVF_U16, QUERY, BY_STEP, 0, SEEN},
    SELECTED("top64"),
    SELECTED("mass.90"),
    SELECTED("mass.95"),
    USEFUL("top64"),
};
enum { N_PLANS = sizeof plans / sizeof *plans, GROUP = 9 };
_Static_assert((int)N_PLANS <= (int)MOST_COLUMNS, "room for all");

/* How the values of a column are changed. */
enum { MISSING = 8, TWICE = 16, PACKED = 32, OTHER = 64, BY_HEAD = 128 };
struct column {
    struct plan is;
    uint8_t how, seed;
};

/* The trace in progress, and the position in its bytes. */
struct making {
    struct source *s;
    unsigned char p[ANY_TRACE_ROOM];
    size_t n;
    uint64_t seq, link, random;
    struct record rec[2048];
    size_t n_rec;
    int layers;
    uint16_t kv[LAYERS], query[LAYERS];
    uint32_t T, prompt;
    struct column column[MOST_COLUMNS];
    int n_columns;
    void *encoder;
    unsigned char raw[ROOM_OF_VALUES], packed[2 * ROOM_OF_VALUES], scratch[ROOM_OF_VALUES];
};

static uint32_t salt(void)
{
    return 7;
}

static void put(struct making *m, struct record r, const void *payload, size_t n)
{
    if (m->n + RECORD_HEADER + padded(n) > ANY_TRACE_ROOM / 2 || m->n_rec == 2048)
        return;
    r.seq = m->seq++;
    r.salt = salt();
    r.offset = m->n;
    r.link = m->link;
    r.stored_len = n;
    if (r.raw_len == 0)
        r.raw_len = n;
    r.payload_crc = payload_crc(&r, payload, n);
    r.hash = m->link = record_header_write(m->p + m->n, &r);
    memset(m->p + m->n + RECORD_HEADER, 0, padded(n));
    if (n)
        memcpy(m->p + m->n + RECORD_HEADER, payload, n);
    m->n += RECORD_HEADER + padded(n);
    m->rec[m->n_rec++] = r;
}

static uint32_t random_of(struct making *m)
{
    m->random += 0x9e3779b97f4a7c15u;
    uint64_t x = m->random;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)((x ^ x >> 27) >> 20);
}

/* ---- header, shape, schema */

static const double edges[] = {NAN,   INFINITY, -INFINITY, -1,         0,          1,    65535,
                               1e300, -1e300,   1e-320,    4294967295, 4294967294, 1e16, -0.5};

static const char *number_text(struct making *m, double usual, char out[40])
{
    unsigned b = (unsigned)take(m->s, 1);
    double v = b < 200 ? usual + (b % 8) - (b > 7 ? 4 : 0) : edges[b % 14];
    if (b == 0)
        v = usual;
    snprintf(out, 40, isfinite(v) ? "%.17g" : "null", v);
    return out;
}

static void put_meta(struct making *m)
{
    static const char *const methods[] = {"trimkv", "full", "h2o", "", "\\u001b[31m", "snapkv"};
    char text[MOST_META], a[40], b[40], c[40], e[40], f[40];
    unsigned how = (unsigned)take(m->s, 1);
    size_t n;
    if (how % 8 == 7) {
        const char *any = take_text(m->s, 8 * (how >> 3), &n);
        put(m, (struct record){.type = REC_META, .flags = REC_CRITICAL}, any, n);
        return;
    }
    n = (size_t)snprintf(
        text, sizeof text,
        "{\"kvf\":{\"version\":\"1\"},\"model\":{\"name\":\"m\",\"hash\":\"%032d\","
        "\"layers\":%d,\"query_heads\":%d,\"kv_heads\":%d},\"tokenizer\":{\"hash\":\"%032d\"},"
        "\"run\":{\"prompt_tokens\":%s,\"document\":\"d%u\"},\"spans\":[{\"name\":\"needle\","
        "\"useful\":true,\"tokens\":[[%s,%s]]}],\"method\":{\"name\":\"%s\",\"budget\":%s,"
        "\"sinks\":%s,\"recent\":2,\"local\":0},%s\"gates\":{\"hash\":\"%032d\"}}",
        1, m->layers, m->query[0], m->kv[0], 2, number_text(m, m->prompt, a), how >> 3,
        number_text(m, 1, b), number_text(m, 4, c), methods[how % 8 % 6], number_text(m, 8, e),
        number_text(m, 1, f), how % 16 == 8 ? "\"plan\":{\"version\":1}," : "", 3);
    put(m, (struct record){.type = REC_META, .flags = REC_CRITICAL}, text, n);
}

/* Reads layers of 0 to 3 KV heads, each used by 1 to 4 query heads, or with an impossible number of
 * query heads. */
static void take_shape(struct making *m)
{
    m->layers = (int)(take(m->s, 1) % LAYERS) + 1;
    for (int l = 0; l < m->layers; l++) {
        unsigned b = (unsigned)take(m->s, 1) ^ 0x12; /* two KV heads of two query heads */
        m->kv[l] = b & 3;
        m->query[l] = (uint16_t)(b >> 6 == 3 ? b >> 2 & 7 : m->kv[l] * ((b >> 4 & 3) + 1));
    }
    m->T = (uint32_t)((take(m->s, 1) + 20) % (ANY_TRACE_STEPS + 1));
    m->prompt = m->T / 3;
}

static void take_columns(struct making *m)
{
    bool odd[N_PLANS] = {false};
    unsigned groups = (unsigned)take(m->s, 1); /* mask of column groups; 0: all groups */
    uint64_t n = take(m->s, 1) % 16;           /* columns to add or remove */
    for (uint64_t k = 0; k < n; k++)
        odd[take(m->s, 1) % N_PLANS] ^= true;
    for (int i = 0; i < N_PLANS; i++)
        if ((!groups || groups >> (i / GROUP) % 8 & 1) != odd[i])
            m->column[m->n_columns++] = (struct column){plans[i], 0, (uint8_t)(i + 1)};
    for (uint64_t k = take(m->s, 1) % 16; k > 0 && m->n_columns; k--) {
        struct column *c = &m->column[take(m->s, 1) % (unsigned)m->n_columns];
        c->how = (uint8_t)take(m->s, 1);
        c->seed = (uint8_t)take(m->s, 1);
        if (!(c->how & OTHER) || c->is.kind == LISTS)
            continue;
        unsigned b = (unsigned)take(m->s, 1);
        c->is.dtype = (uint8_t)(b % 9 + 1);
        c->is.space = (uint8_t)(b / 9 % 3);
        c->is.axis = (uint8_t)(b / 27 % 2);
        c->is.flags = (uint8_t)(b / 54 % 4);
    }
}

static void put_schema(struct making *m)
{
    unsigned char *p = m->raw;
    size_t at = 4;
    put_le(p, (uint64_t)m->layers, 4);
    for (int l = 0; l < m->layers; l++, at += 4) {
        put_le(p + at, m->kv[l], 2);
        put_le(p + at + 2, m->query[l], 2);
    }
    put_le(p + at, (uint64_t)m->n_columns, 4);
    at += 4;
    for (int i = 0; i < m->n_columns; i++, at += COLUMN_ENTRY) {
        const struct plan *c = &m->column[i].is;
        memset(p + at, 0, COLUMN_ENTRY);
        memcpy(p + at, c->name, strlen(c->name));
        p[at + 48] = c->dtype;
        p[at + 49] = c->space;
        p[at + 50] = c->axis;
        p[at + 51] = c->flags;
    }
    put(m, (struct record){.type = REC_SCHEMA, .flags = REC_CRITICAL}, p, at);
}

/* ---- values */

static double honest(struct making *m, int kind, uint32_t i)
{
    uint32_t r = random_of(m), left = m->T - i; /* at least 1 */
    double share = (r >> 8) % 4096 / 4096.;
    switch (kind) {
    case ID:
        return r % 50;
    case ROLE:
        return i < m->prompt ? 0 : 1 + r % 2;
    case STEP:
        return r % 3 == 0 ? -1. : i + 1 + (r >> 4) % left;
    case REASON:
        return r % 6;
    case AGE:
        return r % 8 == 0 ? -1. : (r >> 4) % left;
    case COUNT:
        return r % 2 ? 0 : (r >> 4) % left;
    case SEEN:
        return r % (i + 1);
    case REAL:
        return share * 8 - 4;
    case POSITIVE:
        return share * 4;
    case NEGATIVE:
        return -share * share;
    case BITS:
        return r;
    default:
        return share;
    }
}

static double value(struct making *m, const struct column *c, uint32_t i)
{
    unsigned mode = c->how & 7;
    double v = honest(m, c->is.kind, i);
    uint64_t bits;
    if (mode == 1 && random_of(m) % 8 == 0)
        return edges[random_of(m) % 14];
    if (mode == 2)
        return edges[random_of(m) % 14];
    if (mode == 3)
        return (double)random_of(m) - (double)(random_of(m) % 4);
    if (mode == 4)
        return edges[c->seed % 14];
    if (mode == 5) {
        bits = take(m->s, 8);
        memcpy(&v, &bits, 8);
    }
    if (mode == 6)
        return (double)(i + c->seed) - 4;
    return mode == 7 ? c->seed : v;
}

/* Stores a value in the column's type. Integers that do not fit lose their upper bits. */
static void put_value(unsigned char *p, int dtype, double v)
{
    float f = (float)(fabs(v) > 3e38 && isfinite(v) ? 3e38 : v);
    int64_t whole = isnan(v) ? 0 : v >= 9e18 ? INT64_MAX : v <= -9e18 ? INT64_MIN : (int64_t)v;
    size_t width = kvf_dtype_size((enum kvf_dtype)dtype);
    if (dtype == KVF_F64)
        memcpy(p, &v, 8);
    else if (dtype == KVF_F32)
        memcpy(p, &f, 4);
    else
        put_le(p, (uint64_t)whole, (int)width);
}

static void put_packed(struct making *m, struct record r, size_t n, size_t width, bool packed)
{
    uint32_t codec = CODEC_RAW;
    size_t len = n;
    r.raw_len = n;
    if (packed && n)
        len = codec_encode(m->encoder, m->raw, n, (int)width, m->packed, m->scratch, &codec);
    r.codec = codec;
    put(m, r, packed && n ? m->packed : m->raw, len);
}

static void put_values(struct making *m, struct record r, const struct column *c)
{
    size_t width = kvf_dtype_size((enum kvf_dtype)c->is.dtype), at = 0;
    for (uint32_t k = 0; k < (uint32_t)r.n_heads * r.n; k++, at += width)
        put_value(m->raw + at, c->is.dtype, value(m, c, r.t0 + k % r.n));
    put_packed(m, r, at, width, c->how & PACKED);
}

/* Writes two intervals per token, or invalid lists that do not ascend. */
static void put_lists(struct making *m, struct record r, const struct column *c)
{
    uint32_t lists = (uint32_t)r.n_heads * r.n, n = 0;
    unsigned char *v = m->raw + (size_t)lists * 4;
    for (uint32_t k = 0; k < lists; k++) {
        uint32_t i = r.t0 + k % r.n, last = i + random_of(m) % (m->T - i), count = random_of(m) % 3;
        for (uint32_t j = 0; j < count; j++, n++) {
            bool odd = (c->how & 7) > 1 && random_of(m) % 4 == 0;
            uint32_t first = j ? last + 2 : i;
            last = j ? first : last;
            if (last >= m->T && !odd)
                break;
            put_le(v + 8 * (size_t)n, odd ? random_of(m) : first, 4);
            put_le(v + 8 * (size_t)n + 4, odd ? random_of(m) : last, 4);
        }
        put_le(m->raw + 4 * (size_t)k, n, 4);
    }
    r.type = REC_INTERVALS;
    put_packed(m, r, 4 * (size_t)lists + 8 * (size_t)n, 4, c->how & PACKED);
}

static void put_column(struct making *m, int number)
{
    const struct column *c = &m->column[number];
    int layers = c->is.space == RUN ? 1 : m->layers;
    m->random = c->seed;
    for (int l = 0; l < layers; l++) {
        int heads = c->is.space == RUN ? 1 : c->is.space == KV ? m->kv[l] : m->query[l];
        int each = c->how & BY_HEAD ? 1 : heads;
        for (int h = 0; h < heads; h += each) {
            struct record r = {.type = REC_COLUMN,
                               .column = (uint32_t)number,
                               .layer = (uint16_t)l,
                               .head0 = (uint16_t)h,
                               .n_heads = (uint16_t)each,
                               .n = m->T,
                               .epoch = c->is.flags & SNAP ? 1 : 0};
            if (c->how & MISSING && h == 0)
                r.n = c->seed % 2 ? m->T / 2 : 0;
            for (int twice = 0; r.n && twice <= (c->how & TWICE ? 1 : 0); twice++)
                if (c->is.kind == LISTS)
                    put_lists(m, r, c);
                else
                    put_values(m, r, c);
        }
    }
}

/* ---- texts, blobs, notes, the end */

static void put_texts(struct making *m, unsigned how)
{
    static const char *const words[] = {" the",
                                        "The",
                                        "\n",
                                        "1",
                                        "\xc3",
                                        "\xa9",
                                        "",
                                        ".",
                                        " re",
                                        "<|im_end|>",
                                        "\x1b",
                                        "\t##",
                                        "\xf0\x9f\x98\x80",
                                        " \xff\xfe",
                                        "\\x41"};
    size_t n = 0, text = (size_t)m->T * 4, len;
    for (uint32_t i = 0; i < m->T; i++) {
        const char *w = how & 1 ? take_text(m->s, take(m->s, 1) % 16, &len)
                                : words[random_of(m) % 15];
        if (!(how & 1))
            len = strlen(w);
        memcpy(m->raw + text + n, w, len);
        n += len;
        put_le(m->raw + 4 * (size_t)i, how & 2 && random_of(m) % 8 == 0 ? random_of(m) : n, 4);
    }
    struct record r = {.type = REC_TOKENS, .n = how & 4 ? m->T / 2 : m->T};
    if (!(how & 8) && r.n)
        put(m, r, m->raw, text + n);
}

static void put_blob(struct making *m, unsigned how)
{
    struct kvf_blob b = {.name = "k", .dtype = KVF_F16, .rank = 2, .shape = {m->T, 2}};
    struct record r = {.type = REC_BLOB, .t0 = how & 8 ? m->T : 0};
    if (how & 1)
        b.dtype = (uint8_t)(take(m->s, 1) % 9 + 1);
    if (how & 2)
        b.shape[1] = (uint32_t)take(m->s, 1);
    r.layer = b.layer = how & 4 ? (uint16_t)(take(m->s, 1) % 4) : 0;
    size_t n = kvf_blob_size(&b);
    if (n == 0 || n + BLOB_HEADER > sizeof m->raw)
        return;
    blob_header_write(m->raw, &b);
    for (size_t i = 0; i < n; i++)
        m->raw[BLOB_HEADER + i] = (unsigned char)random_of(m);
    r.raw_len = n;
    put(m, r, m->raw, BLOB_HEADER + n);
}

static void put_note(struct making *m, unsigned how)
{
#define NOTE(text)                                                                                 \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }
    static const struct {
        const char *text;
        size_t n;
    } notes[] = {
        NOTE("result\0{\"text\":\"a\\u0000b\",\"generated\":3}"),
        NOTE("part\0{\"from\":0,\"to\":20,\"of\":40,\"whole\":\"\"}"),
        NOTE("part\0{\"from\":-1,\"to\":4294967297,\"of\":1e99}"),
        NOTE("repaired\0{}"),
        NOTE("x\0"),
        NOTE("result\0[[[[1]]]]"),
    };
    size_t n;
    if (how & 128) {
        const char *text = take_text(m->s, how & 127, &n);
        put(m, (struct record){.type = REC_NOTE}, text, n);
    } else {
        put(m, (struct record){.type = REC_NOTE}, notes[how % 6].text, notes[how % 6].n);
    }
}

static void put_commit(struct making *m, unsigned how)
{
    unsigned char p[8];
    uint64_t steps = how & 1 ? take(m->s, 3) : m->T;
    put_le(p, 1, 4);
    put_le(p + 4, steps, 4);
    put(m, (struct record){.type = REC_COMMIT, .flags = REC_CRITICAL, .epoch = 1}, p, 8);
}

static void put_end(struct making *m)
{
    struct footer f = {.index_offset = m->n, .n_records = m->n_rec, .salt = salt(), .clean = true};
    static unsigned char index[2048 * INDEX_ENTRY];
    size_t n = m->n_rec;
    qsort(m->rec, n, sizeof *m->rec, record_compare);
    for (size_t i = 0; i < n; i++)
        index_entry_write(index + i * INDEX_ENTRY, &m->rec[i]);
    m->n_rec = 0;
    put(m, (struct record){.type = REC_INDEX}, index, n * INDEX_ENTRY);
    f.last = m->link;
    footer_write(m->p + m->n, &f);
    m->n += FOOTER;
}

const unsigned char *any_trace_as(struct source *s, enum any_end how, size_t *ret_n)
{
    static struct making m;
    m.s = s;
    m.n = FILE_HEADER;
    m.seq = m.n_rec = 0;
    m.n_columns = 0;
    if (!m.encoder)
        m.encoder = codec_create();
    file_header_write(m.p, &(struct hash128){.low = salt(), .high = 9});
    m.link = hash64(m.p, FILE_HEADER);
    take_shape(&m);
    m.T += how == ANY_TAIL ? 5 : 0;
    take_columns(&m);
    unsigned end = (unsigned)take(s, 1), texts = (unsigned)take(s, 1), more = (unsigned)take(s, 1);
    put_meta(&m);
    put_schema(&m);
    m.random = texts >> 4;
    put_texts(&m, texts);
    for (int i = 0; m.T && i < m.n_columns; i++)
        put_column(&m, i);
    for (unsigned k = 0; k < (more & 3); k++)
        put_blob(&m, (unsigned)take(s, 1));
    for (unsigned k = 0; k < (more >> 2 & 3); k++)
        put_note(&m, (unsigned)take(s, 1));
    if (end % 8 != 2)
        put_commit(&m, end % 8);
    if (how == ANY_TAIL || (how == ANY_END && end % 8 != 3))
        put_end(&m);
    *ret_n = m.n;
    return m.p;
}

void any_trace_digest(unsigned char *p, size_t n)
{
    struct footer f;
    struct kvf_trace *t = NULL;
    unsigned long long high, low;
    char path[64], text[33];
    if (n < FOOTER || !footer_read(p + n - FOOTER, salt(), &f))
        return;
    int fd = memory_file(p, n, path);
    if (kvf_open(path, KVF_OPEN_STRICT, &t, NULL) == KVF_OK && kvf_digest(t, text, NULL) == KVF_OK
        && sscanf(text, "%16llx%16llx", &high, &low) == 2) {
        f.digest = (struct hash128){.high = high, .low = low};
        footer_write(p + n - FOOTER, &f);
    }
    kvf_close(t);
    close(fd);
}
