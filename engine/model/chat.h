/* chat.h - renders messages to prompt text with the chat template of a model file. */
#pragma once

#include "base/buf.h"
#include "base/json_tape.h"
#include "engine/model/gguf.h"

/* A message of a chat. */
struct chat_message {
    const char *role, *content; /* "system", "user", "assistant" */
};

enum { CHAT_MESSAGES = 1024 }; /* maximum number of messages of a prompt */

/* A conversation as JSON, read in place. The template receives every member of a message. */
struct chat_json {
    struct json_tape tape;
    uint32_t messages, tools; /* arrays of the tape; tools is 0 if not given */
    int n;                    /* number of messages */
};

/* Reads a JSON array of 1 to CHAT_MESSAGES messages, or an object with this array as "messages"
 * and optionally "tools". others: the object may have other members. The text must outlive *ret,
 * which chat_json_close() frees. A message is an object with a text "role". Its "content" is
 * absent, null, a text or an array of text parts. Returns KVF_OK, KVF_E_FORMAT with a sentence
 * that names the message and the wrong member, KVF_E_LIMIT or KVF_E_NOMEM. */
int chat_json_open(const char *text, size_t n, bool others, struct chat_json *ret,
                   struct kvf_diag *d);
void chat_json_close(struct chat_json *c); /* accepts a zeroed struct */

/* The template variable enable_thinking: undefined, true or false. */
enum chat_think { CHAT_THINK_AS_IS, CHAT_THINK, CHAT_NO_THINK };

/* The arguments of a template. */
struct chat_request {
    const struct chat_message *msg; /* [n]; not used if json is given */
    int n;
    const struct chat_json *json; /* NULL if msg is used */
    bool generation;              /* the prompt ends with the mark that begins an answer */
    enum chat_think think;        /* value of enable_thinking */
    const char *date; /* YYYY-MM-DD for the function strftime_now; NULL if it is not defined */
};

/* The role of a range of the prompt; CHAT_MARKS for text of the template itself. */
enum chat_role { CHAT_MARKS, CHAT_SYSTEM, CHAT_USER, CHAT_ANSWER, CHAT_THOUGHT };

/* Returns "system", "user", "answer", "think", or "marks" for CHAT_MARKS. */
const char *chat_role_name(enum chat_role role);

/* A range of bytes [from, to) of the prompt with its role and its message; message is -1 if it
 * belongs to no message. */
struct chat_span {
    size_t from, to;
    enum chat_role role;
    int message;
};

/* A rendered prompt. */
struct chat_text {
    struct buf text;
    struct chat_span *span; /* [n_spans], in order and disjoint; all other bytes are CHAT_MARKS */
    int n_spans;
    bool thinks;     /* the prompt ends within <think>, so the answer begins as a thought */
    bool has_switch; /* the template uses enable_thinking */
};

/* Returns true if the file has a chat template. */
bool chat_has_template(const struct gguf *g);
/* Returns true if the template mentions <think>, so that answers may contain thoughts. */
bool chat_may_think(const struct gguf *g);

/* Renders the chat template of a file as the transformers library does (jinja.h lists the
 * supported part of Jinja). The variables are messages, add_generation_prompt, bos_token and
 * eos_token, and if given enable_thinking, tools and a date. The spans are the contents of
 * messages, with the role of their message, and <think> ... </think> in the assistant's text.
 * Returns KVF_OK. Returns KVF_E_FORMAT with a sentence that recommends --raw if the file has no
 * template, uses an unsupported feature, or raises an exception. Returns KVF_E_ARG for an invalid
 * date, or if the template requires a date. Returns KVF_E_LIMIT if the template needs too much
 * memory or too many steps. Free ret with chat_text_free(); it is zeroed after an error. */
int chat_render(const struct gguf *g, const struct chat_request *r, struct chat_text *ret,
                struct kvf_diag *d);
void chat_text_free(struct chat_text *t); /* accepts a zeroed struct */
