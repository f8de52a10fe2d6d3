/* shown.h - texts of files on the standard output. */
#ifndef KVF_CLI_SHOWN_H
#define KVF_CLI_SHOWN_H

#include <stddef.h>

/* Writes lines of text for people, with names and texts of files in them, to the standard output:
 * as utf8_show makes them harmless to a terminal, but for the ends of the lines. */
void shown_print(const char *s, size_t n);

/* Writes a piece of a text that goes on, which may begin and end within a character, to the
 * standard output: as it is, but to a terminal without what would steer it. */
void shown_piece(const char *s, size_t n);

/* The name of a file in that form, line breaks too: for a line that has names in it. */
struct shown_name {
    char text[4 * 4096]; /* of as long a name as the system has; a longer one is cut off */
};
struct shown_name shown_name(const char *name);

#endif
