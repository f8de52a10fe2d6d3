/* checkpoint.c - writes and reads checkpoints of training. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/order.h"
#include "base/utf8.h"
#include "engine/gate/safetensors_write.h"
#include "engine/gate/tensor_file.h"
#include "engine/train/checkpoint.h"

#define FORMAT "kvfate training 1"

static void hash_bytes(XXH3_state_t *x, const void *p, size_t n)
{
    uint64_t length = n; /* makes the concatenation unambiguous */
    XXH3_128bits_update(x, &length, sizeof length);
    XXH3_128bits_update(x, p, n);
}

/* Copies a string as JSON stores it: invalid UTF-8 bytes (of a file name) become U+FFFD. */
static int clean(const char *s, struct buf *out)
{
    for (size_t n = strlen(s), k; n; s += k, n -= k) {
        uint32_t cp;
        k = utf8_decode(s, n, &cp);
        if (k) {
            buf_add(out, s, k);
        } else {
            buf_str(out, "\xef\xbf\xbd");
            k = 1;
        }
    }
    buf_add(out, "", 0);
    return out->err;
}

static int hash_text(XXH3_state_t *x, const char *s)
{
    struct buf b = {0};
    int err = clean(s, &b);
    if (!err)
        hash_bytes(x, b.data, b.len);
    buf_finish(&b);
    return err;
}

/* Hashes the texts and all tensors in order of name: names, shapes, bytes. */
static int hash_all(const char *config, const char *step, const char *log,
                    const struct safetensors_item *item, int n, char out[33])
{
    XXH3_state_t *x = XXH3_createState();
    if (!x)
        return KVF_E_NOMEM;
    XXH3_128bits_reset(x);
    const char *const text[] = {config, step, log};
    int err = KVF_OK;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        err = hash_text(x, text[i]);
        if (err)
            goto done;
    }
    for (int i = 0; i < n; i++) {
        size_t size = sizeof(float);
        for (int k = 0; k < item[i].n_dims; k++)
            size *= (size_t)item[i].dim[k];
        hash_bytes(x, item[i].name, strlen(item[i].name));
        hash_bytes(x, item[i].dim, sizeof *item[i].dim * (size_t)item[i].n_dims);
        hash_bytes(x, item[i].data, size);
    }
    XXH128_hash_t h = XXH3_128bits_digest(x);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);

done:
    XXH3_freeState(x);
    return err;
}

int checkpoint_write(const char *path, const struct checkpoint *c, struct kvf_diag *d)
{
    char step[24], hash[33] = "";
    const char *log = c->log ? c->log : "";
    struct safetensors_item *item = MEM_NEW(struct safetensors_item, (size_t)c->n);
    int err = KVF_OK;
    if (!item)
        return KVF_E_NOMEM;
    for (int i = 0; i < c->n; i++) {
        const struct checkpoint_tensor *t = &c->tensor[i];
        if (t->n_dims < 0 || t->n_dims > 3) {
            err = kvf_fail(d, KVF_E_ARG, "%s: tensor %s has %d dimensions", path, t->name,
                           t->n_dims);
            goto done;
        }
        item[i] = (struct safetensors_item){t->name, t->n_dims, {1, 1, 1, 1}, t->data, WEIGHT_F32};
        for (int k = 0; k < t->n_dims; k++)
            item[i].dim[k] = t->dim[k];
    }
    qsort(item, (size_t)c->n, sizeof *item, order_text);
    snprintf(step, sizeof step, "%lld", (long long)c->step);
    err = hash_all(c->config, step, log, item, c->n, hash);
    if (err)
        goto done;
    const struct safetensors_note note[] = {
        {"format", FORMAT}, {"step", step}, {"hash", hash}, {"config", c->config}, {"log", log}};
    err = safetensors_write(path, item, c->n, note, sizeof note / sizeof *note, d);

done:
    mem_free(item);
    return err;
}

/* Reads the tensors of the file as items and compares its hash with its bytes. */
static int check_hash(const struct tensor_file *f, struct kvf_diag *d)
{
    const char *path = f->path, *format = tensor_file_meta(f, "format");
    const char *config = tensor_file_meta(f, "config"), *step = tensor_file_meta(f, "step");
    const char *log = tensor_file_meta(f, "log"), *hash = tensor_file_meta(f, "hash");
    size_t n = f->n;
    char found[33] = "";
    if (!format || strcmp(format, FORMAT) != 0 || !config || !step || !log || !hash)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: not a checkpoint of training; give another path or "
                        "remove it",
                        path);
    struct safetensors_item *item = MEM_NEW(struct safetensors_item, n);
    if (!item)
        return KVF_E_NOMEM;
    bool all_f32 = true;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = &f->tensor[i];
        item[i] = (struct safetensors_item){t->name, t->n_dims, {1, 1, 1, 1}, t->data, t->type};
        memcpy(item[i].dim, t->dim, sizeof t->dim);
        all_f32 = all_f32 && t->type == WEIGHT_F32;
    }
    int err = all_f32 ? hash_all(config, step, log, item, (int)n, found) : KVF_OK;
    mem_free(item);
    if (err)
        return err;
    if (!all_f32 || strcmp(found, hash) != 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the checkpoint is damaged (its hash does not match its bytes); remove "
                        "it and train again",
                        path);
    return KVF_OK;
}

/* Returns the length of the setting at s: up to the end of the line or the next member of a JSON
 * object. */
static size_t setting(const char *s)
{
    size_t n = strcspn(s, "\n");
    const char *next = strstr(s, ", \"");
    return next && (size_t)(next - s) + 1 < n ? (size_t)(next - s) + 1 : n;
}

/* Returns an error that names the first different setting. */
static int compare_settings(const char *path, const char *theirs, const char *ours,
                            struct kvf_diag *d)
{
    while (strcmp(theirs, ours) != 0) {
        size_t a = setting(theirs), b = setting(ours);
        if (a != b || memcmp(theirs, ours, a) != 0 || !theirs[a] || !ours[b]) {
            a -= a > 0 && theirs[a - 1] == ',';
            b -= b > 0 && ours[b - 1] == ',';
            const char *x = *theirs == '"' ? "" : "\"", *y = *ours == '"' ? "" : "\"";
            return kvf_fail(d, KVF_E_ARG,
                            "%s: the checkpoint has %s%.*s%s where this training "
                            "has %s%.*s%s; train with its settings, into another file, or "
                            "--fresh",
                            path, x, (int)(a < 120 ? a : 120), theirs, x, y,
                            (int)(b < 120 ? b : 120), ours, y);
        }
        theirs += a + 1;
        ours += b + 1;
    }
    return KVF_OK;
}

static int check_config(const char *path, const char *theirs, const char *ours, struct kvf_diag *d)
{
    struct buf b = {0};
    int err = clean(ours, &b);
    if (!err)
        err = compare_settings(path, theirs, b.data, d);
    buf_finish(&b);
    return err;
}

static int check_tensors(const struct tensor_file *f, const struct checkpoint *c,
                         struct kvf_diag *d)
{
    if (f->n != (size_t)c->n)
        return kvf_fail(d, KVF_E_ARG, "%s: the checkpoint has %zu tensors, this training %d",
                        f->path, f->n, c->n);
    for (int i = 0; i < c->n; i++) {
        const struct checkpoint_tensor *want = &c->tensor[i];
        const struct tensor *t = tensor_file_find(f, want->name, NULL);
        if (!t || t->n_dims != want->n_dims
            || memcmp(t->dim, want->dim, sizeof *t->dim * (size_t)want->n_dims) != 0)
            return kvf_fail(d, KVF_E_ARG,
                            "%s: tensor %s is %s; the checkpoint is of another "
                            "training",
                            f->path, want->name, t ? "of another shape" : "missing");
    }
    return KVF_OK;
}

static int read_step(const struct tensor_file *f, int64_t *ret, struct kvf_diag *d)
{
    const char *text = tensor_file_meta(f, "step");
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < 0)
        return kvf_fail(d, KVF_E_FORMAT, "%s: the checkpoint's step \"%.30s\" is no number",
                        f->path, text);
    *ret = v;
    return KVF_OK;
}

static int take(const struct tensor_file *f, struct checkpoint *c, struct kvf_diag *d)
{
    int64_t step = 0;
    int err = check_hash(f, d);
    if (!err)
        err = check_config(f->path, tensor_file_meta(f, "config"), c->config, d);
    if (!err)
        err = check_tensors(f, c, d);
    if (!err)
        err = read_step(f, &step, d);
    if (err)
        return err;
    char *log = mem_strdup(tensor_file_meta(f, "log"));
    if (!log)
        return KVF_E_NOMEM;
    for (int i = 0; i < c->n; i++) { /* no error is possible from here on */
        const struct tensor *t = tensor_file_find(f, c->tensor[i].name, NULL);
        memcpy(c->tensor[i].data, t->data, (size_t)t->n * sizeof(float));
    }
    c->step = step;
    c->log = log;
    return KVF_OK;
}

int checkpoint_read(const char *path, struct checkpoint *c, int *ret_found, struct kvf_diag *d)
{
    struct stat s;
    struct tensor_file *f = NULL;
    *ret_found = stat(path, &s) == 0 || errno != ENOENT;
    if (!*ret_found)
        return kvf_fail(d, KVF_E_IO, "%s: there is no checkpoint", path);
    int err = tensor_file_open(path, &f, d);
    if (err)
        return err;
    err = take(f, c, d);
    tensor_file_close(f);
    return err;
}
