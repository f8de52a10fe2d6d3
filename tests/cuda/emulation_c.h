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
/* How often somebody has waited for an event, while what came after it was still to be done. */
long emulation_arrivals(void);
/* How many kernels have been launched so far. */
long emulation_launches(void);
/* How often the driver has been asked to put work on the stream, or to change a graph: a graph is
 * one call, whatever is in it.  How many graphs have been built, how many of their nodes have been
 * told anew, and how often one was put on the stream. */
long emulation_calls(void);
long emulation_graphs(void);
long emulation_told(void);
long emulation_replays(void);
/* How many copies and zeros have been put on the stream so far, those of graphs included. */
long emulation_copies(void);
/* Of the graph that was put on the stream last the longest chain of nodes that wait one for the
 * other: what a device cannot do side by side. */
long emulation_chain(void);
/* How many nodes of that graph may start before the one before them ends. */
long emulation_early(void);
/* How many kernels of that graph have their blocks dealt out before those of the others. */
long emulation_first(void);
/* How many bytes have been asked back from the device so far. */
long long emulation_bytes_home(void);

#ifdef __cplusplus
}
#endif
#endif
