/* fibre.hh - how lanes wait for each other; a part of emulation.hh.
 *
 * A lane that waits calls a `meet_...` function, which returns the fibre to run next, and then
 * switches to it. The switch is inlined at each place where lanes wait, because a CPU predicts
 * jumps by their address. A single shared jump would always be mispredicted. */
#ifndef KVF_TESTS_CUDA_FIBRE_H
#define KVF_TESTS_CUDA_FIBRE_H

#include "tests/cuda/stacks.hh"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated
{
/* A stack and its saved top. The launching code uses the thread's stack and has no stack here. */
struct fibre {
    char *stack;
#if defined(__x86_64__)
    void *top;
#else
    ucontext_t context;
#endif
};

struct handover {
    fibre *from, *to;
};
handover meet_block(int line, int any);
handover meet_warp(int line, int kind);
handover meet_warp_with(int line, uint64_t v);
/* As many words as a tensor-core multiplication needs. */
struct warp_words {
    uint32_t of[12];
};
handover meet_warp_with(int line, const warp_words &mine);

#if defined(__x86_64__)
/* Switches stacks. Preserves the red zone below the stack top, and only one register. */
inline __attribute__((always_inline)) void change_stack(fibre *from, fibre *to)
{
    void **left = &from->top, **taken = &to->top;
    asm volatile("leaq -128(%%rsp), %%rsp\n\tpushq %%rbp\n\t"
                 "leaq 1f(%%rip), %%rax\n\tpushq %%rax\n\t"
                 "movq %%rsp, (%%rdi)\n\tmovq (%%rsi), %%rsp\n\t"
                 "popq %%rax\n\tjmpq *%%rax\n"
                 "1:\tpopq %%rbp\n\tleaq 128(%%rsp), %%rsp"
                 : "+D"(left), "+S"(taken)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                   "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                   "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
#if defined(__AVX512F__)
                   "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",
                   "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3",
                   "k4", "k5", "k6", "k7",
#endif
                   "memory", "cc");
}
#endif
#if defined(__x86_64__) && !defined(WATCHED_STACKS)
inline __attribute__((always_inline)) void change(handover h)
{
    if (h.from != h.to)
        change_stack(h.from, h.to);
}
#else
void change(handover h);
#endif

extern int any_told;
/* __syncthreads; returns the OR of `any` over the block. */
inline __attribute__((always_inline)) int wait_block(int line, int any)
{
    change(meet_block(line, any));
    return any_told;
}
/* Returns the values of the 32 lanes, valid until the lane's next collective. */
template <class T> __attribute__((always_inline)) inline const T *wait_with(int line, const T &mine)
{
    change(meet_warp_with(line, mine));
    return (const T *)current->given;
}
inline __attribute__((always_inline)) const uint64_t *wait_warp(int line, uint64_t v)
{
    return wait_with(line, v);
}
inline __attribute__((always_inline)) const warp_words *wait_warp_words(int line,
                                                                        const warp_words &mine)
{
    return wait_with(line, mine);
}
inline __attribute__((always_inline)) void wait_warp_barrier(int line)
{
    change(meet_warp(line, 2));
}
} // namespace emulated

#endif
