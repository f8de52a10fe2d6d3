/* test_table.c - tables: every kind of column, persistent errors, and files read back without the
 * library's reader. */
#include <minizip/unzip.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/table.h"
#include "base/table_io.h"
#include "base/table_npz.h"
#include "tests/files.h"

static void squares(void *ctx, int64_t row0, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = *(double *)ctx * (double)(row0 + i) * (double)(row0 + i);
}

Test(table, every_kind_of_column_gives_its_formula)
{
    enum { ROWS = 12 };
    double factor = 0.5, dense[ROWS], got[ROWS];
    const int64_t heads[] = {7, 8, 9};
    const double cycle[] = {0.25, NAN, -1, 4};
    const char *const names[] = {"L0K0", "L0K1", "L1K0"};
    OWNED(table_destroy) struct table *t = table_create("t", ROWS);
    for (int i = 0; i < ROWS; i++)
        dense[i] = 3.0 * i;
    table_dense_real(t, "dense", "nat", dense);
    table_block_int(t, "block", "", heads, 3);
    table_cycle_real(t, "cycle", "", cycle, 4);
    table_affine(t, "affine", "step", 10, -2, 5);
    table_affine(t, "line", "", 0, 3, 0);
    table_lazy(t, "lazy", "", TABLE_REAL, squares, &factor);
    table_block_str(t, "name", "", names, 3);
    cr_assert(eq(int, table_err(t), KVF_OK));
    cr_assert(eq(int, table_cols(t), 7));
    for (int64_t r = 0; r < ROWS; r++) {
        cr_expect(eq(dbl, table_real(t, 0, r), 3.0 * (double)r));
        cr_expect(eq(i64, table_int(t, 1, r), heads[r / 4]));
        double c = table_real(t, 2, r);
        cr_expect(r % 4 == 1 ? isnan(c) : c == cycle[r % 4]);
        cr_expect(eq(i64, table_int(t, 3, r), 10 - 2 * (r % 5)));
        cr_expect(eq(i64, table_int(t, 4, r), 3 * r));
        cr_expect(eq(dbl, table_real(t, 5, r), 0.5 * (double)(r * r)));
        cr_expect(eq(str, (char *)table_str(t, 6, r), (char *)names[r / 4]));
    }
    for (int col = 0; col < 6; col++) /* ranges equal single rows */
        for (int64_t a = 0; a < ROWS; a++) {
            table_get(t, col, a, ROWS - a, got);
            for (int64_t r = a; r < ROWS; r++)
                cr_expect(isnan(got[r - a]) ? isnan(table_real(t, col, r))
                                            : got[r - a] == table_real(t, col, r));
        }
    cr_expect(eq(int, table_find(t, "cycle"), 2));
    cr_expect(eq(int, table_find(t, "none"), -1));
    cr_expect(eq(str, (char *)table_col_unit(t, 0), "nat"));
}

Test(table, wrong_lengths_and_repeated_names_stick)
{
    const int64_t v[] = {1, 2, 3, 4, 5};
    struct table *t = table_create("t", 10);
    table_block_int(t, "a", "", v, 5);
    cr_expect(eq(int, table_err(t), KVF_OK));
    table_block_int(t, "b", "", v, 3); /* 10 rows are not 3 blocks */
    cr_expect(eq(int, table_err(t), KVF_E_ARG));
    table_block_int(t, "c", "", v, 5);
    cr_expect(eq(int, table_find(t, "c"), -1), "nothing is added after an error");
    char path[] = "/tmp/kvf-table-XXXXXX.tsv";
    close(mkstemps(path, 4));
    cr_expect(ne(int, table_write(t, TABLE_TSV, path, NULL), KVF_OK), "and nothing is written");
    unlink(path);
    table_destroy(t);
    t = table_create("t", 10);
    table_cycle_int(t, "a", "", v, 5);
    table_cycle_int(t, "a", "", v, 2);
    cr_expect(eq(int, table_err(t), KVF_E_ARG), "names are unique");
    table_destroy(t);
    cr_expect(eq(ptr, table_create("t", -1), NULL));
    table_destroy(NULL);
}

static int destroyed;

static void count_destroy(void *ctx)
{
    destroyed += *(int *)ctx;
}

Test(table, owned_sources_and_metadata)
{
    int one = 1, ten = 10;
    struct table *t = table_create("t", 0);
    table_own(t, &one, count_destroy);
    table_own(t, &ten, count_destroy);
    table_meta_str(t, "model", "a");
    table_meta_num(t, "budget", 64);
    table_meta_str(t, "model", "b");
    table_meta_num(t, "share", 0.1);
    cr_expect(eq(int, table_meta_count(t), 3));
    cr_expect(eq(str, (char *)table_meta(t, "model"), "b"), "the later one wins");
    cr_expect(eq(str, (char *)table_meta_key(t, 0), "model"), "in the order of first setting");
    cr_expect(eq(str, (char *)table_meta(t, "budget"), "64"));
    cr_expect(eq(dbl, table_meta_real(t, "share", -1), 0.1));
    cr_expect(eq(dbl, table_meta_real(t, "model", -1), -1.0), "no number");
    cr_expect(eq(ptr, (void *)table_meta(t, "none"), NULL));
    table_destroy(t);
    cr_expect(eq(int, destroyed, 11));
}

/* --- files ------------------------------------------------------------------ */

/* A table of two rows with every cell that needs quoting or special output. */
static struct table *difficult(void)
{
    static const int64_t whole[] = {-1, INT64_C(1) << 52};
    static const double real[] = {0.1, NAN};
    static const char *const text[] = {"tab\there\nnew\\line\r", "a,\"b\" \xc3\xa9\xe2\x82\xac"};
    struct table *t = table_create("difficult", 2);
    table_meta_str(t, "note", "two\nlines");
    table_dense_int(t, "whole", "step", whole);
    table_dense_real(t, "real", "", real);
    table_dense_str(t, "text", "", text);
    return t;
}

static char *written(const struct table *t, enum table_format f, const char *ext, size_t *ret_n)
{
    char path[64];
    struct kvf_diag d = {""};
    snprintf(path, sizeof path, "kvf-table-%d%s", (int)getpid(), ext);
    cr_assert(eq(int, (int)table_format_of(path), (int)f));
    cr_assert(table_write(t, f, path, &d) == KVF_OK, "%s", d.text);
    char *text = read_whole(path, ret_n);
    unlink(path);
    snprintf(path, sizeof path, "kvf-table-%d%s" TABLE_SIDECAR, (int)getpid(), ext);
    cr_expect(eq(int, unlink(path) == 0, f == TABLE_CSV), "a file beside CSV alone");
    return text;
}

/* Removes the checksum line, the second line, from a TSV and checks it against the rest. */
static void unseal(char *tsv, size_t *n)
{
    char want[64], *line = strchr(tsv, '\n') + 1, *rest = strchr(line, '\n') + 1;
    char got[64] = "";
    uint64_t h = 0;
    snprintf(got, sizeof got, "%.*s", (int)(rest - line), line);
    memmove(line, rest, *n - (size_t)(rest - tsv) + 1);
    *n -= (size_t)(rest - line);
    for (size_t at = 0; at < *n; at += 65536)
        h = rng_hash_bytes(h, tsv + at, *n - at < 65536 ? *n - at : 65536);
    snprintf(want, sizeof want, "# checksum: %016llx of %12zu bytes\n", (unsigned long long)h, *n);
    cr_expect(eq(str, got, want));
}

Test(table_io, tsv_and_csv_byte_by_byte)
{
    size_t n;
    OWNED(table_destroy) struct table *t = difficult();
    OWNED(mem_free)
    char *csv = written(t, TABLE_CSV, ".csv", &n), *tsv = written(t, TABLE_TSV, ".TSV", &n);
    unseal(tsv, &n);
    cr_expect(eq(str, tsv,
                 "# table: difficult\n# note: two\\nlines\nwhole\treal\ttext\n"
                 "-1\t0.1\ttab\\there\\nnew\\\\line\\r\n"
                 "4503599627370496\tnan\ta,\"b\" \xc3\xa9\xe2\x82\xac\n"));
    cr_expect(eq(str, csv,
                 "whole,real,text\n"
                 "-1,0.1,\"tab\there\nnew\\line\r\"\n"
                 "4503599627370496,nan,\"a,\"\"b\"\" \xc3\xa9\xe2\x82\xac\"\n"));
}

/* Cells that programs read as comments, blank lines or missing cells are quoted. */
Test(table_io, csv_quotes_what_looks_like_something_else)
{
    static const char *const text[] = {"#", "a #b", "", "plain", "a,b", "'"};
    size_t n;
    OWNED(table_destroy) struct table *t = table_create("t", 6);
    table_dense_str(t, "#x", "", text);
    OWNED(mem_free) char *csv = written(t, TABLE_CSV, ".csv", &n);
    cr_expect(eq(str, csv, "\"#x\"\n\"#\"\n\"a #b\"\n\"\"\nplain\n\"a,b\"\n'\n"));
}

Test(table_io, json_reads_back)
{
    size_t n;
    struct kvf_diag d = {""};
    OWNED(json_free) struct json *j = NULL;
    OWNED(table_destroy) struct table *t = difficult();
    OWNED(mem_free) char *text = written(t, TABLE_JSON, ".json", &n);
    cr_assert(json_parse(text, n, &j, &d) == KVF_OK, "%s", d.text);
    const struct json *data = json_get(j, "data"), *col = json_get(j, "columns");
    cr_expect(eq(str, (char *)json_str(json_get(j, "name"), ""), "difficult"));
    cr_expect(eq(str, (char *)json_str(json_get(json_get(j, "meta"), "note"), ""), "two\nlines"));
    cr_expect(eq(str, (char *)json_str(json_get(json_at(col, 0), "unit"), ""), "step"));
    cr_expect(eq(str, (char *)json_str(json_get(json_at(col, 2), "type"), ""), "str"));
    cr_expect(eq(i64, json_int(json_at(json_get(data, "whole"), 1), 0), INT64_C(1) << 52));
    cr_expect(eq(dbl, json_num(json_at(json_get(data, "real"), 0), 0), 0.1));
    cr_expect(eq(dbl, json_num(json_at(json_get(data, "real"), 1), 7), 7.0), "NaN is null");
    cr_expect(eq(str, (char *)json_str(json_at(json_get(data, "text"), 0), ""),
                 "tab\there\nnew\\line\r"));
}

/* Reads a complete entry and checks its checksum. */
static int read_entry(unzFile z, const char *name, char *out, size_t n)
{
    cr_assert(z && unzLocateFile(z, name, 1) == UNZ_OK && unzOpenCurrentFile(z) == UNZ_OK, "%s",
              name);
    int got = unzReadCurrentFile(z, out, (unsigned)n);
    cr_expect(unzeof(z) == 1 && unzCloseCurrentFile(z) == UNZ_OK, "%s", name);
    return got;
}

/* Reads an array of an npz: the npy header is 128 bytes (NumPy format 1.0). */
static const char *npy(unzFile z, const char *name, const char *descr, char *out, size_t n)
{
    int got = read_entry(z, name, out, n);
    cr_assert(got > 128 && memcmp(out, "\x93NUMPY\x01\x00\x76\x00", 10) == 0, "%s", name);
    cr_expect(strstr(out + 10, descr) && strstr(out + 10, "'shape': (2,)"), "%s: %.118s", name,
              out + 10);
    cr_expect(out[127] == '\n');
    return out + 128;
}

Test(table_io, npz_reads_back_and_repeats)
{
    static const char path[] = "kvf-table-test.npz";
    char buf[1024];
    unz_global_info64 info;
    unz_file_info64 entry;
    double real[2];
    int64_t whole[2];
    uint32_t text[64];
    OWNED(table_destroy) struct table *t = difficult();
    cr_assert(table_write(t, TABLE_NPZ, path, NULL) == KVF_OK);
    unzFile z = unzOpen64(path);
    cr_assert(z && unzGetGlobalInfo64(z, &info) == UNZ_OK && info.number_entry == 3);
    unzGetCurrentFileInfo64(z, &entry, NULL, 0, NULL, 0, NULL, 0);
    cr_expect(eq(ulong, entry.dosDate, 33ul << 16), "1980-01-01 in every file");
    memcpy(whole, npy(z, "whole.npy", "'<i8'", buf, sizeof buf), sizeof whole);
    cr_expect(whole[0] == -1 && whole[1] == INT64_C(1) << 52);
    memcpy(real, npy(z, "real.npy", "'<f8'", buf, sizeof buf), sizeof real);
    cr_expect(real[0] == 0.1 && isnan(real[1]));
    memcpy(text, npy(z, "text.npy", "'<U18'", buf, sizeof buf), 2 * 18 * 4);
    cr_expect(text[0] == 't' && text[3] == '\t' && text[17] == '\r');
    cr_expect(text[18 + 6] == 0xe9 && text[18 + 7] == 0x20ac && text[18 + 8] == 0);
    cr_expect(unzGetGlobalComment(z, buf, sizeof buf) > 0);
    char *seal = strstr(buf, ",\"checksum\":\"");
    cr_assert(seal && strlen(seal) == strlen(",\"checksum\":\"") + 38 + strlen("\"}\n"));
    strcpy(seal, "}\n");
    cr_expect(eq(str, buf,
                 "{\"name\":\"difficult\",\"meta\":{\"note\":\"two\\u000alines\"},\"columns\":["
                 "{\"name\":\"whole\",\"unit\":\"step\",\"type\":\"int\"},"
                 "{\"name\":\"real\",\"unit\":\"\",\"type\":\"real\"},"
                 "{\"name\":\"text\",\"unit\":\"\",\"type\":\"str\"}]}\n"));
    unzClose(z);
    size_t n, m;
    OWNED(mem_free)
    char *a = written(t, TABLE_NPZ, ".npz", &n), *b = written(t, TABLE_NPZ, ".npz", &m);
    cr_expect(n == m && memcmp(a, b, n) == 0, "equal tables, equal bytes");
    unlink(path);
}

Test(table_io, ill_formed_text_keeps_its_length_in_npz)
{
    static const char path[] = "kvf-table-bad.npz";
    const char *const text[] = {"\x80\x80\xff", "ab"};
    char buf[512];
    uint32_t cp[6];
    OWNED(table_destroy) struct table *t = table_create("t", 2);
    table_dense_str(t, "s", "", text);
    cr_assert(table_write(t, TABLE_NPZ, path, NULL) == KVF_OK);
    unzFile z = unzOpen64(path);
    memcpy(cp, npy(z, "s.npy", "'<U3'", buf, sizeof buf), sizeof cp);
    for (int i = 0; i < 3; i++)
        cr_expect(cp[i] == 0xfffd);
    unzClose(z);
    unlink(path);
}

/* More rows than one read, more texts than are kept, and every kind of column. Lines are compared
 * with the formulas here, and with the arrays of the npz. */
enum { LONG = 2700, WORDS = 300 };

static void eighths(void *ctx, int64_t row0, int64_t n, double *out)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)((row0 + i) % 13) / 8;
}

static struct table *long_table(void)
{
    static char word[WORDS][16];
    static const char *names[LONG], *heads[3] = {"a\tb", "", "c"};
    static int64_t dense[LONG], block[27];
    static double cycle[1350];
    for (int i = 0; i < WORDS; i++)
        snprintf(word[i], sizeof word[i], "w\"%d", i);
    for (int i = 0; i < LONG; i++) {
        names[i] = word[i * 7 % WORDS];
        dense[i] = i % 5 ? -i : i * INT64_C(1000000000);
    }
    for (int i = 0; i < 27; i++)
        block[i] = i / 2; /* equal in neighbours */
    for (int i = 0; i < 1350; i++)
        cycle[i] = i % 9 ? i / 4.0 : NAN;
    struct table *t = table_create("long", LONG);
    table_block_str(t, "head", "", heads, 3);
    table_block_int(t, "block", "", block, 27);
    table_affine(t, "at", "", 5, -3, 1100);
    table_cycle_real(t, "cycle", "", cycle, 1350);
    table_dense_int(t, "dense", "", dense);
    table_lazy(t, "lazy", "", TABLE_REAL, eighths, NULL);
    table_dense_str(t, "name", "", names);
    return t;
}

static double of_row(int col, int i)
{
    switch (col) {
    case 1:
        return i / 100 / 2;
    case 2:
        return 5 - 3 * (i % 1100);
    case 3:
        return i % 1350 % 9 ? i % 1350 / 4.0 : NAN;
    case 4:
        return i % 5 ? -i : i * 1e9;
    default:
        return i % 13 / 8.0;
    }
}

static char *whole_file(const char *path, size_t *ret_n)
{
    char *text = read_whole(path, ret_n);
    unlink(path);
    return text;
}

Test(table_io, long_tables_row_by_row)
{
    static const char *const head[3] = {"a\\tb", "", "c"}, path[] = "kvf-table-long.tsv";
    OWNED(table_destroy) struct table *t = long_table();
    SCOPED(buf_finish) struct buf want = {0};
    size_t n;
    buf_str(&want, "# table: long\nhead\tblock\tat\tcycle\tdense\tlazy\tname\n");
    for (int i = 0; i < LONG; i++) {
        buf_str(&want, head[i / 900]);
        for (int c = 1; c < 6; c++)
            buf_printf(&want, isnan(of_row(c, i)) ? "\tnan" : "\t%.15g", of_row(c, i));
        buf_printf(&want, "\tw\"%d\n", i * 7 % WORDS);
    }
    cr_assert(table_write(t, TABLE_TSV, path, NULL) == KVF_OK);
    OWNED(mem_free) char *got = whole_file(path, &n);
    unseal(got, &n);
    cr_expect(n == want.len && memcmp(got, want.data, n) == 0);
}

Test(table_io, long_tables_in_json)
{
    static const char *const key[] = {"head", "block", "at", "cycle", "dense", "lazy", "name"};
    static const char path[] = "kvf-table-long.json";
    OWNED(table_destroy) struct table *t = long_table();
    size_t n;
    OWNED(json_free) struct json *j = NULL;
    cr_assert(table_write(t, TABLE_JSON, path, NULL) == KVF_OK);
    char *text = whole_file(path, &n), name[16];
    cr_assert(json_parse(text, n, &j, NULL) == KVF_OK);
    for (int c = 1; c < 7; c++) {
        const struct json *v = json_first(json_get(json_get(j, "data"), key[c]));
        for (int i = 0; i < LONG; i++, v = json_next(v)) {
            snprintf(name, sizeof name, "w\"%d", i * 7 % WORDS);
            if (c == 6)
                cr_assert(strcmp(json_str(v, ""), name) == 0, "row %d", i);
            else
                cr_assert(isnan(of_row(c, i)) ? isnan(json_num(v, NAN))
                                              : json_num(v, -1e9) == of_row(c, i),
                          "row %d", i);
        }
        cr_expect(eq(ptr, (void *)(uintptr_t)v, NULL));
    }
    mem_free(text);
}

Test(table_io, long_tables_in_npz)
{
    static const char *const file[] = {"head.npy",  "block.npy", "at.npy",  "cycle.npy",
                                       "dense.npy", "lazy.npy",  "name.npy"};
    static const char path[] = "kvf-table-long.npz";
    static char bytes[128 + LONG * 8 * 4];
    OWNED(table_destroy) struct table *t = long_table();
    cr_assert(table_write(t, TABLE_NPZ, path, NULL) == KVF_OK);
    unzFile z = unzOpen64(path);
    for (int c = 1; c < 7; c++) {
        int n = read_entry(z, file[c], bytes, sizeof bytes);
        cr_assert(n == 128 + LONG * (c == 6 ? 20 : 8), "%s: %d", file[c], n);
        for (int i = 0; i < LONG; i++) {
            const char *p = bytes + 128 + i * (c == 6 ? 20 : 8);
            char name[16] = "", want[16] = "";
            int64_t whole;
            double v;
            memcpy(&v, p, 8);
            memcpy(&whole, p, 8);
            for (int k = 0; k < 5 && c == 6; k++)
                name[k] = p[4 * k];
            snprintf(want, sizeof want, "w\"%d", i * 7 % WORDS);
            v = c == 3 || c == 5 ? v : (double)whole;
            cr_assert(c == 6                ? strcmp(name, want) == 0
                      : isnan(of_row(c, i)) ? isnan(v)
                                            : v == of_row(c, i),
                      "%s %d", file[c], i);
        }
    }
    unzClose(z);
    unlink(path);
}

Test(table_io, npz_on_a_full_disk)
{
    OWNED(table_destroy) struct table *t = long_table();
    struct kvf_diag d = {""};
    cr_expect(eq(int, table_write(t, TABLE_NPZ, "/dev/full", &d), KVF_E_IO));
    cr_expect(zero(int, strcmp(d.text, "/dev/full: cannot write: No space left on device")), "%s",
              d.text);
}

Test(table_io, formats_by_extension)
{
    cr_expect(eq(int, (int)table_format_of("a.b.Csv"), (int)TABLE_CSV));
    cr_expect(eq(int, (int)table_format_of("tsv"), (int)TABLE_FORMAT_NONE));
    cr_expect(eq(int, (int)table_format_of("x.tsv.gz"), (int)TABLE_FORMAT_NONE));
    cr_expect(eq(int, (int)table_format_of(""), (int)TABLE_FORMAT_NONE));
}

Test(table_io, a_table_that_cannot_be_written_leaves_the_old_one)
{
    char dir[] = "/tmp/kvf-table-XXXXXX", path[64];
    OWNED(table_destroy) struct table *t = difficult();
    struct kvf_diag d = {""};
    struct stat st;
    cr_assert(ne(ptr, mkdtemp(dir), NULL));
    snprintf(path, sizeof path, "%s/x.tsv", dir);
    cr_assert(mkdir(path, 0777) == 0); /* renaming onto a folder fails */
    for (enum table_format f = TABLE_TSV; f < TABLE_FORMAT_NONE; f++) {
        d.text[0] = 0;
        cr_expect(eq(int, table_write(t, f, path, &d), KVF_E_IO));
        cr_expect(strstr(d.text, path) != NULL, "%s", d.text);
    }
    cr_expect(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
    cr_expect(rmdir(path) == 0 && rmdir(dir) == 0, "and nothing beside it");
}

/* Kept numbers are neither counted nor written, and the later of two equal keys wins. */
Test(table, kept_numbers)
{
    OWNED(table_destroy) struct table *t = table_create("x", 0);
    cr_expect(eq(dbl, table_kept(t, "age", 7), 7));
    table_keep(t, "age", 1);
    table_keep(t, "ties", 2);
    table_keep(t, "age", 3);
    cr_expect(eq(dbl, table_kept(t, "age", 7), 3));
    cr_expect(eq(dbl, table_kept(t, "ties", 7), 2));
    cr_expect(eq(int, table_meta_count(t), 0));
    cr_expect(table_meta(t, "age") == NULL);
}
