/* analysis.h - every analysis as a command: traces in, a table or a figure out. */
#ifndef KVF_CLI_ANALYSIS_H
#define KVF_CLI_ANALYSIS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"
#include "cli/commands.h"

#define ANALYSIS_GROUP "analyses" /* the group of these commands in the overview */

/* The command of an analyzer: its name, summary and traces are the analyzer's. */
struct command analysis_command(const struct analyzer *a);

/* "A:B", "A:", ":B" with whole numbers; what is missing stays as it is. */
bool range_parse(const char *s, int64_t *a, int64_t *b);

#endif
