/* beside.h - finds files that a writer left next to its output file. */
#ifndef KVF_TEST_BESIDE_H
#define KVF_TEST_BESIDE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Returns true if the folder contains no temporary or lock file of the file `name`. */
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
