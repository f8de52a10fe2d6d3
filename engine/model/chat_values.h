/* chat_values.h - private to engine/model: messages as values of a chat template. */
#pragma once

#include "engine/model/chat.h"
#include "engine/model/jinja_value.h"

/* Returns a text value of n bytes, borrowed, marked as content of a message. */
struct jinja_value chat_marked(struct jinja *j, const char *s, size_t n, int message);

/* Returns the value of a JSON array with all its members. Numbers without a fraction are integers,
 * as in Python. In the array of messages, texts of contents and of reasoning are marked. */
struct jinja_value chat_values(struct jinja *j, const struct chat_json *c, uint32_t array);
