/* report.c - collects tables and writes the report page. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/stage.h"
#include "render/report/columns.h"
#include "render/report/page.h"
#include "render/report/report.h"

struct entry {
    int trace;
    char key[32];
    struct buf json;         /* members of its description except the columns */
    struct page_column *col; /* [n_cols] */
    int n_cols;
};

struct report {
    char **trace;
    struct entry *entry;
    int n_traces, n_entries;
    char *command;
    unsigned dropped;    /* bit k: the columns that droppable[k] names are omitted */
    int64_t most, whole; /* maximum size in bytes, and size with all columns */
};

/* Optional columns, in the order in which they are dropped. */
static const struct {
    const char *key, *column;
} droppable[] = {
    {"attention", "attention"},   {"attention", "cached"},      {"eviction", "margin"},
    {"eviction", "score"},        {"last-use", "last_use_age"}, {"retention", "last_use_age"},
    {"tokens", "mean_retention"}, {"retention", "log_beta"},    {"eviction", "evict_step"},
    {"eviction", "reason"},       {"eviction", "tie"},
};
enum { N_DROPPABLE = sizeof droppable / sizeof *droppable };

int report_create(struct report **ret)
{
    *ret = MEM_NEW(struct report, 1);
    return *ret ? KVF_OK : KVF_E_NOMEM;
}

static void entry_finish(struct entry *e)
{
    buf_finish(&e->json);
    for (int c = 0; c < e->n_cols; c++)
        page_column_finish(&e->col[c]);
    mem_free(e->col);
}

void report_destroy(struct report *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_entries; i++)
        entry_finish(&r->entry[i]);
    for (int i = 0; i < r->n_traces; i++)
        mem_free(r->trace[i]);
    mem_free_all(r->entry, r->trace, r->command, r);
}

int report_command(struct report *r, const char *command)
{
    mem_free(r->command);
    r->command = mem_strdup(command);
    return r->command ? KVF_OK : KVF_E_NOMEM;
}

int report_trace(struct report *r, const char *name)
{
    char **trace = mem_grow(r->trace, (size_t)r->n_traces, (size_t)r->n_traces + 1, sizeof *trace);
    if (!trace)
        return KVF_E_NOMEM;
    r->trace = trace;
    trace[r->n_traces] = mem_strdup(name);
    if (!trace[r->n_traces])
        return KVF_E_NOMEM;
    r->n_traces++;
    return KVF_OK;
}

/* Appends an entry, which the report owns. */
static struct entry *add_entry(struct report *r, const char *key)
{
    size_t n = (size_t)r->n_entries;
    struct entry *all = mem_grow(r->entry, n, n + 1, sizeof *all);
    if (!all)
        return NULL;
    r->entry = all;
    r->n_entries++;
    all[n].trace = r->n_traces - 1;
    snprintf(all[n].key, sizeof all[n].key, "%s", key);
    json_put_member_str(&all[n].json, "key", key);
    return &all[n];
}

int report_absent(struct report *r, const char *key, const char *why)
{
    struct entry *e = add_entry(r, key);
    if (!e)
        return KVF_E_NOMEM;
    json_put_member_str(&e->json, "absent", why);
    return e->json.err;
}

static void put_meta(struct buf *out, const struct table *t)
{
    json_put_key(out, "meta");
    buf_char(out, '[');
    for (int i = 0; i < table_meta_count(t); i++) {
        const char *key = table_meta_key(t, i), *value = table_meta(t, key);
        buf_str(out, i ? ",[" : "[");
        json_put_str(out, key, strlen(key));
        buf_char(out, ',');
        json_put_str(out, value, strlen(value));
        buf_char(out, ']');
    }
    buf_char(out, ']');
}

int report_table(struct report *r, const char *key, const char *command, const struct table *t,
                 const struct progress_callback *w)
{
    struct entry *e = add_entry(r, key);
    struct stage stage = {.watch = w ? w->fn : NULL, .ctx = w ? w->ctx : NULL};
    int64_t block = columns_block(t);
    if (!e)
        return KVF_E_NOMEM;
    json_put_member_str(&e->json, "name", table_name(t));
    json_put_member_str(&e->json, "command", command);
    json_put_member_num(&e->json, "rows", (double)table_rows(t));
    json_put_member_num(&e->json, "block", (double)block);
    put_meta(&e->json, t);
    e->col = MEM_NEW(struct page_column, (size_t)table_cols(t));
    int err = e->col ? e->json.err : KVF_E_NOMEM;
    for (int c = 0; !err && c < table_cols(t); c++) {
        e->n_cols++;
        stage_set(&stage, 0, 1, c, table_cols(t));
        err = column_pack(t, c, block, &(struct progress_callback){stage_see, &stage}, &e->col[c]);
        err = err ? err : e->col[c].json.err;
        err = err ? err : e->col[c].text.err;
    }
    return err;
}

/* ---- writing */

static bool is_dropped(const struct report *r, const struct entry *e, const struct page_column *c)
{
    for (int k = 0; k < N_DROPPABLE; k++)
        if (r->dropped >> k & 1 && strcmp(droppable[k].key, e->key) == 0
            && strcmp(droppable[k].column, c->name) == 0)
            return true;
    return false;
}

/* Escapes characters that could form a tag inside a script element.  JSON has them only in
 * texts. */
static void put_escaped(struct buf *out, const struct buf *json)
{
    for (size_t i = 0; i < json->len; i++) {
        unsigned char c = (unsigned char)json->data[i];
        if (c == '<' || c == '>' || c == '&' || c == 0x7f)
            buf_printf(out, "\\u%04x", c);
        else if (i + 2 < json->len && memcmp(json->data + i, "\xe2\x80", 2) == 0
                 && ((unsigned char)json->data[i + 2] & 0xfe) == 0xa8)
            buf_printf(out, "\\u20%02x", (unsigned char)json->data[i += 2] & 0x7f);
        else
            buf_char(out, (char)c);
    }
}

static void put_columns(const struct report *r, const struct entry *e, int i, struct buf *out)
{
    json_put_key(out, "columns");
    buf_char(out, '[');
    for (int c = 0; c < e->n_cols; c++) {
        const struct page_column *p = &e->col[c];
        buf_str(out, c ? ",{" : "{");
        buf_add(out, p->json.data, p->json.len);
        if (is_dropped(r, e, p))
            buf_str(out, ",\"dropped\":true");
        else if (p->text.len)
            buf_printf(out, ",\"id\":\"d%d-%d\"", i, c);
        buf_char(out, '}');
    }
    buf_char(out, ']');
}

static void put_manifest(const struct report *r, struct buf *out)
{
    buf_str(out, "{\"traces\":[");
    for (int k = 0; k < r->n_traces; k++) {
        if (k)
            buf_char(out, ',');
        json_put_str(out, r->trace[k], strlen(r->trace[k]));
    }
    buf_char(out, ']');
    if (r->dropped) {
        buf_str(out, ",\"left_out\":{");
        json_put_member_num(out, "most", (double)r->most);
        json_put_member_num(out, "whole", (double)r->whole);
        json_put_member_str(out, "command", r->command ? r->command : "kvfate report");
        buf_char(out, '}');
    }
    buf_str(out, ",\"tables\":[");
    for (int i = 0; i < r->n_entries; i++) {
        const struct entry *e = &r->entry[i];
        buf_printf(out, "%s{\"trace\":%d,", i ? ",\n" : "\n", e->trace);
        buf_add(out, e->json.data, e->json.len);
        if (e->n_cols)
            put_columns(r, e, i, out);
        buf_char(out, '}');
    }
    buf_str(out, "]}\n");
}

/* Returns true for the data that the first view needs.  They come first in the page. */
static bool is_early(const struct entry *e, const struct page_column *c)
{
    static const char *const names[] = {"layer", "index", "evict_step"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(c->name, names[i]) == 0)
            return true;
    return strcmp(e->key, "tokens") == 0;
}

static void put_data(const struct report *r, bool early, struct buf *out)
{
    for (int i = 0; i < r->n_entries; i++)
        for (int c = 0; c < r->entry[i].n_cols; c++) {
            const struct page_column *p = &r->entry[i].col[c];
            if (!p->text.len || is_dropped(r, &r->entry[i], p)
                || is_early(&r->entry[i], p) != early)
                continue;
            buf_printf(out, "<script type=\"application/octet-stream;base64\" id=\"d%d-%d\">", i,
                       c);
            buf_add(out, p->text.data, p->text.len);
            buf_str(out, "</script>\n");
        }
}

static int put_page(const struct report *r, struct buf *out)
{
    struct buf manifest = {0};
    put_manifest(r, &manifest);
    buf_add(out, page_head, page_head_size);
    buf_str(out, "<script type=\"application/json\" id=\"manifest\">");
    put_escaped(out, &manifest);
    buf_str(out, "</script>\n");
    int err = manifest.err;
    buf_finish(&manifest);
    buf_add(out, page_script, page_script_size);
    put_data(r, true, out);
    put_data(r, false, out);
    buf_add(out, page_tail, page_tail_size);
    return err ? err : out->err;
}

/* Returns the bytes that dropping droppable[k] saves. */
static int64_t saved_by(const struct report *r, int k)
{
    int64_t bytes = 0;
    for (int i = 0; i < r->n_entries; i++)
        for (int c = 0; c < r->entry[i].n_cols; c++)
            if (strcmp(r->entry[i].key, droppable[k].key) == 0
                && strcmp(r->entry[i].col[c].name, droppable[k].column) == 0)
                bytes += (int64_t)r->entry[i].col[c].text.len;
    return bytes;
}

/* Drops columns until `excess` bytes are saved, then restores columns that fit after all, the most
 * useful first. */
static void drop(struct report *r, int64_t excess)
{
    for (int k = 0; k < N_DROPPABLE && excess > 0; k++) {
        int64_t saved = saved_by(r, k);
        r->dropped |= saved > 0 ? 1u << k : 0;
        excess -= saved;
    }
    for (int k = N_DROPPABLE - 1; k >= 0; k--) {
        int64_t saved = saved_by(r, k);
        if (!(r->dropped >> k & 1) || excess + saved > 0)
            continue;
        r->dropped &= ~(1u << k);
        excess += saved;
    }
}

static void name_dropped(const struct report *r, struct buf *out)
{
    for (int k = 0; out && k < N_DROPPABLE; k++)
        if (r->dropped >> k & 1)
            buf_printf(out, "%s%s.%s", out->len ? ", " : "", droppable[k].key, droppable[k].column);
}

static int save(const struct buf *page, const char *path, struct kvf_diag *d)
{
    struct replace file;
    int err = replace_open(&file, path, d);
    if (err)
        return err;
    replace_write(&file, page->data, page->len);
    return replace_finish(&file, d);
}

int report_write(struct report *r, int64_t max_bytes, const char *path, struct buf *left_out,
                 int64_t *ret_bytes, struct kvf_diag *d)
{
    struct buf page = {0};
    r->dropped = 0;
    int err = put_page(r, &page);
    if (!err && (int64_t)page.len > max_bytes) {
        r->most = max_bytes;
        r->whole = (int64_t)page.len;
        drop(r, (int64_t)page.len - max_bytes);
        name_dropped(r, left_out);
        buf_clear(&page);
        err = put_page(r, &page);
    }
    if (!err) {
        *ret_bytes = (int64_t)page.len;
        err = save(&page, path, d);
    }
    buf_finish(&page);
    return err;
}

int64_t report_whole(const struct report *r)
{
    return r->dropped ? r->whole : 0;
}
