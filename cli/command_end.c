/* command_end.c - how a command ends: what it says, and its exit status. */
#include <stdio.h>

#include "cli/commands.h"

void command_say(const struct command *self, int err, const struct kvf_diag *d)
{
    if (err)
        fprintf(stderr, "kvfate %s: %s\n", self->name, d->text[0] ? d->text : kvf_strerror(err));
}

int command_end(const struct command *self, int err, const struct kvf_diag *d)
{
    command_say(self, err, d);
    if (err == KVF_E_ARG)
        return EXIT_USAGE;
    return err ? EXIT_FAILED : EXIT_OK;
}
