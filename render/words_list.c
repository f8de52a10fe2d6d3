/* words_list.c - reads, selects and sorts the rows of the table words. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "render/cells.h"
#include "render/words_list.h"

static double cell(const struct table *t, int col, int64_t r)
{
    return col < 0 ? NAN : table_real(t, col, r);
}

static int down(double a, double b)
{
    return isnan(a) || isnan(b) ? isnan(a) - isnan(b) : (a < b) - (a > b);
}

static int by_place(const struct word_row *a, const struct word_row *b)
{
    return (a->place > b->place) - (a->place < b->place);
}

static int by_ratio(const void *a, const void *b)
{
    const struct word_row *p = a, *q = b;
    int k = down(p->kept, q->kept);
    return k ? k : by_place(p, q);
}

static int by_count(const void *a, const void *b)
{
    const struct word_row *p = a, *q = b;
    int k = down(p->count, q->count);
    return k ? k : by_place(p, q);
}

/* Fills the rows.  The interval columns are low and high in tables of several documents. */
static void fill(const struct table *t, struct words_list *w)
{
    int word = table_find(t, "word"), count = table_find(t, "count");
    int base = table_find(t, "base_count"), share = numeric_column(t, "share");
    int base_share = numeric_column(t, "base_share"), low = numeric_column(t, "low");
    int high = numeric_column(t, "high");
    double held = 0, all = 0;
    w->pooled = share < 0 || base_share < 0;
    for (int64_t r = 0; r < w->all; r++) {
        struct word_row *x = &w->row[w->n];
        *x = (struct word_row){.count = table_real(t, count, r),
                               .base = table_real(t, base, r),
                               .share = cell(t, share, r),
                               .base_share = cell(t, base_share, r),
                               .low = cell(t, low, r),
                               .high = cell(t, high, r),
                               .place = r};
        if (!(x->base > 0) || !isfinite(x->count))
            continue;
        x->word = table_str(t, word, r);
        x->kept = x->count / x->base;
        held += x->count;
        all += x->base;
        w->n++;
    }
    w->rate = all > 0 ? held / all : NAN;
    for (int64_t k = 0; k < w->n; k++)
        w->row[k].lift = w->pooled ? w->row[k].kept / w->rate
                                   : w->row[k].share / w->row[k].base_share;
}

int words_read(const struct table *t, enum words_sort sort, struct words_list *ret)
{
    *ret = (struct words_list){.all = table_rows(t)};
    ret->row = mem_alloc((size_t)ret->all + 1, sizeof *ret->row);
    if (!ret->row)
        return KVF_E_NOMEM;
    fill(t, ret);
    if (sort != WORDS_TABLE)
        qsort(ret->row, (size_t)ret->n, sizeof *ret->row,
              sort == WORDS_COUNT ? by_count : by_ratio);
    return KVF_OK;
}

void words_free(struct words_list *w)
{
    mem_free(w->row);
    *w = (struct words_list){0};
}
