/* emulation.cc - fibres for the lanes of a block, and what watches them; see emulation.hh. */
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
/* Stacks begin at differing places of a page, so that those of a block lie in a cache together. */
enum { MAX_LANES = 1024, STACK = STACK_TIMES * (64 << 10) + 9 * 64 };

lane *current;
uint3 block_index;
dim3 block_size, grid_size;
unsigned block_serial;
size_t dynamic_bytes, static_bytes;
unsigned launch_serial;

static lane lanes[MAX_LANES];
#if !defined(__x86_64__)
static ucontext_t context[MAX_LANES];
#endif
static void *own_stack;             /* of who launches */
static char *stacks;                /* [MAX_LANES][STACK] */
static std::vector<unsigned> order; /* in which the lanes of a block go on, anew at each meeting */
static size_t turn;
static const std::function<void()> *body;
static const char *kernel_name = "";
/* What lanes give to their warps, for every second collective: a lane that comes to the next one
 * leaves what others may not have read yet. */
static uint64_t warp_values[2][MAX_LANES];
static warp_words warp_rooms[2][MAX_LANES];
static int any_true;
static uint64_t random_state = 1;
static int n_faults;
static std::string first_fault;

const std::vector<float> half_values = [] {
    std::vector<float> f(1 << 16);
    for (unsigned i = 0; i < f.size(); i++)
        f[i] = half_to_float((uint16_t)i);
    return f;
}();

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

/* The line of the source that the address is of, as addr2line says; its number without that. */
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

/* Told at once, too: a whole program that is emulated asks nobody. */
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
                     current ? current->now.lane : 0);
    if (other)
        n += snprintf(text + n, sizeof text - (size_t)n, " and lane %u without a barrier between",
                      other->lane);
    snprintf(text + n, sizeof text - (size_t)n, ", block (%u, %u, %u), at %s", block_index.x,
             block_index.y, block_index.z, place(at).c_str());
    note(kernel_name, text);
}

/* Whether a happens before what the current lane does. */
static bool before(const clock &a)
{
    const clock &b = current->now;
    return a.lane == b.lane || a.block < b.block || (a.lane / 32 == b.lane / 32 && a.warp < b.warp);
}

static void fresh(cell *c)
{
    if (c->serial == block_serial)
        return;
    c->serial = block_serial;
    c->written = c->atomic = false;
    c->n_reads = 0;
}

/* Keeps a read since the last barrier of the block: of two warps one each, of one warp two lanes
 * since its last barrier.  A write that races with any read races with one of those. */
static void keep_read(cell *c, const clock &now)
{
    const clock &first = c->reads[0];
    unsigned n = c->n_reads > 0 && first.block < now.block ? 0 : c->n_reads;
    if (n > 0 && first.lane / 32 == now.lane / 32) {
        bool two_warps = n == 2 && c->reads[1].lane / 32 != now.lane / 32;
        if (two_warps || (first.lane == now.lane && first.warp == now.warp))
            return;
        n = first.warp == now.warp;
    }
    n = n > 0;
    c->reads[n] = now;
    c->n_reads = n + 1;
}

void on_read(cell *c, const char *array, size_t i, bool atomic, void *at)
{
    fresh(c);
    if (!c->written)
        fault("read of what nobody wrote:", array, i, nullptr, at);
    else if (!before(c->write) && !(atomic && c->atomic))
        fault("race: read of", array, i, &c->write, at);
    if (!atomic)
        keep_read(c, current->now);
}

void on_write(cell *c, const char *array, size_t i, bool atomic, void *at)
{
    fresh(c);
    if (c->written && !before(c->write) && !(atomic && c->atomic))
        fault("race: write of", array, i, &c->write, at);
    for (unsigned k = 0; k < c->n_reads; k++)
        if (!before(c->reads[k])) {
            fault("race: write after a read of", array, i, &c->reads[k], at);
            break;
        }
    c->n_reads = 0;
    c->written = true;
    c->atomic = atomic;
    c->write = current->now;
}

#if defined(__x86_64__)
/* Saves the registers that calls keep on one stack and takes them from another. */
extern "C" void emulation_switch(void **from, void **to);
asm(".text\n.globl emulation_switch\n.type emulation_switch,@function\nemulation_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq (%rsi),%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size emulation_switch,.-emulation_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");
static void change(lane *from, lane *to)
{
    emulation_switch(from ? &from->stack : &own_stack, to ? &to->stack : &own_stack);
}
#else
static ucontext_t own_context;
static ucontext_t *context_of(lane *l)
{
    return l ? &context[l - lanes] : &own_context;
}
static void change(lane *from, lane *to)
{
    swapcontext(context_of(from), context_of(to));
}
#endif

/* Lets go on the next lane whose turn it is and that can; who launches, when there is none. */
static void next_lane(lane *from)
{
    current = nullptr;
    while (!current && turn < order.size()) {
        lane *l = &lanes[order[turn++]];
        current = l->state == READY ? l : nullptr;
    }
    if (current == from)
        return;
    stack_leave(current ? stacks + (current - lanes) * STACK : nullptr, STACK);
    change(from, current);
    stack_enter();
}

/* What a fibre does: the body of one lane after the other, for ever. */
static void fibre()
{
    stack_enter();
    for (;;) {
        (*body)();
        current->state = DONE;
        next_lane(current);
    }
}

static void make_fibres()
{
    if (stacks)
        return;
    stacks = (char *)mmap(nullptr, (size_t)MAX_LANES * STACK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        abort();
    for (int i = 0; i < MAX_LANES; i++) {
        char *stack = stacks + (size_t)i * STACK;
#if defined(__x86_64__)
        void **top = (void **)(void *)(stack + STACK) - 2; /* aligned as after a call */
        top[0] = (void *)fibre;
        top[1] = nullptr;
        lanes[i].stack = top - 6;
        memset(top - 6, 0, 6 * sizeof *top);
#else
        getcontext(&context[i]);
        context[i].uc_stack.ss_sp = stack;
        context[i].uc_stack.ss_size = STACK;
        makecontext(&context[i], fibre, 0);
#endif
    }
}

static void wait(int state, int line)
{
    current->state = state;
    current->line = line;
    next_lane(current);
}

int wait_block(int line, int any)
{
    any_true |= any != 0;
    current->kind = 0;
    wait(AT_BLOCK, line);
    return current->any;
}

/* Gives the value of the current lane to its warp; what the warp gave, from its first lane on. */
template <class T> static const T *give(T (*rooms)[MAX_LANES], int line, const T &mine)
{
    T *room = rooms[current->meeting++ % 2];
    unsigned me = current->now.lane;
    room[me] = mine;
    current->kind = 1;
    wait(AT_WARP, line);
    return room + me / 32 * 32;
}

const uint64_t *wait_warp(int line, uint64_t v)
{
    return give(warp_values, line, v);
}

const warp_words *wait_warp_words(int line, const warp_words &mine)
{
    return give(warp_rooms, line, mine);
}

void wait_warp_barrier(int line)
{
    current->kind = 2;
    wait(AT_WARP, line);
}

static bool all_at(unsigned from, unsigned n, int state)
{
    for (unsigned i = from; i < from + n; i++)
        if (lanes[i].state != state || lanes[i].line != lanes[from].line
            || lanes[i].kind != lanes[from].kind)
            return false;
    return true;
}

/* Lets go a warp whose lanes have met. */
static bool release_warp(unsigned first)
{
    if (!all_at(first, 32, AT_WARP))
        return false;
    for (unsigned i = first; i < first + 32; i++) {
        lanes[i].now.warp += lanes[i].kind == 2;
        lanes[i].state = READY;
    }
    return true;
}

/* Lets go the lanes that have not ended, when all of them are at the same barrier. */
static bool release_block(unsigned n)
{
    const lane *first = nullptr;
    for (unsigned i = 0; i < n; i++) {
        const lane *l = &lanes[i];
        if (l->state == DONE)
            continue;
        first = first ? first : l;
        if (l->state != AT_BLOCK || l->line != first->line)
            return false;
    }
    for (unsigned i = 0; first && i < n; i++) {
        if (lanes[i].state == DONE)
            continue;
        lanes[i].any = any_true;
        lanes[i].now.block++;
        lanes[i].state = READY;
    }
    any_true = 0;
    return first != nullptr;
}

/* One number draws for two places. */
static void shuffle(std::vector<unsigned> &v)
{
    uint64_t z = 0;
    unsigned *at = v.data();
    for (size_t i = v.size(); i > 1; i--, z >>= 32) {
        z = i % 2 == v.size() % 2 ? splitmix() : z;
        std::swap(at[i - 1], at[(z & UINT32_MAX) * i >> 32]);
    }
}

static void begin_block(dim3 block, unsigned n)
{
    block_serial++;
    any_true = 0;
    for (unsigned i = 0; i < n; i++) {
        lane *l = &lanes[i];
        l->thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
        l->now = {i, 0, 0};
        l->meeting = 0;
        l->state = READY;
    }
}

/* A fault after which fibres hold half a body is the end of the program. */
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

static void run_block(dim3 block)
{
    unsigned n = block.x * block.y * block.z;
    order.resize(n);
    begin_block(block, n);
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (bool more = true; more;) {
        shuffle(order);
        turn = 0;
        next_lane(nullptr);
        more = false;
        for (unsigned w = 0; w < n; w += 32)
            more |= release_warp(w);
        more |= release_block(n);
    }
    current = nullptr;
    for (unsigned i = 0; i < n; i++)
        if (lanes[i].state != DONE)
            stuck(n);
}

/* What a block has by itself counts among what no kernel has to ask for. */
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
    make_fibres();
    kernel_name = kernel;
    body = &f;
    launch_serial++;
    static_bytes = 0;
    grid_size = grid;
    block_size = block;
    dynamic_bytes = bytes;
    std::vector<unsigned> blocks(grid.x * grid.y * grid.z);
    for (unsigned i = 0; i < blocks.size(); i++)
        blocks[i] = i;
    shuffle(blocks);
    for (unsigned i : blocks) {
        block_index = {i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y};
        run_block(block);
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
