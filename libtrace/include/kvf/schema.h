/* schema.h - names and meanings of the columns that kvfate's own engine writes.
 *
 * T = tokens fed = entries = queries.  Token i is also query i.  Ages are
 * t - i in steps, 0 = at birth; NEVER (all ones) = not once.
 *
 * tokens.id        i32 run  token   vocabulary id
 * tokens.role      u8  run  token   enum kvf_role
 * nll              f32 run  token   -ln p(token i | tokens < i); NaN for i = 0   [nat]
 * evict_step       u32 kv   token   first t whose query no longer sees the entry;
 *                                   KVF_ALIVE = never; T = cut after the last query
 * evict_reason     u8  kv   token   enum kvf_reason
 * evict_score      f32 kv   token   the score at the decision; NaN: none
 * evict_margin     f32 kv   token   worst score kept - score of the evicted (>= 0), both of this
 *                                   head, even where heads share their places; NaN: none
 * evict_tie        u8  kv   token   1: the tie rule decided
 * evict_rank       u32 kv   token   candidates of the head that went before it at the same
 *                                   decision; all ones: no score decided
 * seen             u32 kv|query token  steps whose queries see the entry, as intervals: of
 *                                   entries that leave and come back (snapshot, intervals)
 * log_beta         f32 kv   token   log of the retention that gates gave it at birth
 * write_gate       f32 kv   token   g of the write gate: below tau the entry is refused
 * importance       f32 kv   token   score of a trained importance head
 * key_norm         f32 kv   token   length of its key as the cache holds it
 * saliency         f32 kv   token   -d loss / d ln weight (docs/reference/analyses/saliency.md)
 * [nat] read.count       u32 query token  queries after the prompt that read it (snapshot)
 * last_selected.C  u16|u32 query token  largest age at which the token was in the
 *                                   selected set of criterion C (snapshot, age)
 * selected_at.C    u32 query token  bit k: the query of age 2^k selected the token (snapshot)
 * first_unselected.C u16|u32 query token  smallest age at which the token was not in the
 *                                   selected set; NEVER = in all of them (snapshot, age)
 * n_selected.C     u16|u32 query token  queries that selected the token; this and the next two
 *                                   are there of C = top64 and mass.95 only (snapshot)
 * n_returns.C      u16|u32 query token  selections after at least one query that did not
 *                                   select it, its first selection apart (snapshot)
 * longest_gap.C    u16|u32 query token  most queries in a row between two selections that
 *                                   did not select it; 0 = none (snapshot)
 * out_norm         f32 query token  |W_O v|: length of its value behind the query head's part of
 *                                   the output projection (last_selected.contrib64 goes with it)
 * mass.sum         f32 query token  attention received over all queries (snapshot)
 * mass.max         f32 query token  largest attention received (snapshot)
 * plan.mass        f64 query token  mass.sum in a plan (docs/reference/plans.md)
 * window.W         f32 kv   token   what an observation window gave the entry: the largest
 *                                   weight of the group's query heads, mean over the window's
 *                                   queries (snapshot).  W = 0 .. 3: the last 4 * 128 queries
 *                                   before E = T rounded down to a multiple of 16; NaN: no
 *                                   query of it came after the entry, or it began before the run
 * window16.W       f32 kv   token   the same over the last 16 queries of that window (snapshot)
 * under.P          u16|u32 query step   weights of the query that are under P times its largest
 * under.seen       u16|u32 query step   entries that the query saw
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
 * near.all.k near.span.k u16|u32 query step  entries within k/2 logits of the largest
 * kept.U           f32 query step   weight of U over what the query saw
 * rho_u.U rho_d.U  f32 query step   share of useful.U, of dilution.U, that the query saw
 * beta.kept.U beta.rho_u.U beta.rho_d.U  f32 query step  the same under beta^age
 *
 * --shadow entries: what has left is kept aside and scored by the method's own queries.
 * Weights are over all entries 0 .. t, E is what query t saw; missed = evicted or unread.
 * shadow.kept_mass    f32 query step   weight of E
 * shadow.oracle_mass  f32 query step   weight of the |E| largest; >= kept_mass
 * shadow.output_error f32 query step   |o_all - o| / |o_all| of the head's output
 * shadow.ghost_hits   u32 query token  queries that missed the entry and had it among
 *                                      their |E| largest (snapshot)
 * shadow.first_hit    u32 query token  the first of them; KVF_NEVER (snapshot)
 * shadow.ghost_mass   f32 query token  weight it would have had from all that missed it
 *                                      (snapshot)
 * --shadow model: a full-cache twin is fed the same tokens.
 * shadow.nll          f32 run  token   nll under the twin                [nat]
 * shadow.kl           f32 run  step    KL(full || run) of what comes after the step  [nat]
 * shadow.residual_error.Ll f32 run step  |x - x_full| / |x_full| after layer l
 *
 * Blobs, of a head (struct kvf_blob); t0 is the first token, or query, of the first dimension.
 * k, v             [tokens][head_dim]  as the cache holds them, of a KV head
 * q                [queries][head_dim] after RoPE, of a query head
 * logit            [3]                 scale, soft cap (0: none) and sink (-INFINITY: none) of a
 *                                      query head: with cap(x) = soft_cap tanh(x / soft_cap) the
 *                                      weights are softmax(cap(scale q . k)), and the sink is one
 *                                      more logit of their sum; t0 is 0
 * attention        [queries][tokens]   weights of a query head; tokens count from 0
 *
 * Columns and blobs of one's own have names that begin with x-.
 *
 * Criteria: top64 top128 top256 top512 (the K largest weights) and mass.90
 * mass.95 mass.99 (the smallest set of largest weights whose sum reaches tau of
 * the row's sum); contrib64 (the 64 largest of weight times out_norm), of last_selected
 * alone.  Among equal weights the larger position comes first. */
#ifndef KVF_SCHEMA_H
#define KVF_SCHEMA_H

#define KVF_ALIVE 0xffffffffu
#define KVF_NEVER 0xffffffffu /* no step */

/* A patch of a picture is a part of the prompt that is no text.  A question that was fed after its
 * context, to the cache that the method had left of it, is not a part of the prompt. */
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
    KVF_REASON_BUDGET = 1,       /* lost its place to a better entry */
    KVF_REASON_WINDOW = 2,       /* left the window; no score was asked */
    KVF_REASON_REFUSED = 3,      /* never admitted to the main tier */
    KVF_REASON_ARCHITECTURE = 4, /* the layer's own attention window */
    KVF_REASON_PLAN = 5
};

/* The formatter would put blanks into the names. */
/* clang-format off */
#define KVF_CRITERIA_MAP(X)                                                                        \
    X(top64) X(top128) X(top256) X(top512) X(mass.90) X(mass.95) X(mass.99)
/* clang-format on */
#define KVF_N_CRITERIA 7

/* Observation windows: their number, queries of each, and what they are rounded to. */
enum { KVF_WINDOWS = 4, KVF_WINDOW_QUERIES = 128, KVF_WINDOW_BLOCK = 16 };

/* The p of under.P, as named and as a number. */
#define KVF_UNDER_MAP(X) X(0.0001, 1e-4) X(0.001, 1e-3) X(0.01, 1e-2) X(0.1, 1e-1)
#define KVF_N_UNDER 4

#endif
