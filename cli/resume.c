/* resume.c - compares an unfinished trace with the run that would continue it. */
#include "cli/resume.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <kvf/trace.h>

#include "base/json.h"
#include "base/mem.h"
#include "studies/diff_header.h"

/* Compares two lists of header keys, both sorted by key. */
static int compare_pairs(const struct flat *old, const struct flat *now, const char *path,
                         struct kvf_diag *d)
{
    size_t i = 0, k = 0;
    while (i < old->n || k < now->n) {
        int order = i == old->n ? 1 : -1;
        if (i < old->n && k < now->n)
            order = strcmp(old->pair[i].key, now->pair[k].key);
        const char *key = order > 0 ? now->pair[k].key : old->pair[i].key;
        const char *was = order > 0 ? "nothing" : old->pair[i++].value;
        const char *is = order < 0 ? "nothing" : now->pair[k++].value;
        if (order || strcmp(was, is) != 0)
            return kvf_fail(d, KVF_E_ARG, "%s is of another run: %s is %.80s there and %.80s here",
                            path, key, was, is);
    }
    return KVF_OK;
}

static int compare_headers(const char *was, const char *is, const char *path, struct kvf_diag *d)
{
    struct flat old = {0}, now = {0};
    int err = flat_add(&old, "", was);
    if (!err)
        err = flat_add(&now, "", is);
    if (!err)
        err = compare_pairs(&old, &now, path, d);
    flat_free(&old);
    flat_free(&now);
    return err;
}

/* Compares the prompt with the tokens in the trace, up to the length of the shorter one. */
static int compare_prompts(struct kvf_trace *t, const struct prompt *p, const char *path,
                           struct kvf_diag *d)
{
    int column = kvf_find(t, "tokens.id");
    uint32_t all = (uint32_t)prompt_all(p), n = kvf_n_steps(t) < all ? kvf_n_steps(t) : all;
    if (n == 0 || column < 0)
        return KVF_OK;
    int32_t *id = MEM_NEW(int32_t, n);
    int err = id ? kvf_read_i32(t, column, 0, 0, 0, n, id, d) : KVF_E_NOMEM;
    for (uint32_t i = 0; !err && i < n; i++)
        if (id[i] != p->ids[i])
            err = kvf_fail(d, KVF_E_ARG,
                           "%s is of another run: token %u of the prompt is %d there and %d here",
                           path, (unsigned)i, (int)id[i], (int)p->ids[i]);
    mem_free(id);
    return err;
}

int resume_same(const char *path, const char *header, const struct prompt *prompt,
                struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    int err = kvf_open(path, KVF_OPEN_TAIL, &t, d);
    if (!err)
        err = compare_headers(kvf_meta(t), header, path, d);
    if (!err)
        err = compare_prompts(t, prompt, path, d);
    kvf_close(t);
    return err;
}

/* Fails because the trace is closed: its run ended, or a signal stopped it. */
static int refuse_closed(const char *out, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    struct json *result = NULL;
    struct kvf_diag unused;
    bool stopped = false;
    uint32_t steps = 0;
    if (kvf_open(out, KVF_OPEN_TAIL, &t, &unused) == KVF_OK) {
        const char *note = kvf_note(t, "result");
        if (note && json_parse(note, strlen(note), &result, &unused) == KVF_OK)
            stopped = strcmp(json_str(json_get(result, "stop"), ""), "interrupted") == 0;
        steps = kvf_n_steps(t);
    }
    json_free(result);
    kvf_close(t);
    if (stopped)
        return kvf_fail(d, KVF_E_IO,
                        "%s cannot be resumed: its run was interrupted after %u tokens and closed "
                        "it; --overwrite without --resume runs again",
                        out, steps);
    return kvf_fail(d, KVF_E_IO,
                    "%s is complete, so that there is no run to resume; --overwrite without "
                    "--resume replaces it",
                    out);
}

int resume_check(const char *out, const char *header, const struct prompt *prompt,
                 struct kvf_diag *d)
{
    struct buf path = {0};
    struct stat st;
    buf_printf(&path, "%s.unfinished", out);
    int err = path.err;
    if (!err && stat(path.data, &st) != 0 && errno == ENOENT)
        err = stat(out, &st) == 0
                  ? refuse_closed(out, d)
                  : kvf_fail(d, KVF_E_IO,
                             "neither %s nor an unfinished trace is there: leave --resume out",
                             out);
    if (!err)
        err = resume_same(path.data, header, prompt, d);
    buf_finish(&path);
    return err;
}
