/* predict_values.h - what candidates say of the units of predict.h: KV heads, or entries. */
#ifndef KVF_STUDIES_PREDICT_VALUES_H
#define KVF_STUDIES_PREDICT_VALUES_H

#include "studies/predict.h"

enum { MOST_CANDIDATES = 512, CANDIDATE_NAME = 80 };

/* What query heads of a KV head (and heads, of an entry) become: */
enum predict_reduce { REDUCE_NONE, REDUCE_MEAN, REDUCE_MAX, N_REDUCES };
extern const char *const predict_reduce_names[N_REDUCES];

struct candidate {
    char name[CANDIDATE_NAME];
    enum predict_reduce reduce;
    double *v; /* [n_pairs][units]; NaN: not known */
};

struct predict_values {
    const struct predict_args *args;
    bool entries;      /* units are tokens of one document, not heads of the model */
    int layers, heads; /* of the effects: KV heads */
    int64_t units;     /* of a pair: layers * heads, or tokens */
    int64_t horizon, sinks;
    double *effect;        /* [n_pairs][units]; NaN: not measured */
    unsigned char *chosen; /* [n_pairs][layers * heads] whom entries left; NULL: heads */
    int prompts_differ;    /* traces whose prompt has not as many tokens as the effect's */
    struct candidate *c;   /* [n] */
    int n;
};

/* predict_read.c: errors as predict_run.  Free in any case. */
int predict_values_read(const struct predict_args *args, struct predict_values *ret,
                        struct kvf_diag *d);
void predict_values_free(struct predict_values *x);

/* The row of a candidate for a pair, made and filled with NaN if it is new; NULL: no memory,
 * or more than MOST_CANDIDATES. */
double *candidate_of(struct predict_values *x, int pair, const char *name,
                     enum predict_reduce reduce);
/* Whether an earlier source of the pair has it. */
bool candidate_known(const struct predict_values *x, int pair, const char *name);

/* predict_trace.c: all that a trace, or a table, has. */
int predict_trace(struct predict_values *x, int pair, struct kvf_trace *t, struct kvf_diag *d);
/* predict_table.c */
int predict_table(struct predict_values *x, int pair, int which, struct kvf_diag *d);
int predict_effect(struct predict_values *x, int pair, struct kvf_diag *d);

/* "L3K1": KVF_OK, or KVF_E_FORMAT with a sentence. */
int predict_head_name(const char *text, int *layer, int *head, bool *query, struct kvf_diag *d);

#endif
