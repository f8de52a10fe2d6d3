/* main.c - the entry point of the program. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/folders.h"
#include "cli/signals.h"

/* Opens /dev/null for each standard stream that the caller closed, in a mode in which output still
 * fails. Otherwise the next file that the program opens would get the number of that stream, and
 * messages would be written into a trace. */
static void reserve_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    reserve_streams();
    signal(SIGXFSZ, SIG_IGN);
    signals_tidy();
    if (folder_fonts_use() != KVF_OK) {
        fputs("kvfate: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    return commands_main(argc, argv);
}
