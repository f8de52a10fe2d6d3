/* signals.h - stopping long commands in good order. */
#ifndef KVF_CLI_SIGNALS_H
#define KVF_CLI_SIGNALS_H

/* The first SIGINT or SIGTERM from now on is noted; the second one ends the process. */
void signals_catch(void);

/* The number of the signal that came; 0: none. */
int signals_caught(void);

#endif
