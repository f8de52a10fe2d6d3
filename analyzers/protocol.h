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

/* Appends the label of a run, such as "h2o 64", "h2o 50%" or "snapkv 16, cut=prompt": the method,
 * `lead` and its budget (a fraction as percent, or else `budget` unless that is ""), and the rest
 * of the protocol.  percent: NAN if the budget is no fraction. */
void label_put(struct buf *out, const char *method, const char *lead, const char *budget,
               double percent, const char *protocol);

/* Writes the label of a run with `lead` (such as ", budget ") before its budget.  lead "": only a
 * budget that is a fraction. */
enum { LABEL_TEXT = 256 };
void run_label(char out[LABEL_TEXT], const struct json *header, const char *lead);

#endif
