#include "cli/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 64 << 20 };

int file_read(const char *path, struct buf *out, struct kvf_diag *d)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char part[65536];
    size_t n;
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open it: %s", path, strerror(errno));
    out->max = MOST_BYTES;
    while (!out->err && (n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(out, part, n);
    int bad = ferror(f);
    if (f != stdin)
        fclose(f);
    if (bad)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read it: %s", path, strerror(errno));
    if (out->err)
        return kvf_fail(d, out->err, "%s: over %d MiB", path, MOST_BYTES >> 20);
    return KVF_OK;
}

bool file_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int file_keep(const char *out, const char *in, struct kvf_diag *d)
{
    if (out && in && strcmp(out, "-") != 0 && file_same(in, out))
        return kvf_fail(d, KVF_E_ARG, "-o %s would overwrite the input %s", out, in);
    return KVF_OK;
}

int files_keep(const char *out, char *const *in, int n, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < n; i++)
        err = file_keep(out, in[i], d);
    return err;
}

int files_of_data(struct opt_list *data, char *const *operand, int n, struct kvf_diag *d)
{
    for (int i = 0; i < n; i++) {
        if (data->n == 0)
            return kvf_fail(d, KVF_E_ARG, "--data comes before the files");
        if (data->n == OPT_LIST_MAX)
            return kvf_fail(d, KVF_E_ARG, "more than %d files", OPT_LIST_MAX);
        data->item[data->n++] = operand[i];
    }
    return KVF_OK;
}
