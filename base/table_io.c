/* table_io.c - writes tables as files (table_io.h). */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/table_io.h"
#include "base/table_npz.h"
#include "base/table_seal.h"
#include "base/table_sqlite.h"

/* LINE: bytes of the line of the seal, with its end. */
enum { FLUSH_BYTES = 1 << 20, ROWS = 1024, LINE = sizeof SEAL_LINE + SEAL_LENGTH };

enum table_format table_format_of(const char *path)
{
    static const char *const ext[] = {".tsv", ".csv", ".json", ".npz"};
    const char *dot = strrchr(path, '.');
    if (table_sqlite_names(path))
        return TABLE_SQLITE;
    for (int i = 0; dot && i < 4; i++)
        if (strcasecmp(dot, ext[i]) == 0)
            return (enum table_format)i;
    return TABLE_FORMAT_NONE;
}

struct sink {
    const struct progress_callback *watch;
    struct replace *file; /* keeps the first failure to write */
    struct buf b;
    bool bad;          /* memory was out */
    struct seal *seal; /* NULL: none is made */
    size_t line_at;    /* where the line of the seal is; 0: there is none */
};

/* The first block has the complete head with the line of the seal, which is left out. */
static void add_to_seal(struct sink *s)
{
    size_t left_out = s->seal->n == 0 && s->line_at ? LINE : 0, at = left_out ? s->line_at : 0;
    seal_add(s->seal, s->b.data, at);
    seal_add(s->seal, s->b.data + at + left_out, s->b.len - at - left_out);
}

static void flush(struct sink *s, size_t above)
{
    if (s->b.len > above) {
        s->bad |= s->b.err != KVF_OK;
        if (s->seal && !s->b.err)
            add_to_seal(s);
        replace_write(s->file, s->b.data, s->b.len);
        buf_clear(&s->b);
    }
}

/* Control characters never reach a terminal as they are. */
static void put_tsv_text(struct buf *b, const char *s)
{
    static const char names[] = "\tt\nn\rr\\\\"; /* each with its letter */
    static const char marked[] = "\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\x10\x11"
                                 "\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\\\x7f";
    for (;;) {
        size_t n = strcspn(s, marked);
        buf_add(b, s, n);
        s += n;
        if (!*s)
            return;
        const char *letter = strchr(names, *s);
        if (letter)
            buf_printf(b, "\\%c", letter[1]);
        else
            buf_printf(b, "\\x%02X", (unsigned char)*s);
        s++;
    }
}

static void put_csv_text(struct buf *b, const char *s)
{
    if (*s && !s[strcspn(s, ",\"\r\n#")]) {
        buf_str(b, s);
        return;
    }
    buf_char(b, '"');
    for (; *s; s++) {
        if (*s == '"')
            buf_char(b, '"');
        buf_char(b, *s);
    }
    buf_char(b, '"');
}

static void put_text(struct buf *b, enum table_format f, const char *s)
{
    if (f == TABLE_JSON)
        json_put_str(b, s, strlen(s));
    else if (f == TABLE_CSV)
        put_csv_text(b, s);
    else
        put_tsv_text(b, s);
}

static void put_number(struct buf *b, enum table_format f, double v)
{
    if (f == TABLE_JSON || isfinite(v))
        json_put_num(b, v);
    else if (isnan(v))
        buf_str(b, "nan");
    else
        buf_str(b, v > 0 ? "inf" : "-inf");
}

/* --- cells ------------------------------------------------------------------ */

/* One column while it is written: its values of some rows, and the texts of repeated values.  Texts
 * are known by their address, which the table shares where it can. */
enum { PLACES = 64 };

struct lane {
    const struct table *t;
    enum table_format f;
    int col;
    bool is_text;
    double num[ROWS];
    const char *str[ROWS];
    uint64_t bits; /* of the number in last */
    struct buf last;
    const char *from[PLACES]; /* of the text in shown */
    struct buf shown[PLACES];
};

static void lane_open(struct lane *l, const struct table *t, int col, enum table_format f)
{
    l->t = t;
    l->f = f;
    l->col = col;
    l->is_text = table_col_type(t, col) == TABLE_STR;
}

static int lane_close(struct lane *l)
{
    int err = l->last.err;
    buf_finish(&l->last);
    for (int k = 0; k < PLACES; k++) {
        err = err ? err : l->shown[k].err;
        buf_finish(&l->shown[k]);
    }
    return err;
}

static void lane_read(struct lane *l, int64_t row0, int64_t n)
{
    if (l->is_text)
        table_get_str(l->t, l->col, row0, n, l->str);
    else
        table_get(l->t, l->col, row0, n, l->num);
}

static void lane_put(struct lane *l, int64_t i, struct buf *b)
{
    struct buf *kept = &l->last;
    if (l->is_text) {
        uintptr_t at = (uintptr_t)l->str[i];
        size_t k = (at >> 3 ^ at >> 9 ^ at) % PLACES;
        kept = &l->shown[k];
        if (l->from[k] != l->str[i]) {
            l->from[k] = l->str[i];
            buf_clear(kept);
            put_text(kept, l->f, l->str[i]);
        }
    } else {
        uint64_t bits;
        memcpy(&bits, &l->num[i], sizeof bits);
        if (bits != l->bits || !kept->len) {
            l->bits = bits;
            buf_clear(kept);
            put_number(kept, l->f, l->num[i]);
        }
    }
    buf_add(b, kept->data, kept->len);
    b->err = b->err ? b->err : kept->err;
}

static void write_head(const struct table *t, enum table_format f, struct sink *s)
{
    bool about = f != TABLE_CSV;
    if (about)
        buf_printf(&s->b, "# table: %s\n", table_name(t));
    if (about && s->seal) { /* rewritten when all is known */
        s->line_at = s->b.len;
        buf_printf(&s->b, SEAL_LINE "%*s\n", SEAL_LENGTH, "");
    }
    for (int i = 0; about && i < table_meta_count(t); i++) {
        buf_printf(&s->b, "# %s: ", table_meta_key(t, i));
        put_tsv_text(&s->b, table_meta(t, table_meta_key(t, i)));
        buf_char(&s->b, '\n');
    }
    for (int c = 0; c < table_cols(t); c++) {
        if (c)
            buf_char(&s->b, f == TABLE_CSV ? ',' : '\t');
        put_text(&s->b, f, table_col_name(t, c));
    }
    buf_char(&s->b, '\n');
}

static void write_lines(const struct table *t, enum table_format f, struct sink *s)
{
    char gap = f == TABLE_CSV ? ',' : '\t';
    int n_cols = table_cols(t);
    write_head(t, f, s);
    struct lane *lane = MEM_NEW(struct lane, (size_t)n_cols);
    if (!lane) {
        s->bad = true;
        return;
    }
    for (int c = 0; c < n_cols; c++)
        lane_open(&lane[c], t, c, f);
    for (int64_t r0 = 0; r0 < table_rows(t); r0 += ROWS) {
        int64_t n = table_rows(t) - r0 < ROWS ? table_rows(t) - r0 : ROWS;
        for (int c = 0; c < n_cols; c++)
            lane_read(&lane[c], r0, n);
        for (int64_t i = 0; i < n; i++) {
            for (int c = 0; c < n_cols; c++) {
                if (c)
                    buf_char(&s->b, gap);
                lane_put(&lane[c], i, &s->b);
            }
            buf_char(&s->b, '\n');
            flush(s, FLUSH_BYTES);
        }
        progress_report(s->watch, r0 + n, table_rows(t));
    }
    for (int c = 0; c < n_cols; c++)
        s->bad |= lane_close(&lane[c]) != KVF_OK;
    mem_free(lane);
}

static void json_text(struct buf *b, const char *s)
{
    json_put_str(b, s, strlen(s));
}

static void json_values(const struct table *t, int c, struct sink *s)
{
    struct lane *lane = MEM_NEW(struct lane, 1);
    if (!lane) {
        s->bad = true;
        return;
    }
    lane_open(lane, t, c, TABLE_JSON);
    for (int64_t r0 = 0; r0 < table_rows(t); r0 += ROWS) {
        int64_t n = table_rows(t) - r0 < ROWS ? table_rows(t) - r0 : ROWS;
        lane_read(lane, r0, n);
        for (int64_t i = 0; i < n; i++) {
            if (r0 + i)
                buf_char(&s->b, ',');
            lane_put(lane, i, &s->b);
            flush(s, FLUSH_BYTES);
        }
        progress_report(s->watch, c * table_rows(t) + r0 + n, table_cols(t) * table_rows(t));
    }
    s->bad |= lane_close(lane) != KVF_OK;
    mem_free(lane);
}

/* All but the data and the last brace. */
static void json_head(const struct table *t, struct buf *b)
{
    static const char *const types[] = {"int", "real", "str"};
    buf_str(b, "{\"name\":");
    json_text(b, table_name(t));
    buf_str(b, ",\"meta\":{");
    for (int i = 0; i < table_meta_count(t); i++) {
        json_put_key(b, table_meta_key(t, i));
        json_text(b, table_meta(t, table_meta_key(t, i)));
    }
    buf_str(b, "},\"columns\":[");
    for (int c = 0; c < table_cols(t); c++) {
        buf_str(b, c ? ",{\"name\":" : "{\"name\":");
        json_text(b, table_col_name(t, c));
        buf_str(b, ",\"unit\":");
        json_text(b, table_col_unit(t, c));
        buf_printf(b, ",\"type\":\"%s\"}", types[table_col_type(t, c)]);
    }
    buf_char(b, ']');
}

static void write_json(const struct table *t, struct sink *s)
{
    struct buf *b = &s->b;
    json_head(t, b);
    buf_str(b, ",\"data\":{");
    for (int c = 0; c < table_cols(t); c++) {
        if (c)
            buf_char(b, ',');
        json_text(b, table_col_name(t, c));
        buf_str(b, ":[");
        json_values(t, c, s);
        buf_char(b, ']');
    }
    buf_char(b, '}');
}

/* Puts the seal into its line. */
static int put_line(struct sink *s, struct seal *seal)
{
    char text[SEAL_LENGTH + 1];
    int err = seal_end(seal, text);
    if (!err) {
        replace_seek(s->file, s->line_at + strlen(SEAL_LINE));
        replace_write(s->file, text, SEAL_LENGTH);
    }
    return err;
}

/* seal: of a file, or of a CSV and its sidecar, which ends it; NULL: none is made. */
static int write_text(const struct table *t, enum table_format f, const struct progress_callback *w,
                      struct replace *out, struct seal *seal)
{
    struct sink s = {.watch = w, .file = out, .seal = seal};
    int err = KVF_OK;
    if (f == TABLE_JSON)
        write_json(t, &s);
    else
        write_lines(t, f, &s);
    flush(&s, 0);
    s.seal = NULL; /* the end is not of it */
    if (f == TABLE_JSON && seal)
        err = seal_end_json(seal, &s.b);
    else if (f == TABLE_JSON)
        buf_str(&s.b, "}\n");
    else if (f == TABLE_TSV && seal && !s.bad)
        err = put_line(&s, seal);
    flush(&s, 0);
    s.bad |= s.b.err != KVF_OK;
    buf_finish(&s.b);
    if (err)
        return err;
    return s.bad ? KVF_E_NOMEM : KVF_OK;
}

/* The sidecar of a CSV: name and metadata of the table, as JSON. */
struct sidecar {
    struct buf name, text;
    struct replace file; /* borrows the name */
};

/* seal: of all that is written. */
static int begin_sidecar(const struct table *t, const char *path, struct sidecar *s,
                         struct seal *seal, struct kvf_diag *d)
{
    buf_printf(&s->name, "%s" TABLE_SIDECAR, path);
    json_head(t, &s->text);
    int err = s->name.err ? s->name.err : s->text.err;
    if (!err)
        err = replace_open(&s->file, s->name.data, d);
    if (!err)
        seal_add(seal, s->text.data, s->text.len);
    return err;
}

static int end_sidecar(struct sidecar *s, struct seal *seal, struct kvf_diag *d)
{
    int err = seal_end_json(seal, &s->text);
    if (err)
        return err;
    replace_write(&s->file, s->text.data, s->text.len);
    return replace_finish(&s->file, d);
}

static int write_npz(const struct table *t, const struct progress_callback *w, struct replace *out,
                     struct kvf_diag *d)
{
    struct buf b = {0};
    struct seal seal = {.n = 0};
    json_head(t, &b);
    int err = b.err;
    if (!err) {
        seal_add(&seal, b.data, b.len);
        err = seal_end_json(&seal, &b);
    }
    if (!err)
        err = table_npz_write(t, b.len <= NPZ_MOST_COMMENT ? b.data : NULL, w, out, d);
    buf_finish(&b);
    return err;
}

int table_write(const struct table *t, enum table_format f, const char *path, struct kvf_diag *d)
{
    return table_write_watched(t, f, path, NULL, d);
}

/* Writes to an open file, and begins the sidecar of a CSV. */
static int write_open(const struct table *t, enum table_format f, const struct progress_callback *w,
                      struct replace *r, struct sidecar *about, struct kvf_diag *d)
{
    struct seal seal = {.n = 0};
    bool file = r->place != NULL; /* others cannot be rewritten in places */
    if (f == TABLE_NPZ)
        return write_npz(t, w, r, d);
    int err = about ? begin_sidecar(t, r->path, about, &seal, d) : KVF_OK;
    if (!err)
        err = write_text(t, f, w, r, file || about ? &seal : NULL);
    if (!err && about && !r->error)
        err = end_sidecar(about, &seal, d);
    buf_finish(&seal.rest);
    return err;
}

int table_write_watched(const struct table *t, enum table_format f, const char *path,
                        const struct progress_callback *w, struct kvf_diag *d)
{
    bool out = strcmp(path, "-") == 0 && f != TABLE_NPZ;
    struct replace r;
    struct sidecar about = {.file = REPLACE_CLOSED};
    if (table_err(t))
        return kvf_fail(d, table_err(t), "%s: the table %s is not complete: %s", path,
                        table_name(t), kvf_strerror(table_err(t)));
    if (f == TABLE_SQLITE)
        return table_sqlite_write(t, path, w, d);
    if (out && fflush(stdout) != 0)
        return kvf_fail(d, KVF_E_IO, "standard output: %s", strerror(errno));
    int err = replace_open(&r, path, d);
    if (err)
        return err;
    if (out)
        r.path = "standard output";
    err = write_open(t, f, w, &r, f == TABLE_CSV && !out ? &about : NULL, d);
    replace_abandon(&about.file);
    if (err && !r.error)
        replace_abandon(&r);
    else
        err = replace_finish(&r, d);
    buf_finish(&about.name);
    buf_finish(&about.text);
    return err;
}
