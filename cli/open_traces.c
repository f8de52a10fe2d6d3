#include "cli/open_traces.h"

#include <string.h>

#include "base/json.h"

static bool partial; /* a trace that was read held less than a whole run */

bool traces_partial(void)
{
    return partial;
}

void trace_say_partial(const char *command, const char *path)
{
    partial = true;
    command_tell(command, "%s was not closed, was repaired, or holds no steps", path);
}

bool trace_is_partial(const struct kvf_trace *t)
{
    return !kvf_is_clean(t) || kvf_n_steps(t) == 0 || kvf_note(t, "repaired");
}

/* What a repair says of itself: nothing but the end of a run that was not closed is missing. */
static bool ends_early(const char *note)
{
    struct json *root = NULL;
    if (json_parse(note, strlen(note), &root, NULL) != KVF_OK)
        return false;
    bool early = !json_bool(json_get(root, "closed"), true)
                 && json_int(json_get(root, "places"), 1) == 0
                 && json_int(json_get(root, "missing"), 1) == 0;
    json_free(root);
    return early;
}

void trace_judge(const struct command *self, const struct kvf_trace *t, const char *doing)
{
    const char *path = kvf_path(t), *repaired = kvf_note(t, "repaired");
    if (!trace_is_partial(t))
        return;
    partial = true;
    if (kvf_tail_aside(t))
        command_tell(self->name, "%s; the newest state of the run, which it held, is not read",
                     kvf_tail_aside(t));
    if (kvf_n_steps(t) == 0)
        command_tell(self->name, "%s holds no steps%s", path,
                     kvf_is_clean(t) ? "" : ": it was not closed");
    else if (!kvf_is_clean(t))
        command_tell(self->name, "%s was not closed: %s its last snapshot (%u steps)", path, doing,
                     kvf_n_steps(t));
    else if (ends_early(repaired))
        command_tell(
            self->name,
            "%s was repaired: it has all that a run wrote which was not finished, and ends "
            "where that does",
            path);
    else
        command_tell(self->name, "%s was repaired, and lacks what was lost", path);
}

int open_trace(const struct command *self, const char *path, const char *doing,
               struct kvf_trace **ret, struct kvf_diag *d)
{
    int err = kvf_open(path, KVF_OPEN_TAIL, ret, d);
    if (!err)
        err = kvf_check_size(*ret, d);
    if (!err)
        trace_judge(self, *ret, doing);
    return err;
}

int open_both(const struct command *self, char *const path[2], struct kvf_trace *ret[2],
              struct kvf_diag *d)
{
    int err = open_trace(self, path[0], "comparing", &ret[0], d);
    return err ? err : open_trace(self, path[1], "comparing", &ret[1], d);
}
