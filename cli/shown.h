/* shown.h - prints texts from files safely on the standard output. */
#ifndef KVF_CLI_SHOWN_H
#define KVF_CLI_SHOWN_H

#include <stddef.h>

/* Writes lines of text that may contain names and texts of files to the standard output. Escapes
 * control characters as utf8_shown() does, except line feeds. */
void shown_print(const char *s, size_t n);

/* Writes a piece of a longer text to the standard output; it may begin and end within a character.
 * On a terminal, escapes control characters except line feeds and tabs. Otherwise writes the bytes
 * unchanged. */
void shown_piece(const char *s, size_t n);

/* A file name with its control characters escaped, line breaks too, for use in a line of text. */
struct shown_name {
    char text[4 * 4096]; /* fits any name that the system allows; a longer one is truncated */
};
struct shown_name shown_name(const char *name);

#endif
