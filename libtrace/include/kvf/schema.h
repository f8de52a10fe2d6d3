/* schema.h - names and meanings of the columns that kvfate's own engine writes.
 *
 * T = tokens fed = entries = queries.  Token i is also query i.  Ages are
 * t - i in steps, 0 = at birth; NEVER (all ones) = at no step.
 *
 * tokens.id        i32 run  token   vocabulary id
 * tokens.role      u8  run  token   enum kvf_role
 * nll              f32 run  token   -ln p(token i | tokens < i); NaN for i = 0   [nat]
 * evict_step       u32 kv   token   first t at which the query does not see the entry;
 *                                   KVF_ALIVE = not evicted; T = after the last query
 * evict_reason     u8  kv   token   enum kvf_reason
 * evict_score      f32 kv   token   score at the decision; NaN: no score
 * evict_margin     f32 kv   token   lowest retained score minus the score of the evicted entry
 *                                   (>= 0), of this head, also if heads share a budget; NaN: no
 *                                   score
 * evict_tie        u8  kv   token   1: the tie rule decided
 * evict_rank       u32 kv   token   candidates of the head that were evicted before it at the
 *                                   same decision; all ones: no score decided
 * seen             u32 kv|query token  steps at which queries see the entry, as intervals, if
 *                                   entries can return (snapshot, intervals)
 * log_beta         f32 kv   token   log of the retention score of the gates at birth
 * write_gate       f32 kv   token   g of the write gate: an entry below tau is rejected
 * importance       f32 kv   token   score of a trained importance head
 * key_norm         f32 kv   token   length of its cached key
 * saliency         f32 kv   token   -d loss / d ln weight [nat]
 *                                   (docs/reference/analyses/saliency.md)
 * read.count       u32 query token  number of queries after the prompt that read it (snapshot)
 * last_selected.C  u16|u32 query token  largest age at which the token was in the
 *                                   selected set of criterion C (snapshot, age)
 * selected_at.C    u32 query token  bit k: the query of age 2^k selected the token (snapshot)
 * first_unselected.C u16|u32 query token  smallest age at which the token was not in the
 *                                   selected set; NEVER = in all of them (snapshot, age)
 * n_selected.C     u16|u32 query token  number of queries that selected the token; this and the
 *                                   next two exist for C = top64 and mass.95 (snapshot)
 * n_returns.C      u16|u32 query token  number of selections after a query that did not select it,
 *                                   without the first selection (snapshot)
 * longest_gap.C    u16|u32 query token  most queries in a row between two selections that
 *                                   did not select it (snapshot)
 * out_norm         f32 query token  |W_O v|: length of its value after the query head's part of the
 *                                   output projection (for last_selected.contrib64)
 * mass.sum         f32 query token  attention received over all queries (snapshot)
 * mass.max         f32 query token  largest attention received (snapshot)
 * plan.mass        f64 query token  mass.sum in a plan (docs/reference/plans.md)
 * window.W         f32 kv   token   weight of the entry in an observation window: the largest
 *                                   weight of the group's query heads, mean over the window's
 *                                   queries (snapshot).  W = 0 .. 3: the last 4 * 128 queries
 *                                   before E = T rounded down to a multiple of 16; NaN:
 *                                   the entry is newer than the window, or the window begins
 *                                   before the run
 * window16.W       f32 kv   token   the same over the last 16 queries of that window (snapshot)
 * under.P          u16|u32 query step   number of weights of the query below P times its largest
 * under.seen       u16|u32 query step   number of entries that the query saw
 * lse              f32 query step   log-sum-exp of the scaled logits  [nat]
 * entropy          f32 query step   of the attention weights          [nat]
 * copy.top         u16|u32 query step   position of the query's largest weight; KVF_NEVER: no entry
 * copy.previous    f32 query step   weight of the token before the query's own
 * copy.duplicate   f32 query step   weight of the earlier copies of the query's token
 * copy.follower    f32 query step   weight of the tokens that directly follow these copies
 *
 * Raw blocks of chosen heads and tokens: a column of the run for each.
 * received.LxHy.i      f32 run  step  attention of query t of head y of layer x to token i;
 *                                     NaN for t < i; -1: query t does not see the entry
 * query.pre.LxHy.dnn   f32 run  step  number nn of query t before RoPE (after bias and norm)
 * query.post.LxHy.dnn  f32 run  step  the same after RoPE
 * useful.U dilution.U f32 query step   weight of the useful entries U, and of the rest, over
 *                                   all entries (docs/reference/probes.md); NaN: not defined
 * size.U           u16|u32 query step  |U|
 * near.all.k near.span.k u16|u32 query step  number of entries within k/2 logits of the largest
 * kept.U           f32 query step   weight of U over the entries that the query saw
 * rho_u.U rho_d.U  f32 query step   share of useful.U, of dilution.U, that the query saw
 * beta.kept.U beta.rho_u.U beta.rho_d.U  f32 query step  the same under beta^age
 *
 * --shadow entries: evicted entries are kept outside the cache, and the queries of the run score
 * them.  Weights are over all entries 0 .. t.  E are the entries that query t saw; the others are
 * missed.
 * shadow.kept_mass    f32 query step   weight of E
 * shadow.oracle_mass  f32 query step   weight of the |E| largest; >= kept_mass
 * shadow.output_error f32 query step   |o_all - o| / |o_all| of the head's output
 * shadow.ghost_hits   u32 query token  number of queries that missed the entry although it is one
 *                                      of their |E| largest (snapshot)
 * shadow.first_hit    u32 query token  the first of them; KVF_NEVER (snapshot)
 * shadow.ghost_mass   f32 query token  sum of its weights for the queries that missed it
 *                                      (snapshot)
 * --shadow model: a full-cache twin is fed the same tokens.
 * shadow.nll          f32 run  token   nll under the twin                [nat]
 * shadow.kl           f32 run  step    KL(full || run) of the next token  [nat]
 * shadow.residual_error.Ll f32 run step  |x - x_full| / |x_full| after layer l
 *
 * Blobs, of a head (struct kvf_blob); t0 is the first token, or query, of the first dimension.
 * k, v             [tokens][head_dim]  as cached, of a KV head
 * q                [queries][head_dim] after RoPE, of a query head
 * logit            [3]                 scale, soft cap (0: no cap) and sink (-INFINITY: no sink) of
 *                                      a query head: with cap(x) = soft_cap tanh(x / soft_cap) the
 *                                      weights are softmax(cap(scale q . k)), and the sink is one
 *                                      more logit of their sum; t0 is 0
 * attention        [queries][tokens]   weights of a query head; tokens count from 0
 *
 * Names of your own columns and blobs begin with x-.
 *
 * Criteria: top64 top128 top256 top512 (the K largest weights) and mass.90
 * mass.95 mass.99 (the smallest set of largest weights with a sum of tau of
 * the row's sum); contrib64 (the 64 largest of weight times out_norm), for last_selected
 * only.  Of equal weights the later position ranks higher. */
#ifndef KVF_SCHEMA_H
#define KVF_SCHEMA_H

#define KVF_ALIVE 0xffffffffu
#define KVF_NEVER 0xffffffffu /* no step */

/* A patch of a picture is a part of the prompt.  A question is not a part of the prompt if it is
 * fed after the method cut the cache of its context. */
enum kvf_role {
    KVF_ROLE_PROMPT = 0,
    KVF_ROLE_ANSWER = 1,
    KVF_ROLE_THINK = 2,
    KVF_ROLE_IMAGE = 3,
    KVF_ROLE_QUESTION = 4
};
#define KVF_IN_PROMPT(role) ((role) == KVF_ROLE_PROMPT || (role) == KVF_ROLE_IMAGE)

enum kvf_reason {
    KVF_REASON_NONE = 0,         /* alive */
    KVF_REASON_BUDGET = 1,       /* another entry had a higher score */
    KVF_REASON_WINDOW = 2,       /* older than the window; no score decided */
    KVF_REASON_REFUSED = 3,      /* never admitted to the main tier */
    KVF_REASON_ARCHITECTURE = 4, /* the layer's own attention window */
    KVF_REASON_PLAN = 5
};

/* The formatter inserts spaces into the names. */
/* clang-format off */
#define KVF_CRITERIA_MAP(X)                                                                        \
    X(top64) X(top128) X(top256) X(top512) X(mass.90) X(mass.95) X(mass.99)
/* clang-format on */
#define KVF_N_CRITERIA 7

/* Observation windows: their number, queries of each, and the multiple of their end. */
enum { KVF_WINDOWS = 4, KVF_WINDOW_QUERIES = 128, KVF_WINDOW_BLOCK = 16 };

/* The P of under.P: its name and its number. */
#define KVF_UNDER_MAP(X) X(0.0001, 1e-4) X(0.001, 1e-3) X(0.01, 1e-2) X(0.1, 1e-1)
#define KVF_N_UNDER 4

#endif
