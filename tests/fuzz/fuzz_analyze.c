/* fuzz_analyze.c - runs an analysis of a trace with correct checksums and arbitrary contents. Reads
 * every cell of the table and the summary, and adds the table to a corpus. Also compares two
 * traces, and checks a trace. */
#include "any_analysis.h"
#include "base/buf.h"
#include "fuzz.h"
#include "studies/corpus.h"
#include "studies/diff.h"
#include "studies/part.h"
#include "tests/scoped.h"

/* Limits for corpus sums. A sum costs some microseconds per row, and options can ask for any number
 * of rows: with sanitizers, those of `density --bins 55292` took five seconds. */
enum { MOST_CELLS = 20000, MOST_ROWS = 20000 };

static volatile double sink;

static void walk(const struct table *t)
{
    MUST(table_err(t) == KVF_OK && table_rows(t) >= 0);
    int64_t left = MOST_CELLS;
    for (int c = 0; c < table_cols(t); c++)
        for (int64_t r = 0; r < table_rows(t) && left > 0; r++, left--)
            if (table_col_type(t, c) == TABLE_STR)
                sink += (double)strlen(table_str(t, c, r));
            else
                sink += table_real(t, c, r);
}

/* Adds the table to a corpus as one document. The sums must be accepted or rejected with a
 * message. */
static void add_up(const struct any_analysis *x, const struct table *t)
{
    static const struct corpus_settings settings = {8, 1, CORPUS_AUTO};
    OWNED(corpus_destroy) struct corpus *c = NULL;
    OWNED(corpus_document_destroy) struct corpus_document *one = NULL;
    OWNED(table_destroy) struct table *sums = NULL;
    struct kvf_diag d = {""};
    SCOPED(buf_finish) struct buf said = {0};
    MUST(corpus_create(x->a, &x->args, &settings, &c) == KVF_OK);
    MUST(corpus_document_create(c, &one) == KVF_OK);
    corpus_document_begin(one, 5);
    int err = corpus_document_take(one, t, &d);
    if (!err)
        err = corpus_add(c, one, &d);
    MUST(err == KVF_OK || d.text[0]);
    if (!err && corpus_table(c, &sums, &d) == KVF_OK) {
        walk(sums);
        corpus_describe(c, sums, &said);
    }
}

static void analyse(struct source *s)
{
    struct any_analysis x;
    struct kvf_diag d = {""};
    SCOPED(buf_finish) struct buf said = {0};
    if (!any_analysis(s, &x))
        return;
    struct any_open o = any_open(s);
    OWNED(table_destroy) struct table *t = o.t ? any_run(&x, o.t, &d) : NULL;
    if (t) {
        walk(t);
        x.a->describe(t, &said);
        MUST(said.err == KVF_OK);
        if (x.a->pool && table_rows(t) <= MOST_ROWS)
            add_up(&x, t);
    }
    any_close(&o);
}

/* Compares two traces, made from the same bytes or from consecutive ones. */
static void compare(struct source *s, bool parts)
{
    struct source again = *s;
    bool same = take(s, 1) % 2;
    struct kvf_diag d = {""};
    struct any_open a = any_open(s), b = same ? any_open((take(&again, 1), &again)) : any_open(s);
    OWNED(table_destroy) struct table *t = NULL;
    SCOPED(buf_finish) struct buf said = {0};
    bool equal = false;
    if (a.t && b.t && parts) {
        OWNED(part_free) struct part *p = NULL;
        int err = part_compare(a.t, b.t, &(struct part_args){NULL, true}, &p, &d);
        MUST(err == KVF_OK || d.text[0]);
        if (!err && part_heads(p, &t, &d) == KVF_OK)
            walk(t);
    } else if (a.t && b.t) {
        int err = diff_compare(a.t, b.t, &(struct diff_args){false}, &t, &equal, &d);
        MUST(err == KVF_OK || d.text[0]);
        if (!err) {
            walk(t);
            diff_describe(t, &said);
        }
    }
    any_close(&a);
    any_close(&b);
}

static void said_of(void *ctx, const char *line)
{
    MUST(line[0] && ++*(int *)ctx <= KVF_MAX_FINDINGS);
}

static void judge(struct source *s)
{
    struct any_open o = any_open(s);
    int said = 0, n = -1;
    if (o.t) {
        MUST(kvf_judge(o.t, 1, said_of, &said, &n) == KVF_OK);
        MUST(n == said);
    }
    any_close(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct source s = {data, n};
    unsigned what = (unsigned)take(&s, 1);
    if (n > 1024)
        return 0;
    if (what < 224)
        analyse(&s);
    else if (what < 240)
        compare(&s, what % 2);
    else
        judge(&s);
    return 0;
}
