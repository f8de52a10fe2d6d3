#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvf/err.h>

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

/* Names from files end up in the sentence: it stays one line. */
static void one_line(struct kvf_diag *d)
{
    for (char *p = d->text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

int kvf_fail(struct kvf_diag *d, int err, const char *fmt, ...)
{
    if (!d)
        return err;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->text, sizeof d->text, fmt, ap);
    va_end(ap);
    one_line(d);
    return err;
}

void kvf_diag_prefix(struct kvf_diag *d, const char *fmt, ...)
{
    if (!d)
        return;
    struct kvf_diag old = *d;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->text, sizeof d->text, fmt, ap);
    va_end(ap);
    size_t n = strlen(d->text);
    snprintf(d->text + n, sizeof d->text - n, ": %s", old.text);
    one_line(d);
}
