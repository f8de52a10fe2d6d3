/* 07_threads.c - several threads write one trace: each the heads of its layers, in pieces.  The
 * order of the pieces in the file is whatever came first, the digest of the trace is the same for
 * any number of threads.
 *
 *     ./07_threads X.kvf THREADS && kvfate trace checksum X.kvf */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvf/trace.h>

enum { LAYERS = 8, HEADS = 4, T = 20000, PIECE = 4096, MOST_THREADS = 64 };

static const struct kvf_column column = {"x-mylab.weight", KVF_F32, KVF_SPACE_QUERY,
                                         KVF_AXIS_STEP,    0,       ""};

struct part {
    struct kvf_writer *w;
    int first, step; /* layers first, first + step, ... */
    int err;
};

static int write_layer(struct kvf_writer *w, int layer)
{
    static _Thread_local float v[HEADS][PIECE];
    int err = KVF_OK;
    for (uint32_t t0 = 0, n; !err && t0 < T; t0 += n) {
        n = T - t0 < PIECE ? T - t0 : PIECE;
        float *out = &v[0][0]; /* [HEADS][n] */
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t i = 0; i < n; i++)
                *out++ = (float)((t0 + i) % 100 * (h + 1)) + (float)layer;
        err = kvf_write_chunk(w, 0, layer, 0, HEADS, t0, n, 0, v);
    }
    return err;
}

static void *work(void *arg)
{
    struct part *p = arg;
    for (int l = p->first; !p->err && l < LAYERS; l += p->step)
        p->err = write_layer(p->w, l);
    return NULL;
}

static int write_all(struct kvf_writer *w, int threads)
{
    pthread_t thread[MOST_THREADS];
    struct part part[MOST_THREADS];
    int started = 0, err = KVF_OK;
    for (; started < threads; started++) {
        part[started] = (struct part){w, started, threads, KVF_OK};
        if (pthread_create(&thread[started], NULL, work, &part[started]) != 0)
            break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        err = err ? err : part[i].err;
    }
    if (!err && started < threads)
        err = KVF_E_NOMEM;
    return err ? err : kvf_writer_commit(w, 1, T); /* when all have returned */
}

int main(int argc, char **argv)
{
    uint16_t heads[LAYERS];
    const struct kvf_shape shape = {LAYERS, heads, heads};
    const struct kvf_writer_options options = {.plain = true};
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {""};
    int threads = argc == 3 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "usage: 07_threads X.kvf THREADS\n");
        return 2;
    }
    for (int l = 0; l < LAYERS; l++)
        heads[l] = HEADS;
    int err = kvf_writer_open(argv[1], "{}", &shape, &column, 1, &options, &w, &d);
    if (!err) {
        err = write_all(w, threads);
        int closed = kvf_writer_close(w, &d);
        err = err ? err : closed;
    }
    if (err)
        fprintf(stderr, "07_threads: %s\n", d.text[0] ? d.text : kvf_strerror(err));
    return err ? 1 : 0;
}
