/* task.h - a prompt whose answer is known: NAME.txt and NAME.json, as `kvfate needle` writes them.
 *
 * NAME.json has "spans" (spans.h) and
 *     "reply": {"text": "The number of the amber mill is 48213.", "values": [[32, 37]]}
 * an answer that is right, and which of its bytes are the answer proper: the words before them
 * only lead to it.  Spans that are useful are the evidence; all else of the prompt up to the span
 * "question", which it must have, distracts, but for the first tokens of the text.
 *
 * It may have "chance", the probability of a right answer without the text, from 0 to below 1.
 *
 * A folder stands for all its .json files, @LIST for those that a file names. */
#ifndef KVF_ENGINE_TASK_H
#define KVF_ENGINE_TASK_H

#include "engine/experiment/prompt.h"
#include "engine/experiment/causal.h"

struct task {
    char *name;           /* NAME */
    struct prompt prompt; /* with the reply */
    unsigned char *kind, *scored;
    double chance;         /* of a right answer without the text; 0: not said */
    int reply;             /* the first token that has bytes of the reply */
    unsigned char *counts; /* [tokens from there to the answer's last] not 0: it is the answer's */
    struct causal_task causal; /* borrows from the members above */
};

/* The tasks that operands name, opened one after the other. */
struct tasks {
    struct task *task; /* [n] */
    int n, cap;
    const struct engine *e; /* borrowed, as the rest: what task_open is given */
    bool raw;
    int sinks;
    struct kvf_diag *d;
    const char *note; /* a sentence about the prompts for the user; NULL: none */
};

/* Opens the tasks of n operands; t->e, raw and sinks are set.  KVF_OK or an error with a sentence,
 * which is KVF_E_LIMIT for one that does not fit into the model's context. */
int tasks_open(struct tasks *t, const char *const *operand, int n, struct kvf_diag *d);
/* KVF_E_ARG with a sentence when `out` would overwrite one. */
int tasks_keep(const struct tasks *t, const char *out, struct kvf_diag *d);
void tasks_close(struct tasks *t); /* accepts a zeroed struct */

/* Opens the task of a path NAME.json.  sinks: first tokens of the text that stay.  raw: without the
 * chat template.  KVF_OK or an error with a sentence. */
int task_open(struct task *t, const char *path, const struct engine *e, bool raw, int sinks,
              struct kvf_diag *d);
void task_close(struct task *t); /* accepts a zeroed struct */

#endif
