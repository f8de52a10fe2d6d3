/* test_damage.c - a trace truncated at any length, and with any bit flipped: no crash, no wrong
 * value, and undamaged contents are found. */
#include "parse.h"
#include "tests/format/opened.h"

struct file {
    unsigned char *p, *q; /* the undamaged bytes; a copy to damage */
    size_t n;
    struct place place[MAX_PLACES];
    int n_places;
};

static struct file make(void)
{
    struct file f = {0};
    const char *path = scratch_path("damage.kvf");
    cr_assert(zero(int, tiny_create(path)));
    f.p = slurp(path, &f.n);
    f.q = malloc(f.n + 256);
    memcpy(f.q, f.p, f.n);
    unlink(path);
    f.n_places = parse(f.p, f.n, f.place);
    cr_assert(eq(int, f.place[f.n_places - 1].type, 8)); /* after it, only the footer follows */
    cr_assert(eq(sz, f.place[f.n_places - 1].end + 64, f.n));
    return f;
}

static void release(struct file *f)
{
    free(f->p);
    free(f->q);
}

/* The guarantees of the format documentation for the first `len` bytes. */
struct promise {
    uint32_t epoch;
    size_t whole_end; /* end of the last complete record */
    unsigned whole;   /* complete records before it, without the index */
    bool readable;    /* run header and schema are complete */
};

static struct promise promise_of(const struct file *f, size_t len)
{
    struct promise r = {.whole_end = 64};
    for (int i = 0; i < f->n_places && f->place[i].end <= len; i++) {
        r.whole_end = f->place[i].end;
        r.whole += f->place[i].type != 8;
        if (f->place[i].type == 6)
            r.epoch = f->place[i].epoch;
        r.readable |= f->place[i].type == 2;
    }
    return r;
}

static void check_cut(const struct file *f, size_t len)
{
    struct promise want = promise_of(f, len);
    const char *path = as_file(f->p, len);
    struct kvf_check c;
    for (int mode = KVF_OPEN_TAIL; mode <= KVF_OPEN_SALVAGE; mode++) {
        OWNED(kvf_close) struct kvf_trace *t = NULL;
        struct kvf_diag d = {""};
        int err = kvf_open(path, (enum kvf_open_mode)mode, &t, &d);
        bool opens = mode == KVF_OPEN_STRICT ? len == f->n : want.readable;
        cr_assert(eq(int, err == KVF_OK, opens), "cut at %zu, mode %d: %s", len, mode, d.text);
        cr_assert(eq(int, err == KVF_OK, t != NULL));
        if (err) {
            cr_assert(ne(chr, d.text[0], 0), "cut at %zu: no sentence", len);
            continue;
        }
        struct tiny_seen s = tiny_compare(t);
        cr_assert(eq(u32, kvf_epoch(t), want.epoch), "cut at %zu, mode %d", len, mode);
        cr_assert(not(s.wrong), "cut at %zu, mode %d: wrong value", len, mode);
        cr_assert(zero(int, s.lost), "cut at %zu, mode %d: %d heads lost", len, mode, s.lost);
        cr_assert(eq(int, kvf_is_clean(t), len == f->n));
    }
    int err = kvf_verify(path, 1, &c, NULL);
    cr_assert(eq(int, err == KVF_OK, want.readable), "cut at %zu", len);
    if (len < 64)
        return;
    cr_assert(eq(u64, c.records, want.whole), "cut at %zu", len);
    cr_assert(zero(u64, c.bad + c.lost), "cut at %zu: a torn tail is not damage", len);
    cr_assert(eq(u64, c.torn, len == f->n ? 0 : len - want.whole_end), "cut at %zu", len);
    cr_assert(eq(int, c.clean, len == f->n));
}

Test(damage, cut_at_every_byte_shows_the_last_whole_snapshot)
{
    SCOPED(release) struct file f = make();
    for (size_t len = 0; len <= f.n; len++)
        check_cut(&f, len);
}

/* After a power loss, a file system may leave zeros or old bytes at the end. */
Test(damage, a_tail_of_zeros_or_noise_is_torn)
{
    SCOPED(release) struct file f = make();
    for (int i = 2; i < f.n_places - 1; i++) {
        size_t len = f.place[i].end;
        struct promise want = promise_of(&f, len);
        for (int kind = 0; kind < 2; kind++) {
            struct kvf_check c;
            for (size_t k = 0; k < 256; k++)
                f.q[len + k] = kind ? (unsigned char)(k * 101 + 7) : 0;
            const char *path = as_file(f.q, len + 256);
            struct kvf_trace *t = opened(path, KVF_OPEN_TAIL);
            cr_assert(eq(u32, kvf_epoch(t), want.epoch));
            cr_assert(zero(int, tiny_compare(t).lost));
            kvf_close(t);
            cr_assert(zero(int, kvf_verify(path, 1, &c, NULL)));
            cr_assert(eq(u64, c.torn, 256));
            memcpy(f.q, f.p, f.n);
        }
    }
}

static int type_at(const struct file *f, size_t at, bool *padding)
{
    *padding = false;
    for (int i = 0; i < f->n_places; i++)
        if (at >= f->place[i].at && at < f->place[i].end) {
            *padding = at >= f->place[i].body + f->place[i].payload;
            return f->place[i].type;
        }
    return at < 64 ? -1 : -2; /* file header, footer */
}

/* Changes the byte at `at`. Verify or opening must report it, and no value may be wrong. */
static void check_change(const struct file *f, size_t at, unsigned char flip, int mode_step)
{
    bool padding, detected, all = true;
    int type = type_at(f, at, &padding);
    struct kvf_check c;
    f->q[at] ^= flip;
    const char *path = as_file(f->q, f->n);
    detected = kvf_verify(path, 1, &c, NULL) != KVF_OK || !c.clean;
    for (int mode = KVF_OPEN_TAIL; mode <= KVF_OPEN_SALVAGE; mode += mode_step) {
        OWNED(kvf_close) struct kvf_trace *t = NULL;
        if (kvf_open(path, (enum kvf_open_mode)mode, &t, NULL) != KVF_OK) {
            all = false;
            cr_assert(mode != KVF_OPEN_SALVAGE || type == 1 || type == 2,
                      "byte %zu ^ %02x: salvage finds nothing (record type %d)", at, flip, type);
            continue;
        }
        struct tiny_seen s = tiny_compare(t);
        cr_assert(not(s.wrong), "byte %zu ^ %02x, mode %d: wrong value", at, flip, mode);
        all &= s.complete;
        if (mode == KVF_OPEN_SALVAGE && kvf_epoch(t) == TINY_EPOCHS)
            cr_assert(le(int, s.lost, 2), "byte %zu ^ %02x: more than one record lost", at, flip);
    }
    cr_assert(detected || all, "byte %zu ^ %02x: undetected, and something is missing", at, flip);
    cr_assert(eq(int, detected, !padding), "byte %zu ^ %02x in record type %d", at, flip, type);
    f->q[at] ^= flip;
}

static bool long_tests(void)
{
    const char *size = getenv("KVFATE_TESTS");
    return size && strcmp(size, "long") == 0;
}

/* One bit of each byte, in turn; with KVFATE_TESTS=long all bits. */
Test(damage, any_bit_flipped_is_detected_and_costs_one_record_at_most)
{
    SCOPED(release) struct file f = make();
    size_t each = long_tests() ? 1 : 8;
    for (size_t at = 0; at < f.n; at++)
        for (size_t bit = at % each; bit < 8; bit += each)
            check_change(&f, at, (unsigned char)(1 << bit), 2);
}

/* Every third byte; with KVFATE_TESTS=long all bytes. */
Test(damage, every_byte_inverted_is_detected)
{
    SCOPED(release) struct file f = make();
    for (size_t at = 0; at < f.n; at += long_tests() ? 1 : 3)
        check_change(&f, at, 0xff, 1);
}

/* Without index and footer, the reader must check the records that it walks through. */
Test(damage, every_byte_inverted_of_an_unfinished_trace)
{
    SCOPED(release) struct file f = make();
    f.n = f.place[f.n_places - 1].at;
    struct kvf_check c;
    for (size_t at = 0; at < f.n; at += long_tests() ? 1 : 3) {
        bool padding;
        int type = type_at(&f, at, &padding);
        f.q[at] ^= 0xff;
        const char *path = as_file(f.q, f.n);
        int err = kvf_verify(path, 1, &c, NULL);
        cr_assert(err || c.torn || padding, "byte %zu (type %d): undetected", at, type);
        for (int mode = KVF_OPEN_TAIL; mode <= KVF_OPEN_SALVAGE; mode += 2) {
            OWNED(kvf_close) struct kvf_trace *t = NULL;
            if (kvf_open(path, (enum kvf_open_mode)mode, &t, NULL) != KVF_OK)
                continue;
            struct tiny_seen s = tiny_compare(t);
            cr_assert(not(s.wrong), "byte %zu, mode %d", at, mode);
            if (mode == KVF_OPEN_SALVAGE && kvf_epoch(t) == TINY_EPOCHS)
                cr_assert(le(int, s.lost, 2), "byte %zu", at);
        }
        f.q[at] ^= 0xff;
    }
}

/* The search for the next record reads in steps of 64 KiB. A header may cross a step boundary. */
Test(damage, a_header_astride_a_step_of_the_search_is_found)
{
    enum { STEP = 1 << 16, HEADER = 88 };
    const uint16_t heads = 1;
    const struct kvf_shape shape = {1, &heads, &heads};
    const struct kvf_column col = {"x-x", KVF_U32, 0, 0, 0, ""};
    for (int before = 8; before < HEADER; before += 16) { /* bytes of it in the first step */
        const char *path = scratch_path("astride.kvf");
        uint32_t first = (uint32_t)(STEP - before - HEADER) / 4, got[4], seed = 1;
        uint32_t *data = malloc((first + 4) * sizeof *data);
        for (uint32_t i = 0; i < first + 4; i++) /* incompressible values */
            data[i] = seed = seed * 1664525u + 1013904223u;
        for (uint32_t i = 0; i < first + 4; i++)
            data[i] ^= data[i] >> 13 ^ data[i] << 7;
        struct kvf_writer *w;
        cr_assert(zero(int, kvf_writer_open(path, "{}", &shape, &col, 1,
                                            &(struct kvf_writer_options){.existing = KVF_OVERWRITE},
                                            &w, NULL)));
        cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, 0, first, 0, data)));
        cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, first, 4, 0, data + first)));
        cr_assert(zero(int, kvf_writer_commit(w, 1, first + 4)));
        cr_assert(zero(int, kvf_writer_close(w, NULL)));
        size_t n;
        unsigned char *p = slurp(path, &n);
        struct place place[MAX_PLACES];
        int k = 0, records = parse(p, n, place);
        unlink(path);
        while (k < records && place[k].type != 4)
            k++;
        cr_assert(eq(sz, place[k].end - place[k].at, STEP - (size_t)before), "is compressed");
        memset(p + place[k].at, 0xee, HEADER);
        path = as_file(p, place[records - 1].at); /* without the index */
        struct kvf_trace *t = opened(path, KVF_OPEN_SALVAGE);
        cr_expect(zero(int, kvf_read(t, 0, 0, 0, first, 4, got, NULL)), "%d bytes before", before);
        cr_expect(zero(int, memcmp(got, data + first, sizeof got)));
        kvf_close(t);
        free(p);
        free(data);
    }
}

/* A damaged index is one damaged place. All records are still found. */
Test(damage, a_damaged_index_is_counted_once)
{
    SCOPED(release) struct file f = make();
    const struct place *index = &f.place[f.n_places - 1];
    for (size_t at = index->at; at < index->body + index->payload; at += 7) {
        struct kvf_check c;
        f.q[at] ^= 0x10;
        cr_expect(ne(int, kvf_verify(as_file(f.q, f.n), 1, &c, NULL), KVF_OK));
        cr_expect(eq(u64, c.bad, 1), "byte %zu: %lu", at, (unsigned long)c.bad);
        f.q[at] ^= 0x10;
    }
}

/* Complete records that are removed, doubled or swapped: a record contains its place. */
Test(damage, moved_records_are_detected)
{
    SCOPED(release) struct file f = make();
    OWNED(free) unsigned char *q = malloc(2 * f.n);
    for (int i = 0; i < f.n_places; i++) {
        size_t at = f.place[i].at, len = f.place[i].end - at;
        for (int kind = 0; kind < 2; kind++) { /* removed, doubled */
            size_t n = kind ? f.n + len : f.n - len, skip = kind ? at + len : at;
            struct kvf_trace *t = NULL;
            struct kvf_check c;
            memcpy(q, f.p, skip);
            memcpy(q + skip, f.p + (kind ? at : at + len), f.n - (kind ? at : at + len));
            const char *path = as_file(q, n);
            int err = kvf_verify(path, 1, &c, NULL);
            cr_assert(err || !c.clean, "record %d, kind %d", i, kind);
            if (kvf_open(path, KVF_OPEN_SALVAGE, &t, NULL) == KVF_OK)
                cr_assert(not(tiny_compare(t).wrong));
            kvf_close(t);
        }
    }
}
