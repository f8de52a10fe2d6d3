/* cmds.h - the subcommands' entry points and what they share. */
#ifndef KVF_CLI_CMDS_H
#define KVF_CLI_CMDS_H

#include <stdbool.h>

#include "base/opt.h"
#include "cli/commands.h"

struct kvf_trace;

/* Sets the defaults of the options in base, parses them and checks the number of operands (max -1:
 * any).  Returns false when the command is over (help printed, or a usage error reported): *status
 * is then its exit status.  Operands are argv[1] .. argv[*operands]. */
bool command_options(const struct command *self, const struct opt *list, void *base, int argc,
                     char **argv, int min_operands, int max_operands, int *operands, int *status);

/* Opens the traces argv[1] and argv[2] into ret[0] and ret[1], which the caller closes
 * (either may be NULL after an error); says on stderr which was not closed. */
int open_both(const struct command *self, char **argv, struct kvf_trace *ret[2],
              struct kvf_diag *d);

/* "A:B", "A:", ":B" with whole numbers; what is missing stays as it is. */
bool range_parse(const char *s, int64_t *a, int64_t *b);

int cmd_run(const struct command *self, int argc, char **argv);
int cmd_generate(const struct command *self, int argc, char **argv);
int cmd_logits(const struct command *self, int argc, char **argv);
int cmd_effect(const struct command *self, int argc, char **argv);
int cmd_eval(const struct command *self, int argc, char **argv);
int cmd_claims(const struct command *self, int argc, char **argv);
int cmd_curves(const struct command *self, int argc, char **argv);
int cmd_report(const struct command *self, int argc, char **argv);
int cmd_saliency(const struct command *self, int argc, char **argv);
int cmd_train(const struct command *self, int argc, char **argv);
int cmd_methods(const struct command *self, int argc, char **argv);
int cmd_info(const struct command *self, int argc, char **argv);
int cmd_verify(const struct command *self, int argc, char **argv);
int cmd_plan(const struct command *self, int argc, char **argv);
int cmd_predict(const struct command *self, int argc, char **argv);
int cmd_needle(const struct command *self, int argc, char **argv);
int cmd_part(const struct command *self, int argc, char **argv);
int cmd_diff(const struct command *self, int argc, char **argv);
int cmd_corpus(const struct command *self, int argc, char **argv);
int cmd_merge(const struct command *self, int argc, char **argv);
int cmd_draw(const struct command *self, int argc, char **argv);
int cmd_figures(const struct command *self, int argc, char **argv);
int cmd_analyze(const struct command *self, int argc, char **argv);

#endif
