/* json_check.h - whether a text is JSON, for what writes it out again or judges it.
 *
 * json_parse takes a little more than JSON (a mark of byte order, raw control characters in
 * strings), and needs a library that the trace library is not linked with. */
#ifndef KVF_BASE_JSON_CHECK_H
#define KVF_BASE_JSON_CHECK_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the n bytes are one JSON value as RFC 8259 defines it, in UTF-8, nested no deeper
 * than 64.
 */
bool json_check(const char *text, size_t n);
/* The same, and the value is an object. */
bool json_check_object(const char *text, size_t n);

#endif
