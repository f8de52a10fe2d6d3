/* command_end.c - prints the failure of a command and returns its exit status. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/commands.h"

void command_print_error(const struct command *self, int err, const struct kvf_diag *d)
{
    if (err)
        fprintf(stderr, "kvfate %s: %s\n", self->name, d->text[0] ? d->text : kvf_strerror(err));
}

void command_print(const char *name, const char *fmt, ...)
{
    struct kvf_diag d = {""};
    char text[sizeof d.text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    kvf_fail(&d, KVF_OK, "%s", text);
    fprintf(stderr, "kvfate %s: %s\n", name, d.text);
}

int command_end(const struct command *self, int err, const struct kvf_diag *d)
{
    command_print_error(self, err, d);
    if (err == KVF_E_ARG)
        return EXIT_USAGE;
    return err ? EXIT_FAILED : EXIT_OK;
}
