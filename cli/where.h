/* where.h - selects traces by conditions on their facts (--where).
 *
 *     method=trimkv budget<=128 model="SmolLM2*" run.temperature=0
 *
 * Conditions are separated by blanks, and a trace is selected if all of them are true. A condition
 * is a key, one of = != < <= > >= and a value. A value that contains blanks is written in double
 * quotes. A key is a column of `kvfate trace ls` (trace_facts.h), or OBJECT.MEMBER of the run
 * header. Texts can only be compared with = and !=. In a text value, * matches any characters and ?
 * matches one. Numbers may be written as in options (4k). A trace without the fact is never
 * selected, whatever the condition.
 */
#ifndef KVF_CLI_WHERE_H
#define KVF_CLI_WHERE_H

#include "cli/trace_facts.h"

/* Parsed conditions. */
struct where;

/* Parses conditions. Returns KVF_OK, KVF_E_ARG with a sentence that names the condition, or
 * KVF_E_NOMEM. */
int where_parse(const char *text, struct where **ret, struct kvf_diag *d);
void where_free(struct where *w); /* accepts NULL */

/* Returns true if a trace with these facts meets all conditions. w NULL accepts every trace. */
bool where_holds(const struct where *w, const struct trace_facts *f);

#endif
