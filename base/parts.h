/* parts.h - lists the unfinished files of this process, so that a handler of a fatal signal can
 * remove them. */
#ifndef KVF_BASE_PARTS_H
#define KVF_BASE_PARTS_H

/* Registers an unfinished file. Returns a number for parts_done(), or -1 if it is not registered
 * because its name is very long or dozens are registered. */
int parts_note(const char *path);
/* Removes a file from the list after it was renamed or deleted. Accepts -1. */
void parts_done(int number);

/* Deletes all registered files. May be called from a signal handler. */
void parts_remove(void);

#endif
