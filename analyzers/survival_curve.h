/* survival_curve.h - how many tokens are still selected at age n or later, for all n.
 *
 * A token i is alive at n in a member of a unit (selected.h) when a query t >= i + n of one of the
 * member's query heads selects it: n <= last_selected.  It is at risk when there is such a query: i
 * + n < T.
 *
 * Without trivial queries, which saw K entries or fewer: entries seen by query t are n_t = #{i <= t
 * : t < evict_step_i} of its KV head.  At risk is then i + n <= the last query with n_t > K.  If
 * the last selection was by a trivial query, the selection before it is not known.  Then it is
 * undecided whether the token is alive at ages up to the last non-trivial query before: at these it
 * is left out of both counts (`open`).  That never happens without evictions, n_t = t + 1: all
 * queries before the first non-trivial one are trivial. */
#pragma once

#include "analyzers/lives.h"

struct curve_plan {
    int64_t T, a, b; /* steps; tokens [a, b) */
    bool all;        /* at risk are all tokens */
    const struct token_groups *groups;
    int32_t *before; /* [groups][T + 1] tokens of [a, b) and the group before position i */
    bool skips;      /* trivial queries are left out */
    int evict;       /* column evict_step, then */
    const struct lives_plan *lives;
};

/* Fills before[], which is memory of the frame.  KVF_OK or KVF_E_NOMEM. */
int curve_plan_init(struct frame *f, struct curve_plan *p);

/* The counted curve: of the criterion with this column, or its excess over a second one. */
struct curve_job {
    int column, minus; /* minus: the column of a curve to subtract; -1: none */
};

/* Curves of one unit, or of many added up.  [groups][T] each. */
struct curve {
    int64_t *alive; /* of a difference: may be negative */
    int64_t most;   /* alive is 0 at ages from here on */
    int64_t plain;  /* members with the last query of the text: i + n < T is at risk */
    int64_t *risk;  /* of the remaining members */
    int64_t *open;  /* unknown, in all members */
    bool any_risk, any_open;
    struct lives lives; /* not of a difference */
    int64_t end;        /* the last query that asks, of all members, plus 1 */
};
/* Of group g, n < T: at risk and known. */
int64_t curve_at_risk(const struct curve *c, const struct curve_plan *p, int g, int64_t n);
/* Tokens, each once whatever the number of members, that could be at risk there. */
int64_t curve_tokens(const struct curve *c, const struct curve_plan *p, int g, int64_t n);
/* Zeros, in memory of the frame. */
struct curve curve_create(struct frame *f, const struct curve_plan *p);
void curve_clear(struct curve *c, const struct curve_plan *p);
void curve_add(struct curve *to, const struct curve *c, const struct curve_plan *p);

struct curve_scratch; /* of one thread, in memory of the frame */
struct curve_scratch *curve_scratch_create(struct frame *f, const struct curve_plan *p);

struct reading {
    struct kvf_trace *t;
    const struct curve_plan *p;
    struct curve_scratch *s;
    int top; /* K of the trivial queries to leave out; 0: all queries count */
};

/* Adds the members of a unit to out. */
int curve_count(const struct reading *r, const struct curve_job *job, const struct unit *u,
                struct curve *out, struct kvf_diag *d);
