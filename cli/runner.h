/* runner.h - common code of commands that decode a prompt: opens a model, a prompt and the
 * methods. */
#ifndef KVF_CLI_RUNNER_H
#define KVF_CLI_RUNNER_H

#include "cli/methods.h"
#include "engine/experiment/prompt.h"
#include "engine/experiment/spans.h"

struct force;

/* The values of --activations. With 16, weights in float formats are multiplied as integers,
 * too. */
enum activations { ACTIVATIONS_AUTO, ACTIVATIONS_16, ACTIVATIONS_8 };

/* How a model is executed: the options --device, --chunk, --threads, --kv-type, --activations,
 * --rope-scale, --pre, --lora and --exact. */
struct execution {
    int64_t chunk, threads; /* 0 if the command chooses */
    const char *rope_scale; /* NULL for the value in the model file */
    const char *pre;        /* NULL for the value in the model file */
    const char *lora;       /* NULL if no adapter is used */
    int kv_type;            /* index into the values of --kv-type */
    int activations;        /* enum activations */
    int device;             /* enum device_word */
    bool exact;
};

extern const struct opt execution_options[]; /* fill a struct execution */
/* Options of a struct execution for commands that compute derivatives: --threads, --device, --pre
 * and --exact. */
extern const struct opt learner_options[];
/* Returns the type of the KV cache that --kv-type selects. */
enum kv_type execution_kv_type(const struct execution *x);

/* The values of --question: the method may see the question when it evicts, or not. */
enum question_time { QUESTION_NOT_GIVEN, QUESTION_KNOWN, QUESTION_UNKNOWN };
extern const char *const question_words[];

/* A model, a prompt and methods, with their options. */
struct runner {
    /* options */
    const char *model;
    struct execution how;
    struct prompt prompt;
    bool noted; /* notes about the prompt were printed for an earlier line */
    struct methods methods;
    bool ignore_eos;
    struct force *force; /* borrowed; NULL if every token is sampled */
    int64_t n_predict, seed, context;
    int question; /* enum question_time */
    double temperature, top_p;

    struct engine *engine;      /* set by runner_open() */
    struct method_range *range; /* [n_ranges] set by runner_ranges() */
    int n_ranges;
    int *turn_end; /* [n_turns] ends of turns in the prompt, with cut=turn; owned */
    int n_turns;
    bool outlives; /* the methods can run beyond the model's context (method_outlives) */
    /* several methods replace these; the caller sets `outlives` and calls runner_check_context() */
    bool cells;
};

/* Options of a struct runner: runner_prompt_options name the model and the prompt (-m to --date),
 * runner_method_options name the methods, and runner_options are all options of a run. */
extern const struct opt runner_prompt_options[], runner_method_options[], runner_options[];

/* Checks the options, then opens the model, the forced tokens, the methods and the prompt. Returns
 * KVF_OK, KVF_E_ARG for usage errors, or another error. d contains the reason in every case. */
int runner_open(struct runner *r, struct kvf_diag *d);
/* runner_open() in two steps, for commands that run prompts which no option names.
 * runner_open_model() opens everything but the prompt. runner_open_prompt() opens one prompt; call
 * prompt_close() before the next one. Here n_predict is -1 if not given. */
int runner_open_model(struct runner *r, struct kvf_diag *d);
int runner_open_prompt(struct runner *r, struct kvf_diag *d);
/* Takes a prompt that the caller tokenized, instead of runner_open_prompt(). Copies the ids. */
int runner_take_prompt(struct runner *r, const int32_t *ids, int n, struct kvf_diag *d);
/* Returns KVF_E_ARG with a sentence if -c exceeds the limit of the model and the methods,
 * otherwise KVF_OK. */
int runner_check_context(const struct runner *r, struct kvf_diag *d);
void runner_close(struct runner *r); /* accepts a zeroed struct */

/* Returns KVF_E_ARG with a sentence if `out` is the same file as an input of an open runner,
 * otherwise KVF_OK. */
int runner_output(const struct runner *r, const char *out, struct kvf_diag *d);

/* Frees the prompt, so that another one can be opened. */
void runner_forget_prompt(struct runner *r);

/* Returns the maximum number of tokens that the run can feed, prompt, question and answer, within
 * the context. */
int runner_cap(const struct runner *r);

/* Sets r->range to the spans of --spans (NULL: none), and if `system` is set to the system messages
 * of the open prompt. Returns KVF_OK or an error with a sentence. */
int runner_ranges(struct runner *r, const struct spans *spans, bool system, struct kvf_diag *d);
/* Finds the tokens that `protect` of the methods names, in the open prompt, and checks that they
 * fit into the budgets. spans: the spans of --spans, or NULL. Call it before the methods are
 * recorded and before runner_session(). Returns KVF_OK or an error with a sentence. */
int runner_protect(struct runner *r, const struct spans *spans, struct kvf_diag *d);

/* Creates a session for the open run. rec is borrowed; NULL records no trace. Returns KVF_OK or an
 * error with a sentence. */
int runner_session(struct runner *r, struct recorder *rec, struct session **ret_session,
                   struct kvf_diag *d);

#endif
