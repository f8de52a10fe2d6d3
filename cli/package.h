/* package.h - runs commands of the Python package (python/kvfate/commands.py). */
#ifndef KVF_CLI_PACKAGE_H
#define KVF_CLI_PACKAGE_H

#include <kvf/err.h>

/* Replaces this process with Python, which runs a command of the package. argv[0] is the name of
 * the command. Python is KVFATE_PYTHON, or python3. The package is found relative to the program,
 * in the source tree, or in Python's own search path, in this order. Returns only on failure, with
 * a sentence. */
int package_run(int argc, char **argv, struct kvf_diag *d);

#endif
