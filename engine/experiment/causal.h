/* causal.h - measures how evidence and distractors change the probability of the answer.
 *
 * A prompt contains evidence and distractors, and is prefilled with the full cache. Just before
 * the query that predicts the first token of the answer, entries are removed from the cache. If the
 * question is unknown, they are removed before the question instead. The known answer is then fed
 * (teacher forcing). Only the removal can change log p(answer). If
 * attention to distractors degrades the answer, removing distractors increases log p(answer).
 * Removing equal attention mass of entries that are neither evidence nor distractors does not.
 * docs/reference/analyses/causal.md defines all terms.
 *
 * Masses are attention masses of the answer's query with the full cache. The mass of a KV head is
 * the mean over its query heads.
 */
#ifndef KVF_ENGINE_CAUSAL_H
#define KVF_ENGINE_CAUSAL_H

#include "engine/experiment/effect.h"

/* Kind of a prompt entry: neither evidence nor distractor, evidence, or distractor. */
enum causal_kind { CAUSAL_STAYS, CAUSAL_EVIDENCE, CAUSAL_DISTRACTOR };

/* A prompt and its answer; all pointers are borrowed. */
struct causal_task {
    const int32_t *ids; /* [query + steps + 1] */
    int query;          /* position of the query that predicts the first token of the answer */
    int steps; /* number of queries from that one to the query that predicts the last token */
    int cut;   /* first query that does not see removed entries, 1 .. query; they are before it */
    const unsigned char *scored; /* [steps] nonzero if ids[query + s + 1] belongs to the answer */
    const unsigned char *kind;   /* [cut] enum causal_kind */
};

/* The heads whose entries are removed: all KV heads of the experiment, the heads with the highest
 * attention to the evidence, or the remaining heads. */
enum causal_group { CAUSAL_ALL, CAUSAL_LOOKING, CAUSAL_OTHERS, CAUSAL_N_GROUPS };

/* The entries that are removed from a head. */
enum causal_what {
    CAUSAL_NOTHING,
    CAUSAL_EVIDENCE_OUT,
    CAUSAL_DISTRACTORS_OUT, /* random distractors, up to a given mass */
    /* random tokens that are neither evidence nor distractors, up to a given mass */
    CAUSAL_RANDOM_OUT,
    /* consecutive distractors from a random place that is equal in all heads: measures the effect
     * of removing a run of entries without evidence */
    CAUSAL_SHAM_OUT
};
/* A row of the experiment: the kind and the amount of the removed entries. The amount is a
 * fraction of the mass of all evidence or of all distractors, or the matched mass. The matched
 * mass of a head is the mass of a random part of its evidence, at most the mass of its
 * distractors. */
struct causal_row {
    enum causal_what what;
    /* fraction; NaN for the matched mass. For random tokens it is a fraction of the distractors'
     * mass */
    double dose;
    int against; /* index of a row with equal mass that it is compared with; -1 if none */
};
enum {
    CAUSAL_N_ROWS = 14,
    CAUSAL_MATCHED_EVIDENCE = 2, /* the row that determines the matched mass */
    CAUSAL_ALL_DISTRACTORS = 8
};
extern const struct causal_row causal_rows[CAUSAL_N_ROWS];

/* The outcome of one task in one row. */
struct causal_outcome {
    double logp;  /* ln p(answer), the sum over its tokens, in nats */
    double dlogp; /* logp minus the value with the full cache */
    /* every token of the answer has the highest logit, so greedy decoding produces the answer */
    bool right;
    double mass, entries; /* removed from a head: means over the heads of the group */
    double share;         /* fraction of the evidence in the remaining mass, mean over the heads */
};

/* Computes the attention mass on a task's evidence in each KV head: ret_share [L * KV heads]. Sets
 * e->prompt and e->steps. Returns KVF_OK, or an error of effect_open(). */
int causal_look(struct effect *e, const struct causal_task *t, double *ret_share,
                struct kvf_diag *d);

/* Assigns heads to the groups: ret_group [CAUSAL_N_GROUPS][n], nonzero for members. The group
 * CAUSAL_ALL is the heads marked in `take` [n]. CAUSAL_LOOKING is the fraction `looking` of them
 * (rounded up, at least one head) with the largest mean of share[task][n] over all tasks except
 * `task`. With a single task, that task is used. So no task selects its own heads. Ties keep the
 * order of heads. Returns KVF_OK or KVF_E_NOMEM. */
int causal_groups(const double *share, int n_tasks, int task, int n, const unsigned char *take,
                  double looking, unsigned char *ret_group);

/* Returns the number of tokens that causal_look() and causal_measure() feed for a task. */
int64_t causal_tokens(const struct causal_task *t);

/* Measures a task in every row for every group. Random choices depend only on seed, head and row;
 * pass a different seed for each task. ret is [CAUSAL_N_GROUPS][CAUSAL_N_ROWS]. Returns KVF_OK or
 * an error with a sentence. */
int causal_measure(struct effect *e, const struct causal_task *t, const unsigned char *group,
                   uint64_t seed, struct causal_outcome *ret, struct effect_memory *ret_memory,
                   struct kvf_diag *d);

/* ---- causal_table.c */

/* The outcomes of all tasks. */
struct causal_result {
    const struct effect *e;
    int n_tasks;
    const char *const *name;              /* [n_tasks] */
    const struct causal_outcome *outcome; /* [n_tasks][CAUSAL_N_GROUPS][CAUSAL_N_ROWS] */
};

/* Makes the table "causal" with a line for each group and row. It contains means over the tasks,
 * their 95 % CI (Student's t, for STATS_LEAST tasks or more), and the paired difference to the row
 * of comparison. The difference is given only if the masses of the two rows differ by at most a
 * tenth of the larger one. Returns NULL if memory is exhausted. */
struct table *causal_table(const struct causal_result *r);
/* Makes the table "causal-tasks" with a line for each task, group and row. */
struct table *causal_table_tasks(const struct causal_result *r);

/* Names of the groups and of the removed entries in the tables. */
extern const char *const causal_group_name[CAUSAL_N_GROUPS];
extern const char *const causal_what_name[];

#endif
