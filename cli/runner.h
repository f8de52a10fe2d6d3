/* runner.h - what commands that decode a prompt share: options, model, prompt. */
#ifndef KVF_CLI_RUNNER_H
#define KVF_CLI_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/opt.h"
#include "engine/decode/sampler.h"
#include "engine/decode/session.h"

struct force;

struct runner {
    /* options */
    const char *model, *prompt, *file, *chat, *ids_file;
    const char *method, *kv_type, *gates_file;
    struct opt_list override_text;
    bool raw, exact, ignore_eos;
    struct force *force; /* borrowed; NULL: every token is sampled */
    int64_t n_predict, budget, seed, threads, chunk, context;
    double temperature, top_p;

    /* made by runner_open */
    struct engine *engine;
    struct method row;
    struct method_params params;
    struct runner_override {
        struct method row;
        struct method_params params;
        unsigned char *take; /* [L * cache heads] */
    } * override;            /* [override_text.n] */
    struct gates *gates;     /* NULL: none */
    struct method_inputs inputs;
    int cache_heads;                /* KV heads of the cache and of the trace */
    struct buf text;                /* the prompt as it was tokenised, template included */
    size_t prompt_at, prompt_bytes; /* where the prompt as given is in it; 0 bytes: all of it */
    int32_t *ids;                   /* [n_ids] */
    int n_ids;
};

/* Tables of a struct runner: what names the model and the prompt, -m to --raw; and those with all
 * options of a run. */
extern const struct opt runner_prompt_options[], runner_options[];

/* Opens a model; NULL: the default one.  KVF_OK or an error with a sentence. */
int runner_engine(const char *model, bool exact, int threads, struct engine **ret_engine,
                  struct kvf_diag *d);

/* Checks options, opens the model, tokenises the prompt.  KVF_OK; KVF_E_ARG for
 * usage errors; others for failures.  d always says why. */
int runner_open(struct runner *r, struct kvf_diag *d);
void runner_close(struct runner *r); /* accepts a zeroed runner */

/* KVF_E_ARG when `out` names the same file as an input of an opened runner. */
int runner_output(const struct runner *r, const char *out, struct kvf_diag *d);

/* Whether two paths lead to the same file. */
bool runner_same_file(const char *a, const char *b);
/* KVF_E_ARG with a sentence when out is one of the n inputs; NULL and "-" are none. */
int runner_keeps(const char *out, char *const *in, int n, struct kvf_diag *d);

/* Most tokens that the run can feed: prompt plus answer, within the context. */
int runner_cap(const struct runner *r);

int runner_session(struct runner *r, struct recorder *rec, struct session **ret_session,
                   struct kvf_diag *d);

/* The bytes of a file, - is stdin, appended to out; at most 64 MiB.  KVF_OK or an error with
 * a sentence. */
int runner_read_file(const char *path, struct buf *out, struct kvf_diag *d);

/* Token ids of a file of text, in decimal, separated by white space; free *ret_ids with
 * mem_free.  KVF_E_FORMAT for ids that the vocabulary lacks. */
int runner_read_ids(const char *path, int vocab, int32_t **ret_ids, int *ret_n, struct kvf_diag *d);

/* The rows and gates of the run (runner_methods.c): parsed before the model is opened,
 * joined with it afterwards. */
int runner_parse_methods(struct runner *r, struct kvf_diag *d);
int runner_open_methods(struct runner *r, struct kvf_diag *d);
void runner_close_methods(struct runner *r);
/* Gates for this model, of a file or of the name of shipped ones (folders.h).  KVF_OK or an
 * error with a sentence. */
int runner_gates(struct engine *e, const char *path, struct gates **ret_gates, struct kvf_diag *d);
/* Those shipped for a row and this model: *ret_gates is left alone when the row needs none.
 * KVF_OK or an error with a sentence. */
int runner_shipped_gates(struct engine *e, const struct method *m, struct gates **ret_gates,
                         struct kvf_diag *d);
/* "method", "gates" and "overrides" of the run header, each with a comma before it. */
void runner_put_methods(struct buf *b, const struct runner *r);

/* Column of what the gates give an entry, NULL: they give heads or blocks something, or
 * there are none. */
const char *runner_gate_column(const struct runner *r);
/* Whether queries of any row may not see all entries. */
bool runner_evicts(const struct runner *r);
bool runner_reads_pages(const struct runner *r); /* whether any row does */

/* --head SET of a model's KV heads: *ret_take [L * KV heads], to be freed with mem_free, on
 * failure too.  KVF_E_ARG with a sentence for a set that is malformed or names none. */
int runner_heads(const struct model_config *m, const char *set, unsigned char **ret_take,
                 struct kvf_diag *d);

/* The n operands are further files of --data.  KVF_OK or KVF_E_ARG. */
int runner_data(struct opt_list *data, char *const *operand, int n, struct kvf_diag *d);

/* Exit status for an error code of the functions above. */
int runner_status(int err);

#endif
