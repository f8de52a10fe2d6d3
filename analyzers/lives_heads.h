/* lives_heads.h - what analyses share that count the lives of tokens in each head (lives.h) and
 * make rows of them: the options, the reading of the columns, the sums over heads.
 *
 * An event ends a life: `gone`, the last selection, or `first-exit`, the age before the first query
 * that did not select the token (then W = 0, and a token that all queries selected is censored).
 * An analysis gives `rows_of` each head's lives and those of all heads.  Its state begins with a
 * struct lives_state, and its head_analysis has the functions below. */
#ifndef KVF_ANALYZERS_LIVES_HEADS_H
#define KVF_ANALYZERS_LIVES_HEADS_H

#include "analyzers/lives.h"

enum lives_event { LIVES_GONE, LIVES_FIRST_EXIT };
extern const char *const lives_event_words[]; /* in the order of the enum */

struct lives_options {
    struct selection_options selection; /* its space is filled in */
    int event, space;
    int64_t grace, at_least;
};
extern const struct opt lives_option_table[]; /* for OPT_GROUP */

/* analyzer.h, of_length, where the analyzer's options begin with a struct lives_options. */
void lives_of_length(void *options, int64_t T);

struct lives_state;
/* Fills the n_rows rows of each group, one group after the other, of head h (f->heads.n: all). */
typedef void (*lives_rows_fn)(const struct frame *f, int item, int h, const struct lives *x,
                              void *room);

enum { LIVES_MOST_PARTS = 16 };
struct lives_state {
    struct selection of;
    enum lives_event event;
    int64_t at_least;
    int column[N_CRITERION_TABLE];
    int n_parts; /* items for each criterion, which differ in their edges */
    struct lives_plan plan[LIVES_MOST_PARTS];
    size_t room; /* bytes that rows_of has as scratch, in each thread */
    lives_rows_fn rows_of;
};

/* For choose of a frame: all but edges, room and rows_of, with one part. */
int lives_choose(struct frame *f, const struct lives_options *o, struct lives_state *x,
                 struct kvf_diag *d);
/* For prepare: places of edges. */
int lives_prepare(struct frame *f, struct lives_state *x);
static inline int lives_criterion(const struct lives_state *x, int item)
{
    return x->of.criterion[item / x->n_parts];
}
static inline const struct lives_plan *lives_plan_of(const struct lives_state *x, int item)
{
    return &x->plan[item % x->n_parts];
}
void lives_note(const struct frame *f, const struct lives_state *x, struct table *out);

/* Functions of a head_analysis whose state begins with a struct lives_state. */
struct lives_work { /* its scratch */
    struct lives mine[LIVES_MOST_PARTS], *all;
    struct ages_of ages;
    void *room;
};
void lives_thread(struct frame *f, void *scratch);
int lives_head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d);
int lives_finish(struct frame *f, struct kvf_diag *d);
void lives_close(struct frame *f);

#endif
