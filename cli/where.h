/* where.h - traces that are chosen by what they say of themselves (--where).
 *
 *     method=trimkv budget<=128 model="SmolLM2*" run.temperature=0
 *
 * Conditions stand between blanks, and a trace is meant when all of them hold.  A condition is a
 * key, one of = != < <= > >= and a value; a value with blanks in it stands in double quotes.  A key
 * is a column of `kvfate ls` (trace_facts.h), or OBJECT.MEMBER of the run header.  Texts are
 * compared with = and != alone, and * and ? of the value stand for any letters and for one. Numbers
 * may be written as in options (4k).  A trace that does not say what is asked for is not meant,
 * whatever the condition. */
#ifndef KVF_CLI_WHERE_H
#define KVF_CLI_WHERE_H

#include "cli/trace_facts.h"

struct where;

/* KVF_OK, KVF_E_ARG with a sentence that names the condition, KVF_E_NOMEM. */
int where_parse(const char *text, struct where **ret, struct kvf_diag *d);
void where_free(struct where *w); /* accepts NULL */

/* NULL means all. */
bool where_holds(const struct where *w, const struct trace_facts *f);

#endif
