/* test_table_read.c - tables written by table_write() and read back are equal, in all formats. */
#include <float.h>

#include "base/table_io.h"
#include "base/table_read.h"
#include "tests/files.h"

static const char *const texts[] = {"",   "a\tb", "line\nbreak",  "back\\slash\\t",
                                    "\r", "nan",  "\u00e9 \u4e2d"};
static const double reals[] = {0.1, -2.5, NAN, INFINITY, -INFINITY, DBL_MAX, DBL_MIN / 8};
static const int64_t wholes[] = {0, -1, 1, 9007199254740992, -9007199254740992, 42, 7};
enum { ROWS = 7 };

static struct table *sample(void)
{
    struct table *t = table_create("sample", ROWS);
    table_meta_str(t, "key: odd", "a\tb\\c: d\n# e");
    table_meta_num(t, "T", 1024);
    table_dense_str(t, "text", "", texts);
    table_dense_real(t, "real \"x\"", "nat", reals);
    table_dense_int(t, "whole", "step", wholes);
    cr_assert(eq(int, table_err(t), KVF_OK));
    return t;
}

static struct table *there_and_back(const struct table *t, const char *ending)
{
    char path[] = "/tmp/kvfate-table-XXXXXX", full[64];
    struct table *back = NULL;
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    snprintf(full, sizeof full, "%s.%s", path, ending);
    succeeds(table_write(t, table_format_of(full), full, &d));
    succeeds(table_read(full, NULL, &back, &d));
    close(fd);
    unlink(path);
    unlink(full);
    snprintf(full, sizeof full, "%s.%s" TABLE_SIDECAR, path, ending);
    unlink(full);
    return back;
}

Test(table_read, tsv_gives_back_every_cell)
{
    OWNED(table_destroy) struct table *t = sample(), *b = there_and_back(t, "tsv");
    cr_expect(eq(str, (char *)table_name(b), "sample"));
    cr_expect(eq(dbl, table_meta_real(b, "T", 0), 1024));
    cr_assert(eq(i64, table_rows(b), ROWS));
    cr_assert(eq(int, table_col_type(b, 0), TABLE_STR));
    cr_assert(eq(int, table_col_type(b, 1), TABLE_REAL));
    cr_assert(eq(int, table_col_type(b, 2), TABLE_INT));
    for (int r = 0; r < ROWS; r++) {
        double v = table_real(b, 1, r);
        cr_expect(eq(str, (char *)table_str(b, 0, r), (char *)texts[r]));
        cr_expect(isnan(reals[r]) ? isnan(v) : v == reals[r], "row %d: %.17g", r, v);
        cr_expect(eq(i64, table_int(b, 2, r), wholes[r]));
    }
}

/* JSON has no infinities: they are written as null and read as NaN. */
Test(table_read, json_gives_back_every_cell_and_unit)
{
    OWNED(table_destroy) struct table *t = sample(), *b = there_and_back(t, "json");
    cr_expect(eq(str, (char *)table_meta(b, "key: odd"), "a\tb\\c: d\n# e"));
    cr_expect(eq(str, (char *)table_col_unit(b, 2), "step"));
    cr_expect(eq(str, (char *)table_col_name(b, 1), "real \"x\""));
    for (int r = 0; r < ROWS; r++) {
        double v = table_real(b, 1, r);
        cr_expect(eq(str, (char *)table_str(b, 0, r), (char *)texts[r]));
        cr_expect(isfinite(reals[r]) ? v == reals[r] : isnan(v), "row %d: %.17g", r, v);
        cr_expect(eq(i64, table_int(b, 2, r), wholes[r]));
    }
}

/* All cells equal those from TSV: quotes, commas, line breaks, backslashes (RFC 4180). */
Test(table_read, csv_gives_back_what_tsv_does)
{
    OWNED(table_destroy)
    struct table *t = sample(), *b = there_and_back(t, "csv"), *a = there_and_back(t, "tsv");
    cr_assert(eq(i64, table_rows(b), table_rows(a)));
    cr_expect(eq(str, (char *)table_name(b), "sample"));
    cr_expect(eq(int, table_meta_count(b), table_meta_count(t)));
    cr_expect(eq(str, (char *)table_meta(b, "key: odd"), "a\tb\\c: d\n# e"));
    for (int c = 0; c < table_cols(a); c++) {
        cr_assert(eq(int, table_col_type(b, c), table_col_type(a, c)));
        for (int64_t r = 0; r < table_rows(a); r++) {
            double x = table_real(a, c, r), y = table_real(b, c, r);
            cr_expect(eq(str, (char *)table_str(b, c, r), (char *)table_str(a, c, r)));
            cr_expect(x == y || (isnan(x) && isnan(y)));
        }
    }
}

static void put(const char *path, const char *text)
{
    write_whole(path, text, strlen(text));
}

/* Metadata in the file next to a CSV, or above the rows as earlier versions wrote it. */
Test(table_read, csv_and_the_file_beside_it)
{
    static const struct {
        const char *csv, *beside, *name, *meta; /* name NULL: rejected */
    } cases[] = {
        {"a,b\n1,2\n", NULL, "", NULL},
        {"a,b\n1,2\n",
         "{\"name\":\"t\",\"meta\":{\"m\":\"x\"},\"columns\":"
         "[{\"name\":\"a\"},{\"name\":\"b\"}]}",
         "t", "x"},
        {"a,b\n1,2\n", "{\"name\":\"t\",\"columns\":[{\"name\":\"a\"}]}", NULL, NULL},
        {"a,b\n1,2\n", "{\"name\":\"t\",\"columns\":[{\"name\":\"a\"},{\"name\":\"c\"}]}", NULL,
         NULL},
        {"a,b\n1,2\n", "{\"name\":\"t\"}", NULL, NULL},
        {"a,b\n1,2\n", "text", NULL, NULL},
        {"a,b\n1,2\n", "", NULL, NULL},
        {"# table: old\n# m: y\na,b\n1,2\n", NULL, "old", "y"},
        {"# table: old\n# m: y\na,b\n1,2\n", "text", "old", "y"},
    };
    char path[64], beside[80];
    snprintf(path, sizeof path, "kvf-beside-%d.csv", (int)getpid());
    snprintf(beside, sizeof beside, "%s" TABLE_SIDECAR, path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED(table_destroy) struct table *t = NULL;
        struct kvf_diag d = {""};
        put(path, cases[i].csv);
        if (cases[i].beside)
            put(beside, cases[i].beside);
        int err = table_read(path, NULL, &t, &d);
        cr_assert(eq(int, err == KVF_OK, cases[i].name != NULL), "%zu: %s", i, d.text);
        if (err)
            cr_expect(strstr(d.text, path) == d.text && strstr(d.text, TABLE_SIDECAR), "%s",
                      d.text);
        else
            cr_expect(eq(str, (char *)table_name(t), (char *)cases[i].name));
        const char *m = t ? table_meta(t, "m") : NULL;
        cr_expect(m == cases[i].meta || strcmp(m, cases[i].meta) == 0);
        unlink(beside);
    }
    unlink(path);
}

Test(table_read, csv_that_is_none)
{
    static const struct {
        const char *text;
        int err;
    } cases[] = {{"", KVF_E_FORMAT},
                 {"a,b", KVF_E_FORMAT},
                 {"a,b\n1\n", KVF_E_FORMAT},
                 {"a\n\"x\n", KVF_E_FORMAT},
                 {"a\n\"x\"y\n", KVF_E_FORMAT},
                 {"a\n\"x\"", KVF_E_FORMAT},
                 {"a,a\n1,2\n", KVF_E_FORMAT},
                 {"a,b\n1,2,3\n", KVF_E_FORMAT},
                 {"a\n\"\"\n", KVF_OK},
                 {"a,b\nx,\"y\"\"\nz\"\n", KVF_OK},
                 {"# table: t\na\n", KVF_OK},
                 {"a\nx\\t\n", KVF_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED(table_destroy) struct table *t = NULL;
        struct kvf_diag d = {""};
        int err = table_parse_csv(cases[i].text, strlen(cases[i].text), NULL, &t, &d);
        cr_expect(eq(int, err, cases[i].err), "%s", cases[i].text);
        bool told = d.text[0] != 0, made = t != NULL;
        cr_expect(made != told && made == (err == KVF_OK));
        if (t && strchr(cases[i].text, 'z'))
            cr_expect(eq(str, (char *)table_str(t, 1, 0), "y\"\nz"));
        if (t && strchr(cases[i].text, '\\'))
            cr_expect(eq(str, (char *)table_str(t, 0, 0), "x\\t"));
    }
}

/* Tables as TSV. A case is rejected, or the first cell, or the metadata entry "key", has the text
 * `want`. */
Test(table_read, tsv_with_odd_characters)
{
    static const struct {
        const char *text, *want; /* want NULL: rejected */
    } cases[] = {                /* a backslash at the end of a cell escapes no character */
                 {"a\nx\\\n", NULL},
                 {"a\n\\\n", NULL},
                 {"a\tb\nx\\\ty\n", NULL},
                 {"a\nx\\q\n", NULL},
                 {"a\nx\\\\\n", "x\\"},
                 /* without the space after #, a key would lose its first letter */
                 {"# key: value\na\n1\n", "value"},
                 {"#key: value\na\n1\n", NULL},
                 {"#\tkey: value\na\n1\n", NULL},
                 {"# key:value\na\n1\n", NULL},
                 {"#: value\na\n1\n", NULL},
                 /* \xNN is a control character; NUL would end the text */
                 {"a\nx\\x1By\\x7F\n", "x\x1by\x7f"},
                 {"a\nx\\x00\n", NULL},
                 {"a\nx\\x1\n", NULL},
                 {"a\nx\\x1b\n", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED(table_destroy) struct table *t = NULL;
        struct kvf_diag d = {""};
        int err = table_parse_tsv(cases[i].text, strlen(cases[i].text), NULL, &t, &d);
        cr_assert(eq(int, err, cases[i].want ? KVF_OK : KVF_E_FORMAT), "%s", cases[i].text);
        const char *key = t ? table_meta(t, "key") : NULL;
        if (t)
            cr_expect(eq(str, (char *)(key ? key : table_str(t, 0, 0)), (char *)cases[i].want));
    }
}

/* A getter of the other type returns missing values, so that readers need not know types. */
Test(table_read, cells_of_another_type_are_nothing)
{
    OWNED(table_destroy) struct table *t = NULL;
    const char *text = "n\ts\n7\tx\n";
    cr_assert(eq(int, table_parse_tsv(text, strlen(text), NULL, &t, NULL), KVF_OK));
    cr_expect(eq(str, (char *)table_str(t, 0, 0), ""));
    cr_expect(isnan(table_real(t, 1, 0)));
    cr_expect(eq(i64, table_int(t, 1, 0), -1));
}

static enum table_type type_of(const char *cells)
{
    OWNED(table_destroy) struct table *t = NULL;
    succeeds(table_parse_tsv(cells, strlen(cells), NULL, &t, &d));
    enum table_type type = table_col_type(t, 0);
    return type;
}

/* Numbers that strtod accepts but table_write never prints are text. */
Test(table_read, types_are_those_of_what_is_written)
{
    static const struct {
        const char *cell;
        enum table_type type;
    } cases[] = {{"12", TABLE_INT},
                 {"-7", TABLE_INT},
                 {"9223372036854775807", TABLE_INT},
                 {"9223372036854775808", TABLE_REAL},
                 {"1.5", TABLE_REAL},
                 {"1e9", TABLE_REAL},
                 {"-2.5e-308", TABLE_REAL},
                 {".5", TABLE_REAL},
                 {"nan", TABLE_REAL},
                 {"-inf", TABLE_REAL},
                 {"", TABLE_STR},
                 {"+1", TABLE_STR},
                 {"0x10", TABLE_STR},
                 {"infinity", TABLE_STR},
                 {"NaN", TABLE_STR},
                 {" 1", TABLE_STR},
                 {"1 ", TABLE_STR},
                 {"1.", TABLE_STR},
                 {"1e", TABLE_STR},
                 {"-", TABLE_STR},
                 {"--1", TABLE_STR},
                 {".", TABLE_STR},
                 {"e5", TABLE_STR},
                 {"1,5", TABLE_STR},
                 {"-nan", TABLE_STR}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        snprintf(text, sizeof text, "c\n%s\n", cases[i].cell);
        cr_expect(eq(int, type_of(text), cases[i].type), "'%s'", cases[i].cell);
        snprintf(text, sizeof text, "c\n1\n%s\n", cases[i].cell);
        cr_expect(eq(int, type_of(text), cases[i].type), "1 and '%s'", cases[i].cell);
    }
    cr_expect(eq(int, type_of("c\n"), TABLE_REAL));
}

static int parse_rows(int columns, int64_t rows)
{
    OWNED(table_destroy) struct table *t = NULL;
    SCOPED(buf_finish) struct buf b = {0};
    for (int c = 0; c < columns; c++)
        buf_printf(&b, "%sc%d", c ? "\t" : "", c);
    buf_char(&b, '\n');
    for (int64_t r = 0; r < rows; r++)
        buf_char(&b, '\n'); /* one empty cell */
    int err = b.err ? b.err : table_parse_tsv(b.data, b.len, NULL, &t, NULL);
    return err;
}

Test(table_read, limits_come_before_memory)
{
    cr_expect(eq(int, parse_rows(1, TABLE_MOST_CELLS + 1), KVF_E_LIMIT));
    cr_expect(eq(int, parse_rows(TABLE_MOST_COLUMNS, TABLE_MOST_CELLS / TABLE_MOST_COLUMNS + 1),
                 KVF_E_LIMIT));
    cr_expect(eq(int, parse_rows(TABLE_MOST_COLUMNS + 1, 0), KVF_E_LIMIT));
    cr_expect(eq(int, parse_rows(TABLE_MOST_COLUMNS, 0), KVF_OK));
    cr_expect(eq(int, parse_rows(2, 1), KVF_E_FORMAT));
    cr_expect(eq(int, parse_rows(1, 3), KVF_OK));
}

Test(table_read, files_are_named_in_what_is_said)
{
    struct table *t = NULL;
    struct kvf_diag d = {""};
    cr_expect(eq(int, table_read("/nonexistent/x.tsv", NULL, &t, &d), KVF_E_IO));
    cr_expect(strncmp(d.text, "/nonexistent/x.tsv: ", 20) == 0, "%s", d.text);
    cr_expect(eq(int, table_read("x.npz", NULL, &t, &d), KVF_E_ARG));
    cr_expect(strstr(d.text, "x.npz") != NULL);
    cr_expect(t == NULL);
}
