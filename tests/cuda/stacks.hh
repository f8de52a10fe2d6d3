/* stacks.hh - reports stack switches to AddressSanitizer if it is enabled; a part of
 * emulation.hh. */
#ifndef KVF_TESTS_CUDA_STACKS_HH
#define KVF_TESTS_CUDA_STACKS_HH

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define WATCHED_STACKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WATCHED_STACKS 1
#endif
#endif

#ifdef WATCHED_STACKS
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>

/* AddressSanitizer enlarges frames with gaps between variables. */
enum { STACK_TIMES = 8 };

/* Must be called before a switch to a fibre's stack, or to the thread's own stack (bottom:
 * NULL). */
static void stack_leave(const void *bottom, size_t size)
{
    static void *own;
    static size_t own_size;
    pthread_attr_t a;
    if (!own && pthread_getattr_np(pthread_self(), &a) == 0) {
        pthread_attr_getstack(&a, &own, &own_size);
        pthread_attr_destroy(&a);
    }
    __sanitizer_start_switch_fiber(nullptr, bottom ? bottom : own, bottom ? size : own_size);
}

/* Must be called first on the new stack. */
static void stack_enter()
{
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
}
#else
enum { STACK_TIMES = 1 };
static void stack_leave(const void *, size_t) {}
static void stack_enter() {}
#endif

#endif
