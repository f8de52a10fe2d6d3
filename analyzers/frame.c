/* frame.c - runs the analyses that compute something for each head (frame.h). */
#include "analyzers/frame.h"

#include "analyzers/heads_par.h"
#include "base/mem.h"
#include "base/room.h"

struct block { /* of memory that frame_alloc gave, before its first byte */
    struct block *next;
    void *memory;
};

struct frame_private {
    struct block *blocks;
    struct heads_par *par;
    unsigned char *scratch; /* [n_threads][stride] */
    size_t stride;
    size_t room; /* rows that f->row has room for */
    bool full;   /* memory was out */
    struct lacks lacks;
};

/* ---- memory */

void *frame_alloc(struct frame *f, size_t n, size_t size)
{
    struct block *b = MEM_NEW(struct block, 1);
    void *memory = b ? mem_alloc(n, size) : NULL;
    if (!memory) {
        mem_free(b);
        f->own->full = true;
        return NULL;
    }
    *b = (struct block){f->own->blocks, memory};
    f->own->blocks = b;
    return memory;
}

void *frame_add_row(struct frame *f)
{
    size_t size = f->analyzer->heads->row_size;
    if (!mem_room(&f->row, (size_t)f->n_rows, &f->own->room, 1024, size))
        return NULL;
    return (unsigned char *)f->row + (size_t)f->n_rows++ * size;
}

void *frame_scratch(const struct frame *f, int i)
{
    return f->own->scratch + (size_t)i * f->own->stride;
}

static int memory_of(const struct frame *f, int err)
{
    return !err && (f->own->full || f->own->lacks.text.err) ? KVF_E_NOMEM : err;
}

static void release(struct frame *f)
{
    struct frame_private *own = f->own;
    heads_par_destroy(own->par);
    heads_free(&f->heads);
    lacks_free(&own->lacks);
    mem_free_all(f->row, own->scratch);
    for (struct block *b = own->blocks, *next; b; b = next) {
        next = b->next;
        mem_free_all(b->memory, b);
    }
}

/* ---- options */

void frame_lacks(struct frame *f, const char *name)
{
    lacks_add(&f->own->lacks, f->t, name);
}

/* How many of the analyzer's columns have a place in f->column. */
static int declared(const struct frame *f)
{
    const struct column_use *c = f->analyzer->columns;
    int n = 0;
    while (c && n < FRAME_COLUMNS && c[n].name)
        n++;
    return n;
}

static int find_columns(struct frame *f, struct kvf_diag *d)
{
    const struct column_use *c = f->analyzer->columns;
    struct lacks needed = {.n = 0};
    int err = KVF_OK;
    for (int k = 0, n = declared(f); !err && k < n; k++) {
        if (c[k].need == COLUMN_ASKED)
            continue;
        struct lacks *l = c[k].need == COLUMN_ALWAYS ? &needed : NULL;
        err = columns_find(f->t, c[k].name, c[k].space, c[k].axis, l, &f->column[k], d);
        if (!err && f->column[k] < 0 && c[k].need == COLUMN_CAN_LACK)
            frame_lacks(f, c[k].name);
    }
    return columns_refuse(&needed, NULL, err, d);
}

/* Checks that the columns found have enough values, before memory is allocated for them. */
static int check_columns(const struct frame *f, struct kvf_diag *d)
{
    const struct column_use *c = f->analyzer->columns;
    int err = KVF_OK;
    for (int k = 0, n = declared(f); !err && k < n; k++) {
        bool here = c[k].need != COLUMN_ASKED && f->column[k] >= 0;
        const struct kvf_column *has = here ? kvf_column(f->t, f->column[k]) : NULL;
        uint64_t tokens = has && has->axis == KVF_AXIS_TOKEN ? (uint64_t)(f->b - f->a) : 0;
        if (has && has->space == f->space)
            err = budget_column(f->t, f->column[k], (uint64_t)f->heads.n * tokens, d);
        else if (has && has->space == KVF_SPACE_RUN)
            err = budget_column(f->t, f->column[k], tokens, d);
    }
    return err;
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    const struct head_analysis *x = f->analyzer->heads;
    int err = tokens_select(f->t, f->args, &f->a, &f->b, d);
    if (!err && x->choose)
        err = x->choose(f, d);
    if (!err)
        err = find_columns(f, d);
    if (!err)
        err = heads_select(f->t, f->space, f->args->heads, &f->heads, d);
    if (!err)
        err = check_columns(f, d);
    if (!err && x->prepare)
        err = x->prepare(f, d);
    return memory_of(f, err);
}

/* ---- the heads */

struct pass {
    const struct frame *f;
    frame_head_fn head;
};

static int do_head(void *ctx, struct kvf_trace *t, int item, int h, int thread, struct kvf_diag *d)
{
    const struct pass *p = ctx;
    const struct frame_head x = {t, item, h, &p->f->heads.head[h], frame_scratch(p->f, thread)};
    return p->head(p->f, &x, d);
}

int frame_pass(struct frame *f, int items, frame_head_fn head, struct kvf_diag *d)
{
    struct pass p = {f, head};
    return heads_par_run(f->own->par, &f->heads, items, do_head, &p, d);
}

static int compute(struct frame *f, struct kvf_diag *d)
{
    const struct head_analysis *x = f->analyzer->heads;
    struct frame_private *own = f->own;
    int64_t values = (f->b - f->a) * f->heads.n * f->items;
    int err = heads_par_create(f->t, f->items ? f->args->threads : 1, values, &own->par);
    if (err)
        return err;
    heads_par_watch(own->par, f->args->watch, f->args->watch_ctx);
    f->n_threads = heads_par_threads(own->par);
    own->stride = (x->scratch_size + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    own->scratch = mem_alloc((size_t)f->n_threads, own->stride);
    own->room = (size_t)f->n_rows;
    f->row = mem_alloc((size_t)f->n_rows, x->row_size);
    if (!own->scratch || !f->row)
        return KVF_E_NOMEM;
    for (int i = 0; i < f->n_threads && x->thread; i++)
        x->thread(f, frame_scratch(f, i));
    err = memory_of(f, KVF_OK);
    if (!err && f->items)
        err = frame_pass(f, f->items, x->head, d);
    if (!err && x->finish)
        err = x->finish(f, d);
    return memory_of(f, err);
}

/* ---- the table */

struct row_head frame_row_head(const struct frame *f, int h)
{
    const struct head_list *l = &f->heads;
    return h < l->n ? (struct row_head){l->name[h], l->layer[h], l->index[h]}
                    : (struct row_head){"all", -1, -1};
}

static int put_table(struct frame *f, struct table **ret_table, struct kvf_diag *d)
{
    const struct head_analysis *x = f->analyzer->heads;
    struct table *out = table_create(f->analyzer->name, f->n_rows);
    if (!out)
        return KVF_E_NOMEM;
    int err = put_provenance(out, f->t, d);
    lacks_note(&f->own->lacks, out);
    if (!err)
        err = x->rows ? memory_of(f, x->rows(f, out, d)) : KVF_OK;
    if (!err && x->n_members)
        err = records_put(out, f->row, x->row_size, x->members, x->n_members);
    if (!err)
        err = table_err(out);
    return table_deliver(out, err, ret_table);
}

int frame_run(const struct analyzer *a, struct kvf_trace *t, const struct analyzer_args *args,
              struct table **ret_table, struct kvf_diag *d)
{
    struct frame_private own = {.blocks = NULL};
    struct frame f = {.analyzer = a,
                      .t = t,
                      .args = args,
                      .options = args->options,
                      .T = kvf_n_steps(t),
                      .space = a->heads->space,
                      .items = 1,
                      .own = &own};
    f.state = frame_alloc(&f, 1, a->heads->state_size);
    if (!f.state)
        return KVF_E_NOMEM;
    int err = choose(&f, d);
    if (!err)
        err = compute(&f, d);
    if (!err)
        err = put_table(&f, ret_table, d);
    if (a->heads->close)
        a->heads->close(&f);
    release(&f);
    return err;
}
