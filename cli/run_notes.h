/* run_notes.h - what a run says on the standard error where its options may mislead: a budget that
 * is not what a head holds, and evictions that change nothing. */
#ifndef KVF_CLI_RUN_NOTES_H
#define KVF_CLI_RUN_NOTES_H

#include "cli/runner.h"
#include "engine/probe/probe.h"
#include "engine/probe/watch.h"

/* Before the run: how many entries a query sees, for each row that cuts several at once or lets a
 * head grow beyond its budget. */
void note_budgets(const struct runner *r);

/* Before the run: what a set of probes records, in bytes per token, and which probes of --probes
 * full it leaves out; of a list of names the latter is not said: it was a choice.  shadow: what
 * --shadow names, or NULL. */
void note_recorded(const char *probes, const char *shadow, unsigned set,
                   const struct probe_config *cfg);

/* Before the run: how many numbers per step the raw blocks of --watch and --watch-queries are. */
void note_watch(const struct watch *w, int head_dim);

/* After it: for each row whether a query of its heads saw more than its budget, which some methods
 * ask for. */
void note_peak(const struct runner *r, const struct session *s);

/* After it: whether the method changed what any query saw. */
void note_effect(const struct runner *r, const struct session *s);

/* After it, also for those who asked for no summary: the context ended an answer of so many
 * tokens. */
void note_context(const struct runner *r, int generated);

#endif
