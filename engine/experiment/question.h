/* question.h - splits a prompt into a context and the question that follows it.
 *
 * With `apart`, a method evicts entries after the context, and the question is fed to the cache
 * that is left.  The tokens of the context must not depend on the question.  A tokenizer can join
 * the end of a context and the beginning of a question, so this is checked. */
#ifndef KVF_ENGINE_QUESTION_H
#define KVF_ENGINE_QUESTION_H

#include "base/json.h"
#include "engine/experiment/prompt.h"

/* Finds the first token of the question, which is the text from byte `from` to byte `to` of an open
 * prompt.  Returns KVF_E_FORMAT with a sentence if a token holds bytes of the context and of the
 * question, or if the tokens before it would differ for another question that begins with the same
 * white space and the same kind of character. */
int question_token(const struct prompt *p, const struct engine *e, size_t from, size_t to,
                   int *ret_token, struct kvf_diag *d);

/* Sets *from and *to to the bytes of the first span "question" of {"spans": [{"name", "start",
 * "end"}]}, in the text of the prompt.  Returns false if there is none. */
bool question_span(const struct prompt *p, const struct json *root, size_t *from, size_t *to);

/* Moves the question of an open prompt from ids to `question`.  Returns KVF_OK, or an error with a
 * sentence if the prompt has no question or cannot be split. */
int question_split(struct prompt *p, const struct engine *e, struct kvf_diag *d);

/* Sets *ret_end [*ret_n], owned by the caller, to the numbers of tokens at which the turns of a
 * chat end: where the content of an answer in the messages begins.  The end of the prompt is not in
 * the list.  Returns KVF_E_ARG with a sentence if the prompt is no chat. */
int question_turn_ends(const struct prompt *p, const struct tokenizer *t, int **ret_end, int *ret_n,
                       struct kvf_diag *d);

#endif
