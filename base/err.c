/* err.c - error codes and diagnoses (<kvf/err.h>). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvf/err.h>

#include "base/utf8.h"

const char *kvf_strerror(int err)
{
    switch (err) {
    case KVF_OK:
        return "success";
#define X(name, code, text)                                                                        \
    case code:                                                                                     \
        return text;
        KVF_ERR_MAP(X)
#undef X
    default:
        return "unknown error";
    }
}

/* Copies a sentence with control characters escaped, since it may contain names of files. It stays
 * one line and is safe on a terminal. */
static void put_shown(struct kvf_diag *d, const char *text)
{
    char shown[UTF8_SHOWN];
    size_t at = 0, n = strlen(text);
    for (size_t len, put; n; text += len, n -= len) {
        put = utf8_shown(text, n, shown, &len);
        if (put >= sizeof d->text - at)
            break;
        memcpy(d->text + at, shown, put);
        at += put;
    }
    d->text[at] = 0;
}

int kvf_fail(struct kvf_diag *d, int err, const char *fmt, ...)
{
    char text[sizeof d->text];
    if (!d)
        return err;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    put_shown(d, text);
    return err;
}

void kvf_diag_prefix(struct kvf_diag *d, const char *fmt, ...)
{
    if (!d)
        return;
    char text[sizeof d->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const size_t n = strlen(text), space = sizeof text - n;
    if (snprintf(text + n, space, ": %s", d->text) >= (int)space)
        text[sizeof text - 1] = 0; /* the rest is truncated */
    put_shown(d, text);
}
