/* an_occupancy.c - entries that each head caches at the query of a step:
 * #{i <= t : t < evict_step_i}, in all and by the role or class of the token, of all tokens
 * or of a range. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/classes.h"
#include "analyzers/frame.h"
#include "analyzers/head_budgets.h"

enum { MOST_GROUPS = CLASSES_MOST + 1 };
enum { EVICT, ROLE }; /* columns */
enum by { BY_PART, BY_ROLE, BY_CLASS };
static const char *const by_words[] = {"part", "role", "class", NULL};
struct options {
    int64_t every; /* 0: not given */
    int by;        /* enum by */
    const char *classes;
};

/* Group 0 is all tokens; every token is in one more group, or in no other (0). */
struct groups {
    struct classes *classes;
    uint8_t *of; /* [T] */
    int n;
    const char *name[MOST_GROUPS];
};

struct plan {
    int64_t T, a, b;  /* steps; tokens [a, b) */
    int64_t every, n; /* every how many steps; how many rows that makes */
    struct groups groups;
    int64_t *born; /* [groups][n] tokens up to step k * every */
    int64_t *held; /* [heads][groups][n] */
};

struct scratch {     /* of one thread */
    uint32_t *evict; /* [T] of the head at hand */
    int32_t *gone;   /* [groups][T + 1] */
};

/* Sums of x[t] over t <= k * every, for each k. */
static void sum_up(const struct plan *p, const int32_t *x, int64_t *out)
{
    int64_t sum = 0;
    for (int64_t k = 0, t = 0; k < p->n; k++) {
        for (; t <= k * p->every; t++)
            sum += x[t];
        out[k] = sum;
    }
}

/* Group 0 has all tokens, also the ones in no other group. */
static void add_groups(const struct plan *p, int64_t *out)
{
    for (int c = 1; c < p->groups.n; c++)
        for (int64_t k = 0; k < p->n; k++)
            out[k] += out[c * p->n + k];
}

/* Entries of a group at step k: entries at step k * every, from births and evictions. */
static void count(const struct plan *p, const uint32_t *evict, int32_t *gone, int64_t *held)
{
    int64_t T = p->T, stride = T + 1;
    memset(gone, 0, (size_t)(p->groups.n * stride) * sizeof *gone);
    for (int64_t i = p->a; i < p->b; i++) {
        int64_t end = evict[i] < (uint32_t)T ? evict[i] : T;
        end = end < i ? i : end; /* of a damaged or foreign trace */
        gone[p->groups.of[i] * stride + end]++;
    }
    for (int c = 0; c < p->groups.n; c++)
        sum_up(p, gone + c * stride, held + c * p->n);
    add_groups(p, held);
    for (int64_t k = 0; k < p->groups.n * p->n; k++)
        held[k] = p->born[k] - held[k];
}

static void count_births(const struct plan *p, int32_t *born)
{
    int64_t stride = p->T + 1;
    memset(born, 0, (size_t)(p->groups.n * stride) * sizeof *born);
    for (int64_t i = p->a; i < p->b; i++)
        born[p->groups.of[i] * stride + i]++;
    for (int c = 0; c < p->groups.n; c++)
        sum_up(p, born + c * stride, p->born + c * p->n);
    add_groups(p, p->born);
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    int64_t blocks = (int64_t)f->heads.n * p->groups.n;
    const char **class = FRAME_NEW(f, const char *, (size_t)blocks);
    if (!class)
        return KVF_E_NOMEM;
    for (int64_t i = 0; i < blocks; i++)
        class[i] = p->groups.name[i % p->groups.n];
    table_meta_num(out, "every", (double)p->every);
    put_tokens(out, p->a, p->b, p->T);
    if (p->groups.classes)
        classes_note(p->groups.classes, out);
    table_affine(out, "step", "step", 0, p->every, p->n);
    put_heads(out, &f->heads);
    table_block_str(out, "class", "", class, blocks);
    table_dense_int(out, "entries", "entries", p->held);
    return put_head_budgets(out, f->t, &f->heads, false, d);
}

/* ---- the groups */

/* With `every`, one group for each role, otherwise the prompt, the question that was fed after it,
 * and the rest.  Pictures are a group of `every` where there is one, and questions a group. */
static int group_roles(struct frame *f, bool every, struct kvf_diag *d)
{
    static const char *const names[] = {"all", "prompt", "answer", "think"};
    int image = 0, question = 0; /* 1 where there are such tokens */
    struct groups *g = &((struct plan *)f->state)->groups;
    double *role = FRAME_NEW(f, double, (size_t)f->T);
    int err = role ? KVF_OK : KVF_E_NOMEM;
    if (f->column[ROLE] < 0) { /* which tokens are the prompt's is not known */
        g->name[0] = names[0];
        g->n = 1;
        return err;
    }
    if (!err && f->T)
        err = kvf_read_f64(f->t, f->column[ROLE], 0, 0, 0, (uint32_t)f->T, role, d);
    int most = every ? 4 : 3; /* groups that every trace has */
    g->n = most;
    memcpy(g->name, names, sizeof names);
    for (int64_t i = 0; !err && i < f->T; i++) {
        image |= every && role[i] == KVF_ROLE_IMAGE;
        question |= role[i] == KVF_ROLE_QUESTION;
    }
    for (int64_t i = 0; !err && i < f->T; i++) {
        int part = KVF_IN_PROMPT(role[i]) ? 1 : 2;
        if (every && role[i] == KVF_ROLE_THINK)
            part = 3;
        else if (every && role[i] == KVF_ROLE_IMAGE)
            part = 4;
        else if (role[i] == KVF_ROLE_QUESTION)
            part = most + image;
        g->of[i] = (uint8_t)part;
    }
    if (image)
        g->name[g->n++] = "image";
    if (question)
        g->name[g->n++] = "question";
    return err;
}

/* A group for each class that a token of the range has, in the order of classes. */
static int group_classes(struct kvf_trace *t, const char *path, struct plan *p, struct kvf_diag *d)
{
    struct groups *g = &p->groups;
    uint8_t place[CLASSES_MOST] = {0};
    int err = classes_open(path, &g->classes, d);
    if (!err)
        err = classes_of_trace(g->classes, t, g->of, d);
    if (err)
        return err;
    for (int64_t i = p->a; i < p->b; i++)
        place[g->of[i]] = 1;
    g->name[0] = "all";
    g->n = 1;
    for (int c = 0; c < classes_count(g->classes); c++)
        if (place[c]) {
            g->name[g->n] = classes_name(g->classes, c);
            place[c] = (uint8_t)g->n++;
        }
    for (int64_t i = 0; i < p->T; i++)
        g->of[i] = place[g->of[i]];
    return KVF_OK;
}

static void of_length(void *asked, int64_t T)
{
    struct options *o = asked;
    o->every = steps_every(o->every, T);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    *p = (struct plan){.T = f->T, .a = f->a, .b = f->b, .every = steps_every(o->every, f->T)};
    p->n = (p->T + p->every - 1) / p->every;
    if (o->by != BY_CLASS && o->classes)
        return kvf_fail(d, KVF_E_ARG, "--classes are of use with --by class");
    return KVF_OK;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    const struct options *o = f->options;
    p->groups.of = FRAME_NEW(f, uint8_t, (size_t)p->T);
    if (!p->groups.of)
        return KVF_E_NOMEM;
    int err = o->by == BY_CLASS ? group_classes(f->t, o->classes, p, d)
                                : group_roles(f, o->by == BY_ROLE, d);
    if (err)
        return err;
    size_t G = (size_t)p->groups.n;
    int32_t *born = FRAME_NEW(f, int32_t, G * ((size_t)p->T + 1));
    p->born = frame_alloc(f, G, (size_t)p->n * sizeof *p->born);
    p->held = frame_alloc(f, (size_t)f->heads.n * G, (size_t)p->n * sizeof *p->held);
    f->items = p->T > 0;
    f->n_rows = (int64_t)f->heads.n * p->groups.n * p->n;
    if (!born || !p->born)
        return KVF_E_NOMEM;
    if (p->T)
        count_births(p, born);
    return KVF_OK;
}

static void thread(struct frame *f, void *scratch)
{
    const struct plan *p = f->state;
    *(struct scratch *)scratch = (struct scratch){
        FRAME_NEW(f, uint32_t, (size_t)p->T),
        FRAME_NEW(f, int32_t, (size_t)p->groups.n * ((size_t)p->T + 1))};
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    const struct scratch *w = x->scratch;
    const uint32_t *evict;
    int err = view_evict(x->t, f->column[EVICT], x->head, (uint32_t)p->T, w->evict, &evict, d);
    if (!err)
        count(p, evict, w->gone, p->held + x->h * p->groups.n * p->n);
    return err;
}

static void close(struct frame *f)
{
    classes_close(((struct plan *)f->state)->groups.classes);
}

static void describe(const struct table *t, struct buf *out)
{
    const char *range = table_meta(t, "tokens");
    if (range)
        buf_printf(out, "only tokens %s; ", range);
    int cls = table_find(t, "class"), col = table_find(t, "entries");
    double peak = 0, last = 0;
    int64_t every = table_meta_int(t, "every", 1), T = table_meta_int(t, "T", 0);
    int64_t n = (T + every - 1) / every, heads = 0;
    char seen[48] = "";
    if (every > 1)
        snprintf(seen, sizeof seen, " (seen every %lld steps)", (long long)every);
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (strcmp(table_str(t, cls, r), "all") != 0)
            continue;
        double v = table_real(t, col, r);
        peak = fmax(peak, v);
        if (r % n == n - 1) {
            last += v;
            heads++;
        }
    }
    buf_printf(out,
               "largest head: %.0f entries at its peak%s; at the last step shown a head caches "
               "%.1f on average, of %lld tokens\n",
               peak, seen, heads ? last / (double)heads : 0.0, (long long)T);
}

const struct analyzer an_occupancy = {
    .name = "occupancy",
    .summary = "number of cached entries of each head over time",
    .example = "kvfate size run.kvf -o occupancy.png",
    OPTIONS({OPT_INT, 0, "every", offsetof(struct options, every), "N", "every N-th step",
             .absent = "at most 512 steps", .min = 1, .max = KVF_MAX_STEPS},
            {OPT_WORD, 0, "by", offsetof(struct options, by), "KIND",
             "kinds of tokens; part: of the prompt, of a question fed after it, and the rest",
             "part", .words = by_words},
            CLASSES_OPTION(struct options, classes)),
    COLUMNS([EVICT] = COLUMN_EVICT_STEP, [ROLE] = {"tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN,
                                                   COLUMN_CAN_LACK, "the rows of each role"}),
    HEADS(.space = KVF_SPACE_KV, FRAME_USUAL(struct plan, struct scratch), .close = close),
    .describe = describe,
    .of_length = of_length,
    POOL(KEYS("step", "head", "layer", "index", "class"), {"entries"}),
};
