/* open_traces.c - opens traces and remembers whether one was incomplete. */
#include "cli/open_traces.h"

#include <string.h>

#include "analyzers/common.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/original_heads.h"

static bool partial; /* a trace that was read is not a complete run */

bool traces_partial(void)
{
    return partial;
}

void trace_report_partial(const char *command, const char *path)
{
    partial = true;
    command_print(command, "%s was not closed, was repaired, or has no steps", path);
}

bool trace_is_partial(const struct kvf_trace *t)
{
    return !kvf_is_clean(t) || kvf_n_steps(t) == 0 || kvf_note(t, "repaired");
}

/* Returns true if the note of a repair records that only the end of an unfinished run is
 * missing. */
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

void trace_check_complete(const struct command *self, const struct kvf_trace *t, const char *doing)
{
    const char *path = kvf_path(t), *repaired = kvf_note(t, "repaired");
    if (!trace_is_partial(t))
        return;
    partial = true;
    if (kvf_tail_aside(t))
        command_print(self->name, "%s; the newest state of the run, which was there, is not read",
                      kvf_tail_aside(t));
    if (kvf_n_steps(t) == 0)
        command_print(self->name, "%s has no steps%s", path,
                      kvf_is_clean(t) ? ""
                                      : ": it was not closed, or the file was cut off; "
                                        "'kvfate trace repair' recovers the values in it");
    else if (!kvf_is_clean(t))
        command_print(self->name, "%s was not closed: %s its last snapshot (%u steps)", path, doing,
                      kvf_n_steps(t));
    else if (ends_early(repaired))
        command_print(
            self->name,
            "%s was repaired: it has all that a run wrote which was not finished, and ends "
            "where that does",
            path);
    else
        command_print(self->name, "%s was repaired, and lacks the lost data", path);
}

void trace_report_heads(const struct command *self, const struct kvf_trace *t)
{
    enum { MOST = 8 };
    struct original_heads heads;
    struct buf text = {0};
    original_heads_read(t, &heads);
    original_heads_text(&heads, MOST, &text);
    if (!text.err && text.len)
        command_print(self->name, "%s has its heads numbered anew: %.*s of the complete run",
                      kvf_path(t), (int)text.len, text.data);
    buf_finish(&text);
    original_heads_free(&heads);
}

void trace_report_piece(const struct command *self, const struct kvf_trace *t)
{
    trace_report_heads(self, t);
    const char *note = kvf_note(t, "part");
    struct json *root = NULL;
    if (!note || json_parse(note, strlen(note), &root, NULL) != KVF_OK)
        return;
    int64_t from = json_int(json_get(root, "from"), 0), to = json_int(json_get(root, "to"), 0);
    int64_t of = json_int(json_get(root, "of"), 0);
    if (to - from < of)
        command_print(self->name,
                      "%s is tokens %lld to %lld of a run of %lld: an event after the part, such "
                      "as the eviction of an entry, counts at the end of the part, and fractions "
                      "of the attention are relative to the part",
                      kvf_path(t), (long long)from, (long long)to - 1, (long long)of);
    json_free(root);
}

int open_trace(const struct command *self, const char *path, const char *doing,
               struct kvf_trace **ret, struct kvf_diag *d)
{
    int err = kvf_open(path, KVF_OPEN_TAIL, ret, d);
    if (!err)
        err = kvf_check_size(*ret, d);
    if (!err)
        trace_check_complete(self, *ret, doing);
    return err;
}

int open_both(const struct command *self, char *const path[2], struct kvf_trace *ret[2],
              struct kvf_diag *d)
{
    int err = open_trace(self, path[0], "comparing", &ret[0], d);
    return err ? err : open_trace(self, path[1], "comparing", &ret[1], d);
}

/* Returns the first of n tokens in which two traces differ; n if there is no difference, or if
 * tokens cannot be read. */
static uint32_t first_difference(struct kvf_trace *const t[2], uint32_t n)
{
    double *id[2] = {NULL, NULL};
    struct kvf_diag d = {""};
    uint32_t i = 0;
    int err = KVF_OK;
    for (int k = 0; !err && k < 2; k++) {
        int column = kvf_find(t[k], "tokens.id");
        id[k] = MEM_NEW(double, (size_t)n);
        err = column < 0 || !id[k] ? KVF_E_NOTFOUND
                                   : kvf_read_f64(t[k], column, 0, 0, 0, n, id[k], &d);
    }
    while (!err && i < n && id[0][i] == id[1][i])
        i++;
    mem_free(id[0]);
    mem_free(id[1]);
    return err ? n : i;
}

void traces_report_diverged(const struct command *self, struct kvf_trace *const *t, int n)
{
    int64_t prompt = -1, other;
    if (n > 1 && answer_start(t[0], &prompt, NULL) != KVF_OK)
        return; /* the analysis of the trace reports the error */
    for (int i = 1; i < n && prompt > 0; i++) {
        uint32_t least = kvf_n_steps(t[0]) < kvf_n_steps(t[i]) ? kvf_n_steps(t[0])
                                                               : kvf_n_steps(t[i]);
        uint32_t at = answer_start(t[i], &other, NULL) == KVF_OK && other == prompt
                          ? first_difference((struct kvf_trace *const[]){t[0], t[i]}, least)
                          : least;
        if (at < least && at >= prompt)
            command_print(
                self->name,
                "note: %s and %s have the same prompt and differ from token %u, because each run "
                "wrote its own answer; 'kvfate run --force TRACE' records a method on the text of "
                "another trace",
                kvf_path(t[0]), kvf_path(t[i]), at);
    }
}
