/* parts.c - removes the unfinished files of the process on a signal (parts.h). */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/parts.h"

enum { PARTS = 64, NAME = 4096 };
enum { FREE, TAKEN, NOTED };

/* Names are copied, because the caller may free its memory while a handler reads them. */
static struct {
    atomic_int state;
    char name[NAME];
} part[PARTS];

int parts_note(const char *path)
{
    size_t n = strlen(path) + 1;
    for (int i = 0; i < PARTS && n <= NAME; i++) {
        int expected = FREE;
        if (!atomic_compare_exchange_strong(&part[i].state, &expected, TAKEN))
            continue;
        memcpy(part[i].name, path, n);
        atomic_store(&part[i].state, NOTED);
        return i;
    }
    return -1;
}

void parts_done(int number)
{
    if (number >= 0)
        atomic_store(&part[number].state, FREE);
}

void parts_remove(void)
{
    for (int i = 0; i < PARTS; i++)
        if (atomic_load(&part[i].state) == NOTED)
            unlink(part[i].name);
}
