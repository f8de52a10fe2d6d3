/* training_table.c - reads records of trainings into a table. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/training_table.h"

enum { MOST_BYTES = 256 << 20, MOST_ROWS = 1 << 24, MOST_NUMBERS = 48, NAME = 64 };

/* Numbers that every table has, in this order. Columns of budgets are appended as they occur. */
static const char *const fixed[] = {"loss",    "fwkl",   "rvkl", "ntp",    "mse",
                                    "limit",   "value",  "lr",   "norm",   "reward",
                                    "entropy", "answer", "cut",  "mean_kl"};
enum { FIXED = sizeof fixed / sizeof *fixed };
/* Prefixes of the results of a check at a budget: NAME_64, or NAME_full. The results of a check in
 * a file are kl_in_FILE. */
static const char *const by_budget[] = {"kl_", "pass_", "entropy_"};
static const char in_file[] = "kl_in_";

struct row {
    int file;
    int64_t step, tokens; /* tokens is -1 if not known */
    double number[MOST_NUMBERS];
};

/* The rows of all files, and the names of their numbers. */
struct rows {
    struct row *row;
    int n, cap;
    char name[MOST_NUMBERS][NAME];
    bool seen[MOST_NUMBERS];
    int n_names;
};

static int read_file(const char *path, struct buf *b, struct kvf_diag *d)
{
    FILE *f = fopen(path, "rb");
    char part[65536];
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open the record: %s", path, strerror(errno));
    b->max = MOST_BYTES;
    for (size_t n = 1; n && !b->err; buf_add(b, part, n))
        n = fread(part, 1, sizeof part, f);
    int bad = ferror(f) ? errno : 0;
    fclose(f);
    if (bad)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read the record: %s", path, strerror(bad));
    if (b->err)
        return kvf_fail(d, b->err, "%s: the record is over %d MiB", path, MOST_BYTES >> 20);
    return KVF_OK;
}

static bool of_budget(const char *key)
{
    if (strncmp(key, in_file, sizeof in_file - 1) == 0)
        return key[sizeof in_file - 1];
    for (size_t i = 0; i < sizeof by_budget / sizeof *by_budget; i++) {
        size_t n = strlen(by_budget[i]);
        if (strncmp(key, by_budget[i], n) != 0)
            continue;
        const char *budget = key + n;
        return strcmp(budget, "full") == 0
               || (*budget && strspn(budget, "0123456789") == strlen(budget));
    }
    return false;
}

static int number_of(struct rows *t, const char *key)
{
    for (int i = 0; i < t->n_names; i++)
        if (strcmp(t->name[i], key) == 0)
            return i;
    if (!of_budget(key) || strlen(key) >= NAME || t->n_names == MOST_NUMBERS)
        return -1;
    snprintf(t->name[t->n_names], NAME, "%s", key);
    return t->n_names++;
}

static struct row *add_row(struct rows *t, int file, int64_t step)
{
    if (t->n == t->cap) {
        int more = t->cap ? 2 * t->cap : 1024;
        struct row *r = more <= MOST_ROWS ? mem_grow(t->row, (size_t)t->n, (size_t)more, sizeof *r)
                                          : NULL;
        if (!r)
            return NULL;
        t->row = r;
        t->cap = more;
    }
    struct row *r = &t->row[t->n++];
    *r = (struct row){.file = file, .step = step, .tokens = -1};
    for (int i = 0; i < MOST_NUMBERS; i++)
        r->number[i] = NAN;
    return r;
}

/* Reads a line of a step, or a line of a check, which is added to the row of its step. */
static int read_line(struct rows *t, int file, const struct json *line)
{
    bool check = json_get(line, "check");
    int64_t step = json_int(json_get(line, check ? "check" : "step"), -1);
    struct row *last = t->n && t->row[t->n - 1].file == file ? &t->row[t->n - 1] : NULL;
    if (step < 0 || (last && (check ? step < last->step : step <= last->step)))
        return KVF_E_FORMAT;
    struct row *r = check && last && last->step == step ? last : add_row(t, file, step);
    if (!r)
        return KVF_E_NOMEM;
    last = r > t->row && r[-1].file == file ? r - 1 : NULL;
    int64_t tokens = json_int(json_get(line, "tokens"), 0);
    if (tokens < 0 || tokens > INT64_MAX / 2 - (last ? last->tokens : 0))
        return KVF_E_FORMAT;
    if (!check || r->tokens < 0)
        r->tokens = (last ? last->tokens : 0) + tokens;
    for (const struct json *m = json_first(line); m; m = json_next(m)) {
        int i = json_key(m) ? number_of(t, json_key(m)) : -1;
        if (i < 0)
            continue;
        r->number[i] = json_num(m, NAN);
        t->seen[i] = true;
    }
    return KVF_OK;
}

static int read_record(struct rows *t, int file, const char *path, struct kvf_diag *d)
{
    struct buf b = {0};
    int before = t->n, err = read_file(path, &b, d);
    const char *at = b.data ? b.data : "", *end = at + b.len;
    for (int line = 1; !err && at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        struct json *root = NULL;
        stop = stop ? stop : end;
        if (stop > at)
            err = json_parse(at, (size_t)(stop - at), &root, d);
        if (!err && root)
            err = read_line(t, file, root);
        json_free(root);
        if (err && err != KVF_E_NOMEM)
            err = kvf_fail(d, KVF_E_FORMAT, "%s, line %d: not a line of a record of training", path,
                           line);
        at = stop + 1;
    }
    buf_finish(&b);
    if (!err && t->n == before)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: there is no step in it", path);
    return err;
}

/* Sets out to the name of a run, such as "gates" for "folder/gates.safetensors.log.jsonl". */
static void run_name(const char *path, char out[128])
{
    static const char *const ends[] = {".jsonl", ".log", ".safetensors"};
    const char *base = strrchr(path, '/');
    snprintf(out, 128, "%.120s", base ? base + 1 : path);
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(out), k = strlen(ends[i]);
        if (n > k && strcmp(out + n - k, ends[i]) == 0)
            out[n - k] = 0;
    }
}

static void add_numbers(struct table *t, const struct rows *r, int i, double *value)
{
    const char *unit = strncmp(r->name[i], "kl_", 3) == 0 || strcmp(r->name[i], "mean_kl") == 0
                               || strcmp(r->name[i], "fwkl") == 0 || strcmp(r->name[i], "rvkl") == 0
                               || strcmp(r->name[i], "ntp") == 0
                           ? "nats/token"
                           : "";
    for (int k = 0; k < r->n; k++)
        value[k] = r->row[k].number[i];
    table_dense_real(t, r->name[i], unit, value);
}

static int build(const struct rows *r, char *const *path, int n, struct table **ret)
{
    struct table *t = table_create("training", r->n);
    char(*name)[128] = mem_alloc((size_t)n, 128);
    const char **run = mem_alloc((size_t)r->n, sizeof *run);
    int64_t *whole = MEM_NEW(int64_t, (size_t)r->n);
    double *value = MEM_NEW(double, (size_t)r->n);
    int err = t && name && run && whole && value ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        for (int i = 0; i < n; i++)
            run_name(path[i], name[i]);
        for (int k = 0; k < r->n; k++)
            run[k] = name[r->row[k].file];
        table_dense_str(t, "run", "", run);
        for (int k = 0; k < r->n; k++)
            whole[k] = r->row[k].step;
        table_dense_int(t, "step", "", whole);
        for (int k = 0; k < r->n; k++)
            whole[k] = r->row[k].tokens;
        table_dense_int(t, "tokens", "", whole);
        for (int i = 0; i < r->n_names; i++)
            if (r->seen[i] && i != FIXED - 1)
                add_numbers(t, r, i, value);
        if (r->seen[FIXED - 1])
            add_numbers(t, r, FIXED - 1, value);
        err = table_err(t);
    }
    mem_free(name);
    mem_free(run);
    mem_free(whole);
    mem_free(value);
    if (err)
        table_destroy(t);
    else
        *ret = t;
    return err;
}

int training_table(char *const *path, int n, struct table **ret_table, struct kvf_diag *d)
{
    struct rows *r = MEM_NEW(struct rows, 1);
    int err = r ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < FIXED; i++)
        snprintf(r->name[r->n_names++], NAME, "%s", fixed[i]);
    for (int i = 0; !err && i < n; i++)
        err = read_record(r, i, path[i], d);
    if (!err)
        err = build(r, path, n, ret_table);
    if (r)
        mem_free(r->row);
    mem_free(r);
    return err;
}
