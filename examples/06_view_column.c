/* 06_view_column.c - the mean of each head of one column, without copying a value: the file is
 * mapped, what was written with the option `plain` lies in it as it is in memory, and a view of
 * values of one call points there.  Any other trace gives the same numbers, of which the library
 * then decodes a piece at a time.
 *
 *     ./06_view_column X.kvf COLUMN */
#include <stdio.h>

#include <kvf/trace.h>

enum { PIECE = 4096 }; /* as large as those that 07_threads.c writes */

/* The sum of n values; what they are is told by the type of the column. */
static double sum(const void *values, enum kvf_dtype dtype, uint32_t n)
{
    double total = 0;
    for (uint32_t i = 0; i < n; i++)
        switch (dtype) {
        case KVF_U8:
            total += ((const uint8_t *)values)[i];
            break;
        case KVF_U16:
            total += ((const uint16_t *)values)[i];
            break;
        case KVF_U32:
            total += ((const uint32_t *)values)[i];
            break;
        case KVF_I32:
            total += ((const int32_t *)values)[i];
            break;
        case KVF_F32:
            total += (double)((const float *)values)[i];
            break;
        case KVF_F64:
            total += ((const double *)values)[i];
            break;
        default:
            total += (double)((const uint64_t *)values)[i];
        }
    return total;
}

static int print_means(struct kvf_trace *t, int column, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    uint32_t n = kvf_n_steps(t);
    int layers = c->space == KVF_SPACE_RUN ? 1 : kvf_n_layers(t);
    for (int l = 0; l < layers; l++)
        for (int h = 0; h < kvf_n_heads(t, l, (enum kvf_space)c->space); h++) {
            double total = 0;
            for (uint32_t t0 = 0; t0 < n; t0 += PIECE) {
                uint32_t k = n - t0 < PIECE ? n - t0 : PIECE;
                const void *values; /* until the next call that reads */
                int err = kvf_view(t, column, l, h, t0, k, &values, d);
                if (err)
                    return err;
                total += sum(values, (enum kvf_dtype)c->dtype, k);
            }
            printf("L%d H%d: mean %g of %u values\n", l, h, total / n, n);
        }
    return KVF_OK;
}

int main(int argc, char **argv)
{
    struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    if (argc != 3) {
        fprintf(stderr, "usage: 06_view_column X.kvf COLUMN\n");
        return 2;
    }
    int err = kvf_open_mapped(argv[1], KVF_OPEN_TAIL, &t, &d);
    int column = err ? -1 : kvf_find(t, argv[2]);
    if (!err && column < 0)
        err = kvf_fail(&d, KVF_E_NOTFOUND, "%s has no column %s", argv[1], argv[2]);
    if (!err)
        err = print_means(t, column, &d);
    if (err)
        fprintf(stderr, "06_view_column: %s\n", d.text[0] ? d.text : kvf_strerror(err));
    kvf_close(t);
    return err ? 1 : 0;
}
