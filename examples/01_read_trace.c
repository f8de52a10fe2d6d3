/* 01_read_trace.c - what a trace holds: its columns, its first tokens, and how
 * many entries each KV head lost.
 *
 *     cc 01_read_trace.c $(pkg-config --cflags --libs kvftrace) -o read_trace
 *     ./read_trace X.kvf */
#include <stdio.h>
#include <stdlib.h>

#include <kvf/schema.h>
#include <kvf/trace.h>

static void print_columns(const struct kvf_trace *t)
{
    static const char *const space[] = {"run", "KV head", "query head"};
    for (int c = 0; c < kvf_n_columns(t); c++) {
        const struct kvf_column *col = kvf_column(t, c);
        printf("column %s: a value per %s and %s, %zu bytes each\n", col->name, space[col->space],
               col->axis == KVF_AXIS_TOKEN ? "token" : "step",
               kvf_dtype_size((enum kvf_dtype)col->dtype));
    }
}

static void print_tokens(struct kvf_trace *t)
{
    for (uint32_t i = 0; i < 8 && i < kvf_n_steps(t); i++) {
        size_t len;
        const char *text = kvf_token(t, i, &len);
        if (text)
            printf("token %u: %zu bytes\n", i, len);
    }
}

/* evict_step is the first query that no longer sees the entry. */
static int print_evictions(struct kvf_trace *t, struct kvf_diag *d)
{
    int column = kvf_find(t, "evict_step"), err = KVF_OK;
    uint32_t T = kvf_n_steps(t), *step = malloc((T + 1) * sizeof *step);
    if (!step)
        return KVF_E_NOMEM;
    for (int l = 0; column >= 0 && l < kvf_n_layers(t); l++)
        for (int h = 0; !err && h < kvf_n_heads(t, l, KVF_SPACE_KV); h++) {
            uint32_t gone = 0;
            err = kvf_read(t, column, l, h, 0, T, step, d);
            for (uint32_t i = 0; !err && i < T; i++)
                gone += step[i] != KVF_ALIVE;
            if (!err)
                printf("L%dK%d: %u of %u entries evicted\n", l, h, gone, T);
        }
    free(step);
    return err;
}

int main(int argc, char **argv)
{
    struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    if (argc != 2) {
        fprintf(stderr, "usage: 01_read_trace X.kvf\n");
        return 2;
    }
    int err = kvf_open(argv[1], KVF_OPEN_TAIL, &t, &d);
    if (!err) {
        printf("%u steps, %d layers, %s\n", kvf_n_steps(t), kvf_n_layers(t),
               kvf_is_clean(t) ? "closed" : "unfinished");
        print_columns(t);
        print_tokens(t);
        err = print_evictions(t, &d);
    }
    if (err)
        fprintf(stderr, "01_read_trace: %s\n", d.text[0] ? d.text : kvf_strerror(err));
    kvf_close(t);
    return err ? 1 : 0;
}
