/* causal.h - what evidence and distractors are worth at the moment of the answer.
 *
 * A prompt hides evidence among distractors and is read under the full cache.  Then entries
 * leave the cache just before the query that predicts the first token of the answer, and the known
 * answer is fed (teacher forcing): what changes is log p(answer), and nothing else can be the
 * cause.  If attention that goes to distractors costs the answer, taking them away raises it; as
 * much attention taken from entries that are neither evidence nor distractor does not.
 * docs/reference/causal.md defines all terms.
 *
 * Masses are those of the answer's query under the full cache: a KV head's is the mean of its
 * query heads'. */
#ifndef KVF_ENGINE_CAUSAL_H
#define KVF_ENGINE_CAUSAL_H

#include "engine/experiment/effect.h"

enum causal_kind { CAUSAL_STAYS, CAUSAL_EVIDENCE, CAUSAL_DISTRACTOR };

/* A prompt and its answer; all borrowed. */
struct causal_task {
    const int32_t *ids;          /* [query + steps + 1] */
    int query;                   /* position of the query that predicts the answer's first token */
    int steps;                   /* from that query to the one that predicts its last token */
    const unsigned char *scored; /* [steps] not 0: ids[query + s + 1] belongs to the answer */
    const unsigned char *kind;   /* [query] enum causal_kind */
};

/* Whose entries leave: all KV heads of the experiment, those among them that look at the evidence
 * most, the others. */
enum causal_group { CAUSAL_ALL, CAUSAL_LOOKING, CAUSAL_OTHERS, CAUSAL_N_GROUPS };

/* What leaves a head. */
enum causal_what {
    CAUSAL_NOTHING,
    CAUSAL_EVIDENCE_OUT,
    CAUSAL_DISTRACTORS_OUT, /* random ones, until their mass is reached */
    CAUSAL_RANDOM_OUT,      /* tokens that are neither, in the same way */
    CAUSAL_SHAM_OUT         /* distractors one behind the other from a random place that all heads
                               share: what a run of entries costs that is no evidence */
};
/* How much leaves a head: a fraction of the mass of all evidence or of all distractors, or the
 * matched mass, that of a random part of the head's evidence whose mass is at most the
 * distractors'. */
struct causal_row {
    enum causal_what what;
    double dose; /* NaN: the matched mass; random: of the distractors' mass */
    int against; /* row of as much mass that it is compared with; -1: none */
};
enum {
    CAUSAL_N_ROWS = 14,
    CAUSAL_MATCHED_EVIDENCE = 2, /* the row that decides on the matched mass */
    CAUSAL_ALL_DISTRACTORS = 8
};
extern const struct causal_row causal_rows[CAUSAL_N_ROWS];

/* What became of one task in one row. */
struct causal_outcome {
    double logp;          /* ln p(answer): the sum over its tokens, nats */
    double dlogp;         /* less that under the full cache */
    bool right;           /* every token of the answer is the likeliest: greedy decoding gives it */
    double mass, entries; /* that left a head: means over the heads of the group */
    double share;         /* of the evidence in what is left of the mass: the same mean */
};

/* Mass that a task's evidence gets in each KV head: ret_share [L * KV heads].  e->prompt and
 * e->steps are set here.  KVF_OK, or an error of effect_open. */
int causal_look(struct effect *e, const struct causal_task *t, double *ret_share,
                struct kvf_diag *d);

/* The heads of each group, [CAUSAL_N_GROUPS][n]: of the n heads those in `take`, and of these the
 * `looking` (at least one, rounded up) share with the largest mean of share[task][n] over the
 * tasks other than `task`, or over that one where there is no other: no task chooses its own heads.
 * Equal ones in their order. */
int causal_groups(const double *share, int n_tasks, int task, int n, const unsigned char *take,
                  double looking, unsigned char *ret_group);

/* Tokens that causal_look and causal_measure of a task feed together. */
int64_t causal_tokens(const struct causal_task *t);

/* Runs a task under every row for every group.  seed: of what is drawn at random, which depends on
 * it, the head and the row alone; give every task its own.
 * ret: [CAUSAL_N_GROUPS][CAUSAL_N_ROWS]. */
int causal_measure(struct effect *e, const struct causal_task *t, const unsigned char *group,
                   uint64_t seed, struct causal_outcome *ret, struct effect_memory *ret_memory,
                   struct kvf_diag *d);

/* ---- causal_table.c */

struct causal_result {
    const struct effect *e;
    int n_tasks;
    const char *const *name;              /* [n_tasks] */
    const struct causal_outcome *outcome; /* [n_tasks][CAUSAL_N_GROUPS][CAUSAL_N_ROWS] */
};

/* Makes the table "causal": a row for each group and row, with means over the tasks, their 95 %
 * intervals (Student's t for STATS_LEAST tasks or more), and the paired difference to the row that
 * it is compared with, where the masses of the two differ by a tenth of the larger at most.  NULL
 * when memory is out. */
struct table *causal_table(const struct causal_result *r);
/* Makes the table "causal-tasks": a row for each task, group and row. */
struct table *causal_table_tasks(const struct causal_result *r);

/* Words of the tables. */
extern const char *const causal_group_name[CAUSAL_N_GROUPS];
extern const char *const causal_what_name[];

#endif
