/* test_table_seal.c - the checksum in files of tables (base/table_seal.h). */
#include "base/table.h"
#include "base/table_io.h"
#include "base/table_read.h"
#include "tests/files.h"

/* Reads a file and returns its table as JSON for a pipe, which has no checksum; NULL: rejected. */
static char *read_again(const char *path, struct kvf_diag *d)
{
    OWNED(table_destroy) struct table *t = NULL;
    if (table_read(path, NULL, &t, d))
        return NULL;
    int fd[2];
    char name[32], *text = mem_alloc(1 << 16, 1);
    cr_assert(pipe(fd) == 0);
    snprintf(name, sizeof name, "/dev/fd/%d", fd[1]);
    cr_assert(table_write(t, TABLE_JSON, name, d) == KVF_OK, "%s", d->text);
    close(fd[1]);
    cr_assert(read(fd[0], text, (1 << 16) - 1) > 0);
    close(fd[0]);
    return text;
}

/* Flips every bit of the file `flipped` of the table in the file `path`. The table must be rejected
 * or equal. */
static void flip(const char *path, const char *flipped, size_t *refused)
{
    size_t n;
    struct kvf_diag d = {""};
    OWNED(mem_free) char *text = read_whole(flipped, &n);
    OWNED(mem_free) char *want = read_again(path, &d);
    cr_assert(want != NULL, "%s", d.text);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        write_whole(flipped, text, n);
        char *got = read_again(path, &d);
        cr_expect(got == NULL || strcmp(got, want) == 0, "%s bit %zu: %s", flipped, bit, got);
        *refused += !got;
        mem_free(got);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    write_whole(flipped, text, n);
}

Test(table_io, no_flipped_bit_is_read)
{
    static const struct {
        enum table_format f;
        const char *path, *flipped;
    } files[] = {{TABLE_TSV, "kvf-flip.tsv", "kvf-flip.tsv"},
                 {TABLE_JSON, "kvf-flip.json", "kvf-flip.json"},
                 {TABLE_CSV, "kvf-flip.csv", "kvf-flip.csv"},
                 {TABLE_CSV, "kvf-flip.csv", "kvf-flip.csv" TABLE_SIDECAR}};
    const double real[] = {0.1, 2.5};
    OWNED(table_destroy) struct table *t = table_create("small", 2);
    table_meta_str(t, "note", "a note");
    table_dense_real(t, "real", "", real);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t refused = 0;
        cr_assert(table_write(t, files[i].f, files[i].path, NULL) == KVF_OK);
        flip(files[i].path, files[i].flipped, &refused);
        cr_expect(refused > 100, "%s: %zu", files[i].flipped, refused);
        unlink(files[i].path);
        unlink("kvf-flip.csv" TABLE_SIDECAR);
    }
}

/* A longer text counts as edited by a user and is read. A text that is shorter, or different with
 * the same length, is rejected until its checksum line is removed. */
Test(table_io, a_table_that_was_changed)
{
    static const char path[] = "kvf-changed.tsv";
    static const char rows[] = "x\n1\n2\n", same[] = "x\n1\n3\n", more[] = "x\n1\n23\n";
    const int64_t x[] = {1, 2};
    char text[512];
    struct kvf_diag d = {""};
    struct table *t = table_create("t", 2), *got = NULL;
    table_dense_int(t, "x", "", x);
    cr_assert(table_write(t, TABLE_TSV, path, NULL) == KVF_OK);
    table_destroy(t);
    FILE *f = fopen(path, "rb");
    size_t n = fread(text, 1, sizeof text, f) - strlen(rows);
    fclose(f);
    cr_assert(memcmp(text + n, rows, strlen(rows)) == 0);
    memcpy(text + n, same, strlen(same));
    write_whole(path, text, n + strlen(same));
    cr_expect(eq(int, table_read(path, NULL, &got, &d), KVF_E_CORRUPT));
    cr_expect(strstr(d.text, path) && strstr(d.text, "damaged") && strstr(d.text, "# checksum"));
    memcpy(text + n, rows, strlen(rows));
    for (size_t cut = 1; cut <= strlen(rows); cut++) {
        write_whole(path, text, n + strlen(rows) - cut);
        cr_expect(eq(int, table_read(path, NULL, &got, &d), KVF_E_CORRUPT), "%zu", cut);
        cr_expect(strstr(d.text, "cut short") && strstr(d.text, "# checksum"), "%s", d.text);
    }
    memcpy(text + n, more, strlen(more));
    write_whole(path, text, n + strlen(more));
    cr_assert(eq(int, table_read(path, NULL, &got, &d), KVF_OK), "%s", d.text);
    cr_expect(eq(i64, table_int(got, 0, 1), 23));
    cr_expect(table_meta(got, "checksum") == NULL);
    table_destroy(got);
    memcpy(text + strlen("# table: t\n"), same, strlen(same));
    write_whole(path, text, strlen("# table: t\n") + strlen(same));
    cr_assert(eq(int, table_read(path, NULL, &got, &d), KVF_OK), "%s", d.text);
    table_destroy(got);
    unlink(path);
}

/* Cuts the CSV and the JSON of a table, and the file next to a CSV, which has the checksum of
 * both. */
Test(table_io, no_table_that_is_cut_short_is_read)
{
    static const struct {
        enum table_format f;
        const char *path, *cut;
    } files[] = {{TABLE_JSON, "kvf-cut.json", "kvf-cut.json"},
                 {TABLE_CSV, "kvf-cut.csv", "kvf-cut.csv"},
                 {TABLE_CSV, "kvf-cut.csv", "kvf-cut.csv" TABLE_SIDECAR}};
    const int64_t x[] = {1, 2, 3};
    struct table *t = table_create("t", 3), *got = NULL;
    table_dense_int(t, "x", "", x);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n;
        struct kvf_diag d = {""};
        cr_assert(table_write(t, files[i].f, files[i].path, NULL) == KVF_OK);
        OWNED(mem_free) char *text = read_whole(files[i].cut, &n);
        for (size_t k = 1; k < n; k++) {
            write_whole(files[i].cut, text, k);
            int err = table_read(files[i].path, NULL, &got, &d);
            bool blank = k == n - 1 && text[k] == '\n' && files[i].cut != files[1].cut;
            cr_expect(err || blank, "%s: %zu of %zu bytes", files[i].cut, k, n);
            table_destroy(err ? NULL : got);
        }
        unlink(files[i].path);
        unlink("kvf-cut.csv" TABLE_SIDECAR);
    }
    table_destroy(t);
}
