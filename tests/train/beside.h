/* beside.h - what writers of files leave beside them. */
#ifndef KVF_TEST_BESIDE_H
#define KVF_TEST_BESIDE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Whether no part and no lock of the file lies in its folder. */
static inline bool alone_in(const char *folder, const char *name)
{
    char start[64];
    DIR *dir = opendir(folder);
    if (!dir)
        return false;
    bool none = true;
    snprintf(start, sizeof start, ".%s.", name);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        none &= strncmp(e->d_name, start, strlen(start)) != 0;
    closedir(dir);
    return none;
}

#endif
