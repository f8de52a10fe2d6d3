/* test_copy.c - traces made from traces: copies have the contents of their source, pieces have a
 * part of it, and repaired traces have no wrong contents. */
#include <kvf/copy.h>

#include "maker.h"
#include "paths.h"

TestSuite(copy, .init = names, .fini = remove_all);
TestSuite(repair, .init = names, .fini = remove_all);

enum { STEPS = 11, BEFORE = 5 }; /* steps from tiny_steps */

static void expect_digest(const char *path, const char *want)
{
    char got[33];
    OWNED(kvf_close) struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_assert(zero(int, kvf_digest(t, got, NULL)));
    cr_expect(eq(str, got, (char *)(uintptr_t)want));
    cr_assert(zero(int, kvf_stored_digest(t, got)));
    cr_expect(eq(str, got, (char *)(uintptr_t)want));
}

/* The contents found in the small trace: counts of readable and lost values. All readable values
 * must be those of the state after `steps` steps, from index `from` on. */
struct seen {
    int values, lost;
    bool wrong;
};

/* Counts and compares values of a head. Intervals are compared by the digest of the complete
 * trace. */
static void look_at_head(struct kvf_trace *t, int column, int layer, int head, const int place[2],
                         uint32_t from, uint32_t steps, struct seen *s)
{
    unsigned char got[8], want[8];
    const struct kvf_column *k = kvf_column(t, column);
    int c = 0;
    while (c < TINY_COLUMNS && strcmp(tiny_column[c].name, k->name) != 0)
        c++;
    uint32_t epoch = k->flags & KVF_COL_SNAPSHOT ? (steps == STEPS ? 2 : 1) : 0;
    size_t width = kvf_dtype_size(k->dtype);
    cr_assert(c < TINY_COLUMNS && memcmp(k, &tiny_column[c], sizeof *k) == 0);
    if (c == TINY_LISTS)
        return;
    for (uint32_t i = 0; i < kvf_n_steps(t); i++) {
        int err = kvf_read(t, column, layer, head, i, 1, got, NULL);
        tiny_fill(c, place[0], place[1], from + i, 1, epoch, want);
        s->values += !err;
        s->lost += !!err;
        s->wrong |= !err && memcmp(got, want, width) != 0;
    }
}

static struct seen look(struct kvf_trace *t, uint32_t from, uint32_t steps)
{
    struct seen s = {0, 0, strcmp(kvf_meta(t), tiny_meta) != 0};
    for (int c = 0; c < kvf_n_columns(t); c++)
        for (int l = 0; l < kvf_n_layers(t); l++)
            for (int h = 0; h < kvf_n_heads(t, l, kvf_column(t, c)->space); h++)
                look_at_head(t, c, l, h, (const int[2]){l, h}, from, steps, &s);
    for (uint32_t i = 0; i < kvf_n_steps(t); i++) {
        char want[8];
        size_t n = tiny_token(from + i, want), got_n = 0;
        const char *got = kvf_token(t, i, &got_n);
        s.wrong |= got && (got_n != n || memcmp(got, want, n) != 0);
        s.lost += !got;
    }
    const char *note = kvf_note(t, "result");
    s.wrong |= note && strcmp(note, tiny_note) != 0;
    return s;
}

static void expect_piece(const char *path, uint32_t from, uint32_t n)
{
    OWNED(kvf_close) struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    struct seen s = look(t, from, STEPS);
    cr_expect(eq(u32, kvf_n_steps(t), n));
    cr_expect(eq(int, s.lost, 0));
    cr_expect(ge(int, s.values, 1));
    cr_expect(not(s.wrong));
}

static void digest_of(const char *path, char ret[33])
{
    OWNED(kvf_close) struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    cr_assert(zero(int, kvf_stored_digest(t, ret)));
}

static int copy_trace(struct kvf_trace *t, const struct kvf_piece *piece, const char *to,
                      bool overwrite, struct kvf_copied *ret, struct kvf_diag *d)
{
    const struct kvf_copy_request q = {
        .trace = t, .piece = piece, .out = to, .overwrite = overwrite};
    return kvf_copy(&q, ret, d);
}

static void piece(const char *from_path, const char *path, uint32_t from, uint32_t to)
{
    struct kvf_copied made;
    OWNED(kvf_close) struct kvf_trace *t = opened(from_path, KVF_OPEN_TAIL);
    succeeds(copy_trace(t, &(struct kvf_piece){from, to, NULL}, path, true, &made, &d));
    cr_expect(eq(u32, made.n_steps, to - from));
}

static int join(const char *a, const char *b, const char *path)
{
    struct kvf_copied made;
    struct kvf_trace *t[2] = {opened(a, KVF_OPEN_TAIL), opened(b, KVF_OPEN_TAIL)};
    struct kvf_diag d = {""};
    int err = kvf_copy(
        &(struct kvf_copy_request){.part = t, .n_parts = 2, .out = path, .overwrite = true}, &made,
        &d);
    cr_expect(eq(int, err != 0, d.text[0] != 0));
    kvf_close(t[0]);
    kvf_close(t[1]);
    return err;
}

Test(copy, whole)
{
    struct kvf_copied made;
    char digest[33], id[2][33];
    size_t before, after;
    tiny_create(in);
    digest_of(in, digest);
    struct kvf_trace *t = opened(in, KVF_OPEN_TAIL);
    cr_assert(
        zero(int, kvf_copy(&(struct kvf_copy_request){.trace = t, .out = out, .smallest = true},
                           &made, NULL)));
    cr_expect(eq(int,
                 kvf_copy(&(struct kvf_copy_request){.trace = t, .out = out, .smallest = true},
                          &made, NULL),
                 KVF_E_IO),
              "it is there already");
    expect_digest(out, digest);
    expect_piece(out, 0, STEPS);
    free(slurp(in, &before));
    free(slurp(out, &after));
    cr_expect(eq(sz, after, (size_t)made.bytes));
    cr_expect(lt(sz, after, before), "the superseded snapshot is gone");
    struct kvf_trace *copy = opened(out, KVF_OPEN_TAIL);
    kvf_run_id(t, id[0]);
    kvf_run_id(copy, id[1]);
    cr_expect(eq(str, id[0], id[1]));
    kvf_close(copy);
    kvf_close(t);
}

Test(copy, two_pieces_are_the_whole_again)
{
    char digest[33];
    tiny_plain = true;
    tiny_create(in);
    digest_of(in, digest);
    for (uint32_t k = 1; k < STEPS; k++) {
        struct kvf_part p;
        piece(in, out, 0, k);
        piece(in, other, k, STEPS);
        expect_piece(out, 0, k);
        expect_piece(other, k, STEPS - k);
        struct kvf_trace *t = opened(other, KVF_OPEN_TAIL);
        cr_assert(zero(int, kvf_part(t, &p)));
        cr_expect(p.from == k && p.to == STEPS && p.of == STEPS && strcmp(p.whole, digest) == 0);
        kvf_close(t);
        cr_assert(zero(int, join(out, other, third)));
        expect_digest(third, digest);
        cr_expect(eq(int, join(other, out, third), KVF_E_ARG), "the wrong order");
        cr_expect(eq(int, join(out, out, third), KVF_E_ARG), "twice the same");
        cr_expect(eq(int, join(in, other, third), KVF_E_ARG), "no part");
    }
}

Test(copy, pieces_of_pieces)
{
    char digest[33], half[33];
    tiny_plain = true;
    tiny_create(in);
    digest_of(in, digest);
    piece(in, out, 3, 9);
    digest_of(out, half);
    piece(out, other, 0, 2);
    piece(out, third, 2, 6);
    cr_assert(zero(int, join(other, third, other)));
    expect_digest(other, half);
    piece(in, third, 0, 3);
    cr_assert(zero(int, join(third, other, third)));
    expect_piece(third, 0, 9);
    piece(in, other, 9, STEPS);
    cr_assert(zero(int, join(third, other, third)));
    expect_digest(third, digest);
}

/* The layers have 1 and 2 KV heads, and 2 and 2 query heads: the second KV head of the second layer
 * has one. */
Test(copy, heads)
{
    const unsigned char keep[] = {0, 0, 1}, none[] = {0, 0, 0};
    struct kvf_copied made;
    struct seen s = {0};
    tiny_plain = true;
    tiny_create(in);
    struct kvf_trace *t = opened(in, KVF_OPEN_TAIL);
    cr_expect(eq(int, copy_trace(t, &(struct kvf_piece){0, 0, none}, out, false, &made, NULL),
                 KVF_E_ARG));
    cr_assert(zero(int, copy_trace(t, &(struct kvf_piece){2, 0, keep}, out, false, &made, NULL)));
    kvf_close(t);
    t = opened(out, KVF_OPEN_STRICT);
    cr_assert(eq(int, kvf_n_layers(t), 1));
    cr_assert(eq(int, kvf_n_heads(t, 0, KVF_SPACE_KV), 1));
    cr_assert(eq(int, kvf_n_heads(t, 0, KVF_SPACE_QUERY), 1));
    for (int c = 0; c < kvf_n_columns(t); c++) {
        bool run = kvf_column(t, c)->space == KVF_SPACE_RUN;
        look_at_head(t, c, 0, 0, run ? (const int[2]){0, 0} : (const int[2]){1, 1}, 2, STEPS, &s);
    }
    cr_expect(not(s.wrong));
    cr_expect(eq(int, s.lost, 0));
    cr_expect(eq(int, s.values, (TINY_COLUMNS - 1) * (STEPS - 2)));
    cr_expect(eq(str, (char *)(uintptr_t)kvf_note(t, "heads"), (char[]){"[\"1.1\"]"}));
    kvf_close(t);
}

/* The run id depends on the prompt, which is not in the trace. */
Test(copy, keeps_the_run)
{
    static const int32_t prompt[] = {3, 4};
    const struct kvf_writer_options o = {.prompt = prompt, .n_prompt = 2};
    struct kvf_writer *w;
    struct kvf_copied made;
    char id[3][33];
    tiny_create(out);
    cr_assert(zero(
        int, kvf_writer_open(in, tiny_meta, &tiny_shape, tiny_column, TINY_COLUMNS, &o, &w, NULL)));
    cr_assert(zero(int, tiny_write(w, 1)));
    cr_assert(zero(int, tiny_finish(w, NULL)));
    struct kvf_trace *t[3] = {opened(in, KVF_OPEN_TAIL), NULL, opened(out, KVF_OPEN_TAIL)};
    cr_assert(zero(int, copy_trace(t[0], NULL, other, false, &made, NULL)));
    t[1] = opened(other, KVF_OPEN_TAIL);
    for (int i = 0; i < 3; i++) {
        cr_assert(zero(int, kvf_run_id(t[i], id[i])));
        kvf_close(t[i]);
    }
    cr_expect(eq(str, id[0], id[1]));
    cr_expect(ne(str, id[0], id[2]));
}

/* ---- repair */

static int n_said;

static void say(void *ctx, const char *line)
{
    (void)ctx;
    n_said += line[0] != 0;
}

/* Repairs these bytes; returns true if a file was made. All values readable in the source must be
 * readable in the result, no value may be wrong, and the result must be a complete trace. */
static bool repair(const unsigned char *p, size_t n, struct kvf_repaired *r)
{
    struct kvf_diag d = {""};
    struct kvf_copied copied;
    struct kvf_check check;
    struct kvf_trace *t = NULL;
    const char *path = as_file(p, n);
    if (kvf_copy(
            &(struct kvf_copy_request){
                .damaged = path, .say = say, .ret_repaired = r, .out = out, .overwrite = true},
            &copied, &d)
        != KVF_OK) {
        cr_expect(d.text[0] != 0);
        if (kvf_open(path, KVF_OPEN_SALVAGE, &t, NULL) == KVF_OK) {
            cr_expect(eq(u32, kvf_n_steps(t), 0), "what can be read can be kept");
            kvf_close(t);
        }
        return false;
    }
    cr_expect(zero(int, kvf_verify(out, 1, &check, &d)), "%s", d.text);
    cr_expect(check.clean);
    OWNED(kvf_close) struct kvf_trace *made = opened(out, KVF_OPEN_STRICT);
    uint32_t steps = kvf_n_steps(made);
    struct seen s = look(made, 0, steps);
    cr_expect(not(s.wrong), "%zu bytes", n);
    cr_expect(eq(int, kvf_note(made, "repaired") != NULL, !r->intact));
    cr_assert(zero(int, kvf_open(path, KVF_OPEN_SALVAGE, &t, NULL)));
    if (kvf_epoch(t)) {
        cr_expect(eq(u32, steps, kvf_n_steps(t)));
        cr_expect(eq(int, s.values, look(t, 0, steps).values), "%zu bytes", n);
    }
    kvf_close(t);
    return true;
}

Test(repair, whole)
{
    struct kvf_repaired r;
    size_t n;
    char digest[33];
    tiny_create(in);
    digest_of(in, digest);
    unsigned char *p = slurp(in, &n);
    cr_assert(repair(p, n, &r));
    cr_expect(r.intact && r.closed && !r.places && !r.breaks);
    expect_digest(out, digest);
    free(p);
}

Test(repair, every_length)
{
    struct kvf_repaired r;
    size_t n, made = 0, first = 0;
    tiny_create(in);
    unsigned char *p = slurp(in, &n);
    for (size_t k = 0; k < n; k += 41) {
        bool ok = repair(p, k, &r);
        cr_expect(ok ? !r.intact && !r.closed : true, "%zu of %zu bytes", k, n);
        first = ok && !first ? k : first;
        cr_expect(eq(int, ok, first != 0), "more bytes are never worth less");
        made += ok;
    }
    cr_expect(ge(sz, made, 61));
    free(p);
}

Test(repair, every_byte_wrong)
{
    struct kvf_repaired r;
    size_t n, made = 0, intact = 0;
    char digest[33];
    tiny_create(in);
    digest_of(in, digest);
    unsigned char *p = slurp(in, &n);
    for (size_t k = 0; k < n; k += 31) {
        p[k] ^= 0xff;
        bool ok = repair(p, n, &r);
        made += ok;
        intact += ok && r.intact;
        if (ok && r.intact) /* the damaged bytes had no contents */
            expect_digest(out, digest);
        p[k] ^= 0xff;
    }
    cr_expect(ge(sz, made, n / 31 * 8 / 10 + 1), "%zu", made);
    cr_expect(ge(sz, intact, 11), "the index, checkpoints and superseded snapshots");
    cr_expect(lt(sz, intact, made - 40));
    cr_expect(ge(int, n_said, 31));
    free(p);
}

/* The trace has one commit, at BEFORE; its tail continues to the end. */
Test(repair, with_its_tail)
{
    struct kvf_writer *w, *tail;
    struct kvf_copied copied;
    struct kvf_repaired r;
    tiny_plain = true;
    strcpy(in, scratch_path("unfinished.kvf"));
    cr_assert(zero(int, tiny_open(in, &w, NULL)));
    cr_assert(zero(int, tiny_write(w, 1)));
    cr_assert(zero(int, kvf_writer_open_tail(w, &tail, NULL)));
    uint32_t end[STEPS], len = 0;
    char text[64], data[1024];
    for (uint32_t i = BEFORE; i < STEPS; i++) {
        len += (uint32_t)tiny_token(i, text + len);
        end[i - BEFORE] = len;
    }
    cr_assert(zero(int, kvf_write_token_bytes(tail, BEFORE, STEPS - BEFORE, end, text)));
    for (int c = 0; c < TINY_COLUMNS - tiny_plain; c++)
        for (int l = 0; l < TINY_LAYERS; l++) {
            bool snapshot = tiny_column[c].flags & KVF_COL_SNAPSHOT;
            int space = tiny_column[c].space;
            int heads = space == KVF_SPACE_RUN  ? l == 0
                        : space == KVF_SPACE_KV ? tiny_shape.n_kv_heads[l]
                                                : tiny_shape.n_query_heads[l];
            uint32_t t0 = snapshot ? 0 : BEFORE;
            for (int h = 0; h < heads; h++) {
                tiny_fill(c, l, h, t0, STEPS - t0, snapshot ? 2 : 0, data);
                cr_assert(
                    zero(int, kvf_write_chunk(tail, c, l, h, 1, t0, STEPS - t0, snapshot, data)));
            }
        }
    const struct kvf_blob last = {.name = "x-tail", .dtype = KVF_U16, .rank = 1, .shape = {3}};
    const uint16_t words[3] = {7, 8, 9};
    const void *copy = NULL;
    cr_assert(zero(int, kvf_write_blob(tail, &last, false, words)));
    cr_assert(zero(int, kvf_writer_commit(tail, 1, STEPS)));
    cr_assert(zero(int, kvf_writer_sync(w)));
    cr_assert(zero(int, kvf_writer_close(tail, NULL)));
    kvf_writer_abandon(w);
    cr_assert(zero(
        int, kvf_copy(
                 &(struct kvf_copy_request){
                     .damaged = in, .say = say, .ret_repaired = &r, .out = out, .overwrite = true},
                 &copied, NULL)));
    cr_expect(r.tail && !r.closed && !r.intact && r.missing == 0 && r.texts_missing == 0);
    expect_piece(out, 0, STEPS);
    struct kvf_trace *repaired = opened(out, KVF_OPEN_STRICT);
    cr_assert(gt(int, kvf_n_blobs(repaired), 0));
    cr_assert(zero(int, kvf_blob_view(repaired, kvf_n_blobs(repaired) - 1, &copy, NULL)));
    cr_expect(zero(int, memcmp(copy, words, sizeof words)), "the blob of the tail");
    kvf_close(repaired);
    strcat(in, ".unfinished");
    unlink(in);
    strcpy(strrchr(in, '.'), ".tail");
    unlink(in);
}

/* Returns true if a file has a record of this type with this payload. */
static bool has_record(const char *path, unsigned char type, const char *payload, size_t n)
{
    size_t size;
    bool found = false;
    OWNED(free) unsigned char *p = slurp(path, &size);
    for (size_t at = FILE_HEADER; !found && at + RECORD_HEADER + n <= size; at += 8)
        found = get_le(p + at, 4) == 0x52465ac5 && p[at + 6] == type
                && memcmp(p + at + RECORD_HEADER, payload, n) == 0;
    return found;
}

/* A record of a later release, which this one skips: a copy would be incomplete. */
Test(copy, unknown_records_are_not_copied)
{
    enum { LATER = 200 };
    struct kvf_copied made;
    struct kvf_repaired r;
    struct kvf_diag d = {""};
    struct maker *m = start();
    struct record column_of_two = column(4, 16, 16, CODEC_RAW);
    put(m, column_of_two, stored_four, 16);
    put(m, (struct record){.type = LATER, .raw_len = 5, .stored_len = 5}, "later", 5);
    commit(m, 1, 4);
    finish(m, m->rec, m->n_rec);
    struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_TAIL);
    cr_expect(eq(int, copy_trace(t, NULL, out, true, &made, &d), KVF_E_VERSION));
    cr_expect(strstr(d.text, "newer kvfate") != NULL, "%s", d.text);
    cr_assert(zero(int, kvf_copy(&(struct kvf_copy_request){.damaged = kvf_path(t),
                                                            .say = say,
                                                            .ret_repaired = &r,
                                                            .out = other,
                                                            .overwrite = true},
                                 &made, NULL)));
    cr_expect(not(r.intact));
    cr_expect(not(has_record(other, LATER, "later", 5)));
    cr_assert(zero(int, copy_trace(t, &(struct kvf_piece){0, 2, NULL}, out, true, &made, NULL)));
    cr_expect(eq(u64, made.left_out, 1), "a piece of it is not known");
    cr_expect(not(has_record(out, LATER, "later", 5)));
    kvf_close(t);
    free(m);
}

Test(copy, intervals_stay_with_all_tokens_and_are_refused_with_fewer)
{
    const unsigned char keep[3] = {0, 0, 1}; /* the second KV head of layer 1 */
    struct kvf_copied made;
    struct kvf_diag d = {""};
    const struct kvf_interval *got;
    struct kvf_interval want[8 * STEPS];
    uint32_t end[STEPS], want_end[STEPS];
    tiny_create(in);
    struct kvf_trace *t = opened(in, KVF_OPEN_STRICT), *piece_of = NULL;
    cr_expect(
        eq(int, copy_trace(t, &(struct kvf_piece){0, 2, NULL}, out, false, &made, &d), KVF_E_ARG));
    cr_expect(strstr(d.text, "seen") != NULL, "%s", d.text);
    cr_expect(eq(int, kvf_open(out, KVF_OPEN_TAIL, &piece_of, NULL), KVF_E_IO));
    int err = copy_trace(t, &(struct kvf_piece){0, 0, keep}, out, false, &made, &d);
    cr_assert(zero(int, err), "%s", d.text);
    cr_expect(eq(u64, made.left_out, TINY_BLOBS * TINY_EPOCHS));
    piece_of = opened(out, KVF_OPEN_STRICT);
    cr_expect(eq(int, kvf_n_blobs(piece_of), 0));
    err = kvf_read_intervals(piece_of, kvf_find(piece_of, "seen"), 0, 0, 0, STEPS, end, &got, &d);
    cr_assert(zero(int, err), "%s", d.text);
    uint32_t n = tiny_lists(1, 1, 0, STEPS, TINY_EPOCHS, want_end, want);
    cr_expect(zero(int, memcmp(end, want_end, sizeof end)));
    cr_expect(zero(int, memcmp(got, want, n * sizeof *want)));
    kvf_close(piece_of);
    kvf_close(t);
}
