/* auto_probes.h - chooses the probes of a default run (--probes auto). They record the columns that
 * all analyses need, and samples of costly columns. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "engine/probe/probe.h"

/* The probes of one run. They depend on the number of tokens, the model and the options. */
struct auto_probes {
    unsigned set; /* bits of probe_table in addition to those of "paper"; 0: no more than these */
    int every;    /* probe_dilution records the queries with t % every == 0 */
    char
        watch[96]; /* tokens and heads of probe_received, in the form of --watch; empty: no pairs */
    char heads[64]; /* heads of probe_queries; empty: no heads */
    bool too_long;  /* the run may exceed the limit of tokens for the additional probes */
};

/* Properties of a run. */
struct auto_run {
    const char *probes; /* the list of --probes */
    int layers, head_dim;
    int n_prompt, n_tokens; /* tokens of the prompt; maximum number of tokens of the run */
    bool on_device;
    bool shadows;                /* evicted entries can be kept as copies */
    bool has_watch, has_queries; /* the options --watch, --watch-queries are given */
};

struct auto_probes auto_probes_choose(const struct auto_run *r);

/* Prints a note if the run records fewer columns because it may be too long. */
void auto_probes_note(const struct auto_probes *a);

/* Appends the member "sampled" to the run header: an object with a text for each sampled probe.
 * Appends no member without samples. */
void auto_probes_put(const struct auto_probes *a, struct buf *header);
