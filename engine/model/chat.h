/* chat.h - messages to prompt text, for the template families that we know. */
#ifndef KVF_ENGINE_CHAT_H
#define KVF_ENGINE_CHAT_H

#include "base/buf.h"
#include "engine/model/gguf.h"

struct chat_message {
    const char *role, *content; /* "system", "user", "assistant" */
};

bool chat_has_template(const struct gguf *g);

/* Appends the prompt, which ends in the mark of the answer where generation is set.  The
 * ChatML family (<|im_start|>role ... <|im_end|>) is rendered; a default system message
 * that the template spells, its line feeds as themselves or as escapes, is used when the
 * first message is not a system message.  Other templates, and a default message with
 * escapes that are not known: KVF_E_FORMAT with a sentence that points to --raw. */
int chat_render(const struct gguf *g, const struct chat_message *msg, int n, bool generation,
                struct buf *out, struct kvf_diag *d);

#endif
