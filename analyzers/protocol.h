/* protocol.h - names the settings of a run, for metadata, labels and titles. */
#ifndef KVF_ANALYZERS_PROTOCOL_H
#define KVF_ANALYZERS_PROTOCOL_H

#include "base/buf.h"
#include "base/json.h"

/* Appends the settings that are not those of the method's name and of its entries, such as
 * "budget=25%, reads=8, cut=prompt, question unknown, override L0K*=window": the fraction of the
 * budget, options of the method, the type of cached numbers, the question, overrides and the table
 * of heads.  Nothing for the default protocol.  More than PROTOCOL_OVERRIDES bytes of overrides
 * become "3 overrides".  header: the run header, or NULL. */
enum { PROTOCOL_OVERRIDES = 60 };
void protocol_put(struct buf *out, const struct json *header);

/* Appends all overrides, such as "L0K*=window; L1K0=h2o:budget=64". */
void overrides_put(struct buf *out, const struct json *header);

/* Copies a text into a label.  A text that is too long ends with "...". */
void label_copy(char *out, size_t cap, const char *text);

/* Writes the method's name, `budget` (such as ", budget 64") and the protocol. */
enum { LABEL_TEXT = 256 };
void run_label(char out[LABEL_TEXT], const struct json *header, const char *budget);

#endif
