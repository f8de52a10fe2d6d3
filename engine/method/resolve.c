/* resolve.c - derives a preset's parameters from the budget, and rejects impossible combinations.
 */
#include <math.h>

#include "engine/kernels/score_math.h"
#include "engine/method/state.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Published numbers shrink with the budget: at most B / 4, at least 1. */
static int shrink(int published, int B)
{
    int most = B / 4 > 1 ? B / 4 : 1;
    return B == 0 ? published : least(published, most);
}

/* Returns the number of protected tokens after the sinks, as far as they are known, if the budget
 * limits the entries that are cached. */
static int protected_tokens(const struct method *m, const struct method_params *p)
{
    bool counts = m->score || m->admission->uses & USES_SPANS;
    return counts && p->n_protected > 0 ? p->n_protected : 0;
}

/* Before it gives way to sinks and every. */
static int derived_recent(const struct method *m, const struct method_params *p)
{
    int B = p->budget, more = protected_tokens(m, p);
    switch (m->params.recent) {
    case RECENT_REST:
        return B > p->sinks + more ? B - p->sinks - more : 0;
    case RECENT_HALF:
        return B / 2;
    case RECENT_WINDOW:
        return p->window;
    case RECENT_LOCAL:
        return p->local;
    default:
        return m->params.recent > 0 ? shrink(m->params.recent, B) : 0;
    }
}

/* By how much protected tokens, sinks, recent entries (or the newcomer alone) and the room for
 * `every` tokens exceed the budget. */
static int64_t excess(const struct method *m, const struct method_params *p)
{
    return (int64_t)protected_tokens(m, p) + p->sinks + (p->recent > 1 ? p->recent : 1) + p->every
           - 1 - p->budget;
}

static int default_every(const struct method *m, int B)
{
    if (m->params.every == EVERY_HALF)
        return B > 1 ? B / 2 : 1;
    return m->params.every ? shrink(m->params.every, B) : 1;
}

static int no_room(const struct method *m, const struct method_params *p, struct kvf_diag *d)
{
    char part[BUDGET_TEXT];
    budget_text(&(struct budget){.part = p->part}, part);
    if (protected_tokens(m, p))
        return kvf_fail(d, KVF_E_ARG,
                        "method %s: %d tokens of protect=%s, %d sinks, %d recent entries and cuts "
                        "every %d do not fit into --budget %d; give %lld or more",
                        m->name, p->n_protected, p->protect, p->sinks, p->recent, p->every,
                        p->budget, (long long)(p->budget + excess(m, p)));
    if (p->part)
        return kvf_fail(d, KVF_E_ARG,
                        "method: %d sinks, %d recent entries and cuts every %d do not fit into "
                        "--budget %s, which is %d entries here",
                        p->sinks, p->recent, p->every, part, p->budget);
    return kvf_fail(d, KVF_E_ARG,
                    "method: %d sinks, %d recent entries and cuts every %d do "
                    "not fit into --budget %d",
                    p->sinks, p->recent, p->every, p->budget);
}

int method_fit(const struct method *m, struct method_params *p, struct kvf_diag *d)
{
    int B = p->budget;
    if (p->window == METHOD_DERIVED)
        p->window = m->params.window ? shrink(m->params.window, B) : 0;
    if (p->local == METHOD_DERIVED)
        p->local = m->params.local ? shrink(m->params.local, B) : 0;
    if (p->sinks == METHOD_DERIVED)
        p->sinks = B ? least(m->params.sinks, B / 4) : m->params.sinks;
    p->derived |= p->every == METHOD_DERIVED ? DERIVED_EVERY : 0;
    p->derived |= p->recent == METHOD_DERIVED ? DERIVED_RECENT : 0;
    bool every_given = !(p->derived & DERIVED_EVERY);
    bool recent_given = !(p->derived & DERIVED_RECENT);
    if (!every_given)
        p->every = p->cut == CUT_ALWAYS ? default_every(m, B) : 1;
    if (!recent_given)
        p->recent = derived_recent(m, p);
    if (B == 0)
        return KVF_OK;
    if (!recent_given && excess(m, p) > 0) /* what is derived gives way */
        p->recent = p->recent > excess(m, p) ? p->recent - (int)excess(m, p) : 0;
    if (!every_given && excess(m, p) > 0)
        p->every = p->every > excess(m, p) ? p->every - (int)excess(m, p) : 1;
    return excess(m, p) > 0 ? no_room(m, p, d) : KVF_OK;
}

static int refuse(const struct method *m, const char *why, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG, "method %s: %s", m->name, why);
}

/* Rejects options of the budget and of the time of cuts that cannot be combined. */
static int check_cut(const struct method *m, const struct method_params *p, struct kvf_diag *d)
{
    bool later = p->every > 1 || p->order || p->slack || p->stride;
    if (p->of == BUDGET_OF_SEEN && !p->part)
        return refuse(m, "of=seen needs a budget in percent, such as budget=25%", d);
    if (p->of == BUDGET_OF_SEEN && p->cut == CUT_PROMPT && !p->chunk)
        return refuse(m, "of=seen has no effect with cut=prompt, which cuts once", d);
    if (p->cut != CUT_ALWAYS && p->budget == 0)
        return refuse(m, "cut needs a budget: without one no entry is evicted for it", d);
    if (p->cut != CUT_ALWAYS && later)
        return refuse(m,
                      "every, order=after, slack and stride set the cuts in decoding; leave them "
                      "out, or give cut=always",
                      d);
    return KVF_OK;
}

/* Rejects parts that cannot be combined. */
static int check_parts(const struct method *m, const struct method_params *p, struct kvf_diag *d)
{
    if (m->allocation->pool == POOL_ALL && m->score && !m->score->calibrated && !m->trigger->rounds)
        return refuse(m,
                      "allocation=global ranks the entries of all heads, and these scores do "
                      "not mean the same in every head; use a gate's score or allocation=adaptive",
                      d);
    if (m->allocation->evidence && !(m->score && m->score->evidence & EVIDENCE_WINDOW))
        return refuse(m,
                      "allocation=cake weighs layers by the rows of a window, which this "
                      "score does not keep; use a window's score or another allocation",
                      d);
    if (m->allocation->heads && !m->score)
        return refuse(m, "allocation=file gives budgets to heads, and no entry is evicted", d);
    if (m->allocation->heads && p->of == BUDGET_OF_SEEN)
        return refuse(
            m, "of=seen changes the budget at each token, and allocation=file reads it once", d);
    if (m->scope == SCOPE_LAYER && (m->allocation->pool != POOL_HEAD || m->allocation->heads))
        return refuse(
            m,
            "one set of entries per layer cannot be shared between heads; use allocation=uniform",
            d);
    if (m->admission->uses & USES_SPANS && p->recent == 0)
        return refuse(m, "a query must see its own entry; recent is at least 1", d);
    if (!m->read->all && m->unbudgeted)
        return refuse(m,
                      "reading pages needs a budget, which this row does not take; use "
                      "another row or read=all",
                      d);
    if (m->read->evidence & EVIDENCE_BLOCKS && (m->admission->until || m->score))
        return refuse(m,
                      "gated blocks must keep all their entries: their gates are trained on "
                      "complete blocks; use read=quest or read=seer-oracle",
                      d);
    if (m->read->uses & USES_GROUP && !m->score && p->group != GROUP_NONE && p->group != GROUP_MAX)
        return refuse(m,
                      "pages are chosen per query head (group=none) or by the largest "
                      "(group=max)",
                      d);
    bool shares = m->score && m->score->uses & USES_ACROSS && p->support == SUPPORT_CANDIDATES;
    if (p->group == GROUP_MAX_LOGITS && !shares)
        return refuse(m,
                      "group=max-logits takes the softmax over the unprotected entries; it needs "
                      "a score from the rows of a window, and support=candidates",
                      d);
    if (p->stride && p->order == ORDER_BEFORE)
        return refuse(m, "stride counts the tokens whose queries have run; give order=after too",
                      d);
    if (p->slots == SLOTS_SCORE && (p->history > 0 || m->normalise))
        return refuse(m,
                      "slots=score remembers the scores of the last cut instead of a history; use "
                      "rkv, and leave history out",
                      d);
    if (p->positions == POSITIONS_CACHE
        && (m->admission->until || !m->read->all
            || (m->score && m->score->evidence & EVIDENCE_MOMENTS)))
        return refuse(
            m,
            "positions=cache needs a method that reads all entries and does not score rotated keys",
            d);
    if (m->score && m->score->evidence & EVIDENCE_FULL && p->chunk)
        return refuse(m, "an oracle runs the complete prompt at once; leave chunk out", d);
    return KVF_OK;
}

/* Returns true if a budget has an effect. */
static bool is_limited(const struct method *m)
{
    return m->score || !m->read->all || m->params.recent == RECENT_REST;
}

int method_reads_most(const struct method *m, const struct method_params *p, int32_t t)
{
    return m->score ? p->reads : method_budget_at(p, t + 1);
}

bool method_reads_together(const struct method *m, const struct method_params *p)
{
    return m->read->shared || (!m->score && p->group == GROUP_MAX);
}

/* Returns the maximum number of entries that a query after the prompt finds in a head, whatever the
 * prompt, or 0 if there is none. */
static int64_t cached_most(const struct method *m, const struct method_params *p)
{
    const struct allocation *a = m->allocation;
    if (p->budget == 0 || p->part || p->cut != CUT_ALWAYS || a->weights || a->heads
        || a->pool != POOL_HEAD || m->trigger->rounds)
        return 0;
    return (int64_t)p->budget + p->slack + (p->order == ORDER_AFTER)
           + (p->stride > 1 ? p->stride - 1 : 0);
}

/* Rejects `reads` and `page` if every query would read all entries of its head. */
static int check_reads(const struct method *m, const struct method_params *p, bool given,
                       struct kvf_diag *d)
{
    int64_t most = cached_most(m, p), pages = p->reads / p->page > 1 ? p->reads / p->page : 1;
    bool page_given = p->page != m->params.page;
    if (most && given && p->reads >= most)
        return kvf_fail(d, KVF_E_ARG,
                        "method %s: reads=%d would have no effect: a head never has more than %lld "
                        "entries after the prompt; give a smaller number, or read=all",
                        m->name, p->reads, (long long)most);
    if (most && page_given && !m->read->entries && pages * p->page >= most)
        return kvf_fail(
            d, KVF_E_ARG,
            "method %s: with page=%d each query reads everything: a head never has more "
            "than %lld entries after the prompt; give a smaller page, or read=all",
            m->name, p->page, (long long)most);
    return KVF_OK;
}

/* Derives the entries that a query reads of the cached ones, and the size of pages. */
static int fit_reads(const struct method *m, struct method_params *p, struct kvf_diag *d)
{
    int B = p->budget, published = m->read->entries ? B / 8 : B / 2;
    bool given = p->reads != METHOD_DERIVED;
    if (m->read->all || !m->score) {
        p->reads = 0;
        p->page = p->page ? p->page : 16;
        return KVF_OK;
    }
    if (!given && B == 0)
        return refuse(m, "without a budget, give reads=N, the entries that a query reads", d);
    if (!given)
        p->reads = published > 1 ? published : 1;
    if (p->page == 0) { /* RocketKV: the root of the ratio, rounded up, or 1 if that is above it */
        double ratio = formula_rocket_ratio(B, p->reads), root = ceil(sqrt(ratio));
        p->page = root <= ratio ? (int)root : 1;
    }
    return check_reads(m, p, given, d);
}

bool method_needs_budget(const struct method *m)
{
    return is_limited(m) && !m->free && !m->unbudgeted;
}

bool method_outlives(const struct method *m, const struct method_params *p,
                     const struct method_shape *shape, int context)
{
    int64_t most = (int64_t)p->budget + p->slack + p->stride + 1;
    int64_t L = shape->n_layers, H = shape->n_kv_heads;
    bool uniform = !m->allocation->weights && m->allocation->pool == POOL_HEAD;
    if (m->allocation->heads) /* the table may give a head any number of entries */
        return false;
    if (p->cut != CUT_ALWAYS || p->of != BUDGET_OF_PROMPT) /* the cache grows with the text */
        return false;
    if (p->positions != POSITIONS_CACHE || !m->score || p->budget < 1 || m->score->needs_mass
        || m->score->evidence & EVIDENCE_FULL)
        return false;
    if (p->order == ORDER_BEFORE)
        most--;
    if (!uniform) /* the largest share that one head can get */
        most *= m->allocation->pool == POOL_LAYER ? H : L * H;
    if (m->allocation->pool == POOL_LAYER && m->allocation->weights)
        most *= L;
    return most + p->chunk <= context;
}

int method_resolve(const struct method *m, struct method_params *p, struct kvf_diag *d)
{
    bool spans = m->admission->uses & USES_SPANS;
    if (m->unbudgeted && p->budget > 0)
        return refuse(m, "a budget would have no effect; its options set the number of entries", d);
    if (method_needs_budget(m) && p->budget < 1)
        return kvf_fail(
            d, KVF_E_ARG,
            "method %s needs --budget N: 1 or more entries that each KV head may %s, or "
            "a fraction of the prompt such as 50%%",
            m->name, m->score || m->read->all ? "hold" : "read");
    if (!is_limited(m)) {
        p->budget = 0;
        p->part = 0;
        p->open = false;
    }
    int err = check_cut(m, p, d);
    if (!err)
        err = check_parts(m, p, d);
    if (!err)
        err = fit_reads(m, p, d);
    if (err)
        return err;
    if (m->score || spans || m->admission->uses & USES_LOCAL)
        return method_fit(m, p, d);
    p->sinks = p->recent = p->window = p->local = 0;
    p->every = 1;
    return KVF_OK;
}
