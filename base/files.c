/* files.c - reads files, and tests files that a command must not overwrite (files.h). */
#include "base/files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/order.h"
#include "base/room.h"

enum { MOST_BYTES = 64 << 20 };

int file_read(const char *path, struct buf *out, struct kvf_diag *d)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char part[65536];
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open it: %s", path, strerror(errno));
    out->max = MOST_BYTES;
    for (size_t n = 1; !out->err && n > 0;) {
        n = fread(part, 1, sizeof part, f);
        buf_add(out, part, n);
    }
    int bad = ferror(f);
    if (f != stdin)
        fclose(f);
    if (bad)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read it: %s", path, strerror(errno));
    if (out->err)
        return kvf_fail(d, out->err,
                        "%s: over %d MiB, too long for a text; a model is given with -m", path,
                        MOST_BYTES >> 20);
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

int file_vacant(const char *out, bool overwrite, struct kvf_diag *d)
{
    struct stat s;
    if (!out || overwrite || strcmp(out, "-") == 0 || lstat(out, &s) != 0)
        return KVF_OK;
    if (stat(out, &s) == 0 && S_ISDIR(s.st_mode))
        return kvf_fail(d, KVF_E_IO, "%s is a folder; give the name of a file, such as %s/run.kvf",
                        out, out);
    return kvf_fail(d, KVF_E_IO, "%s is there already; --overwrite replaces it", out);
}

struct names {
    char **name; /* [n] owned */
    size_t n, cap;
};

static int keep_name(struct names *l, const char *name)
{
    if (!mem_room(&l->name, l->n, &l->cap, 64, sizeof *l->name))
        return KVF_E_NOMEM;
    l->name[l->n] = mem_strdup(name);
    return l->name[l->n++] ? KVF_OK : KVF_E_NOMEM;
}

/* Names of the files of a folder that have this ending, in order. */
static int list_folder(const char *folder, const char *ending, struct names *l, struct kvf_diag *d)
{
    DIR *dir = opendir(folder);
    size_t k = strlen(ending);
    int err = KVF_OK;
    if (!dir)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read: %s", folder, strerror(errno));
    for (struct dirent *f = readdir(dir); !err && f; f = readdir(dir)) {
        size_t len = strlen(f->d_name);
        if (f->d_name[0] != '.' && len > k && strcmp(f->d_name + len - k, ending) == 0)
            err = keep_name(l, f->d_name);
    }
    closedir(dir);
    if (l->n)
        qsort(l->name, l->n, sizeof *l->name, order_text);
    return err;
}

static int each_of_folder(const char *folder, const char *ending,
                          int (*each)(void *ctx, const char *path), void *ctx, struct kvf_diag *d)
{
    struct names l = {0};
    struct buf path = {0};
    int err = list_folder(folder, ending, &l, d);
    for (size_t i = 0; i < l.n; i++) {
        buf_clear(&path);
        buf_printf(&path, "%s/%s", folder, l.name[i]);
        if (!err)
            err = path.err ? path.err : each(ctx, path.data);
        mem_free(l.name[i]);
    }
    mem_free(l.name);
    buf_finish(&path);
    return err;
}

static int each_of_list(const char *list, int (*each)(void *ctx, const char *path), void *ctx,
                        struct kvf_diag *d)
{
    struct buf line = {.max = 65536};
    FILE *f = fopen(list, "r");
    size_t total = 0;
    int c = f ? 0 : EOF, err = KVF_OK;
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read: %s", list, strerror(errno));
    while (!err && c != EOF) {
        buf_clear(&line);
        for (c = getc(f); c != EOF && c != '\n' && !line.err; c = getc(f))
            buf_char(&line, (char)c);
        total += line.len + 1;
        if (line.err)
            err = kvf_fail(d, KVF_E_IO, "%s: a line is too long", list);
        else if (total > MOST_BYTES)
            err = kvf_fail(d, KVF_E_LIMIT, "%s: over %d MiB", list, MOST_BYTES >> 20);
        else if (line.len && line.data[0] != '#')
            err = each(ctx, line.data);
    }
    if (!err && ferror(f))
        err = kvf_fail(d, KVF_E_IO, "%s: cannot read", list);
    fclose(f);
    buf_finish(&line);
    return err;
}

int files_each(const char *operand, const char *ending, int (*each)(void *ctx, const char *path),
               void *ctx, struct kvf_diag *d)
{
    struct stat st;
    if (operand[0] == '@')
        return each_of_list(operand + 1, each, ctx, d);
    if (stat(operand, &st) == 0 && S_ISDIR(st.st_mode))
        return each_of_folder(operand, ending, each, ctx, d);
    return each(ctx, operand);
}

int files_of_data(struct opt_list *data, char *const *operand, int n, struct kvf_diag *d)
{
    for (int i = 0; i < n; i++) {
        if (data->n == 0)
            return kvf_fail(d, KVF_E_ARG, "--data must precede the files");
        if (opt_list_add(data, operand[i]) != KVF_OK)
            return KVF_E_NOMEM;
    }
    return KVF_OK;
}

bool stdout_is_file(void)
{
    struct stat st;
    return fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode);
}
