/* an_tokens.c - one row per token: its text, and how long the chosen KV heads
 * kept it.  mean_residency: mean over heads of (min(evict_step, T) - i) / (T - i).
 * kept: share of the heads whose cache holds it at the end; one that was cut after
 * the last query (evict_step = T) was seen by all queries and yet is not kept.
 * mean_beta, mean_retention: means over heads of what retention gates gave. */
#include <math.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/analyzers.h"
#include "analyzers/classes.h"
#include "analyzers/common.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { OPT_CLASSES };
static const struct analyzer_option options[] = {
    CLASSES_OPTION,
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_tokens;

struct data {
    struct classes *classes;
    uint8_t *class; /* [T] */
    double *evict, *id, *nll, *role, *residency, *kept;
    double *beta, *retention; /* NaN without gates */
};

static int alloc(struct data *x, size_t n)
{
    x->class = MEM_NEW(uint8_t, n);
    x->evict = MEM_NEW(double, n);
    x->id = MEM_NEW(double, n);
    x->nll = MEM_NEW(double, n);
    x->role = MEM_NEW(double, n);
    x->residency = MEM_NEW(double, n);
    x->kept = MEM_NEW(double, n);
    x->beta = MEM_NEW(double, n);
    x->retention = MEM_NEW(double, n);
    return x->evict && x->id && x->nll && x->role && x->residency && x->kept && x->beta
           && x->retention && x->class ? KVF_OK : KVF_E_NOMEM;
}

static void release(struct data *x)
{
    double *const all[] = {x->evict, x->id, x->nll, x->role, x->residency, x->kept, x->beta,
                           x->retention};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    mem_free(x->class);
    classes_close(x->classes);
}

/* Uses x->evict for the column of a head. */
static int read_gates(struct kvf_trace *t, const struct head_list *heads, uint32_t T,
                      struct data *x, struct kvf_diag *d)
{
    int column = kvf_find(t, "log_beta"), err = KVF_OK;
    for (int h = 0; !err && column >= 0 && h < heads->n; h++) {
        const struct head *head = &heads->head[h];
        err = kvf_read_f64(t, column, head->layer, head->index, 0, T, x->evict, d);
        for (uint32_t i = 0; !err && i < T; i++) {
            x->beta[i] += exp(x->evict[i]);
            x->retention[i] += mean_retention(x->evict[i], i, T);
        }
    }
    for (uint32_t i = 0; i < T; i++) {
        x->beta[i] = column < 0 ? NAN : x->beta[i] / heads->n;
        x->retention[i] = column < 0 ? NAN : x->retention[i] / heads->n;
    }
    return err;
}

static int read_all(struct kvf_trace *t, const struct head_list *heads, int evict, uint32_t T,
                    struct data *x, struct kvf_diag *d)
{
    int nll = kvf_find(t, "nll");
    int err = kvf_read_f64(t, kvf_find(t, "tokens.id"), 0, 0, 0, T, x->id, d);
    if (!err)
        err = kvf_read_f64(t, kvf_find(t, "tokens.role"), 0, 0, 0, T, x->role, d);
    if (!err && nll >= 0)
        err = kvf_read_f64(t, nll, 0, 0, 0, T, x->nll, d);
    for (uint32_t i = 0; nll < 0 && i < T; i++)
        x->nll[i] = NAN;
    for (int h = 0; !err && h < heads->n; h++) {
        err = read_evict(t, evict, &heads->head[h], T, x->evict, d);
        for (uint32_t i = 0; !err && i < T; i++) {
            x->residency[i] += (fmin(x->evict[i], T) - i) / (double)(T - i);
            x->kept[i] += isinf(x->evict[i]) != 0;
        }
    }
    for (uint32_t i = 0; i < T; i++) {
        x->residency[i] /= heads->n;
        x->kept[i] /= heads->n;
    }
    return err ? err : read_gates(t, heads, T, x, d);
}

struct texts {
    int64_t n, *id;
    const char **text, **joined, **cls, **role; /* text and joined: owned strings */
};

static int alloc_texts(struct texts *s, int64_t n)
{
    s->n = n;
    s->id = MEM_NEW(int64_t, (size_t)n);
    s->text = MEM_NEW(const char *, (size_t)n);
    s->joined = MEM_NEW(const char *, (size_t)n);
    s->cls = MEM_NEW(const char *, (size_t)n);
    s->role = MEM_NEW(const char *, (size_t)n);
    return s->id && s->text && s->joined && s->cls && s->role ? KVF_OK : KVF_E_NOMEM;
}

static void release_texts(struct texts *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        if (s->text)
            mem_free((char *)(uintptr_t)s->text[i]);
        if (s->joined)
            mem_free((char *)(uintptr_t)s->joined[i]);
    }
    mem_free(s->id);
    mem_free((void *)s->text);
    mem_free((void *)s->joined);
    mem_free((void *)s->cls);
    mem_free((void *)s->role);
}

static int show(const char *s, size_t n, const char **ret)
{
    struct buf b = {0};
    utf8_show(&b, s, n);
    *ret = mem_strdup(b.data ? b.data : "");
    int err = b.err ? b.err : *ret ? KVF_OK : KVF_E_NOMEM;
    buf_finish(&b);
    return err;
}

/* Characters whose bytes lie in several tokens stand whole with the first of them,
 * the others are empty. */
static int join(struct kvf_trace *t, int64_t a, struct texts *x)
{
    enum { MOST = 8 }; /* tokens of a character and what they drag along */
    int err = KVF_OK;
    for (int64_t i = 0, next; !err && i < x->n; i = next) {
        struct buf b = {0};
        size_t len = 0, first = 0;
        bool whole = false;
        for (next = i; !whole && next < x->n && next < i + MOST; next++) {
            const char *s = kvf_token(t, (uint32_t)(a + next), &len);
            buf_add(&b, s ? s : "", s ? len : 0);
            first = next == i ? b.len : first;
            whole = b.len == 0 || utf8_valid(b.data, b.len);
        }
        if (!whole)
            next = i + 1;
        err = b.err ? b.err : show(b.data ? b.data : "", whole ? b.len : first, &x->joined[i]);
        for (int64_t k = i + 1; !err && k < next; k++) {
            x->joined[k] = mem_strdup("");
            err = x->joined[k] ? KVF_OK : KVF_E_NOMEM;
        }
        buf_finish(&b);
    }
    return err;
}

static int read_texts(struct kvf_trace *t, const struct data *x, int64_t a, struct texts *out)
{
    int err = KVF_OK;
    for (int64_t i = 0; !err && i < out->n; i++) {
        size_t len = 0;
        const char *s = kvf_token(t, (uint32_t)(a + i), &len);
        err = show(s ? s : "", s ? len : 0, &out->text[i]);
        out->cls[i] = classes_name(x->classes, x->class[a + i]);
        out->role[i] = role_name(x->role[a + i]);
        out->id[i] = (int64_t)x->id[a + i];
    }
    return err ? err : join(t, a, out);
}

static int build(struct kvf_trace *t, const struct head_list *heads, const struct data *x,
                 int64_t a, int64_t n, struct table **ret)
{
    struct table *out = table_create("tokens", n);
    struct texts s = {0};
    int err = out ? alloc_texts(&s, n) : KVF_E_NOMEM;
    if (!err)
        err = read_texts(t, x, a, &s);
    if (!err) {
        put_provenance(out, t);
        table_meta_num(out, "heads", heads->n);
        put_tokens(out, a, a + n, kvf_n_steps(t));
        classes_note(x->classes, out);
        table_affine(out, "token", "", a, 1, 0);
        table_dense_int(out, "id", "", s.id);
        table_dense_str(out, "text", "", s.text);
        table_dense_str(out, "class", "", s.cls);
        table_dense_str(out, "role", "", s.role);
        table_dense_real(out, "mean_beta", "", x->beta + a);
        table_dense_real(out, "mean_residency", "", x->residency + a);
        table_dense_real(out, "kept", "", x->kept + a);
        table_dense_real(out, "nll", "nat", x->nll + a);
        table_dense_str(out, "joined", "", s.joined);
        table_dense_real(out, "mean_retention", "", x->retention + a);
        err = table_err(out);
    }
    release_texts(&s);
    if (err)
        table_destroy(out);
    else
        *ret = out;
    return err;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    struct head_list heads;
    struct data x = {0};
    int evict, other;
    int64_t a, b;
    uint32_t T = kvf_n_steps(t);
    (void)n_traces;
    int err = column_need(t, "evict_step", "evict", &evict, d);
    if (!err)
        err = column_need(t, "tokens.id", "lean", &other, d);
    if (!err)
        err = column_need(t, "tokens.role", "lean", &other, d);
    if (!err)
        err = tokens_select(t, args, &a, &b, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_KV, args->heads, &heads, d);
    if (err)
        return err;
    err = classes_open(option_text(&an_tokens, args, OPT_CLASSES), &x.classes, d);
    if (!err)
        err = alloc(&x, T);
    if (!err)
        err = classes_of_trace(x.classes, t, x.class, d);
    if (!err && T)
        err = read_all(t, &heads, evict, T, &x, d);
    if (!err)
        err = build(t, &heads, &x, a, b - a, ret_table);
    release(&x);
    heads_free(&heads);
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    int kept = table_find(t, "kept"), res = table_find(t, "mean_residency"),
        nll = table_find(t, "nll");
    double k = 0, r = 0, l = 0;
    int64_t n = table_rows(t), scored = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = table_real(t, nll, i);
        k += table_real(t, kept, i);
        r += table_real(t, res, i);
        if (!isnan(v)) {
            l += v;
            scored++;
        }
    }
    if (n == 0) {
        buf_str(out, "no tokens\n");
        return;
    }
    buf_printf(out, "%lld tokens; kept at the end: %.1f %% of entries; mean residency %.3f\n",
               (long long)n, 100 * k / (double)n, r / (double)n);
    if (scored)
        buf_printf(out, "mean NLL %.4f nats over %lld tokens\n", l / (double)scored,
                   (long long)scored);
}

const struct analyzer an_tokens = {
    .name = "tokens",
    .summary = "tokens with how long they were kept",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
};
