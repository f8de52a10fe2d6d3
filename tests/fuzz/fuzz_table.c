/* fuzz_table.c - tables: the first byte chooses TSV and CSV or JSON, and the file follows. */
#include <math.h>
#include <string.h>

#include "base/table_read.h"
#include "fuzz.h"

static void walk(const struct table *t)
{
    int64_t rows = table_rows(t);
    MUST(table_err(t) == KVF_OK && table_cols(t) >= 1 && table_cols(t) <= TABLE_MOST_COLUMNS);
    MUST(rows >= 0 && rows * table_cols(t) <= TABLE_MOST_CELLS);
    for (int c = 0; c < table_cols(t); c++) {
        MUST(table_col_name(t, c)[0] && table_find(t, table_col_name(t, c)) == c);
        for (int64_t r = 0; r < rows; r++)
            if (table_col_type(t, c) == TABLE_STR)
                MUST(strlen(table_str(t, c, r)) < TABLE_MOST_BYTES);
            else
                MUST(table_col_type(t, c) == TABLE_REAL || isfinite(table_real(t, c, r)));
    }
}

static void check_table(const char *text, size_t n, bool json)
{
    struct table *t = NULL;
    struct kvf_diag d = {""};
    if (!json && table_parse_csv(text, n, NULL, &t, &d) == KVF_OK)
        walk(t);
    table_destroy(t);
    t = NULL;
    d.text[0] = 0;
    int err = json ? table_parse_json(text, n, &t, &d) : table_parse_tsv(text, n, NULL, &t, &d);
    MUST(err == KVF_OK ? t != NULL : t == NULL && d.text[0]);
    if (!err)
        walk(t);
    table_destroy(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1 || n > 1 << 16)
        return 0;
    check_table((const char *)data + 1, n - 1, data[0] % 2);
    return 0;
}
