#include "cli/shown.h"

#include <stdio.h>

#include "base/utf8.h"

void shown_print(const char *s, size_t n)
{
    char shown[UTF8_SHOWN];
    for (size_t len; n; s += len, n -= len) {
        size_t put = utf8_shown(s, n, shown, &len);
        if (*s == '\n')
            putchar('\n');
        else
            fwrite(shown, 1, put, stdout);
    }
}
