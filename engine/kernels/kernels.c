/* kernels.c - detects the instruction sets of the CPU and fills the table of kernels. */
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "engine/kernels/kernels_ref.h"
#if HAVE_SIMD_X86
#include <cpuid.h>
#endif
#if HAVE_SIMD_X86 || HAVE_SIMD_ARM
#include "engine/kernels/vector/sets.h"
#endif

void kernels_init(struct kernels *k, unsigned cpu_flags)
{
    *k = (struct kernels){
#define KERNEL(name, DECL) .name = name##_ref,
#include "engine/kernels/kernels.list"
#undef KERNEL
    };
#if HAVE_SIMD_X86 || HAVE_SIMD_ARM
    kernels_init_vectors(k, cpu_flags);
#else
    (void)cpu_flags;
#endif
}

#if HAVE_SIMD_X86
/* Returns true if the CPU has AMX tiles and int8 products (bits 24 and 25 of edx) and the system
 * allows them. The system saves the tile state if bits 17 and 18 of XCR0 are set, and may require a
 * request first. */
static bool has_tiles(void)
{
    unsigned a, b, c, d, low, high;
    if (!HAVE_AMX || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 3) != 3)
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> 17 & 3) == 3 && os_may_use_tiles();
}

static unsigned detect(void)
{
    unsigned a, b, c, d, flags = 0;
    __builtin_cpu_init();
    /* F16C: bit 29 of ecx; clang 14 does not know its name */
    int f16c = __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c)
        flags |= CPU_X86_AVX2;
    if (flags && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
        && __builtin_cpu_supports("avx512vnni"))
        flags |= CPU_X86_AVX512;
    /* AVX-VNNI: bit 4 of eax */
    if (HAVE_AVXVNNI && flags && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1))
        flags |= CPU_X86_AVXVNNI;
    if (flags & CPU_X86_AVX512 && has_tiles())
        flags |= CPU_X86_AMX;
    return flags;
}
#elif HAVE_SIMD_ARM
static unsigned detect(void)
{
    return CPU_ARM_NEON | (os_has_dot_products() ? CPU_ARM_DOT : 0);
}
#else
static unsigned detect(void)
{
    return 0;
}
#endif

bool cpu_mask_parse(const char *text, unsigned *ret_mask)
{
    bool prefix = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = prefix ? text + 2 : text;
    size_t n = strspn(digits, "0123456789abcdefABCDEF");
    if (n == 0 || n > 8 || digits[n])
        return false;
    *ret_mask = (unsigned)strtoul(digits, NULL, 16);
    return true;
}

unsigned cpu_flags_detect(void)
{
    const char *mask = getenv("KVFATE_CPU_MASK");
    unsigned flags = detect(), most;
    return mask && *mask && cpu_mask_parse(mask, &most) ? flags & most : flags;
}
