/* signals.c - signal handlers that remove unfinished files or record the signal. */
#include <signal.h>
#include <unistd.h>

#include "base/parts.h"
#include "cli/commands.h"
#include "cli/signals.h"

static volatile sig_atomic_t caught;

/* Handles a signal that ends the process. The signal is blocked while its handler runs, so the
 * raised signal is delivered after the handler returns. */
static void tidy(int number)
{
    parts_remove();
    signal(number, SIG_DFL);
    raise(number);
}

/* Handles SIGBUS: a mapped file, such as a model, was truncated while it was read. */
static void on_lost_page(int number)
{
    static const char text[] = "kvfate: a model became shorter while it was read; copy it to its "
                               "place under another name first\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        (void)text; /* the standard error is closed */
    parts_remove();
    _exit(EXIT_FAILED);
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
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    struct sigaction old;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            handle(numbers[i], tidy, SA_RESTART);
    handle(SIGBUS, on_lost_page, 0);
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
