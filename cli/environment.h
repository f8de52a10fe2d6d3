/* environment.h - the variables of the environment that kvfate parses. */
#ifndef KVF_CLI_ENVIRONMENT_H
#define KVF_CLI_ENVIRONMENT_H

#include <kvf/err.h>

/* KVF_E_ARG with a sentence for the first variable of kvfate's own whose value is not usable.  An
 * empty variable counts as not set. */
int environment_check(struct kvf_diag *d);

/* Seconds of KVFATE_PATIENCE, or `standard` if it is not set. */
double environment_patience(double standard);

#endif
