/* package.h - the Python package, which has commands of its own (python/kvfate/commands.py). */
#ifndef KVF_CLI_PACKAGE_H
#define KVF_CLI_PACKAGE_H

#include <kvf/err.h>

/* Becomes Python, which runs the command of the package; argv[0] is its name.  The Python is
 * KVFATE_PYTHON or else python3; the package is the one that lies around the program, or else one
 * that this Python finds by itself.  Returns only on failure, with a sentence. */
int package_run(int argc, char **argv, struct kvf_diag *d);

#endif
