/* run_cpu.c - the steps of a block on the CPU.
 *
 * NORM, BIAS, ACT and ADD process one row at a time. They run inside the next product: a task
 * computes a few rows and quantises them in its own memory. With several rows, a product also adds
 * its output to the residual stream, and a product before an activation also computes the integers
 * of the activation (ffn.c). No fusion changes a bit. */
#include <string.h>

#include "engine/decode/session_state.h"

struct rows {
    float *p;
    size_t ld;
};

/* Returns the rows of a slot from row t0 on. */
static struct rows rows_at(const struct session *s, enum block_slot slot, int t0)
{
    size_t d = (size_t)s->e->config.d_model;
    struct rows r[SLOTS] = {
        [SLOT_X] = {s->buf.x, d},
        [SLOT_NORMED] = {s->buf.normed, d},
        [SLOT_QKV] = {s->buf.qkv, s->buf.ld_qkv},
        [SLOT_ATT] = {s->buf.att, s->buf.ld_att},
        [SLOT_BRANCH] = {s->buf.branch, s->buf.ld_branch},
        [SLOT_FFN_IN] = {s->buf.normed, d},
        [SLOT_GATE_UP] = {s->buf.gate_up, s->buf.ld_gate_up},
        [SLOT_FFN] = {s->buf.gate_up, s->buf.ld_gate_up},
    };
    r[slot].p += (size_t)t0 * r[slot].ld;
    return r[slot];
}

static bool works_on_rows(enum block_op op)
{
    return op == OP_NORM || op == OP_BIAS || op == OP_ACT || op == OP_ADD;
}

/* Runs one step on one row. */
static void run_row(const struct layer_run *r, const struct block_step *p, const float *src,
                    float *dst)
{
    const struct model_config *m = &r->s->e->config;
    const struct kernels *k = &r->s->e->kernels;
    const float *w = p->w == T_NONE ? NULL : r->s->e->weights->layer[r->layer].vector[p->w];
    if (p->op == OP_NORM)
        k->rmsnorm(dst + p->offset, src + p->offset, w, p->heads, p->width, m->norm_eps);
    else if (p->op == OP_BIAS)
        k->add(dst, w, p->width);
    else if (p->op == OP_ACT)
        (m->family->gelu ? k->geglu : k->swiglu)(dst, src, src + p->width, p->width);
    else
        k->add(dst, src, p->width);
}

/* Steps [first, first + n) on rows [t0, t0 + rows); the last one writes to `to`. */
struct row_steps {
    const struct layer_run *r;
    int first, n;
};

static void run_rows(const struct row_steps *x, int t0, int rows, struct rows to)
{
    struct session *s = x->r->s;
    float scale = s->e->config.residual_scale;
    for (int i = 0; i < x->n; i++) {
        const struct block_step *p = &x->r->b->step[x->first + i];
        struct rows src = rows_at(s, p->src, t0), dst = rows_at(s, p->dst, t0);
        if (i == x->n - 1)
            dst = to;
        for (int t = 0; t < rows; t++) {
            float *in = src.p + (size_t)t * src.ld;
            for (int c = 0; p->op == OP_ADD && scale != 1 && c < p->width; c++)
                in[c] *= scale;
            run_row(x->r, p, in, dst.p + (size_t)t * dst.ld);
        }
    }
}

static void rows_of_product(struct session *s, const void *how, int t0, int n, float *to, size_t ld)
{
    (void)s;
    run_rows(how, t0, n, (struct rows){to, ld});
}

/* Runs the product at step i after the n_rows row steps that compute its input. Returns the number
 * of steps that ran. */
static int run_product(struct layer_run *r, int i, int n_rows)
{
    struct session *s = r->s;
    const struct block_step *p = &r->b->step[i], *next = p + 1;
    const struct row_steps how = {r, i - n_rows, n_rows};
    const struct rows in = rows_at(s, p->src, 0), out = rows_at(s, p->dst, 0);
    const struct packed *w = &s->e->weights->layer[r->layer].matrix[p->w];
    const struct matmul_input rows = {
        .x = in.p,
        .ld = in.ld,
        .prologue = n_rows > 0 ? rows_of_product : NULL,
        .how = &how,
        .kept = p->src == SLOT_X || (p->src == SLOT_NORMED && s->buf.keeps_normed),
        .ready = r->quantised,
    };
    r->quantised = false;
    if (r->T > 1 && next->op == OP_ADD) {
        linear_add(s, &rows, r->T, w);
        return n_rows + 2;
    }
    if (r->T > 1 && next->op == OP_ACT && activate_as_integers(r, &rows)) {
        r->quantised = true;
        return n_rows + 2;
    }
    linear(s, out.p, out.ld, &rows, r->T, w);
    return n_rows + 1;
}

static int step_product(struct layer_run *r, int i)
{
    return run_product(r, i, 0);
}

static void rows_task(void *ctx, int task, int thread)
{
    const struct row_steps *x = ctx;
    int t0 = task * ROWS_PER_TASK, left = x->r->T - t0;
    (void)thread;
    run_rows(x, t0, left < ROWS_PER_TASK ? left : ROWS_PER_TASK,
             rows_at(x->r->s, x->r->b->step[x->first + x->n - 1].dst, t0));
}

static int step_rows(struct layer_run *r, int i)
{
    struct row_steps x = {r, i, 0};
    while (i + x.n < r->b->n && works_on_rows(r->b->step[i + x.n].op))
        x.n++;
    if (i + x.n < r->b->n && r->b->step[i + x.n].op == OP_MATMUL)
        return run_product(r, i + x.n, x.n);
    par_run(r->s->e->pool, (r->T + ROWS_PER_TASK - 1) / ROWS_PER_TASK, rows_task, &x);
    return x.n;
}

static int step_attend(struct layer_run *r, int i)
{
    int err = attention(r->s, r->layer, r->T, r->pos0);
    (void)i;
    return err ? err : 1;
}

const step_fn steps_cpu[BLOCK_OPS] = {
    [OP_NORM] = step_rows,   [OP_BIAS] = step_rows,      [OP_ACT] = step_rows,
    [OP_ADD] = step_rows,    [OP_MATMUL] = step_product, [OP_ROPE] = step_store,
    [OP_GATES] = step_store, [OP_ATTEND] = step_attend,
};

int run_block(const step_fn *steps, struct layer_run *r)
{
    for (int i = 0, n; i < r->b->n; i += n) {
        n = steps[r->b->step[i].op](r, i);
        if (n < 0)
            return n;
    }
    return KVF_OK;
}
