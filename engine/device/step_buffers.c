/* step_buffers.c - the memory of the inputs and outputs of a decode step. */
#include "engine/device/decode.h"

size_t step_lay_out(const struct session *s)
{
    struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    size_t n = (size_t)s->cache_heads * (size_t)s->e->config.n_layers, at = 0;
    size_t turns = 2 * (size_t)s->e->config.rope_dim;
    const struct {
        void *device, *host;
        size_t bytes;
    } of[] = {{&r->evict.go, &r->evict.host.go, n * sizeof *r->evict.go},
              {&r->evict.may, &r->evict.host.may, n * sizeof *r->evict.may},
              {&r->in.turns, &r->in.host.turns, turns * sizeof *r->in.turns},
              {&r->in.gate, &r->in.host.gate, n * sizeof *r->in.gate},
              {&r->in.now, &r->in.host.now, 2 * sizeof *r->in.now},
              {&r->evict.due, &r->evict.host.due, n * sizeof *r->evict.due}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (r->in.block) {
            set_pointer(of[i].device, r->in.block + at);
            set_pointer(of[i].host, r->in.host.block + at);
        }
        at += (of[i].bytes + 15) / 16 * 16;
    }
    return at;
}

void step_buffers(struct session *s, struct buffer_list *a)
{
    struct device_decode *r = ((struct device_session *)s->device_state)->decode;
    const struct model_config *m = &s->e->config;
    size_t L = (size_t)m->n_layers, G = (size_t)m->n_heads;
    size_t layers = r->keeps_rows ? L : 1;
    r->in.bytes = step_lay_out(s);
    buffers_add(a, &r->in.block, r->in.bytes, 1);
    buffers_add_pinned(a, &r->in.host.block, r->in.bytes, 1);
    buffers_add(a, &r->out.qkv, L * s->buf.ld_qkv, sizeof(float));
    buffers_add(a, &r->out.unrotated, L * s->parts.ld_unrotated, sizeof(float));
    buffers_add(a, &r->out.rows, layers * G * (size_t)r->ld, sizeof(float));
    buffers_add(a, &r->out.lse, layers * G, sizeof(float));
    buffers_add(a, &r->out.entropy, layers * G, sizeof(float));
    buffers_add(a, &r->out.seen, layers * G, sizeof(int32_t));
    buffers_add_pinned(a, &r->in.host.x, (size_t)m->d_model, sizeof(float));
    buffers_add_pinned(a, &r->out.host.qkv, L * s->buf.ld_qkv, sizeof(float));
    buffers_add_pinned(a, &r->out.host.unrotated, L * s->parts.ld_unrotated, sizeof(float));
    buffers_add_pinned(a, &r->out.host.logits, s->buf.ld_logits, sizeof(float));
    buffers_add_pinned(a, &r->out.host.normed, (size_t)m->d_model, sizeof(float));
    if (!r->has_rows)
        return;
    buffers_add_pinned(a, &r->out.host.rows, L * G * (size_t)r->ld, sizeof(float));
    buffers_add_pinned(a, &r->out.host.lse, L * G, sizeof(float));
    buffers_add_pinned(a, &r->out.host.entropy, L * G, sizeof(float));
    buffers_add_pinned(a, &r->out.host.seen, L * G, sizeof(int32_t));
}
