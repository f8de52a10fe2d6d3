/* test_judge.c - the findings of kvf_judge for traces with correct checksums and impossible
 * contents: one sentence for each kind, and no finding for a valid trace. Also tests the limits of
 * declarations. */
#include "maker.h"

static char heard[8192];
static int n_heard;

static void hear(void *ctx, const char *line)
{
    (void)ctx;
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s\n", line);
    n_heard++;
}

/* Writes a schema of one layer with these heads and columns. */
static size_t schema(unsigned char *s, int kv, int query, const struct kvf_column *c, int n)
{
    memset(s, 0, 12 + (size_t)n * COLUMN_ENTRY);
    put_le(s, 1, 4);
    put_le(s + 4, (uint64_t)kv, 2);
    put_le(s + 6, (uint64_t)query, 2);
    put_le(s + 8, (uint64_t)n, 4);
    for (int i = 0; i < n; i++) {
        unsigned char *p = s + 12 + (size_t)i * COLUMN_ENTRY;
        memcpy(p, c[i].name, strlen(c[i].name));
        p[48] = c[i].dtype;
        p[49] = c[i].space;
        p[50] = c[i].axis;
        p[51] = c[i].flags;
    }
    return 12 + (size_t)n * COLUMN_ENTRY;
}

static struct maker *with_columns(int kv, int query, const struct kvf_column *c, int n)
{
    struct maker *m = malloc(sizeof *m);
    unsigned char s[12 + 32 * COLUMN_ENTRY];
    start_with(m, s, schema(s, kv, query, c, n));
    return m;
}

/* Appends values of one head of a column. */
static void values(struct maker *m, uint32_t number, int head, const void *v, size_t bytes,
                   uint32_t n)
{
    struct record r = column(n, bytes, bytes, CODEC_RAW);
    r.column = number;
    r.head0 = (uint16_t)head;
    put(m, r, v, bytes);
}

static void end(struct maker *m, uint32_t steps)
{
    commit(m, 1, steps);
    qsort(m->rec, m->n_rec, sizeof *m->rec, record_compare);
    finish(m, m->rec, m->n_rec);
}

static int judge(struct maker *m)
{
    int n = -1;
    heard[0] = 0;
    n_heard = 0;
    OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_STRICT);
    cr_assert(zero(int, kvf_judge(t, 1, hear, NULL, &n)));
    cr_expect(eq(int, n, n_heard));
    free(m);
    return n;
}

static void expect(struct maker *m, const char *words)
{
    cr_expect(eq(int, judge(m), 1), "%s", heard);
    cr_expect(ne(ptr, strstr(heard, words), NULL), "%s", heard);
}

static const struct kvf_column one = {"x-one", KVF_U32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""};
static const struct kvf_column role = {"tokens.role", KVF_U8, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""};
static const struct kvf_column id = {"tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""};

Test(judge, an_honest_trace)
{
    struct maker *m = with_columns(2, 4, &one, 1);
    values(m, 0, 0, four, sizeof four, 4);
    end(m, 4);
    cr_expect(zero(int, judge(m)), "%s", heard);
}

Test(judge, values_that_are_there_twice)
{
    struct maker *m = with_columns(2, 4, &one, 1);
    values(m, 0, 0, four, sizeof four, 4);
    values(m, 0, 0, four, sizeof four, 4);
    end(m, 4);
    expect(m, "both have x-one of layer 0 at 0");
}

Test(judge, records_of_several_heads_that_meet)
{
    struct kvf_column c = one;
    c.space = KVF_SPACE_KV;
    struct maker *m = with_columns(2, 4, &c, 1);
    struct record r = column(2, sizeof four, sizeof four, CODEC_RAW);
    r.n_heads = 2; /* both heads of tokens 0 and 1, then head 1 of tokens 1 to 4 */
    put(m, r, four, sizeof four);
    r = column(4, sizeof four, sizeof four, CODEC_RAW);
    r.head0 = 1;
    r.t0 = 1;
    put(m, r, four, sizeof four);
    end(m, 5);
    cr_expect(ge(int, judge(m), 1));
    cr_expect(ne(ptr, strstr(heard, "both have x-one of layer 0 at 1"), NULL), "%s", heard);
}

Test(judge, values_beyond_the_last_step)
{
    struct maker *m = with_columns(2, 4, &one, 1);
    values(m, 0, 0, four, sizeof four, 4);
    end(m, 3);
    expect(m, "x-one of layer 0 has values up to 4, and the trace has 3 steps");
}

Test(judge, columns_of_another_shape)
{
    struct kvf_column c = {"mass.sum", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""};
    struct maker *m = with_columns(2, 4, &c, 1);
    static const float v[4] = {0};
    values(m, 0, 0, v, sizeof v, 4);
    end(m, 4);
    expect(m, "mass.sum must not have a value for each token");
    c.space = KVF_SPACE_QUERY;
    c.axis = KVF_AXIS_STEP;
    m = with_columns(1, 1, &c, 1);
    values(m, 0, 0, v, sizeof v, 4);
    end(m, 4);
    expect(m, "mass.sum must not have a value for each query head and step");
}

Test(judge, numbers_that_no_run_records)
{
    static const int32_t low[4] = {3, -1, 2, 1};
    static const uint8_t high[4] = {0, 1, 4, 5};
    struct maker *m = with_columns(2, 4, &id, 1);
    values(m, 0, 0, low, sizeof low, 4);
    end(m, 4);
    expect(m, "tokens.id of layer 0, head 0 is -1 at 1, which cannot be");
    m = with_columns(2, 4, &role, 1);
    values(m, 0, 0, high, sizeof high, 4);
    end(m, 4);
    expect(m, "tokens.role of layer 0, head 0 is 5 at 3, which cannot be");
}

Test(judge, heads_that_do_not_go_together)
{
    static const int heads[2][2] = {{2, 3}, {0, 4}};
    static const char *const words[2] = {"layer 0 has 3 query heads for 2 KV heads",
                                         "layer 0 has 4 query heads for 0 KV heads"};
    for (int k = 0; k < 2; k++) {
        struct maker *m = with_columns(heads[k][0], heads[k][1], &one, 1);
        values(m, 0, 0, four, sizeof four, 4);
        end(m, 4);
        expect(m, words[k]);
    }
}

Test(judge, names_that_are_there_twice)
{
    const struct kvf_column c[2] = {one, one};
    struct maker *m = with_columns(2, 4, c, 2);
    values(m, 0, 0, four, sizeof four, 4);
    values(m, 1, 0, four, sizeof four, 4);
    end(m, 4);
    expect(m, "two columns have the name x-one");
}

Test(judge, no_more_findings_than_promised)
{
    struct kvf_column c[30];
    for (int i = 0; i < 30; i++) {
        c[i] = one;
        snprintf(c[i].name, sizeof c[i].name, "x-%d", i);
    }
    struct maker *m = with_columns(2, 4, c, 30);
    end(m, 4);
    cr_expect(eq(int, judge(m), KVF_MAX_FINDINGS));
    for (int i = 0; i < 30; i++) /* all with one name: findings are then full */
        c[i] = one;
    m = with_columns(2, 4, c, 30);
    end(m, 4);
    cr_expect(eq(int, judge(m), KVF_MAX_FINDINGS));
}

/* 5 columns of 2^24 equal values, in a file of one kilobyte. */
Test(judge, more_values_than_a_run_has_are_not_looked_at)
{
    enum { N = 5, T = 1 << 24 };
    struct kvf_column c[N];
    for (int i = 0; i < N; i++) {
        c[i] = one;
        c[i].dtype = KVF_U8;
        snprintf(c[i].name, sizeof c[i].name, "x-%d", i);
    }
    struct maker *m = with_columns(2, 4, c, N);
    for (uint32_t i = 0; i < N; i++) {
        struct record r = column(T, T, 1, CODEC_CONSTANT);
        r.column = i;
        put(m, r, "\1", 1);
    }
    end(m, T);
    expect(m, "are no record of a run, and were not looked at");
}

/* Records of two heads with disjoint tokens: each must be compared with all later ones. */
Test(judge, records_that_are_too_entangled)
{
    enum { N = 12500 };
    static const uint16_t two = 2;
    const char *path = scratch_path("entangled");
    const struct kvf_shape shape = {1, &two, &two};
    const struct kvf_column c = {"evict_rank", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0, ""};
    struct kvf_writer *w;
    int n = -1;
    heard[0] = 0;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &c, 1, NULL, &w, NULL)));
    for (uint32_t i = 0; i < N; i++)
        cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 2, i, 1, 0, (uint32_t[2]){0, 0})));
    cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 1, 1, N, 1, 0, (uint32_t[1]){0})));
    cr_assert(zero(int, kvf_writer_commit(w, 1, N)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_assert(zero(int, kvf_judge(t, 0, hear, NULL, &n)));
    cr_expect(ne(ptr, strstr(heard, "too entangled to be judged"), NULL), "%s", heard);
    kvf_close(t);
    unlink(path);
}

/* ---- limits of declarations */

static int check_size(struct maker *m, struct kvf_diag *d)
{
    OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_STRICT);
    int err = kvf_check_size(t, d);
    free(m);
    return err;
}

Test(declared, steps)
{
    struct kvf_diag d = {""};
    struct maker *m = with_columns(2, 4, &one, 1);
    end(m, 1 << 17);
    cr_expect(zero(int, check_size(m, &d)));
    m = with_columns(2, 4, &one, 1);
    end(m, (1 << 17) + 1);
    cr_expect(eq(int, check_size(m, &d), KVF_E_LIMIT));
    cr_expect(ne(ptr, strstr(d.text, "declares 131073 steps"), NULL), "%s", d.text);
}

/* 2^17 heads is the maximum for a file of any size. */
Test(declared, heads)
{
    for (size_t L = 16; L <= 17; L++) {
        unsigned char s[4 + 4 * 17 + 4] = {(unsigned char)L};
        struct maker *m = malloc(sizeof *m);
        struct kvf_diag d = {""};
        for (size_t l = 0; l < 2 * L; l++)
            put_le(s + 4 + 2 * l, 4096, 2);
        start_with(m, s, 4 + 4 * L + 4);
        end(m, 1);
        cr_expect(eq(int, check_size(m, &d), L == 16 ? KVF_OK : KVF_E_LIMIT), "%s", d.text);
        cr_expect(L == 16 || strstr(d.text, "declares 139264 heads"), "%s", d.text);
    }
}

Test(declared, columns_that_decode_to_too_much)
{
    enum { N = 70 };
    struct kvf_check check;
    struct kvf_diag d = {""};
    OWNED(free) struct maker *m = with_columns(2, 4, &one, 1);
    for (uint32_t i = 0; i < N; i++) { /* 70 times 16 MiB in 8 KB */
        struct record r = column(1 << 22, 1 << 24, 4, CODEC_CONSTANT);
        r.t0 = i << 10;
        put(m, r, "\1\1\1\1", 4);
    }
    end(m, 1);
    cr_expect(ne(int, kvf_verify(as_file(m->p, m->n), 1, &check, &d), KVF_OK));
    cr_expect(ne(ptr, strstr(d.text, "no record of a run"), NULL), "%s", d.text);
}
