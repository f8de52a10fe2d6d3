/* pass.c - forward and backward passes over all blocks of a model (pass.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/train/pass.h"

struct pass {
    struct compute c;
    const struct frozen *f;
    const struct net *net;
    const float *held; /* [L, T, H] here, or NULL: pass_hold */
    const struct trainable *tuned;
    float *d_w;
    const int32_t *evicted_at; /* here */
    const float *share, *sampled;
    double range;
    struct pass_options opt;
    uint64_t layers_done; /* of this run */
    uint64_t head_layers; /* what the product with the vocabulary counts as */
    int most, n_tapes, L, H;
    struct tape *tape; /* [n_tapes] */
    struct block_scratch scratch;
    float *host;         /* [most, d], and no less than [L * H, T] */
    int32_t *host_local; /* [most] where the window of a token begins, or its document */
    int32_t *reach;      /* [L * H] windows of the layers, or NULL; here */

    /* There: */
    float *x;                        /* [L + 1][most, d]: the student's inputs of layers */
    float *teacher, *student, *dx;   /* [most, d] */
    float *other;                    /* [most, d] the teacher's second stream */
    float *values, *d_values, *sums; /* [L * H, T] */
    float *open, *entry;             /* [L, T, H] gates without a net; derivatives by entries */
    float *d_more;                   /* [T, H] of one layer */
    float *turn, *turn_back;
    int32_t *ids, *first, *local; /* [most] of the pack */
    int32_t *d_evicted_at;        /* [L, T, H] copy of evicted_at */
    void *quality;
    size_t bytes;
};

static void *room(struct pass *p, size_t n, size_t size)
{
    p->bytes += n * size;
    return ops(&p->c)->alloc(&p->c, n, size);
}

static size_t width(const struct pass *p)
{
    return (size_t)p->most * (size_t)p->f->config->d_model;
}

/* Values of all layers, of T tokens each. */
static size_t values_of(const struct pass *p, int T)
{
    return (size_t)p->L * (size_t)p->H * (size_t)T;
}

/* Rotations of all kinds. */
static size_t turns(const struct pass *p)
{
    return (size_t)ROPE_KINDS * (size_t)p->most * (size_t)p->f->config->rope_dim;
}

/* cos and sin of every position, and of its opposite. */
static void fill_turns(const struct pass *p, float *turn, float *back)
{
    const struct model_config *m = p->f->config;
    size_t at = 0;
    for (int kind = 0; kind < ROPE_KINDS; kind++)
        for (int t = 0; t < p->most; t++)
            for (int j = 0; j < m->rope_dim / 2; j++, at += 2) {
                double angle = (double)t * m->theta[kind][j];
                turn[at] = back[at] = (float)cos(angle) * m->rope_attn_factor[kind];
                turn[at + 1] = (float)sin(angle) * m->rope_attn_factor[kind];
                back[at + 1] = -turn[at + 1];
            }
}

static int send_turns(struct pass *p)
{
    size_t n = turns(p);
    float *turn = MEM_NEW(float, n), *back = MEM_NEW(float, n);
    int err = turn && back ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        fill_turns(p, turn, back);
        ops(&p->c)->to_device(&p->c, p->turn, turn, n * sizeof *turn);
        ops(&p->c)->to_device(&p->c, p->turn_back, back, n * sizeof *back);
    }
    mem_free_all(turn, back);
    return err;
}

static int allocate(struct pass *p)
{
    size_t values = values_of(p, p->most);
    struct quality q = {.kernels = &p->c.k, .out = &p->f->output, .T = p->most};
    const struct {
        float **to;
        size_t n;
    } all[] = {{&p->x, ((size_t)p->L + 1) * width(p)},
               {&p->teacher, width(p)},
               {&p->student, width(p)},
               {&p->dx, width(p)},
               {&p->other, width(p)},
               {&p->values, values},
               {&p->d_values, values},
               {&p->sums, values},
               {&p->open, values},
               {&p->entry, values},
               {&p->d_more, (size_t)p->H * (size_t)p->most},
               {&p->turn, turns(p)},
               {&p->turn_back, turns(p)}};
    bool good = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].to = room(p, all[i].n, sizeof(float));
        good = good && *all[i].to;
    }
    p->ids = room(p, (size_t)p->most, sizeof *p->ids);
    p->first = room(p, (size_t)p->most, sizeof *p->first);
    p->local = room(p, (size_t)p->most, sizeof *p->local);
    p->host_local = MEM_NEW(int32_t, (size_t)p->most);
    p->d_evicted_at = room(p, values, sizeof *p->d_evicted_at);
    p->quality = room(p, ops(&p->c)->quality_scratch(&p->c, &q), 1);
    p->host = MEM_NEW(float, values > width(p) ? values : width(p));
    p->tape = MEM_NEW(struct tape, (size_t)p->n_tapes);
    good = good && p->ids && p->first && p->local && p->d_evicted_at && p->quality;
    return good && p->host && p->host_local && p->tape ? send_turns(p) : KVF_E_NOMEM;
}

/* Fills the window of each head if some layers have one. */
static int find_windows(struct pass *p)
{
    const struct model_config *m = p->f->config;
    if (!m->window)
        return KVF_OK;
    p->reach = MEM_NEW(int32_t, (size_t)(p->L * p->H));
    for (int i = 0; p->reach && i < p->L * p->H; i++)
        p->reach[i] = model_window(m, i / p->H);
    return p->reach ? KVF_OK : KVF_E_NOMEM;
}

/* The product with the vocabulary and its way back, in layers there or back. */
static uint64_t count_head(const struct model_config *m)
{
    double d = (double)m->d_model, kv = (double)m->n_kv_heads, heads = (double)m->n_heads;
    double layer = 2 * d * m->head_dim * (heads + kv) + 3 * d * (double)m->d_ffn;
    return (uint64_t)fmax(1, round(d * (double)m->vocab / layer));
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
    p->head_layers = count_head(f->config);
    int err = allocate(p);
    if (!err)
        err = find_windows(p);
    if (err)
        goto fail;
    for (int i = 0; i < p->n_tapes; i++) {
        err = tape_create(f, net, most, &p->tape[i]);
        if (err)
            goto fail;
    }
    err = block_scratch_create(f, net, most, &p->scratch);
    if (err)
        goto fail;
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
        tape_finish(&p->c, &p->tape[i]);
    block_scratch_finish(&p->c, &p->scratch);
    void *const device[] = {
        p->x,      p->teacher,  p->student, p->dx,           p->other,   p->values,
        p->open,   p->d_values, p->sums,    p->turn,         p->ids,     p->turn_back,
        p->d_more, p->entry,    p->first,   p->d_evicted_at, p->quality, p->local};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        ops(&p->c)->free(&p->c, device[i]);
    mem_free_all(p->host, p->host_local, p->reach, p->tape, p);
}

size_t pass_bytes(const struct pass *p)
{
    const struct model_config *m = p->f->config;
    size_t D = (size_t)m->head_dim, heads = (size_t)m->n_heads, kv = (size_t)m->n_kv_heads;
    size_t row = 2 * (size_t)m->d_model + (2 * heads + 3 * kv) * D + 2 * (size_t)m->d_ffn;
    if (m->family->qk_norm)
        row += (heads + kv) * D;
    if (m->family->post_norm)
        row += 2 * (size_t)m->d_model;
    return p->bytes + (size_t)p->n_tapes * (size_t)p->most * row * sizeof(float);
}

void pass_tune(struct pass *p, const struct trainable *t, float *d_w)
{
    p->tuned = t;
    p->d_w = d_w;
}

void pass_mask(struct pass *p, const int32_t *evicted_at)
{
    p->evicted_at = evicted_at;
}

void pass_weigh(struct pass *p, const double quality[QUALITY_TERMS])
{
    memcpy(p->opt.quality, quality, sizeof p->opt.quality);
}

void pass_share(struct pass *p, const float *share)
{
    p->share = share;
}

void pass_policy(struct pass *p, const float *sampled, double range)
{
    p->sampled = sampled;
    p->range = range;
}

static const struct frozen *student_of(const struct pass *p)
{
    return p->tuned ? &p->tuned->frozen : p->f;
}

static struct block_run run_of(const struct pass *p, const struct pack *pack, bool student)
{
    return (struct block_run){.c = &p->c,
                              .f = student ? student_of(p) : p->f,
                              .evicted_at = student && p->evicted_at ? p->d_evicted_at : NULL,
                              .trainable = p->tuned,
                              .d_w = student ? p->d_w : NULL,
                              .net = student ? p->net : NULL,
                              .gating = student ? p->opt.gating : GATING_NONE,
                              .window = p->opt.window,
                              .T = pack->n,
                              .first = p->first,
                              .local = p->local,
                              .max_tokens = p->most,
                              .rope = p->turn,
                              .rope_inverse = p->turn_back};
}

static float *stream(const struct pass *p, int layer)
{
    return p->x + (size_t)layer * width(p);
}

static struct tape *tape_of(const struct pass *p, int layer)
{
    return &p->tape[p->n_tapes == 1 ? 0 : layer];
}

static struct norm last_norm(const struct frozen *f, int T)
{
    const struct model_config *m = f->config;
    return (struct norm){.T = T, .heads = 1, .C = m->d_model, .eps = m->norm_eps, .w = f->out_norm};
}

static void final_norm(const struct pass *p, const struct frozen *f, float *out, const float *x,
                       int T)
{
    struct norm n = last_norm(f, T);
    size_t d = (size_t)n.C;
    ops(&p->c)->norm(&p->c, &n, out, d, x, d);
}

/* Whether a loss compares with the teacher. */
static bool needs_teacher(const struct pass *p)
{
    return p->opt.quality[QUALITY_FWKL] > 0 || p->opt.quality[QUALITY_RVKL] > 0
           || p->opt.quality[QUALITY_MSE] > 0;
}

static void send_rows(const struct pass *p, float *device, int T)
{
    size_t d = (size_t)p->f->config->d_model;
    ops(&p->c)->to_device(&p->c, device, p->host, (size_t)T * d * sizeof *device);
}

static void embed(const struct pass *p, const struct frozen *f, const struct pack *pack, float *x)
{
    for (int t = 0; t < pack->n; t++)
        weights_embed(f->weights, pack->ids[t],
                      p->host + (size_t)t * (size_t)p->f->config->d_model);
    send_rows(p, x, pack->n);
}

/* Where the window of each token begins. */
static void send_windows(const struct pass *p, const struct pack *pack)
{
    int window = p->f->config->window;
    for (int t = 0; t < pack->n; t++) {
        int from = window ? t - window + 1 : 0;
        p->host_local[t] = from > pack->first[t] ? from : pack->first[t];
    }
    ops(&p->c)->to_device(&p->c, p->local, p->host_local, (size_t)pack->n * sizeof *p->local);
}

/* What a pass reads of a pack and of its masks and gates, there. */
static void send_pack(const struct pass *p, const struct pack *pack)
{
    const struct ops *on = ops(&p->c);
    size_t n = values_of(p, pack->n), bytes = (size_t)pack->n * sizeof *pack->ids;
    on->to_device(&p->c, p->ids, pack->ids, bytes);
    on->to_device(&p->c, p->first, pack->first, bytes);
    send_windows(p, pack);
    if (p->evicted_at)
        on->to_device(&p->c, p->d_evicted_at, p->evicted_at, n * sizeof *p->evicted_at);
    if (p->net)
        return;
    for (size_t i = 0; !p->held && i < n; i++)
        p->host[i] = 1.0f;
    on->to_device(&p->c, p->open, p->held ? p->held : p->host, n * sizeof *p->open);
}

/* Tells who watches that so many more layers are done. */
static void layers_done(struct pass *p, uint64_t n)
{
    uint64_t of = (uint64_t)p->L * (needs_teacher(p) ? 3 : 2) + p->head_layers;
    p->layers_done += n;
    if (p->opt.watch)
        p->opt.watch(p->opt.watch_ctx, p->layers_done, of);
}

/* Of the product with the vocabulary (a kvf_watch_fn). */
static void positions_done(void *pass, uint64_t done, uint64_t of)
{
    struct pass *p = pass;
    uint64_t now = p->layers_done;
    layers_done(p, p->head_layers * done / of);
    p->layers_done = now;
}

static void run_teacher(struct pass *p, const struct pack *pack)
{
    struct block_run r = run_of(p, pack, false);
    float *a = p->other, *b = p->dx;
    int d = p->f->config->d_model;
    if (teacher_states_read(p->opt.kept, pack, d, p->host)) {
        send_rows(p, p->teacher, pack->n);
        layers_done(p, (uint64_t)p->L);
        return;
    }
    if (p->tuned)
        embed(p, p->f, pack, a);
    else /* the student reads the same */
        ops(&p->c)->copy(&p->c, a, stream(p, 0), (size_t)pack->n * (size_t)d * sizeof *a);
    for (int l = 0; l < p->L; l++) {
        block_forward(&r, l, a, b, tape_of(p, 0), &p->scratch);
        float *t = a;
        a = b;
        b = t;
        layers_done(p, 1);
    }
    final_norm(p, p->f, p->teacher, a, pack->n);
    if (!p->opt.kept)
        return;
    ops(&p->c)->to_host(&p->c, p->host, p->teacher, (size_t)pack->n * (size_t)d * sizeof *p->host);
    teacher_states_write(p->opt.kept, pack, d, p->host);
}

/* The values of a layer's gates, head by head. */
static void collect(struct pass *p, const struct tape *t, int layer, int T)
{
    ops(&p->c)->transpose(&p->c, p->values + (size_t)(layer * p->H) * (size_t)T, t->value, T, p->H);
}

void pass_fix_gates(struct pass *p, const float *g)
{
    p->held = g;
}

/* The n numbers of a layer where no net gives them. */
static void fixed_gates(const struct pass *p, int layer, size_t n, struct tape *t)
{
    if (!p->net)
        ops(&p->c)->copy(&p->c, t->value, p->open + (size_t)layer * n, n * sizeof *t->value);
}

static void run_student(struct pass *p, const struct pack *pack)
{
    struct block_run r = run_of(p, pack, true);
    for (int l = 0; l < p->L; l++) {
        struct tape *t = tape_of(p, l);
        fixed_gates(p, l, (size_t)pack->n * (size_t)p->H, t);
        block_forward(&r, l, stream(p, l), stream(p, l + 1), t, &p->scratch);
        collect(p, t, l, pack->n);
        layers_done(p, 1);
    }
    final_norm(p, student_of(p), p->student, stream(p, p->L), pack->n);
}

/* Capacity or sparsity: the loss, and derivatives in d_values. */
static double limit_loss(struct pass *p, const struct pack *pack, double weight)
{
    int heads = p->L * p->H;
    if (p->opt.gating == GATING_WRITE) {
        struct sparsity s = {pack->n,       heads,         p->values, p->first,
                             p->opt.offset, p->opt.window, p->reach};
        return ops(&p->c)->sparsity(&p->c, &s, weight * p->opt.lambda, p->d_values);
    }
    struct capacity c = {&p->c.k,  pack->n,       heads,       p->values, p->first,
                         p->opt.M, p->opt.global, p->opt.norm, p->reach};
    return ops(&p->c)->capacity(&p->c, &c, weight * p->opt.lambda, p->sums, p->d_values);
}

static double mean_value(const struct pass *p, int T)
{
    return ops(&p->c)->mean(&p->c, p->values, values_of(p, T), p->opt.gating != GATING_WRITE);
}

static void run_backward(struct pass *p, const struct pack *pack, float *grad, float *d_entry)
{
    struct block_run r = run_of(p, pack, true);
    size_t per = (size_t)pack->n * (size_t)p->H;
    for (int l = p->L - 1; l >= 0; l--) {
        struct tape *t = tape_of(p, l);
        if (p->n_tapes == 1) {
            fixed_gates(p, l, per, t);
            block_forward(&r, l, stream(p, l), p->other, t, &p->scratch);
        }
        ops(&p->c)->transpose(&p->c, p->d_more, p->d_values + (size_t)l * per, p->H, pack->n);
        block_backward(&r, l, stream(p, l), p->dx, t, p->d_more, p->net ? grad : NULL,
                       d_entry ? p->entry + (size_t)l * per : NULL, &p->scratch);
        layers_done(p, 1);
    }
    if (d_entry)
        ops(&p->c)->to_host(&p->c, d_entry, p->entry, values_of(p, pack->n) * sizeof *d_entry);
}

/* Whether the embedding, the output matrix and norms learn. */
static bool ends_learn(const struct pass *p)
{
    return p->d_w && trainable_learns(p->tuned, T_HEAD);
}

/* Derivatives by the student's last hidden states, through the final norm, in p->dx. */
static void quality_back(struct pass *p, const struct pack *pack, double weight,
                         struct quality_result *ret)
{
    const struct frozen *f = student_of(p);
    struct quality q = {.kernels = &p->c.k,
                        .out = &f->output,
                        .teacher_out = &p->f->output,
                        .T = pack->n,
                        .student = p->student,
                        .teacher = p->teacher,
                        .ids = pack->ids,
                        .first = pack->first,
                        .d_matrix = ends_learn(p) ? p->d_w + p->tuned->head : NULL,
                        .cap = p->f->config->logit_cap,
                        .temperature = p->opt.temperature,
                        .share = p->share,
                        .sampled = p->sampled,
                        .range = p->range,
                        .watch = positions_done,
                        .watch_ctx = p};
    for (int i = 0; i < QUALITY_TERMS; i++)
        q.weight[i] = weight * p->opt.quality[i];
    const struct ops *on = ops(&p->c);
    struct norm n = last_norm(f, pack->n);
    size_t d = (size_t)n.C;
    on->distill_loss(&p->c, &q, p->other, ret, p->quality);
    layers_done(p, p->head_layers);
    on->zero(&p->c, p->dx, (size_t)pack->n * d * sizeof *p->dx);
    on->norm_back(&p->c, &n, p->dx, d, stream(p, p->L), d, p->other, d);
    if (ends_learn(p))
        on->norm_weight_grad(&p->c, &n, p->d_w + p->tuned->out_norm, stream(p, p->L), d, p->other,
                             d);
}

/* Rows of the embedding get the derivatives by the first layer's inputs, token by token. */
static void learn_embedding(const struct pass *p, const struct pack *pack)
{
    const struct model_config *m = p->f->config;
    if (m->embedding_scale != 1)
        ops(&p->c)->scale_add(&p->c, p->dx, NULL, (size_t)pack->n * (size_t)m->d_model,
                              m->embedding_scale);
    ops(&p->c)->embedding_learn(&p->c, p->d_w + p->tuned->embedding, p->ids, p->dx, pack->n,
                                p->f->config->d_model);
}

void pass_loss_add(struct pass_loss *sum, const struct pass_loss *l, double weight)
{
    sum->total += weight * l->total;
    sum->limit += weight * l->limit;
    sum->value += weight * l->value;
    sum->positions += l->positions;
    for (int i = 0; i < QUALITY_TERMS; i++)
        sum->term[i] += weight * l->term[i];
}

void pass_run(struct pass *p, const struct pack *pack, double weight, float *grad, float *d_entry,
              struct pass_loss *ret)
{
    struct quality_result q;
    p->layers_done = 0;
    send_pack(p, pack);
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
    if (ends_learn(p))
        learn_embedding(p, pack);
}
