/* test_heads.c - kernels that update the heads of all layers after a step: evictions, reports and
 * candidates, compared with plain code for one head at a time. */
#include "tests/cuda/heads_of.h"

/* ---- evictions: a plain model of a head that follows the rules in heads.h */

struct plain {
    int n, gap, hole;
    int was[512]; /* initial slot of the entry that is now in this slot; -1: the new entry */
};

static void fill_hole(struct plain *p)
{
    if (p->gap == GPU_GAP_OPEN && p->hole < p->n)
        p->was[p->hole] = p->was[p->n];
    if (p->gap == GPU_GAP_OPEN)
        p->gap = GPU_GAP_FILLED;
}

static void open_hole(struct plain *p)
{
    if (p->gap == GPU_GAP_FILLED && p->hole < p->n)
        p->was[p->n] = p->was[p->hole];
    if (p->gap == GPU_GAP_FILLED)
        p->gap = GPU_GAP_OPEN;
}

static void plain_cut(struct plain *p, const unsigned char *gone)
{
    int m = 0, n_cut = 0, victim = 0, last = p->n;
    bool dead[512] = {false};
    for (int i = 0; i < p->n; i++)
        if (gone[i]) {
            dead[i] = true;
            victim = i;
            n_cut++;
        }
    if (n_cut == 0)
        return;
    if (n_cut == 1 && p->gap == GPU_GAP_NONE) {
        p->n--;
        p->gap = GPU_GAP_OPEN;
        p->hole = victim;
        return;
    }
    if (p->gap == GPU_GAP_FILLED && p->hole < p->n) {
        open_hole(p);
        dead[last] = dead[p->hole];
        dead[p->hole] = true;
        last++;
    }
    for (int i = 0; i < last; i++)
        if (!dead[i])
            p->was[m++] = p->was[i];
    p->n = m;
    p->gap = GPU_GAP_CLOSED;
}

static void plain_end(struct plain *p, bool newcomer)
{
    if (!newcomer) {
        fill_hole(p);
        return;
    }
    open_hole(p);
    p->was[p->gap == GPU_GAP_OPEN ? p->hole : p->n] = -1;
    p->n++;
    p->gap = GPU_GAP_NONE;
}

/* Returns true if a and b are equal or both NaN. Data of new entries were never written and can be
 * NaN. */
static bool alike(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Checks that slot s now has the entry that was in slot `from`. If `from` is negative, it must have
 * the new entry of position t. */
static void expect_slot(const struct bed *now, const struct bed *old, int h, int s, int from, int t)
{
    size_t a = (size_t)(h * now->ld + s), b = (size_t)(h * now->ld + from);
    cr_expect(eq(int, now->k.pos[a], from < 0 ? t : old->k.pos[b]), "head %d, slot %d", h, s);
    for (int j = 0; j < PER; j++) {
        size_t row = (size_t)((h * PER + j) * now->ld);
        cr_expect(eq(dbl, now->sum[row + (size_t)s], from < 0 ? 0 : old->sum[row + (size_t)from]));
    }
    if (from < 0)
        return;
    bool same = now->number[a] == old->number[b];
    for (int j = 0; j < ROWS; j++) {
        size_t row = (size_t)((h * ROWS + j) * now->ld);
        same = same && now->rows[row + (size_t)s] == old->rows[row + (size_t)from];
    }
    for (int d = 0; d < 2 * D; d++)
        same = same
               && alike(cache_of_get(&now->k, h, s, d % D, d >= D),
                        cache_of_get(&old->k, h, from, d % D, d >= D));
    cr_expect(same, "head %d, slot %d is not what slot %d was", h, s, from);
}

static void expect_head(const struct bed *now, const struct bed *old, int h, const struct plain *p,
                        int t)
{
    cr_assert(eq(int, now->n[h], p->n), "head %d", h);
    cr_expect(eq(int, now->gap[h], p->gap), "head %d", h);
    for (int s = 0; s < p->n; s++)
        expect_slot(now, old, h, s, p->was[s], t);
    const int32_t *order = now->order + h * now->ld, *pos = now->k.pos + h * now->ld;
    for (int i = 0; i < p->n; i++) {
        cr_expect(lt(int, order[i], p->n), "head %d, order %d", h, i);
        if (i > 0)
            cr_expect(lt(int, pos[order[i - 1]], pos[order[i]]), "head %d, order %d", h, i);
    }
}

/* Runs several rounds of evictions on the same heads. Each round gives the number of evictions per
 * head, and if a new entry arrives or free slots are filled. */
static void cut_case(struct gpu *g, struct rng *r, enum kv_type type, int together)
{
    static const int n[HEADS] = {200, 64, 131, 3}, same[HEADS] = {130, 130, 70, 70};
    static const struct {
        int go[HEADS];
        bool newcomer;
    } rounds[] = {
        {{1, 1, 0, 1}, true},  {{1, 2, 90, 1}, true}, {{1, 1, 1, 0}, false}, {{0, 0, 0, 0}, true},
        {{1, 1, 1, 1}, false}, {{1, 0, 2, 1}, false}, {{1, 1, 1, 0}, false}, {{0, 1, 3, 0}, true},
    };
    struct bed b = bed_of(g, r, together > 1 ? same : n, type);
    for (size_t k = 0; k < sizeof rounds / sizeof *rounds; k++) {
        struct plain p[HEADS];
        int32_t head[512], slot[512], m = 0, t = 5000 + (int)k;
        unsigned char gone[HEADS][512] = {{0}};
        bed_fetch(&b);
        struct bed old = b;
        old.k.pool = host_copy(g, b.k.c.pool, b.k.pool_bytes);
        old.k.pos = host_copy(g, b.k.c.pos, (size_t)(HEADS * b.ld) * 4);
        old.sum = host_copy(g, b.h.column[0].data, (size_t)(HEADS * PER * b.ld) * 8);
        old.rows = host_copy(g, b.h.column[1].data, (size_t)(HEADS * ROWS * b.ld) * 4);
        old.number = host_copy(g, b.h.column[2].data, (size_t)(HEADS * b.ld) * 4);
        for (int h = 0; h < HEADS; h++) {
            int speaks = h - h % together;
            p[h] = (struct plain){b.n[h], b.gap[h], b.hole[h], {0}};
            for (int i = 0; i < b.n[h]; i++)
                p[h].was[i] = i;
            for (int go = h == speaks ? rounds[k].go[h] : 0; go > 0 && b.n[h] > go;) {
                int s = rng_below(r, 4) ? (int)rng_below(r, (uint64_t)b.n[h]) : b.n[h] - 1;
                if (gone[h][s])
                    continue;
                gone[h][s] = 1;
                head[m] = h;
                slot[m++] = s;
                go--;
            }
            plain_cut(&p[h], gone[speaks]);
            plain_end(&p[h], rounds[k].newcomer);
        }
        int32_t *dh = device_copy(g, head, sizeof head), *ds = device_copy(g, slot, sizeof slot);
        if (m > 0)
            gpu_list_gone(g, &b.h, dh, ds, m);
        gpu_cut(g, &b.h, m > 0 ? together : 0, rounds[k].newcomer, t);
        bed_fetch(&b);
        device_check(g, "cut");
        for (int h = 0; h < HEADS; h++)
            expect_head(&b, &old, h, &p[h], t);
    }
}

Test(heads, slots_are_left_open_filled_and_closed)
{
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(31);
    for (int i = 0; i < 4; i++) {
        emulation_seed((unsigned long long)i);
        cut_case(g, &r, i % 2 ? KV_F16 : KV_F32, i < 2 ? 1 : 2);
    }
}

/* ---- a report: the marked entries, and the candidate with the lowest score that was not marked */

Test(heads, reports_name_what_goes_and_the_worst_that_stays)
{
    static const int n[HEADS] = {600, 64, 331, 3};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(32);
    for (int older = 0; older < 2; older++) {
        struct bed b = bed_of(g, &r, n, KV_F32);
        size_t all = (size_t)(HEADS * b.ld);
        for (size_t i = 0; i < all; i++) {
            b.mark[i] = (unsigned char)rng_below(&r, 4);
            b.number[i] = (float)rng_below(&r, 6) - 2; /* ties */
            if (rng_below(&r, 20) == 0)
                b.number[i] = NAN;
        }
        gpu_put(g, b.h.mark, b.mark, all);
        gpu_put(g, b.h.column[2].data, b.number, all * 4);
        struct gpu_chosen *chosen = device_alloc(g, HEADS, sizeof *chosen);
        int32_t *cursor = device_alloc(g, 1, 4), *slot = device_alloc(g, all, 4);
        float *score = device_alloc(g, all, 4);
        gpu_report(g, &b.h, b.h.column[2].data, older, chosen, cursor, slot, score);
        struct gpu_chosen *got = host_copy(g, chosen, HEADS * sizeof *got);
        int32_t *got_slot = host_copy(g, slot, all * 4);
        float *got_score = host_copy(g, score, all * 4);
        device_check(g, "report");
        for (int h = 0; h < HEADS; h++) {
            int gone = 0, worst = -1;
            const float *x = b.number + h * b.ld;
            const int32_t *pos = b.k.pos + h * b.ld;
            for (int i = 0; i < n[h]; i++) {
                unsigned char m = b.mark[h * b.ld + i];
                float a = isnan(x[i]) ? -INFINITY : x[i];
                float w = worst < 0 ? INFINITY : isnan(x[worst]) ? -INFINITY : x[worst];
                gone += m == GPU_GONE;
                bool asked = m == GPU_CANDIDATE || m == GPU_LAST;
                bool first = worst < 0 || (older ? pos[i] > pos[worst] : pos[i] < pos[worst]);
                if (asked && (worst < 0 || a < w || (!(a > w) && first)))
                    worst = i;
            }
            cr_assert(eq(int, got[h].n, gone), "head %d", h);
            cr_expect(eq(int, got[h].kept, worst), "head %d", h);
            float kept = worst < 0 ? 0 : isnan(x[worst]) ? -INFINITY : x[worst];
            cr_expect(eq(flt, got[h].kept_score, kept));
            for (int i = 0; i < gone; i++) {
                int s = got_slot[got[h].first + i];
                bool same = memcmp(&got_score[got[h].first + i], &x[s], 4) == 0;
                cr_expect(eq(int, b.mark[h * b.ld + s], GPU_GONE));
                cr_expect(same, "head %d, slot %d", h, s);
                b.mark[h * b.ld + s] = GPU_STAYS; /* no entry is marked twice */
            }
        }
    }
}

/* Checks which entries are candidates, and the initial values of a new entry. */
Test(heads, candidates_lie_between_sinks_and_the_newest)
{
    static const int n[HEADS] = {70, 1, 64, 3};
    static const unsigned char due[HEADS] = {1, 1, 0, 1};
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(39);
    struct bed b = bed_of(g, &r, n, KV_F32);
    unsigned char *d_due = device_copy(g, due, sizeof due);
    gpu_candidates(g, &b.h, d_due, 6, 99); /* 6 and 99 are both positions of head 0 */
    bed_fetch(&b);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < n[h]; i++) {
            int32_t pos = b.k.pos[h * b.ld + i];
            bool asked = due[h] && pos >= 6 && pos < 99;
            cr_expect(eq(int, b.mark[h * b.ld + i], asked ? GPU_CANDIDATE : GPU_STAYS));
        }
    b.h.column[2].start = GPU_STARTS_NAN;
    gpu_cut(g, &b.h, 0, true, 400);
    bed_fetch(&b);
    for (int h = 0; h < HEADS; h++) {
        cr_expect(isnan(b.number[h * b.ld + n[h]]));
        cr_expect(zero(dbl, b.sum[h * PER * b.ld + n[h]]));
        cr_expect(eq(int, b.k.pos[h * b.ld + n[h]], 400));
    }
    device_check(g, "candidates");
}
