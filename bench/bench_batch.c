/* bench_batch.c - measures throughput and memory of decoding by method, budget, length and batch
 * size.
 *
 *   usage: bench_batch [-m METHOD,...] [-b BUDGET,...] [-l LENGTH,...] [-n BATCH,...] [-s STEPS]
 *                      [-a BITS] [-g GATES] [-t THREADS] MODEL.gguf
 *
 * The program prefills as many prompts of random tokens as the largest batch, once for all methods.
 * Each method then decodes STEPS tokens of the first BATCH prompts together (batch_step). One
 * thread is measured by CPU time, several threads by wall time.  Sequences share no memory.
 *
 * Columns: tokens of a prompt, sequences, method, budget, tokens per second of all sequences,
 * seconds of the STEPS, MiB of the cache pages at the end, and tokens per second relative to the
 * full cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/experiment/lanes.h"
#include "engine/model/gguf.h"

enum { MOST = 16, SEQUENCES = 64 };

static struct {
    struct engine *e;
    struct gates *gates;
    struct eval_cell cell[LANES_MOST];
    int n_cells, steps, threads;
    struct lanes *lanes; /* [SEQUENCES] */
} bench;

static _Noreturn void fail(const char *what, const struct kvf_diag *d)
{
    fprintf(stderr, "bench_batch: %s: %s\n", what, d->text);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(bench.threads > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Splits a list at commas, in place.  Returns the number of parts. */
static int parts(char *list, char **part)
{
    int n = 0;
    for (char *p = strtok(list, ","); p && n < MOST; p = strtok(NULL, ","))
        part[n++] = p;
    return n;
}

static int numbers(char *list, int *number)
{
    char *part[MOST];
    int n = parts(list, part);
    for (int i = 0; i < n; i++)
        number[i] = atoi(part[i]);
    return n;
}

static void add_cell(const char *name, int budget)
{
    struct kvf_diag d = {""};
    struct eval_cell *c = &bench.cell[bench.n_cells++];
    *c = (struct eval_cell){.label = name};
    if (method_parse(name, budget, &c->row, &c->params, &d) != KVF_OK)
        fail(name, &d);
    c->gates = method_gates(&c->row) ? bench.gates : NULL;
    struct method_inputs in = {.gates = c->gates, .model = &bench.e->config};
    if (method_check_inputs(&c->row, &c->params, &in, &d) != KVF_OK)
        fail(name, &d);
}

/* Prefills n prompts of `length` tokens for all cells. */
static void read_prompts(int length, int n)
{
    struct kvf_diag d = {""};
    int32_t *ids = mem_alloc((size_t)length, sizeof *ids);
    struct rng r;
    for (int i = 0; i < n; i++) {
        rng_init(&r, (uint64_t)i);
        for (int k = 0; ids && k < length; k++)
            ids[k] = (int32_t)rng_below(&r, (uint64_t)bench.e->config.vocab);
        bench.lanes[i] = (struct lanes){.engine = bench.e,
                                        .kv_type = KV_F16,
                                        .cap = length + bench.steps,
                                        .cell = bench.cell,
                                        .n = bench.n_cells};
        if (!ids || lanes_open(&bench.lanes[i], ids, length, &d) != KVF_OK)
            fail("a prompt", &d);
    }
    mem_free(ids);
}

/* Decodes with a cell.  Returns tokens per second. */
static double decode(int cell, int length, int n, double full)
{
    struct session *s[SEQUENCES] = {NULL};
    struct batch *batch = NULL;
    struct kvf_diag d = {""};
    int32_t ids[SEQUENCES];
    double bytes = 0, rate, seconds;
    if (batch_create(bench.e, n, &batch) != KVF_OK)
        fail("a batch", &d);
    for (int i = 0; i < n; i++) {
        ids[i] = 1;
        if (session_fork(bench.lanes[i].lane[cell], NULL, &s[i], &d) != KVF_OK)
            fail("a sequence", &d);
    }
    double began = now();
    for (int k = 0; k < bench.steps; k++)
        if (batch_step(batch, s, n, ids) != KVF_OK)
            fail("a step", &d);
    seconds = now() - began;
    rate = n * bench.steps / seconds;
    for (int i = 0; i < n; i++) {
        const struct cache_stats st = session_cache_stats(s[i]);
        bytes += (double)st.pages * (double)st.page_bytes;
        session_destroy(s[i]);
    }
    batch_destroy(batch);
    printf("%d\t%d\t%s\t%d\t%.1f\t%.3f\t%.1f\t%.2f\n", length, n, bench.cell[cell].label,
           bench.cell[cell].params.budget, rate, seconds, bytes / (1 << 20),
           full > 0 ? rate / full : 1);
    fflush(stdout);
    return rate;
}

static void open_model(const char *path, bool bits8, const char *gates)
{
    struct engine_options opt = {
        .n_threads = bench.threads, .cpu_flags = cpu_flags_detect(), .i8_activations = bits8};
    struct kvf_diag d = {""};
    if (engine_open(path, &opt, &bench.e, &d) != KVF_OK)
        fail(path, &d);
    struct gates_model m = gates_model_from(&bench.e->config, bench.e->hash, &bench.e->kernels);
    if (gates && gates_open(gates, &m, &bench.gates, &d) != KVF_OK)
        fail(gates, &d);
}

int main(int argc, char **argv)
{
    static char methods[256] = "window,h2o,snapkv", budgets[64] = "128,512",
                lengths[64] = "1000,4000", batches[64] = "1,8";
    char *const lists[] = {methods, budgets, lengths, batches}, *name[MOST];
    static const char letters[] = "mbln";
    int budget[MOST], length[MOST], batch[MOST], at = 1;
    const char *gates = NULL;
    bool bits8 = false;
    bench.steps = 32;
    bench.threads = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        const char *list = strchr(letters, argv[at][1]);
        if (list)
            snprintf(lists[list - letters], list == letters ? sizeof methods : sizeof budgets, "%s",
                     argv[at + 1]);
        else if (argv[at][1] == 's')
            bench.steps = atoi(argv[at + 1]);
        else if (argv[at][1] == 't')
            bench.threads = atoi(argv[at + 1]);
        else if (argv[at][1] == 'a') /* bits of activations */
            bits8 = atoi(argv[at + 1]) == 8;
        else
            gates = argv[at + 1];
    }
    if (at + 1 != argc)
        return fprintf(stderr, "usage: see the head of bench/bench_batch.c\n"), 2;
    open_model(argv[at], bits8, gates);
    int n_names = parts(methods, name), n_budgets = numbers(budgets, budget);
    int n_lengths = numbers(lengths, length), n_batches = numbers(batches, batch), most = 0;
    add_cell("full", 0);
    for (int i = 0; i < n_names; i++)
        for (int k = 0; k < n_budgets && bench.n_cells < LANES_MOST; k++)
            add_cell(name[i], budget[k]);
    for (int i = 0; i < n_batches; i++)
        most = batch[i] > most && batch[i] <= SEQUENCES ? batch[i] : most;
    bench.lanes = MEM_NEW(struct lanes, SEQUENCES);
    printf("length\tbatch\tmethod\tbudget\ttokens_per_second\tseconds\tmib\ttimes_full\n");
    for (int l = 0; bench.lanes && l < n_lengths; l++) {
        read_prompts(length[l], most);
        for (int b = 0; b < n_batches; b++) {
            double full = 0;
            for (int c = 0; c < bench.n_cells; c++) {
                double rate = decode(c, length[l], batch[b], full);
                full = c ? full : rate;
            }
        }
        for (int i = 0; i < most; i++)
            lanes_close(&bench.lanes[i]);
    }
    mem_free(bench.lanes);
    gates_close(bench.gates);
    engine_close(bench.e);
    return 0;
}
