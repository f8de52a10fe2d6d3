#include <signal.h>

#include "base/parts.h"
#include "cli/signals.h"

static volatile sig_atomic_t caught;

/* The signal is held while its handler runs: it ends the process after that. */
static void tidy(int number)
{
    parts_remove();
    signal(number, SIG_DFL);
    raise(number);
}

static void on_signal(int number)
{
    if (caught)
        tidy(number);
    caught = number;
}

static void handle(int number, void (*handler)(int), int flags)
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&act.sa_mask);
    sigaction(number, &act, NULL);
}

void signals_tidy(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old;
    for (int i = 0; i < 3; i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            handle(numbers[i], tidy, SA_RESTART);
}

void signals_catch(void)
{
    handle(SIGINT, on_signal, SA_RESTART);
    handle(SIGTERM, on_signal, SA_RESTART);
}

int signals_caught(void)
{
    return caught;
}
