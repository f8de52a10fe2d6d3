/* watch.c - parses the heads and tokens for which raw data are recorded. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/headset.h"
#include "base/mem.h"
#include "engine/probe/probes.h"
#include "engine/probe/recorder.h"
#include "engine/probe/watch.h"

enum { MOST_TOKEN = 1 << 24 };

static int out_of_memory(struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_NOMEM, "not enough memory for --watch");
}

/* Parses "383" or "400-410", and a following comma. */
static bool take_tokens(const char **s, long *ret_lo, long *ret_hi)
{
    char *end;
    if (!isdigit((unsigned char)**s))
        return false;
    *ret_lo = *ret_hi = strtol(*s, &end, 10);
    if (*end == '-' && isdigit((unsigned char)end[1]))
        *ret_hi = strtol(end + 1, &end, 10);
    if (*ret_hi < *ret_lo || *ret_hi > MOST_TOKEN || (*end != ',' && *end != '@'))
        return false;
    *s = end + (*end == ',');
    return true;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct watch_pair *x = a, *y = b;
    if (x->at.layer != y->at.layer)
        return x->at.layer - y->at.layer;
    return x->at.head != y->at.head ? x->at.head - y->at.head : x->token - y->token;
}

static int add_pair(struct watch *w, const struct watch_pair *p, struct kvf_diag *d)
{
    for (int i = 0; i < w->n_pairs; i++)
        if (compare_pairs(&w->pair[i], p) == 0)
            return KVF_OK;
    if (w->n_pairs == WATCH_MAX_PAIRS)
        return kvf_fail(d, KVF_E_ARG, "--watch: over %d pairs of a query head and a token",
                        WATCH_MAX_PAIRS);
    w->pair[w->n_pairs++] = *p;
    return KVF_OK;
}

/* Sets the flags chosen[L * G] of the query heads in a set. */
static int mark(const char *option, const char *set, const struct probe_config *cfg,
                unsigned char **ret_chosen, struct kvf_diag *d)
{
    const struct method_shape *m = &cfg->shape;
    const struct headset_shape shape = {"the model", m->n_layers, m->n_heads, .kind = 'H'};
    *ret_chosen = MEM_NEW(unsigned char, (size_t)m->n_layers *(size_t)m->n_heads);
    if (!*ret_chosen)
        return out_of_memory(d);
    return headset_mark(option, set, &shape, *ret_chosen, d);
}

/* Adds the pairs of token t with the heads in chosen. */
static int add_token(struct watch *w, const unsigned char *chosen, int32_t t,
                     const struct probe_config *cfg, struct kvf_diag *d)
{
    int n_heads = cfg->shape.n_heads;
    for (int i = 0; i < cfg->shape.n_layers * n_heads; i++) {
        if (!chosen[i])
            continue;
        int err = add_pair(w, &(struct watch_pair){{i / n_heads, i % n_heads}, t}, d);
        if (err)
            return err;
    }
    return KVF_OK;
}

int watch_add_tokens(struct watch *w, const char *text, const struct probe_config *cfg,
                     struct kvf_diag *d)
{
    const char *heads = strchr(text, '@'), *s = text;
    unsigned char *chosen = NULL;
    long lo = 0, hi = 0;
    if (!heads || heads == text || !heads[1])
        return kvf_fail(d, KVF_E_ARG,
                        "--watch needs TOKENS@HEADS such as 383,400-410@L10H19, "
                        "not '%s'",
                        text);
    if (!w->pair)
        w->pair = MEM_NEW(struct watch_pair, WATCH_MAX_PAIRS);
    if (!w->pair)
        return out_of_memory(d);
    int err = mark("--watch", heads + 1, cfg, &chosen, d);
    if (err)
        goto done;
    while (s < heads) {
        if (!take_tokens(&s, &lo, &hi)) {
            err = kvf_fail(d, KVF_E_ARG,
                           "--watch: '%s' does not start with tokens such as "
                           "383,400-410",
                           text);
            goto done;
        }
        if (hi >= cfg->cap) {
            err = kvf_fail(d, KVF_E_ARG, "--watch: this run has at most %d tokens, no token %ld",
                           cfg->cap, hi);
            goto done;
        }
        for (long t = lo; t <= hi; t++) {
            err = add_token(w, chosen, (int32_t)t, cfg, d);
            if (err)
                goto done;
        }
    }

done:
    qsort(w->pair, (size_t)w->n_pairs, sizeof *w->pair, compare_pairs);
    mem_free(chosen);
    return err;
}

static int too_many_queries(int n, const struct probe_config *cfg, struct kvf_diag *d)
{
    if (n <= WATCH_MAX_NUMBERS / cfg->shape.head_dim)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "--watch-queries: %d heads of %d numbers are over %d per step", n,
                    cfg->shape.head_dim, WATCH_MAX_NUMBERS);
}

int watch_set_queries(struct watch *w, const char *text, const struct probe_config *cfg,
                      struct kvf_diag *d)
{
    char set[1024];
    size_t n = strcspn(text, "@");
    const char *when = text[n] ? text + n + 1 : "pre";
    int n_heads = cfg->shape.n_heads, all = cfg->shape.n_layers * n_heads;
    unsigned char *chosen = NULL;
    if (strcmp(when, "pre") != 0 && strcmp(when, "post") != 0)
        return kvf_fail(d, KVF_E_ARG,
                        "--watch-queries: vectors are taken @pre or @post RoPE, "
                        "not '@%s'",
                        when);
    if (n == 0 || n >= sizeof set)
        return kvf_fail(d, KVF_E_ARG, "--watch-queries needs query heads such as L10H3,L20H*");
    memcpy(set, text, n);
    set[n] = 0;
    int err = mark("--watch-queries", set, cfg, &chosen, d);
    if (err)
        goto done;
    mem_free(w->query);
    w->query = MEM_NEW(struct watch_head, (size_t)all);
    w->n_queries = 0;
    w->turned = strcmp(when, "post") == 0;
    if (!w->query) {
        err = out_of_memory(d);
        goto done;
    }
    for (int i = 0; i < all; i++)
        if (chosen[i])
            w->query[w->n_queries++] = (struct watch_head){i / n_heads, i % n_heads};
    err = too_many_queries(w->n_queries, cfg, d);

done:
    mem_free(chosen);
    return err;
}

/* Sets head 0 of the first, the middle and the last layer. */
static int default_queries(struct watch *w, const struct probe_config *cfg, struct kvf_diag *d)
{
    int L = cfg->shape.n_layers;
    const int layer[] = {0, L / 2, L - 1};
    w->query = MEM_NEW(struct watch_head, 3);
    if (!w->query)
        return out_of_memory(d);
    for (int i = 0; i < 3; i++)
        if (i == 0 || layer[i] > layer[i - 1])
            w->query[w->n_queries++] = (struct watch_head){layer[i], 0};
    return too_many_queries(w->n_queries, cfg, d);
}

/* Marks the query heads of a word of raw: in chosen[L * G]. */
static int mark_raw(const char *word, const struct method_shape *m, unsigned char *chosen,
                    struct kvf_diag *d)
{
    struct headset_item item;
    const char *at = word;
    if (!*word)
        return kvf_fail(d, KVF_E_ARG,
                        "--probes raw: names no head; write query heads, such as raw:5.3,L6H0, or "
                        "all query heads of a KV head, such as raw:L5K1");
    if (!headset_next(&at, &item))
        return kvf_fail(d, KVF_E_ARG,
                        "--probes raw: '%s' is no head; did you mean a query head, such as 5.3 or "
                        "L5H3, all of a layer, 5.*, or all query heads of a KV head, L5K1?",
                        word);
    char kind = item.kind == 'K' ? 'K' : 'H';
    int share = kind == 'K' ? m->n_heads / m->n_kv_heads : 1;
    const struct headset_shape shape = {"the model", m->n_layers, m->n_heads / share, .kind = kind};
    int err = headset_fit("--probes raw", word, &shape, &item, d);
    for (int l = item.layer.lo; !err && l <= item.layer.hi; l++)
        for (int h = item.head.lo; h <= item.head.hi; h++)
            memset(chosen + l * m->n_heads + h * share, 1, (size_t)share);
    return err;
}

/* Lists the marked heads. */
static int take_raw(struct watch *w, const unsigned char *chosen, const struct method_shape *m,
                    struct kvf_diag *d)
{
    size_t all = (size_t)m->n_layers * (size_t)m->n_heads;
    w->raw = MEM_NEW(struct watch_head, all);
    w->sink = MEM_NEW(float, all);
    if (!w->raw || !w->sink)
        return out_of_memory(d);
    for (int i = 0; i < (int)all; i++)
        if (chosen[i]) {
            w->sink[w->n_raw] = -INFINITY;
            w->raw[w->n_raw++] = (struct watch_head){i / m->n_heads, i % m->n_heads};
        }
    return KVF_OK;
}

int watch_set_raw(struct watch *w, const char *probes, const struct probe_config *cfg,
                  struct kvf_diag *d)
{
    const struct method_shape *m = &cfg->shape;
    char word[PROBE_WORD];
    bool in_raw = false, some = false;
    unsigned char *chosen = MEM_NEW(unsigned char, (size_t)m->n_layers *(size_t)m->n_heads);
    int err = chosen ? KVF_OK : KVF_E_NOMEM;
    while (!err && probes_word(&probes, word, &in_raw) == 1)
        if (in_raw) {
            some = true;
            err = mark_raw(word, m, chosen, d);
        }
    if (!err && some)
        err = take_raw(w, chosen, m, d);
    mem_free(chosen);
    return err;
}

static unsigned bit_of(const struct probe *p)
{
    for (int i = 0; probe_table[i]; i++)
        if (probe_table[i] == p)
            return 1u << i;
    return 0;
}

int watch_settle(struct watch *w, const struct probe_config *cfg, unsigned *set, struct kvf_diag *d)
{
    if (w->n_pairs)
        *set |= bit_of(&probe_received);
    if (w->n_queries)
        *set |= bit_of(&probe_queries);
    if (*set & bit_of(&probe_raw) && !w->n_raw)
        return mark_raw("", &cfg->shape, NULL, d);
    if (w->n_raw)
        *set |= bit_of(&probe_raw) | bit_of(&probe_evict);
    if (*set & bit_of(&probe_received) && !w->n_pairs)
        return kvf_fail(d, KVF_E_ARG,
                        "--probes received: choose the pairs with --watch TOKENS@HEADS");
    if (*set & bit_of(&probe_queries) && !w->n_queries)
        return default_queries(w, cfg, d);
    return KVF_OK;
}

void watch_free(struct watch *w)
{
    mem_free_all(w->pair, w->query, w->raw, w->sink);
    *w = (struct watch){0};
}
