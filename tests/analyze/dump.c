/* dump.c - writes a trace's columns as arrays of doubles, for tests that must not read them through
 * the analyzers.
 *
 * usage: dump X.kvf DIR. It writes DIR/COLUMN.f64 [layers][heads][T] and prints a line "COLUMN
 * layers heads T" per column. */
#include <stdio.h>
#include <stdlib.h>

#include <kvf/trace.h>

static int dump_column(struct kvf_trace *t, int c, const char *dir)
{
    const struct kvf_column *col = kvf_column(t, c);
    uint32_t T = kvf_n_steps(t);
    int L = col->space == KVF_SPACE_RUN ? 1 : kvf_n_layers(t);
    int H = kvf_n_heads(t, 0, (enum kvf_space)col->space), err = KVF_OK;
    double *v = calloc(T ? T : 1, sizeof *v);
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.f64", dir, col->name);
    FILE *f = fopen(path, "wb");
    if (!v || !f)
        err = KVF_E_IO;
    for (int l = 0; !err && l < L; l++)
        for (int h = 0; !err && T && h < H; h++) {
            err = kvf_read_f64(t, c, l, h, 0, T, v, NULL);
            if (!err && fwrite(v, sizeof *v, T, f) != T)
                err = KVF_E_IO;
        }
    if (f && fclose(f) != 0)
        err = KVF_E_IO;
    free(v);
    if (!err)
        printf("%s %d %d %u\n", col->name, L, H, (unsigned)T);
    return err;
}

int main(int argc, char **argv)
{
    struct kvf_diag d = {""};
    struct kvf_trace *t = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: dump X.kvf DIR\n");
        return 2;
    }
    int err = kvf_open(argv[1], KVF_OPEN_TAIL, &t, &d);
    for (int c = 0; !err && c < kvf_n_columns(t); c++)
        err = dump_column(t, c, argv[2]);
    if (err)
        fprintf(stderr, "dump: %s %s\n", kvf_strerror(err), d.text);
    kvf_close(t);
    return err ? 1 : 0;
}
