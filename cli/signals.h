/* signals.h - stopping in good order. */
#ifndef KVF_CLI_SIGNALS_H
#define KVF_CLI_SIGNALS_H

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE remove the files that are in the making
 * (base/parts.h) before they end the process; one that is ignored stays so. A pipe that nobody
 * reads any more ends a command so, without a word. */
void signals_tidy(void);

/* The first SIGINT or SIGTERM from now on is noted; the second one ends the process. */
void signals_catch(void);

/* The number of the signal that was noted; 0: none came. */
int signals_caught(void);

#endif
