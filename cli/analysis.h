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

/* Values of an analyzer's own options as they were typed. */
enum { ANALYSIS_OPTIONS = 16 };
struct analysis_values {
    const char *text[ANALYSIS_OPTIONS];
    bool flag[ANALYSIS_OPTIONS];
};

/* The table of an analyzer's own options, which fills a struct analysis_values; a NULL: none. */
void analysis_options(const struct analyzer *a, struct opt ret[ANALYSIS_OPTIONS + 1]);
/* The values as analyzers take them: a text for each option, "1" for flags that were given. */
const char *const *analysis_texts(struct analysis_values *v);

/* "A:B", "A:", ":B" with whole numbers; what is missing stays as it is. */
bool range_parse(const char *s, int64_t *a, int64_t *b);

#endif
