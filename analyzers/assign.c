/* assign.c - solves the assignment problem in O(n^3) (assign.h). */
#include <math.h>

#include "analyzers/assign.h"
#include "base/mem.h"

struct search {
    const double *cost;
    size_t rows, columns;
    double *u, *v;       /* [rows], [columns + 1] */
    size_t *row;         /* [columns + 1] of a column; rows: none; the last is the start */
    size_t *from;        /* [columns] the column before it on the shortest path */
    double *far;         /* [columns] least reduced cost so far */
    unsigned char *done; /* [columns + 1] */
};

/* One step of Dijkstra's from column at, which has a row: the nearest column next. */
static size_t nearest(struct search *s, size_t at)
{
    size_t r = s->row[at], next = s->columns;
    const double *cost = s->cost + r * s->columns;
    double least = INFINITY;
    s->done[at] = 1;
    for (size_t c = 0; c < s->columns; c++) {
        if (s->done[c])
            continue;
        double reduced = cost[c] - s->u[r] - s->v[c];
        if (reduced < s->far[c]) {
            s->far[c] = reduced;
            s->from[c] = at;
        }
        if (s->far[c] < least) {
            least = s->far[c];
            next = c;
        }
    }
    for (size_t c = 0; c <= s->columns; c++) {
        if (s->done[c]) {
            s->u[s->row[c]] += least;
            s->v[c] -= least;
        } else {
            s->far[c] -= least; /* the start is done: this is a column */
        }
    }
    return next;
}

static void add_row(struct search *s, size_t r)
{
    size_t at = s->columns;
    for (size_t c = 0; c < s->columns; c++) {
        s->far[c] = INFINITY;
        s->done[c] = 0;
    }
    s->done[s->columns] = 0;
    s->row[at] = r;
    do
        at = nearest(s, at);
    while (s->row[at] != s->rows);
    while (at != s->columns) { /* each takes over the row of its predecessor */
        s->row[at] = s->row[s->from[at]];
        at = s->from[at];
    }
}

int assign_least(const double *cost, size_t rows, size_t columns, size_t *column, double *u,
                 double *v)
{
    struct search s = {cost,
                       rows,
                       columns,
                       MEM_NEW(double, rows + 1),
                       MEM_NEW(double, columns + 1),
                       MEM_NEW(size_t, columns + 1),
                       MEM_NEW(size_t, columns),
                       MEM_NEW(double, columns),
                       MEM_NEW(unsigned char, columns + 1)};
    int err = s.u && s.v && s.row && s.from && s.far && s.done ? KVF_OK : KVF_E_NOMEM;
    for (size_t c = 0; !err && c <= columns; c++)
        s.row[c] = rows;
    for (size_t r = 0; !err && r < rows; r++)
        add_row(&s, r);
    for (size_t c = 0; !err && c < columns; c++)
        if (s.row[c] < rows)
            column[s.row[c]] = c;
    for (size_t r = 0; !err && u && r < rows; r++)
        u[r] = s.u[r];
    for (size_t c = 0; !err && v && c < columns; c++)
        v[c] = s.v[c];
    void *const all[] = {s.u, s.v, s.row, s.from, s.far, s.done};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    return err;
}
