#include <signal.h>

#include "cli/signals.h"

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

void signals_catch(void)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

int signals_caught(void)
{
    return caught;
}
