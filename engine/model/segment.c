/* segment.c - segments normalized words into tokens, by merges or by Viterbi search for the
 * largest sum of scores. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/spm.h"

/* Returns the bytes of the first character; 1 if it is ill-formed. */
static size_t char_bytes(const char *s, size_t n)
{
    uint32_t cp;
    size_t len = utf8_decode(s, n, &cp);
    return len ? len : 1;
}

/* Appends the tokens of a character, or an ill-formed byte, without its own token. Without byte
 * tokens, a run of such characters becomes one unknown token. */
static void put_unknown(const struct spm *m, const char *s, size_t n, const struct spm_scratch *x,
                        struct buf *ids)
{
    if (m->has_bytes) {
        for (size_t i = 0; i < n; i++)
            buf_add(ids, &m->byte_id[(unsigned char)s[i]], sizeof *m->byte_id);
        return;
    }
    int32_t last = -1;
    if (ids->len >= x->begin + sizeof last)
        memcpy(&last, ids->data + ids->len - sizeof last, sizeof last);
    if (m->unknown >= 0 && last != m->unknown)
        buf_add(ids, &m->unknown, sizeof m->unknown);
}

struct merge_text {
    const struct spm *m;
    const char *s;
};

static bool find_merge(const void *ctx, const struct merge_node *left,
                       const struct merge_node *right, struct merge_cand *ret)
{
    const struct merge_text *t = ctx;
    if (!t->m->score)
        return merges_find(&t->m->merges, left->id, right->id, ret);
    struct piece p = {t->s + left->at, left->len + right->len};
    ret->result = p.len <= t->m->longest ? names_find(&t->m->names, p) : -1;
    if (ret->result < 0)
        return false;
    ret->key = -(double)t->m->score[ret->result];
    return true;
}

int spm_merge(const struct spm *m, const char *s, size_t n, struct spm_scratch *x, struct buf *ids)
{
    int err = merging_reserve(&x->merging, n);
    struct merge_node *node = x->merging.node;
    size_t n_nodes = 0;
    if (err)
        return err;
    for (size_t at = 0, len; at < n; at += len) {
        len = char_bytes(s + at, n - at);
        int32_t id = names_find(&m->names, (struct piece){s + at, len});
        /* an unknown character gets a unique id, because it equals no other one */
        id = id >= 0 ? id : -2 - (int32_t)at;
        node[n_nodes++] = (struct merge_node){.id = id, .at = (uint32_t)at, .len = (uint32_t)len};
    }
    struct merge_text text = {m, s};
    merging_run(&x->merging, n_nodes, find_merge, &text);
    for (int32_t i = 0; i >= 0; i = node[i].next) {
        if (node[i].id >= 0)
            buf_add(ids, &node[i].id, sizeof node[i].id);
        else
            put_unknown(m, s + node[i].at, node[i].len, x, ids);
    }
    return ids->err;
}

/* The best segmentation up to a position in the text. */
struct spm_step {
    float score;
    int32_t from, id; /* from < 0: not reached yet; id < 0: an unknown character */
    int32_t to;       /* the next position of the best complete segmentation */
};

static int reserve(struct spm_scratch *x, size_t n)
{
    if (n <= x->n_steps)
        return KVF_OK;
    mem_free(x->step);
    x->n_steps = 0;
    x->step = MEM_NEW(struct spm_step, n + n / 4);
    if (!x->step)
        return KVF_E_NOMEM;
    x->n_steps = n + n / 4;
    return KVF_OK;
}

static void offer(struct spm_step *to, float score, size_t from, int32_t id)
{
    if (to->from < 0 || score > to->score)
        *to = (struct spm_step){score, (int32_t)from, id, 0};
}

/* Extends the best segmentation up to a position by all tokens that begin there. */
static void extend(const struct spm *m, const char *s, size_t n, size_t at, struct spm_step *step)
{
    struct prefix_walk w = prefixes_walk(&m->pieces);
    size_t len = char_bytes(s + at, n - at);
    bool single = false;
    int32_t id;
    for (size_t i = at; i < n && prefixes_step(&m->pieces, &w, s[i], &id); i++) {
        if (id < 0)
            continue;
        offer(&step[i + 1], m->score[id] + step[at].score, at, id);
        single = single || w.depth == len;
    }
    if (!single)
        offer(&step[at + len], m->unknown_score + step[at].score, at, -1);
}

int spm_viterbi(const struct spm *m, const char *s, size_t n, float *score, struct spm_scratch *x,
                struct buf *ids)
{
    int err = reserve(x, n + 1);
    if (err)
        return err;
    struct spm_step *step = x->step;
    for (size_t i = 0; i <= n; i++)
        step[i].from = -1;
    step[0] = (struct spm_step){*score, 0, -1, 0};
    for (size_t at = 0; at < n; at += char_bytes(s + at, n - at))
        extend(m, s, n, at, step);
    *score = step[n].score;
    for (size_t at = n; at > 0; at = (size_t)step[at].from)
        step[step[at].from].to = (int32_t)at;
    for (size_t at = 0, end; at < n; at = end) {
        end = (size_t)step[at].to;
        if (step[end].id >= 0)
            buf_add(ids, &step[end].id, sizeof step[end].id);
        else
            put_unknown(m, s + at, end - at, x, ids);
    }
    return ids->err;
}
