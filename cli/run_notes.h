/* run_notes.h - notes on the standard error when the options of a run may mislead: a budget that
 * differs from the entries that a head keeps, and evictions without effect. */
#ifndef KVF_CLI_RUN_NOTES_H
#define KVF_CLI_RUN_NOTES_H

#include "cli/runner.h"
#include "engine/probe/probe.h"
#include "engine/probe/watch.h"

/* Before the run: prints how many entries a query sees, for each method that evicts several
 * entries at once or lets a head grow beyond its budget. */
void note_budgets(const struct runner *r);

/* Before the run: prints the bytes per token that a set of probes records. If probes is "paper",
 * the default, prints also the probes of the set "full" that it leaves out. shadow: value of
 * --shadow, or NULL. */
void note_recorded(const char *probes, const char *shadow, unsigned set,
                   const struct probe_config *cfg);

/* Before the run: prints how many numbers per step the raw blocks of --watch and --watch-queries
 * have. */
void note_watch(const struct watch *w, int head_dim);

/* After the run: prints for each method the peak of entries that a query saw, if it exceeds the
 * budget. Some methods exceed it by design. */
void note_peak(const struct runner *r, const struct session *s);

/* After the run: prints a note if the method did not change the entries that queries saw. */
void note_effect(const struct runner *r, const struct session *s);

/* After the run, also with --quiet: prints that the context limit ended an answer of `generated`
 * tokens. */
void note_context(const struct runner *r, int generated);

#endif
