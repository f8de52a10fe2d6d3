/* make_trace.c - writes small synthetic traces without a model.
 *   usage: make_trace usual|one|zero|bare OUT.kvf
 *
 * usual: 3 layers, 2 KV heads, 4 query heads, 40 tokens whose texts are difficult for table files.
 * bare: the same without evictions and ages.  one: 1 token.  zero: no tokens.  Head h at token i
 * has evict_step = i + 3 + (7 i + h) mod 20, alive from T on, and last_selected.C = (5 i + 3 h + c)
 * mod (T - i), never if (i + h) mod 9 = 4. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>
#include <kvf/trace.h>

enum {
    L = 3,
    H = 2,
    G = 4,
    MOST = 40,
    FIXED = 3,
    EVICT = 5,
    MANY = FIXED + EVICT + KVF_N_CRITERIA
};

static const char meta[] =
    "{\"kvf\":{\"version\":\"0\"},\"model\":{\"name\":\"a <b> & \\\"c\\\", d\\te\\u0001f ]]> "
    "\\u4f60\","
    "\"hash\":\"00\",\"query_heads\":4,\"kv_heads\":2},\"run\":{\"prompt_tokens\":30},"
    "\"method\":{\"name\":\"made-up\",\"budget\":1000}}";

static const struct {
    const char *s;
    size_t n;
} texts[] = {
#define T(s)                                                                                       \
    {                                                                                              \
        s, sizeof(s) - 1                                                                           \
    }
    T("<|im_start|>"),
    T(" a,b"),
    T("say \"hi\""),
    T("\n"),
    T("\r\n"),
    T("\t"),
    T("\0"),
    T("x\0y"),
    T("\xff\xfe"),
    T("\xe4\xbd"),
    T("\xa0"),
    T("\xf0\x9f\x98"),
    T("\x80"),
    T("back\\slash"),
    T("\\n"),
    T(""),
    T("'"),
    T("=1+2"),
    T("<&>"),
    T("]]>"),
    T("42"),
    T(";"),
    T("\xc3\xa9"),
    T("\xed\xa0\x80"),
    T("\x1b[31m"),
    T("\xe2\x80\xae"),
    T("\xe4\xb8\xad\xe6\x96\x87"),
    T("#"),
    T("# a: b"),
    T("nan"),
#undef T
};

static int put_texts(struct kvf_writer *w, uint32_t n)
{
    char bytes[1024];
    uint32_t end[MOST], at = 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t k = i % (sizeof texts / sizeof *texts);
        memcpy(bytes + at, texts[k].s, texts[k].n);
        at += (uint32_t)texts[k].n;
        end[i] = at;
    }
    return n ? kvf_write_token_bytes(w, 0, n, end, bytes) : KVF_OK;
}

static int put_fixed(struct kvf_writer *w, uint32_t n)
{
    int32_t id[MOST];
    uint8_t role[MOST];
    float nll[MOST];
    for (uint32_t i = 0; i < n; i++) {
        id[i] = (int32_t)(i * i);
        role[i] = i >= 30;
        nll[i] = i % 6 == 0 ? NAN : 0.25f * (float)i;
    }
    int err = kvf_write_chunk(w, 0, 0, 0, 1, 0, n, 0, id);
    if (!err)
        err = kvf_write_chunk(w, 1, 0, 0, 1, 0, n, 0, role);
    return err ? err : kvf_write_chunk(w, 2, 0, 0, 1, 0, n, 0, nll);
}

static int put_evictions(struct kvf_writer *w, int layer, int h, uint32_t n)
{
    uint32_t step[MOST];
    uint8_t reason[MOST], tie[MOST];
    float score[MOST], margin[MOST];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = i + 3 + (7 * i + (uint32_t)(layer * H + h)) % 20;
        step[i] = t >= n ? KVF_ALIVE : t;
        reason[i] = t < n;
        tie[i] = t < n && i % 5 == 0;
        score[i] = margin[i] = t < n ? 1.0f / (float)(i + 1) : NAN;
    }
    const void *const data[EVICT] = {step, reason, score, margin, tie};
    int err = KVF_OK;
    for (int c = 0; !err && c < EVICT; c++)
        err = kvf_write_chunk(w, FIXED + c, layer, h, 1, 0, n, 1, data[c]);
    return err;
}

static int put_ages(struct kvf_writer *w, int layer, int g, uint32_t n)
{
    uint16_t age[MOST];
    int err = KVF_OK;
    for (uint32_t c = 0; !err && c < KVF_N_CRITERIA; c++) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t h = (uint32_t)(layer * G + g);
            age[i] = (i + h) % 9 == 4 ? 0xffff : (uint16_t)((5 * i + 3 * h + c) % (n - i));
        }
        err = kvf_write_chunk(w, FIXED + EVICT + (int)c, layer, g, 1, 0, n, 1, age);
    }
    return err;
}

static int columns(struct kvf_column *col, bool bare)
{
    static const struct kvf_column first[] = {
        {"tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
        {"tokens.role", KVF_U8, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
        {"nll", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, "nat"},
        {"evict_step", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "step"},
        {"evict_reason", KVF_U8, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"evict_score", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"evict_margin", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"evict_tie", KVF_U8, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
    };
#define X(name) "last_selected." #name,
    static const char *const ages[] = {KVF_CRITERIA_MAP(X)};
#undef X
    memcpy(col, first, sizeof first);
    for (int c = 0; c < KVF_N_CRITERIA; c++) {
        col[FIXED + EVICT + c] = (struct kvf_column){
            "", KVF_U16, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_AGE, "step"};
        snprintf(col[FIXED + EVICT + c].name, KVF_NAME_MAX, "%s", ages[c]);
    }
    return bare ? FIXED : MANY;
}

static int write_trace(struct kvf_writer *w, uint32_t n, bool bare)
{
    int err = n ? put_fixed(w, n) : KVF_OK;
    if (!err)
        err = put_texts(w, n);
    for (int l = 0; !err && n && !bare && l < L; l++) {
        for (int h = 0; !err && h < H; h++)
            err = put_evictions(w, l, h, n);
        for (int g = 0; !err && g < G; g++)
            err = put_ages(w, l, g, n);
    }
    return err ? err : kvf_writer_commit(w, 1, n);
}

int main(int argc, char **argv)
{
    static const uint16_t kv[L] = {H, H, H}, query[L] = {G, G, G};
    const struct kvf_shape shape = {L, kv, query};
    struct kvf_column col[MANY];
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {""};
    if (argc != 3)
        return 2;
    bool bare = strcmp(argv[1], "bare") == 0;
    uint32_t n = strcmp(argv[1], "one") == 0 ? 1 : strcmp(argv[1], "zero") == 0 ? 0 : MOST;
    int n_columns = columns(col, bare);
    int err = kvf_writer_open(argv[2], meta, &shape, col, n_columns,
                              &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w, &d);
    if (!err)
        err = write_trace(w, n, bare);
    int closed = kvf_writer_close(w, &d);
    if (err || closed)
        fprintf(stderr, "make_trace: %s %s\n", kvf_strerror(err ? err : closed), d.text);
    return err || closed ? 1 : 0;
}
