/* parts.h - the unfinished files of this process, so that a signal that ends it can remove them. */
#pragma once

/* Notes that path is a file in the making: the number for parts_done, or -1 where it is not noted
 * (a very long name, or dozens at once). */
int parts_note(const char *path);
/* Forgets a noted file, which has been renamed into place or removed.  -1 has no effect. */
void parts_done(int number);

/* Removes all files that are noted.  May be called from a handler of signals. */
void parts_remove(void);
