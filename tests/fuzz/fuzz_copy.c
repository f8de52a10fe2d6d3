/* fuzz_copy.c - files derived from a trace: copies, pieces that are joined again, and repairs of a
 * damaged trace, or of an unfinished one with its tail. Byte 0 selects the operation, and how often
 * the trace (any_trace.h) is damaged first. */
#include <kvf/copy.h>

#include "any_trace.h"
#include "fuzz.h"
#include "tests/scoped.h"

enum { MOST_HEADS = 16, PATHS = 4 };

/* Returns the name of a file in memory of this process. */
static const char *place(int i)
{
    static char path[PATHS][64];
    if (!path[i][0])
        snprintf(path[i], sizeof path[i], "/dev/shm/kvf-fuzz-%d-%d.kvf", (int)getpid(), i);
    return path[i];
}

static void digest_of(const char *path, char ret[33])
{
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    struct kvf_check c;
    char stored[33];
    MUST(kvf_verify(path, 1, &c, NULL) == KVF_OK && c.clean);
    MUST(kvf_open(path, KVF_OPEN_STRICT, &t, NULL) == KVF_OK);
    MUST(kvf_digest(t, ret, NULL) == KVF_OK && kvf_stored_digest(t, stored) == KVF_OK);
    MUST(strcmp(ret, stored) == 0);
}

/* Checks that a written file is a valid trace, and that a failure has a message and writes no
 * file. */
static bool made(int err, const char *path, const struct kvf_diag *d, char digest[33])
{
    MUST(err == KVF_OK || d->text[0]);
    MUST(err != KVF_E_IO && err != KVF_E_NOMEM);
    MUST((access(path, F_OK) == 0) == (err == KVF_OK));
    if (err == KVF_OK)
        digest_of(path, digest);
    return err == KVF_OK;
}

static void copy(struct kvf_trace *t)
{
    struct kvf_copied ret;
    struct kvf_diag d = {""};
    char mine[33], its[33];
    int err = kvf_copy(&(struct kvf_copy_request){.trace = t, .out = place(0), .overwrite = true},
                       &ret, &d);
    if (made(err, place(0), &d, mine) && kvf_digest(t, its, NULL) == KVF_OK)
        MUST(strcmp(mine, its) == 0);
}

static void piece(struct kvf_trace *t, struct source *s)
{
    unsigned char heads[MOST_HEADS];
    uint64_t bits = take(s, 2);
    struct kvf_piece p = {.from = (uint32_t)take(s, 1) % 48, .to = (uint32_t)take(s, 1) % 48};
    struct kvf_copied ret;
    struct kvf_diag d = {""};
    char digest[33];
    for (int i = 0; i < MOST_HEADS; i++)
        heads[i] = bits >> i & 1;
    if (bits)
        p.heads = heads;
    int err = kvf_copy(&(struct kvf_copy_request){.trace = t, .piece = &p, .out = place(0)}, &ret,
                       &d);
    if (made(err, place(0), &d, digest))
        MUST(ret.n_steps <= kvf_n_steps(t));
}

/* Splits a trace into two or three pieces and joins them. */
static void join(struct kvf_trace *t, struct source *s)
{
    struct kvf_trace *part[3] = {NULL};
    struct kvf_copied ret;
    struct kvf_diag d = {""};
    char digest[33], its[33], joined[33];
    uint32_t T = kvf_n_steps(t), cut[4] = {0, (uint32_t)take(s, 1), (uint32_t)take(s, 1), T};
    int n = 2 + (int)(take(s, 1) % 2), whole = 1;
    if (n == 2)
        cut[2] = T;
    for (int i = 0; i < n && whole; i++) {
        struct kvf_piece p = {.from = cut[i], .to = cut[i + 1]};
        int err = kvf_copy(&(struct kvf_copy_request){.trace = t, .piece = &p, .out = place(i)},
                           &ret, &d);
        whole = made(err, place(i), &d, digest)
                && kvf_open(place(i), KVF_OPEN_STRICT, &part[i], &d) == KVF_OK;
    }
    d.text[0] = 0;
    if (whole) {
        int err = kvf_copy(&(struct kvf_copy_request){.part = part, .n_parts = n, .out = place(3)},
                           &ret, &d);
        if (made(err, place(3), &d, joined) && kvf_n_blobs(t) == 0
            && kvf_digest(t, its, NULL) == KVF_OK)
            MUST(strcmp(joined, its) == 0);
    }
    for (int i = 0; i < 3; i++)
        kvf_close(part[i]);
}

static void said(void *ctx, const char *line)
{
    MUST(line[0]);
    ++*(int *)ctx;
}

static void repair(const char *path)
{
    struct kvf_copied ret;
    struct kvf_repaired r;
    struct kvf_diag d = {""};
    OWNED(kvf_close) struct kvf_trace *t = NULL;
    char digest[33], told[33];
    int lines = 0;
    int err = kvf_copy(
        &(struct kvf_copy_request){
            .damaged = path, .say = said, .say_ctx = &lines, .ret_repaired = &r, .out = place(0)},
        &ret, &d);
    if (!made(err, place(0), &d, digest) || !r.intact)
        return;
    MUST(kvf_open(path, KVF_OPEN_SALVAGE, &t, NULL) == KVF_OK); /* all announced contents */
    MUST(kvf_stored_digest(t, told) != KVF_OK || strcmp(told, digest) == 0);
}

static unsigned char file[ANY_TRACE_ROOM];

static void write_file(const char *path, const char *suffix, const unsigned char *p, size_t n)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s", path, suffix);
    FILE *f = fopen(name, "wb");
    MUST(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

static void remove_file(const char *path, const char *suffix)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s", path, suffix);
    unlink(name);
}

/* Repairs an unfinished trace with its newer tail. */
static void with_tail(struct source *s)
{
    struct source again = *s;
    struct kvf_trace *t = NULL;
    struct kvf_check c;
    struct kvf_diag d = {""};
    int lines = 0, n_said = 0;
    size_t n;
    const unsigned char *p = any_trace_as(s, ANY_UNFINISHED, &n);
    write_file(place(1), ".unfinished", p, n);
    p = any_trace_as(&again, ANY_TAIL, &n);
    memcpy(file, p, n);
    any_trace_digest(file, n);
    write_file(place(1), ".tail", file, n);
    int err = kvf_verify_tail(place(1), 1, &c, &d);
    MUST(err == KVF_OK || d.text[0]);
    if (kvf_open(place(1), KVF_OPEN_TAIL, &t, &d) == KVF_OK)
        MUST(kvf_judge(t, 1, said, &lines, &n_said) == KVF_OK && n_said == lines);
    kvf_close(t);
    unlink(place(0));
    repair(place(1));
    unlink(place(0));
    remove_file(place(1), ".unfinished");
    remove_file(place(1), ".tail");
}

/* Changes bytes and cuts off the end; returns the new length. */
static size_t damage(struct source *s, unsigned char *p, size_t n, unsigned times)
{
    for (unsigned k = 0; k < times; k++) {
        uint64_t at = take(s, 2), how = take(s, 1);
        if (how == 255)
            n = at % n;
        else
            p[at * (n / 65536 + 1) % n] ^= (unsigned char)(how + 1);
        if (n == 0)
            return 0;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source s = {data, size};
    struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    char path[64];
    size_t n;
    if (size > 1024)
        return 0;
    unsigned what = (unsigned)take(&s, 1), times = what >> 2 & 15;
    struct source how = s;
    take(&s, 8);
    if (what % 4 == 3 && what >> 6 == 2) {
        with_tail(&s);
        return 0;
    }
    const unsigned char *p = any_trace(&s, &n);
    memcpy(file, p, n);
    if (times != 8)
        any_trace_digest(file, n);
    n = damage(&s, file, n, times > 8 ? times - 8 : 0);
    int fd = memory_file(file, n, path);
    for (int i = 0; i < PATHS; i++)
        unlink(place(i));
    if (what % 4 == 3)
        repair(path);
    else if (kvf_open(path, what >> 6 == 3 ? KVF_OPEN_SALVAGE : KVF_OPEN_TAIL, &t, &d) == KVF_OK) {
        if (what % 4 == 0)
            copy(t);
        else if (what % 4 == 1)
            piece(t, &how);
        else
            join(t, &how);
    }
    kvf_close(t);
    for (int i = 0; i < PATHS; i++)
        unlink(place(i));
    close(fd);
    return 0;
}
