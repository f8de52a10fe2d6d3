/* emulation_c.h - the emulation of a block (emulation.hh), as tests in C see it. */
#ifndef KVF_TESTS_CUDA_EMULATION_C_H
#define KVF_TESTS_CUDA_EMULATION_C_H

#ifdef __cplusplus
extern "C" {
#endif

/* The order of lanes and blocks from now on. */
void emulation_seed(unsigned long long seed);
/* Faults found so far, and the first of them in words ("" when there is none). */
int emulation_faults(void);
const char *emulation_first_fault(void);
/* How often anybody has waited for the stream so far. */
long emulation_waits(void);
/* How many kernels have been launched so far. */
long emulation_launches(void);
/* How many bytes have been asked back from the device so far. */
long long emulation_bytes_home(void);

#ifdef __cplusplus
}
#endif
#endif
