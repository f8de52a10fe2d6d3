/* align.c - aligns the tokens of two traces of one text by their bytes (align.h). */
#include <math.h>
#include <string.h>

#include "analyzers/align.h"
#include "analyzers/classes.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/ranks.h"

struct text {
    struct kvf_trace *t;
    struct buf bytes; /* of all tokens but special ones, without the first `skip` bytes */
    size_t skip;
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

static int open_text(struct kvf_trace *t, struct text *x, struct kvf_diag *d)
{
    x->t = t;
    x->T = kvf_n_steps(t);
    x->end = MEM_NEW(size_t, (size_t)x->T);
    x->special = MEM_NEW(unsigned char, (size_t)x->T);
    if (!x->end || !x->special)
        return KVF_E_NOMEM;
    int err = kvf_texts(t);
    return !err && x->T ? mark_special(t, x, d) : err;
}

static int fill_text(struct text *x, struct kvf_diag *d)
{
    size_t skip = x->skip;
    buf_finish(&x->bytes);
    x->bytes = (struct buf){0};
    for (int64_t i = 0; i < x->T; i++) {
        size_t n = 0, drop;
        const char *s = kvf_token(x->t, (uint32_t)i, &n);
        if (!s)
            return kvf_fail(d, KVF_E_NOTFOUND, "--by tokens: a trace lacks the text of token %lld",
                            (long long)i);
        drop = skip < n ? skip : n;
        if (!x->special[i]) {
            buf_add(&x->bytes, s + drop, n - drop);
            skip -= drop;
        }
        x->end[i] = x->bytes.len;
    }
    return x->bytes.err;
}

/* Returns the number of bytes that both texts begin with. */
static size_t common_bytes(const struct text x[2])
{
    size_t n = 0;
    while (n < x[0].bytes.len && n < x[1].bytes.len && x[0].bytes.data[n] == x[1].bytes.data[n])
        n++;
    return n;
}

/* Returns the number of blanks that a text begins with. */
static size_t blanks(const struct buf *b)
{
    size_t n = 0;
    while (n < b->len && b->data[n] == ' ')
        n++;
    return n;
}

/* Removes a reason why the texts differ from byte `at` on that lies in a tokenizer. Returns false
 * if there is none. SentencePiece puts a blank before the text. A vocabulary can have a special
 * token for characters that are ordinary text in the other one, such as <unk>. */
static bool mend(struct text x[2], size_t at)
{
    for (int k = 0; k < 2; k++) {
        const struct buf *own = &x[k].bytes, *other = &x[1 - k].bytes;
        if (blanks(own) > at && !x[0].skip && !x[1].skip && at < other->len) {
            x[k].skip = 1;
            return true;
        }
        for (int64_t i = 0; i < x[k].T && x[k].end[i] <= at; i++) {
            size_t n = 0;
            const char *s = x[k].special[i] && x[k].end[i] == at
                                ? kvf_token(x[k].t, (uint32_t)i, &n)
                                : NULL;
            if (s && n && n <= other->len - at && memcmp(s, other->data + at, n) == 0) {
                x[k].special[i] = 0;
                return true;
            }
        }
    }
    return false;
}

/* Fills both texts so that they have as many bytes in common as possible. */
static int fill_texts(struct text x[2], size_t *ret_common, struct kvf_diag *d)
{
    bool again = true;
    int err = KVF_OK;
    while (!err && again) {
        err = fill_text(&x[0], d);
        if (!err)
            err = fill_text(&x[1], d);
        *ret_common = err ? 0 : common_bytes(x);
        again = !err && mend(x, *ret_common);
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
    int err = open_text(a, &x[0], d);
    if (!err)
        err = open_text(b, &x[1], d);
    if (!err)
        err = fill_texts(x, &common, d);
    if (!err) {
        ret->end = mem_alloc((size_t)x[0].T, sizeof *ret->end);
        err = ret->end ? KVF_OK : KVF_E_NOMEM;
    }
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
