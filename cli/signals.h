/* signals.h - stops the program in good order after a signal. */
#ifndef KVF_CLI_SIGNALS_H
#define KVF_CLI_SIGNALS_H

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE remove unfinished files (base/parts.h) before
 * they end the process. A signal that was ignored stays ignored. A command that writes into a
 * closed pipe therefore ends without a message. */
void signals_tidy(void);

/* From now on the first SIGINT or SIGTERM is recorded, and the second one ends the process. */
void signals_catch(void);

/* Returns the number of the recorded signal; 0 if no signal was received. */
int signals_caught(void);

#endif
