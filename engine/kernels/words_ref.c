/* words_ref.c - the C reference of products of 16-bit integers. */
#include <string.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/words.h"

void quant_words_ref(struct wrows *out, const float *x, int T, int K)
{
    size_t nb = words_blocks(K), n_blocks = (size_t)T * nb;
    for (size_t b = 0; b < n_blocks; b++) {
        size_t first = b % nb * WBLOCK, left = (size_t)K - first;
        const float *v = x + b / nb * (size_t)K + first;
        double lane[WORDS_LANES] = {0};
        for (size_t i = 0; i < WBLOCK && i < left; i++)
            lane[i % WORDS_LANES] += (double)v[i] * (double)v[i];
        out->scale[b] = words_scale(lane, WORDS_NORM_X);
        float inverse = words_inverse(out->scale[b]);
        for (size_t i = 0; i < WBLOCK; i++)
            out->q[b * WBLOCK + i] = (int16_t)(i < left && inverse > 0 ? nearbyintf(v[i] * inverse)
                                                                       : 0);
    }
}

static int weight(const struct packed *w, size_t at, int r, int k)
{
    int16_t u;
    memcpy(&u, w->data + at * WORDS_BYTES + (size_t)((k / 2 * PANEL + r) * 4 + k % 2 * 2), 2);
    return u;
}

static float dot_words(const struct packed *w, int panel, int r, const struct wrows *x, int t)
{
    size_t nb = (size_t)w->n_blocks;
    float acc = 0;
    for (size_t b = 0; b < nb; b++) {
        size_t at = (size_t)panel * nb + b, row = (size_t)t * nb + b;
        int sum = 0;
        for (int k = 0; k < WBLOCK; k++)
            sum += weight(w, at, r, k) * x->q[row * WBLOCK + (size_t)k];
        float d = brain_to_float(w->scale[at * PANEL + (size_t)r]);
        acc = fmaf(d * x->scale[row], (float)sum, acc);
    }
    return acc;
}

void matmul_words_ref(float *out, size_t ld_out, const struct wrows *x, int T,
                      const struct packed *w, int panel0, int n_panels)
{
    for (int t = 0; t < T; t++)
        for (int p = panel0; p < panel0 + n_panels; p++)
            for (int r = 0; r < PANEL; r++)
                out[(size_t)t * ld_out + (size_t)(p * PANEL + r)] = dot_words(w, p, r, x, t);
}
