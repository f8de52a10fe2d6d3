/* The emulation finds what it is for: each small kernel below has one fault, or none. */
#include <cstdio>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/emulation_c.h"
#include "tests/cuda/emulation.hh"

enum { LANES = 64 };

/* Each lane passes what it wrote to the next one. */
static void passes_on(int *out, bool barrier, bool own_warp)
{
    SHARED(int, a, LANES);
    int i = (int)threadIdx.x;
    a[i] = i;
    if (barrier && own_warp)
        __syncwarp();
    else if (barrier)
        __syncthreads();
    int next = own_warp ? i / 32 * 32 + (i + 1) % 32 : (i + 1) % LANES;
    out[i] = a[next];
}

static void beyond(int *out)
{
    SHARED(int, a, LANES);
    a[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x + 1];
}

static void unset(int *out)
{
    SHARED(int, a, LANES);
    if (threadIdx.x < 10)
        a[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = a[LANES - 1 - threadIdx.x];
}

/* Reads what another lane writes over before the next barrier. */
static void reused(int *out)
{
    SHARED(int, a, 1);
    for (int step = 0; step < 2; step++) {
        if (threadIdx.x == 5)
            a[0] = step;
        __syncthreads();
        out[threadIdx.x] = a[0];
    }
}

/* Lane 0 writes what the lanes of a mask have read, after a barrier of its warp or none. */
static void read_before(int *out, uint64_t readers, bool barrier)
{
    SHARED(int, a, 1);
    unsigned i = threadIdx.x;
    if (i == 0)
        a[0] = 1;
    __syncthreads();
    out[i] = readers >> i & 1 ? (int)a[0] : 0;
    out[i] += (int)__ballot_sync(~0u, 1); /* all have read, and nothing is ordered by that */
    if (barrier)
        __syncwarp();
    if (i == 0)
        a[0] = 2;
}

static void counted(int *out, bool atomic)
{
    SHARED(int, a, 1);
    if (threadIdx.x == 0)
        a[0] = 0;
    __syncthreads();
    if (atomic)
        atomicAdd(&a[0], 1);
    else
        a[0] += 1;
    __syncthreads();
    out[threadIdx.x] = a[0];
}

static void collective_of_some(int *out)
{
    out[threadIdx.x] = threadIdx.x < 40 ? __shfl_xor_sync(~0u, 1, 1) : 0;
}

static void barrier_of_some(int *out)
{
    if (threadIdx.x % 2)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 0;
}

static int n_failed;

static void expect(const char *what, bool ok)
{
    if (!ok)
        printf("failed: %s (%s)\n", what, emulation_first_fault());
    n_failed += !ok;
}

/* Runs f in a process of its own: 0 no fault, 1 faults, 2 it could not go on. */
template <class F> static int outcome(F f, const char *words)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int out[LANES];
        fclose(stderr);
        emulated::launch("k", 1, LANES, 0, [&] { f(out); });
        bool named = !words || strstr(emulation_first_fault(), words);
        _exit(emulation_faults() == 0 ? 0 : named ? 1 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

int main()
{
    for (unsigned seed = 0; seed < 4; seed++) {
        emulation_seed(seed);
        expect("a barrier", outcome([](int *o) { passes_on(o, true, false); }, nullptr) == 0);
        expect("a barrier of a warp",
               outcome([](int *o) { passes_on(o, true, true); }, nullptr) == 0);
        expect("no barrier", outcome([](int *o) { passes_on(o, false, false); }, "a[") == 1);
        expect("no barrier in a warp",
               outcome([](int *o) { passes_on(o, false, true); }, "a[") == 1);
        expect("an index beyond", outcome(beyond, "read beyond a[64]") == 1);
        expect("what nobody wrote", outcome(unset, "nobody wrote") == 1);
        expect("a second write", outcome(reused, "write after a read of a[0]") == 1);
        expect("a read of one's own",
               outcome([](int *o) { read_before(o, 1, false); }, nullptr) == 0);
        expect("reads before a barrier of the warp",
               outcome([](int *o) { read_before(o, 0xf, true); }, nullptr) == 0);
        expect("reads of two lanes",
               outcome([](int *o) { read_before(o, 0x3, false); }, "after a read") == 1);
        expect("reads of two warps",
               outcome([](int *o) { read_before(o, 0x10000000f, true); }, "after a read") == 1);
        expect("an atomic sum", outcome([](int *o) { counted(o, true); }, nullptr) == 0);
        expect("a sum that is none", outcome([](int *o) { counted(o, false); }, "race") == 1);
        expect("a collective of some", outcome(collective_of_some, nullptr) == 2);
        expect("a barrier of some", outcome(barrier_of_some, nullptr) == 2);
    }
    return n_failed > 0;
}
