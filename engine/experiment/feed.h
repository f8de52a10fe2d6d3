/* feed.h - a prompt that is fed while somebody counts its tokens. */
#ifndef KVF_ENGINE_FEED_H
#define KVF_ENGINE_FEED_H

#include "engine/decode/session.h"

/* session_prompt; tell, unless NULL, is told how many more tokens are fed. */
int feed_prompt(struct session *s, const int32_t *ids, int n, void (*tell)(void *ctx, int tokens),
                void *ctx);

#endif
