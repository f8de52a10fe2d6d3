/* life.c - the common part of the life analyses (life.h). */
#include "analyzers/life.h"

#include <string.h>

const char *const life_event_words[] = {"gone", "first-exit", NULL};
const char *const life_mean_words[] = {"query", "kv-mean", NULL};
const struct opt life_event_options[] = {
    LIFE_OPTION_CRITERION(CRITERION_LIST, "top64"),
    {OPT_WORD, 0, "event", offsetof(struct life_options, event), "E",
     "event that ends the life of a token: its last selection, or the first query without a "
     "selection",
     "gone", .words = life_event_words},
    LIFE_OPTION_GRACE,
    LIFE_OPTION_AT_LEAST("omit ages that fewer tokens could reach"),
    LIFE_OPTION_MEAN_SPACE,
    LIFE_OPTION_GROUPS,
    {.type = OPT_END},
};

void life_of_length(void *options, int64_t T)
{
    ((struct life_options *)options)->length = T;
}

/* ---- counts of lives */

static void create_lives(struct frame *f, int item, void *counts)
{
    *(struct lives *)counts = lives_create(f, life_plan(f, item));
}

static void clear_lives(const struct frame *f, int item, void *counts)
{
    lives_clear(counts, life_plan(f, item));
}

static void add_lives(const struct frame *f, int item, const void *counts, void *to)
{
    lives_add(life_plan(f, item), counts, to);
}

static void count_lives(const struct frame *f, int item, int32_t *age, void *counts)
{
    /* From the age of the first query without a selection to that of the last one of the first
     * run. */
    if (((const struct life *)f->state)->event == LIFE_FIRST_EXIT)
        for (int64_t k = 0; k < f->b - f->a; k++)
            age[k] = age[k] < 0 ? INT32_MAX : age[k] - 1;
    lives_count(life_plan(f, item), age, f->T, counts);
}

static void count_narrow_lives(const struct frame *f, int item, const uint16_t *age, bool is_age,
                               void *counts)
{
    (void)is_age;
    lives_count_narrow(life_plan(f, item), age, counts);
}

static bool lives_take_narrow(const struct frame *f, const struct kvf_column *column)
{
    return ((const struct life *)f->state)->event == LIFE_GONE && column->flags & KVF_COL_AGE;
}

const struct life_counts life_lives = {.size = sizeof(struct lives),
                                       .create = create_lives,
                                       .clear = clear_lives,
                                       .add = add_lives,
                                       .count = count_lives,
                                       .count_narrow = count_narrow_lives,
                                       .takes_narrow = lives_take_narrow};

/* ---- options */

int life_choose(struct frame *f, const struct life_options *o, struct life *x, struct kvf_diag *d)
{
    struct selection_options asked = o->selection;
    int64_t b = f->T - o->follow_up < f->b ? f->T - o->follow_up : f->b;
    f->b = b < f->a ? f->a : b;
    if (o->mean_space)
        asked.space = SPACE_KV_MEAN;
    x->event = (enum life_event)o->event;
    x->at_least = o->at_least;
    x->follow_up = o->follow_up;
    x->n_parts = 1;
    x->plan[0] = (struct lives_plan){.T = f->T, .a = f->a, .b = f->b, .groups = &x->of.groups};
    int err = selection_choose(f, &asked, &x->of, d);
    return err ? err : life_set_grace(x, o, f->T, d);
}

int life_set_grace(struct life *x, const struct life_options *o, int64_t T, struct kvf_diag *d)
{
    int held = 0;
    for (int k = 0; k < x->of.n_criteria; k++)
        held += x->of.criterion[k] == CRITERION_HELD;
    if (o->event || (held && o->grace < 0))
        x->plan[0].grace = 0;
    else
        x->plan[0].grace = lives_grace(o->grace, o->length ? o->length : T);
    if (!held || held == x->of.n_criteria || o->event || o->grace >= 0)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "--criterion: 'held' needs no grace and the other criteria do; analyze 'held' "
                    "alone, or give --grace W for all of them");
}

int life_columns(const struct frame *f, struct life *x, const char *const *family, int n_families,
                 const char *else_, struct kvf_diag *d)
{
    struct lacks l = {.n = 0};
    int err = KVF_OK;
    for (int c = 0; !err && c < x->of.n_criteria; c++)
        for (int k = 0; !err && k < n_families; k++)
            err = criterion_column(f->t, family[k], x->of.criterion[c], &l,
                                   &x->column[c * n_families + k], d);
    return columns_refuse(&l, else_, err, d);
}

int life_event_columns(const struct frame *f, struct life *x, struct kvf_diag *d)
{
    static const char *const family[] = {"last_selected", "first_unselected"};
    return life_columns(f, x, &family[x->event], 1, criterion_else(f->t), d);
}

int life_prepare(struct frame *f, int items, int rows_per_class)
{
    struct life *x = f->state;
    int err = KVF_OK;
    x->rows_per_class = rows_per_class;
    f->items = items;
    f->n_rows = (int64_t)items * (f->heads.n + 1) * x->of.groups.n * rows_per_class;
    for (int k = 0; !err && k < x->n_parts; k++)
        err = lives_plan_init(f, &x->plan[k]);
    return err;
}

/* ---- rows */

void *life_rows_at(const struct frame *f, int item, int h)
{
    const struct life *x = f->state;
    int64_t first = ((int64_t)item * (f->heads.n + 1) + h) * x->of.groups.n * x->rows_per_class;
    return (unsigned char *)f->row + (size_t)first * f->analyzer->heads->row_size;
}

struct life_row life_row_of(const struct frame *f, int item, int h, int g)
{
    const struct life *x = f->state;
    int of = item / (f->items / x->of.n_criteria);
    return (struct life_row){frame_row_head(f, h), criterion_table[x->of.criterion[of]].name,
                             x->of.groups.name[g]};
}

bool life_row_is_all(const struct table *t, int64_t r)
{
    return strcmp(table_row_str(t, r, "head"), "all") == 0
           && strcmp(table_row_str(t, r, "class"), "all") == 0;
}

/* ---- heads in parallel */

void *life_room(struct frame *f, void *scratch)
{
    life_thread(f, scratch);
    return ((struct life_work *)scratch)->room;
}

void life_thread(struct frame *f, void *scratch)
{
    struct life_work *w = scratch;
    const struct life *x = f->state;
    const struct life_counts *c = x->counts;
    w->all = frame_alloc(f, (size_t)f->items, c->size);
    for (int k = 0; k < x->n_parts; k++) {
        w->mine[k] = frame_alloc(f, 1, c->size);
        if (w->mine[k])
            c->create(f, k, w->mine[k]);
    }
    for (int k = 0; w->all && k < f->items; k++)
        c->create(f, k, w->all + (size_t)k * c->size);
    if (!c->count_head)
        w->ages = ages_room(f);
    w->room = frame_alloc(f, x->room, 1);
}

/* Adds the members of a head to its counts. */
static int count_members(const struct frame *f, const struct frame_head *y, void *mine,
                         struct kvf_diag *d)
{
    const struct life *x = f->state;
    const struct life_work *w = y->scratch;
    int column = x->column[y->item / x->n_parts];
    const struct kvf_column *of = kvf_column(y->t, column);
    bool plain = !x->of.groups.of && x->counts->takes_narrow(f, of);
    struct unit u;
    int err = unit_of(y->t, x->of.space, y->head, &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        const uint16_t *narrow = NULL;
        if (plain)
            err = member_view(y->t, column, &u, m, f->a, f->b - f->a, &narrow, d);
        if (!err && !narrow)
            err = member_read(y->t, column, &u, m, &w->ages, d);
        if (!err && narrow)
            x->counts->count_narrow(f, y->item, narrow, of->flags & KVF_COL_AGE, mine);
        else if (!err)
            x->counts->count(f, y->item, w->ages.age, mine);
    }
    return err;
}

int life_head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct life *x = f->state;
    const struct life_counts *c = x->counts;
    const struct life_work *w = y->scratch;
    void *mine = w->mine[y->item % x->n_parts];
    c->clear(f, y->item, mine);
    int err = c->count_head ? c->count_head(f, y, w->room, mine, d) : count_members(f, y, mine, d);
    if (err)
        return err;
    c->add(f, y->item, mine, w->all + (size_t)y->item * c->size);
    x->rows_of(f, y->item, y->h, mine, w->room);
    return KVF_OK;
}

/* Counts are integers, so the order of threads does not matter. */
int life_finish(struct frame *f, struct kvf_diag *d)
{
    const struct life *x = f->state;
    const struct life_work *w = frame_scratch(f, 0);
    (void)d;
    for (int k = 0; k < f->items; k++) {
        size_t at = (size_t)k * x->counts->size;
        for (int i = 1; i < f->n_threads; i++)
            x->counts->add(f, k, ((struct life_work *)frame_scratch(f, i))->all + at, w->all + at);
        x->rows_of(f, k, f->heads.n, w->all + at, w->room);
    }
    return KVF_OK;
}

/* ---- the table */

int life_put_metadata(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct life *x = f->state;
    (void)d;
    selection_note(f, &x->of, "grace", x->plan[0].grace, out);
    if (x->tells_event)
        table_meta_str(out, "event", life_event_words[x->event]);
    table_meta_num(out, "at_least", (double)x->at_least);
    return KVF_OK;
}

void life_close(struct frame *f)
{
    token_groups_free(&((struct life *)f->state)->of.groups);
}
