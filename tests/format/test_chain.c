/* test_chain.c - records of other runs or from other places are put into a trace, with and without
 * corrected checksums. The run identity, the links between records and the index detect every
 * one. */
#include "libtrace/crc32c.h"
#include "libtrace/layout.h"
#include "parse.h"
#include "tests/format/opened.h"

enum { CHUNKS = 12, STEPS = 16, PROMPT = 3 };

static const struct kvf_column column = {"x-x", KVF_U32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""};

/* Writes twelve chunks of incompressible values of equal length. */
static void write_run(const char *path, const char *meta, const int32_t *prompt, uint64_t seed)
{
    const struct kvf_shape none = {0, NULL, NULL};
    const struct kvf_writer_options options = {.prompt = prompt, .n_prompt = PROMPT};
    struct kvf_writer *w;
    uint32_t v[STEPS];
    struct rng rng = rng_seeded(seed);
    cr_assert(zero(int, kvf_writer_open(path, meta, &none, &column, 1, &options, &w, NULL)));
    for (uint32_t k = 0; k < CHUNKS; k++) {
        for (int i = 0; i < STEPS; i++)
            v[i] = (uint32_t)rng_next(&rng);
        cr_assert(zero(int, kvf_write_chunk(w, 0, 0, 0, 1, k * STEPS, STEPS, 0, v)));
        if (k == CHUNKS / 2)
            cr_assert(zero(int, kvf_writer_commit(w, 1, (k + 1) * STEPS)));
    }
    cr_assert(zero(int, kvf_writer_commit(w, 2, CHUNKS * STEPS)));
    cr_assert(zero(int, kvf_writer_close(w, NULL)));
}

struct file {
    unsigned char *p;
    size_t n;
    struct place place[MAX_PLACES];
    int n_places;
};

static struct file make(const char *meta, const int32_t *prompt, uint64_t seed)
{
    struct file f = {0};
    const char *path = scratch_path("chain.kvf");
    write_run(path, meta, prompt, seed);
    f.p = slurp(path, &f.n);
    f.n_places = parse(f.p, f.n, f.place);
    unlink(path);
    return f;
}

static const int32_t one[PROMPT] = {1, 2, 3}, other[PROMPT] = {1, 2, 4};

static void id_of(const struct file *f, char id[33])
{
    OWNED(kvf_close) struct kvf_trace *t = opened(as_file(f->p, f->n), KVF_OPEN_STRICT);
    cr_assert(zero(int, kvf_run_id(t, id)));
}

Test(chain, the_run_id_is_of_run_header_and_prompt_alone)
{
    char a[33], b[33];
    struct file f = make("{}", one, 1), same = make("{}", one, 2), prompt = make("{}", other, 1),
                meta = make("{ }", one, 1);
    id_of(&f, a);
    id_of(&same, b);
    cr_expect(zero(int, strcmp(a, b)));
    id_of(&prompt, b);
    cr_expect(ne(int, strcmp(a, b), 0));
    id_of(&meta, b);
    cr_expect(ne(int, strcmp(a, b), 0));
    free(f.p);
    free(same.p);
    free(prompt.p);
    free(meta.p);
}

/* Returns true if opening or verify reports the change. All values that can be read must be
 * correct. */
static bool noticed(const struct file *f, const unsigned char *q, size_t n)
{
    struct kvf_check c;
    struct kvf_trace *t = NULL, *good = NULL;
    uint32_t got[STEPS], want[STEPS];
    bool told = kvf_verify(as_file(q, n), 1, &c, NULL) != KVF_OK || !c.clean;
    if (kvf_open(as_file(q, n), KVF_OPEN_TAIL, &t, NULL) != KVF_OK)
        return told;
    uint32_t steps = kvf_n_steps(t);
    uint32_t seen[CHUNKS * STEPS] = {0};
    bool read[CHUNKS] = {false};
    for (uint32_t k = 0; k < CHUNKS && k * STEPS < steps; k++) {
        read[k] = kvf_read(t, 0, 0, 0, k * STEPS, STEPS, got, NULL) == KVF_OK;
        memcpy(seen + k * STEPS, got, sizeof got);
    }
    kvf_close(t);
    cr_assert(zero(int, kvf_open(as_file(f->p, f->n), KVF_OPEN_TAIL, &good, NULL)));
    for (uint32_t k = 0; k < CHUNKS; k++) {
        cr_assert(zero(int, kvf_read(good, 0, 0, 0, k * STEPS, STEPS, want, NULL)));
        bool wrong = read[k] && memcmp(seen + k * STEPS, want, sizeof want) != 0;
        cr_expect(zero(int, wrong && !told), "a wrong value, and nobody told");
    }
    kvf_close(good);
    return told;
}

enum { AS_IT_IS, CHECKSUMS, CHECKSUMS_AND_LINK, FIXES };

/* Corrects the place, salt and checksums of the record at q + at, and optionally its link. */
static void fix(const struct file *f, unsigned char *q, int place, int how)
{
    size_t at = f->place[place].at;
    unsigned char *h = q + at;
    struct record r = {
        .salt = (uint32_t)get_le(f->p + 28, 4), .seq = (uint64_t)place, .offset = at};
    if (how == AS_IT_IS)
        return;
    put_le(h + 8, r.seq, 8);
    put_le(h + 56, r.salt, 4);
    put_le(h + 68, at, 8);
    put_le(h + 52, payload_crc(&r, h + RECORD_HEADER, (size_t)get_le(h + 16, 8)), 4);
    if (how == CHECKSUMS_AND_LINK)
        memcpy(h + 76, f->p + at + 76, 8);
    put_le(h + 84, crc32c(0, h, 84), 4);
}

/* 10,000 records from the same run, from one with another prompt, and from a second recording. */
Test(chain, splices_between_runs_are_noticed, .timeout = 100)
{
    const struct file f[] = {make("{}", one, 1), make("{}", other, 2), make("{}", one, 3)};
    unsigned char *q = malloc(f[0].n);
    int n = 0, quiet = 0;
    struct rng rng = rng_seeded(16);
    while (n < 10000) {
        const struct file *from = &f[rng_next(&rng) % 3];
        int to = (int)(rng_next(&rng) % (uint64_t)f[0].n_places),
            source = (int)(rng_next(&rng) % (uint64_t)f[0].n_places), how = n % FIXES;
        const struct place *a = &f[0].place[to], *b = &from->place[source];
        if (a->end - a->at != b->end - b->at)
            continue;
        memcpy(q, f[0].p, f[0].n);
        memcpy(q + a->at, from->p + b->at, b->end - b->at);
        fix(&f[0], q, to, how);
        if (memcmp(q, f[0].p, f[0].n) == 0)
            continue;
        bool told = noticed(&f[0], q, f[0].n);
        cr_expect(told, "record %d from record %d of file %d, fix %d", to, source, (int)(from - f),
                  how);
        quiet += !told;
        n++;
    }
    cr_expect(zero(int, quiet), "%d of %d splices were not noticed", quiet, n);
    free(q);
    for (int i = 0; i < 3; i++)
        free(f[i].p);
}

/* All records after a given one come from the second recording of the run, with valid checksums and
 * links. Only the link at the junction reveals it. */
Test(chain, the_rest_of_another_recording_is_noticed_and_salvage_keeps_it)
{
    struct file a = make("{}", one, 1), b = make("{}", one, 3);
    unsigned char *q = malloc(a.n);
    cr_assert(eq(sz, a.n, b.n));
    for (int i = 3; i < a.n_places; i++) {
        struct kvf_check c;
        OWNED(kvf_close) struct kvf_trace *t = NULL;
        struct kvf_diag d = {""};
        memcpy(q, a.p, a.n);
        memcpy(q + a.place[i].at, b.p + a.place[i].at, a.n - a.place[i].at);
        const char *path = as_file(q, a.n);
        cr_expect(eq(int, kvf_verify(path, 0, &c, &d), KVF_E_CORRUPT), "from record %d", i);
        cr_expect(eq(u64, c.breaks, 1), "from record %d: %s", i, d.text);
        cr_expect(zero(u64, c.lost));
        cr_expect(ne(ptr, strstr(d.text, "the chain of checksums is broken"), NULL), "%s", d.text);
        cr_expect(eq(int, kvf_open(path, KVF_OPEN_STRICT, &t, NULL), KVF_E_CORRUPT));
        cr_assert(zero(int, kvf_open(path, KVF_OPEN_SALVAGE, &t, NULL)), "from record %d", i);
        cr_expect(eq(u32, kvf_n_steps(t), CHUNKS * STEPS));
    }
    free(q);
    free(a.p);
    free(b.p);
}

/* Salvage skips a damaged header, keeps the records after it, and reports that the chain is
 * broken. */
Test(chain, damage_breaks_the_chain_and_what_follows_is_kept)
{
    struct file f = make("{}", one, 1);
    for (int i = 2; i < f.n_places - 1; i++) {
        struct kvf_check c;
        struct kvf_diag d = {""};
        f.p[f.place[i].at + 9] ^= 4;
        cr_expect(eq(int, kvf_verify(as_file(f.p, f.n), 1, &c, &d), KVF_E_CORRUPT));
        cr_expect(eq(u64, c.breaks, 1), "record %d", i);
        cr_expect(eq(u64, c.records, (uint64_t)f.n_places - 2), "record %d", i);
        cr_expect(ne(ptr, strstr(d.text, "the chain of checksums is broken there"), NULL), "%s",
                  d.text);
        f.p[f.place[i].at + 9] ^= 4;
    }
    free(f.p);
}
