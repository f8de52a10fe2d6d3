/* records.c - columns of a table from an array of structs (records.h). */
#include <stdint.h>
#include <string.h>

#include "analyzers/records.h"
#include "base/mem.h"

int records_put(struct table *out, const void *rows, size_t size,
                const struct record_member *member, size_t n)
{
    static const size_t width[] = {
        [TABLE_INT] = sizeof(int64_t), [TABLE_REAL] = sizeof(double), [TABLE_STR] = sizeof(char *)};
    size_t n_rows = (size_t)table_rows(out);
    void *v = mem_alloc(n_rows, sizeof(union {
                            int64_t i;
                            double x;
                            const char *s;
                        }));
    if (!v)
        return KVF_E_NOMEM;
    for (size_t c = 0; c < n; c++) {
        size_t w = width[member[c].type];
        for (size_t r = 0; r < n_rows; r++)
            memcpy((char *)v + r * w, (const char *)rows + r * size + member[c].offset, w);
        if (member[c].type == TABLE_INT)
            table_dense_int(out, member[c].name, member[c].unit, v);
        else if (member[c].type == TABLE_REAL)
            table_dense_real(out, member[c].name, member[c].unit, v);
        else
            table_dense_str(out, member[c].name, member[c].unit, v);
    }
    mem_free(v);
    return table_err(out);
}
