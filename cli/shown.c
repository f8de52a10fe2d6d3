/* shown.c - prints texts from files with control characters escaped. */
#include "cli/shown.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

void shown_piece(const char *s, size_t n)
{
    bool screen = isatty(STDOUT_FILENO);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (screen && (c < 0x20 || c == 0x7f) && c != '\n' && c != '\t')
            shown_print(s + i, 1);
        else
            putchar(c);
    }
}

struct shown_name shown_name(const char *name)
{
    struct shown_name x;
    size_t at = 0, n = strlen(name);
    for (size_t len; n && at + UTF8_SHOWN < sizeof x.text; name += len, n -= len)
        at += utf8_shown(name, n, x.text + at, &len);
    x.text[at] = 0;
    return x;
}
