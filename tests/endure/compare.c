/* compare.c - compares a damaged trace with the commits of the undamaged one; see compare.h. */
#include "tests/endure/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/format/parse.h"

enum { MOST_RECORDS = 1 << 16, MOST_STATES = 64, BLOCKS = 32, COMMIT = 6, SCHEMA = 2, NOTE = 5 };

/* The trace at one commit. */
struct state {
    size_t end; /* in the file; 0: the complete file with its tail */
    uint32_t epoch, n_steps;
    struct kvf_trace *t;
};

struct reference {
    unsigned char *p;
    size_t n;
    struct place *place;
    int n_places;
    struct state state[MOST_STATES]; /* first: before any commit; last: the complete trace */
    int n_states;
};

static unsigned char *read_file(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    long n = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    unsigned char *p = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (p && (fseek(f, 0, SEEK_SET) != 0 || fread(p, 1, (size_t)n, f) != (size_t)n)) {
        free(p);
        p = NULL;
    }
    if (f)
        fclose(f);
    *ret_n = p ? (size_t)n : 0;
    return p;
}

/* Finds the records of the file like parse() in tests/format/parse.h, for any number of records. */
static int find_places(struct reference *r)
{
    struct place part[MAX_PLACES];
    size_t at = 0;
    r->place = calloc(MOST_RECORDS, sizeof *r->place);
    for (int n = MAX_PLACES; r->place && n == MAX_PLACES && r->n_places + n <= MOST_RECORDS;) {
        n = parse(r->p + at, r->n - at, part);
        for (int i = 0; i < n; i++) {
            part[i].at += at;
            part[i].body += at;
            part[i].end += at;
            r->place[r->n_places++] = part[i];
        }
        at = n ? part[n - 1].end - 64 : at; /* parse() skips the 64 bytes of a file header */
    }
    return r->n_places;
}

/* Opens the first n bytes of the file as a trace. */
static struct kvf_trace *open_part(const struct reference *r, size_t n)
{
    struct kvf_trace *t = NULL;
    char path[64];
    int fd = memfd_create("endure", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd >= 0 && pwrite(fd, r->p, n, 0) == (ssize_t)n)
        kvf_open(path, KVF_OPEN_TAIL, &t, NULL);
    if (fd >= 0)
        close(fd);
    return t;
}

static void add_state(struct reference *r, size_t end, struct kvf_trace *t)
{
    if (t && r->n_states < MOST_STATES)
        r->state[r->n_states++] = (struct state){end, kvf_epoch(t), kvf_n_steps(t), t};
    else
        kvf_close(t);
}

struct reference *reference_open(const char *path)
{
    struct reference *r = calloc(1, sizeof *r);
    struct kvf_trace *whole = NULL;
    if (!r)
        return NULL;
    r->p = read_file(path, &r->n);
    if (!r->p || !find_places(r) || kvf_open(path, KVF_OPEN_TAIL, &whole, NULL) != KVF_OK) {
        reference_close(r);
        return NULL;
    }
    for (int i = 0; i < r->n_places && r->n_states < MOST_STATES - 1; i++)
        if (r->place[i].type == SCHEMA || r->place[i].type == COMMIT)
            add_state(r, r->place[i].end, open_part(r, r->place[i].end));
    add_state(r, 0, whole);
    return r;
}

void reference_close(struct reference *r)
{
    for (int i = 0; r && i < r->n_states; i++)
        kvf_close(r->state[i].t);
    if (r) {
        free(r->p);
        free(r->place);
    }
    free(r);
}

struct reference_promise reference_promise(const struct reference *r, size_t len)
{
    struct reference_promise p = {0};
    for (int i = 0; i < r->n_states; i++)
        if (r->state[i].end && r->state[i].end <= len)
            p = (struct reference_promise){true, r->state[i].epoch, r->state[i].n_steps};
    return p;
}

bool reference_is_padding(const struct reference *r, size_t at)
{
    for (int i = 0; i < r->n_places; i++)
        if (at >= r->place[i].body + r->place[i].payload && at < r->place[i].end)
            return true;
    return false;
}

/* ---- comparing */

struct look {
    const struct reference *r;
    struct kvf_trace *t, *want;
    bool known; /* want is the same commit */
    struct shown s;
};

/* Returns the block size. If the steps cannot be read at once, they are read in blocks. */
static uint32_t block_of(uint32_t n)
{
    return n > BLOCKS ? n / BLOCKS : 1;
}

/* Returns true if values [t0, t0 + n) can be read; sets `wrong` if they differ. */
static bool values(struct look *k, int c, int l, int h, uint32_t t0, uint32_t n)
{
    const void *got, *want;
    size_t width = kvf_dtype_size((enum kvf_dtype)kvf_column(k->want, c)->dtype);
    if (kvf_view(k->t, c, l, h, t0, n, &got, NULL) != KVF_OK)
        return false;
    if (kvf_view(k->want, c, l, h, t0, n, &want, NULL) == KVF_OK)
        k->s.wrong |= memcmp(got, want, n * width) != 0;
    else
        k->s.wrong = true; /* data that never existed */
    return true;
}

/* Returns true if the intervals of tokens [t0, t0 + n) can be read; sets `wrong` if they differ. */
static bool lists(struct look *k, int c, int l, int h, uint32_t t0, uint32_t n)
{
    const struct kvf_interval *got, *want;
    uint32_t *end = malloc(2 * n * sizeof *end), *own = end + n;
    bool there = end && kvf_read_intervals(k->t, c, l, h, t0, n, end, &got, NULL) == KVF_OK;
    if (there && kvf_read_intervals(k->want, c, l, h, t0, n, own, &want, NULL) == KVF_OK)
        k->s.wrong |= memcmp(end, own, n * sizeof *end) != 0
                      || (end[n - 1] && memcmp(got, want, end[n - 1] * sizeof *want) != 0);
    else
        k->s.wrong |= there;
    free(end);
    return there;
}

static void head(struct look *k, int c, int l, int h)
{
    uint32_t n = k->s.n_steps, block = block_of(n);
    bool (*const read)(struct look *, int, int, int, uint32_t,
                       uint32_t) = kvf_column(k->want, c)->flags & KVF_COL_INTERVALS ? lists
                                                                                     : values;
    if (n == 0 || read(k, c, l, h, 0, n))
        return;
    const void *p;
    bool absent = read == values && kvf_view(k->want, c, l, h, 0, n, &p, NULL) != KVF_OK;
    k->s.lost += !absent;
    for (uint32_t i = 0; i < n; i += block)
        read(k, c, l, h, i, n - i < block ? n - i : block);
}

static void columns(struct look *k)
{
    for (int c = 0; c < kvf_n_columns(k->want); c++) {
        const struct kvf_column *col = kvf_column(k->want, c);
        if (col->flags & KVF_COL_SNAPSHOT && !k->known)
            continue;
        for (int l = 0; l < kvf_n_layers(k->want); l++)
            for (int h = 0; h < kvf_n_heads(k->want, l, (enum kvf_space)col->space); h++)
                if (col->space != KVF_SPACE_RUN || l == 0)
                    head(k, c, l, h);
    }
}

static bool same_schema(struct kvf_trace *a, struct kvf_trace *b)
{
    char id[2][33] = {"", ""};
    bool same = strcmp(kvf_meta(a), kvf_meta(b)) == 0 && kvf_n_columns(a) == kvf_n_columns(b)
                && kvf_n_layers(a) == kvf_n_layers(b)
                && (kvf_run_id(a, id[0]) || kvf_run_id(b, id[1]) || strcmp(id[0], id[1]) == 0);
    for (int c = 0; same && c < kvf_n_columns(a); c++)
        same = memcmp(kvf_column(a, c), kvf_column(b, c), sizeof(struct kvf_column)) == 0;
    for (int l = 0; same && l < kvf_n_layers(a); l++)
        same = kvf_n_heads(a, l, KVF_SPACE_KV) == kvf_n_heads(b, l, KVF_SPACE_KV)
               && kvf_n_heads(a, l, KVF_SPACE_QUERY) == kvf_n_heads(b, l, KVF_SPACE_QUERY);
    return same;
}

static void tokens(struct look *k)
{
    for (uint32_t i = 0; i < k->s.n_steps; i++) {
        size_t n = 0, own = 0;
        const char *got = kvf_token(k->t, i, &n), *want = kvf_token(k->want, i, &own);
        k->s.wrong |= got && (!want || n != own || memcmp(got, want, n) != 0);
        k->s.lost += want && !got;
    }
}

/* Checks that each note was written. If the last note of a key is lost, an older one is valid. */
static void notes(struct look *k, struct kvf_trace *all)
{
    const struct reference *r = k->r;
    for (int i = 0; i < r->n_places; i++) {
        if (r->place[i].type != NOTE)
            continue;
        const char *key = (const char *)r->p + r->place[i].body, *got = kvf_note(k->t, key);
        const char *last = kvf_note(all, key);
        bool found = !got;
        for (int j = 0; j < r->n_places && !found; j++) {
            const char *other = (const char *)r->p + r->place[j].body;
            size_t n = strlen(key) + 1, len = r->place[j].payload;
            found = r->place[j].type == NOTE && strlen(got) == len - n && memcmp(other, key, n) == 0
                    && memcmp(other + n, got, len - n) == 0;
        }
        k->s.wrong |= !found;
        k->s.complete &= got && last && strcmp(got, last) == 0;
    }
}

static bool same_blob(const struct kvf_blob *a, const struct kvf_blob *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank
           && a->layer == b->layer && a->head == b->head && a->t0 == b->t0
           && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

/* Checks that each blob is a blob of the complete trace. */
static void blobs(struct look *k, struct kvf_trace *all)
{
    int whole = 0;
    for (int i = 0; i < kvf_n_blobs(k->t); i++) {
        struct kvf_blob b, own;
        const void *got = NULL, *want;
        bool found = false;
        if (kvf_blob(k->t, i, &b, NULL) != KVF_OK)
            continue;
        bool seen = kvf_blob_view(k->t, i, &got, NULL) == KVF_OK;
        for (int j = 0; j < kvf_n_blobs(all) && !found; j++)
            found = kvf_blob(all, j, &own, NULL) == KVF_OK && same_blob(&b, &own)
                    && (!seen
                        || (kvf_blob_view(all, j, &want, NULL) == KVF_OK
                            && memcmp(got, want, kvf_blob_size(&b)) == 0));
        k->s.wrong |= !found;
        whole += seen;
    }
    k->s.complete &= whole == kvf_n_blobs(all);
}

struct shown reference_compare(const struct reference *r, struct kvf_trace *t)
{
    const struct state *last = &r->state[r->n_states - 1], *at = last;
    struct look k = {.r = r, .t = t, .s = {.epoch = kvf_epoch(t), .n_steps = kvf_n_steps(t)}};
    for (int i = 0; i < r->n_states; i++)
        if (r->state[i].n_steps == k.s.n_steps && r->state[i].epoch == k.s.epoch) {
            at = &r->state[i];
            k.known = true;
        }
    k.want = at->t;
    k.s.complete = at == last && k.known;
    if (!same_schema(t, k.want) || k.s.n_steps > at->n_steps) {
        k.s.wrong = true;
        return k.s;
    }
    char id[33];
    k.s.complete &= kvf_run_id(t, id) == kvf_run_id(k.want, id); /* lost with the file header */
    columns(&k);
    tokens(&k);
    notes(&k, last->t);
    blobs(&k, last->t);
    k.s.complete &= k.s.lost == 0;
    return k.s;
}
