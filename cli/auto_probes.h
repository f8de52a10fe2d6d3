/* auto_probes.h - chooses what a default run records (--probes auto): the columns that every
 * analysis needs, where the whole of them is costly a sample. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "engine/probe/probe.h"

/* The choice for one run. It follows from the number of prompt tokens, the model and the options.
 */
struct auto_probes {
    unsigned set;   /* bits of probe_table in addition to those of "paper"; 0: not --probes auto */
    int every;      /* queries of probe_dilution: t % every == 0 */
    char watch[96]; /* pairs of probe_received, as --watch takes them; "": none */
    char heads[64]; /* heads of probe_queries; "": none */
};

/* The properties of a run that the choice depends on. */
struct auto_run {
    const char *probes; /* the list of --probes */
    int layers, head_dim;
    int n_prompt, n_tokens; /* of the prompt; of the whole run at most */
    bool on_device;
    bool shadows;                /* a copy of evicted entries is possible */
    bool has_watch, has_queries; /* --watch, --watch-queries are given */
};

struct auto_probes auto_probes_choose(const struct auto_run *r);

/* Appends the member "sampled" to the run header, if there is a sample: for each probe a text. */
void auto_probes_put(const struct auto_probes *a, struct buf *header);
