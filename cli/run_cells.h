/* run_cells.h - lines of a batch under many methods and budgets: `kvfate generate --jsonl FILE
 * --methods A,B --budgets N,M`.  A line is read once for all (engine/experiment/lanes.h) and
 * answered by each. */
#ifndef KVF_CLI_RUN_CELLS_H
#define KVF_CLI_RUN_CELLS_H

#include "cli/run.h"

/* Opens the methods and gates of u->cell_methods and u->cell_budgets for the open model, with the
 * gates of --gates, or with shipped ones.  KVF_OK, or an error with a sentence. */
int run_cells_open(struct run *u, const char *gates, struct kvf_diag *d);
void run_cells_close(struct run *u); /* accepts one without */

/* Runs the line whose prompt is open in u, and prints a line for each method and budget.  KVF_OK;
 * KVF_E_CANCEL after a signal, when nothing is printed; or an error. */
int run_cells_line(struct run *u, const char *id, struct kvf_diag *d);

#endif
