/* head_table.c - reads tables of budgets per head (head_table.h). */
#include "engine/gate/head_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file_bytes.h"
#include "base/json.h"
#include "base/json_tape.h"
#include "base/mem.h"
#include "engine/model/safetensors.h"

enum { INDEX_DIGITS = 7 };

/* A table that is being read. */
struct reader {
    struct head_table *t;
    struct json_tape json;
    struct buf scratch;
    struct kvf_diag *d;
};

const char *head_table_form_name(enum head_table_form form)
{
    static const char *const names[] = {[HEAD_TABLE_ENTRIES] = "entries",
                                        [HEAD_TABLE_FRACTIONS] = "fraction",
                                        [HEAD_TABLE_SCORES] = "headkv",
                                        [HEAD_TABLE_KEPT] = "razorattention",
                                        [HEAD_TABLE_PRUNED] = "lu-kv"};
    return names[form];
}

/* Allocates n values per head.  The shape must be set. */
static int new_values(struct reader *r, int n)
{
    struct head_table *t = r->t;
    if (t->n_layers < 1 || t->n_heads < 1 || t->n_layers > HEAD_TABLE_HEADS / t->n_heads)
        return kvf_fail(r->d, KVF_E_LIMIT,
                        "%s: %d layers of %d heads are over the limit of %d heads", t->path,
                        t->n_layers, t->n_heads, HEAD_TABLE_HEADS);
    t->value = MEM_NEW(double, (size_t)t->n_layers *(size_t)t->n_heads *(size_t)n);
    return t->value ? KVF_OK : KVF_E_NOMEM;
}

/* Checks value i of the table. */
static int check_value(const struct reader *r, size_t i)
{
    const struct head_table *t = r->t;
    size_t H = (size_t)t->n_heads, L = (size_t)t->n_layers, at = i % (L * H);
    double v = t->value[i];
    const char *valid = "an integer from 1 to 16777216";
    bool good = v >= 1 && v <= HEAD_TABLE_BUDGET && v == floor(v);
    if (t->form == HEAD_TABLE_FRACTIONS) {
        valid = "a number above 0, at most 16777216";
        good = v > 0 && v <= HEAD_TABLE_BUDGET;
    } else if (t->form == HEAD_TABLE_PRUNED) {
        valid = "a fraction from 0 to 1";
        good = v >= 0 && v <= 1;
    }
    if (good)
        return KVF_OK;
    return kvf_fail(r->d, KVF_E_FORMAT, "%s: layer %zu, head %zu: the value %g is not %s", t->path,
                    at / H, at % H, v, valid);
}

/* Sets entries or fractions by their word. */
static bool unit_of(const char *word, enum head_table_form *ret)
{
    bool fraction = strcmp(word, "fraction") == 0;
    if (!fraction && strcmp(word, "entries") != 0)
        return false;
    *ret = fraction ? HEAD_TABLE_FRACTIONS : HEAD_TABLE_ENTRIES;
    return true;
}

/* ---- JSON: {"unit": "entries", "budgets": [[...], ...]} */

static int bad_json(const struct reader *r, const char *what)
{
    return kvf_fail(r->d, KVF_E_FORMAT, "%s: %s", r->t->path, what);
}

static int read_layer(struct reader *r, int layer, uint32_t row)
{
    struct head_table *t = r->t;
    int n = json_tape_kind(&r->json, row) == '[' ? (int)json_tape_count(&r->json, row) : -1, h = 0;
    if (n != t->n_heads)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: layer %d of \"budgets\" is not a list of %d numbers, as layer 0 is",
                        t->path, layer, t->n_heads);
    for (uint32_t v = json_tape_first(&r->json, row); v; v = json_tape_next(&r->json, v), h++) {
        size_t i = (size_t)layer * (size_t)n + (size_t)h;
        t->value[i] = json_tape_num(&r->json, v, NAN);
        int err = check_value(r, i);
        if (err)
            return err;
    }
    return KVF_OK;
}

static int read_budgets(struct reader *r)
{
    const struct json_tape *j = &r->json;
    uint32_t rows = json_tape_get(j, 1, "budgets"), unit = json_tape_get(j, 1, "unit");
    size_t len;
    const char *word = json_tape_str(j, unit, &r->scratch, &len);
    if (r->scratch.err)
        return r->scratch.err;
    char text[16] = "";
    if (word && len < sizeof text)
        snprintf(text, sizeof text, "%.*s", (int)len, word);
    if (!unit_of(text, &r->t->form))
        return bad_json(r, "\"unit\" must be \"entries\" or \"fraction\"");
    if (json_tape_count(j, 1) != 2)
        return bad_json(r, "a table of budgets has the keys \"unit\" and \"budgets\" only");
    uint32_t first = json_tape_first(j, rows);
    if (json_tape_kind(j, rows) != '[' || json_tape_kind(j, first) != '[')
        return bad_json(r, "\"budgets\" is not a list of layers, each a list of numbers");
    r->t->n_layers = (int)json_tape_count(j, rows);
    r->t->n_heads = (int)json_tape_count(j, first);
    int err = new_values(r, 1), layer = 0;
    for (uint32_t row = first; !err && row; row = json_tape_next(j, row))
        err = read_layer(r, layer++, row);
    return err;
}

/* ---- JSON of published methods */

/* Reads an integer without leading zeros from *s on.  Returns false if there is none. */
static bool take_index(const char **s, const char *end, int *ret)
{
    const char *from = *s;
    int n = 0;
    while (*s < end && **s >= '0' && **s <= '9' && *s - from < INDEX_DIGITS)
        n = 10 * n + (*(*s)++ - '0');
    *ret = n;
    return *s > from && (*from != '0' || *s - from == 1);
}

/* Reads the key of a member as "LAYER-HEAD", or as "LAYER" if ret_head is NULL. */
static int read_key(struct reader *r, uint32_t member, int *ret_layer, int *ret_head)
{
    size_t len;
    const char *s = json_tape_key(&r->json, member, &r->scratch, &len), *end = s ? s + len : s;
    const char *key = s;
    if (!s)
        return r->scratch.err ? r->scratch.err : KVF_E_NOMEM;
    bool good = take_index(&s, end, ret_layer);
    if (ret_head)
        good = good && s < end && *s++ == '-' && take_index(&s, end, ret_head);
    if (good && s == end)
        return KVF_OK;
    return kvf_fail(r->d, KVF_E_FORMAT,
                    "%s: the key \"%.*s\" is not %s, counted from 0 without leading zeros",
                    r->t->path, len < 40 ? (int)len : 40, key, ret_head ? "LAYER-HEAD" : "a layer");
}

/* Computes the mean of the samples of a head. */
static int read_samples(struct reader *r, uint32_t list, int layer, int head)
{
    double sum = 0;
    uint32_t n = json_tape_count(&r->json, list);
    bool good = json_tape_kind(&r->json, list) == '[' && n > 0;
    for (uint32_t v = json_tape_first(&r->json, list); good && v; v = json_tape_next(&r->json, v)) {
        double x = json_tape_num(&r->json, v, NAN);
        good = x >= 0;
        sum += x;
    }
    if (!good || !isfinite(sum))
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: \"%d-%d\" is not a list of scores, which are numbers from 0 on",
                        r->t->path, layer, head);
    r->t->value[(size_t)layer * (size_t)r->t->n_heads + (size_t)head] = sum / n;
    return KVF_OK;
}

/* Checks that all heads have a score, and that their sum is finite and not 0.  Values of missing
 * heads are -1. */
static int check_scores(const struct reader *r)
{
    const struct head_table *t = r->t;
    double sum = 0;
    for (int i = 0; i < t->n_layers * t->n_heads; i++) {
        if (t->value[i] < 0)
            return kvf_fail(r->d, KVF_E_FORMAT, "%s: layer %d, head %d has no score", t->path,
                            i / t->n_heads, i % t->n_heads);
        sum += t->value[i];
    }
    if (!isfinite(sum))
        return bad_json(r, "the sum of the scores is too large");
    return sum > 0 ? KVF_OK : bad_json(r, "all scores are 0, so that no head has a share");
}

/* Reads {"LAYER-HEAD": [score, ...], ...} of HeadKV. */
static int read_scores(struct reader *r)
{
    const struct json_tape *j = &r->json;
    int err = KVF_OK, l = 0, h = 0;
    r->t->form = HEAD_TABLE_SCORES;
    for (uint32_t v = json_tape_first(j, 1); !err && v; v = json_tape_next(j, v)) {
        err = read_key(r, v, &l, &h);
        r->t->n_layers = l >= r->t->n_layers ? l + 1 : r->t->n_layers;
        r->t->n_heads = h >= r->t->n_heads ? h + 1 : r->t->n_heads;
    }
    if (!err)
        err = new_values(r, 1);
    for (int i = 0; !err && i < r->t->n_layers * r->t->n_heads; i++)
        r->t->value[i] = -1;
    for (uint32_t v = json_tape_first(j, 1); !err && v; v = json_tape_next(j, v)) {
        err = read_key(r, v, &l, &h);
        if (!err)
            err = read_samples(r, v, l, h);
    }
    return err ? err : check_scores(r);
}

/* Calls `each` for the heads of {"LAYER": [head, ...], ...}. */
static int each_kept(struct reader *r, uint32_t object, int (*each)(struct reader *, int l, int h))
{
    const struct json_tape *j = &r->json;
    int err = KVF_OK, l = 0;
    if (json_tape_kind(j, object) != '{')
        return bad_json(r, "the heads are not an object of layers, each a list of KV heads");
    for (uint32_t v = json_tape_first(j, object); !err && v; v = json_tape_next(j, v)) {
        err = read_key(r, v, &l, NULL);
        if (!err && json_tape_kind(j, v) != '[')
            err = kvf_fail(r->d, KVF_E_FORMAT, "%s: layer %d is not a list of KV heads", r->t->path,
                           l);
        for (uint32_t x = json_tape_first(j, v); !err && x; x = json_tape_next(j, x)) {
            int64_t h = json_tape_int(j, x, -1);
            err = h >= 0 && h < HEAD_TABLE_HEADS
                      ? each(r, l, (int)h)
                      : kvf_fail(r->d, KVF_E_FORMAT,
                                 "%s: layer %d has an item that is not a head, counted from 0",
                                 r->t->path, l);
        }
    }
    return err;
}

static int count_kept(struct reader *r, int l, int h)
{
    r->t->n_layers = l >= r->t->n_layers ? l + 1 : r->t->n_layers;
    r->t->n_heads = h >= r->t->n_heads ? h + 1 : r->t->n_heads;
    return KVF_OK;
}

/* Adds 1 to the value of a head. */
static int mark_kept(struct reader *r, int l, int h)
{
    double *x = &r->t->value[(size_t)l * (size_t)r->t->n_heads + (size_t)h];
    *x += 1;
    return *x == 1
               ? KVF_OK
               : kvf_fail(r->d, KVF_E_FORMAT, "%s: layer %d lists head %d twice", r->t->path, l, h);
}

/* Marks the heads of one object.  A head that another object has marked stays marked. */
static int mark_object(struct reader *r, uint32_t object)
{
    size_t n = (size_t)r->t->n_layers * (size_t)r->t->n_heads;
    double *before = r->t->value;
    int err = new_values(r, 1);
    if (!err)
        err = each_kept(r, object, mark_kept);
    for (size_t i = 0; !err && i < n; i++)
        r->t->value[i] = r->t->value[i] > before[i] ? r->t->value[i] : before[i];
    mem_free(before);
    return err;
}

/* Reads the heads of RazorAttention: {"LAYER": [head, ...]}, or two such objects, for induction
 * heads ("prefix_matching") and for echo heads ("copying"). */
static int read_kept(struct reader *r)
{
    uint32_t two[2] = {json_tape_get(&r->json, 1, "prefix_matching"),
                       json_tape_get(&r->json, 1, "copying")};
    int n = two[0] || two[1] ? 2 : 1, err = KVF_OK;
    r->t->form = HEAD_TABLE_KEPT;
    if (n == 2 && (!two[0] || !two[1] || json_tape_count(&r->json, 1) != 2))
        return bad_json(r, "a table of RazorAttention has the keys \"prefix_matching\" and "
                           "\"copying\" only");
    if (n == 1)
        two[0] = 1;
    for (int i = 0; !err && i < n; i++)
        err = each_kept(r, two[i], count_kept);
    if (!err && r->t->n_layers == 0)
        err = bad_json(r, "it names no head");
    if (!err)
        err = new_values(r, 1);
    for (int i = 0; !err && i < n; i++)
        err = mark_object(r, two[i]);
    return err;
}

/* Reads the form that the keys of the object show. */
static int read_object(struct reader *r)
{
    const struct json_tape *j = &r->json;
    uint32_t first = json_tape_first(j, 1);
    size_t len;
    if (json_tape_kind(j, 1) != '{' || !first)
        return bad_json(r, "not a table of heads, which is a JSON object with members");
    if (json_tape_get(j, 1, "budgets") || json_tape_get(j, 1, "unit"))
        return read_budgets(r);
    const char *key = json_tape_key(j, first, &r->scratch, &len);
    if (!key)
        return r->scratch.err ? r->scratch.err : KVF_E_NOMEM;
    return memchr(key, '-', len) ? read_scores(r) : read_kept(r);
}

static int read_json(struct reader *r, const char *text, size_t n)
{
    int err = json_tape_open(text, n, JSON_MOST, &r->json, r->d);
    if (!err)
        err = json_tape_reject_nul(&r->json, r->d);
    if (err && err != KVF_E_NOMEM)
        kvf_diag_prefix(r->d, "%s", r->t->path);
    if (!err)
        err = read_object(r);
    json_tape_finish(&r->json);
    buf_finish(&r->scratch);
    return err;
}

/* ---- safetensors: a tensor "budgets", and kvfate.unit in the metadata */

static int check_meta(const struct reader *r, const struct json *meta)
{
    for (const struct json *m = json_first(meta); m; m = json_next(m)) {
        const char *key = json_key(m);
        if (strncmp(key, "kvfate.", 7) == 0 && strcmp(key, "kvfate.unit") != 0
            && strcmp(key, SAFETENSORS_CHECKSUM) != 0)
            return kvf_fail(r->d, KVF_E_FORMAT,
                            "%s: the metadata key %.60s is unknown in a table of heads; remove "
                            "or correct it",
                            r->t->path, key);
    }
    return KVF_OK;
}

static int read_tensor(struct reader *r, const struct safetensors *f)
{
    struct head_table *t = r->t;
    const char *unit = json_str(json_get(f->meta, "kvfate.unit"), "");
    const struct tensor *x = f->tensor;
    int err = check_meta(r, f->meta);
    if (err)
        return err;
    if (strcmp(unit, "pruned") == 0)
        t->form = HEAD_TABLE_PRUNED;
    else if (!unit_of(unit, &t->form))
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: kvfate.unit is '%.40s'; expected entries, fraction or pruned", t->path,
                        unit);
    int dims = t->form == HEAD_TABLE_PRUNED ? 3 : 2;
    const char *shape = dims == 3 ? "[99, layers, KV heads]" : "[layers, heads]";
    if (f->n != 1 || strcmp(x->name, "budgets") != 0)
        return kvf_fail(r->d, KVF_E_FORMAT, "%s: expected one tensor, \"budgets\" %s", t->path,
                        shape);
    if (x->n_dims != dims || x->type != WEIGHT_F32 || (dims == 3 && x->dim[0] != HEAD_TABLE_RATIOS))
        return kvf_fail(r->d, KVF_E_FORMAT, "%s: the tensor \"budgets\" is not F32 %s", t->path,
                        shape);
    uint64_t L = x->dim[dims - 2], H = x->dim[dims - 1];
    t->n_layers = L < INT32_MAX ? (int)L : INT32_MAX;
    t->n_heads = H < INT32_MAX ? (int)H : INT32_MAX;
    err = new_values(r, dims == 3 ? HEAD_TABLE_RATIOS : 1);
    for (uint64_t i = 0; !err && i < x->n; i++) {
        t->value[i] = (double)((const float *)x->data)[i];
        err = check_value(r, (size_t)i);
    }
    return err;
}

static int read_tensors(struct reader *r, const unsigned char *data, size_t n)
{
    struct safetensors f = {.n = 0};
    int err = safetensors_read(r->t->path, data, n, &f, r->d);
    if (!err)
        err = read_tensor(r, &f);
    safetensors_finish(&f);
    return err;
}

/* ---- files */

/* Reads the bytes of a file.  A JSON text has no zero byte, and the first 8 bytes of a safetensors
 * file, the length of its header, have one. */
static int read_bytes(struct reader *r, const unsigned char *data, size_t n)
{
    static const unsigned char npy[] = {0x93, 'N', 'U', 'M', 'P', 'Y'}, zip[] = {'P', 'K', 3, 4};
    const char *path = r->t->path;
    if (n >= sizeof npy && memcmp(data, npy, sizeof npy) == 0)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: an array of NumPy; if it has curves of LU-KV, convert it with: "
                        "kvfate gates convert %s",
                        path, path);
    if (n >= sizeof zip && memcmp(data, zip, sizeof zip) == 0)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: a zip archive, as torch.save writes it; save the table as JSON", path);
    if (n >= 10 && data[7] == 0)
        return read_tensors(r, data, n);
    size_t blank = 0;
    while (blank < n && strchr(" \t\r\n\xef\xbb\xbf", data[blank]) && data[blank])
        blank++;
    if (blank == n || data[blank] != '{')
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: neither JSON nor safetensors; a table of DuoAttention is for --gates "
                        "of method duo",
                        path);
    return read_json(r, (const char *)data, n);
}

static int put_hash(struct head_table *t)
{
    struct buf b = {0};
    size_t n = (size_t)t->n_layers * (size_t)t->n_heads;
    n *= t->form == HEAD_TABLE_PRUNED ? HEAD_TABLE_RATIOS : 1;
    buf_le64(&b, (uint64_t)t->form);
    buf_le64(&b, (uint64_t)t->n_layers);
    buf_le64(&b, (uint64_t)t->n_heads);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &t->value[i], sizeof bits);
        buf_le64(&b, bits);
    }
    if (!b.err)
        checksum_text(checksum(0, b.data, b.len), t->hash);
    int err = b.err;
    buf_finish(&b);
    return err;
}

static int read_file(struct reader *r)
{
    enum { SAFETENSORS_MOST = 512 << 20 };
    unsigned char *data = NULL;
    size_t n = 0;
    int fd = file_regular(r->t->path, &n);
    if (fd < 0)
        return kvf_fail(r->d, KVF_E_IO, "%s: cannot open: %s", r->t->path,
                        errno ? strerror(errno) : "not a regular file");
    int err = n > SAFETENSORS_MOST
                  ? kvf_fail(r->d, KVF_E_LIMIT, "%s: %zu bytes are over the limit", r->t->path, n)
                  : file_bytes(fd, n, &data);
    close(fd);
    if (err == KVF_E_IO)
        kvf_fail(r->d, err, "%s: cannot read all of its %zu bytes", r->t->path, n);
    if (!err)
        err = read_bytes(r, data, n);
    mem_free(data);
    return err ? err : put_hash(r->t);
}

int head_table_open(const char *path, struct head_table **ret, struct kvf_diag *d)
{
    struct reader r = {.t = MEM_NEW(struct head_table, 1), .d = d};
    if (!r.t)
        return KVF_E_NOMEM;
    r.t->path = mem_strdup(path);
    int err = r.t->path ? read_file(&r) : KVF_E_NOMEM;
    if (err)
        head_table_close(r.t);
    else
        *ret = r.t;
    return err;
}

void head_table_close(struct head_table *t)
{
    if (!t)
        return;
    mem_free(t->value);
    mem_free(t->path);
    mem_free(t);
}
