/* bench_limits.c - measures two limits of this machine and prints the speeds that they allow.
 *
 *   usage: bench_limits [-t THREADS] MODEL.gguf...
 *
 * The first limit is the rate of multiply-adds of bytes. The second limit is the rate at which the
 * weights are read. Both are the best of many short runs, of all threads together, in CPU time. A
 * token of a prompt needs one multiply-add for each weight of the layers with 8-bit activations,
 * and two with 16-bit activations. The NLL of the prompt needs those of the vocabulary, too. A
 * decode step reads every packed weight once.
 *
 * Output: lines "name|quantity|number", in tokens per second for the speeds. A limit that is not
 * known has no line. Attention, the scales of blocks and the cache are not counted, so no program
 * that uses these products can reach the speeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/par.h"
#include "engine/kernels/kernels.h"
#include "engine/model/model_file.h"
#include "engine/model/weights.h"

enum { THREADS = 256, ROUNDS = 200, STEPS = 100000, CHAINS = 12, READ_ROUNDS = 20 };

/* Returns the CPU time of this thread in seconds, which other programs do not lengthen. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A short run of a limit by all threads. */
struct run {
    double rate[THREADS]; /* of each thread */
    unsigned flags;       /* of the CPU */
    uint64_t *word;       /* [threads][n] */
    size_t n;             /* a multiple of 8 */
    uint64_t sum;         /* of the first thread, so that the reads are needed */
};

/* Returns the best sum of the rates of all threads of some runs. */
static double best_of(struct par *pool, int runs, par_fn task, struct run *r)
{
    double best = 0;
    for (int i = 0; i < runs; i++) {
        double sum = 0;
        par_run(pool, par_threads(pool), task, r);
        for (int t = 0; t < par_threads(pool); t++)
            sum += r->rate[t];
        best = sum > best ? sum : best;
    }
    return best;
}

#if defined __x86_64__ && defined __GNUC__
/* Twelve independent sums hide the latency of an instruction. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define WIDE(i) "vpdpbusd %%zmm13, %%zmm12, %%zmm" #i "\n"
#define NARROW(i) "%{vex%} vpdpbusd %%ymm13, %%ymm12, %%ymm" #i "\n"
#define ZEROS "vpxor %%xmm12, %%xmm12, %%xmm12\n vpxor %%xmm13, %%xmm13, %%xmm13\n"
#define USED                                                                                       \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13"
static void multiply_task(void *ctx, int task, int thread)
{
    struct run *r = ctx;
    double began = now(), bytes = r->flags & CPU_X86_AVX512 ? 64 : 32;
    (void)thread;
    if (r->flags & CPU_X86_AVX512) {
        __asm__ volatile(ZEROS : : : USED);
        for (int i = 0; i < STEPS; i++)
            __asm__ volatile(EACH(WIDE) : : : USED);
    } else {
        __asm__ volatile(ZEROS : : : USED);
        for (int i = 0; i < STEPS; i++)
            __asm__ volatile(EACH(NARROW) : : : USED);
    }
    __asm__ volatile("vzeroupper" : : : USED);
    r->rate[task] = bytes * CHAINS * STEPS / (now() - began);
}

/* Returns the multiply-adds of bytes per second of an instruction that adds four of them; 0: the
 * CPU has none that this program knows. Matrix units (AMX) are faster. */
static double multiply_rate(struct par *pool)
{
    struct run r = {.flags = cpu_flags_detect()};
    if (!(r.flags & (CPU_X86_AVX512 | CPU_X86_AVXVNNI)) || r.flags & CPU_X86_AMX)
        return 0;
    return best_of(pool, ROUNDS, multiply_task, &r);
}
#else
static double multiply_rate(struct par *pool)
{
    (void)pool;
    return 0;
}
#endif

/* Reads one word of each cache line. */
static void read_task(void *ctx, int task, int thread)
{
    enum { LINE = 8, AHEAD = 96 * LINE };
    struct run *r = ctx;
    const uint64_t *word = r->word + (size_t)task * r->n;
    uint64_t sum = 0;
    double began = now();
    (void)thread;
    for (size_t i = 0; i < r->n; i += LINE) {
        __builtin_prefetch(word + i + AHEAD);
        sum += word[i];
    }
    if (task == 0)
        r->sum = sum;
    r->rate[task] = (double)(r->n * sizeof *r->word) / (now() - began);
}

/* Returns the bytes per second at which all threads read `bytes`, divided among them, again and
 * again, so that a part of a small model stays in the caches. Returns 0 without memory. */
static double read_rate(struct par *pool, double bytes)
{
    size_t threads = (size_t)par_threads(pool);
    struct run r = {.n = (size_t)bytes / threads / 64 * 8};
    r.word = mem_alloc(threads * r.n, sizeof *r.word);
    if (!r.word)
        return 0;
    memset(r.word, 1, threads * r.n * sizeof *r.word);
    double best = best_of(pool, READ_ROUNDS, read_task, &r);
    mem_free(r.word);
    return r.sum ? best : 0;
}

/* Needs of a token. */
struct needs {
    double layers, head; /* multiply-adds */
    double bytes;        /* of packed weights */
    bool floats;         /* some matrix is not quantised */
};

static int count(void *ctx, int layer, enum tensor_role role, const struct pack_source *src,
                 int n_src, int K)
{
    struct needs *x = ctx;
    (void)role;
    for (int i = 0; i < n_src; i++) {
        *(layer < 0 ? &x->head : &x->layers) += (double)src[i].n_rows * K;
        x->floats |= weight_block(src[i].type) == 1;
    }
    x->bytes += (double)packed_bytes(src, n_src, K, PACK_AS_STORED);
    return KVF_OK;
}

static void show(const char *name, const char *quantity, double rate)
{
    if (rate > 0)
        printf("%s|%s|%.1f\n", name, quantity, rate);
}

static int show_model(const char *path, struct par *pool, double multiplies)
{
    struct kvf_diag d = {""};
    struct gguf *g = NULL;
    struct model_config m;
    struct needs x = {0};
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    int err = model_file_open(path, &g, &d);
    err = err ? err : model_config_read(g, &m, &d);
    err = err ? err : weights_visit(g, &m, count, &x, &d);
    if (err)
        fprintf(stderr, "bench_limits: %s: %s\n", path, d.text);
    if (!err && !x.floats) {
        show(name, "prefill", multiplies / (2 * x.layers));
        show(name, "prefill, paper", multiplies / (2 * (x.layers + x.head)));
        show(name, "prefill, 8 bits", multiplies / x.layers);
        show(name, "prefill, paper, 8 bits", multiplies / (x.layers + x.head));
    }
    if (!err) {
        double reads = read_rate(pool, x.bytes);
        show(name, "decode", reads / x.bytes);
        show(name, "10^9 bytes of weights read per second", reads * 1e-9);
    }
    gguf_close(g);
    return err;
}

int main(int argc, char **argv)
{
    int threads = 2, opt, err = 0;
    struct par *pool;
    while ((opt = getopt(argc, argv, "t:")) == 't')
        threads = atoi(optarg);
    if (opt != -1 || optind == argc || threads < 1 || threads > THREADS
        || par_create(threads, &pool)) {
        fprintf(stderr, "usage: bench_limits [-t THREADS] MODEL.gguf...\n");
        return 2;
    }
    double multiplies = multiply_rate(pool);
    show("machine", "10^9 multiply-adds of bytes per second", multiplies * 1e-9);
    for (int i = optind; i < argc; i++)
        err |= show_model(argv[i], pool, multiplies);
    par_destroy(pool);
    return err ? 1 : 0;
}
