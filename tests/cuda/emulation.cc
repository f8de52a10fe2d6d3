/* emulation.cc - runs the lanes of a block as fibres and detects races and other faults; see
 * emulation.hh. */
#include "tests/cuda/emulation.hh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/cuda/emulation_c.h"
#include "tests/cuda/stacks.hh"

namespace emulated
{
enum { READY, AT_BLOCK, AT_WARP, DONE };
/* Stacks begin at different offsets in a page, so that the stacks of a block do not collide in the
 * CPU cache. */
enum {
    MAX_LANES = 1024,
    MIXED = 8 /* mixes lanes in one of 8 blocks */,
    STACK = STACK_TIMES * (64 << 10) + 9 * 64
};

lane *current;
uint3 block_index;
dim3 block_size, grid_size;
unsigned block_serial, epoch, span_of_warp;
static unsigned n_spans;     /* counts epochs and spans */
static unsigned first_epoch; /* first epoch of the block */
size_t dynamic_bytes, static_bytes;
unsigned launch_serial;

static fibre own, fibres[MAX_LANES], *running = &own;
static std::vector<fibre *> idle; /* fibres without a lane */

struct warp {
    unsigned n_met;  /* lanes that wait at a collective */
    int line, kind;  /* source line and kind of the collective where the first lane waits */
    bool parted;     /* a lane waits at another collective */
    bool begins;     /* may start after a block barrier */
    unsigned n_past; /* collectives passed */
    unsigned barriers;
    unsigned span; /* number of the current interval between two warp barriers */
};
static warp warps[MAX_LANES / 32];
static lane lanes[MAX_LANES];
static unsigned n_lanes;                /* lanes of the block */
static unsigned n_done, n_met;          /* lanes that ended; lanes at a block barrier */
static int met_line;                    /* source line of that barrier */
static bool parted;                     /* a lane waits at another barrier */
static std::vector<unsigned> warp_turn; /* order in which warps continue after a barrier */
static size_t next_warp;
static bool mixed;             /* lanes of all warps alternate in this block */
static lane *turns[MAX_LANES]; /* lanes that run until they wait or end */
static unsigned turn, n_turns;
static unsigned orders[32]; /* a permutation of 32 lanes from which others are derived */
static const std::function<void()> *body;
static const char *kernel_name = "";
/* Values that lanes pass to their warps, with one buffer for odd and one for even collectives. A
 * lane that reaches the next collective must not overwrite values that others may still read. */
static uint64_t warp_values[2][MAX_LANES];
static warp_words warp_rooms[2][MAX_LANES];
static int any_true;
int any_told; /* result of the last barrier */
static uint64_t random_state = 1;
static int n_faults;
static std::string first_fault;

static inline uint64_t splitmix()
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

unsigned draw(unsigned n)
{
    return (unsigned)((splitmix() >> 32) * n >> 32);
}

/* Returns file and line of a code address, as printed by addr2line, or "" if unknown. */
static std::string place(void *at)
{
    Dl_info info;
    char text[512], line[256] = "";
    if (!at || !dladdr(at, &info))
        return "";
    snprintf(text, sizeof text, "addr2line -s -e /proc/%d/exe %#zx 2>/dev/null", (int)getpid(),
             (size_t)((char *)at - (char *)info.dli_fbase) - 1);
    FILE *f = popen(text, "r");
    if (f && !fgets(line, sizeof line, f))
        line[0] = 0;
    if (f)
        pclose(f);
    line[strcspn(line, "\n")] = 0;
    return line;
}

/* Records a fault and prints the first one to stderr at once, because an emulated program does not
 * query faults. */
void note(const char *who, const std::string &text)
{
    if (n_faults++ == 0) {
        first_fault = std::string(who) + ": " + text;
        fprintf(stderr, "emulation: %s\n", first_fault.c_str());
    }
}

void fault(const char *what, const char *array, size_t index, const clock *other, void *at)
{
    char text[512];
    if (n_faults > 0) {
        n_faults++;
        return;
    }
    int n = snprintf(text, sizeof text, "%s %s[%zu] by lane %u", what, array, index,
                     current ? current->number : 0);
    if (other)
        n += snprintf(text + n, sizeof text - (size_t)n, " and lane %u without a barrier between",
                      other->lane);
    snprintf(text + n, sizeof text - (size_t)n, ", block (%u, %u, %u), at %s", block_index.x,
             block_index.y, block_index.z, place(at).c_str());
    note(kernel_name, text);
}

static clock now()
{
    return {epoch, current->number, warps[current->number / 32].barriers};
}

/* Returns true if a happened before b. b is the current access. */
static bool before(const clock &a, const clock &b)
{
    return a.epoch < b.epoch || a.lane == b.lane || (a.lane / 32 == b.lane / 32 && a.warp < b.warp);
}

/* Records a read since the last block barrier. Keeps one read each of two warps, or reads of two
 * lanes of one warp since its last barrier. A write that races with any read also races with a kept
 * one. */
static void keep_read(cell *c, const clock &now)
{
    const clock &first = c->reads[0];
    int n = first.epoch < now.epoch ? 0 : c->n_reads;
    if (n > 0 && first.lane / 32 == now.lane / 32) {
        bool two_warps = n == 2 && c->reads[1].lane / 32 != now.lane / 32;
        if (two_warps || (first.lane == now.lane && first.warp == now.warp))
            return;
        n = first.warp == now.warp;
    }
    n = n > 0;
    c->reads[n] = now;
    c->n_reads = (unsigned short)(n + 1);
}

unsigned on_read(cell *c, const char *array, size_t i, bool atomic, void *at)
{
    clock when = now();
    bool old = c->write.epoch < epoch;
    if (c->write.epoch < first_epoch)
        fault("read of what nobody wrote:", array, i, nullptr, at);
    else if (!before(c->write, when) && !(atomic && c->atomic))
        fault("race: read of", array, i, &c->write, at);
    if (atomic)
        return 0;
    keep_read(c, when);
    if (c->n_reads < 2)
        return 0;
    if (c->reads[0].lane / 32 != c->reads[1].lane / 32)
        return old ? epoch : 0;
    bool to_warp = c->reads[0].warp == when.warp && c->reads[1].warp == when.warp;
    return to_warp && (old || c->write.warp < when.warp) ? span_of_warp : 0;
}

void on_write(cell *c, const char *array, size_t i, bool atomic, void *at)
{
    clock when = now();
    if (!before(c->write, when) && !(atomic && c->atomic))
        fault("race: write of", array, i, &c->write, at);
    for (int k = 0; k < c->n_reads; k++)
        if (!before(c->reads[k], when)) {
            fault("race: write after a read of", array, i, &c->reads[k], at);
            break;
        }
    c->n_reads = 0;
    c->atomic = atomic;
    c->write = when;
}

#if defined(__x86_64__)
static void begin_fibre(fibre *f, void (*does)())
{
    void **top = (void **)(void *)(f->stack + STACK) - 2; /* aligned as after a call instruction */
    top[0] = (void *)does;
    top[1] = nullptr;
    f->top = top;
}
#else
static void change_stack(fibre *from, fibre *to)
{
    swapcontext(&from->context, &to->context);
}
static void begin_fibre(fibre *f, void (*does)())
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    makecontext(&f->context, does, 0);
}
#endif

#if !defined(__x86_64__) || defined(WATCHED_STACKS)
void change(handover h)
{
    if (h.from == h.to)
        return;
    stack_leave(h.to->stack, STACK);
    change_stack(h.from, h.to);
    stack_enter();
}
#endif

/* If all lanes of the warp wait at the same collective, releases them and returns true. */
static bool have_met(warp *w)
{
    if (w->n_met < 32 || w->parted)
        return false;
    w->n_met = 0;
    w->n_past++;
    if (w->kind == 2) {
        w->barriers++;
        w->span = ++n_spans;
    }
    return true;
}

/* Schedules the unfinished lanes of a warp, in a new order. */
static void take_turns(unsigned w)
{
    uint64_t z = splitmix();
    unsigned at = (unsigned)z, step = (unsigned)(z >> 32) | 1;
    for (unsigned i = 0; i < 32; i++, at += step) {
        lane *l = &lanes[w * 32 + orders[at % 32]];
        if (l->state != DONE)
            turns[n_turns++] = l;
    }
}

/* Shuffles n elements. One random number serves two swaps. */
template <class T> static void shuffle(T *at, size_t n)
{
    uint64_t z = 0;
    for (size_t i = n; i > 1; i--, z >>= 32) {
        z = i % 2 == n % 2 ? splitmix() : z;
        std::swap(at[i - 1], at[(z & UINT32_MAX) * i >> 32]);
    }
}

/* Begins an epoch in which all warps continue. */
static void let_go()
{
    epoch = ++n_spans;
    any_told = any_true;
    any_true = 0;
    n_met = 0;
    parted = false;
    shuffle(warp_turn.data(), warp_turn.size());
    next_warp = 0;
    for (unsigned w = 0; w < n_lanes / 32; w++)
        warps[w].begins = true, warps[w].span = ++n_spans;
}

/* Chooses the lanes that run next. A warp runs until all its lanes wait at a block barrier or have
 * ended, then the next warp runs. In a mixed block, all lanes that can run do so. */
static void next_turns()
{
    n_turns = turn = 0;
    if (mixed) {
        for (unsigned w = 0; w < n_lanes / 32; w++) {
            if (warps[w].begins || have_met(&warps[w]))
                take_turns(w);
            warps[w].begins = false;
        }
        shuffle(turns, n_turns);
        return;
    }
    if (next_warp > 0 && have_met(&warps[warp_turn[next_warp - 1]]))
        take_turns(warp_turn[next_warp - 1]);
    while (n_turns == 0 && next_warp < warp_turn.size())
        take_turns(warp_turn[next_warp++]);
}

/* Returns true after it has scheduled more lanes, false if no lane can continue. */
static bool more_turns()
{
    for (;;) {
        next_turns();
        if (n_turns > 0)
            return true;
        if (n_met == 0 || parted || n_met + n_done < n_lanes)
            return false;
        let_go();
    }
}
static inline lane *next_lane()
{
    return turn < n_turns || more_turns() ? turns[turn++] : nullptr;
}

/* Switches to lane l, on its own stack or on a free one. With NULL, switches to the code that
 * launched the kernel. */
static inline handover hand_over(lane *l)
{
    fibre *from = running, *to = l ? l->on : &own;
    if (!to) {
        l->on = to = idle.back();
        idle.pop_back();
    }
    current = l;
    span_of_warp = l ? warps[l->number / 32].span : 0;
    running = to;
    return {from, to};
}

/* The endless main function of a fibre: runs one lane after the other. */
static void run_lanes()
{
    stack_enter();
    for (;;) {
        (*body)();
        current->state = DONE;
        n_done++;
        idle.push_back(running);
        change(hand_over(next_lane()));
    }
}

static void make_fibres()
{
    static char *stacks;
    if (stacks)
        return;
    stacks = (char *)mmap(nullptr, (size_t)MAX_LANES * STACK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        abort();
    for (int i = MAX_LANES - 1; i >= 0; i--) {
        fibres[i].stack = stacks + (size_t)i * STACK;
        begin_fibre(&fibres[i], run_lanes);
        idle.push_back(&fibres[i]);
    }
}

static inline handover wait(int state, int line)
{
    current->state = state;
    current->line = line;
    return hand_over(next_lane());
}

handover meet_block(int line, int any)
{
    any_true |= any != 0;
    met_line = n_met ? met_line : line;
    parted |= line != met_line;
    n_met++;
    return wait(AT_BLOCK, line);
}

handover meet_warp(int line, int kind)
{
    warp *w = &warps[current->number / 32];
    if (w->n_met == 0) {
        w->line = line;
        w->kind = kind;
        w->parted = false;
    }
    w->parted |= w->line != line || w->kind != kind;
    w->n_met++;
    return wait(AT_WARP, line);
}

/* Passes the value of the current lane to its warp. `given` then points to the values of all 32
 * lanes. */
template <class T> static inline handover give(T (*rooms)[MAX_LANES], int line, const T &mine)
{
    unsigned me = current->number;
    T *room = rooms[warps[me / 32].n_past % 2];
    room[me] = mine;
    current->given = room + me / 32 * 32;
    return meet_warp(line, 1);
}

handover meet_warp_with(int line, uint64_t v)
{
    return give(warp_values, line, v);
}

handover meet_warp_with(int line, const warp_words &mine)
{
    return give(warp_rooms, line, mine);
}

static void begin_block()
{
    block_serial++;
    first_epoch = n_spans + 1;
    any_true = 0;
    n_done = 0;
    turn = n_turns = 0;
    mixed = draw(MIXED) == 0;
    for (unsigned i = 0; i < n_lanes; i++) {
        lanes[i].state = READY;
        lanes[i].on = nullptr;
    }
    for (unsigned w = 0; w < n_lanes / 32; w++)
        warps[w] = {};
    let_go();
}

/* Ends the program after a fault that leaves fibres inside a kernel. */
[[noreturn]] static void stuck(unsigned n)
{
    char text[256];
    const char *where[] = {"ready", "at __syncthreads", "at a collective of the warp", "ended"};
    for (unsigned i = 1; i < n; i++)
        if (lanes[i].state != lanes[0].state || lanes[i].line != lanes[0].line) {
            snprintf(text, sizeof text, "lanes never meet: 0 is %s (line %d), %u is %s (line %d)",
                     where[lanes[0].state], lanes[0].line, i, where[lanes[i].state], lanes[i].line);
            note(kernel_name, text);
            break;
        }
    fprintf(stderr, "%s\n", first_fault.c_str());
    abort();
}

static void run_block()
{
    begin_block();
    change(hand_over(next_lane()));
    if (n_done < n_lanes)
        stuck(n_lanes);
}

static void begin_launch(dim3 grid, dim3 block, size_t bytes)
{
    make_fibres();
    launch_serial++;
    static_bytes = 0;
    grid_size = grid;
    block_size = block;
    dynamic_bytes = bytes;
    n_lanes = block.x * block.y * block.z;
    for (unsigned i = 0; i < n_lanes; i++) {
        lanes[i].number = i;
        lanes[i].thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    }
    warp_turn.resize(n_lanes / 32);
    for (unsigned w = 0; w < n_lanes / 32; w++)
        warp_turn[w] = w;
    for (unsigned i = 0; i < 32; i++)
        orders[i] = i;
    shuffle(orders, 32);
}

/* Checks the shared memory of the block. Static arrays count towards the limit that a kernel has by
 * default. */
static void look_at_shared(size_t allowed)
{
    char text[128];
    size_t most = allowed == UNASKED ? (size_t)UNASKED : (size_t)MOST_SHARED;
    if (static_bytes + dynamic_bytes <= most)
        return;
    snprintf(text, sizeof text, "%zu bytes of shared memory of its own and %zu more, of %zu",
             static_bytes, dynamic_bytes, most);
    note(kernel_name, text);
}

static void run_kernel(const char *kernel, dim3 grid, dim3 block, size_t bytes,
                       const std::function<void()> &f, size_t allowed)
{
    kernel_name = kernel;
    body = &f;
    begin_launch(grid, block, bytes);
    std::vector<unsigned> blocks(grid.x * grid.y * grid.z);
    for (unsigned i = 0; i < blocks.size(); i++)
        blocks[i] = i;
    shuffle(blocks.data(), blocks.size());
    for (unsigned i : blocks) {
        block_index = {i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y};
        run_block();
    }
    look_at_shared(allowed);
}

static bool sizes_are_right(dim3 grid, dim3 block)
{
    unsigned n = block.x * block.y * block.z;
    return n > 0 && n <= MAX_LANES && n % 32 == 0 && block.z <= 64 && grid.x > 0
           && grid.x <= INT32_MAX && grid.y > 0 && grid.y <= 65535 && grid.z > 0 && grid.z <= 65535;
}

void launch(const char *kernel, dim3 grid, dim3 block, size_t bytes, const std::function<void()> &f,
            size_t allowed)
{
    if (!sizes_are_right(grid, block) || bytes > allowed) {
        note(kernel, bytes > allowed ? "more shared memory than it was allowed"
                                     : "sizes that no device takes");
        said(cudaErrorInvalidConfiguration);
        return;
    }
    n_launches++;
    if (!lost())
        later([=] { run_kernel(kernel, grid, block, bytes, f, allowed); });
}
} // namespace emulated

void emulation_seed(unsigned long long seed)
{
    emulated::run_stream();
    emulated::random_state = seed;
}

int emulation_faults(void)
{
    emulated::run_stream();
    return emulated::n_faults;
}

const char *emulation_first_fault(void)
{
    emulated::run_stream();
    return emulated::first_fault.c_str();
}
