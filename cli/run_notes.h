/* run_notes.h - what a run says on the standard error where its options may mislead: a budget that
 * is not what a head holds, and evictions that change nothing. */
#ifndef KVF_CLI_RUN_NOTES_H
#define KVF_CLI_RUN_NOTES_H

#include "cli/runner.h"

/* Before the run: how many entries a query sees, for each row that cuts several at once or lets a
 * head grow beyond its budget. */
void note_budgets(const struct runner *r);

/* After it: whether the method changed what any query saw. */
void note_effect(const struct runner *r, const struct session *s);

#endif
