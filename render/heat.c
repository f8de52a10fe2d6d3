/* heat.c - rasterises alpha and retention maps column by column (heat.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "render/clamp.h"
#include "render/heat.h"

enum {
    LANES = 2,
    PACES = 4, /* decay: numbers side by side; groups of tokens by lifetime */
    MAX_AREAS = 1 << 20
}; /* areas stored for all maps of a window */

long heat_scratch(int h)
{
    return (4 * LANES + 1) * ((long)h + 2);
}

static void clear(double *v, long n)
{
    memset(v, 0, (size_t)n * sizeof *v);
}

/* Iterates over the tokens of a pixel column.  The weight of a token is its width inside the
 * column. */
struct walk {
    double x0, x1;
    long i, r; /* r: row in which i is created; 0 for earlier tokens, h for later ones */
    double weight;
};

static struct walk walk_begin(const struct heat *m, int c)
{
    double x0 = (double)m->n * c / m->w, x1 = (double)m->n * (c + 1) / m->w;
    return (struct walk){x0, x1, (long)x0 - 1, 0, 0};
}

static int walk_next(const struct heat *m, struct walk *k)
{
    do {
        k->i++;
        if (k->i >= m->n || (double)k->i >= k->x1)
            return 0;
        double a = (double)k->i, b = a + 1;
        k->weight = (k->x1 < b ? k->x1 : b) - (k->x0 > a ? k->x0 : a);
    } while (k->weight <= 0);
    while (k->r < m->h
           && (m->row[k->r + 1] < k->i || (m->row[k->r + 1] == k->i && !(m->part[k->r + 1] > 0))))
        k->r++;
    return 1;
}

static double row_end(const struct heat *m, long r)
{
    return (double)m->row[r + 1] + m->part[r + 1];
}

static double row_begin(const struct heat *m, long r)
{
    return (double)m->row[r] + m->part[r];
}

/* Computes the area with t >= i.  A token counts with its part of the row of its creation and fully
 * in the rows below.  whole[r] accumulates its weight there. */
static void area_of(const struct heat *m, int c, double *whole, double *ret_area)
{
    struct walk k = walk_begin(m, c);
    double height = (double)(m->to - m->from) / m->h, running = 0;
    clear(ret_area, m->h);
    clear(whole, m->h + 2);
    while (walk_next(m, &k) && k.r < m->h) {
        double begin = row_begin(m, k.r), born = (double)k.i;
        ret_area[k.r] += k.weight * (row_end(m, k.r) - (born > begin ? born : begin));
        whole[k.r + 1] += k.weight;
    }
    for (int r = 0; r < m->h; r++) {
        running += whole[r];
        ret_area[r] += running * height;
    }
}

static void cover_of(const struct heat *m, int c, double *whole, double *ret_area)
{
    if (m->area)
        memcpy(ret_area, m->area + (long)c * m->h, (size_t)m->h * sizeof *ret_area);
    else
        area_of(m, c, whole, ret_area);
}

int heat_init(struct heat *m, long n, long from, long to, int w, int h)
{
    *m = (struct heat){.n = n, .from = from, .to = to, .w = w, .h = h};
    m->row = MEM_NEW(long, (size_t)h + 1);
    m->part = MEM_NEW(double, (size_t)h + 1);
    if (!m->row || !m->part)
        return KVF_E_NOMEM;
    for (long r = 0; r <= h; r++) { /* integer arithmetic avoids drift */
        m->row[r] = from + r * (to - from) / h;
        m->part[r] = (double)(r * (to - from) % h) / h;
    }
    return KVF_OK;
}

int heat_share(struct heat *m)
{
    if ((int64_t)m->w * m->h > MAX_AREAS)
        return KVF_OK;
    m->area = MEM_NEW(double, (size_t)m->w *(size_t)m->h);
    double *whole = MEM_NEW(double, (size_t)m->h + 2);
    for (int c = 0; m->area && whole && c < m->w; c++)
        area_of(m, c, whole, m->area + (long)c * m->h);
    mem_free(whole);
    return m->area && whole ? KVF_OK : KVF_E_NOMEM;
}

void heat_finish(struct heat *m)
{
    mem_free_all(m->row, m->part, m->area);
    *m = (struct heat){0};
}

/* Divides the sums by the areas, and the areas by the box size. */
static void finish(const struct heat *m, double *mean, double *cover)
{
    double box = (double)m->n / m->w * ((double)(m->to - m->from) / m->h);
    for (int r = 0; r < m->h; r++) {
        mean[r] = cover[r] > HEAT_MIN * box ? mean[r] / cover[r] : NAN;
        cover[r] = cover[r] < box * (1 - HEAT_MIN) ? cover[r] / box : 1;
    }
}

/* Returns the row of y in [from, to). */
static long row_of(const struct heat *m, double y)
{
    long r = (long)((y - (double)m->from) * m->h / (double)(m->to - m->from));
    r = clamp_whole(r, 0, m->h - 1);
    while (r > 0 && row_begin(m, r) > y) /* correct rounding of the quotient */
        r--;
    while (r + 1 < m->h && row_end(m, r) <= y)
        r++;
    return r;
}

void heat_alpha(const struct heat *m, const double *end, int c, double *mean, double *cover,
                double *scratch)
{
    struct walk k = walk_begin(m, c);
    double height = (double)(m->to - m->from) / m->h, *whole = scratch, running = 0;
    cover_of(m, c, whole, cover);
    clear(mean, m->h);
    clear(whole, m->h + 2);
    while (walk_next(m, &k)) {
        double a = (double)(k.i > m->from ? k.i : m->from);
        double b = end[k.i] < (double)m->to ? end[k.i] : (double)m->to;
        if (!(b > a) || k.r >= m->h)
            continue;
        long last = b < (double)m->to ? row_of(m, b) : m->h - 1;
        if (last == k.r) {
            mean[last] += k.weight * (b - a);
            continue;
        }
        mean[k.r] += k.weight * (row_end(m, k.r) - a);
        mean[last] += k.weight * (b - row_begin(m, last));
        whole[k.r + 1] += k.weight; /* full rows in between, as a difference array */
        whole[last] -= k.weight;
    }
    for (int r = 0; r < m->h; r++) {
        running += whole[r];
        mean[r] += running * height;
    }
    finish(m, mean, cover);
}

/* ---- retention
 *
 * v(t) = beta^(t - i). A row spans from `part` into step a to `end` into step b = a + n:
 *   v(a) ((1 - part) + sum of beta^k, 1 <= k < n) + v(b) end     (n = 0: v(a) (end - part))
 * n is (to - from) / h rounded down, or one more.  The powers of beta for these two values lead
 * from row to row, four tokens at a time.  Tokens of a block vanish after about the same number of
 * rows, so no token is continued for another one, or down to denormal numbers. */

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));

struct block {
    int used; /* of 2 LANES */
    /* row of its tokens (tokens of other rows begin a new block); row in which they vanish */
    long row, stop;
    lanes v[2];                     /* weight times v at the beginning of that row */
    lanes power[2][2], whole[2][2]; /* beta^n; sum of beta^k, 1 <= k < n (-1 for n = 0) */
};

struct decay {
    const struct heat *m;
    long step; /* the smaller n */
    /* [h + 1] sums of v(a); sums of v(a) times full steps inside the row */
    lanes (*at)[2], (*inner)[2];
    double *born; /* [h] for the rows in which tokens are created */
    struct block block[PACES];
};

static const double VANISHED = -41.45; /* log 1e-18 */

/* Computes expm1(x), by its series if that is exact to the last digit or two.  Most tokens live
 * long, so x is near 0. */
static double exp_minus_one(double x)
{
    if (!(fabs(x) < 0x1p-7))
        return expm1(x);
    return x
           * (1
              + x * (1. / 2)
                    * (1
                       + x * (1. / 3)
                             * (1 + x * (1. / 4) * (1 + x * (1. / 5) * (1 + x * (1. / 6))))));
}

/* Returns beta^n for beta = e^x, and sets *ret_sum to the sum of beta^k, 0 <= k < n.  less:
 * expm1(x). */
static double power_and_sum(double x, double less, double n, double *ret_sum)
{
    double nx = n * x, e;
    if (nx < VANISHED) {
        *ret_sum = -1 / less;
        return 0;
    }
    e = nx < -1 ? exp(nx) : exp_minus_one(nx); /* each formula is accurate in its range */
    *ret_sum = isnan(x) ? x : n;
    if (less < 0)
        *ret_sum = (nx < -1 ? e - 1 : e) / less;
    return nx < -1 ? e : e + 1;
}

/* Propagates the tokens of a block down the rows. */
static void flush(struct decay *d, struct block *b)
{
    const long *row = d->m->row;
    lanes v0 = b->v[0], v1 = b->v[1];
    for (long r = b->row; b->used && r < b->stop; r++) {
        int k = row[r + 1] - row[r] > d->step;
        d->at[r][0] += v0;
        d->at[r][1] += v1;
        d->inner[r][0] += v0 * b->whole[k][0];
        d->inner[r][1] += v1 * b->whole[k][1];
        v0 *= b->power[k][0];
        v1 *= b->power[k][1];
    }
    if (b->used) {
        d->at[b->stop][0] += v0;
        d->at[b->stop][1] += v1;
    }
    b->used = 0;
}

static void lead(struct decay *d, long row, double weight, double log_v, double v, double x,
                 double less)
{
    double sum, power = power_and_sum(x, less, (double)d->step, &sum);
    double height = (double)(d->m->to - d->m->from) / d->m->h;
    double rows = ((log_v - VANISHED) / fabs(x) + 1) / height + 1; /* until below 1e-18 */
    long left = d->m->h - row, stop = row + (rows < (double)left ? (long)rows : left);
    struct block *b = &d->block[!(rows < 8) + !(rows < 64) + !(rows < 512)];
    if (b->used == 2 * LANES || (b->used && b->row != row))
        flush(d, b);
    if (!b->used)
        *b = (struct block){.row = row, .stop = stop};
    int half = b->used / LANES, k = b->used++ % LANES;
    b->stop = stop > b->stop ? stop : b->stop;
    b->v[half][k] = weight * v;
    b->power[0][half][k] = power;
    b->whole[0][half][k] = sum - 1;
    b->power[1][half][k] = power * (less + 1);
    b->whole[1][half][k] = sum - 1 + power;
}

/* Adds a token to its column: the row of its creation, if that is inside the window, then the rows
 * below. */
static void add_token(struct decay *d, const struct walk *k, double log_beta)
{
    /* avoids 0 * INFINITY */
    double x = log_beta < -1e4 ? -1e4 : log_beta, less = exp_minus_one(x), sum;
    const struct heat *m = d->m;
    if (k->r >= m->h)
        return;
    if (k->i < m->from) {
        double log_v = (double)(m->from - k->i) * x;
        if (!(log_v < VANISHED))
            lead(d, 0, k->weight, log_v, exp(log_v), x, less);
        return;
    }
    double age = (double)(m->row[k->r + 1] - k->i), v = power_and_sum(x, less, age, &sum);
    d->born[k->r] += k->weight * sum;
    if (!(v < 1e-18))
        lead(d, k->r + 1, k->weight, age * x, v, x, less);
}

static double sum_of(const lanes v[2])
{
    return (v[0][0] + v[0][1]) + (v[1][0] + v[1][1]);
}

void heat_decay(const struct heat *m, const double *log_beta, int c, double *mean, double *cover,
                double *scratch)
{
    struct walk k = walk_begin(m, c);
    struct decay d = {.m = m, .step = (m->to - m->from) / m->h, .born = mean};
    double *whole = scratch + 4 * LANES * ((long)m->h + 2), next;
    int some = walk_next(m, &k);
    long first = some ? k.r : m->h; /* rows above the first token's creation are empty */
    d.at = (lanes(*)[2])(void *)scratch;
    d.inner = d.at + m->h + 2;
    clear((double *)(void *)d.at[first], 2 * LANES * (m->h + 2 - first));
    clear((double *)(void *)d.inner[first], 2 * LANES * (m->h + 2 - first));
    clear(mean, m->h);
    cover_of(m, c, whole, cover);
    for (; some; some = walk_next(m, &k))
        add_token(&d, &k, log_beta[k.i]);
    for (int b = 0; b < PACES; b++)
        flush(&d, &d.block[b]);
    double here = sum_of(d.at[first]);
    for (long r = first; r < m->h; r++, here = next) {
        next = sum_of(d.at[r + 1]);
        mean[r] += sum_of(d.inner[r]) + here * (1 - m->part[r]) + next * m->part[r + 1];
    }
    finish(m, mean, cover);
}
