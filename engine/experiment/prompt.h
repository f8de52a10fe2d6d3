/* prompt.h - the prompt of a run: from the command line or a file, as text, messages or ids. */
#ifndef KVF_ENGINE_PROMPT_H
#define KVF_ENGINE_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/decode/engine.h"
#include "engine/model/chat.h"

struct prompt {
    /* options: at most one of the first four is not NULL */
    const char *given, *file, *chat, *ids_file;
    const char *messages; /* borrowed: a JSON object with "messages", instead of `chat`, or NULL */
    bool raw;             /* no chat template */
    bool think, no_think; /* the template's enable_thinking; neither: its own choice */
    const char *date;     /* YYYY-MM-DD that templates tell; NULL: none */
    const char
        *reply; /* the beginning of the answer, which follows; NULL: none.  Not with ids_file */

    /* made by prompt_open */
    const char *note; /* a sentence about the model's template for the user; NULL: none */
    struct buf text;  /* as it was tokenised, template included */
    size_t at, bytes; /* where the prompt as given is in the text; 0 bytes: all of it */
    bool changed;     /* the template does not show the prompt as given: it strips it, say */
    size_t reply_at;  /* where the reply begins: the end of the text without one */
    int32_t *ids;     /* [n_ids] */
    int n_ids;
    struct chat_text chat_text; /* where a template rendered it, without its text; else zeroed */
};

/* Whether one of the options names a prompt. */
bool prompt_named(const struct prompt *p);

/* KVF_E_ARG with a sentence for options that exclude each other, and where no prompt is named
 * though it is needed. */
int prompt_check(const struct prompt *p, bool needed, struct kvf_diag *d);

/* Reads and tokenises the prompt that is named.  KVF_OK or an error with a sentence. */
int prompt_open(struct prompt *p, const struct engine *e, struct kvf_diag *d);
/* Copies the n ids of a prompt that something else holds.  KVF_OK or KVF_E_NOMEM. */
int prompt_take(struct prompt *p, const int32_t *ids, int n);
/* Frees what prompt_open made, so that another prompt can be opened.  Accepts a zeroed one. */
void prompt_close(struct prompt *p);

/* Where the tokens of an opened prompt end in its text: *ret_end [n_ids] bytes, to be freed with
 * mem_free.  KVF_E_FORMAT when tokens and text are not the same bytes. */
int prompt_ends(const struct prompt *p, const struct tokenizer *t, int64_t **ret_end,
                struct kvf_diag *d);
/* The first of n tokens that ends after a byte; n: none. */
int32_t prompt_token_at(const int64_t *end, int n, int64_t byte);

/* Appends the member "turns" of a run header: who says which tokens of a prompt that a template
 * rendered, as {"role", "tokens": [a, b)}; nothing for other prompts. */
void prompt_put_turns(const struct prompt *p, const struct tokenizer *t, struct buf *b);

/* Token ids of a file of text, in decimal, separated by white space; free *ret_ids with
 * mem_free.  KVF_E_FORMAT for ids that the vocabulary lacks. */
int prompt_read_ids(const char *path, int vocab, int32_t **ret_ids, int *ret_n, struct kvf_diag *d);

#endif
