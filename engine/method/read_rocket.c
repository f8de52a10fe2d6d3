/* read_rocket.c - bounds of the logits of pages from some channels, as in the second stage of
 * RocketKV. */
#include <math.h>

#include "engine/kernels/score_math.h"
#include "engine/method/parts.h"
#include "engine/method/state.h"

enum { MAX_DIM = 1024 };

/* Which channels are compared, and which bound of a page each takes. */
struct channels {
    bool compared[MAX_DIM];
    bool above[MAX_DIM]; /* the maximum of the page, else its minimum */
};

/* Returns how many channels are compared. */
static int channels_of(const struct method_state *m, int D)
{
    const struct method_params *p = &m->params;
    int n = p->channels;
    if (n == 0 && m->method->score)
        n = (int)(D * p->page / formula_rocket_ratio(p->budget, p->reads));
    else if (n == 0)
        n = D;
    n = n > D ? D : n;
    return n > 1 ? n : 1;
}

/* Selects the channels with the largest mean |q| over the query heads; of equal channels the lower
 * one.  A channel takes the maximum of a page if the sum of q over the heads is positive. */
static void select_channels(const struct read_input *in, int D, struct channels *ret)
{
    struct candidate c[MAX_DIM];
    int lost = D - channels_of(in->m, D);
    for (int d = 0; d < D; d++) {
        float size = 0, sum = 0;
        for (int g = 0; g < in->n_q; g++) {
            size += fabsf(in->q[g * D + d]);
            sum += in->q[g * D + d];
        }
        c[d] = (struct candidate){size, d, 0, 0};
        ret->above[d] = sum > 0;
    }
    select_worst(c, D, lost, TIE_OLDER);
    for (int i = 0; i < D; i++)
        ret->compared[c[i].pos] = i >= lost;
}

/* Adds to out[page] the weight that a token of each page gets from a query head:
 * softmax over the tokens of  scale sqrt(sum_c |q_c| / sum_sel |q_c|) sum_sel q_c M_bc. */
static void add_weights(const struct read_input *in, const struct channels *x, const float *q,
                        const struct pages *p, float *out, float *logit)
{
    int D = p->dim, at = in->layer * method_shape_of(in->m)->n_kv_heads + in->head;
    const struct model_config *model = method_inputs_of(in->m)->model;
    double all = 0, some = 0, sum = 0;
    float top = -INFINITY, scale = model ? model->attn_scale : 1.0f / sqrtf((float)D);
    for (int d = 0; d < D; d++)
        all += fabs((double)q[d]);
    for (int d = 0; d < D; d++)
        some += x->compared[d] ? fabs((double)q[d]) : 0;
    scale = some > 0 ? (float)((double)scale * sqrt(all / some)) : 0;
    for (int b = 0; b < in->n_pages; b++) {
        size_t page = ((size_t)at * (size_t)p->cap + (size_t)b) * (size_t)D;
        const float *least = p->least + page, *most = p->most + page;
        float u = 0;
        for (int d = 0; d < D; d++)
            if (x->compared[d])
                u += q[d] * (x->above[d] ? most[d] : least[d]);
        logit[b] = u * scale;
        top = fmaxf(top, logit[b]);
    }
    for (int b = 0; b < in->n_pages; b++) {
        int left = in->view.n - b * p->size;
        logit[b] = expf(logit[b] - top);
        sum += (double)logit[b] * (left < p->size ? left : p->size);
    }
    for (int b = 0; b < in->n_pages; b++)
        out[b] += (float)((double)logit[b] / sum);
}

static void eval(const struct read_input *in, float *out, float *scratch)
{
    struct pages *p = &((struct method_state *)in->m)->evidence.pages;
    int D = p->dim, at = in->layer * method_shape_of(in->m)->n_kv_heads + in->head;
    struct channels x;
    pages_update(p, in->cache, in->layer, in->head, at, in->view.n);
    select_channels(in, D, &x);
    for (int b = 0; b < in->n_pages; b++)
        out[b] = 0;
    for (int g = 0; g < in->n_q; g++)
        add_weights(in, &x, in->q + g * D, p, out, scratch);
}

const struct read read_rocket = {.name = "rocket",
                                 .cost = "g D n / p",
                                 .summary = "entries of the pages with the largest bounds in the "
                                            "strongest channels",
                                 .shared = true,
                                 .entries = true,
                                 .uses = USES_PAGE | USES_CHANNELS,
                                 .evidence = EVIDENCE_PAGES,
                                 .eval = eval};
