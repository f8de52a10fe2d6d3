/* files.h - complete contents of files that a test reads and writes. */
#ifndef KVF_TESTS_FILES_H
#define KVF_TESTS_FILES_H

#include "tests/suite.h"

/* Returns the content of a file with a NUL at the end; free with mem_free(). Ends the test if the
 * file cannot be read. */
static inline char *read_whole(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    cr_assert(f != NULL, "%s cannot be opened", path);
    fseek(f, 0, SEEK_END);
    *ret_n = (size_t)ftell(f);
    rewind(f);
    char *text = mem_alloc(*ret_n + 1, 1);
    cr_assert(text && fread(text, 1, *ret_n, f) == *ret_n);
    fclose(f);
    return text;
}

static inline void write_whole(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, "%s cannot be written", path);
}

#endif
