/* info_gates.h - `kvfate trace info` of a file of gates. */
#ifndef KVF_CLI_INFO_GATES_H
#define KVF_CLI_INFO_GATES_H

#include <stdbool.h>

struct command;

/* Returns true if a regular file begins as a safetensors file or as a torch file. info_gates()
 * rejects torch files and names the command that converts them. Returns false for a file that
 * cannot be read. */
bool looks_like_gates(const char *path);

/* Prints kind, layout, sizes and metadata of the file, and returns the exit status. */
int info_gates(const struct command *self, const char *path, bool json);

#endif
