/* race_write.c - many threads append to one writer. In any order, the trace is valid and has the
 * digest of the trace of a single thread. It uses no test framework, since Criterion does not start
 * under ThreadSanitizer. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvf/trace.h>

#include "tiny.h"

/* Jobs per epoch: LARGE calls with values of several chunks, for a column of eight heads; and SMALL
 * calls of a few steps for each of the other columns. */
enum { HEADS = 8, LARGE = 4, SMALL = 60, STEPS = 5, T = SMALL * STEPS, BIG = 40000, EPOCHS = 3 };
enum { STREAM, SNAPSHOT, LISTS, LONG, COLUMNS };

static const struct kvf_column column[COLUMNS] = {
    {"x-race.stream", KVF_F64, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
    {"x-race.snapshot", KVF_U16, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
    {"x-race.seen", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_INTERVALS,
     "step"},
    {"x-race.long", KVF_U32, KVF_SPACE_KV, KVF_AXIS_STEP, 0, ""},
};

struct race {
    struct kvf_writer *w;
    uint32_t epoch;
    int n_jobs;
    atomic_int next, err; /* job; first error */
};

static uint32_t any(uint32_t x) /* returns different numbers for different x */
{
    x = (x ^ x >> 16) * 0x45d9f3bu;
    return x ^ x >> 15;
}

static int write_texts(struct kvf_writer *w, uint32_t t0)
{
    char text[STEPS];
    uint32_t end[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        text[i] = (char)('a' + any(t0 + i) % 26);
        end[i] = i + 1;
    }
    return kvf_write_token_bytes(w, t0, STEPS, end, text);
}

static int write_lists(struct kvf_writer *w, uint32_t t0, uint32_t epoch)
{
    struct kvf_interval v[2 * STEPS];
    uint32_t end[2 * STEPS];
    for (uint32_t k = 0; k < 2 * STEPS; k++) {
        v[k] = (struct kvf_interval){t0 + k % STEPS + k / STEPS, T + epoch};
        end[k] = k + 1;
    }
    return kvf_write_intervals(w, LISTS, 0, 0, 2, t0, STEPS, epoch, end, v);
}

static int write_blobs(struct kvf_writer *w, uint32_t t0, uint32_t epoch)
{
    static const float weight[2][64] = {{1, 2, 3}};
    struct kvf_blob b = {"x-race.block", KVF_F32, 2, 0, 1, t0, {2, 64}};
    int err = kvf_write_blob(w, &b, true, weight);
    b.head = (uint16_t)(epoch % 2);
    return err ? err : kvf_write_blob(w, &b, false, weight);
}

static int write_large(struct kvf_writer *w, uint32_t part, uint32_t epoch)
{
    uint32_t t0 = T + 1 + EPOCHS + (epoch * LARGE + part) * BIG, *v = malloc(2 * BIG * sizeof *v);
    if (!v)
        return KVF_E_NOMEM;
    for (uint32_t i = 0; i < 2 * BIG; i++)
        v[i] = any(t0 + i) >> (i % 32);
    int err = kvf_write_chunk(w, LONG, 0, 0, 2, t0, BIG, 0, v);
    free(v);
    return err;
}

/* Runs one job; the result is independent of the thread. */
static int do_job(struct kvf_writer *w, int job, uint32_t epoch)
{
    double v[HEADS][STEPS];
    uint16_t age[2][STEPS];
    char key[16];
    if (job < LARGE)
        return write_large(w, (uint32_t)job, epoch);
    uint32_t part = (uint32_t)(job - LARGE), t0 = part * STEPS, own = any(epoch * 4096 + part);
    for (uint32_t i = 0; i < HEADS * STEPS; i++)
        v[i / STEPS][i % STEPS] = any(own + i);
    for (uint32_t i = 0; i < 2 * STEPS; i++)
        age[i / STEPS][i % STEPS] = (uint16_t)any(own - i);
    snprintf(key, sizeof key, "n%u", part % 7); /* all notes with a given key are equal */
    int err = kvf_write_chunk(w, SNAPSHOT, 0, 0, 2, t0, STEPS, epoch, age);
    if (!err)
        err = write_lists(w, t0, epoch);
    if (!err && part % 9 == 0)
        err = write_blobs(w, t0, epoch);
    if (!err && epoch == 1)
        err = kvf_write_chunk(w, STREAM, 0, 0, HEADS, t0, STEPS, 0, v);
    if (!err && epoch == 1)
        err = write_texts(w, t0);
    return err ? err : kvf_writer_note(w, key, "{\"race\":true}");
}

static void *work(void *arg)
{
    struct race *r = arg;
    for (int job; (job = atomic_fetch_add(&r->next, 1)) < r->n_jobs;) {
        int err = do_job(r->w, job, r->epoch), none = KVF_OK;
        if (!err && kvf_writer_bytes(r->w) < 64)
            err = KVF_E_CORRUPT;
        if (!err && job % 16 == 0)
            err = kvf_writer_sync(r->w);
        if (err)
            atomic_compare_exchange_strong(&r->err, &none, err);
    }
    return NULL;
}

static int epoch_with(struct race *r, int threads)
{
    pthread_t thread[16];
    atomic_store(&r->next, 0);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, work, r) != 0)
            return KVF_E_NOMEM;
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    int err = atomic_load(&r->err);
    return err ? err : kvf_writer_commit(r->w, r->epoch, T + 1 + EPOCHS);
}

/* Writes the trace and reads its digest; returns the first error. */
static int trace_with(int threads, char digest[33])
{
    static const uint16_t n_kv = 2, n_query = HEADS;
    static const struct kvf_shape shape = {1, &n_kv, &n_query};
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE};
    const char *path = scratch_path("race.kvf");
    struct race r = {.n_jobs = LARGE + SMALL};
    struct kvf_check c;
    struct kvf_trace *t = NULL;
    int err = kvf_writer_open(path, "{}", &shape, column, COLUMNS, &o, &r.w, NULL);
    for (r.epoch = 1; !err && r.epoch <= EPOCHS; r.epoch++)
        err = epoch_with(&r, threads);
    int closed = kvf_writer_close(r.w, NULL);
    err = err ? err : closed;
    if (!err)
        err = kvf_verify(path, 1, &c, NULL);
    if (!err)
        err = kvf_open(path, KVF_OPEN_STRICT, &t, NULL);
    if (!err)
        err = kvf_digest(t, digest, NULL);
    kvf_close(t);
    unlink(path);
    return err;
}

int main(void)
{
    static const int threads[] = {1, 2, 3, 8, 16};
    char first[33] = "", digest[33];
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        int err = trace_with(threads[i], digest);
        if (!first[0])
            strcpy(first, digest);
        if (err || strcmp(digest, first) != 0) {
            fprintf(stderr, "%d threads: %s, digest %s, of one thread %s\n", threads[i],
                    kvf_strerror(err), digest, first);
            return 1;
        }
    }
    return 0;
}
