/* eval_state.c - reads and appends the results of an evaluation. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/checksum.h"
#include "base/mem.h"
#include "base/replace.h"
#include "engine/experiment/eval_rows.h"
#include "engine/experiment/eval_state.h"
#include "engine/gate/head_table.h"

/* An open result file. */
struct eval_state {
    const char *path;
    int fd;
    struct buf text; /* the file as it was opened; lines end in NUL */
    struct eval_row *row;
    int n;
    uint64_t seed; /* seed of the checksums of rows */
};

/* Returns a name of the arithmetic. Equal names imply equal results. */
static const char *precision_of(const struct engine *e)
{
    if (e->exact)
        return "f32";
    bool chosen = e->i8_activations || e->words;
    return e->backend->host_memory && !chosen ? "default" : engine_precision(e);
}

static void build_header(const struct eval *e, uint64_t seed, const char *version, struct buf *b)
{
    buf_printf(b, EVAL_BEGINNING " %s\n# model_hash: %s\n", version, e->engine->hash);
    buf_printf(b, "# texts: %s\n# seed: %" PRIu64 "\n# prompt_tokens: %d\n# score_tokens: %d\n",
               e->answers ? "tasks" : "documents", seed, e->prompt, e->score);
    if (e->apart)
        buf_str(b, "# question: unknown\n");
    buf_printf(b, "# precision: %s\n# kv_type: %s\n", precision_of(e->engine),
               kv_type_name(e->kv_type));
    char scale[32];
    rope_scale_text(&e->engine->config.rope_scale, scale);
    if (e->engine->config.rope_scale.kind)
        buf_printf(b, "# rope_scale: %s\n", scale);
    eval_head_finish(b);
}

/* Appends "method\toptions\tbudget" with the effective value of every option. */
static void build_key(const struct eval_cell *cell, struct buf *b)
{
    char budget[BUDGET_TEXT];
    const struct budget as_given = {cell->params.budget, cell->params.part};
    budget_text(&as_given, budget);
    buf_printf(b, "%s\t", cell->label);
    for (const struct method_option *o = method_options; o->key; o++) {
        const char *word = method_option_word(o, &cell->params);
        if (o->tacit && method_option_value(o, &cell->params) < o->min) /* it was not given */
            continue;
        if (o->late && method_option_value(o, &cell->params) == 0)
            continue;
        buf_printf(b, "%s%s=", o > method_options ? "," : "", o->key);
        if (word)
            buf_str(b, word);
        else
            buf_printf(b, "%.17g", method_option_value(o, &cell->params));
    }
    if (cell->gates)
        buf_printf(b, ",gates=%s", gates_hash(cell->gates));
    if (cell->head_table)
        buf_printf(b, ",head-budgets=%s", cell->head_table->hash);
    buf_printf(b, "\t%s", budget);
}

static int io_error(const struct eval_state *s, const char *what, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_IO, "%s: cannot %s: %s", s->path, what, strerror(errno));
}

static int write_all(struct eval_state *s, const struct buf *b, struct kvf_diag *d)
{
    if (b->err)
        return b->err;
    for (size_t at = 0; at < b->len;) {
        ssize_t n = write(s->fd, b->data + at, b->len - at);
        if (n < 0 && errno != EINTR)
            return io_error(s, "write the results", d);
        at += n > 0 ? (size_t)n : 0;
    }
    return KVF_OK;
}

static int read_all(struct eval_state *s, struct kvf_diag *d)
{
    char part[65536];
    for (;;) {
        ssize_t n = read(s->fd, part, sizeof part);
        if (n == 0)
            return s->text.err;
        if (n < 0 && errno != EINTR)
            return io_error(s, "read the results", d);
        if (n > 0)
            buf_add(&s->text, part, (size_t)n);
    }
}

/* Truncates the text, and the file, after the last complete line. */
static int drop_tail(struct eval_state *s, size_t header, struct kvf_diag *d)
{
    size_t len = s->text.len;
    while (len > header && s->text.data[len - 1] != '\n')
        len--;
    if (len < header)
        len = 0;
    if (len < s->text.len && ftruncate(s->fd, (off_t)len) != 0)
        return io_error(s, "drop an incomplete line", d);
    s->text.len = len;
    return KVF_OK;
}

/* Returns true if a header has a line "# key: ..." with the key of `line`. */
static bool has_key(const struct buf *header, size_t len, const char *line)
{
    size_t key = strcspn(line, ":\n");
    for (size_t at = 0; at < len; at += strcspn(header->data + at, "\n") + 1)
        if (strncmp(header->data + at, line, key) == 0 && header->data[at + key] == ':')
            return true;
    return false;
}

/* Names the first setting that differs, which begins at `line` of both headers. */
static int other_settings(const struct eval_state *s, const struct buf *header, size_t line,
                          struct kvf_diag *d)
{
    const char *old = s->text.data + line, *now = header->data + line;
    const int width = (int)strcspn(old, "\n"), most = width < 100 ? width : 100;
    const int new_width = (int)strcspn(now, "\n");
    size_t own = s->text.len < header->len ? s->text.len : header->len;
    if (!has_key(header, header->len, old))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s has results of other settings: \"%.*s\", which this run lacks; give "
                        "another file to --state",
                        s->path, most, old);
    if (!has_key(&s->text, own, now))
        return kvf_fail(
            d, KVF_E_FORMAT,
            "%s has results of other settings, without \"%.*s\"; give another file to --state",
            s->path, new_width, now);
    return kvf_fail(
        d, KVF_E_FORMAT,
        "%s has results of other settings: \"%.*s\", now \"%.*s\"; give another file to --state",
        s->path, most, old, new_width, now);
}

/* Checks the header of the file. A file that ends within the header is written again. */
static int check_header(struct eval_state *s, const struct buf *header, struct kvf_diag *d)
{
    size_t at = 0, line = 0, n = s->text.len < header->len ? s->text.len : header->len;
    size_t own = eval_head_length(s->text.data, s->text.len);
    int err = own ? eval_head_check(s->path, s->text.data, own, &s->seed, d) : KVF_OK;
    if (err)
        return err;
    for (; at < n && s->text.data[at] == header->data[at]; at++)
        if (header->data[at] == '\n')
            line = at + 1;
    if (at < n)
        return other_settings(s, header, line, d);
    err = drop_tail(s, header->len, d);
    if (err)
        return err;
    s->seed = checksum(0, header->data, header->len);
    return s->text.len == 0 ? write_all(s, header, d) : KVF_OK;
}

static int parse_rows(struct eval_state *s, const struct buf *header, struct kvf_diag *d)
{
    size_t lines = 0, above = 1;
    for (size_t i = 0; i < header->len; i++)
        above += header->data[i] == '\n';
    for (size_t i = header->len; i < s->text.len; i++)
        lines += s->text.data[i] == '\n';
    s->row = MEM_NEW(struct eval_row, lines);
    if (!s->row)
        return KVF_E_NOMEM;
    for (size_t at = header->len; at < s->text.len;) {
        char *line = s->text.data + at, *end = memchr(line, '\n', s->text.len - at);
        at = (size_t)(end - s->text.data) + 1;
        *end = 0;
        if (memchr(line, 0, (size_t)(end - line)) || !eval_row_parse(line, s->seed, &s->row[s->n]))
            return eval_row_damaged(s->path, above + (size_t)s->n, d);
        s->n++;
    }
    return KVF_OK;
}

static int open_file(struct eval_state *s, struct kvf_diag *d)
{
    /* a lock of the open file and not of the process, because the process opens the file again
     * elsewhere */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    s->fd = open(s->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (s->fd < 0)
        return io_error(s, "open the results", d);
    if (fcntl(s->fd, F_OFD_SETLK, &lock) != 0)
        return kvf_fail(d, KVF_E_IO, "%s: another process writes its results there", s->path);
    replace_sync_folder(s->path); /* synced lines require that the file name is synced, too */
    return read_all(s, d);
}

static int load(struct eval_state *s, const struct buf *header, struct kvf_diag *d)
{
    int err = open_file(s, d);
    if (err)
        return err;
    err = check_header(s, header, d);
    if (err)
        return err;
    return parse_rows(s, header, d);
}

int eval_state_open(const char *path, const struct eval *e, uint64_t seed, const char *version,
                    struct eval_state **ret_state, struct kvf_diag *d)
{
    struct eval_state *s = MEM_NEW(struct eval_state, 1);
    struct buf header = {0};
    int err = KVF_OK;
    if (!s)
        return KVF_E_NOMEM;
    s->path = path;
    s->fd = -1;
    if (path) {
        build_header(e, seed, version, &header);
        err = header.err ? header.err : load(s, &header, d);
    }
    buf_finish(&header);
    if (err) {
        eval_state_close(s);
        return err;
    }
    *ret_state = s;
    return KVF_OK;
}

void eval_state_close(struct eval_state *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    buf_finish(&s->text);
    mem_free(s->row);
    mem_free(s);
}

int eval_state_find(const struct eval_state *s, int doc, uint64_t hash,
                    const struct eval_cell *cell, struct eval_result *ret_result,
                    struct kvf_diag *d)
{
    struct buf key = {0};
    int found = 0;
    build_key(cell, &key);
    for (int i = 0; !key.err && i < s->n && !found; i++) {
        const struct eval_row *r = &s->row[i];
        if (r->doc != doc)
            continue;
        if (r->hash != hash)
            found = kvf_fail(d, KVF_E_FORMAT,
                             "%s: its document %d has other text; the data or "
                             "their order differ",
                             s->path, doc);
        else if (strcmp(r->key, key.data) == 0) {
            *ret_result = r->r;
            found = 1;
        }
    }
    if (key.err)
        found = key.err;
    buf_finish(&key);
    return found;
}

int eval_state_add(struct eval_state *s, int doc, uint64_t hash, const struct eval_cell *cell,
                   const struct eval_result *r, struct kvf_diag *d)
{
    struct buf line = {0}, key = {0};
    if (s->fd < 0)
        return KVF_OK;
    build_key(cell, &key);
    if (!key.err)
        eval_row_put(&(struct eval_row){doc, hash, key.data, *r}, s->seed, &line);
    int err = key.err ? key.err : write_all(s, &line, d);
    if (!err && fdatasync(s->fd) != 0 && errno != EINVAL) /* EINVAL for a device */
        err = io_error(s, "write the results", d);
    buf_finish(&key);
    buf_finish(&line);
    return err;
}
