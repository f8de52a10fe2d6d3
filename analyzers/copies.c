/* copies.c - scores of retrieval, induction, duplicate-token and previous-token heads
 * (copies.h). */
#include "analyzers/copies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/answer.h"
#include "base/buf.h"
#include "base/mem.h"

enum { TOP, PREVIOUS, DUPLICATE, FOLLOWER, N_COLUMNS };
static const char *const column_names[N_COLUMNS] = {"copy.top", "copy.previous", "copy.duplicate",
                                                    "copy.follower"};

struct copies_source {
    struct kvf_trace *t;
    int64_t T, a, b;
    int column[N_COLUMNS];
    int64_t *copies;       /* [T] earlier copies of the token */
    double *id, *role;     /* [T] */
    unsigned char *needle; /* [T] 1: a token of the needle */
    unsigned char *copied; /* [T] needle tokens that the current head copied */
    double *v[N_COLUMNS];  /* [T] of the current head */
    char name[24];         /* of the needle */
    struct copies_text text;
};

/* ---- the needle */

static bool is_answer(const struct copies_source *s, int64_t i)
{
    return s->role[i] == KVF_ROLE_ANSWER || s->role[i] == KVF_ROLE_THINK;
}

/* Adds the words of the needle, or of the answer, in lower case with a 0 after each: maximal runs
 * of ASCII letters and digits. */
static int add_words(const struct copies_source *s, bool needle, struct buf *out,
                     struct kvf_diag *d)
{
    bool inside = false;
    for (int64_t i = 0; i < s->T; i++) {
        size_t n = 0;
        if (needle ? !s->needle[i] : !is_answer(s, i))
            continue;
        const char *text = kvf_token(s->t, (uint32_t)i, &n);
        if (!text)
            return kvf_fail(d, KVF_E_NOTFOUND, "the trace lacks the text of token %lld",
                            (long long)i);
        bool gap = needle && i > 0 && !s->needle[i - 1]; /* a span of several ranges */
        for (size_t k = 0; k < n; k++) {
            unsigned char c = (unsigned char)text[k];
            c = c >= 'A' && c <= 'Z' ? (unsigned char)(c - 'A' + 'a') : c;
            bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
            if (inside && (!word || (gap && k == 0)))
                buf_char(out, 0);
            if (word)
                buf_char(out, (char)c);
            inside = word;
        }
    }
    if (inside)
        buf_char(out, 0);
    return out->err;
}

/* Fraction of the needle's words that the answer has, each as often as the answer has it. The used
 * words of the answer are overwritten. */
static double recall_of(const struct buf *needle, struct buf *answer)
{
    int64_t n = 0, found = 0;
    for (size_t i = 0; i < needle->len; i += strlen(needle->data + i) + 1, n++) {
        const char *word = needle->data + i;
        for (size_t k = 0; k < answer->len; k += strlen(answer->data + k) + 1)
            if (strcmp(answer->data + k, word) == 0) {
                answer->data[k] = '-';
                found++;
                break;
            }
    }
    return n ? (double)found / (double)n : NAN;
}

static int judge_answer(struct copies_source *s, struct kvf_diag *d)
{
    struct buf needle = {0}, answer = {0};
    int err = kvf_texts(s->t);
    if (!err)
        err = add_words(s, true, &needle, d);
    if (!err)
        err = add_words(s, false, &answer, d);
    if (!err)
        s->text.recall = recall_of(&needle, &answer);
    buf_finish(&needle);
    buf_finish(&answer);
    return err;
}

static int find_needle(struct copies_source *s, const char *name, struct kvf_diag *d)
{
    bool found;
    snprintf(s->name, sizeof s->name, "%.16s", name ? name : "needle");
    int err = span_mark(s->t, name ? name : s->name, s->T, s->needle, &found, d);
    if (!err && name && !found)
        return kvf_fail(d, KVF_E_ARG,
                        "--needle: the run has no span '%s'; kvfate run --spans names the spans of "
                        "a prompt",
                        name);
    if (err || !found)
        return err;
    s->text.needle = s->name;
    for (int64_t i = 0; i < s->T; i++)
        s->text.needle_tokens += s->needle[i];
    return judge_answer(s, d);
}

/* ---- copies of tokens */

struct token {
    double id;
    int64_t at;
};

static int by_id(const void *a, const void *b)
{
    const struct token *p = a, *q = b;
    if (p->id != q->id)
        return (p->id > q->id) - (p->id < q->id);
    return (p->at > q->at) - (p->at < q->at);
}

static int count_copies(struct copies_source *s)
{
    struct token *all = MEM_NEW(struct token, (size_t)s->T);
    if (!all)
        return KVF_E_NOMEM;
    for (int64_t i = 0; i < s->T; i++)
        all[i] = (struct token){s->id[i], i};
    if (s->T)
        qsort(all, (size_t)s->T, sizeof *all, by_id);
    for (int64_t k = 1; k < s->T; k++)
        if (all[k].id == all[k - 1].id)
            s->copies[all[k].at] = s->copies[all[k - 1].at] + 1;
    mem_free(all);
    return KVF_OK;
}

/* ---- scores */

/* Sums over the queries [a, b); retrieval is left undefined. */
static struct copies scores_of(const struct copies_source *s, double *const v[N_COLUMNS])
{
    double previous = 0, duplicate = 0, follower = 0, queries = 0, with = 0, targets = 0;
    for (int64_t t = s->a < 1 ? 1 : s->a; t < s->b; t++) {
        previous += v[PREVIOUS][t];
        queries++;
        if (!s->copies[t])
            continue;
        duplicate += v[DUPLICATE][t];
        follower += v[FOLLOWER][t];
        targets += (double)s->copies[t];
        with++;
    }
    return (struct copies){.previous = queries > 0 ? previous / queries : NAN,
                           .duplicate = with > 0 ? duplicate / with : NAN,
                           .induction = with > 0 ? follower / targets : NAN,
                           .induction_sum = with > 0 ? follower / with : NAN,
                           .retrieval = NAN};
}

/* Scores of a head whose weights are all 1 / (t + 1). */
static void find_uniform(struct copies_source *s)
{
    for (int64_t t = 0; t < s->T; t++) {
        s->v[PREVIOUS][t] = 1 / (double)(t + 1);
        s->v[DUPLICATE][t] = s->v[FOLLOWER][t] = (double)s->copies[t] / (double)(t + 1);
    }
    s->text.uniform = scores_of(s, s->v);
}

static void retrieve(struct copies_source *s, struct copies *ret)
{
    memset(s->copied, 0, (size_t)s->T);
    for (int64_t t = 0; t + 1 < s->T; t++) {
        double top = s->v[TOP][t];
        if (!is_answer(s, t + 1) || !(top >= 0 && top <= (double)t))
            continue;
        int64_t i = (int64_t)top;
        s->copied[i] = s->needle[i] && s->id[i] == s->id[t + 1] ? 1 : s->copied[i];
    }
    for (int64_t i = 0; i < s->T; i++)
        ret->copied += s->copied[i];
    if (s->text.needle_tokens && s->text.recall > COPIES_SUCCESS)
        ret->retrieval = (double)ret->copied / (double)s->text.needle_tokens;
}

int copies_read(struct copies_source *s, const struct head *h, struct copies *ret,
                struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int c = 0; !err && c < N_COLUMNS; c++)
        err = kvf_read_f64(s->t, s->column[c], h->layer, h->index, 0, (uint32_t)s->T, s->v[c], d);
    if (err)
        return err;
    *ret = scores_of(s, s->v);
    retrieve(s, ret);
    return KVF_OK;
}

/* ---- opening */

/* *ret_any: the trace has a column of the probe. Then it must have all. */
static int find_columns(struct copies_source *s, bool *ret_any, struct kvf_diag *d)
{
    struct lacks l = {.n = 0};
    int err = KVF_OK;
    *ret_any = false;
    for (int c = 0; c < N_COLUMNS && s->T > 0; c++)
        *ret_any = *ret_any || kvf_find(s->t, column_names[c]) >= 0;
    if (!*ret_any)
        return KVF_OK;
    for (int c = 0; !err && c < N_COLUMNS; c++)
        err = columns_find(s->t, column_names[c], KVF_SPACE_QUERY, KVF_AXIS_STEP, &l, &s->column[c],
                           d);
    return columns_refuse(&l, NULL, err, d);
}

static int read_tokens(struct copies_source *s, struct kvf_diag *d)
{
    size_t n = (size_t)s->T;
    int id, role, err = column_need(s->t, "tokens.id", &id, d);
    if (!err)
        err = column_need(s->t, "tokens.role", &role, d);
    if (err)
        return err;
    s->copies = MEM_NEW(int64_t, n);
    s->id = MEM_NEW(double, n);
    s->role = MEM_NEW(double, n);
    s->needle = MEM_NEW(unsigned char, n);
    s->copied = MEM_NEW(unsigned char, n);
    for (int c = 0; c < N_COLUMNS; c++)
        s->v[c] = MEM_NEW(double, n);
    if (!s->copies || !s->id || !s->role || !s->needle || !s->copied || !s->v[TOP]
        || !s->v[PREVIOUS] || !s->v[DUPLICATE] || !s->v[FOLLOWER])
        return KVF_E_NOMEM;
    err = kvf_read_f64(s->t, id, 0, 0, 0, (uint32_t)n, s->id, d);
    if (!err)
        err = kvf_read_f64(s->t, role, 0, 0, 0, (uint32_t)n, s->role, d);
    if (!err)
        err = count_copies(s);
    for (int64_t i = 0; !err && i < s->T; i++)
        s->text.answer_tokens += is_answer(s, i);
    return err;
}

int copies_open(struct kvf_trace *t, const char *needle, int64_t a, int64_t b,
                struct copies_source **ret, struct kvf_diag *d)
{
    bool any = false;
    struct copies_source *s = MEM_NEW(struct copies_source, 1);
    if (!s)
        return KVF_E_NOMEM;
    *s = (struct copies_source){
        .t = t, .T = kvf_n_steps(t), .a = a, .b = b, .text = {.recall = NAN}};
    int err = find_columns(s, &any, d);
    if (!err && !any && needle)
        err = kvf_fail(d, KVF_E_ARG,
                       "--needle needs the columns copy.*: record the run with --probes "
                       "paper,copies");
    if (!err && any)
        err = read_tokens(s, d);
    if (!err && any)
        err = find_needle(s, needle, d);
    if (!err && any) {
        find_uniform(s);
        *ret = s;
        return KVF_OK;
    }
    copies_close(s);
    if (!err)
        *ret = NULL;
    return err;
}

void copies_close(struct copies_source *s)
{
    if (!s)
        return;
    mem_free_all(s->copies, s->id, s->role, s->needle, s->copied);
    for (int c = 0; c < N_COLUMNS; c++)
        mem_free(s->v[c]);
    mem_free(s);
}

const struct copies_text *copies_text(const struct copies_source *s)
{
    return &s->text;
}
