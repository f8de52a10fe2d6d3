/* analysis.h - makes a command from each analyzer, which reads traces and writes a table or a
 * figure. */
#ifndef KVF_CLI_ANALYSIS_H
#define KVF_CLI_ANALYSIS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"
#include "cli/commands.h"

#define ANALYSIS_GROUP "analyses" /* the group of these commands in the overview */

/* Returns the command of an analyzer, with the name, summary and operands that the analyzer
 * declares. */
struct command analysis_command(const struct analyzer *a);

#endif
