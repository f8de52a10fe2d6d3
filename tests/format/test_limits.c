/* test_limits.c - all limits in docs/reference/format.md, section 12, on writing and on reading:
 * the limit is accepted, and one more is rejected. Intervals and blobs have separate tests. */
#include "libtrace/writer.h"
#include "maker.h"

static const struct kvf_column nll = {"nll", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, "nat"};

/* Returns the result of opening a writer with this shape and these columns. */
static int open_writer(int layers, uint16_t kv, uint16_t query, const struct kvf_column *c, int n)
{
    const char *path = scratch_path("limits.kvf");
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE, .only_whole = true};
    OWNED(free)
    uint16_t *n_kv = malloc(((size_t)layers + 1) * 2), *n_query = malloc(((size_t)layers + 1) * 2);
    OWNED(kvf_writer_abandon) struct kvf_writer *w = NULL;
    for (int l = 0; l < layers; l++)
        n_kv[l] = kv, n_query[l] = query;
    const struct kvf_shape s = {layers, n_kv, n_query};
    int err = kvf_writer_open(path, "{}", &s, c, n, &o, &w, NULL);
    return err;
}

Test(limits, of_the_shape_and_the_columns_on_writing)
{
    struct kvf_column *c = calloc(KVF_MAX_COLUMNS + 1, sizeof *c), one = nll;
    for (int i = 0; i <= KVF_MAX_COLUMNS; i++) {
        c[i] = nll;
        snprintf(c[i].name, sizeof c[i].name, "x-limits.%d", i);
    }
    cr_expect(zero(int, open_writer(KVF_MAX_LAYERS, 1, 1, &nll, 1)));
    cr_expect(eq(int, open_writer(KVF_MAX_LAYERS + 1, 1, 1, &nll, 1), KVF_E_LIMIT));
    cr_expect(zero(int, open_writer(1, KVF_MAX_HEADS, KVF_MAX_HEADS, &nll, 1)));
    cr_expect(eq(int, open_writer(1, KVF_MAX_HEADS + 1, 1, &nll, 1), KVF_E_LIMIT));
    cr_expect(eq(int, open_writer(1, 1, KVF_MAX_HEADS + 1, &nll, 1), KVF_E_LIMIT));
    cr_expect(zero(int, open_writer(1, 1, 1, c, KVF_MAX_COLUMNS)));
    cr_expect(eq(int, open_writer(1, 1, 1, c, KVF_MAX_COLUMNS + 1), KVF_E_LIMIT));
    free(c);
    strcpy(one.name, "x-limits.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"); /* 47 bytes */
    cr_assert(eq(sz, strlen(one.name), KVF_NAME_MAX - 1));
    cr_expect(zero(int, open_writer(1, 1, 1, &one, 1)));
    one.name[KVF_NAME_MAX - 1] = 'a';
    cr_expect(eq(int, open_writer(1, 1, 1, &one, 1), KVF_E_ARG));
    one = nll;
    memset(one.unit, 'u', sizeof one.unit - 1);
    cr_expect(zero(int, open_writer(1, 1, 1, &one, 1)));
    one.unit[sizeof one.unit - 1] = 'u';
    cr_expect(eq(int, open_writer(1, 1, 1, &one, 1), KVF_E_ARG));
}

static int open_schema(const unsigned char *s, size_t n)
{
    OWNED(free) struct maker *m = malloc(sizeof *m);
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    start_with(m, s, n);
    commit(m, 1, 0);
    int err = open_it(m, KVF_OPEN_TAIL, &t);
    return err;
}

/* Reads a schema with this many layers, heads and columns. */
static int read_schema(uint32_t layers, uint32_t heads, uint32_t columns)
{
    size_t n = 8 + 4 * (size_t)layers + COLUMN_ENTRY * (size_t)columns;
    unsigned char *s = calloc(n, 1), *p = s + 4;
    put_le(s, layers, 4);
    for (uint32_t l = 0; l < layers; l++, p += 4)
        put_le(p, heads, 2), put_le(p + 2, heads, 2);
    put_le(p, columns, 4);
    for (uint32_t i = 0; i < columns; i++) {
        unsigned char *c = p + 4 + COLUMN_ENTRY * (size_t)i;
        snprintf((char *)c, KVF_NAME_MAX, "x-limits.%u", i);
        c[48] = KVF_F32;
    }
    int err = open_schema(s, n);
    free(s);
    return err;
}

Test(limits, of_the_shape_and_the_columns_on_reading)
{
    unsigned char s[128];
    cr_expect(zero(int, read_schema(KVF_MAX_LAYERS, 1, 1)));
    cr_expect(eq(int, read_schema(KVF_MAX_LAYERS + 1, 1, 1), KVF_E_CORRUPT));
    cr_expect(zero(int, read_schema(1, KVF_MAX_HEADS, 1)));
    cr_expect(eq(int, read_schema(1, KVF_MAX_HEADS + 1, 1), KVF_E_CORRUPT));
    cr_expect(zero(int, read_schema(1, 1, KVF_MAX_COLUMNS)));
    cr_expect(eq(int, read_schema(1, 1, KVF_MAX_COLUMNS + 1), KVF_E_CORRUPT));
    for (int more = 0; more < 2; more++) {
        size_t n = plain_schema(s);
        memset(s + 12, 'x', KVF_NAME_MAX - !more);
        cr_expect(eq(int, open_schema(s, n), more ? KVF_E_CORRUPT : KVF_OK), "name");
        n = plain_schema(s);
        memset(s + 12 + 52, 'u', 16 - !more);
        cr_expect(eq(int, open_schema(s, n), more ? KVF_E_CORRUPT : KVF_OK), "unit");
    }
}

static struct kvf_writer *begin(const char *path)
{
    const uint16_t one = 1;
    const struct kvf_shape s = {1, &one, &one};
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE};
    struct kvf_writer *w = NULL;
    cr_assert(zero(int, kvf_writer_open(path, "{}", &s, &nll, 1, &o, &w, NULL)));
    return w;
}

Test(limits, of_steps_on_writing)
{
    const char *path = scratch_path("limits-steps.kvf");
    const float v[2] = {0, 0};
    const uint32_t end[2] = {0, 0};
    struct kvf_writer *w = begin(path);
    cr_expect(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, KVF_MAX_STEPS - 1, 1, 0, v)));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 0, 0, 1, KVF_MAX_STEPS - 1, 2, 0, v), KVF_E_ARG));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 0, 0, 1, KVF_MAX_STEPS, 1, 0, v), KVF_E_ARG));
    cr_expect(zero(int, kvf_write_token_bytes(w, KVF_MAX_STEPS - 1, 1, end, "")));
    cr_expect(eq(int, kvf_write_token_bytes(w, KVF_MAX_STEPS - 1, 2, end, ""), KVF_E_ARG));
    cr_expect(eq(int, kvf_writer_commit(w, 1, KVF_MAX_STEPS + 1), KVF_E_ARG));
    cr_expect(zero(int, kvf_writer_commit(w, 1, KVF_MAX_STEPS)));
    cr_expect(zero(int, kvf_writer_close(w, NULL)));
    unlink(path);
}

Test(limits, of_steps_on_reading)
{
    for (uint32_t more = 0; more < 2; more++) {
        struct maker *m = start();
        commit(m, 1, KVF_MAX_STEPS + more);
        struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
        cr_expect(eq(u32, kvf_n_steps(t), more ? 0 : KVF_MAX_STEPS));
        kvf_close(t);
        free(m);
        m = start();
        struct record r = column_of_four();
        r.t0 = KVF_MAX_STEPS - 4 + more;
        put(m, r, stored_four, sizeof stored_four);
        commit(m, 1, KVF_MAX_STEPS);
        uint32_t got;
        cr_assert(zero(int, open_it(m, KVF_OPEN_SALVAGE, &t)));
        cr_expect(eq(int, kvf_read(t, 0, 0, 0, KVF_MAX_STEPS - 1, 1, &got, NULL),
                     more ? KVF_E_NOTFOUND : KVF_OK));
        kvf_close(t);
        free(m);
    }
}

Test(limits, of_notes_on_writing)
{
    const char *path = scratch_path("limits-notes.kvf");
    char key[KVF_MAX_KEY + 2], *json = malloc(KVF_MAX_META + 2);
    struct kvf_writer *w = begin(path);
    memset(json, '1', KVF_MAX_META + 1);
    json[KVF_MAX_META + 1] = 0;
    memset(key, 'k', KVF_MAX_KEY + 1);
    key[KVF_MAX_KEY + 1] = 0;
    cr_expect(eq(int, kvf_writer_note(w, key, "{}"), KVF_E_ARG));
    cr_expect(eq(int, kvf_writer_note(w, "", "{}"), KVF_E_ARG));
    cr_expect(eq(int, kvf_writer_note(w, "k", json), KVF_E_LIMIT));
    key[KVF_MAX_KEY] = json[KVF_MAX_META] = 0;
    cr_expect(zero(int, kvf_writer_note(w, key, json)));
    cr_assert(zero(int, kvf_writer_commit(w, 1, 0)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
    struct kvf_trace *t = opened(path, KVF_OPEN_STRICT);
    const char *note = kvf_note(t, key);
    cr_expect(note && strcmp(note, json) == 0);
    kvf_close(t);
    free(json);
    unlink(path);
}

Test(limits, of_notes_on_reading)
{
    static const size_t length[] = {0, KVF_MAX_KEY, KVF_MAX_KEY + 1};
    for (int i = 0; i < 3; i++) {
        size_t n = length[i];
        unsigned char p[KVF_MAX_KEY + 8] = {0};
        OWNED(free) struct maker *m = start();
        memset(p, 'k', n);
        memcpy(p + n + 1, "{}", 2);
        put(m, (struct record){.type = REC_NOTE, .raw_len = n + 3, .stored_len = n + 3}, p, n + 3);
        commit(m, 1, 0);
        OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
        cr_expect(eq(int, kvf_note(t, (const char *)p) != NULL, n == KVF_MAX_KEY), "%zu", n);
    }
}

/* Opens a file with a run header of n bytes, built by hand: the writer rejects a header that is too
 * long. */
static int open_meta(size_t n)
{
    size_t at = FILE_HEADER, schema = 8;
    OWNED(free) unsigned char *p = calloc(n + 1024, 1);
    struct record r = {.type = REC_META, .flags = REC_CRITICAL, .salt = SALT, .offset = at};
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    file_header_write(p, &(struct hash128){.low = SALT});
    r.link = hash64(p, FILE_HEADER);
    r.raw_len = r.stored_len = n;
    memset(p + at + RECORD_HEADER, ' ', n);
    for (int i = 0; i < 2; i++) {
        r.payload_crc = payload_crc(&r, p + at + RECORD_HEADER, (size_t)r.stored_len);
        r.link = record_header_write(p + at, &r);
        at += RECORD_HEADER + padded(r.stored_len);
        r.type = REC_SCHEMA;
        r.seq = 1;
        r.offset = at;
        r.raw_len = r.stored_len = schema;
    }
    int err = kvf_open(as_file(p, at), KVF_OPEN_TAIL, &t, NULL);
    return err;
}

Test(limits, of_the_run_header_on_reading)
{
    cr_expect(zero(int, open_meta(KVF_MAX_META)));
    cr_expect(eq(int, open_meta(KVF_MAX_META + 1), KVF_E_LIMIT));
    cr_expect(ne(int, open_meta(KVF_MAX_META + 1025), KVF_OK));
}

/* Limit of a chunk's bytes on reading: only the header states them, and its four heads are
 * constant. */
Test(limits, of_chunks_on_reading)
{
    for (uint32_t more = 0; more < 2; more++) {
        OWNED(free) struct maker *m = start();
        uint32_t got = 0, n = CHUNK_RAW_LIMIT / 4 + more;
        put(m, column(n, 4 * (uint64_t)n, 4, CODEC_CONSTANT), stored_four, 4);
        commit(m, 1, n);
        OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
        cr_expect(eq(int, kvf_read(t, 0, 0, 0, 1, 1, &got, NULL), more ? KVF_E_NOTFOUND : KVF_OK));
        cr_expect(eq(u32, got, more ? 0 : four[0]));
    }
}

/* Texts of one record: a token of 16 MiB with its end offset is one byte too long. */
Test(limits, of_texts_on_writing)
{
    const char *path = scratch_path("limits-texts.kvf");
    OWNED(free) char *text = calloc(CHUNK_RAW_LIMIT, 1);
    struct kvf_writer *w = begin(path);
    uint32_t end = CHUNK_RAW_LIMIT - 3;
    cr_expect(eq(int, kvf_write_token_bytes(w, 0, 1, &end, text), KVF_E_LIMIT));
    end--;
    cr_expect(zero(int, kvf_write_token_bytes(w, 0, 1, &end, text)));
    cr_expect(zero(int, kvf_writer_close(w, NULL)));
    unlink(path);
}

/* Records are numbered from 0. The number of the last record is set, because writing 2^24 records
 * would take too long. */
Test(limits, of_records_on_writing)
{
    const char *path = scratch_path("limits-records.kvf");
    const float v = 0;
    struct kvf_writer *w = begin(path);
    w->seq = KVF_MAX_RECORDS - 1;
    cr_expect(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, 1, 0, &v)));
    cr_expect(eq(int, kvf_write_chunk(w, 0, 0, 0, 1, 1, 1, 0, &v), KVF_E_LIMIT));
    cr_expect(eq(int, kvf_writer_commit(w, 1, 1), KVF_E_LIMIT));
    cr_expect(zero(int, kvf_writer_close(w, NULL)), "the index still fits");
    unlink(path);
}

Test(limits, of_records_on_reading)
{
    for (uint64_t more = 0; more < 2; more++) {
        OWNED(free) struct maker *m = start();
        uint32_t got[4];
        commit(m, 1, 4);
        m->seq = KVF_MAX_RECORDS - 1 + more;
        put(m, column_of_four(), stored_four, sizeof stored_four);
        OWNED(kvf_close) struct kvf_trace *t = opened(as_file(m->p, m->n), KVF_OPEN_SALVAGE);
        cr_expect(eq(int, kvf_read(t, 0, 0, 0, 0, 4, got, NULL), more ? KVF_E_NOTFOUND : KVF_OK));
    }
}

/* A run may be continued in a file only if this writer knows all feature bits for appending. */
Test(limits, of_features_on_appending)
{
    const char *path = scratch_path("limits-features.kvf");
    const uint16_t one = 1;
    const struct kvf_shape s = {1, &one, &one};
    const struct kvf_writer_options o = {.existing = KVF_RESUME};
    for (int known = 1; known >= 0; known--) {
        struct kvf_writer *w = begin(path);
        char part[300];
        size_t n;
        snprintf(part, sizeof part, "%s.unfinished", path);
        cr_assert(zero(int, kvf_writer_commit(w, 1, 0)));
        kvf_writer_abandon(w);
        unsigned char *p = slurp(part, &n);
        p[20] = (unsigned char)!known;
        put_le(p + 60, crc32c(0, p, 60), 4);
        write_whole(part, p, n);
        free(p);
        w = NULL;
        int err = kvf_writer_open(path, "{}", &s, &nll, 1, &o, &w, NULL);
        cr_expect(eq(int, err == KVF_OK, known));
        kvf_writer_abandon(w);
        unlink(part);
    }
}
