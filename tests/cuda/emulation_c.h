/* emulation_c.h - C interface of the emulated device (emulation.hh): the seed, faults and
 * counters. */
#ifndef KVF_TESTS_CUDA_EMULATION_C_H
#define KVF_TESTS_CUDA_EMULATION_C_H

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the seed for the order of lanes and blocks from now on. */
void emulation_seed(unsigned long long seed);
/* Returns the number of faults so far, and a description of the first one ("" if there is no
 * fault). */
int emulation_faults(void);
const char *emulation_first_fault(void);
/* Returns how many times the host has waited for the stream. */
long emulation_waits(void);
/* Returns how many times the host has waited for an event while later work was still pending. */
long emulation_arrivals(void);
/* Returns how many kernels have been launched. */
long emulation_launches(void);
/* Count calls that enqueue work on the stream or change a graph. Launching a graph is one call,
 * regardless of its size. The other counters are: graphs built, nodes updated in graphs, and graph
 * launches. */
long emulation_calls(void);
long emulation_graphs(void);
long emulation_told(void);
long emulation_replays(void);
/* Returns how many copies and memsets were put on the stream, including those in graphs. */
long emulation_copies(void);
/* Returns the longest chain of dependent nodes in the graph that was launched last. A device cannot
 * run the nodes of a chain in parallel. */
long emulation_chain(void);
/* Returns how many nodes of that graph may start before their predecessor ends. */
long emulation_early(void);
/* Returns how many kernels of that graph have a higher scheduling priority than the other
 * kernels. */
long emulation_first(void);
/* Returns how many bytes were copied from the device to the host. */
long long emulation_bytes_home(void);

#ifdef __cplusplus
}
#endif
#endif
