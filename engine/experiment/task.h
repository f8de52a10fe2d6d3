/* task.h - a prompt with a known answer: NAME.txt and NAME.json, as `kvfate tasks needle` writes
 * them.
 *
 * NAME.json has "spans" (spans.h) and
 *     "reply": {"text": "The number of the amber mill is 48213.", "values": [[32, 37]]}
 * The reply is a right answer. "values" are the bytes of it that are the answer; the other words
 * only lead to it. Useful spans are the evidence. All other tokens of the prompt before the
 * required span "question" are distractors, except the first tokens of the text.
 *
 * NAME.json may have "chance", the probability of a right answer without the text, 0 <= chance <
 * 1, and "question", "known" or "unknown": the protocol of the task. The default is "known".
 *
 * An operand that is a folder means all its .json files. @LIST means the files that LIST names.
 */
#ifndef KVF_ENGINE_TASK_H
#define KVF_ENGINE_TASK_H

#include "engine/experiment/prompt.h"
#include "engine/experiment/causal.h"

/* An open task. */
struct task {
    char *name;           /* path without .json */
    struct prompt prompt; /* with the reply */
    unsigned char *kind, *scored;
    double chance; /* probability of a right answer without the text; 0 if not given */
    bool unknown;  /* the file says that methods do not see the question when they cut */
    int reply;     /* first token that contains bytes of the reply */
    size_t question_from, question_to; /* bytes of the question in the text of the prompt */
    /* [tokens from `reply` to the last token of the answer] nonzero if it belongs to the answer */
    unsigned char *counts;
    struct causal_task causal; /* refers to the members above */
};

/* The tasks of a command, in the order of its operands. */
struct tasks {
    struct task *task; /* [n] */
    int n, cap;
    const struct engine *e; /* arguments of task_open(), borrowed */
    bool raw;
    int sinks;
    struct kvf_diag *d;
    const char *note; /* a sentence about the prompts for the user; NULL if there is none */
};

/* Opens the tasks of n operands. The caller has set t->e, raw and sinks. Returns KVF_OK or an
 * error with a sentence; KVF_E_LIMIT if a task exceeds the model's context. */
int tasks_open(struct tasks *t, const char *const *operand, int n, struct kvf_diag *d);
/* The values of --question for tasks: the protocol, or that of the files. */
enum task_question { TASK_KNOWN, TASK_UNKNOWN, TASK_FILE };
extern const char *const task_question_words[];
/* Sets *ret_unknown to true if the cache is cut before the question. Returns KVF_E_ARG with a
 * sentence if the tasks decide and do not agree. */
int tasks_question(const struct tasks *t, enum task_question how, bool *ret_unknown,
                   struct kvf_diag *d);
/* Returns KVF_E_ARG with a sentence if `out` would overwrite a file of a task, otherwise KVF_OK. */
int tasks_keep(const struct tasks *t, const char *out, struct kvf_diag *d);
void tasks_close(struct tasks *t); /* accepts a zeroed struct */

/* Opens the task at NAME.json. sinks: number of first tokens of the text that are not distractors.
 * raw: without the chat template. Returns KVF_OK or an error with a sentence. */
int task_open(struct task *t, const char *path, const struct engine *e, bool raw, int sinks,
              struct kvf_diag *d);
/* Finds the first token of the question, as question_token() does. */
int task_question(const struct task *t, const struct engine *e, int *ret_token, struct kvf_diag *d);
void task_close(struct task *t); /* accepts a zeroed struct */

#endif
