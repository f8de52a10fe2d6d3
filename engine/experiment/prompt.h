/* prompt.h - reads the prompt of a run from the command line or a file, as text, messages or
 * ids. */
#ifndef KVF_ENGINE_PROMPT_H
#define KVF_ENGINE_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/decode/engine.h"
#include "engine/model/chat.h"

/* A prompt: its options, its text and its tokens. */
struct prompt {
    /* options: at most one of the first four is not NULL */
    const char *given, *file, *chat, *ids_file;
    /* borrowed: a JSON object with "messages" that replaces `chat`, or NULL */
    const char *messages;
    bool raw;  /* no chat template */
    bool line; /* the prompt is a line of a batch, which no option names */
    /* sets the template's enable_thinking; if neither is set, the template decides */
    bool think, no_think;
    const char *date; /* YYYY-MM-DD for templates that print a date; NULL if not given */
    const char
        /* beginning of the answer, which follows the prompt; NULL if not given. Not with
         * ids_file */
        *reply;
    /* question about `given` or `file`, which follows it after an empty line, with raw at once;
     * NULL if not given */
    const char *ask;
    const char *join;    /* text before `ask` in the place of the empty line; NULL if not given */
    bool apart;          /* the question is fed after the context (question_split) */
    int64_t question_at; /* first token of the question; 0 if the text says it */
    const char
        *spans_file; /* file of spans (spans.h), whose span "question" is the question; NULL */

    /* set by prompt_open() */
    /* a sentence about the model's template for the user; NULL if there is none */
    const char *note;
    struct buf text;  /* the text that was tokenized, with the template */
    size_t at, bytes; /* range of the given prompt in the text; 0 bytes: the complete text */
    bool changed;     /* the template changes the prompt, for example strips its spaces */
    size_t reply_at;  /* start of the reply in the text; the end of the text without a reply */
    size_t question_from, question_to; /* bytes of `ask` in the text; 0 without it */
    int32_t *ids;                      /* [n_ids + n_question] */
    int n_ids;      /* tokens of the prompt, which is the context if the question is apart */
    int n_question; /* tokens of the question and of the template after it, from ids[n_ids] on */
    /* spans of the rendered template, without its text; zeroed without a template */
    struct chat_text chat_text;
};

/* Returns the number of tokens with those of the question. */
static inline int prompt_all(const struct prompt *p)
{
    return p->n_ids + p->n_question;
}

/* Returns true if one of the options names a prompt. */
bool prompt_named(const struct prompt *p);

/* Returns KVF_E_ARG with a sentence if options exclude each other, or if `needed` is set and no
 * prompt is named. Otherwise returns KVF_OK. */
int prompt_check(const struct prompt *p, bool needed, struct kvf_diag *d);

/* Reads and tokenizes the prompt that the options name. Returns KVF_OK or an error with a
 * sentence. */
int prompt_open(struct prompt *p, const struct engine *e, struct kvf_diag *d);
/* Sets the prompt to a copy of n ids. Returns KVF_OK or KVF_E_NOMEM. */
int prompt_take(struct prompt *p, const int32_t *ids, int n);
/* Frees the text and tokens, so that another prompt can be opened. Accepts a zeroed struct. */
void prompt_close(struct prompt *p);

/* Sets *ret_end [prompt_all()] to the byte of the text at which each token ends. Free it with
 * mem_free(). Returns KVF_E_FORMAT with a sentence if the bytes of the tokens differ from the text.
 */
int prompt_ends(const struct prompt *p, const struct tokenizer *t, int64_t **ret_end,
                struct kvf_diag *d);
/* Returns the first of n tokens that ends after a byte; n if there is none. */
int32_t prompt_token_at(const int64_t *end, int n, int64_t byte);

/* Sets the token range of a span of the rendered template, [*ret_first, *ret_end). i: index in
 * chat_text.span. end: of prompt_ends(). */
void prompt_turn(const struct prompt *p, const int64_t *end, int i, int32_t *ret_first,
                 int32_t *ret_end);

/* Appends the member "turns" of a run header: the role and token range of each message of a
 * rendered template, as {"role", "tokens": [a, b)}. Appends no member for other prompts. */
void prompt_put_turns(const struct prompt *p, const struct tokenizer *t, struct buf *b);

/* Reads token ids from a text file: decimal numbers separated by white space. Free *ret_ids with
 * mem_free(). Returns KVF_E_FORMAT with a sentence for an id outside the vocabulary. */
int prompt_read_ids(const char *path, int vocab, int32_t **ret_ids, int *ret_n, struct kvf_diag *d);

#endif
