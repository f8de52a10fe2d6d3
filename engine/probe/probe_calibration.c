/* probe_calibration.c - data that the age of the last selection does not contain: selection of a
 * token at the ages 1, 2, 4, ..., and the first age without selection. Together with last_selected
 * this is the input of the calibration of retention gates. */
#include "engine/probe/probes.h"

enum { N_CRITERIA = KVF_N_CRITERIA, AT = 0, FIRST = 1, PER_CRITERION = 2 };

/* Bit k of AT: selected at age 2^k. FIRST: number of queries from birth on that all selected it. */
#define COLUMN(name, dtype, flags, unit)                                                           \
    .column = {name, dtype, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | flags, unit}
#define X(name)                                                                                    \
    {COLUMN("selected_at." #name, KVF_U32, 0, "")},                                                \
        {COLUMN("first_unselected." #name, PROBE_STEPS, KVF_COL_AGE, "step"),                      \
         .kept = PROBE_BY_VALUES},
static const struct probe_array arrays[PER_CRITERION * N_CRITERIA] = {KVF_CRITERIA_MAP(X)};
#undef X

static void take_ages(uint32_t *at, const struct probe_row *row, const struct row_cut *cut)
{
    for (int k = 0; k < 31 && (int32_t)1 << k <= row->t; k++) {
        int32_t pos = row->t - ((int32_t)1 << k);
        int i = probe_find(row, pos);
        if (i >= 0 && row_cut_has(cut, row->p[i], i))
            at[pos] |= (uint32_t)1 << k;
    }
}

/* Counts the queries that selected a token without interruption. If the count equals the age, all
 * queries so far have selected it. Otherwise the count never changes again, also if the query did
 * not see the entry. */
static void take_first(void *first, bool narrow, const struct probe_row *row,
                       const struct row_cut *cut)
{
    uint16_t *a = first;
    uint32_t *b = first;
    for (int i = 0; i < row->n; i++) {
        int32_t pos = row->pos ? row->pos[i] : i;
        uint32_t age = (uint32_t)(row->t - pos);
        if (narrow && a[pos] == age && row_cut_has(cut, row->p[i], i))
            a[pos]++;
        else if (!narrow && b[pos] == age && row_cut_has(cut, row->p[i], i))
            b[pos]++;
    }
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const struct row_cut *cut = probe_row_cuts(row, s->cfg->kernels);
    for (int c = 0; c < N_CRITERIA; c++) {
        int array = PER_CRITERION * c;
        take_ages(probe_cells(s, array + AT, row->layer, row->head), row, &cut[c]);
        take_first(probe_cells(s, array + FIRST, row->layer, row->head), s->narrow, row, &cut[c]);
    }
}

/* Converts counts to ages. A token that all its t1 - i queries selected has no such age: all
 * ones. */
static void values(const struct probe_state *s, int array, int layer, int head, int32_t t1,
                   void *out)
{
    const void *first = probe_cells(s, array, layer, head);
    for (size_t i = 0; i < (size_t)t1; i++) {
        uint32_t n = probe_get_step(s, first, i);
        probe_put_step(s, out, i, n == (uint32_t)t1 - (uint32_t)i ? UINT32_MAX : n);
    }
}

const struct probe probe_calibration = {
    .name = "calibration",
    .summary = "selection at ages 1, 2, 4, ..., and the first age without it, per criterion",
    .wants = PROBE_ROWS,
    .full_only = true,
    PROBE_ARRAYS(arrays),
    .row = on_row,
    .values = values,
};
