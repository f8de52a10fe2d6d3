/* trace_facts.h - named numbers and texts that describe a trace: the columns of `kvfate trace ls`,
 * and the keys of conditions (where.h). */
#ifndef KVF_CLI_TRACE_FACTS_H
#define KVF_CLI_TRACE_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/trace.h>

#include "base/json.h"

enum {
    FACT_TRACE,
    FACT_STATE,
    FACT_MODEL,
    FACT_METHOD,
    FACT_BUDGET,
    FACT_PERCENT,
    FACT_PROTOCOL,
    FACT_CUT,
    FACT_QUESTION,
    FACT_TOKENS,
    FACT_PROMPT_TOKENS,
    FACT_SEED,
    FACT_LAYERS,
    FACT_QUERY_HEADS,
    FACT_KV_HEADS,
    FACT_PROBES,
    FACT_COLUMNS,
    FACT_DOCUMENT,
    FACT_BYTES,
    FACTS
};

/* The declaration of a fact. A missing text is "", a missing whole number -1 and a missing real
 * number NaN. */
enum fact_type { FACT_TEXT, FACT_WHOLE, FACT_REAL };
struct fact {
    const char *name, *unit;
    enum fact_type type;
    const char *summary;
    /* object and member of the run header; NULL if the fact is computed */
    const char *object, *member;
    const char *absent; /* the text if the object exists without the member; NULL: "" */
};
extern const struct fact fact_table[FACTS];

/* The facts of one trace. */
struct trace_facts {
    char *text[FACTS];     /* owned; NULL for numbers */
    int64_t number[FACTS]; /* values of whole numbers */
    double real[FACTS];    /* values of real numbers */
    struct json *header;   /* owned; NULL if it is not valid JSON, and after facts_trim() */
};

/* Reads all facts of an open trace. Returns KVF_OK or KVF_E_NOMEM. */
int facts_read(struct kvf_trace *t, struct trace_facts *ret);

/* Sets the facts of a file that cannot be opened: its name, its size, and the state "unreadable".
 * Returns KVF_OK or KVF_E_NOMEM. */
int facts_unreadable(const char *path, struct trace_facts *ret);

/* Frees the parsed header, which uses most of the memory. */
void facts_trim(struct trace_facts *f);
void facts_free(struct trace_facts *f); /* accepts a zeroed struct */

#endif
