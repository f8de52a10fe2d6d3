#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/train/pass.h"

struct pass {
    struct compute c;
    const struct frozen *f;
    const struct net *net;
    const float *held; /* [L, T, H] or NULL: pass_hold */
    const struct tuned *tuned;
    float *d_w;
    const int32_t *gone;
    const float *share;
    struct pass_options opt;
    int most, n_tapes, L, H;
    float *x;          /* [L + 1][most, d]: the student's inputs of layers */
    struct tape *tape; /* [n_tapes] */
    struct block_scratch scratch;
    float *teacher, *student, *dx;   /* [most, d] */
    float *other;                    /* [most, d] the teacher's second stream */
    float *values, *d_values, *sums; /* [L * H, T] */
    float *d_more;                   /* [T, H] of one layer */
    float *turn, *turn_back;
    void *quality;
    size_t bytes;
};

static float *floats(struct pass *p, size_t n)
{
    p->bytes += n * sizeof(float);
    return MEM_NEW(float, n);
}

static size_t width(const struct pass *p)
{
    return (size_t)p->most * (size_t)p->f->config->d_model;
}

/* cos and sin of every position, and of its opposite. */
static void fill_turns(struct pass *p)
{
    const struct model_config *m = p->f->config;
    enum model_rope kind = model_rope(m, 0, p->most);
    for (int t = 0; t < p->most; t++)
        for (int j = 0; j < m->rope_dim / 2; j++) {
            double angle = (double)t * m->theta[kind][j];
            size_t at = (size_t)t * (size_t)m->rope_dim + 2 * (size_t)j;
            p->turn[at] = p->turn_back[at] = (float)cos(angle) * m->turn_gain[kind];
            p->turn[at + 1] = (float)sin(angle) * m->turn_gain[kind];
            p->turn_back[at + 1] = -p->turn[at + 1];
        }
}

static int allocate(struct pass *p)
{
    const struct model_config *m = p->f->config;
    size_t values = (size_t)p->L * (size_t)p->H * (size_t)p->most;
    size_t turns = (size_t)p->most * (size_t)m->rope_dim;
    struct quality q = {.kernels = &p->c.k, .out = &p->f->output, .T = p->most};
    p->x = floats(p, ((size_t)p->L + 1) * width(p));
    float **const rows[] = {&p->teacher, &p->student, &p->dx, &p->other};
    for (int i = 0; i < 4; i++)
        *rows[i] = floats(p, width(p));
    float **const heads[] = {&p->values, &p->d_values, &p->sums};
    for (int i = 0; i < 3; i++)
        *heads[i] = floats(p, values);
    p->d_more = floats(p, (size_t)p->H * (size_t)p->most);
    p->turn = floats(p, turns);
    p->turn_back = floats(p, turns);
    p->quality = mem_alloc(1, quality_scratch(&q, par_threads(p->c.pool)));
    p->tape = MEM_NEW(struct tape, (size_t)p->n_tapes);
    return p->x && p->teacher && p->student && p->dx && p->other && p->values && p->d_values
                   && p->sums && p->d_more && p->turn && p->turn_back && p->quality && p->tape
               ? KVF_OK
               : KVF_E_NOMEM;
}

int pass_create(const struct compute *c, const struct frozen *f, const struct net *net,
                const struct pass_options *opt, int most, struct pass **ret_pass)
{
    struct pass *p = MEM_NEW(struct pass, 1);
    if (!p)
        return KVF_E_NOMEM;
    p->c = *c;
    p->f = f;
    p->net = net;
    p->opt = *opt;
    p->most = most;
    p->L = f->config->n_layers;
    p->H = f->config->n_kv_heads;
    p->n_tapes = opt->recompute ? 1 : p->L;
    int err = allocate(p);
    if (err)
        goto fail;
    for (int i = 0; i < p->n_tapes; i++) {
        err = tape_create(f, net, most, &p->tape[i]);
        if (err)
            goto fail;
    }
    err = block_scratch_create(f, net, c, most, &p->scratch);
    if (err)
        goto fail;
    fill_turns(p);
    *ret_pass = p;
    return KVF_OK;

fail:
    pass_destroy(p);
    return err;
}

void pass_destroy(struct pass *p)
{
    if (!p)
        return;
    for (int i = 0; p->tape && i < p->n_tapes; i++)
        tape_finish(&p->tape[i]);
    block_scratch_finish(&p->scratch);
    float *const rows[] = {p->x,        p->teacher, p->student, p->dx,   p->other,    p->values,
                           p->d_values, p->sums,    p->d_more,  p->turn, p->turn_back};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        mem_free(rows[i]);
    mem_free(p->quality);
    mem_free(p->tape);
    mem_free(p);
}

size_t pass_bytes(const struct pass *p)
{
    const struct model_config *m = p->f->config;
    size_t D = (size_t)m->head_dim, heads = (size_t)m->n_heads, kv = (size_t)m->n_kv_heads;
    size_t row = 2 * (size_t)m->d_model + (2 * heads + 3 * kv) * D + 2 * (size_t)m->d_ffn;
    if (m->family->qk_norm)
        row += (heads + kv) * D;
    return p->bytes + (size_t)p->n_tapes * (size_t)p->most * row * sizeof(float);
}

void pass_tune(struct pass *p, const struct tuned *t, float *d_w)
{
    p->tuned = t;
    p->d_w = d_w;
}

void pass_mask(struct pass *p, const int32_t *gone)
{
    p->gone = gone;
}

void pass_weigh(struct pass *p, const double quality[QUALITY_TERMS])
{
    memcpy(p->opt.quality, quality, sizeof p->opt.quality);
}

void pass_share(struct pass *p, const float *share)
{
    p->share = share;
}

static const struct frozen *student_of(const struct pass *p)
{
    return p->tuned ? &p->tuned->frozen : p->f;
}

static struct block_run run_of(const struct pass *p, const struct pack *pack, bool student)
{
    return (struct block_run){.c = &p->c,
                              .f = student ? student_of(p) : p->f,
                              .gone = student ? p->gone : NULL,
                              .tuned = p->tuned,
                              .d_w = student ? p->d_w : NULL,
                              .net = student ? p->net : NULL,
                              .gating = student ? p->opt.gating : GATING_NONE,
                              .window = p->opt.window,
                              .T = pack->n,
                              .first = pack->first,
                              .turn = p->turn,
                              .turn_back = p->turn_back};
}

static float *stream(const struct pass *p, int layer)
{
    return p->x + (size_t)layer * width(p);
}

static struct tape *tape_of(const struct pass *p, int layer)
{
    return &p->tape[p->n_tapes == 1 ? 0 : layer];
}

static void final_norm(const struct pass *p, const struct frozen *f, float *out, const float *x,
                       int T)
{
    const struct model_config *m = f->config;
    p->c.k.rmsnorm(out, x, f->weights->out_norm, T, m->d_model, m->norm_eps);
}

/* Whether a loss compares with the teacher. */
static bool needs_teacher(const struct pass *p)
{
    return p->opt.quality[QUALITY_FWKL] > 0 || p->opt.quality[QUALITY_RVKL] > 0
           || p->opt.quality[QUALITY_MSE] > 0;
}

static void embed(const struct pass *p, const struct frozen *f, const struct pack *pack, float *x)
{
    for (int t = 0; t < pack->n; t++)
        weights_embed(f->weights, pack->ids[t], x + (size_t)t * (size_t)p->f->config->d_model);
}

static void run_teacher(struct pass *p, const struct pack *pack)
{
    struct block_run r = run_of(p, pack, false);
    float *a = p->other, *b = p->dx;
    if (teacher_states_read(p->opt.kept, pack, p->f->config->d_model, p->teacher))
        return;
    embed(p, p->f, pack, a);
    for (int l = 0; l < p->L; l++) {
        block_forward(&r, l, a, b, tape_of(p, 0), &p->scratch);
        float *t = a;
        a = b;
        b = t;
    }
    final_norm(p, p->f, p->teacher, a, pack->n);
    teacher_states_write(p->opt.kept, pack, p->f->config->d_model, p->teacher);
}

/* The values of a layer's gates, head by head. */
static void collect(struct pass *p, const struct tape *t, int layer, int T)
{
    for (int i = 0; i < T; i++)
        for (int h = 0; h < p->H; h++)
            p->values[(size_t)(layer * p->H + h) * (size_t)T + (size_t)i] =
                t->value[(size_t)i * (size_t)p->H + (size_t)h];
}

void pass_hold(struct pass *p, const float *g)
{
    p->held = g;
}

/* The n numbers of a layer where no net gives them. */
static void fixed_gates(const struct pass *p, int layer, size_t n, struct tape *t)
{
    for (size_t i = 0; i < n; i++)
        t->value[i] = p->held ? p->held[(size_t)layer * n + i] : 1.0f;
}

static void run_student(struct pass *p, const struct pack *pack)
{
    struct block_run r = run_of(p, pack, true);
    for (int l = 0; l < p->L; l++) {
        struct tape *t = tape_of(p, l);
        if (!p->net)
            fixed_gates(p, l, (size_t)pack->n * (size_t)p->H, t);
        block_forward(&r, l, stream(p, l), stream(p, l + 1), t, &p->scratch);
        collect(p, t, l, pack->n);
    }
    final_norm(p, student_of(p), p->student, stream(p, p->L), pack->n);
}

/* Capacity or sparsity: the loss, and derivatives in d_values. */
static double limit_loss(struct pass *p, const struct pack *pack, double weight)
{
    int heads = p->L * p->H;
    if (p->opt.gating == GATING_WRITE) {
        struct sparsity s = {pack->n, heads, p->values, pack->first, p->opt.offset, p->opt.window};
        return sparsity_loss(&s, weight * p->opt.lambda, p->d_values, p->c.pool);
    }
    struct capacity c = {&p->c.k,     pack->n,  heads,         p->values,
                         pack->first, p->opt.M, p->opt.global, p->opt.norm};
    return capacity_loss(&c, weight * p->opt.lambda, p->sums, p->d_values, p->c.pool);
}

static double mean_value(const struct pass *p, int T)
{
    size_t n = (size_t)(p->L * p->H) * (size_t)T;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p->opt.gating == GATING_WRITE ? (double)p->values[i] : exp((double)p->values[i]);
    return sum / (double)n;
}

static void run_backward(struct pass *p, const struct pack *pack, float *grad, float *d_entry)
{
    struct block_run r = run_of(p, pack, true);
    size_t per = (size_t)pack->n * (size_t)p->H, T = (size_t)pack->n;
    for (int l = p->L - 1; l >= 0; l--) {
        struct tape *t = tape_of(p, l);
        if (p->n_tapes == 1) {
            if (!p->net)
                fixed_gates(p, l, per, t);
            block_forward(&r, l, stream(p, l), p->other, t, &p->scratch);
        }
        for (size_t i = 0; i < per; i++)
            p->d_more[i] =
                p->d_values[((size_t)(l * p->H) + i % (size_t)p->H) * T + i / (size_t)p->H];
        block_backward(&r, l, stream(p, l), p->dx, t, p->d_more, p->net ? grad : NULL,
                       d_entry ? d_entry + (size_t)l * per : NULL, &p->scratch);
    }
}

/* Derivatives by the student's last hidden states, through the final norm, in p->dx. */
static void quality_back(struct pass *p, const struct pack *pack, double weight,
                         struct quality_result *ret)
{
    const struct model_config *m = p->f->config;
    const struct frozen *f = student_of(p);
    struct quality q = {.kernels = &p->c.k,
                        .out = &f->output,
                        .teacher_out = &p->f->output,
                        .T = pack->n,
                        .student = p->student,
                        .teacher = p->teacher,
                        .ids = pack->ids,
                        .first = pack->first,
                        .d_matrix = p->d_w ? p->d_w + p->tuned->head : NULL,
                        .temperature = p->opt.temperature,
                        .share = p->share};
    for (int i = 0; i < QUALITY_TERMS; i++)
        q.weight[i] = weight * p->opt.quality[i];
    quality_loss(&q, p->other, ret, p->c.pool, p->quality);
    memset(p->dx, 0, (size_t)pack->n * (size_t)m->d_model * sizeof *p->dx);
    p->c.k.rmsnorm_back(p->dx, stream(p, p->L), f->weights->out_norm, p->other, pack->n, m->d_model,
                        m->norm_eps);
    struct norm_rows dy = {p->other, (size_t)m->d_model, pack->n, 1};
    if (p->d_w)
        norm_learn(p->d_w + p->tuned->out_norm, stream(p, p->L), (size_t)m->d_model, &dy,
                   m->d_model, m->norm_eps);
}

/* Rows of the embedding get the derivatives by the first layer's inputs, token by token. */
static void learn_embedding(const struct pass *p, const struct pack *pack)
{
    size_t d = (size_t)p->f->config->d_model;
    float *to = p->d_w + p->tuned->embedding;
    for (int t = 0; t < pack->n; t++)
        p->c.k.add(to + (size_t)pack->ids[t] * d, p->dx + (size_t)t * d, (int)d);
}

void pass_run(struct pass *p, const struct pack *pack, double weight, float *grad, float *d_entry,
              struct pass_loss *ret)
{
    struct quality_result q;
    embed(p, student_of(p), pack, stream(p, 0));
    if (needs_teacher(p))
        run_teacher(p, pack);
    run_student(p, pack);
    *ret = (struct pass_loss){0};
    if (p->opt.gating != GATING_NONE) {
        ret->limit = limit_loss(p, pack, weight);
        ret->value = mean_value(p, pack->n);
    }
    quality_back(p, pack, weight, &q);
    ret->positions = q.positions;
    ret->total = p->opt.lambda * ret->limit;
    for (int i = 0; i < QUALITY_TERMS; i++) {
        ret->term[i] = q.term[i];
        if (p->opt.quality[i] > 0)
            ret->total += p->opt.quality[i] * q.term[i];
    }
    if (grad || d_entry || p->d_w)
        run_backward(p, pack, grad, d_entry);
    if (p->d_w)
        learn_embedding(p, pack);
}
