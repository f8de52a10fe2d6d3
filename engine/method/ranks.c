/* ranks.c - compacts evidence when entries of a head are evicted and later slots move up.
 *
 * A window has many rows, and each is read again only when it drops out of the window.  If few
 * entries are evicted, their slots are recorded in `left`, and a row is compacted when it is read
 * next (evidence_close_row).  A row has no weights of younger entries, so slots that were filled
 * since do not matter. */
#include <string.h>

#include "engine/method/evidence.h"

enum { FEW = 16, MAX_LEFT = EVIDENCE_LEFT };

static size_t head_at(const struct evidence *e, int layer, int head)
{
    return (size_t)layer * (size_t)e->shape.n_kv_heads + (size_t)head;
}

/* Compacts an array of n elements.  Each run of kept elements moves at once. */
static void keep_some(void *array, size_t size, const unsigned char *keep, int n)
{
    unsigned char *p = array;
    size_t to = 0;
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && keep[end] == keep[i];)
            end++;
        if (!keep[i])
            continue;
        if (to != (size_t)i)
            memmove(p + to * size, p + (size_t)i * size, (size_t)(end - i) * size);
        to += (size_t)(end - i);
    }
}

/* Compacts an array of n elements without the slots gone[0..m), in rising order. */
static void lose(void *array, size_t size, const int32_t *gone, int m, int n)
{
    unsigned char *p = array;
    size_t to = m > 0 ? (size_t)gone[0] : 0;
    for (int i = 0; i < m && gone[i] < n; i++) {
        size_t from = (size_t)gone[i] + 1;
        size_t end = i + 1 < m && gone[i + 1] < n ? (size_t)gone[i + 1] : (size_t)n;
        memmove(p + to * size, p + from * size, (end - from) * size);
        to += end - from;
    }
}

/* Lists the slots removed after the first `known`, in rising order, by their numbers at that time.
 */
static int list_gone(const struct evidence *e, size_t head, int known, int32_t *gone)
{
    const int32_t *left = e->left + head * MAX_LEFT;
    int m = 0;
    for (int k = e->n_left[head] - 1; k >= known; k--) { /* before it left, slots behind it were
                                                            one further */
        int32_t slot = left[k % MAX_LEFT];
        int at = m++;
        for (; at > 0 && gone[at - 1] >= slot; at--)
            gone[at] = gone[at - 1] + 1;
        gone[at] = slot;
    }
    return m;
}

void evidence_close_row(const struct evidence *e, size_t head, int row)
{
    int32_t gone[MAX_LEFT];
    int per = e->shape.n_heads / e->shape.n_kv_heads, m = 0, known = e->n_left[head];
    for (size_t q = head * (size_t)per; q < (head + 1) * (size_t)per; q++) {
        struct row_ranks *r = &e->row_ranks[q * (size_t)e->ring + (size_t)row];
        if (r->n_left == e->n_left[head])
            continue;
        if (r->n_left != known)
            m = list_gone(e, head, known = r->n_left, gone);
        lose(evidence_ring_row(e, q, row), sizeof *e->rows, gone, m, r->n);
        for (int n = r->n, i = 0; i < m && gone[i] < n; i++)
            r->n--;
        r->n_left = e->n_left[head];
    }
}

static int held_rows(const struct evidence *e, size_t query)
{
    return e->n_rows[query] < e->ring ? e->n_rows[query] : e->ring;
}

void evidence_close_rows(const struct evidence *e, size_t head)
{
    int per = e->shape.n_heads / e->shape.n_kv_heads, held = 0;
    for (size_t q = head * (size_t)per; q < (head + 1) * (size_t)per; q++)
        held = held_rows(e, q) > held ? held_rows(e, q) : held;
    for (int w = 0; e->n_left[head] > 0 && w < held; w++)
        evidence_close_row(e, head, w);
}

/* Moves a weight in all rows since the entry was appended.  For the newest entry, which fills an
 * open slot, this is one row. */
static void move_in_rows(struct evidence *e, size_t head, size_t query, int from, int to)
{
    int32_t born = e->born[head * (size_t)e->cap + (size_t)to];
    for (int age = 0; age < held_rows(e, query); age++) {
        int at = (e->n_rows[query] - 1 - age) % e->ring;
        float *row = evidence_ring_row(e, query, at);
        if (e->row_t[query * (size_t)e->ring + (size_t)at] < born)
            break;
        evidence_close_row(e, head, at);
        row[to] = row[from];
    }
}

void evidence_move(struct evidence *e, int layer, int head, int from, int to)
{
    struct evidence_array list[EVIDENCE_ARRAYS];
    size_t per = (size_t)(e->shape.n_heads / e->shape.n_kv_heads), at = head_at(e, layer, head);
    if (e->kinds & (EVIDENCE_KEYS | EVIDENCE_PAGES))
        evidence_move_key(e, layer, head, from, to);
    for (int i = 0, n = evidence_arrays(e, layer, head, list); i < n; i++)
        for (int r = 0; r < list[i].rows; r++) {
            unsigned char *p = list[i].first + (size_t)r * list[i].ld;
            memcpy(p + (size_t)to * list[i].size, p + (size_t)from * list[i].size, list[i].size);
        }
    for (size_t q = at * per; e->kinds & EVIDENCE_WINDOW && q < (at + 1) * per; q++)
        move_in_rows(e, at, q, from, to);
}

/* Returns the minimum of n_left over all rows.  Rows are read in any order, so it need not be that
 * of the oldest row. */
static int least_known(const struct evidence *e, size_t head)
{
    int per = e->shape.n_heads / e->shape.n_kv_heads, least = e->n_left[head];
    for (size_t q = head * (size_t)per; q < (head + 1) * (size_t)per; q++)
        for (int w = 0; w < held_rows(e, q); w++) {
            int known = e->row_ranks[q * (size_t)e->ring + (size_t)w].n_left;
            least = known < least ? known : least;
        }
    return least;
}

/* Records evicted slots.  Compacts all rows first if the record would overflow. */
static void note_left(struct evidence *e, size_t head, const int32_t *gone, int m)
{
    int room = MAX_LEFT - m;
    if (e->n_left[head] - e->all_know[head] > room)
        e->all_know[head] = least_known(e, head);
    if (e->n_left[head] - e->all_know[head] > room) {
        evidence_close_rows(e, head);
        e->all_know[head] = e->n_left[head];
    }
    for (int i = m - 1; i >= 0;
         i--) /* from the last, so that the numbers of earlier slots stay valid */
        e->left[head * MAX_LEFT + (size_t)(e->n_left[head]++ % MAX_LEFT)] = gone[i];
}

enum { STRETCH = 512 }; /* slots for which indices are computed at once */

/* Compacts all rows of a query head.  Runs of kept slots can be short here, so it moves single
 * weights, by indices that all rows share. */
static void keep_rows(struct evidence *e, size_t query, const unsigned char *keep, int n)
{
    int16_t from[STRETCH];
    int to = 0, held = held_rows(e, query);
    for (int i0 = 0; i0 < n; i0 += STRETCH) {
        int end = n - i0 < STRETCH ? n - i0 : STRETCH, m = 0;
        for (int i = 0; i < end; i++) {
            from[m] = (int16_t)i;
            m += keep[i0 + i] != 0;
        }
        for (int w = 0; w < held && !(to == i0 && m == end); w++) {
            const float *row = evidence_ring_row(e, query, w) + i0;
            float *out = evidence_ring_row(e, query, w) + to;
            for (int i = 0; i < m; i++)
                out[i] = row[from[i]];
        }
        to += m;
    }
    for (int w = 0; w < held; w++)
        e->row_ranks[query * (size_t)e->ring + (size_t)w].n = to;
}

/* Compacts a row of an array.  The leading `first` elements do not move. */
static void close_array(const struct evidence_array *a, int row, const int32_t *gone, int m,
                        const unsigned char *keep, int first, int n)
{
    unsigned char *p = a->first + (size_t)row * a->ld;
    if (m >= 0)
        lose(p, a->size, gone, m, n);
    else
        keep_some(p + (size_t)first * a->size, a->size, keep + first, n - first);
}

void evidence_keep(struct evidence *e, int layer, int head, const unsigned char *keep, int n)
{
    int32_t gone[FEW];
    int per = e->shape.n_heads / e->shape.n_kv_heads, m = cache_list_gone(keep, n, FEW, gone);
    size_t at = head_at(e, layer, head);
    struct evidence_array list[EVIDENCE_ARRAYS];
    const unsigned char *goes = n > 0 ? memchr(keep, 0, (size_t)n) : NULL;
    int first = goes ? (int)(goes - keep) : n;
    if (e->kinds & (EVIDENCE_KEYS | EVIDENCE_PAGES))
        for (int i = first, to = first; i < n; i++) {
            if (keep[i] && to != i)
                evidence_move_key(e, layer, head, i, to);
            to += keep[i] != 0;
        }
    for (int i = 0, k = evidence_arrays(e, layer, head, list); i < k; i++)
        for (int r = 0; r < list[i].rows; r++)
            close_array(&list[i], r, gone, m, keep, first, n);
    if (!(e->kinds & EVIDENCE_WINDOW))
        return;
    if (m >= 0) {
        note_left(e, at, gone, m);
        return;
    }
    evidence_close_rows(e, at);
    for (size_t q = at * (size_t)per; q < (at + 1) * (size_t)per; q++)
        keep_rows(e, q, keep, n);
}
