/* folder.h - a temporary folder for each test of a suite. */
#ifndef KVF_TESTS_FOLDER_H
#define KVF_TESTS_FOLDER_H

#include "tests/files.h"

/* The temporary folder of a test: TestSuite(NAME, .init = make_folder, .fini = remove_folder). */
static char folder[64];

static inline void make_folder(void)
{
    const char *top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* fsync is fast there */
    snprintf(folder, sizeof folder, "%s/kvf_tests_XXXXXX", top);
    cr_assert(mkdtemp(folder) != NULL);
}

static inline void remove_folder(void)
{
    char command[192];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", folder, folder);
    cr_assert(zero(int, system(command)));
}

/* Returns a path in the folder. The last eight results stay valid. */
static inline const char *at(const char *name)
{
    static char path[8][330];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

#endif
