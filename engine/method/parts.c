/* parts.c - admission, trigger and read: the small tables.  Each
 * entry is a few lines; one that grows moves to a file of its own. */
#include "engine/method/parts.h"

static bool admit_all(const struct method_state *m, int layer, int head, int32_t pos)
{
    (void)m, (void)layer, (void)head, (void)pos;
    return true;
}

const struct admission admission_all = {"all", "every newcomer enters", admit_all};

static int target_none(const struct method_state *m, int share, int n, int incoming)
{
    (void)m, (void)share, (void)incoming;
    return n;
}

const struct trigger trigger_none = {"none", "never", target_none};

/* Room for the newcomer is made before it comes, so that its query sees at most
 * `share` entries; with every = s there is room for s of them. */
static int target_overflow(const struct method_state *m, int share, int n, int incoming)
{
    int most = share - incoming, left = most - method_params_of(m)->every + 1;
    return n <= most ? n : left > 0 ? left : 0;
}

const struct trigger trigger_overflow = {
    "overflow", "after the prompt and before every token that would exceed the share",
    target_overflow};

const struct read read_all = {"all", "every query reads every kept entry", true};

const struct admission *const admission_table[] = {&admission_all, NULL};
const struct trigger *const trigger_table[] = {&trigger_none, &trigger_overflow, NULL};
const struct read *const read_table[] = {&read_all, NULL};
