/* stream.c - copies traces between the standard streams and temporary files. */
#include "cli/stream.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int copy(FILE *from, FILE *to)
{
    static char part[1 << 16];
    for (size_t n = sizeof part; n == sizeof part;) {
        n = fread(part, 1, sizeof part, from);
        if (fwrite(part, 1, n, to) != n)
            return KVF_E_IO;
    }
    return ferror(from) || fflush(to) != 0 ? KVF_E_IO : KVF_OK;
}

static int read_input(char **operand, struct kvf_diag *d)
{
    static char path[32];
    FILE *f = tmpfile(); /* open until the process ends */
    if (!f)
        return kvf_fail(d, KVF_E_IO, "-: cannot make a temporary file: %s", strerror(errno));
    if (copy(stdin, f) != KVF_OK)
        return kvf_fail(d, KVF_E_IO, "-: cannot keep the standard input in a temporary file: %s",
                        strerror(errno));
    snprintf(path, sizeof path, "/dev/fd/%d", fileno(f));
    *operand = path;
    return KVF_OK;
}

int stream_operands(int n, char **operand, struct kvf_diag *d)
{
    int at = -1;
    for (int i = 0; i < n; i++) {
        if (strcmp(operand[i], "-") != 0)
            continue;
        if (at >= 0)
            return kvf_fail(d, KVF_E_ARG, "the standard input (-) can be one trace, not two");
        at = i;
    }
    return at < 0 ? KVF_OK : read_input(&operand[at], d);
}

int stream_out_open(struct buf *ret_path, struct kvf_diag *d)
{
    if (isatty(STDOUT_FILENO))
        return kvf_fail(d, KVF_E_ARG,
                        "-o - writes a trace to the standard output, which is a terminal: give a "
                        "file, or `| kvfate trace info -`");
    return temporary_trace(ret_path, d);
}

int temporary_trace(struct buf *ret_path, struct kvf_diag *d)
{
    const char *folder = getenv("TMPDIR");
    buf_printf(ret_path, "%s/kvfate-XXXXXX", folder && *folder ? folder : "/tmp");
    if (ret_path->err)
        return ret_path->err;
    if (!mkdtemp(ret_path->data)) {
        int why = errno;
        kvf_fail(d, KVF_E_IO, "%s: cannot make a folder for the trace: %s", ret_path->data,
                 strerror(why));
        buf_clear(ret_path);
        return KVF_E_IO;
    }
    buf_str(ret_path, "/trace.kvf");
    return ret_path->err;
}

int stream_out_send(const struct buf *path, struct kvf_diag *d)
{
    FILE *f = fopen(path->data, "rbe");
    int err = f ? copy(f, stdout) : KVF_E_IO, why = errno;
    if (f)
        fclose(f);
    return err ? kvf_fail(d, err, "-: cannot write the trace to the standard output: %s",
                          strerror(why))
               : KVF_OK;
}

void stream_out_close(struct buf *path)
{
    char *end = path->len ? strrchr(path->data, '/') : NULL;
    if (end) {
        *end = 0;
        DIR *folder = opendir(path->data);
        for (struct dirent *x = folder ? readdir(folder) : NULL; x; x = readdir(folder))
            if (x->d_name[0] != '.')
                unlinkat(dirfd(folder), x->d_name, 0);
        if (folder)
            closedir(folder);
        rmdir(path->data);
    }
    buf_finish(path);
}
