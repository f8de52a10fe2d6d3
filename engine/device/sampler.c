/* sampler.c - samples the next token on the device and computes the NLL of the previous one there.
 * Logits are copied to the host only on request. */
#include "base/mem.h"
#include "engine/device/decode.h"
#include "engine/decode/sampler.h"

/* Device buffers, with pinned host copies (host_*). */
struct device_draw {
    void *scratch;
    int32_t *id, *host_id; /* [2] the sampled token; the token that followed the previous logits */
    double *chance, *host_chance;
    float *lse, *host_lse;      /* [segments] of the previous logits, then the token's own logit */
    int32_t t;                  /* position of the token with a pending NLL; -1: none */
    bool away;                  /* the newest logits are in m->logits and not on the host */
    struct device_array all[8]; /* the allocations of the members above */
    int n;
};

static struct device_draw *draw_of(const struct session *s)
{
    return ((struct device_session *)s->device_state)->draw;
}

bool device_samples(const struct session *s)
{
    return s->sampling.sampler && !s->compare.no_logits && !(s->e->config.logit_cap > 0)
           && draw_of(s);
}

static void *room(struct session *s, struct device_draw *x, bool pinned, size_t n, size_t size)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    void *p = pinned ? gpu_pin(g, n, size) : gpu_alloc(g, n, size);
    x->all[x->n++] = (struct device_array){p, pinned};
    return p;
}

/* If memory is exhausted, logits are copied to the host and sampled there. */
static void open_draw(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_draw *x = MEM_NEW(struct device_draw, 1);
    size_t segments = (size_t)n_segments(s) + 1;
    if (!x)
        return;
    m->draw = x;
    x->t = -1;
    x->scratch = room(s, x, false, gpu_draw_bytes(s->e->config.vocab), 1);
    x->id = room(s, x, false, 2, sizeof *x->id);
    x->chance = room(s, x, false, 1, sizeof *x->chance);
    x->lse = room(s, x, false, segments, sizeof *x->lse);
    x->host_id = room(s, x, true, 2, sizeof *x->id);
    x->host_chance = room(s, x, true, 1, sizeof *x->chance);
    x->host_lse = room(s, x, true, segments, sizeof *x->lse);
    for (int i = 0; i < x->n; i++)
        if (!x->all[i].p) {
            device_draw_close(s);
            return;
        }
}

void device_draw_close(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_draw *x = m->draw;
    for (int i = 0; x && i < x->n; i++)
        (x->all[i].pinned ? gpu_unpin : gpu_free)(m->gpu, x->all[i].p);
    mem_free(x);
    m->draw = NULL;
}

void device_draw_begin(struct session *s, int32_t id)
{
    struct device_session *m = s->device_state;
    bool nll = records_nll(s) && s->run.has_logits;
    if (s->sampling.sampler && !m->draw)
        open_draw(s);
    struct device_draw *x = m->draw;
    if (nll && !(x && x->away)) {
        nll_next(s, id, s->n_past);
    } else if (nll) {
        x->host_id[1] = id;
        x->t = s->n_past;
    }
    if (device_samples(s))
        *x->host_chance = sampler_chance(s->sampling.sampler);
}

void device_draw_parts(struct session *s, struct gpu_parts *p)
{
    const struct device_draw *x = draw_of(s);
    if (x && x->t >= 0)
        gpu_part(p, x->id + 1, x->host_id + 1, sizeof *x->id);
    if (device_samples(s) && s->sampling.sampler->temperature > 0)
        gpu_part(p, x->chance, x->host_chance, sizeof *x->chance);
}

void device_draw_nll(struct session *s, const float *logits)
{
    struct device_session *m = s->device_state;
    struct device_draw *x = m->draw;
    size_t n = (size_t)n_segments(s);
    if (x && x->t >= 0) {
        gpu_segments(m->gpu, logits, s->buf.ld_logits, s->e->config.vocab, 1, 0, x->id + 1, x->lse,
                     1, x->lse + n);
        gpu_fetch(m->gpu, x->host_lse, x->lse, (n + 1) * sizeof *x->lse);
    }
}

void device_draw_run(struct session *s, float *own)
{
    struct device_session *m = s->device_state;
    struct device_draw *x = m->draw;
    const struct sampler *by = s->sampling.sampler;
    struct gpu_draw how = {.scale = sampler_scale(by),
                           .top_p = by->top_p,
                           .chance = by->temperature > 0 ? x->chance : NULL,
                           .scratch = x->scratch};
    gpu_low_priority(m->gpu, true);
    if (own != m->buf.logits) /* the row in the shared buffer is reused by other sessions */
        gpu_copy(m->gpu, own, m->buf.logits, (size_t)s->e->config.vocab * sizeof *own);
    gpu_low_priority(m->gpu, false);
    gpu_draw(m->gpu, x->host_id, m->buf.logits, s->e->config.vocab, &how);
}

bool device_draw_finish(struct session *s)
{
    struct device_draw *x = draw_of(s);
    if (x && x->t >= 0)
        nll_from_segments(s, x->t, x->host_lse);
    s->sampling.has_token = device_samples(s);
    if (!x)
        return false;
    x->t = -1;
    x->away = s->sampling.has_token;
    s->sampling.token = x->host_id[0];
    return x->away;
}

void device_fetch_logits(const struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_draw *x = m ? m->draw : NULL;
    if (!x || !x->away)
        return;
    x->away = false;
    gpu_get(m->gpu, s->buf.logits, m->buf.logits,
            (size_t)s->e->config.vocab * sizeof *s->buf.logits);
}

void device_set_logits_on_host(struct session *s)
{
    if (draw_of(s))
        draw_of(s)->away = false;
}
