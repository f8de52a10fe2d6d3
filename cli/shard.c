/* shard.c - parses --shard I/N. */
#include "cli/shard.h"

#include <string.h>

#include "base/opt.h"

int shard_parse(const char *text, struct shard *ret, struct kvf_diag *d)
{
    enum { MOST_PARTS = 1 << 20 };
    struct shard s = {1, 1};
    char part[32];
    size_t n = text ? strcspn(text, "/") : 0;
    bool good = !text;
    if (text && text[n] && n < sizeof part) {
        memcpy(part, text, n);
        part[n] = 0;
        good = opt_int(part, &s.part) && opt_int(text + n + 1, &s.parts) && s.part >= 1
               && s.part <= s.parts && s.parts <= MOST_PARTS;
    }
    if (!good)
        return kvf_fail(d, KVF_E_ARG, "--shard needs I/N with I from 1 to N, not '%s'", text);
    *ret = s;
    return KVF_OK;
}
