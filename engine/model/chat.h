/* chat.h - messages to prompt text, by the template that a model file carries. */
#ifndef KVF_ENGINE_CHAT_H
#define KVF_ENGINE_CHAT_H

#include "base/buf.h"
#include "base/json_tape.h"
#include "engine/model/gguf.h"

struct chat_message {
    const char *role, *content; /* "system", "user", "assistant" */
};

enum { CHAT_MESSAGES = 1024 }; /* maximum number of messages of a prompt */

/* A conversation as JSON, read in place: every member of a message reaches the template. */
struct chat_json {
    struct json_tape tape;
    uint32_t messages, tools; /* arrays of the tape; tools 0: not given */
    int n;                    /* messages */
};

/* Reads a JSON array of 1 to CHAT_MESSAGES messages, or an object with it as "messages" and, if
 * wanted, "tools"; others: whether the object may have other members.  The text must outlive *ret,
 * which chat_json_close frees.  A message is an object with a text "role"; its "content" is absent,
 * null, a text or an array of parts of text.  KVF_E_FORMAT with a sentence that names the message
 * and the member that is wrong; KVF_E_LIMIT; KVF_E_NOMEM. */
int chat_json_open(const char *text, size_t n, bool others, struct chat_json *ret,
                   struct kvf_diag *d);
void chat_json_close(struct chat_json *c); /* accepts a zeroed one */

enum chat_think { CHAT_THINK_AS_IS, CHAT_THINK, CHAT_NO_THINK };

struct chat_request {
    const struct chat_message *msg; /* [n]; not used if json is given */
    int n;
    const struct chat_json *json; /* NULL: msg */
    bool generation;              /* the prompt ends in the mark of the answer */
    enum chat_think think;        /* the template's enable_thinking: not defined, true, false */
    const char *date;             /* what strftime_now tells, YYYY-MM-DD; NULL: it is not defined */
};

/* Who says what; CHAT_MARKS: what the template puts around it. */
enum chat_role { CHAT_MARKS, CHAT_SYSTEM, CHAT_USER, CHAT_ANSWER, CHAT_THOUGHT };

/* "system", "user", "answer", "think"; of CHAT_MARKS "marks". */
const char *chat_role_name(enum chat_role role);

/* Bytes [from, to) of the prompt have a role, and are of a message; message -1: of none. */
struct chat_span {
    size_t from, to;
    enum chat_role role;
    int message;
};

/* A prompt that was rendered. */
struct chat_text {
    struct buf text;
    struct chat_span *span; /* [n_spans], in order, without overlaps; the rest is CHAT_MARKS */
    int n_spans;
    bool thinks;     /* the prompt ends within <think>: the answer begins there */
    bool has_switch; /* the template asked for enable_thinking */
};

bool chat_has_template(const struct gguf *g);
/* Whether the template of the file tells of <think>, so that answers may. */
bool chat_may_think(const struct gguf *g);

/* Renders the template of a file as the transformers library does (jinja.h says which part of
 * Jinja that is), over messages, add_generation_prompt, bos_token, eos_token, and where they are
 * given enable_thinking, tools and a date; there are no documents.  Spans: the contents of
 * messages where the template shows them, by the role of their message, and <think> ... </think>
 * of what the assistant says.
 * KVF_E_FORMAT with a sentence that points to --raw for a file without a template and for what the
 * renderer does not know, or the template refuses; KVF_E_ARG for a date that is none, and for a
 * template that needs one; KVF_E_LIMIT for a template that takes too much memory or too many steps.
 * ret is freed
 * with chat_text_free, and zeroed after an error. */
int chat_render(const struct gguf *g, const struct chat_request *r, struct chat_text *ret,
                struct kvf_diag *d);
void chat_text_free(struct chat_text *t); /* accepts a zeroed one */

#endif
