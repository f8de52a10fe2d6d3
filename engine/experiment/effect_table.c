/* effect_table.c - makes the tables of `kvfate ablate`. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "base/utf8.h"
#include "engine/experiment/effect.h"

enum { SEED = 1 }; /* of the bootstrap, so that equal results give equal CI */

enum column { KL, KL_LOW, KL_HIGH, KL_MAX, DNLL, DNLL_LOW, DNLL_HIGH, AGREE, N_COLUMNS };

static const struct {
    const char *name, *unit;
} column[N_COLUMNS] = {
    {"kl", "nats"},   {"kl_low", "nats"},   {"kl_high", "nats"},   {"kl_max", "nats"},
    {"dnll", "nats"}, {"dnll_low", "nats"}, {"dnll_high", "nats"}, {"top1_agree", ""},
};

static const struct effect_step *steps_of(const struct effect_result *r, int doc, int row)
{
    size_t at = (size_t)doc * (size_t)r->n + (size_t)row;
    return r->step + at * (size_t)r->steps;
}

static double field(const struct effect_step *s, enum column c)
{
    if (c == KL)
        return s->kl;
    return c == DNLL ? s->dnll : (double)s->agree;
}

/* Computes the mean and CI of a field of a row. v is scratch of docs * steps + docs values. */
static int summarise(const struct effect_result *r, int row, enum column c, double *v,
                     double *ret_mean, double *ret_low, double *ret_high)
{
    size_t n = (size_t)r->steps, docs = (size_t)r->docs;
    double *mean = v + docs * n;
    for (int doc = 0; doc < r->docs; doc++) {
        double *x = v + (size_t)doc * n;
        for (int i = 0; i < r->steps; i++)
            x[i] = field(&steps_of(r, doc, row)[i], c);
        mean[doc] = stats_mean(x, n);
    }
    *ret_mean = stats_mean(mean, docs);
    bool several = docs > 1;
    return stats_mean_interval(several ? mean : v, several ? docs : n, EFFECT_REPLICATES, SEED,
                               ret_low, ret_high);
}

/* Fills a row of out [N_COLUMNS][n]. */
static int fill_row(const struct effect_result *r, int row, double *v, double *out)
{
    size_t n = (size_t)r->n;
    double *at = out + row, unused[2], most = -INFINITY;
    int err = summarise(r, row, KL, v, &at[KL * n], &at[KL_LOW * n], &at[KL_HIGH * n]);
    if (err)
        return err;
    for (size_t i = 0; i < (size_t)r->docs * (size_t)r->steps; i++)
        most = v[i] > most ? v[i] : most;
    at[KL_MAX * n] = most;
    err = summarise(r, row, DNLL, v, &at[DNLL * n], &at[DNLL_LOW * n], &at[DNLL_HIGH * n]);
    if (err)
        return err;
    return summarise(r, row, AGREE, v, &at[AGREE * n], &unused[0], &unused[1]);
}

static void add_meta(struct table *t, const struct effect_result *r)
{
    const struct effect *e = r->e;
    table_meta_str(t, "model", e->engine->config.name);
    table_meta_str(t, "model_hash", e->engine->hash);
    table_meta_num(t, "docs", r->docs);
    table_meta_num(t, "prompt_tokens", e->prompt);
    table_meta_num(t, "score_tokens", r->steps);
    table_meta_str(t, "precision", engine_precision(e->engine));
    table_meta_str(t, "kv_type", kv_type_name(e->kv_type));
    engine_put_scale(e->engine, t);
}

/* Appends the text of a token, escaped for a table, and a NUL. */
static void put_text(const struct effect_result *r, int doc, int token, struct buf *out)
{
    size_t len;
    const char *text = tokenizer_bytes(r->e->engine->tokenizer, r->ids[doc][token], &len);
    utf8_show(out, text, len);
    buf_char(out, 0);
}

/* Adds the name, layer and head, or name and entries, of every row. Each applies to a block of
 * rows of the table. */
static int add_names(struct table *t, const struct effect_result *r)
{
    size_t n = (size_t)r->n;
    const char **name = MEM_NEW(const char *, n);
    int64_t *a = MEM_NEW(int64_t, n), *b = MEM_NEW(int64_t, n);
    int err = KVF_E_NOMEM;
    if (!name || !a || !b)
        goto done;
    for (int i = 0; i < r->n; i++) {
        const struct effect_row *row = &r->row[i];
        name[i] = row->name;
        a[i] = r->entries ? row->token : row->layer;
        b[i] = r->entries ? row->count : row->head;
    }
    table_block_str(t, r->entries ? "entries" : "head", "", name, r->n);
    table_block_int(t, r->entries ? "token" : "layer", "", a, r->n);
    table_block_int(t, r->entries ? "count" : "index", "", b, r->n);
    err = KVF_OK;

done:
    mem_free(name);
    mem_free(a);
    mem_free(b);
    return err;
}

/* Adds the column "text" with the token of each row that is one entry, if there is one document.
 * Other rows get "". */
static int add_entry_text(struct table *t, const struct effect_result *r)
{
    const char **text = MEM_NEW(const char *, (size_t)r->n);
    struct buf all = {0};
    if (!text)
        return KVF_E_NOMEM;
    for (int i = 0; i < r->n; i++) {
        if (r->docs == 1 && r->row[i].count == 1)
            put_text(r, 0, r->row[i].token, &all);
        else
            buf_char(&all, 0);
    }
    const char *at = all.data;
    for (int i = 0; !all.err && i < r->n; i++, at += strlen(at) + 1)
        text[i] = at;
    int err = all.err;
    if (!err)
        table_dense_str(t, "text", "", text);
    buf_finish(&all);
    mem_free(text);
    return err;
}

struct table *effect_table(const struct effect_result *r)
{
    size_t n = (size_t)r->n, per = (size_t)r->steps + 1;
    struct table *t = table_create(r->entries ? "effect-entries" : "effect", r->n);
    double *v = mem_alloc((size_t)r->docs, per * sizeof *v);
    double *out = MEM_NEW(double, (N_COLUMNS * n));
    int err = KVF_E_NOMEM;
    if (!t || !v || !out)
        goto done;
    for (int i = 0; i < r->n; i++) {
        err = fill_row(r, i, v, out);
        if (err)
            goto done;
    }
    err = add_names(t, r);
    if (err)
        goto done;
    if (r->entries) {
        err = add_entry_text(t, r);
        if (err)
            goto done;
    }
    add_meta(t, r);
    table_meta_str(t, "interval",
                   r->docs > 1
                       ? "95 % over documents: none for fewer than 4, Student's t for 4 to "
                         "9, bootstrap for more"
                       : "95 % over steps of one document: none for fewer than 4, Student's "
                         "t for 4 to 9, bootstrap for more");
    for (int c = 0; c < N_COLUMNS; c++)
        table_dense_real(t, column[c].name, column[c].unit, out + (size_t)c * n);
    table_affine(t, "tokens", "", (int64_t)r->docs * r->steps, 0, 0);

done:
    mem_free(v);
    mem_free(out);
    return table_made(t, err);
}

/* Columns of the table "effect-steps", in the order cell, document, step. */
struct steps {
    double *kl, *dnll;
    int64_t *doc, *step, *target, *id, *agree;
    const char **text;
};

static void fill_steps(const struct effect_result *r, struct steps *s, struct buf *text)
{
    size_t k = 0;
    for (int row = 0; row < r->n; row++)
        for (int doc = 0; doc < r->docs; doc++)
            for (int i = 0; i < r->steps; i++, k++) {
                const struct effect_step *x = &steps_of(r, doc, row)[i];
                int token = r->e->prompt + i + 1; /* the target of query P + i */
                s->doc[k] = doc;
                s->step[k] = i;
                s->target[k] = token;
                s->id[k] = r->ids[doc][token];
                s->kl[k] = x->kl;
                s->dnll[k] = x->dnll;
                s->agree[k] = x->agree;
                if (row == 0)
                    put_text(r, doc, token, text);
            }
    const char *at = text->data;
    size_t all = (size_t)r->docs * (size_t)r->steps;
    for (size_t i = 0; !text->err && i < all; i++, at += strlen(at) + 1)
        s->text[i] = at;
}

static void add_steps(struct table *t, const struct effect_result *r, const struct steps *s)
{
    int64_t all = (int64_t)r->docs * r->steps;
    add_meta(t, r);
    table_dense_int(t, "doc", "", s->doc);
    table_dense_int(t, "step", "", s->step);
    table_dense_int(t, "target", "", s->target);
    table_dense_int(t, "id", "", s->id);
    table_cycle_str(t, "text", "", s->text, all);
    table_dense_real(t, "kl", "nats", s->kl);
    table_dense_real(t, "dnll", "nats", s->dnll);
    table_dense_int(t, "agree", "", s->agree);
}

struct table *effect_table_steps(const struct effect_result *r)
{
    size_t all = (size_t)r->docs * (size_t)r->steps, n = (size_t)r->n * all;
    struct table *t = table_create("effect-steps", (int64_t)n);
    double *real = mem_alloc(n, 2 * sizeof *real);
    int64_t *whole = mem_alloc(n, 5 * sizeof *whole);
    const char **word = MEM_NEW(const char *, all);
    struct buf text = {0};
    int err = KVF_E_NOMEM;
    if (!t || !real || !whole || !word)
        goto done;
    struct steps s = {real,          real + n,      whole,         whole + n,
                      whole + 2 * n, whole + 3 * n, whole + 4 * n, word};
    fill_steps(r, &s, &text);
    err = text.err ? text.err : add_names(t, r);
    if (err)
        goto done;
    add_steps(t, r, &s);

done:
    mem_free(real);
    mem_free(whole);
    mem_free(word);
    buf_finish(&text);
    return table_made(t, err);
}
