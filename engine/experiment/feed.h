/* feed.h - feeds a prompt and reports its progress in tokens. */
#ifndef KVF_ENGINE_FEED_H
#define KVF_ENGINE_FEED_H

#include "engine/decode/session.h"

/* Calls session_prompt(), and passes the number of additional tokens fed to the callback if it is
 * not NULL. Returns as session_prompt() does. */
int feed_prompt(struct session *s, const int32_t *ids, int n, void (*tell)(void *ctx, int tokens),
                void *ctx);

#endif
