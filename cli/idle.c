/* idle.c - rejects options without effect (idle.h). */
#include "cli/idle.h"

int idle_check(const struct idle *list, size_t n, struct kvf_diag *d)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].given)
            return kvf_fail(d, KVF_E_ARG, "%s has no effect %s; leave it out", list[i].option,
                            list[i].why);
    return KVF_OK;
}
