/* test_emulation.cc - tests that the emulation detects faults. Each small kernel below has exactly
 * one fault, or no fault. */
#include <cstdio>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/emulation_c.h"
#include "tests/cuda/emulation.hh"

enum { LANES = 64 };

/* Each lane passes the value that it wrote to the next lane. */
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

/* Reads a value that another lane overwrites before the next barrier. */
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

/* Lane 0 writes what the lanes of a mask have read, with or without a warp barrier in between. */
static void read_before(int *out, uint64_t readers, bool barrier)
{
    SHARED(int, a, 1);
    unsigned i = threadIdx.x;
    if (i == 0)
        a[0] = 1;
    __syncthreads();
    out[i] = readers >> i & 1 ? (int)a[0] : 0;
    out[i] += (int)__ballot_sync(~0u, 1); /* a ballot does not order memory accesses */
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

/* Each lane copies a piece twice, and reads the piece of a lane of the other warp. */
struct how {
    bool waits, barrier, second;
};
static const uint4 *pieces(void)
{
    static uint4 all[LANES];
    for (unsigned i = 0; i < LANES; i++)
        all[i] = uint4{i, i + 1, i + 2, i + 3};
    return all;
}
static void copies(int *out, how h)
{
    SHARED(uint4, a, LANES);
    unsigned i = threadIdx.x;
    for (int step = 0; step < 2; step++) {
        copy_piece(a + i, pieces() + i, i % 8 != 7);
        copies_group();
        if (h.waits)
            copies_wait<0>();
        if (h.barrier)
            __syncthreads();
        uint4 got = a[LANES - 1 - i];
        out[i] = (int)got.y;
        if (h.second)
            __syncthreads();
    }
}

static void no_barrier(int *out)
{
    copies(out, {true, false, true});
}
static void too_early(int *out)
{
    copies(out, {true, true, false});
}

/* A warp computes C = A B with A [16][16] and B [16][8] in pieces. */
static void matrices(int *out)
{
    SHARED(uint4, a, 32);
    SHARED(uint4, b, 16);
    unsigned i = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        uint32_t w[4] = {0, 0, 0, 0}, x[4], y[4];
        for (unsigned k = 0; k < 8; k++) /* row i / 2, columns from i % 2 * 8 */
            w[k / 2] |= (uint32_t)float_to_half((float)(i / 2 * 3 + (i % 2 * 8 + k) % 5))
                        << 16 * (k % 2);
        a[i] = uint4{w[0], w[1], w[2], w[3]};
        for (unsigned k = 0; k < 4; k++) /* row i, columns 2 k and 2 k + 1 */
            w[k] = float_to_half((float)(i + 2 * k))
                   | (uint32_t)float_to_half((float)(i + 2 * k + 1)) << 16;
        if (i < 16)
            b[i] = uint4{w[0], w[1], w[2], w[3]};
        __syncwarp();
        load_matrices(x, a + (i % 16 * 2 + i / 16));
        load_matrices_turned(y, b + i % 16);
        float c[4] = {0, 0, 0, 0};
        multiply(c, x, y[0], y[1]);
        for (unsigned k = 0; k < 4; k++) {
            unsigned row = i / 4 + k / 2 * 8, column = i % 4 * 2 + k % 2, sum = 0;
            for (unsigned m = 0; m < 16; m++)
                sum += (row * 3 + m % 5) * (m + column);
            if (c[k] != (float)sum)
                emulated::fault("product", "c", row * 8 + column, nullptr, nullptr);
        }
    }
    out[threadIdx.x] = 0;
}

static void of_some_lanes(int *out)
{
    out[threadIdx.x] = (int)__ballot_sync(0xffff, 1);
}

/* Reads four floats at once: from an array without guaranteed alignment, or from an aligned array,
 * on or off a boundary. */
static void fours(int *out, bool aligned, unsigned at)
{
    SHARED(float, a, LANES);
    SHARED_FOURS(float, b, LANES);
    in_shared<float> of = aligned ? b + 0 : a + 0;
    float x[4];
    of[threadIdx.x] = 1;
    __syncthreads();
    shared_four(of, at, x);
    out[threadIdx.x] = (int)x[0];
}
static void piece_off(int *out)
{
    SHARED(uint4, a, LANES);
    copy_piece(a + (size_t)threadIdx.x, (const char *)(const void *)pieces() + 8, true);
    copies_group();
    copies_wait<0>();
    out[threadIdx.x] = 0;
}

/* Uses 40 KB of static shared memory. */
static void large(int *out)
{
    SHARED(float, a, 10 << 10);
    a[threadIdx.x] = 1;
    out[threadIdx.x] = 0;
}

static int n_failed;

static void expect(const char *what, bool ok)
{
    if (!ok)
        printf("failed: %s (%s)\n", what, emulation_first_fault());
    n_failed += !ok;
}

/* Runs f in a child process. Returns 0 for no fault, 1 for faults, 2 if the process crashed, 3 if
 * the first fault lacks `words`. */
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

/* Launches large() with this many bytes of dynamic shared memory; `allowed` is the limit of the
 * kernel. Returns 1 if there are faults, 0 if not. */
static int outcome_of_shared(size_t bytes, size_t allowed)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int out[LANES];
        fclose(stderr);
        emulated::launch(
            "k", 1, LANES, bytes, [&] { large(out); }, allowed);
        _exit(emulation_faults() > 0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

template <class F> static int outcome_of_calls(F f)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char *device, *pinned, plain[64] = "";
        fclose(stderr);
        cudaMalloc((void **)&device, 64);
        cudaMallocHost((void **)&pinned, 64);
        f(device, pinned, plain);
        cudaStreamSynchronize(nullptr);
        _exit(emulation_faults() > 0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

/* Returns true if a graph with a single device-to-host copy can be built. */
static bool makes_a_graph(void *to, const void *from, size_t bytes)
{
    cudaGraph_t g;
    cudaGraphNode_t n;
    cudaGraphCreate(&g, 0);
    cudaError_t e = cudaGraphAddMemcpyNode1D(&n, g, nullptr, 0, to, from, bytes,
                                             cudaMemcpyDeviceToHost);
    cudaGraphDestroy(g);
    return e == cudaSuccess;
}

static void refuses_what_a_device_refuses()
{
    expect("a mask", outcome(of_some_lanes, "mask without") == 1);
    expect("four at once", outcome([](int *o) { fours(o, true, 8); }, nullptr) == 0);
    expect("four anywhere", outcome([](int *o) { fours(o, false, 8); }, "boundary") == 1);
    expect("four between", outcome([](int *o) { fours(o, true, 6); }, "boundary") == 1);
    expect("a piece between", outcome(piece_off, "boundary") == 1);
    expect("shared memory", outcome_of_shared(8 << 10, emulated::UNASKED) == 0);
    expect("both together", outcome_of_shared(9 << 10, emulated::UNASKED) == 1);
    expect("as it asked", outcome_of_shared(64 << 10, 64 << 10) == 0);
    expect("more than that", outcome_of_shared(65 << 10, 64 << 10) == 1);
    expect("a copy", outcome_of_calls([](char *d, char *p, char *) {
                         cudaMemcpyAsync(p, d, 64, cudaMemcpyDeviceToHost, nullptr);
                     }) == 0);
    expect("a copy beyond", outcome_of_calls([](char *d, char *p, char *) {
                                cudaMemcpyAsync(p, d + 1, 64, cudaMemcpyDeviceToHost, nullptr);
                            }) == 1);
    expect("a copy of nothing", outcome_of_calls([](char *d, char *p, char *) {
                                    cudaMemcpyAsync(p, d, 0, cudaMemcpyDeviceToHost, nullptr);
                                }) == 1);
    expect("a copy the wrong way", outcome_of_calls([](char *d, char *p, char *) {
                                       cudaMemcpyAsync(p, d, 8, cudaMemcpyHostToDevice, nullptr);
                                   }) == 1);
    expect("memory that copies use", outcome_of_calls([](char *d, char *p, char *) {
                                         cudaMemcpyAsync(p, d, 8, cudaMemcpyDeviceToHost, nullptr);
                                         cudaFreeHost(p);
                                     }) == 1);
    expect("a graph", outcome_of_calls([](char *d, char *p, char *) {
                          if (!makes_a_graph(p, d, 8))
                              emulated::fault("refused", "", 0, nullptr, nullptr);
                      }) == 0);
    expect("plain memory in a graph",
           outcome_of_calls([](char *d, char *, char *plain) { makes_a_graph(plain, d, 8); }) == 1);
}

/* An error persists until cudaGetLastError() is called. */
static void keeps_errors()
{
    static int kernel;
    cudaError_t e = cudaFuncSetAttribute(&kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         228 << 10);
    expect("too much", e == cudaErrorInvalidValue && cudaGetLastError() == e);
    expect("told once", cudaGetLastError() == cudaSuccess);
}

/* Returns the value that lane i read. Lane LANES - 1 - i copied it. */
static int copied(how h, int i)
{
    int out[LANES];
    emulated::launch("k", 1, LANES, 0, [&] { copies(out, h); });
    return emulation_faults() == 0 ? out[i] : -2;
}

/* Returns the value of a number that is copied to the host on a second stream. The host optionally
 * waits for the first stream (joined) and for the copy (waited). */
static int sent(bool joined, bool waited)
{
    cudaStream_t other;
    cudaEvent_t packed, there;
    int *device, *home;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&packed, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&there, cudaEventDisableTiming);
    cudaMalloc((void **)&device, sizeof *device);
    cudaMallocHost((void **)&home, sizeof *home);
    *home = -1;
    cudaMemsetAsync(device, 0, sizeof *device, nullptr);
    cudaEventRecord(packed, nullptr);
    cudaStreamWaitEvent(other, packed, 0);
    cudaMemcpyAsync(home, device, sizeof *device, cudaMemcpyDeviceToHost, other);
    cudaEventRecord(there, other);
    if (joined)
        cudaStreamWaitEvent(nullptr, there, 0);
    cudaMemsetAsync(device, 1, sizeof *device, nullptr);
    if (waited)
        cudaEventSynchronize(there);
    else
        cudaStreamSynchronize(nullptr);
    int got = *home;
    cudaEventSynchronize(there);
    cudaStreamSynchronize(nullptr);
    cudaFree(device);
    cudaFreeHost(home);
    cudaEventDestroy(packed);
    cudaEventDestroy(there);
    cudaStreamDestroy(other);
    return got;
}

/* Runs with many seeds, in which either warp goes first or both alternate. */
static void finds_reads_of_two_warps()
{
    for (unsigned seed = 0; seed < 20; seed++) {
        emulation_seed(seed);
        expect("reads of two warps",
               outcome([](int *o) { read_before(o, 0x10000000f, true); }, "race") == 1);
    }
}

int main()
{
    refuses_what_a_device_refuses();
    keeps_errors();
    for (unsigned seed = 0; seed < 4; seed++) {
        emulation_seed(seed);
        expect("a stream that nobody waits for", sent(false, false) == -1);
        expect("a stream that is joined", sent(true, false) == 0);
        expect("what comes after an event", sent(false, true) == 0);
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
        expect("reads of all",
               outcome([](int *o) { read_before(o, ~(uint64_t)0, false); }, "race") == 1);
        expect("an atomic sum", outcome([](int *o) { counted(o, true); }, nullptr) == 0);
        expect("a sum that is none", outcome([](int *o) { counted(o, false); }, "race") == 1);
        expect("copies", outcome([](int *o) { copies(o, {true, true, true}); }, nullptr) == 0);
        expect("copies that no barrier follows", outcome(no_barrier, " a[") == 1);
        expect("copies over what is read", outcome(too_early, "race") == 1);
        expect("copies come", copied({true, true, true}, 5) == LANES - 5);
        expect("a copy of zeros", copied({true, true, true}, 0) == 0);
        expect("copies that nobody waits for", copied({false, true, true}, 5) == -1);
        expect("matrices", outcome(matrices, nullptr) == 0);
        expect("a collective of some", outcome(collective_of_some, nullptr) == 2);
        expect("a barrier of some", outcome(barrier_of_some, nullptr) == 2);
    }
    finds_reads_of_two_warps();
    return n_failed > 0;
}
