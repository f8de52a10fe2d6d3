/* no_emulation.c - replaces the emulation's counters when the kernels run on a real device. */
#include "tests/cuda/emulation_c.h"

void emulation_seed(unsigned long long seed)
{
    (void)seed;
}

int emulation_faults(void)
{
    return 0;
}

const char *emulation_first_fault(void)
{
    return "";
}

long emulation_waits(void)
{
    return 0;
}

long emulation_launches(void)
{
    return 0;
}

long long emulation_bytes_home(void)
{
    return 0;
}

long emulation_calls(void)
{
    return 0;
}

long emulation_graphs(void)
{
    return 0;
}

long emulation_told(void)
{
    return 0;
}

long emulation_replays(void)
{
    return 0;
}

long emulation_early(void)
{
    return 0;
}
