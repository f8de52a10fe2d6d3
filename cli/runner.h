/* runner.h - what commands that decode a prompt share: a model, a prompt and the rows of methods,
 * opened one after the other. */
#ifndef KVF_CLI_RUNNER_H
#define KVF_CLI_RUNNER_H

#include "cli/methods.h"
#include "engine/experiment/prompt.h"

struct force;

/* The words of --activations.  16: weights of floats are integers, too. */
enum activations { ACTIVATIONS_AUTO, ACTIVATIONS_16, ACTIVATIONS_8 };

/* How a model is run, whatever it is run for; the options --device, --chunk, --threads, --kv-type,
 * --activations, --rope-scale, --pre, --lora, --exact. */
struct execution {
    int64_t chunk, threads; /* 0: the command's own choice */
    const char *rope_scale; /* NULL: as in the file */
    const char *pre;        /* NULL: as in the file */
    const char *lora;       /* NULL: the model as it is */
    int kv_type;            /* word of --kv-type */
    int activations;        /* enum activations */
    int device;             /* enum device_word */
    bool exact;
};

extern const struct opt execution_options[]; /* of a struct execution */
/* Of a struct execution, too, for what computes derivatives: --threads, --device, --pre,
 * --exact. */
extern const struct opt learner_options[];
enum kv_type execution_kv_type(const struct execution *x);

struct runner {
    /* options */
    const char *model;
    struct execution how;
    struct prompt prompt;
    bool noted; /* notes about the prompt were printed for an earlier line */
    struct methods methods;
    bool ignore_eos;
    struct force *force; /* borrowed; NULL: every token is sampled */
    int64_t n_predict, seed, context;
    double temperature, top_p;

    struct engine *engine; /* made by runner_open */
    bool outlives;         /* the methods go on beyond the model's context (method_outlives) */
    bool cells;            /* others take the place of these methods: the caller sets `outlives`
                              and calls runner_check_context */
};

/* Tables of a struct runner: what names the model and the prompt, -m to --date; methods; and those
 * with all options of a run. */
extern const struct opt runner_prompt_options[], runner_method_options[], runner_options[];

/* Checks options, opens the model, what is forced, the rows and the prompt.  KVF_OK; KVF_E_ARG
 * for usage errors; others for failures.  d always says why. */
int runner_open(struct runner *r, struct kvf_diag *d);
/* The same in two steps, for commands that run prompts that no option names: all but the prompt,
 * then one prompt after the other, with prompt_close between.  n_predict -1 is set then. */
int runner_open_model(struct runner *r, struct kvf_diag *d);
int runner_open_prompt(struct runner *r, struct kvf_diag *d);
/* Instead of it a prompt that the caller tokenised; the ids are copied. */
int runner_take_prompt(struct runner *r, const int32_t *ids, int n, struct kvf_diag *d);
/* KVF_E_ARG with a sentence for -c above what the model and the methods can do. */
int runner_check_context(const struct runner *r, struct kvf_diag *d);
void runner_close(struct runner *r); /* accepts a zeroed runner */

/* KVF_E_ARG when `out` names the same file as an input of an opened runner. */
int runner_output(const struct runner *r, const char *out, struct kvf_diag *d);

/* Most tokens that the run can feed: prompt plus answer, within the context. */
int runner_cap(const struct runner *r);

/* A session for the opened run; rec: borrowed, NULL records nothing. */
int runner_session(struct runner *r, struct recorder *rec, struct session **ret_session,
                   struct kvf_diag *d);

#endif
