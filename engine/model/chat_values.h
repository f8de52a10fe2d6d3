/* chat_values.h - messages as values of a chat template.  Private to engine/model. */
#ifndef KVF_ENGINE_CHAT_VALUES_H
#define KVF_ENGINE_CHAT_VALUES_H

#include "engine/model/chat.h"
#include "engine/model/jinja_value.h"

/* A text of n bytes, borrowed, whose bytes are marked as those of a message. */
struct jinja_value chat_marked(struct jinja *j, const char *s, size_t n, int message);

/* The value of a JSON array, with all below it: numbers without a fraction are integers, as Python
 * reads them.  In the array of messages the texts of contents and of reasoning are marked. */
struct jinja_value chat_values(struct jinja *j, const struct chat_json *c, uint32_t array);

#endif
