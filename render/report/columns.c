/* columns.c - finds the shortest exact form of a column and packs it (columns.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "render/report/columns.h"
#include "render/report/pack.h"

enum { DICT = 255, CHUNK_BYTES = 1 << 20 };

struct texts {
    const char *item[DICT];
    int n;
};

/* Properties of all values of a column. */
struct facts {
    bool constant, by_block, cycle, affine, whole, single, odd; /* odd: NaN, infinite or -0 */
    double lo, hi, first, step;
};

struct source {
    const struct table *t;
    int col;
    int64_t block, rows;
    const struct texts *dict; /* NULL: numbers */
    const struct progress_callback *watch;
};

static bool same_text(const char *a, const char *b)
{
    return a == b || strcmp(a, b) == 0;
}

/* Returns the index of s in the dictionary, or -1.  It tries index `likely` first. */
static int text_index(const struct texts *d, const char *s, int likely)
{
    if (likely >= 0 && likely < d->n && same_text(d->item[likely], s))
        return likely;
    for (int i = 0; i < d->n; i++)
        if (same_text(d->item[i], s))
            return i;
    return -1;
}

void page_column_finish(struct page_column *p)
{
    buf_finish(&p->json);
    buf_finish(&p->text);
}

int64_t columns_block(const struct table *t)
{
    int head = table_find(t, "head");
    int64_t n = table_rows(t), block = 0;
    if (head < 0 || table_col_type(t, head) != TABLE_STR || n == 0)
        return n;
    const char *first = table_str(t, head, 0);
    while (block < n && same_text(table_str(t, head, block), first))
        block++;
    if (n % block != 0)
        return n;
    for (int64_t r = 0; r < n; r++)
        if (r % block != 0 && !same_text(table_str(t, head, r), table_str(t, head, r - 1)))
            return n;
    return block;
}

static void read_block(const struct source *s, int64_t row, double *out)
{
    if (!s->dict) {
        table_get(s->t, s->col, row, s->block, out);
        return;
    }
    for (int64_t i = 0, at = 0; i < s->block; i++)
        out[i] = (double)(at = text_index(s->dict, table_str(s->t, s->col, row + i), (int)at));
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void look_at(const double *v, const double *first, int64_t n, struct facts *f)
{
    for (int64_t i = 0; i < n; i++) {
        bool odd = !isfinite(v[i]) || (v[i] == 0 && signbit(v[i]));
        f->odd |= odd;
        f->whole &= !odd && v[i] == floor(v[i]);
        f->single &= isnan(v[i]) || (double)(float)v[i] == v[i];
        f->by_block &= same(v[i], v[0]);
        f->constant &= same(v[i], f->first);
        f->cycle &= same(v[i], first[i]);
        f->affine &= !odd && v[i] == f->first + f->step * (double)i;
        f->lo = v[i] < f->lo ? v[i] : f->lo;
        f->hi = v[i] > f->hi ? v[i] : f->hi;
    }
}

static int learn(const struct source *s, struct facts *f)
{
    double *first = MEM_NEW(double, (size_t)s->block), *v = MEM_NEW(double, (size_t)s->block);
    *f = (struct facts){.constant = true,
                        .by_block = true,
                        .cycle = true,
                        .affine = true,
                        .whole = true,
                        .single = true,
                        .lo = INFINITY,
                        .hi = -INFINITY};
    if (first && v && s->rows) {
        read_block(s, 0, first);
        f->first = first[0];
        f->step = s->block > 1 ? first[1] - first[0] : 0;
        f->affine = f->step == floor(f->step) && f->first == floor(f->first);
        for (int64_t row = 0; row < s->rows; row += s->block) {
            read_block(s, row, v);
            look_at(v, first, s->block, f);
            progress_report(s->watch, row + s->block, 2 * s->rows);
        }
    }
    int err = first && v ? KVF_OK : KVF_E_NOMEM;
    mem_free(first);
    mem_free(v);
    return err;
}

static enum pack_type type_of(const struct facts *f)
{
    static const struct {
        double lo, hi;
        enum pack_type type;
    } whole[] = {{0, UINT8_MAX, PACK_U8},          {0, UINT16_MAX, PACK_U16},
                 {0, UINT32_MAX, PACK_U32},        {INT8_MIN, INT8_MAX, PACK_I8},
                 {INT16_MIN, INT16_MAX, PACK_I16}, {INT32_MIN, INT32_MAX, PACK_I32}};
    for (size_t i = 0; f->whole && i < sizeof whole / sizeof *whole; i++)
        if (f->lo >= whole[i].lo && f->hi <= whole[i].hi)
            return whole[i].type;
    return f->single ? PACK_F32 : PACK_F64;
}

/* Packs one value per block. */
static int pack_blocks(const struct source *s, enum pack_type type, struct page_column *ret)
{
    int64_t n = s->block ? s->rows / s->block : 0;
    double *v = MEM_NEW(double, (size_t)n), *row = MEM_NEW(double, (size_t)s->block);
    int err = v && row ? KVF_OK : KVF_E_NOMEM;
    for (int64_t b = 0; !err && b < n; b++) {
        read_block(s, b * s->block, row);
        v[b] = row[0];
    }
    if (!err)
        err = pack_values(&ret->text, v, n, type);
    buf_str(&ret->json, ",\"by\":\"block\",\"at\":[0]");
    mem_free(v);
    mem_free(row);
    return err;
}

/* Packs the first `rows` rows as one chunk, or as one chunk per block. */
static int pack_rows(const struct source *s, int64_t rows, enum pack_type type,
                     struct page_column *ret)
{
    bool large = rows > s->block && rows * pack_width(type) > CHUNK_BYTES;
    double *v = MEM_NEW(double, (size_t)(large ? s->block : rows));
    int err = v ? KVF_OK : KVF_E_NOMEM;
    buf_printf(&ret->json, ",\"by\":\"%s\",\"at\":[", rows < s->rows ? "cycle" : "row");
    for (int64_t row = 0; !err && row < rows; row += s->block) {
        read_block(s, row, v + (large ? 0 : row));
        if (large || row == 0)
            buf_printf(&ret->json, "%s%zu", row ? "," : "", ret->text.len);
        if (large)
            err = pack_values(&ret->text, v, s->block, type);
        progress_report(s->watch, s->rows + row + s->block, 2 * s->rows);
    }
    if (!err && !large)
        err = pack_values(&ret->text, v, rows, type);
    buf_str(&ret->json, "]");
    mem_free(v);
    return err;
}

static int pack_numbers(const struct source *s, struct page_column *ret)
{
    struct facts f;
    int err = learn(s, &f);
    if (err)
        return err;
    if (!s->dict && s->rows && f.constant && (!f.odd || isnan(f.first))) {
        buf_str(&ret->json, ",\"constant\":");
        json_put_num(&ret->json, f.first);
        return ret->json.err;
    }
    if (!s->dict && s->rows && f.affine) {
        buf_printf(&ret->json, ",\"affine\":[%.0f,%.0f]", f.first, f.step);
        return ret->json.err;
    }
    enum pack_type type = type_of(&f);
    buf_printf(&ret->json, ",\"dtype\":\"%s\"", pack_names[type]);
    if (f.by_block && s->rows > s->block)
        return pack_blocks(s, type, ret);
    return pack_rows(s, f.cycle && s->rows ? s->block : s->rows, type, ret);
}

static void put_strings(const struct source *s, int64_t step, struct buf *out)
{
    buf_printf(out, ",\"by\":\"%s\",\"strings\":[", step == s->block ? "block" : "row");
    for (int64_t r = 0; r < s->rows; r += step) {
        const char *text = table_str(s->t, s->col, r);
        if (r)
            buf_char(out, ',');
        json_put_str(out, text, strlen(text));
    }
    buf_char(out, ']');
}

/* Returns true if each block has a single text.  d receives all distinct texts; n = -1 if there are
 * more than it can store. */
static bool learn_texts(const struct source *s, struct texts *d)
{
    bool by_block = s->rows > s->block && s->block > 0;
    const char *before = "";
    int at = -1;
    for (int64_t r = 0; r < s->rows && (d->n >= 0 || by_block); r++) {
        const char *text = table_str(s->t, s->col, r);
        if (by_block && r % s->block != 0 && !same_text(text, before))
            by_block = false;
        before = text;
        at = d->n < 0 ? at : text_index(d, text, at);
        if (d->n < 0 || at >= 0)
            continue;
        at = d->n;
        if (d->n < DICT)
            d->item[d->n++] = text;
        else
            d->n = -1;
    }
    return by_block;
}

static int pack_texts(struct source *s, struct page_column *ret)
{
    struct texts d = {.n = 0};
    bool by_block = learn_texts(s, &d);
    if (by_block || d.n < 0) {
        put_strings(s, by_block ? s->block : 1, &ret->json);
        return ret->json.err;
    }
    buf_str(&ret->json, ",\"dict\":[");
    for (int i = 0; i < d.n; i++) {
        if (i)
            buf_char(&ret->json, ',');
        json_put_str(&ret->json, d.item[i], strlen(d.item[i]));
    }
    buf_char(&ret->json, ']');
    s->dict = &d;
    return pack_numbers(s, ret);
}

/* Returns true if the column is the given function of two others in every row. */
static bool follows(const struct table *t, int col, const char *a, const char *b, bool quotient)
{
    int ca = table_find(t, a), cb = table_find(t, b);
    if (ca < 0 || cb < 0)
        return false;
    for (int64_t r = 0; r < table_rows(t); r++) {
        double x = table_real(t, ca, r), y = table_real(t, cb, r);
        double ratio = y == 0 ? NAN : x / y, age = x < 0 ? -1 : x - y;
        if (!same(quotient ? ratio : age, table_real(t, col, r)))
            return false;
    }
    return true;
}

/* Writes columns that are computed from others.  Returns true if this is one. */
static bool pack_relation(const struct table *t, int col, struct buf *out)
{
    static const struct {
        const char *name, *a, *b, *how;
    } known[] = {
        {"age", "evict_step", "birth", "age"},      {"fraction", "alive", "at_risk", "quotient"},
        {"share", "count", "total", "quotient"},    {"size", "entries", "capacity", "quotient"},
        {"ratio", "entries", "length", "quotient"},
    };
    const char *name = table_col_name(t, col);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool quotient = known[i].how[0] == 'q';
        if (strcmp(name, known[i].name) != 0 || !follows(t, col, known[i].a, known[i].b, quotient))
            continue;
        buf_printf(out, ",\"%s\":[\"%s\",\"%s\"]", known[i].how, known[i].a, known[i].b);
        return true;
    }
    int gate = table_find(t, "log_beta");
    if ((strcmp(name, "beta") != 0 && strcmp(name, "mean_retention") != 0) || gate < 0
        || table_rows(t) == 0 || isnan(table_real(t, gate, 0)))
        return false;
    buf_str(out, ",\"derived\":\"log_beta\"");
    return true;
}

int column_pack(const struct table *t, int col, int64_t block, const struct progress_callback *w,
                struct page_column *ret)
{
    static const char *const types[] = {"int", "real", "str"};
    struct source s = {t, col, block, table_rows(t), NULL, w};
    snprintf(ret->name, sizeof ret->name, "%s", table_col_name(t, col));
    json_put_member_str(&ret->json, "name", table_col_name(t, col));
    json_put_member_str(&ret->json, "unit", table_col_unit(t, col));
    json_put_member_str(&ret->json, "type", types[table_col_type(t, col)]);
    if (table_col_type(t, col) == TABLE_STR)
        return pack_texts(&s, ret);
    if (pack_relation(t, col, &ret->json))
        return ret->json.err;
    return pack_numbers(&s, ret);
}
