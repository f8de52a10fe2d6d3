/* selected.c - criteria, units of heads, ages and groups of tokens (selected.h). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/selected.h"
#include "base/mem.h"
#include "base/opt.h"

const struct criterion criterion_table[N_CRITERION_TABLE] = {
    {"top64", 64},  {"top128", 128}, {"top256", 256},   {"top512", 512}, {"mass.90", 0},
    {"mass.95", 0}, {"mass.99", 0},  {"contrib64", 64}, {"held", 0},
};

int criterion_find(const char *s, size_t n)
{
    for (int c = 0; c < N_CRITERION_TABLE; c++)
        if (strlen(criterion_table[c].name) == n && memcmp(s, criterion_table[c].name, n) == 0)
            return c;
    return -1;
}

/* 0: one criterion; else a gap.  Places of both names. */
static void places(const char *s, int out[3])
{
    size_t n = strcspn(s, "-");
    const char *name[] = {s, s + n + (s[n] == '-')};
    size_t len[] = {n, strlen(name[1])};
    out[0] = s[n] == '-';
    for (int k = 0; k < 2; k++) {
        int c = criterion_find(name[k], len[k]);
        out[1 + k] = c < 0 ? N_CRITERION_TABLE : c;
    }
}

int criterion_compare(const char *a, const char *b)
{
    int x[3], y[3];
    places(a, x);
    places(b, y);
    for (int k = 0; k < 3; k++)
        if (x[k] != y[k])
            return x[k] < y[k] ? -1 : 1;
    return 0;
}

int criteria_choose(const char *list, int ret[N_CRITERION_TABLE], int *ret_n, struct kvf_diag *d)
{
    bool wanted[N_CRITERION_TABLE] = {false};
    bool all = strcmp(list, "all") == 0;
    int n = 0;
    for (const char *s = all ? "" : list; *s; s += strcspn(s, ","), s += *s == ',') {
        int c = criterion_find(s, strcspn(s, ","));
        if (c < 0)
            return kvf_fail(d, KVF_E_ARG,
                            "--criterion: no criterion in '%s'; use top64 ... top512, mass.90 ... "
                            "mass.99, contrib64 or held",
                            s);
        wanted[c] = true;
    }
    for (int c = 0; c < N_CRITERION_TABLE; c++)
        if ((all && c < KVF_N_CRITERIA) || wanted[c])
            ret[n++] = c;
    *ret_n = n;
    return n ? KVF_OK : kvf_fail(d, KVF_E_ARG, "--criterion: no criterion in '%s'", list);
}

int criterion_column(const struct kvf_trace *t, const char *family, int criterion, struct lacks *l,
                     int *ret_column, struct kvf_diag *d)
{
    char name[KVF_NAME_MAX];
    bool last = strcmp(family, "last_selected") == 0;
    snprintf(name, sizeof name, "%.24s.%s", family, criterion_table[criterion].name);
    if (criterion == CRITERION_HELD && last)
        return columns_find(t, "evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, l, ret_column, d);
    if (criterion >= KVF_N_CRITERIA && !last)
        return kvf_fail(d, KVF_E_NOTFOUND, "of %s traces record only the last selection",
                        criterion_table[criterion].name);
    return columns_find(t, name, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, l, ret_column, d);
}

const char *criterion_else(const struct kvf_trace *t)
{
    return kvf_find(t, "evict_step") < 0 ? NULL
                                         : "--criterion held needs only evict_step, which it has";
}

const char *const space_words[] = {"query", "kv-union", "kv-mean", NULL};

const char *space_name(enum selected_space s)
{
    return space_words[s];
}

int unit_of(const struct kvf_trace *t, enum selected_space space, const struct head *h,
            struct unit *ret, struct kvf_diag *d)
{
    int H = kvf_n_heads(t, h->layer, KVF_SPACE_KV), G = kvf_n_heads(t, h->layer, KVF_SPACE_QUERY);
    int share = H ? G / H : 0;
    if (share < 1 || share * H != G)
        return kvf_fail(d, KVF_E_FORMAT, "layer %d has %d query heads for %d KV heads", h->layer, G,
                        H);
    *ret = (struct unit){h->layer, h->index, h->index * share, share, 1};
    if (space == SPACE_QUERY)
        *ret = (struct unit){h->layer, h->index / share, h->index, 1, 1};
    if (space == SPACE_KV_UNION)
        *ret = (struct unit){h->layer, h->index, h->index * share, 1, share};
    return KVF_OK;
}

/* The largest age at which queries saw the entries, from evict_step. */
static int held_read(struct kvf_trace *t, int column, const struct unit *u, int64_t a, int64_t n,
                     double *raw, int32_t *out, struct kvf_diag *d)
{
    const int64_t T = kvf_n_steps(t);
    int err = kvf_read_f64(t, column, u->layer, u->kv, (uint32_t)a, (uint32_t)n, raw, d);
    for (int64_t k = 0; !err && k < n; k++) {
        double left = raw[k] < (double)T ? raw[k] : (double)T;
        out[k] = left > (double)(a + k) ? (int32_t)(left - 1 - (double)(a + k)) : -1;
    }
    return err;
}

int ages_read(struct kvf_trace *t, int column, const struct unit *u, int query, int64_t a,
              int64_t n, void *raw, int32_t *out, struct kvf_diag *d)
{
    const struct kvf_column *c = kvf_column(t, column);
    const uint16_t *narrow = raw;
    const uint32_t *wide = raw;
    const double *real = raw;
    bool age = c->flags & KVF_COL_AGE;
    int err = KVF_OK;
    if (n == 0)
        return KVF_OK;
    if (c->space == KVF_SPACE_KV)
        return held_read(t, column, u, a, n, raw, out, d);
    if (c->dtype == KVF_U16 || c->dtype == KVF_U32) {
        err = kvf_read(t, column, u->layer, query, (uint32_t)a, (uint32_t)n, raw, d);
    } else {
        err = kvf_read_f64(t, column, u->layer, query, (uint32_t)a, (uint32_t)n, raw, d);
        for (int64_t i = 0; !err && i < n; i++)
            out[i] = real[i] < 0 || !(real[i] <= INT32_MAX) ? -1 : (int32_t)real[i];
        return err;
    }
    if (err)
        return err;
    if (c->dtype == KVF_U16)
        for (int64_t i = 0; i < n; i++)
            out[i] = age && narrow[i] == UINT16_MAX ? -1 : narrow[i];
    else
        for (int64_t i = 0; i < n; i++) {
            int32_t large = age && wide[i] == UINT32_MAX ? -1 : INT32_MAX;
            out[i] = wide[i] <= INT32_MAX ? (int32_t)wide[i] : large;
        }
    return KVF_OK;
}

int member_view(struct kvf_trace *t, int column, const struct unit *u, int m, int64_t a, int64_t n,
                const uint16_t **ret, struct kvf_diag *d)
{
    const void *raw = NULL;
    int err = KVF_OK;
    const struct kvf_column *c = kvf_column(t, column);
    if (c->dtype == KVF_U16 && c->space == KVF_SPACE_QUERY && u->heads == 1 && n)
        err = kvf_view(t, column, u->layer, u->first + m, (uint32_t)a, (uint32_t)n, &raw, d);
    *ret = raw;
    return err;
}

int member_read(struct kvf_trace *t, int column, const struct unit *u, int m,
                const struct ages_of *x, struct kvf_diag *d)
{
    int64_t n = x->b - x->a;
    int err = KVF_OK;
    for (int h = 0; !err && h < u->heads; h++) {
        int32_t *to = h ? x->other : x->age;
        err = ages_read(t, column, u, u->first + m * u->heads + h, x->a, n, x->raw, to, d);
        for (int64_t k = 0; !err && h && k < n; k++)
            x->age[k] = to[k] > x->age[k] ? to[k] : x->age[k];
    }
    return err;
}

struct ages_of ages_room(struct frame *f)
{
    size_t T = (size_t)f->T;
    return (struct ages_of){f->a, f->b, FRAME_NEW(f, int32_t, T), FRAME_NEW(f, int32_t, T),
                            FRAME_NEW(f, double, T)};
}

int numbers_parse(const char *option, const char *list, bool rising, int most, int64_t *ret,
                  int *ret_n, struct kvf_diag *d)
{
    int n = 0;
    for (const char *s = list; *s;) {
        char *end;
        long long v = strtoll(s, &end, 10);
        if (end == s || (*end && *end != ',') || v < 0 || v > INT32_MAX || n == most
            || (rising && n && v <= ret[n - 1]))
            return kvf_fail(d, KVF_E_ARG, "--%s: '%s' is not a list of up to %d %sages", option,
                            list, most, rising ? "rising " : "");
        ret[n++] = v;
        s = end + (*end == ',');
    }
    *ret_n = n;
    return n ? KVF_OK : kvf_fail(d, KVF_E_ARG, "--%s: name an age", option);
}

/* ---- tokens in groups */

static const char *const by_words[] = {"all", "class", NULL};
const struct opt token_group_options[] = {
    {OPT_WORD, 0, "by", offsetof(struct token_group_options, by), "KIND",
     "rows for each class of tokens too", "all", .words = by_words},
    CLASSES_OPTION(struct token_group_options, classes),
    {.type = OPT_END},
};

/* Members of a group are numbered in the order of classes.h; classes that do not occur have no
 * number. */
static int number_groups(struct token_groups *g, int64_t T)
{
    int n = classes_count(g->classes), group[CLASSES_MOST] = {0};
    g->name = MEM_NEW(const char *, (size_t)n + 1);
    if (!g->name)
        return KVF_E_NOMEM;
    for (int64_t i = 0; i < T; i++)
        group[g->of[i]] = 1;
    g->n = 1;
    g->name[0] = "all";
    for (int c = 0; c < n; c++)
        if (group[c]) {
            g->name[g->n] = classes_name(g->classes, c);
            group[c] = g->n++;
        }
    for (int64_t i = 0; i < T; i++)
        g->of[i] = (uint8_t)group[g->of[i]];
    return KVF_OK;
}

int token_groups_make(struct kvf_trace *t, const struct token_group_options *o,
                      struct token_groups *ret, struct kvf_diag *d)
{
    int64_t T = kvf_n_steps(t);
    *ret = (struct token_groups){.n = 1};
    if (o->classes && !o->by)
        return kvf_fail(d, KVF_E_ARG, "--classes: rows of classes are asked for by --by class");
    if (!o->by) {
        ret->name = MEM_NEW(const char *, 1);
        if (ret->name)
            ret->name[0] = "all";
        return ret->name ? KVF_OK : KVF_E_NOMEM;
    }
    int err = classes_open(o->classes, &ret->classes, d);
    if (err)
        return err;
    ret->of = MEM_NEW(uint8_t, (size_t)T);
    err = ret->of ? classes_of_trace(ret->classes, t, ret->of, d) : KVF_E_NOMEM;
    return err ? err : number_groups(ret, T);
}

void token_groups_note(const struct token_groups *g, struct table *out)
{
    if (g->classes)
        classes_note(g->classes, out);
}

void token_groups_free(struct token_groups *g)
{
    mem_free_all((void *)g->name, g->of);
    classes_close(g->classes);
    *g = (struct token_groups){0};
}

/* ---- options */

/* Finds criteria of K entries under a budget of K or less: every query selects all that is cached.
 * Where the criteria were not named they are left out. */
static int drop_trivial(const struct kvf_trace *t, bool named, struct selection *s,
                        struct kvf_diag *d)
{
    int64_t budget;
    int err = trace_head_limit(t, &budget, d);
    if (err)
        return err;
    if (budget >= kvf_n_steps(t)) /* room for all */
        budget = 0;
    char names[96] = "", column[KVF_NAME_MAX];
    int n = 0, kept[N_CRITERION_TABLE];
    for (int k = 0; k < s->n_criteria; k++) {
        const struct criterion *c = &criterion_table[s->criterion[k]];
        size_t at = strlen(names);
        snprintf(column, sizeof column, "last_selected.%s", c->name);
        bool there = named || kvf_find(t, column) >= 0;
        if (budget > 0 && c->top >= budget && there)
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", c->name);
        else
            kept[n++] = s->criterion[k];
    }
    if (!names[0])
        return KVF_OK;
    bool drop = !named && n > 0;
    snprintf(s->note, sizeof s->note,
             "the budget is %lld entries, so every query after the prompt selects every cached "
             "entry by %s: %s",
             (long long)budget, names,
             drop ? "left out; --criterion with a name shows how long entries stay cached"
                  : "these rows show how long entries stay cached, not how long they are used");
    if (drop) {
        memcpy(s->criterion, kept, sizeof kept);
        s->n_criteria = n;
    }
    return KVF_OK;
}

int selection_choose(struct frame *f, const struct selection_options *o, struct selection *ret,
                     struct kvf_diag *d)
{
    ret->space = (enum selected_space)o->space;
    f->space = ret->space == SPACE_QUERY ? KVF_SPACE_QUERY : KVF_SPACE_KV;
    int err = criteria_choose(o->criterion, ret->criterion, &ret->n_criteria, d);
    if (!err)
        err = drop_trivial(f->t, strcmp(o->criterion, "all") != 0, ret, d);
    return err ? err : token_groups_make(f->t, &o->groups, &ret->groups, d);
}

void selection_recorded(struct frame *f, const char *list, struct selection *s)
{
    char name[KVF_NAME_MAX];
    bool has[N_CRITERION_TABLE];
    int n = 0, any = 0;
    for (int k = 0; k < s->n_criteria; k++) {
        snprintf(name, sizeof name, "last_selected.%s", criterion_table[s->criterion[k]].name);
        has[k] = kvf_find(f->t, name) >= 0;
        any += has[k];
    }
    if (strcmp(list, "all") != 0 || (!any && !criterion_else(f->t)))
        return;
    for (int k = 0; k < s->n_criteria; k++) {
        const char *criterion = criterion_table[s->criterion[k]].name;
        snprintf(name, sizeof name, "last_selected.%s", criterion);
        if (has[k])
            s->criterion[n++] = s->criterion[k];
        else
            frame_lacks(f, name);
    }
    if (!any)
        s->criterion[n++] = CRITERION_HELD;
    s->n_criteria = n;
}

void selection_warn(const struct selection *s, struct table *out)
{
    if (s->note[0])
        table_meta_str(out, "note", s->note);
}

void selection_note(const struct frame *f, const struct selection *s, const char *wait_name,
                    int64_t wait, struct table *out)
{
    selection_warn(s, out);
    table_meta_str(out, "space", space_name(s->space));
    table_meta_num(out, wait_name, (double)wait);
    put_tokens(out, f->a, f->b, f->T);
    token_groups_note(&s->groups, out);
}
