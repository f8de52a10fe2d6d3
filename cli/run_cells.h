/* run_cells.h - runs each line of a batch with several methods and budgets: `kvfate generate
 * --jsonl FILE --methods A,B --budgets N,M`. The prompt of a line is prefilled once for all of
 * them (engine/experiment/lanes.h), and each generates its own answer. */
#ifndef KVF_CLI_RUN_CELLS_H
#define KVF_CLI_RUN_CELLS_H

#include "cli/run.h"

/* Opens the methods and gates of u->cell_methods and u->cell_budgets for the open model. Gates are
 * those of the file `gates`, or shipped gates if it is NULL. head_budgets is the table of methods
 * with allocation=file, or NULL. Returns KVF_OK, or an error with a sentence. */
int run_cells_open(struct run *u, const char *gates, const char *head_budgets, struct kvf_diag *d);
void run_cells_close(struct run *u); /* accepts a run without cells */

/* Runs the line that is open in u, and prints a line for each method and budget. Returns KVF_OK,
 * KVF_E_CANCEL after a signal (then it prints no line), or an error with a sentence. */
int run_cells_line(struct run *u, const char *id, struct kvf_diag *d);

#endif
