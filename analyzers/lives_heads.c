#include <string.h>

#include "analyzers/lives_heads.h"

const char *const lives_event_words[] = {"gone", "first-exit", NULL};
static const char *const spaces[] = {"query", "kv-mean", NULL};
const struct opt lives_option_table[] = {
    {OPT_STR, 0, "criterion", offsetof(struct lives_options, selection.criterion), "LIST",
     CRITERION_LIST, "top64"},
    {OPT_WORD, 0, "event", offsetof(struct lives_options, event), "E",
     "what ends a life: the last selection, or the first query without one", "gone",
     .words = lives_event_words},
    {OPT_GROUP, .offset = offsetof(struct lives_options, grace), .group = lives_grace_option},
    {OPT_INT, 0, "at-least", offsetof(struct lives_options, at_least), "N",
     "leave out ages that fewer tokens could reach", "20", .min = 1, .max = INT32_MAX},
    {OPT_WORD, 0, "space", offsetof(struct lives_options, space), "S",
     "heads; kv-mean: all of the group together", "query", .words = spaces},
    {OPT_GROUP, .offset = offsetof(struct lives_options, selection.groups),
     .group = token_group_options},
    {.type = OPT_END},
};

void lives_of_length(void *options, int64_t T)
{
    struct lives_options *o = options;
    o->grace = lives_grace(o->grace, T);
}

int lives_choose(struct frame *f, const struct lives_options *o, struct lives_state *x,
                 struct kvf_diag *d)
{
    struct selection_options asked = o->selection;
    asked.space = o->space ? SPACE_KV_MEAN : SPACE_QUERY;
    x->event = (enum lives_event)o->event;
    x->at_least = o->at_least;
    x->n_parts = 1;
    x->plan[0] = (struct lives_plan){.T = f->T,
                                     .a = f->a,
                                     .b = f->b,
                                     .grace = o->event ? 0 : lives_grace(o->grace, f->T),
                                     .groups = &x->of.groups};
    int err = selection_choose(f, &asked, &x->of, d);
    struct lacks l = {.n = 0};
    for (int k = 0; !err && k < x->of.n_criteria; k++)
        err = criterion_column(f->t, o->event ? "first_unselected" : "last_selected",
                               x->of.criterion[k], &l, &x->column[k], d);
    return columns_refuse(&l, criterion_else(f->t), err, d);
}

int lives_prepare(struct frame *f, struct lives_state *x)
{
    int err = KVF_OK;
    f->items = f->T ? x->of.n_criteria * x->n_parts : 0;
    for (int k = 0; !err && k < x->n_parts; k++)
        err = lives_plan_init(f, &x->plan[k]);
    return err;
}

void lives_note(const struct frame *f, const struct lives_state *x, struct table *out)
{
    selection_note(f, &x->of, "grace", x->plan[0].grace, out);
    table_meta_str(out, "event", lives_event_words[x->event]);
    table_meta_num(out, "at_least", (double)x->at_least);
}

void lives_thread(struct frame *f, void *scratch)
{
    struct lives_work *w = scratch;
    const struct lives_state *x = f->state;
    w->all = FRAME_NEW(f, struct lives, (size_t)f->items);
    for (int k = 0; k < x->n_parts; k++)
        w->mine[k] = lives_create(f, &x->plan[k]);
    for (int k = 0; w->all && k < f->items; k++)
        w->all[k] = lives_create(f, lives_plan_of(x, k));
    w->ages = ages_room(f);
    w->room = frame_alloc(f, x->room, 1);
}

/* From the age of the first query without a selection to that of the last one of the first run. */
static void to_last_of_run(int32_t *age, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        age[k] = age[k] < 0 ? INT32_MAX : age[k] - 1;
}

int lives_head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct lives_state *x = f->state;
    const struct lives_plan *p = lives_plan_of(x, y->item);
    struct lives_work *w = y->scratch;
    struct lives *mine = &w->mine[y->item % x->n_parts];
    struct unit u;
    lives_clear(mine, p);
    int err = unit_of(y->t, x->of.space, y->head, &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        err = member_read(y->t, x->column[y->item / x->n_parts], &u, m, &w->ages, d);
        if (!err && x->event == LIVES_FIRST_EXIT)
            to_last_of_run(w->ages.age, f->b - f->a);
        if (!err)
            lives_count(p, w->ages.age, p->T, mine);
    }
    if (err)
        return err;
    lives_add(p, mine, &w->all[y->item]);
    x->rows_of(f, y->item, y->h, mine, w->room);
    return KVF_OK;
}

/* The counts of all threads, which are whole numbers: their order does not matter. */
int lives_finish(struct frame *f, struct kvf_diag *d)
{
    const struct lives_state *x = f->state;
    struct lives_work *w = frame_scratch(f, 0);
    (void)d;
    for (int k = 0; k < f->items; k++) {
        for (int i = 1; i < f->n_threads; i++)
            lives_add(lives_plan_of(x, k), &((struct lives_work *)frame_scratch(f, i))->all[k],
                      &w->all[k]);
        x->rows_of(f, k, f->heads.n, &w->all[k], w->room);
    }
    return KVF_OK;
}

void lives_close(struct frame *f)
{
    token_groups_free(&((struct lives_state *)f->state)->of.groups);
}
