/* corpus.c - sums over documents, and sums of such sums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/room.h"
#include "studies/corpus_rows.h"

static const size_t MOST_BYTES = (size_t)4 << 30; /* of all replicates */

/* ---- arguments */

static void put_line(struct buf *b, const char *key, const char *value)
{
    buf_printf(b, "%s=", key);
    json_put_str(b, value, strlen(value));
    buf_char(b, '\n');
}

/* The value of an option as it may be typed; of a flag "1" or "". */
static void put_option(struct buf *b, const struct opt *o, const void *at)
{
    struct buf text = {0};
    if (o->type == OPT_FLAG)
        buf_str(&text, *(const bool *)at ? "1" : "");
    else if (o->type == OPT_INT)
        buf_printf(&text, "%lld", (long long)*(const int64_t *)at);
    else if (o->type == OPT_REAL)
        buf_printf(&text, "%.15g", *(const double *)at);
    else if (o->type == OPT_WORD)
        buf_str(&text, o->words[*(const int *)at]);
    else if (*(const char *const *)at)
        buf_str(&text, *(const char *const *)at);
    buf_printf(b, "option.");
    put_line(b, o->name, text.len ? text.data : "");
    b->err = b->err ? b->err : text.err;
    buf_finish(&text);
}

const char *const corpus_interval_words[] = {"auto", "all", "none", NULL};

/* Everything that the sums depend on but the traces: state files are compared by it. */
static void put_arguments(struct corpus *c, const struct analyzer_args *args)
{
    const struct analyzer_pool *pool = c->a->pool;
    struct buf *b = &c->arguments;
    put_line(b, "analysis", c->a->name);
    put_line(b, "head", args->heads ? args->heads : "");
    buf_printf(b, "tokens=%lld:%lld\n", (long long)args->token0, (long long)args->token1);
    struct analyzer_options standard = {{0}};
    const void *options = args->options ? args->options : &standard;
    if (!args->options)
        opt_defaults(c->a->options, &standard, NULL);
    struct opt_walk w = opt_walk(c->a->options);
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w))
        put_option(b, o, (const unsigned char *)options + w.offset);
    for (int k = 0; pool->keys[k]; k++)
        put_line(b, "key", pool->keys[k]);
    for (const struct analyzer_measure *m = pool->measures; m->value; m++)
        buf_printf(b, "measure=%s:%s/%s%s\n", m->value, m->numerator ? m->numerator : "",
                   m->denominator ? m->denominator : "", m->product ? " product" : "");
    put_line(b, "intervals", corpus_interval_words[c->set.intervals]);
    buf_printf(b, "replicates=%d\nseed=%llu\n", c->set.replicates, (unsigned long long)c->set.seed);
}

int corpus_create(const struct analyzer *a, const struct analyzer_args *args,
                  const struct corpus_settings *s, struct corpus **ret)
{
    struct corpus *c = MEM_NEW(struct corpus, 1);
    if (!c)
        return KVF_E_NOMEM;
    c->a = a;
    c->set = *s;
    c->least_T = c->most_T = -1;
    while (c->n_keys < CORPUS_MOST_KEYS && a->pool->keys[c->n_keys])
        c->n_keys++;
    while (c->n_measures < CORPUS_MOST_MEASURES && a->pool->measures[c->n_measures].value)
        c->n_replicated += measure_words(&a->pool->measures[c->n_measures++]);
    c->rows.stride = (size_t)c->n_measures * N_WORDS;
    c->weight = MEM_NEW(int64_t, (size_t)s->replicates);
    put_arguments(c, args);
    int err = c->weight ? c->arguments.err : KVF_E_NOMEM;
    if (err)
        corpus_destroy(c);
    else
        *ret = c;
    return err;
}

void corpus_destroy(struct corpus *c)
{
    if (!c)
        return;
    rows_finish(&c->rows);
    buf_finish(&c->arguments);
    corpus_meta_free(c->meta, c->n_meta);
    mem_free_all(c->entry, c->weight, c);
}

struct corpus_plan *corpus_planned(struct corpus *c)
{
    return &c->plan;
}
const struct analyzer *corpus_analyzer(const struct corpus *c)
{
    return c->a;
}

struct corpus_count corpus_counted(const struct corpus *c)
{
    struct corpus_count n = {.documents = (int64_t)c->n_entries};
    for (size_t i = 0; i < c->n_entries; i++) {
        n.counted += c->entry[i].traces > 0;
        n.traces += c->entry[i].traces;
        n.missed += c->entry[i].missed;
    }
    return n;
}

int corpus_same_arguments(const struct corpus *a, const struct corpus *b, struct kvf_diag *d)
{
    const char *x = a->arguments.data, *y = b->arguments.data;
    while (*x && *y) {
        size_t n = strcspn(x, "\n"), m = strcspn(y, "\n");
        if (n != m || memcmp(x, y, n) != 0)
            return kvf_fail(d, KVF_E_ARG, "results of other arguments: %.*s, here %.*s",
                            n < 100 ? (int)n : 100, x, m < 100 ? (int)m : 100, y);
        x += n + (x[n] == '\n');
        y += m + (y[m] == '\n');
    }
    return *x == *y ? KVF_OK : kvf_fail(d, KVF_E_ARG, "results of other arguments");
}

/* ---- documents and metadata */

static int by_id(const void *a, const void *b)
{
    const struct corpus_entry *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

void corpus_sort(struct corpus *c)
{
    if (!c->sorted && c->n_entries)
        qsort(c->entry, c->n_entries, sizeof *c->entry, by_id);
    c->sorted = true;
}

static const struct corpus_entry *find_entry(struct corpus *c, uint64_t id)
{
    struct corpus_entry key = {.id = id};
    corpus_sort(c);
    return c->n_entries ? bsearch(&key, c->entry, c->n_entries, sizeof *c->entry, by_id) : NULL;
}

bool corpus_has(struct corpus *c, uint64_t id)
{
    return find_entry(c, id) != NULL;
}

bool corpus_overlaps(struct corpus *c, const struct corpus *b)
{
    bool shared = false;
    for (size_t i = 0; i < b->n_entries; i++)
        shared = shared || find_entry(c, b->entry[i].id);
    return shared;
}

int64_t corpus_traces_of(struct corpus *c, uint64_t id)
{
    const struct corpus_entry *e = find_entry(c, id);
    return e ? (int64_t)e->traces + e->missed : 0;
}

void corpus_forget_missed(struct corpus *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->n_entries; i++)
        if (c->entry[i].traces > 0)
            c->entry[kept++] = c->entry[i];
    c->n_entries = kept;
}

static int add_entry(struct corpus *c, const struct corpus_entry *e, struct kvf_diag *d)
{
    if (c->n_entries >= CORPUS_MOST_DOCUMENTS)
        return kvf_fail(d, KVF_E_LIMIT, "more than %d documents", CORPUS_MOST_DOCUMENTS);
    if (!mem_room(&c->entry, c->n_entries, &c->cap_entries, 64, sizeof *c->entry))
        return KVF_E_NOMEM;
    c->entry[c->n_entries++] = *e;
    c->sorted = false;
    return KVF_OK;
}

int corpus_meta_put(struct corpus_meta **list, int *n, const char *key, const char *value,
                    uint64_t count)
{
    for (int i = 0; i < *n; i++) {
        struct corpus_meta *m = &(*list)[i];
        if (strcmp(m->key, key) != 0)
            continue;
        m->n += count;
        if (m->value && (!value || strcmp(m->value, value) != 0)) {
            mem_free(m->value);
            m->value = NULL;
        }
        return KVF_OK;
    }
    struct corpus_meta *grown = mem_grow(*list, (size_t)*n, (size_t)*n + 1, sizeof *grown);
    if (!grown)
        return KVF_E_NOMEM;
    *list = grown;
    struct corpus_meta m = {mem_strdup(key), value ? mem_strdup(value) : NULL, count};
    if (!m.key || (value && !m.value)) {
        mem_free_all(m.key, m.value);
        return KVF_E_NOMEM;
    }
    grown[(*n)++] = m;
    return KVF_OK;
}

bool corpus_differ(const struct corpus *c, const char *key)
{
    for (int i = 0; i < c->n_meta; i++)
        if (strcmp(c->meta[i].key, key) == 0)
            return !c->meta[i].value || c->meta[i].n < c->tables;
    return false;
}

bool corpus_share(const struct corpus *c, const char *key)
{
    for (int i = 0; i < c->n_meta; i++)
        if (strcmp(c->meta[i].key, key) == 0)
            return c->meta[i].value && c->meta[i].n == c->tables;
    return false;
}

void corpus_meta_free(struct corpus_meta *list, int n)
{
    for (int i = 0; i < n; i++) {
        mem_free_all(list[i].key, list[i].value);
    }
    mem_free(list);
}

static int64_t least_of(int64_t a, int64_t b) /* -1: none */
{
    if (a < 0)
        return b;
    return b >= 0 && b < a ? b : a;
}

static int merge_rest(struct corpus *c, const char *type, const struct corpus_meta *meta,
                      int n_meta, int64_t least_T, int64_t most_T, struct kvf_diag *d)
{
    for (int k = 0; type[0] && k < c->n_keys; k++) {
        if (c->type[k] && c->type[k] != type[k])
            return kvf_fail(d, KVF_E_FORMAT, "the column %s is of another type than before",
                            c->a->pool->keys[k]);
        c->type[k] = type[k];
    }
    for (int i = 0; i < n_meta; i++) {
        int err = corpus_meta_put(&c->meta, &c->n_meta, meta[i].key, meta[i].value, meta[i].n);
        if (err)
            return err;
    }
    c->least_T = least_of(c->least_T, least_T);
    c->most_T = most_T > c->most_T ? most_T : c->most_T;
    return KVF_OK;
}

/* ---- rows */

static int make_replicates(struct corpus *c, struct row *x, struct kvf_diag *d)
{
    size_t n = (size_t)c->n_replicated * (size_t)c->set.replicates * sizeof *x->replicate;
    size_t few = (size_t)c->n_measures * FEW_WORDS;
    if (++c->n_intervals > MOST_BYTES / n)
        return kvf_fail(d, KVF_E_LIMIT,
                        "the replicates of more than %zu rows need over 4 GiB: ask "
                        "for fewer rows, fewer --replicates or --intervals none",
                        MOST_BYTES / n);
    x->replicate = mem_alloc(n, 1);
    x->few = MEM_NEW(int64_t, few);
    return x->replicate && x->few ? KVF_OK : KVF_E_NOMEM;
}

int corpus_row(struct corpus *c, const char *key, size_t len, bool interval, size_t *ret_row,
               struct kvf_diag *d)
{
    size_t before = c->rows.n;
    int err = rows_put(&c->rows, key, len, ret_row);
    struct row *x = err ? NULL : &c->rows.row[*ret_row];
    if (err)
        return err;
    if (c->rows.n > before) {
        x->interval = interval;
        return interval && c->set.replicates ? make_replicates(c, x, d) : KVF_OK;
    }
    return x->interval == interval ? KVF_OK
                                   : kvf_fail(d, KVF_E_FORMAT,
                                              "some documents have rows of a head `all` and some "
                                              "have none: give --intervals all or none");
}

/* Wraps rather than overflows: numbers from files may be anything (corpus.h has the bounds
 * within which sums are exact). */
static int64_t wrap_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static void add_weighted(int64_t *sum, int64_t v, const int64_t *weight, int n)
{
    for (int k = 0; v && k < n; k++)
        sum[k] = (int64_t)((uint64_t)sum[k] + (uint64_t)weight[k] * (uint64_t)v);
}

/* The mean of n values of a document, in fixed point; each document counts once. */
static void mean_of_document(int64_t v[N_WORDS])
{
    const int64_t one = (int64_t)1 << CORPUS_FRACTION_BITS;
    int64_t n = v[WORD_N], whole = v[WORD_A] / n - (v[WORD_A] % n < 0);
    int64_t rest = (v[WORD_A] - whole * n) << 20; /* of 0 .. n - 1, in 2^-20 */
    /* (rest 2^20 + B + n / 2) / n without leaving 63 bits: n < 2^22 values, each B <= 2^40 */
    int64_t fraction = (rest / n << 20) + ((rest % n << 20) + v[WORD_B] + n / 2) / n;
    v[WORD_A] = whole + fraction / one;
    v[WORD_B] = fraction % one;
    v[WORD_C] = 1;
}

void corpus_keep_few(int64_t *few, int64_t n, const int64_t *words)
{
    if (n < 0 || n >= STATS_FEW - 1)
        return;
    for (; n > 0 && (uint64_t)few[(n - 1) * N_WORDS] > (uint64_t)words[WORD_N]; n--)
        memcpy(few + n * N_WORDS, few + (n - 1) * N_WORDS, N_WORDS * sizeof *few);
    memcpy(few + n * N_WORDS, words, N_WORDS * sizeof *few);
}

static void add_row(struct corpus *c, size_t at, const int64_t *sum, uint64_t id)
{
    int64_t *to = rows_sum(&c->rows, at), *replicate = c->rows.row[at].replicate;
    int64_t *few = c->rows.row[at].few;
    for (int m = 0; m < c->n_measures; m++, sum += N_WORDS, to += N_WORDS) {
        const struct analyzer_measure *measure = &c->a->pool->measures[m];
        int64_t v[N_WORDS];
        memcpy(v, sum, sizeof v);
        if (v[WORD_N] > 0 && measure_kind(measure) == MEASURE_MEAN)
            mean_of_document(v);
        if (few && v[WORD_N] > 0)
            corpus_keep_few(few + m * FEW_WORDS, to[WORD_N],
                            (const int64_t[]){(int64_t)id, v[WORD_A], v[WORD_B], v[WORD_C]});
        to[WORD_N] += v[WORD_N] > 0;
        for (int w = WORD_A; w < N_WORDS; w++)
            to[w] = wrap_add(to[w], v[w]);
        for (int w = 0; replicate && w < measure_words(measure); w++) {
            add_weighted(replicate, v[WORD_A + w], c->weight, c->set.replicates);
            replicate += c->set.replicates;
        }
    }
}

int corpus_add(struct corpus *c, const struct corpus_document *x, struct kvf_diag *d)
{
    int err = add_entry(c, &x->entry, d);
    if (!err)
        err = merge_rest(c, x->type, x->meta, x->n_meta, x->least_T, x->most_T, d);
    if (err)
        return err;
    for (int k = 0; k < c->set.replicates; k++)
        c->weight[k] = rng_poisson1(rng_hash(c->set.seed, x->entry.id, (uint64_t)k, 0));
    c->rows.next = 0;
    for (size_t i = 0; i < x->rows.n; i++) {
        const struct row *r = &x->rows.row[i];
        size_t at;
        if (!rows_has(&x->rows, i))
            continue;
        err = corpus_row(c, x->rows.key.data + r->key_at, r->key_len, r->interval, &at, d);
        if (err)
            return err;
        add_row(c, at, rows_sum(&x->rows, i), x->entry.id);
    }
    c->tables += x->entry.traces;
    c->undefined += x->undefined;
    return KVF_OK;
}

/* ---- merging */

static int add_all(int64_t *to, const int64_t *from, size_t n, struct kvf_diag *d)
{
    for (size_t i = 0; i < n; i++)
        if (__builtin_add_overflow(to[i], from[i], &to[i]))
            return kvf_fail(d, KVF_E_LIMIT, "the sums do not fit into 64 bits");
    return KVF_OK;
}

static int merge_documents(struct corpus *c, const struct corpus *b, struct kvf_diag *d)
{
    size_t n = c->n_entries;
    for (size_t i = 0; i < b->n_entries; i++) {
        struct corpus_entry key = b->entry[i];
        if (n && bsearch(&key, c->entry, n, sizeof key, by_id))
            return kvf_fail(d, KVF_E_ARG, "the document %016llx is in two of the files",
                            (unsigned long long)key.id);
    }
    for (size_t i = 0; i < b->n_entries; i++) {
        int err = add_entry(c, &b->entry[i], d);
        if (err)
            return err;
    }
    return KVF_OK;
}

/* Adds the documents of a list to another one, for each measure; sums: of both rows before they are
 * added. */
static void merge_few(const struct corpus *c, int64_t *to, const int64_t *to_sum,
                      const int64_t *from, const int64_t *from_sum)
{
    for (int m = 0; to && from && m < c->n_measures; m++) {
        int64_t n = to_sum[m * N_WORDS + WORD_N], more = from_sum[m * N_WORDS + WORD_N];
        for (int64_t i = 0; more < STATS_FEW && i < more; i++)
            corpus_keep_few(to + m * FEW_WORDS, n + i, from + m * FEW_WORDS + i * N_WORDS);
    }
}

int corpus_merge(struct corpus *c, const struct corpus *b, struct kvf_diag *d)
{
    int err = corpus_same_arguments(b, c, d);
    if (err)
        return err;
    size_t n_replicates = (size_t)c->n_replicated * (size_t)c->set.replicates;
    corpus_sort(c);
    err = merge_documents(c, b, d);
    if (!err)
        err = merge_rest(c, b->type, b->meta, b->n_meta, b->least_T, b->most_T, d);
    if (err)
        return err;
    for (size_t i = 0; i < b->rows.n; i++) {
        const struct row *r = &b->rows.row[i];
        size_t at;
        err = corpus_row(c, b->rows.key.data + r->key_at, r->key_len, r->interval, &at, d);
        if (err)
            return err;
        merge_few(c, c->rows.row[at].few, rows_sum(&c->rows, at), r->few, rows_sum(&b->rows, i));
        err = add_all(rows_sum(&c->rows, at), rows_sum(&b->rows, i), c->rows.stride, d);
        if (err)
            return err;
        if (!r->replicate)
            continue;
        err = add_all(c->rows.row[at].replicate, r->replicate, n_replicates, d);
        if (err)
            return err;
    }
    c->tables += b->tables;
    c->undefined += b->undefined;
    c->plan.documents += b->plan.documents;
    c->plan.traces += b->plan.traces;
    c->plan.hash += b->plan.hash;
    c->plan.unreadable += b->plan.unreadable;
    return KVF_OK;
}
