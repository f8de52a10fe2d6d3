/* entries.c - parses the selection of prompt entries of --entries. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/opt.h"
#include "base/rng.h"
#include "engine/experiment/entries.h"

/* Marks the entries of a span filter "A:B,C:,D". */
static int mark_spans(const char *s, int tokens, unsigned char *take, struct kvf_diag *d)
{
    static const char option[] = "--entries span";
    for (;; s++) {
        char text[64];
        size_t n = strcspn(s, ",");
        int64_t a = 0, b = -1;
        snprintf(text, sizeof text, "%.*s", n < sizeof text ? (int)n : 0, s);
        bool single = n < sizeof text && opt_int(text, &a) && a >= 0;
        int err = single ? KVF_OK : opt_range(option, text, &a, &b, d);
        if (single)
            b = a + 1;
        if (!err)
            err = opt_range_fit(option, "tokens", "the prompt", tokens, &a, &b, d);
        if (err)
            return err;
        memset(take + a, 1, (size_t)(b - a));
        s += n;
        if (!*s)
            return KVF_OK;
    }
}

static int mark_class(const char *filter, const char *name, const struct entries_prompt *p,
                      unsigned char *take, struct kvf_diag *d)
{
    int sinks = p->sinks < p->tokens ? p->sinks : p->tokens;
    int from = p->recent < p->tokens - sinks ? p->tokens - p->recent : sinks;
    if (strcmp(name, "sink") == 0)
        memset(take, 1, (size_t)sinks);
    else if (strcmp(name, "recent") == 0)
        memset(take + from, 1, (size_t)(p->tokens - from));
    else if (strcmp(name, "middle") == 0)
        memset(take + sinks, 1, (size_t)(from - sinks));
    else
        return kvf_fail(d, KVF_E_ARG, "--entries %s: the classes are sink, recent and middle",
                        filter);
    return KVF_OK;
}

/* Marks N random entries after the sinks; every set of N is equally likely. Position i is selected
 * with probability wanted / left (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S). */
static int mark_random(const char *filter, const char *s, const struct entries_prompt *p,
                       unsigned char *take, struct kvf_diag *d)
{
    struct rng r;
    int64_t n;
    int left = p->tokens - p->sinks;
    if (!opt_int(s, &n) || n < 1)
        return kvf_fail(d, KVF_E_ARG, "--entries %s: write random:N with N >= 1", filter);
    if (n > left)
        return kvf_fail(d, KVF_E_ARG, "--entries %s: the prompt has %d tokens after its %d sinks",
                        filter, left > 0 ? left : 0, p->sinks);
    rng_init(&r, p->seed);
    for (int i = p->sinks; i < p->tokens; i++, left--)
        if ((int64_t)rng_below(&r, (uint64_t)left) < n) {
            take[i] = 1;
            n--;
        }
    return KVF_OK;
}

static int mark(const char *filter, const struct entries_prompt *p, unsigned char *take,
                struct kvf_diag *d)
{
    if (strncmp(filter, "span=", 5) == 0)
        return mark_spans(filter + 5, p->tokens, take, d);
    if (strncmp(filter, "class=", 6) == 0)
        return mark_class(filter, filter + 6, p, take, d);
    if (strncmp(filter, "random:", 7) == 0)
        return mark_random(filter, filter + 7, p, take, d);
    return kvf_fail(d, KVF_E_ARG,
                    "--entries %s: write span=A:B, class=sink|recent|middle or "
                    "random:N",
                    filter);
}

int entries_parse(const char *filter, const struct entries_prompt *p, int32_t **ret_pos, int *ret_n,
                  struct kvf_diag *d)
{
    unsigned char *take = MEM_NEW(unsigned char, (size_t)p->tokens);
    int32_t *pos = MEM_NEW(int32_t, (size_t)p->tokens);
    int n = 0, err = take && pos ? mark(filter, p, take, d) : KVF_E_NOMEM;
    for (int i = 0; !err && i < p->tokens; i++)
        if (take[i])
            pos[n++] = i;
    if (!err && n == 0)
        err = kvf_fail(d, KVF_E_ARG, "--entries %s: no entry of the prompt is meant", filter);
    mem_free(take);
    if (err) {
        mem_free(pos);
        return err;
    }
    *ret_pos = pos;
    *ret_n = n;
    return KVF_OK;
}
