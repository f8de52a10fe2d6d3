/* feed.c - feeds a prompt and reports its progress. */
#include "engine/experiment/feed.h"

struct feeding {
    void (*tell)(void *ctx, int tokens);
    void *ctx;
    int reported;
};

static int on_prompt(void *ctx, int done)
{
    struct feeding *f = ctx;
    if (f->tell)
        f->tell(f->ctx, done - f->reported);
    f->reported = done;
    return 0;
}

int feed_prompt(struct session *s, const int32_t *ids, int n, void (*tell)(void *ctx, int tokens),
                void *ctx)
{
    struct feeding f = {tell, ctx, 0};
    return session_prompt(s, ids, n, on_prompt, &f);
}
