#include <signal.h>

#include "cli/commands.h"

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error, reported at exit */
    signal(SIGXFSZ, SIG_IGN);
    return commands_main(argc, argv);
}
