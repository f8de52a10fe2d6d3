/* table_sqlite.c - writes tables as SQLite databases (table_sqlite.h). */
#include "base/table_sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/replace.h"

#define ENDING ".sqlite"

enum { MOST_NAME = 128, ROWS = 1024, OPERATIONS = 100000 };

/* Returns the end of FILE in a path, and NAME after it or NULL; false: it names none. */
static bool take_apart(const char *path, size_t *ret_file, const char **ret_name)
{
    size_t n = strlen(path), k = strlen(ENDING);
    const char *slash = strrchr(path, '/');
    if (n > k && strcasecmp(path + n - k, ENDING) == 0) {
        *ret_file = n;
        *ret_name = NULL;
        return true;
    }
    if (!slash || (size_t)(slash - path) <= k || strncasecmp(slash - k, ENDING, k) != 0)
        return false;
    *ret_file = (size_t)(slash - path);
    *ret_name = slash + 1;
    return true;
}

bool table_sqlite_names(const char *path)
{
    size_t n;
    const char *name;
    return take_apart(path, &n, &name);
}

struct database {
    const char *file; /* for sentences */
    const char *name; /* of the table */
    sqlite3 *db;
    sqlite3_stmt *insert;
    const struct progress_callback *watch;
    int64_t row, rows; /* written, and of all */
};

/* SQLite asks now and then within a statement whether to stop; the last one packs the file. */
static int tell(void *ctx)
{
    const struct database *b = ctx;
    progress_report(b->watch, b->row, b->rows);
    return 0;
}

static int said(struct database *b, struct kvf_diag *d)
{
    int code = b->db ? sqlite3_errcode(b->db) : SQLITE_NOMEM;
    const char *why = b->db ? sqlite3_errmsg(b->db) : "memory is out";
    if (code == SQLITE_NOMEM)
        return KVF_E_NOMEM;
    int err = code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? KVF_E_FORMAT : KVF_E_IO;
    return kvf_fail(d, err, "%s: the table %s cannot be put into this database: %s", b->file,
                    b->name, why);
}

static int run(struct database *b, const char *sql, struct kvf_diag *d)
{
    return sqlite3_exec(b->db, sql, NULL, NULL, NULL) == SQLITE_OK ? KVF_OK : said(b, d);
}

/* Runs a statement of which texts are parameters. */
static int run_with(struct database *b, const char *sql, int n, const char *const *text,
                    struct kvf_diag *d)
{
    sqlite3_stmt *s = NULL;
    bool good = sqlite3_prepare_v2(b->db, sql, -1, &s, NULL) == SQLITE_OK;
    for (int i = 0; good && i < n; i++)
        good = sqlite3_bind_text(s, i + 1, text[i], -1, SQLITE_STATIC) == SQLITE_OK;
    good = good && sqlite3_step(s) == SQLITE_DONE;
    int err = good ? KVF_OK : said(b, d);
    sqlite3_finalize(s);
    return err;
}

/* "name", with the quotes in it doubled. */
static void put_name(struct buf *sql, const char *name)
{
    buf_char(sql, '"');
    for (; *name; name++) {
        if (*name == '"')
            buf_char(sql, '"');
        buf_char(sql, *name);
    }
    buf_char(sql, '"');
}

static const char *type_of(const struct table *t, int col)
{
    static const char *const names[] = {"INTEGER", "REAL", "TEXT"};
    return names[table_col_type(t, col)];
}

static int make_table(struct database *b, const struct table *t, struct kvf_diag *d)
{
    struct buf sql = {0}, insert = {0};
    buf_str(&sql, "DROP TABLE IF EXISTS ");
    put_name(&sql, b->name);
    buf_str(&sql, "; CREATE TABLE ");
    put_name(&sql, b->name);
    buf_str(&insert, "INSERT INTO ");
    put_name(&insert, b->name);
    for (int c = 0; c < table_cols(t); c++) {
        buf_str(&sql, c ? ", " : " (");
        put_name(&sql, table_col_name(t, c));
        buf_printf(&sql, " %s", type_of(t, c));
        buf_str(&insert, c ? ", ?" : " VALUES (?");
    }
    buf_str(&sql, ");");
    buf_str(&insert, ");");
    int err = sql.err ? sql.err : insert.err;
    if (!err)
        err = run(b, sql.data, d);
    if (!err && sqlite3_prepare_v2(b->db, insert.data, -1, &b->insert, NULL) != SQLITE_OK)
        err = said(b, d);
    buf_finish(&sql);
    buf_finish(&insert);
    return err;
}

/* One value: NaN becomes NULL. */
static int bind(struct database *b, const struct table *t, int col, int64_t row)
{
    double v;
    switch (table_col_type(t, col)) {
    case TABLE_STR:
        return sqlite3_bind_text(b->insert, col + 1, table_str(t, col, row), -1, SQLITE_STATIC);
    case TABLE_INT:
        return sqlite3_bind_int64(b->insert, col + 1, table_int(t, col, row));
    default:
        v = table_real(t, col, row);
        return isnan(v) ? sqlite3_bind_null(b->insert, col + 1)
                        : sqlite3_bind_double(b->insert, col + 1, v);
    }
}

static int put_rows(struct database *b, const struct table *t, struct kvf_diag *d)
{
    for (int64_t row = 0; row < table_rows(t); row++) {
        bool good = true;
        for (int c = 0; good && c < table_cols(t); c++)
            good = bind(b, t, c, row) == SQLITE_OK;
        good = good && sqlite3_step(b->insert) == SQLITE_DONE;
        if (!good)
            return said(b, d);
        sqlite3_reset(b->insert);
        b->row = row + 1;
        if (b->row % ROWS == 0)
            tell(b);
    }
    return KVF_OK;
}

/* Provenance and units, in two tables of the same names in every database. */
static int put_about(struct database *b, const struct table *t, struct kvf_diag *d)
{
    int err = run(b,
                  "CREATE TABLE IF NOT EXISTS kvfate_meta (table_name TEXT, key TEXT, value TEXT, "
                  "PRIMARY KEY (table_name, key));"
                  "CREATE TABLE IF NOT EXISTS kvfate_columns (table_name TEXT, column_name TEXT, "
                  "unit TEXT, PRIMARY KEY (table_name, column_name));",
                  d);
    if (!err)
        err = run_with(b, "DELETE FROM kvfate_meta WHERE table_name = ?", 1, &b->name, d);
    if (!err)
        err = run_with(b, "DELETE FROM kvfate_columns WHERE table_name = ?", 1, &b->name, d);
    for (int i = 0; !err && i < table_meta_count(t); i++) {
        const char *key = table_meta_key(t, i), *text[] = {b->name, key, table_meta(t, key)};
        err = run_with(b, "INSERT INTO kvfate_meta VALUES (?, ?, ?)", 3, text, d);
    }
    for (int c = 0; !err && c < table_cols(t); c++) {
        const char *text[] = {b->name, table_col_name(t, c), table_col_unit(t, c)};
        err = run_with(b, "INSERT INTO kvfate_columns VALUES (?, ?, ?)", 3, text, d);
    }
    return err;
}

static int fill(struct database *b, const struct table *t, const char *part, struct kvf_diag *d)
{
    int err = KVF_OK;
    if (sqlite3_open_v2(part, &b->db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        err = said(b, d);
    if (b->db) /* not, where memory was out */
        sqlite3_progress_handler(b->db, OPERATIONS, tell, b);
    /* The part is not visible yet, and is dropped after a failure, so it needs no journal. */
    if (!err)
        err = run(
            b,
            "PRAGMA trusted_schema = OFF; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "PRAGMA temp_store = MEMORY; BEGIN;",
            d);
    if (!err)
        err = make_table(b, t, d);
    if (!err)
        err = put_rows(b, t, d);
    if (!err)
        err = put_about(b, t, d);
    sqlite3_finalize(b->insert);
    b->insert = NULL;
    if (!err)
        err = run(b, "COMMIT; VACUUM;", d);
    if (sqlite3_close(b->db) != SQLITE_OK && !err)
        err = KVF_E_IO;
    return err;
}

/* The database that is at the place already becomes the beginning of the part. */
static int copy_older(struct replace *r, struct kvf_diag *d)
{
    static const char beginning[] = "SQLite format 3"; /* and a NUL */
    char bytes[65536];
    int from = open(r->place, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read it: %s", r->path, strerror(errno));
    int err = KVF_OK;
    bool first = true;
    for (ssize_t n = 1; !err && n > 0; first = false) {
        n = read(from, bytes, sizeof bytes);
        bool other = first && n > 0
                     && (n < (ssize_t)sizeof beginning
                         || memcmp(bytes, beginning, sizeof beginning) != 0);
        if (n < 0)
            err = kvf_fail(d, KVF_E_IO, "%s: cannot read it: %s", r->path, strerror(errno));
        else if (other)
            err = kvf_fail(d, KVF_E_FORMAT, "%s is there and is no SQLite database", r->path);
        else
            replace_write(r, bytes, (size_t)n);
    }
    close(from);
    return err;
}

/* The names that no table may have: the empty name, SQLite's own names, and the two extra
 * tables'. */
static int check_name(const char *name, struct kvf_diag *d)
{
    bool bad = !*name || strlen(name) > MOST_NAME || strncasecmp(name, "sqlite_", 7) == 0
               || strncasecmp(name, "kvfate_", 7) == 0;
    for (const char *c = name; *c; c++)
        bad = bad || (unsigned char)*c < ' ';
    return bad ? kvf_fail(d, KVF_E_ARG, "'%s' is no name for a table in a database", name) : KVF_OK;
}

int table_sqlite_write(const struct table *t, const char *path, const struct progress_callback *w,
                       struct kvf_diag *d)
{
    struct replace r = REPLACE_CLOSED;
    struct buf file = {0};
    struct database b = {.name = table_name(t), .watch = w, .rows = table_rows(t)};
    size_t n = 0;
    const char *name = NULL;
    if (!take_apart(path, &n, &name))
        n = strlen(path);
    b.name = name ? name : b.name;
    buf_add(&file, path, n);
    b.file = file.data;
    int err = file.err ? file.err : check_name(b.name, d);
    if (!err)
        err = replace_open(&r, file.data, d);
    if (!err && !r.part)
        err = kvf_fail(d, KVF_E_ARG, "%s: a database must be a regular file", file.data);
    if (!err && r.existed)
        err = copy_older(&r, d);
    if (!err)
        err = fill(&b, t, r.part, d);
    if (err && !r.error)
        replace_abandon(&r);
    else if (r.fd >= 0)
        err = replace_finish(&r, d);
    buf_finish(&file);
    return err;
}
