/* info_gates.h - `kvfate info` of a file of gates. */
#ifndef KVF_CLI_INFO_GATES_H
#define KVF_CLI_INFO_GATES_H

#include <stdbool.h>

struct command;

/* Returns whether the file begins as a safetensors file does, or as a torch file, which
 * info_gates rejects with the command that converts it; false for one that cannot be read. */
bool looks_like_gates(const char *path);

/* Prints kind, layout, sizes and metadata of the file, and returns the exit status. */
int info_gates(const struct command *self, const char *path, bool json);

#endif
