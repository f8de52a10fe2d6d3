/* test_pieces.c - pieces of traces: their names, numbers and errors, and which pieces can be
 * joined. */
#include <kvf/copy.h>
#include <kvf/schema.h>

#include "maker.h"
#include "paths.h"

TestSuite(pieces, .init = names, .fini = remove_all);
TestSuite(join, .init = names, .fini = remove_all);

enum { T = 8, LAYERS = 2, HEADS = 2, GROUP = 2 };

static const uint16_t n_kv[LAYERS] = {HEADS, HEADS},
                      n_query[LAYERS] = {HEADS * GROUP, HEADS *GROUP};
static const struct kvf_column columns[] = {
    {"evict_step", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "step"},
    {"shadow.first_hit", KVF_U32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
    {"received.L1H2.3", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
    {"received.L0H0.2", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
    {"query.pre.L1H3.d00", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
    {"query.post.L1H0.d00", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
    {"shadow.residual_error.L1", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
    {"shadow.residual_error.L0", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
    {"received.x", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
};
enum { COLUMNS = sizeof columns / sizeof *columns, STEPS_OF = 0, HITS_OF = 1 };

/* The properties of a trace. */
struct made {
    const char *meta, *part; /* note "part"; NULL: no note */
    const struct kvf_trace *run;
    int n_columns;
    uint32_t steps, first; /* first: added to every value of the run's columns */
    uint32_t evict;        /* of token 4 of the first head; other tokens are never evicted */
    bool unclosed, silent; /* silent: the first KV head of layer 1 has no values */
};
static const struct made usual = {"{}", NULL, NULL, COLUMNS, T, 0, 6, false, false};

static void write_run(struct kvf_writer *w, const struct made *m, int c)
{
    float v[T];
    for (uint32_t i = 0; i < m->steps; i++)
        v[i] = (float)(m->first + i + (uint32_t)c * 100);
    cr_assert(zero(int, kvf_write_chunk(w, c, 0, 0, 1, 0, m->steps, 0, v)));
}

static void write_heads(struct kvf_writer *w, const struct made *m, int c)
{
    uint32_t v[T];
    int heads = c == STEPS_OF ? HEADS : HEADS * GROUP;
    for (int l = 0; l < LAYERS; l++)
        for (int h = m->silent && l == 1 ? 1 : 0; h < heads; h++) {
            for (uint32_t i = 0; i < m->steps; i++)
                v[i] = KVF_NEVER;
            if (l == 0 && h == 0 && m->steps > 4)
                v[4] = m->evict;
            cr_assert(zero(int, kvf_write_chunk(w, c, l, h, 1, 0, m->steps, 1, v)));
        }
}

static void make(const char *path, const struct made *m)
{
    const struct kvf_shape shape = {LAYERS, n_kv, n_query};
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE, .run = m->run};
    struct kvf_writer *w;
    succeeds(kvf_writer_open(path, m->meta, &shape, columns, m->n_columns, &o, &w, &d));
    for (int c = 0; c < m->n_columns; c++)
        if (c <= HITS_OF)
            write_heads(w, m, c);
        else
            write_run(w, m, c);
    cr_assert(zero(int, kvf_writer_commit(w, 1, m->steps)));
    if (m->part)
        cr_assert(zero(int, kvf_writer_note(w, "part", m->part)));
    if (m->unclosed)
        kvf_writer_abandon(w);
    else
        succeeds(kvf_writer_close(w, &d));
}

static int copy_trace(struct kvf_trace *t, const struct kvf_piece *piece, const char *to,
                      bool overwrite, struct kvf_copied *ret, struct kvf_diag *d)
{
    const struct kvf_copy_request q = {
        .trace = t, .piece = piece, .out = to, .overwrite = overwrite};
    return kvf_copy(&q, ret, d);
}

static int take(const char *from, struct kvf_piece p, const char *to, struct kvf_diag *d)
{
    struct kvf_copied made;
    OWNED(kvf_close) struct kvf_trace *t = opened(from, KVF_OPEN_TAIL);
    int err = copy_trace(t, &p, to, true, &made, d);
    return err;
}

static void taken(const char *from, struct kvf_piece p, const char *to)
{
    succeeds(take(from, p, to, &d));
}

static int join(const char *a, const char *b, struct kvf_diag *d)
{
    struct kvf_copied made;
    struct kvf_trace *t[2] = {opened(a, KVF_OPEN_TAIL), opened(b, KVF_OPEN_TAIL)};
    int err = kvf_copy(
        &(struct kvf_copy_request){.part = t, .n_parts = 2, .out = out, .overwrite = true}, &made,
        d);
    kvf_close(t[0]);
    kvf_close(t[1]);
    return err;
}

static void refused(const char *a, const char *b, int err, const char *words)
{
    struct kvf_diag d = {""};
    cr_expect(eq(int, join(a, b, &d), err), "%s", words);
    cr_expect(ne(ptr, strstr(d.text, words), NULL), "%s: %s", words, d.text);
    cr_expect(ne(int, access(out, F_OK), 0));
}

/* ---- names and steps */

Test(pieces, names_of_heads_and_tokens_are_numbered_anew)
{
    static const unsigned char heads[] = {0, 0, 0, 1}; /* KV head 1 of layer 1: query heads 2, 3 */
    static const char *const want[] = {"evict_step",         "shadow.first_hit",
                                       "received.L0H0.1", /* layer 1, head 2, token 3 */
                                       "query.pre.L0H1.d00", "shadow.residual_error.L0",
                                       "received.x"};
    static const int was[] = {0, 1, 2, 4, 6, 8};
    make(in, &usual);
    taken(in, (struct kvf_piece){2, 7, heads}, out);
    struct kvf_trace *t = opened(out, KVF_OPEN_TAIL);
    float v[5];
    cr_assert(eq(int, kvf_n_columns(t), 6));
    for (int c = 0; c < 6; c++)
        cr_expect(eq(str, (char *)(uintptr_t)kvf_column(t, c)->name, (char *)(uintptr_t)want[c]));
    for (int c = 2; c < 6; c++) {
        cr_assert(zero(int, kvf_read(t, c, 0, 0, 0, 5, v, NULL)));
        for (int i = 0; i < 5; i++)
            cr_expect(v[i] == (float)(was[c] * 100 + 2 + i));
    }
    cr_expect(eq(int, kvf_n_layers(t), 1));
    cr_expect(eq(int, kvf_n_heads(t, 0, KVF_SPACE_QUERY), GROUP));
    kvf_close(t);
}

Test(pieces, a_head_before_others_of_its_layer)
{
    static const unsigned char heads[] = {1, 0, 1, 0};
    make(in, &usual);
    taken(in, (struct kvf_piece){0, 0, heads}, out);
    struct kvf_trace *t = opened(out,
                                 KVF_OPEN_TAIL); /* L1H2, L1H3 are removed, L1H0 and L0H0 stay */
    cr_expect(lt(int, kvf_find(t, "received.L1H2.3"), 0));
    cr_expect(lt(int, kvf_find(t, "query.pre.L1H3.d00"), 0));
    cr_expect(ge(int, kvf_find(t, "query.post.L1H0.d00"), 0));
    cr_expect(ge(int, kvf_find(t, "received.L0H0.2"), 0));
    kvf_close(t);
}

Test(pieces, steps_that_are_values_count_from_the_piece)
{
    uint32_t v[T];
    make(in, &usual);
    taken(in, (struct kvf_piece){3, 0, NULL}, out);
    struct kvf_trace *t = opened(out, KVF_OPEN_TAIL);
    for (int c = STEPS_OF; c <= HITS_OF; c++) {
        cr_assert(zero(int, kvf_read(t, c, 0, 0, 0, T - 3, v, NULL)));
        for (uint32_t i = 0; i < T - 3; i++)
            cr_expect(eq(u32, v[i], i == 1 ? 6 - 3 : KVF_NEVER));
    }
    kvf_close(t);
    char want[33], got[33];
    taken(in, (struct kvf_piece){0, 3, NULL}, other); /* and undo it */
    taken(in, (struct kvf_piece){3, 0, NULL}, third);
    succeeds(join(other, third, &d));
    struct kvf_trace *whole = opened(in, KVF_OPEN_TAIL), *again = opened(out, KVF_OPEN_TAIL);
    cr_assert(zero(int, kvf_digest(whole, want, NULL) + kvf_digest(again, got, NULL)));
    cr_expect(zero(int, strcmp(want, got)));
    kvf_close(whole);
    kvf_close(again);
}

Test(pieces, steps_before_the_piece_cannot_be)
{
    struct made m = usual;
    struct kvf_diag d = {""};
    m.evict = 2; /* of token 4 */
    make(in, &m);
    cr_expect(eq(int, take(in, (struct kvf_piece){3, 8, NULL}, out, &d), KVF_E_CORRUPT));
    cr_expect(
        ne(ptr, strstr(d.text, "a step of the column evict_step is 2, which cannot be"), NULL),
        "%s", d.text);
}

/* The first KV head of a layer has no values while other heads have some: they are copied
 * unchanged. */
Test(pieces, heads_of_which_nothing_is_known)
{
    struct made m = usual;
    uint32_t v[T];
    m.silent = true;
    make(in, &m);
    taken(in, (struct kvf_piece){1, 0, NULL}, out);
    struct kvf_trace *t = opened(out, KVF_OPEN_TAIL);
    cr_expect(eq(int, kvf_read(t, STEPS_OF, 1, 0, 0, T - 1, v, NULL), KVF_E_NOTFOUND));
    cr_expect(zero(int, kvf_read(t, STEPS_OF, 1, 1, 0, T - 1, v, NULL)));
    cr_expect(zero(int, kvf_read(t, HITS_OF, 1, 3, 0, T - 1, v, NULL)));
    kvf_close(t);
}

/* ---- errors */

Test(pieces, ranges_and_heads_that_there_are_not)
{
    static const uint32_t bad[][2] = {{5, 5}, {6, 2}, {0, 9}, {8, 0}};
    static const unsigned char none[LAYERS * HEADS] = {0};
    struct kvf_diag d = {""};
    make(in, &usual);
    for (int k = 0; k < 4; k++) {
        cr_expect(
            eq(int, take(in, (struct kvf_piece){bad[k][0], bad[k][1], NULL}, out, &d), KVF_E_ARG));
        cr_expect(ne(ptr, strstr(d.text, "selects no token, or more"), NULL), "%s", d.text);
    }
    cr_expect(eq(int, take(in, (struct kvf_piece){0, 0, none}, out, &d), KVF_E_ARG));
    cr_expect(ne(ptr, strstr(d.text, "no head is kept"), NULL), "%s", d.text);
    struct made m = usual;
    m.unclosed = true;
    make(other, &m);
    cr_expect(eq(int, take(other, (struct kvf_piece){0, 3, NULL}, out, &d), KVF_E_NOTFOUND));
    cr_expect(ne(ptr, strstr(d.text, "was not closed"), NULL), "%s", d.text);
    strcat(other, ".unfinished");
}

/* With three query heads for two KV heads, the query heads of one of them are undefined. */
Test(pieces, query_heads_that_go_with_no_kv_head)
{
    static const unsigned char heads[] = {1, 0};
    struct kvf_diag d = {""};
    struct kvf_copied made;
    OWNED(free) struct maker *m = start();
    put(m, column_of_four(), four, sizeof four);
    commit(m, 1, 4);
    qsort(m->rec, m->n_rec, sizeof *m->rec, record_compare);
    finish(m, m->rec, m->n_rec);
    OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_STRICT);
    int err = copy_trace(t, &(struct kvf_piece){0, 0, heads}, out, false, &made, &d);
    cr_expect(eq(int, err, KVF_E_ARG));
    cr_expect(ne(ptr, strstr(d.text, "3 query heads for 2 KV heads"), NULL), "%s", d.text);
}

Test(pieces, notes_that_are_no_part)
{
    static const char *const note[] = {
        "{}",
        "{\"from\":0,\"to\":8}",
        "{\"from\":8,\"to\":8,\"of\":9,\"whole\":\"\"}",
        "{\"from\":0,\"to\":8,\"of\":7,\"whole\":\"\"}",
        "{\"from\":0,\"to\":7,\"of\":9,\"whole\":\"\"}",
        "{\"from\":16777210,\"to\":16777218,\"of\":16777218,\"whole\":\"\"}",
    };
    struct kvf_part p;
    for (int k = 0; k < 6; k++) {
        struct made m = usual;
        m.part = note[k];
        make(in, &m);
        OWNED(kvf_close) struct kvf_trace *t = opened(in, KVF_OPEN_TAIL);
        cr_expect(eq(int, kvf_part(t, &p), KVF_E_NOTFOUND), "%s", note[k]);
    }
    struct made m = usual;
    m.part = "{\"from\":1,\"to\":9,\"of\":9,\"whole\":\"\"}";
    make(in, &m);
    struct kvf_trace *t = opened(in, KVF_OPEN_TAIL);
    cr_assert(zero(int, kvf_part(t, &p)));
    cr_expect(p.from == 1 && p.to == 9 && p.of == 9 && !p.whole[0]);
    kvf_close(t);
}

Test(join, what_does_not_belong_together)
{
    static const unsigned char heads[] = {1, 1, 1, 0};
    struct made m = usual;
    make(in, &usual);
    taken(in, (struct kvf_piece){0, 5, NULL}, other);
    taken(in, (struct kvf_piece){6, 8, NULL}, third);
    refused(other, third, KVF_E_ARG, "a part between them is missing");
    taken(in, (struct kvf_piece){4, 8, NULL}, third);
    refused(other, third, KVF_E_ARG, "they overlap, or their order is wrong");
    taken(in, (struct kvf_piece){5, 8, heads}, third);
    refused(other, third, KVF_E_ARG, "they have different heads");
    refused(other, in, KVF_E_ARG, "is no part of a trace");

    taken(in, (struct kvf_piece){0, 7, NULL}, out); /* a part of a part belongs to another trace */
    taken(out, (struct kvf_piece){5, 7, NULL}, third);
    unlink(out);
    refused(other, third, KVF_E_ARG, "");
    m.meta = "{\"another\":1}";
    make(in, &m);
    taken(in, (struct kvf_piece){5, 8, NULL}, third);
    refused(other, third, KVF_E_ARG, "they are of different runs");
}

/* One of two KV heads of a layer stays in each piece: the numbers are equal, the heads are not. */
Test(join, other_heads_of_equal_number)
{
    static const unsigned char first[] = {1, 0, 1, 1}, second[] = {0, 1, 1, 1};
    make(in, &usual);
    taken(in, (struct kvf_piece){0, 5, first}, other);
    taken(in, (struct kvf_piece){5, 8, second}, third);
    refused(other, third, KVF_E_ARG, "");
}

/* Parts with a false claim to be the rest of a trace: closed too early, with other columns, or with
 * other values. */
Test(join, parts_that_lie)
{
    static char said[128];
    struct kvf_part p;
    struct made m = usual;
    struct kvf_diag d = {""};
    make(in, &usual);
    taken(in, (struct kvf_piece){0, 5, NULL}, other);
    struct kvf_trace *run = opened(other, KVF_OPEN_TAIL);
    cr_assert(zero(int, kvf_part(run, &p)));
    snprintf(said, sizeof said, "{\"from\":5,\"to\":8,\"of\":8,\"whole\":\"%s\"}", p.whole);
    m = (struct made){"{}", said, run, COLUMNS, 3, 5, KVF_NEVER, true, false};
    make(third, &m);
    refused(other, third, KVF_E_NOTFOUND, "the trace was not closed");
    m.unclosed = false;
    make(third, &m);
    refused(other, third, KVF_E_ARG, "they have different columns"); /* received.L1H2.3 again */
    kvf_close(run);

    taken(in, (struct kvf_piece){5, 8, NULL}, third); /* the correct part */
    cr_expect(zero(int, join(other, third, &d)), "%s", d.text);
    unlink(out);
}

/* Another trace of the run, with different values, claims to be the rest. */
Test(join, a_rest_of_other_values)
{
    struct made m = usual;
    struct kvf_part p;
    char said[128];
    m.n_columns = 2; /* no column name contains a token */
    make(in, &m);
    taken(in, (struct kvf_piece){0, 5, NULL}, other);
    struct kvf_trace *run = opened(other, KVF_OPEN_TAIL);
    cr_assert(zero(int, kvf_part(run, &p)));
    for (int k = 0; k < 3; k++) {
        uint32_t of = k == 1 ? 9 : 8;
        snprintf(said, sizeof said, "{\"from\":5,\"to\":%u,\"of\":%u,\"whole\":\"%s\"}", of, of,
                 k == 2 ? "00000000000000000000000000000000" : p.whole);
        m = (struct made){"{}", said, run, 2, of - 5, 0, KVF_NEVER, false, k == 0};
        make(third, &m);
        if (k == 0)
            refused(other, third, KVF_E_CORRUPT, "joined they have the digest");
        else
            refused(other, third, KVF_E_ARG, "they are of different traces");
    }
    kvf_close(run);
}

/* A damaged text is an error, like a damaged value: a piece must not omit it silently. */
Test(pieces, texts_that_are_damaged)
{
    static const char texts[] = "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0abcd";
    struct kvf_copied made;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct kvf_diag d = {""};
        OWNED(free) struct maker *m = start();
        unlink(out);
        put(m, column_of_four(), four, sizeof four);
        struct record *r = put(
            m, (struct record){.type = REC_TOKENS, .n = 4, .raw_len = 20, .stored_len = 20}, texts,
            20);
        size_t at = r->offset + RECORD_HEADER + 17;
        commit(m, 1, 4);
        qsort(m->rec, m->n_rec, sizeof *m->rec, record_compare);
        finish(m, m->rec, m->n_rec);
        m->p[at] ^= (unsigned char)wrong;
        OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_STRICT);
        int err = copy_trace(t, &(struct kvf_piece){1, 3, NULL}, out, false, &made, &d);
        cr_expect(eq(int, err, wrong ? KVF_E_CORRUPT : KVF_OK), "%s", d.text);
        cr_expect(not(wrong && !strstr(d.text, "texts of tokens cannot be read")), "%s", d.text);
    }
}
