/* Tables and registers of claims: the first byte says which, the rest is the file. */
#include <math.h>
#include <string.h>

#include "base/table_read.h"
#include "fuzz.h"
#include "studies/claims.h"

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

/* A register: judged without tables, so that each claim is untestable or not run. */
static void check_register(const char *text, size_t n)
{
    struct claims c = {0};
    struct kvf_diag d = {""};
    int err = claims_parse(text, n, &c, &d);
    MUST(err == KVF_OK ? c.n >= 1 : c.n == 0 && d.text[0]);
    struct claims_folder *f = claims_folder_create("/nonexistent", NULL);
    MUST(f);
    for (int i = 0; i < c.n; i++) {
        struct buf wrong = {0};
        struct claim_result r;
        MUST(claims_judge(&c.claim[i], f, &r, &d) == KVF_OK);
        MUST(r.verdict == (c.claim[i].untestable ? CLAIM_UNTESTABLE : CLAIM_NOT_RUN));
        claims_check(&c.claim[i], &wrong);
        buf_finish(&wrong);
    }
    claims_folder_destroy(f);
    claims_free(&c);
}

/* A table between the first and the second NUL, a register behind it. */
static void check_units(const char *text, size_t n)
{
    const char *cut = memchr(text, 0, n);
    struct claims c = {0};
    struct table *t = NULL;
    size_t len = cut ? (size_t)(cut - text) : n;
    if (cut && claims_parse(cut + 1, n - len - 1, &c, NULL) == KVF_OK
        && table_parse_tsv(text, len, NULL, &t, NULL) == KVF_OK)
        for (int i = 0; i < c.n; i++) {
            struct claim_units u = {0};
            struct claim_result r = {.verdict = CLAIM_UNDECIDED};
            if (c.claim[i].untestable)
                continue;
            MUST(claims_units(&c.claim[i], &c.claim[i].of, t, &u, &r, NULL) == KVF_OK);
            MUST(u.n <= u.rows && u.rows <= table_rows(t));
            for (int64_t k = 1; k < u.n && c.claim[i].n_unit; k++)
                MUST(strcmp(u.name[k - 1], u.name[k]) < 0);
            claims_units_free(&u);
        }
    table_destroy(t);
    claims_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1 || n > 1 << 16)
        return 0;
    const char *text = (const char *)data + 1;
    if (data[0] % 4 < 2)
        check_table(text, n - 1, data[0] % 4);
    else if (data[0] % 4 == 2)
        check_register(text, n - 1);
    else
        check_units(text, n - 1);
    return 0;
}
