#include "engine/train/masks.h"

/* Where evictions of one document of a pack go. */
struct target {
    int32_t *gone;
    int n, heads, first;
    int64_t left;
};

static void on_evict(void *ctx, const struct eviction *e)
{
    struct target *to = ctx;
    size_t at = (size_t)e->layer * (size_t)to->n + (size_t)(to->first + e->pos);
    to->gone[at * (size_t)to->heads + (size_t)e->head] = to->first + e->t;
    to->left++;
}

/* The last token of a document predicts nothing, so its query is not needed. */
static int decode(struct session *s, const int32_t *ids, int n, int prompt)
{
    int fed = prompt < n - 1 ? prompt : n - 1;
    int err = fed > 0 ? session_prompt(s, ids, fed, NULL, NULL) : KVF_OK;
    for (int t = fed; !err && t < n - 1; t++)
        err = session_step(s, ids[t]);
    return err;
}

/* Tokens of the document that begins at a. */
static int length(const struct pack *pack, int a)
{
    int b = a;
    while (b < pack->n && pack->first[b] == a)
        b++;
    return b - a;
}

int masks_make(struct engine *e, const struct session_options *opt, int prompt,
               const struct pack *pack, int32_t *gone, int64_t *ret_left, struct kvf_diag *d)
{
    struct target to = {gone, pack->n, e->config.n_kv_heads, 0, 0};
    size_t all = (size_t)e->config.n_layers * (size_t)pack->n * (size_t)to.heads;
    int err = KVF_OK;
    for (size_t i = 0; i < all; i++)
        gone[i] = INT32_MAX;
    for (int n; !err && to.first < pack->n; to.first += n) {
        struct session_options o = *opt;
        struct session *s = NULL;
        n = length(pack, to.first);
        o.cap = n;
        o.recorder = NULL;
        err = session_create(e, &o, &s, d);
        if (err)
            return err;
        session_on_evict(s, on_evict, &to);
        err = decode(s, pack->ids + to.first, n, prompt);
        session_destroy(s);
        if (err)
            kvf_fail(d, err, "a document of %d tokens cannot be decoded for its mask", n);
    }
    if (ret_left)
        *ret_left = to.left;
    return err;
}
