/* trace_facts.h - what a trace says of itself, as numbers and texts with names: the columns of
 * `kvfate ls`, and what conditions ask for (where.h). */
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

/* One of them.  A text that is not said is "", a number -1. */
struct fact {
    const char *name, *unit;
    bool is_text;
    const char *summary;
    const char *object, *member; /* of the run header where it stands; NULL: it is computed */
};
extern const struct fact fact_table[FACTS];

struct trace_facts {
    char *text[FACTS];     /* owned */
    int64_t number[FACTS]; /* of facts that are no texts */
    struct json *header;   /* owned; NULL where it is no JSON, and after facts_trim */
};

/* All facts of an open trace.  KVF_OK or KVF_E_NOMEM. */
int facts_read(struct kvf_trace *t, struct trace_facts *ret);

/* Of a file that cannot be opened: its name and size, and the state "unreadable".  KVF_OK or
 * KVF_E_NOMEM. */
int facts_unreadable(const char *path, struct trace_facts *ret);

/* Gives back the header, which takes most of the memory. */
void facts_trim(struct trace_facts *f);
void facts_free(struct trace_facts *f); /* accepts a zeroed struct */

#endif
