/* align.c - aligns the tokens of two traces of one text by their bytes (align.h). */
#include <math.h>

#include "analyzers/align.h"
#include "analyzers/classes.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/ranks.h"

struct text {
    struct buf bytes;
    size_t *end;            /* [T] in bytes */
    unsigned char *special; /* [T] */
    int64_t T;
};

static int mark_special(struct kvf_trace *t, struct text *x, struct kvf_diag *d)
{
    struct classes *c = NULL;
    int err = classes_open(NULL, &c, d);
    if (!err)
        err = classes_of_trace(c, t, x->special, d);
    classes_close(c);
    for (int64_t i = 0; !err && i < x->T; i++)
        x->special[i] = x->special[i] == CLASS_SPECIAL;
    return err;
}

static int read_text(struct kvf_trace *t, struct text *x, struct kvf_diag *d)
{
    x->T = kvf_n_steps(t);
    x->end = MEM_NEW(size_t, (size_t)x->T);
    x->special = MEM_NEW(unsigned char, (size_t)x->T);
    if (!x->end || !x->special)
        return KVF_E_NOMEM;
    int err = kvf_texts(t);
    if (!err && x->T)
        err = mark_special(t, x, d);
    for (int64_t i = 0; !err && i < x->T; i++) {
        size_t n = 0;
        const char *s = kvf_token(t, (uint32_t)i, &n);
        if (!s)
            return kvf_fail(d, KVF_E_NOTFOUND, "--by tokens: a trace lacks the text of token %lld",
                            (long long)i);
        if (!x->special[i])
            buf_add(&x->bytes, s, n);
        x->end[i] = x->bytes.len;
        err = x->bytes.err;
    }
    return err;
}

/* Walks both lists of ends; a piece closes where they meet. */
static void pieces(const struct text x[2], size_t common, int64_t t0, int64_t t1,
                   struct alignment *ret)
{
    int64_t at[2] = {0, 0}, first = 0;
    size_t from = 0;
    while (at[0] < x[0].T && at[1] < x[1].T) {
        size_t a = x[0].end[at[0]], b = x[1].end[at[1]];
        if (a > common || b > common)
            break;
        at[0] += a <= b;
        at[1] += b <= a;
        if (a != b)
            continue;
        if (a > from && first >= t0 && first < t1) {
            ret->end[ret->n][0] = at[0];
            ret->end[ret->n++][1] = at[1];
            ret->bytes += (int64_t)(a - from);
        } else if (ret->n == 0) { /* the range has not begun, or only special tokens so far */
            ret->start[0] = at[0];
            ret->start[1] = at[1];
        }
        from = a;
        first = at[0];
    }
}

int align_texts(struct kvf_trace *a, struct kvf_trace *b, int64_t t0, int64_t t1,
                struct alignment *ret, struct kvf_diag *d)
{
    struct text x[2] = {{.T = 0}, {.T = 0}};
    size_t common = 0;
    *ret = (struct alignment){.n = 0};
    int err = read_text(a, &x[0], d);
    if (!err)
        err = read_text(b, &x[1], d);
    if (!err) {
        ret->end = mem_alloc((size_t)x[0].T, sizeof *ret->end);
        err = ret->end ? KVF_OK : KVF_E_NOMEM;
    }
    while (!err && common < x[0].bytes.len && common < x[1].bytes.len
           && x[0].bytes.data[common] == x[1].bytes.data[common])
        common++;
    if (!err) {
        pieces(x, common, t0, t1, ret);
        for (int k = 0; k < 2; k++) {
            ret->special[k] = x[k].special;
            x[k].special = NULL;
        }
    }
    if (!err && ret->n < 2)
        err = kvf_fail(d, KVF_E_NOTFOUND,
                       "--by tokens: the texts have no two tokens in common "
                       "before they part");
    for (int k = 0; k < 2; k++) {
        buf_finish(&x[k].bytes);
        mem_free_all(x[k].end, x[k].special);
    }
    if (err)
        align_free(ret);
    return err;
}

void align_free(struct alignment *x)
{
    mem_free_all(x->end, x->special[0], x->special[1]);
    *x = (struct alignment){.n = 0};
}

static void gather(const struct alignment *x, int side, bool sum, const double *v, double *piece)
{
    int64_t i = x->start[side];
    for (int64_t k = 0; k < x->n; k++) {
        double s = 0;
        int64_t n = 0;
        for (; i < x->end[k][side]; i++) {
            if (x->special[side][i])
                continue;
            s += v[i];
            n++;
        }
        piece[k] = sum ? s : s / (double)n;
    }
}

/* NaN where correlation is undefined. */
static int standardise(double *piece, int64_t n, float *to)
{
    double mean = (double)(n + 1) / 2, squares = 0;
    bool defined = true;
    for (int64_t k = 0; k < n; k++)
        defined = defined && !isnan(piece[k]);
    int err = defined ? ranks_average(piece, (size_t)n, piece) : KVF_OK;
    for (int64_t k = 0; !err && k < n; k++)
        squares += (piece[k] - mean) * (piece[k] - mean);
    for (int64_t k = 0; !err && k < n; k++)
        to[k] = defined && squares > 0 ? (float)((piece[k] - mean) / sqrt(squares)) : NAN;
    return err;
}

int align_ranks(struct kvf_trace *t, int column, const struct head_list *heads,
                const struct alignment *x, int side, bool sum, float **ret, struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(t);
    double *v = MEM_NEW(double, T), *piece = MEM_NEW(double, (size_t)x->n);
    float *all = mem_alloc((size_t)heads->n, (size_t)x->n * sizeof(float));
    int err = v && piece && all ? KVF_OK : KVF_E_NOMEM;
    for (int h = 0; !err && h < heads->n; h++) {
        err = kvf_read_f64(t, column, heads->head[h].layer, heads->head[h].index, 0, T, v, d);
        if (err)
            break;
        gather(x, side, sum, v, piece);
        err = standardise(piece, x->n, all + (size_t)h * (size_t)x->n);
    }
    mem_free_all(v, piece);
    if (err)
        mem_free(all);
    else
        *ret = all;
    return err;
}
