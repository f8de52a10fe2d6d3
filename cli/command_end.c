/* command_end.c - prints the failure of a command and returns its exit status. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

static FILE *errors; /* NULL: the standard error */

FILE *command_errors(void)
{
    return errors ? errors : stderr;
}

int command_quiet(struct kvf_diag *d)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3), none = open("/dev/null", O_WRONLY);
    errors = fd < 0 ? NULL : fdopen(fd, "w");
    bool done = errors && none >= 0 && fflush(stderr) == 0 && dup2(none, STDERR_FILENO) >= 0;
    if (none > STDERR_FILENO)
        close(none);
    if (!done)
        return kvf_fail(d, KVF_E_IO, "--quiet: the standard error cannot be closed: %s",
                        strerror(errno));
    setvbuf(errors, NULL, _IOLBF, 0);
    return KVF_OK;
}

void command_print_error(const struct command *self, int err, const struct kvf_diag *d)
{
    if (err)
        fprintf(command_errors(), "kvfate %s: %s\n", self->name,
                d->text[0] ? d->text : kvf_strerror(err));
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
