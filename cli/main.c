#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/signals.h"

/* A standard stream that the caller closed would give its number to the next file
 * we open, and our messages would land in a trace.  The number is taken by
 * /dev/null, opened so that output still fails. */
static void hold_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    hold_streams();
    signal(SIGXFSZ, SIG_IGN);
    signals_tidy();
    return commands_main(argc, argv);
}
