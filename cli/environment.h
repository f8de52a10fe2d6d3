/* environment.h - parses the environment variables of kvfate. */
#ifndef KVF_CLI_ENVIRONMENT_H
#define KVF_CLI_ENVIRONMENT_H

#include <kvf/err.h>

/* Returns KVF_E_ARG with a sentence for the first variable of kvfate with an invalid value,
 * otherwise KVF_OK. An empty variable counts as not set. */
int environment_check(struct kvf_diag *d);

/* Returns the seconds in KVFATE_PATIENCE, or `standard` if it is not set. */
double environment_patience(double standard);

#endif
